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
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "lunette"


class Mutation(NamedTuple):
    """One wrong line: in `file`, `old` (found exactly once) becomes `new`; `check` must notice."""

    what: str
    file: str
    old: str
    new: str
    check: str


D, P, H, E = (f"kernels/cpu/{name}.py" for name in ("direct", "plan", "halves", "elementary"))

MUTATIONS: tuple[Mutation, ...] = (
    # -- which cells a window reads --
    Mutation(
        "a window one cell short",
        D,
        "start, stop, step = g[window], g[window + 1], g[window + 2]\n        counted",
        "start, stop, step = g[window], g[window + 1] - 1, g[window + 2]\n        counted",
        "max forward",
    ),
    Mutation(
        "a row's own stride taken for the next axis's",
        D,
        "rows[new] = a + p * g[entry + 2]",
        "rows[new] = a + p * g[entry + AXIS_WIDTH + 2]",
        "max forward",
    ),
    Mutation(
        "dilation forgotten down the rows",
        D,
        "p, new = start + tap * step, old * length + tap",
        "p, new = start + tap, old * length + tap",
        "max forward",
    ),
    Mutation(
        "rows out of row-major order",
        D,
        "old * length + tap",
        "old * length + length - 1 - tap",
        "max indices",
    ),
    Mutation(
        "a flat position without its axis's stride",
        D,
        "rows[2 * room + new] = flat + p * g[entry + 6]",
        "rows[2 * room + new] = flat + p",
        "max indices",
    ),
    Mutation(
        "batch items a stride apart that is another array's",
        D,
        "offset += (item % g[entry]) * g[entry + 1 + array]",
        "offset += (item % g[entry]) * g[entry + 1]",
        "max vjp first",
    ),
    # -- who wins --
    Mutation(
        "the last of equals wins", D, "return (v > best) |", "return (v >= best) |", "max indices"
    ),
    Mutation(
        "a NaN is lost",
        D,
        "return (v > best) | ((v != v) & (best == best))",
        "return v > best",
        "max forward",
    ),
    Mutation(
        "the last NaN wins",
        D,
        "((v != v) & (best == best))",
        "(v != v)",
        "max indices",
    ),
    # -- padding and divisors --
    Mutation(
        "padding dropped from the count down the rows",
        D,
        "counted *= g[window + 3]",
        "counted *= (stop - start + step - 1) // step",
        "mean forward",
    ),
    Mutation(
        "padding counted though it should not be",
        P,
        "header[COUNT_PADDING] = reduction.count_include_pad",
        "header[COUNT_PADDING] = True",
        "mean forward",
    ),
    Mutation(
        "the divisor ignored",
        P,
        "header[DIVISOR] = reduction.divisor_override or 0",
        "header[DIVISOR] = 0",
        "mean forward",
    ),
    # -- derivatives --
    Mutation(
        "the tangent of the first cell whoever wins",
        D,
        "                                best = v\n"
        "                                tangent = load(dx[base_dx + rows[room + r] + p * step_dx])",
        "                                best = v",
        "max jvp first",
    ),
    Mutation(
        "shares of a split not divided",
        D,
        "divisor = work(tied)",
        "divisor = work(1)",
        "max jvp split",
    ),
    Mutation(
        "gradients that replace instead of adding up",
        D,
        "sums[winner - low] += gradient",
        "sums[winner - low] = gradient",
        "max vjp first",
    ),
    Mutation(
        "the last reader of a slab forgotten",
        P,
        "span = (readers[0], readers[-1] + 1)",
        "span = (readers[0], readers[-1])",
        "max vjp first",
    ),
    Mutation(
        "one tied cell too few",
        D,
        "gradient = gradient / work(tied)",
        "gradient = gradient / work(max(tied - 1, 1))",
        "max vjp split",
    ),
    # -- smooth max --
    Mutation(
        "smooth max without its logarithm",
        D,
        "if kind == SMOOTH and cells > 0:",
        "if False:",
        "smooth forward",
    ),
    Mutation(
        "the padding's exponentials left out",
        D,
        "                        total += work(padding) * exponential(beta * (zero - pivot))",
        "                        total += zero",
        "smooth forward",
    ),
    Mutation(
        "a coefficient of exp a little off",
        E,
        "np.float32(1.6666665459e-1)",
        "np.float32(1.667e-1)",
        "exp32",
    ),
    Mutation(
        "log without the low part of ln 2",
        E,
        "- k * np.float32(-2.12194440e-4)",
        "- k * np.float32(0)",
        "log32",
    ),
    # -- half types --
    Mutation(
        "bfloat16 rounded half up",
        H,
        "(b + np.uint32(0x7FFF) + odd)",
        "(b + np.uint32(0x8000))",
        "bfloat16 rounding",
    ),
    Mutation(
        "float16 truncated",
        H,
        "+ np.uint32(0xFFF) + odd)",
        "+ np.uint32(0))",
        "float16 rounding",
    ),
    Mutation(
        "float16 subnormals widened as zeros",
        H,
        "scaled = real(magnitude) * np.float32(2.0**112)",
        "scaled = real(magnitude & np.int32(0x7F800000)) * np.float32(2.0**112)",
        "max float16",
    ),
)


def source(mutation: Mutation) -> str:
    """The kernel's source with the wrong line; a line that is not there once is a LookupError."""
    text = (PACKAGE / mutation.file).read_text()
    if text.count(mutation.old) != 1:
        raise LookupError(
            f"{mutation.what}: {mutation.old!r} stands {text.count(mutation.old)} times in "
            f"{mutation.file}; expected once. Follow the kernel with the mutation."
        )
    return text.replace(mutation.old, mutation.new)


def outcome(mutation: Mutation | None, check: str, folder: Path) -> str:
    """Run one check on a copy of the package with one mutation, or none: what the check said."""
    copy = folder / "lunette"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    if mutation is not None:
        (copy / mutation.file).write_text(source(mutation))
    os.environ["NUMBA_CACHE_DIR"] = str(folder / "cache")
    sys.path[:0] = [str(folder), str(ROOT)]
    try:
        import lunette
        from cases.directed import CHECKS

        assert Path(lunette.__file__).is_relative_to(folder), lunette.__file__
        found = CHECKS[check]()
    except Exception as error:  # a kernel that does not even run has been noticed too
        return f"raised {type(error).__name__}: {error}"
    return f"disagreed: {found[0]}" if found else "agreed"


def in_a_child(mutation: Mutation | None, check: str) -> str:
    """The outcome, from a forked process that a wild kernel may take down."""
    with tempfile.TemporaryDirectory() as folder:
        said = Path(folder, "said")
        child = os.fork()
        if child == 0:
            try:
                said.write_text(outcome(mutation, check, Path(folder)))
            finally:
                os._exit(0)
        _, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
        return said.read_text() if code == 0 and said.exists() else f"crashed with {code}"


def main(arguments: list[str]) -> None:
    """An argument is a mutation's number, or a check's name: that check on the kernels as they are."""
    import flint  # noqa: F401
    import ml_dtypes  # noqa: F401
    import numba  # noqa: F401

    assert "lunette" not in sys.modules
    for argument in arguments:
        if argument.isdigit():
            mutation = MUTATIONS[int(argument)]
            said = in_a_child(mutation, mutation.check)
        else:
            said = in_a_child(None, argument)
        print(json.dumps([argument, said]), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
