"""Checks of many small items, which go side by side: every verb gives the bits that it gives for few of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

import lunette as ln
from cases import values
from cases.agreement import differing_bits, direction, pool, run
from lunette import offsets
from lunette.reductions import Mean, Reduction, SmoothMax
from lunette.regions import Adaptive, Region, Sliding

__all__ = ["SHAPES", "small_items"]

SHAPES: tuple[tuple[tuple[int, ...], tuple[Region, ...]], ...] = (
    ((5, 7), (Sliding(3, 2, 1), Sliding(3, 2, 1))),
    ((4, 4), (Sliding(2, 2), Sliding(2, 2))),
    ((6, 3), (Sliding(3, 1, 1), Sliding(2, 1, (0, 1)))),
    ((7, 5), (Adaptive(3), Adaptive(2))),
    ((3, 12), (Adaptive(2), Adaptive(5))),
    ((4, 3, 5), (Sliding(2, 2), Sliding(3, 2, 1), Sliding(3, 1, 1))),
    ((7, 23), (Sliding(3, 3, 1), Sliding(4, 3, 1))),
    ((5, 30), (Adaptive(2), Adaptive(7))),
)
"""Lengths of the axes of an item, and windows on them."""


def small_items(
    dtype: str, shapes: Any = SHAPES, reductions: tuple[Reduction, ...] = ()
) -> list[str]:
    """Verbs of 1152 items, where their results are not those of 144 at a time."""
    found, real = [], dtype in values.FLOATS
    smooth = SmoothMax(1.5), SmoothMax(-30.0)
    reductions = reductions or (ln.Max(), Mean(), Mean(count_include_pad=False), *smooth * real)
    for lengths, regions in shapes:
        for kind, x in values.with_care((8, 144, *lengths), dtype):
            for op in (pool(regions, reduction) for reduction in reductions):
                for what, together, apart in _both_ways(op, x, real):
                    difference = differing_bits(together, apart)
                    if difference:
                        found.append(f"{what} of {op!r} on {kind}: {difference}")
    return found


def _both_ways(op: Any, x: Any, real: bool) -> Iterator[tuple[str, Any, Any]]:
    """Results of verbs on all items, and on some at a time."""

    def by_parts(verb: Any, *arrays: Any) -> Any:
        parts = [verb(*(a[i : i + 1] for a in arrays)) for i in range(len(x))]
        if isinstance(parts[0], tuple):
            return tuple(np.concatenate(part) for part in zip(*parts, strict=True))
        return np.concatenate(parts)

    def verb(name: str) -> Any:
        return lambda *arrays: run(op, name, *arrays)

    is_max = isinstance(op.reduction, ln.Max)
    y = by_parts(verb("forward"), x)
    yield "forward", run(op, "forward", x), y
    if is_max:
        both = run(op, "forward_with_indices", x), by_parts(verb("forward_with_indices"), x)
        yield from zip(("value", "index"), *both, strict=True)
    if not real:
        return
    for name, shape in (("jvp", x.shape), ("vjp", y.shape)):
        along = direction(shape, x.dtype)
        yield name, run(op, name, x, along), by_parts(verb(name), x, along)
    if is_max:
        value, kept = offsets.forward_with_offsets(op, x)
        yield "value with its offset", value, y
        yield "offset", kept, by_parts(lambda part: offsets.forward_with_offsets(op, part)[1], x)
        grad = direction(y.shape, x.dtype)
        gradient = offsets.vjp_from_offsets(op, kept, grad, x.shape, known=True)
        yield "vjp from offsets", gradient, run(op, "vjp", x, grad)
