"""Runs pointed checks on kernels that are wrong on purpose, each in a process of its own.

Called as `python mutants.py NUMBER …`, it prints a line of JSON for each mutation: what became of
it. A parent that has loaded Numba but no kernel forks for every one, so none meets another.
"""

from __future__ import annotations

import ast
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from mutations import MUTATIONS, Mutation

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "lunette"
KERNELS = PACKAGE / "kernels" / "cpu"


def source(mutation: Mutation) -> str:
    """The kernel's source with the wrong line; a line that is not there once is a LookupError."""
    text = (KERNELS / mutation.file).read_text()
    places = list(_places(text, mutation.function, mutation.old))
    if len(places) != 1:
        raise LookupError(
            f"{mutation.what}: {mutation.old!r} stands {len(places)} times in {mutation.function} of "
            f"{mutation.file}; expected once. Follow the kernel with the mutation."
        )
    (start, end, column), raw = places[0], text.encode()
    new = mutation.new.replace("\n", "\n" + " " * column)
    return (raw[:start] + new.encode() + raw[end:]).decode()


def _places(text: str, function: str, old: str) -> Iterator[tuple[int, int, int]]:
    """Where an expression or statement stands in a function: first byte, end and column."""
    (statement,) = ast.parse(old).body
    wanted = statement.value if isinstance(statement, ast.Expr) else statement
    said, starts = ast.dump(wanted), [0]
    for line in text.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for within in _named(_parsed(text), function.split(".") if function else []):
        for node in ast.walk(within):
            if type(node) is type(wanted) and ast.dump(node) == said:
                start = starts[node.lineno - 1] + node.col_offset
                yield start, starts[node.end_lineno - 1] + node.end_col_offset, node.col_offset


_parsed = cache(ast.parse)


def _named(tree: ast.AST, names: list[str]) -> Iterator[ast.AST]:
    """The functions with a dotted name, within a tree."""
    if not names:
        yield tree
        return
    waiting = list(ast.iter_child_nodes(tree))
    while waiting:
        node = waiting.pop(0)
        if not isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            waiting.extend(ast.iter_child_nodes(node))
        elif node.name == names[0]:
            yield from _named(node, names[1:])


def outcome(mutation: Mutation, folder: Path) -> str:
    """Run the mutation's check on a copy of the package that has it: what the check said."""
    copy = folder / "lunette"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    (copy / "kernels" / "cpu" / mutation.file).write_text(source(mutation))
    os.environ["NUMBA_CACHE_DIR"] = str(folder / "cache")
    sys.path[:0] = [str(folder), str(ROOT)]
    try:
        import lunette
        from cases.directed import CHECKS

        assert Path(lunette.__file__).is_relative_to(folder), lunette.__file__
        found = CHECKS[mutation.check]()
    except Exception as error:  # no disagreement: such a mutation is a bad one
        return f"raised {type(error).__name__}: {error}"
    return f"disagreed: {found[0]}" if found else "agreed"


def in_a_child(mutation: Mutation) -> str:
    """The outcome, from a forked process that a wild kernel may take down."""
    with tempfile.TemporaryDirectory() as folder:
        said = Path(folder, "said")
        child = os.fork()
        if child == 0:
            try:
                said.write_text(outcome(mutation, Path(folder)))
            finally:
                os._exit(0)
        _, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
        return said.read_text() if code == 0 and said.exists() else f"crashed with {code}"


def main(arguments: list[str]) -> None:
    """Each argument is a mutation's number."""
    os.environ["NUMBA_OPT"] = "1"  # the checks are small: compiling is what takes time
    import flint  # noqa: F401
    import ml_dtypes  # noqa: F401
    import numba  # noqa: F401

    assert "lunette" not in sys.modules
    for argument in arguments:
        print(json.dumps([argument, in_a_child(MUTATIONS[int(argument)])]), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
