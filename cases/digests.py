"""Digests of the CPU kernels' results: every kernel, dtype and verb. What must not change a bit is compared with them.

`python -m cases.digests write FILE` before a change, `python -m cases.digests compare FILE` after it. NaNs count as one.
Both say which folders' kernels ran. The bits of means and smooth maxima may differ between processors, so the file is of one.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import lunette as ln
from cases import values
from cases.agreement import TIES, direction, pool, run
from cases.channels_last import turned
from cases.directed_windows import LARGE, LARGE_APART, LINES, NARROW, OTHERS, PAIRS, PLANES, WIDE
from cases.large_smooth import LARGE_SMOOTH
from lunette import offsets
from lunette.reductions import Max, Mean, Min, Mode, Reduction, RoundedMean, SmoothMax
from lunette.regions import Global, Sliding

__all__ = ["cases", "digest"]

SMALL = (*PAIRS, *OTHERS)
ALL = (*SMALL, *LARGE, *LARGE_APART, *LINES, *NARROW, *WIDE, *PLANES)
BRIEF = (*PAIRS[:3], OTHERS[0], OTHERS[1], LARGE[0], LARGE_APART[0], PLANES[0])
BATCHES = ((2,), (3, 17))
MANY = (8, 144)
LARGE_RESULTS = (
    ((3, 231, 257), (Sliding(2, 1), Sliding(2, 1)), (16,)),
    ((64, 112), (Sliding(3, 2, 1), Sliding(3, 2, 1)), (4, 64)),
    ((64, 112), (Sliding(2, 2), Sliding(2, 2)), (16, 64)),
    ((60, 61), (Sliding(3, 1, 1), Sliding(3, 1, 1)), (8, 80)),
)
"""Results of megabytes: streamed past the caches, shared out to threads."""
HUGE = (((3, 9000), (Sliding(1, 1), Sliding(4500, 1, 0))), ((70, 70), (Sliding(65, 1, 32),) * 2))


def digest(result: Any) -> str:
    """Sixteen digits of an array, or of several: shape, dtype and bits; all NaNs are one."""
    found = hashlib.sha256()
    for array in result if isinstance(result, tuple) else (result,):
        a = np.ascontiguousarray(array)
        if a.dtype.kind not in "iub":
            a = np.where(np.isnan(a), a.dtype.type(np.nan), a)
        found.update(f"{a.shape} {a.dtype}".encode() + a.tobytes())
    return found.hexdigest()[:16]


def _reductions(dtype: str) -> tuple[Reduction, ...]:
    if dtype in values.FLOATS:
        return (
            *(Max(rule) for rule in TIES),
            Mean(),
            Mean(count_include_pad=False),
            Mean(divisor_override=5),
            SmoothMax(1.5),
            SmoothMax(-2.0, count_include_pad=False),
        )
    if dtype == "bool":
        return Max("first"), Min("first")
    return Max("first"), Mean(), Min("first"), Mode(), RoundedMean()


def _verbs(op: Any, x: Any) -> Iterator[tuple[str, Any]]:
    """What each verb of an op gives for an array."""
    rule = getattr(op.reduction, "ties", None)
    if rule in (None, "first"):
        yield "forward", run(op, "forward", x)
    if rule == "first" and isinstance(op.reduction, Max):
        yield "forward_with_indices", run(op, "forward_with_indices", x)
    if x.dtype.kind in "iub":
        return
    grad = direction(op.out_shape(x.shape), x.dtype)
    last = grad if x.flags.c_contiguous or grad.ndim < 2 else turned(grad)
    yield "jvp", run(op, "jvp", x, direction(x.shape, x.dtype))
    yield "vjp", run(op, "vjp", x, last)
    if rule == "first":
        try:
            kept = offsets.forward_with_offsets(op, x)
        except ValueError:  # more taps than a byte can tell
            return
        yield "forward_with_offsets", kept
        yield "vjp_from_offsets", offsets.vjp_from_offsets(op, kept[1], last, x.shape, known=True)
        yield "jvp_from_offsets", offsets.jvp_from_offsets(op, kept[1], x)


def _arrays(dtype: str) -> Iterator[tuple[str, Any, Any]]:
    """Names, regions and arrays."""
    full = dtype == "float32"
    for lengths, regions in ALL if full else BRIEF:
        for batch in BATCHES:
            for kind in ("random", "nans") if dtype in values.FLOATS and full else ("random",):
                x = values.filled(kind, (*batch, *lengths), dtype)
                yield f"{kind} rows", regions, x
                if len(batch) > 1:
                    yield f"{kind} channels last", regions, turned(x)
    for lengths, regions in SMALL[:: 3 if full else 9]:
        yield "many items", regions, values.filled("random", (*MANY, *lengths), dtype)
    for lengths, regions in LARGE_SMOOTH[: 5 if full else 2]:
        yield "large windows", regions, values.filled("random", (2, *lengths), dtype)
        x = values.filled("random", (2, 37, *lengths), dtype)
        yield "large windows channels last", regions, turned(x)
    for lengths, regions, batch in LARGE_RESULTS[: 4 if full else 1]:
        x = values.filled("random", (*batch, *lengths), dtype)
        yield "large", regions, x
        if full and len(batch) > 1:
            yield "large channels last", regions, turned(x)
    if full:
        for lengths, regions in HUGE:
            yield "huge windows", regions, values.filled("random", (2, *lengths), dtype)
        yield "global", (Global(), Global()), values.filled("ties", (300, 1100), dtype)


def cases(dtypes: tuple[str, ...] = values.DTYPES) -> Iterator[tuple[str, Any]]:
    """The name of each case, and its result."""
    for dtype in dtypes:
        for what, regions, x in _arrays(dtype):
            for reduction in _reductions(dtype):
                op = pool(regions, reduction)
                name = f"{dtype}{list(x.shape)} {what} {op!r}"
                try:
                    for verb, result in _verbs(op, x):
                        yield f"{verb} {name}", result
                except ValueError as refused:
                    yield f"refused {name}", np.frombuffer(str(refused)[:40].encode(), np.uint8)


def _ran() -> set[str]:
    """The modules whose kernels have been made in this process."""
    from lunette.kernels.cpu.jit import cache

    return {str(name[0]) for name in cache._kernels}


def main() -> int:
    """Write the digests, or compare with those that were written."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("write", "compare"))
    parser.add_argument("file", type=Path)
    parser.add_argument("--dtypes", nargs="*", default=values.DTYPES)
    given = parser.parse_args()
    ln.set_num_threads(2)
    found = {name: digest(result) for name, result in cases(tuple(given.dtypes))}
    print(len(found), "results; kernels of", ", ".join(sorted(_ran())))
    if given.what == "write":
        given.file.write_text("".join(f"{v} {k}\n" for k, v in found.items()))
        return 0
    lines = (line.split(" ", 1) for line in given.file.read_text().splitlines())
    before = {name: value for value, name in lines if name.split("[")[0].split()[1] in given.dtypes}
    wrong = [name for name in before | found if before.get(name) != found.get(name)]
    print(*(f"differs: {name}" for name in wrong[:50]), sep="\n")
    print(f"{len(wrong)} of {len(before)} differ")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
