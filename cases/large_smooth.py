"""Checks of a smooth max over large windows: its bounds, and that its bits depend on the window alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from cases import values
from cases.agreement import bounded_errors, differing_bits, direction, pool, run
from cases.channels_last import turned
from lunette.reductions import SmoothMax
from lunette.regions import Adaptive, Global, Region, Sliding

__all__ = ["LARGE_SMOOTH", "in_any_order", "smooth_bounds"]

LARGE_SMOOTH: tuple[tuple[tuple[int, ...], tuple[Region, ...]], ...] = (
    ((11, 14), (Sliding(9, 1, 4), Sliding(9, 1, 4))),
    ((9, 21), (Sliding(5, 2, 1), Sliding(14, 3, (2, 5), ceil_mode=True))),
    ((16, 31), (Adaptive(2), Adaptive(3))),
    ((9, 16), (Global(), Global())),
    ((90,), (Sliding(67, 2, 20),)),
    ((5, 6, 9), (Sliding(4, 1, 1), Sliding(5, 2, 2), Sliding(7, 1))),
    ((7, 40), (Sliding(3, 5), Sliding(30, 31, 2, ceil_mode=True))),
)
"""Lengths and windows of more than 64 cells: that overlap, or not, or leave cells between; of one axis to three."""

VERBS = ("forward", "jvp", "vjp")


def _filled(lengths: tuple[int, ...], items: int, scale: float, dtype: str) -> Any:
    x = values.filled("random", (items, *lengths), dtype)
    return (x * x.dtype.type(scale)).astype(x.dtype)


def smooth_bounds(dtype: str, windows: Any = LARGE_SMOOTH, items: int = 2) -> list[str]:
    """Errors over their bounds that are above 1."""
    found = []
    for lengths, regions in windows:
        for beta, scale, padded in ((1.5, 1.0, True), (-4.0, 1.0, False), (3.0, 40.0, True)):
            op = pool(regions, SmoothMax(beta, count_include_pad=padded))
            x = _filled(lengths, items, scale, dtype)
            for verb in VERBS:
                shape = x.shape if verb == "jvp" else op.out_shape(x.shape)
                along = None if verb == "forward" else direction(shape, x.dtype)
                ratio = bounded_errors(op, verb, x, along)
                if not ratio <= 1:
                    found.append(f"{verb} of {op!r} on {dtype}, scale {scale}: error/bound {ratio}")
    return found


def in_any_order(dtype: str, windows: Any = LARGE_SMOOTH) -> list[str]:
    """Verbs whose bits are others alone, with channels last, or with some cells that are not finite in other items."""
    found = []
    for lengths, regions in windows:
        op = pool(regions, SmoothMax(2.0))
        x = _filled(lengths, 19, 3.0, dtype)
        strange = x.copy()
        strange[4:7] = (
            np.array([np.nan, np.inf, -np.inf]).astype(x.dtype).reshape(3, *[1] * len(lengths))
        )
        for verb in VERBS:
            shape = x.shape if verb == "jvp" else op.out_shape(x.shape)
            along = None if verb == "forward" else direction(shape, x.dtype)
            whole = run(op, verb, x, along)
            some = slice(7, 19)
            others = {
                "alone": np.stack(
                    [run(op, verb, x[i], None if along is None else along[i]) for i in range(19)]
                ),
                "channels last": run(
                    op, verb, turned(x[None]), None if along is None else turned(along[None])
                )[0],
            }
            beside = run(op, verb, strange, along)
            for how, result, expected in (
                *((how, result, whole) for how, result in others.items()),
                ("beside what is not finite", beside[some], whole[some]),
            ):
                difference = differing_bits(result, expected)
                if difference:
                    found.append(f"{verb} of {op!r} on {dtype}, {how}: {difference}")
    return found
