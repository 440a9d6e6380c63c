"""The CPU interpreter in Numba: hands each op to the module of its family."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from typing import Any

from lunette.loading import load
from lunette.ops.base import Op
from lunette.ops.pooling import Pooling
from lunette.reductions import Min, Mode, RoundedMean

__all__ = ["forward", "forward_with_indices", "jvp", "refuses", "vjp", "vjp_of"]


@cache
def _module(name: str) -> Any:
    name = f"lunette.kernels.cpu.{name}"
    return load(name) if find_spec(name) else None


def _family(op: Op) -> Any:
    """The module with the kernels for this op, or None."""
    if not isinstance(op, Pooling):
        return _module("convolution")
    return _module(
        "integers.verbs" if isinstance(op.reduction, (Min, Mode, RoundedMean)) else "pooling"
    )


@cache
def _missing() -> str | None:
    """Why nothing can be compiled here, or None."""
    try:
        found = find_spec("numba")
        load("llvmlite.binding")
    except (ImportError, OSError) as error:  # not installed, or a library of another system
        return f"needs Numba, which cannot be loaded ({error}): pip install numba"
    return None if found else "needs Numba, which is not installed: pip install numba"


def refuses(op: Op, verb: str, shapes: Any, dtypes: Any) -> str | None:
    """Why the kernels cannot serve this call, or None."""
    missing = _missing()
    if missing is not None:
        return missing
    family = _family(op)
    if family is None:
        return f"has no kernels for {type(op).__name__}"
    reason: str | None = family.refuses(op, verb, shapes, dtypes)
    return reason


def forward(op: Op, operands: tuple[Any, ...]) -> Any:
    """The op's value."""
    return _family(op).forward(op, operands)


def forward_with_indices(op: Op, operands: tuple[Any, ...]) -> Any:
    """A max's value, and each winner's flat position in the pooled axes."""
    return _family(op).forward_with_indices(op, operands)


def jvp(op: Op, operands: tuple[Any, ...], tangents: tuple[Any, ...]) -> Any:
    """The directional derivative at `operands` along `tangents`."""
    return _family(op).jvp(op, operands, tangents)


def vjp(op: Op, operands: tuple[Any, ...], grad: Any) -> Any:
    """The gradient in each operand."""
    return _family(op).vjp(op, operands, grad)


def vjp_of(op: Op, operands: tuple[Any, ...], grad: Any, needs: tuple[bool, ...]) -> Any:
    """The gradients of the operands that need one; a pooling has one operand, so it is that."""
    if isinstance(op, Pooling):
        return vjp(op, operands, grad)
    return _family(op).vjp_of(op, operands, grad, needs)
