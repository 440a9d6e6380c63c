"""Runs pointed checks on kernels that are wrong on purpose, each in a process of its own.

Called as `python mutants.py NUMBER …`, it prints a line of JSON for each mutation: what became of
it. A parent that has loaded Numba but no kernel forks for every one, so none meets another.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

from mutations import MUTATIONS, Mutation

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "lunette"


def source(mutation: Mutation) -> str:
    """The kernel's source with the wrong line; a line that is not there once is a LookupError."""
    text = (PACKAGE / mutation.file).read_text()
    if text.count(mutation.old) != 1:
        raise LookupError(
            f"{mutation.what}: {mutation.old!r} stands {text.count(mutation.old)} times in "
            f"{mutation.file}; expected once. Follow the kernel with the mutation."
        )
    return text.replace(mutation.old, mutation.new)


def outcome(mutation: Mutation, folder: Path) -> str:
    """Run the mutation's check on a copy of the package that has it: what the check said."""
    copy = folder / "lunette"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    (copy / mutation.file).write_text(source(mutation))
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
