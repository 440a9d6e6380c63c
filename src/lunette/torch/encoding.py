"""Ops as text and back: a torch schema has no ops, and a saved program must name them.

The text is the op's `repr`. It is read back as a tree of constructor calls of Lunette's own
names, never evaluated as Python: a program from a file can name an op and nothing else.
"""

from __future__ import annotations

import ast
from functools import lru_cache
from typing import Any

import lunette.ops
from lunette import reductions, regions
from lunette.ops.base import Op

__all__ = ["decode", "encode"]

CONSTRUCTORS = {
    name: getattr(module, name)
    for module in (lunette.ops, reductions, regions)
    for name in module.__all__
    if isinstance(getattr(module, name), type)
}


def encode(op: Op) -> str:
    """The text that `decode` reads back."""
    return repr(op)


@lru_cache(maxsize=4096)
def decode(text: str) -> Any:
    """The op that this text names."""
    try:
        op = _value(ast.parse(text, mode="eval").body)
    except SyntaxError:
        op = None
    if not isinstance(op, Op):
        raise ValueError(f"op={text!r}: expected the repr of an op, such as 'MaxPool((2, 2))'")
    return op


def _value(node: ast.expr) -> Any:
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Tuple):
        return tuple(map(_value, node.elts))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        constructor = CONSTRUCTORS.get(node.func.id)
        if constructor is not None:
            named = {word.arg: _value(word.value) for word in node.keywords if word.arg}
            return constructor(*map(_value, node.args), **named)
    raise ValueError(f"op text {ast.unparse(node)!r}: expected ops, regions, reductions, numbers")
