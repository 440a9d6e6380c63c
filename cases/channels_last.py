"""Checks of arrays whose channels lie side by side: every verb gives the bits that it gives with channels first."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any
from unittest import mock

import numpy as np

import lunette as ln
from cases import values
from cases.agreement import differing_bits, direction, pool, run
from lunette import offsets
from lunette.kernels.cpu.layout import nhwc_to_nchw
from lunette.reductions import Mean, Reduction, SmoothMax
from lunette.regions import Adaptive, Global, Region, Sliding

__all__ = [
    "LARGE_WINDOWS",
    "SMALL_WINDOWS",
    "channels_last",
    "long_rows_of_channels",
    "turned",
    "turned_parts",
]

SMALL_WINDOWS: tuple[tuple[Region, ...], ...] = (
    (Sliding(3, 2, 1), Sliding(3, 2, 1)),
    (Sliding(2, 2, 0), Sliding(2, 2, 0)),
    (Sliding(3, 1, 1), Sliding(2, 3, (0, 1))),
    (Sliding(2, 2, 0), Sliding(3, 2, 1), Sliding(3, 1, 1)),
    (Sliding(2, 1, 1), Sliding(3, 2, 2, dilation=2, ceil_mode=True)),
    (Sliding(4, 3, 1),),
    (Sliding(3, 1, 1), Sliding(3, 1, 1)),
    (Sliding(3, 2, 1), Sliding(4, 1, 2)),
)
"""Of two axes, of three and of one."""

LARGE_WINDOWS: tuple[tuple[Region, ...], ...] = (
    (Adaptive(2), Adaptive(2)),
    (Sliding(4, 3, 1), Sliding(80, 60, 20)),
    (Sliding(2, 2, 0), Adaptive(2), Sliding(90, 70, 0, ceil_mode=True)),
    (Sliding(150, 130, 40),),
    (Adaptive(1), Global()),
)
"""Windows of 120 to 1200 cells that share few, on rows of 200."""


def channels_last(
    channels: int,
    dtype: str,
    width: int = 37,
    reductions: tuple[Reduction, ...] = (),
    windows: tuple[tuple[Region, ...], ...] = SMALL_WINDOWS,
) -> list[str]:
    """Every verb of windows whose channels lie side by side, where results are not those of the usual order."""
    found = []
    real = dtype in values.FLOATS
    means = Mean(), Mean(count_include_pad=False)
    reductions = reductions or (ln.Max(), *means, *[SmoothMax(1.5), SmoothMax(-30.0)] * real)
    for regions in windows:
        shape = (2, channels, *(6, 5)[: len(regions) - 1], width)
        for kind, x in values.with_care(shape, dtype):
            for reduction in reductions:
                # A window of padding alone has no maximum.
                if isinstance(reduction, ln.Max) and getattr(regions[-1], "dilation", 1) > 1:
                    continue
                op = pool(regions, reduction)
                for what, there, here in _both_ways(op, x, real):
                    difference = differing_bits(there, here)
                    if difference:
                        found.append(f"{what} of {op!r}, {channels} channels, {kind}: {difference}")
    return found


def turned(x: Any) -> Any:
    """The same array, its channels side by side in memory."""
    return np.moveaxis(np.ascontiguousarray(np.moveaxis(x, 1, -1)), -1, 1)


def _both_ways(op: Any, x: Any, real: bool) -> Iterator[tuple[str, Any, Any]]:
    """Results of verbs with channels last, and with them first."""
    last, is_max = turned(x), isinstance(op.reduction, ln.Max)
    y = run(op, "forward", x)
    yield "forward", run(op, "forward", last), y
    if is_max:
        yield from zip(
            ("value", "index"),
            run(op, "forward_with_indices", last),
            run(op, "forward_with_indices", x),
            strict=True,
        )
    if not real:
        return
    for verb, shape in (("jvp", x.shape), ("vjp", y.shape)):
        along = direction(shape, x.dtype)
        expected = run(op, verb, x, along)
        yield verb, run(op, verb, last, turned(along)), expected
        yield f"{verb} along channels first", run(op, verb, last, along), expected
    taps = prod(r.boxes(n)[2] for r, n in zip(op.regions, x.shape[2:], strict=True))
    if is_max and taps <= offsets.NOWHERE:
        grad = direction(y.shape, x.dtype)
        value, kept = offsets.forward_with_offsets(op, last)
        yield "value with its offset", value, y
        right = offsets.forward_with_offsets(op, x)[1]
        yield "offset", kept, right
        tangent = run(op, "jvp", x, x)
        for name, laid in (("last", last), ("first", x)):
            found = offsets.jvp_from_offsets(op, right, laid)
            yield f"jvp from offsets, channels {name}", found, tangent
        gradient = run(op, "vjp", x, grad)
        for name, laid in (("last", turned(grad)), ("first", grad)):
            found = offsets.vjp_from_offsets(op, kept, laid, x.shape, known=True)
            yield f"vjp from offsets, channels {name}", found, gradient


def long_rows_of_channels() -> list[str]:
    """Means over rows of thousands of channels, which are added to in pieces."""
    x, found = values.filled("random", (2, 70, 9, 41), "float32"), []
    for op in (ln.GlobalAvgPool(2), ln.AdaptiveAvgPool((2, 3)), ln.GlobalMaxPool(2)):
        difference = differing_bits(run(op, "forward", turned(x)), run(op, "forward", x))
        if difference:
            found.append(f"{op!r}: {difference}")
    return found


def turned_parts(part: int = 1 << 15) -> list[str]:
    """Verbs that turn arrays with channels last, in parts of some items and some channels: of `part` bytes, about."""
    with mock.patch.object(nhwc_to_nchw, "PART", part):
        return _turned_parts()


def _turned_parts() -> list[str]:
    found = []
    for channels, width in ((37, 23), (5, 40)):
        x = values.filled("random", (3, channels, 18, width), "float32")
        for op in (
            ln.SmoothMaxPool((3, 3), 1.5, 2, 1),  # by its channels, if these fill a vector
            ln.SmoothMaxPool((9, 8), 1.5, 2, dilation=2),
            ln.MaxPool((7, 7), 1, 3),
            ln.MaxPool((3, 3), 2, 1, ties="all"),
            ln.GlobalMaxPool(2, ties="split"),
        ):
            grad = direction(op.out_shape(x.shape), x.dtype)
            for verb, along in (("forward", None), ("jvp", x), ("vjp", grad)):
                laid = along if along is None else turned(along)
                here, there = run(op, verb, x, along), run(op, verb, turned(x), laid)
                difference = differing_bits(there, here)
                if difference:
                    found.append(f"{verb} of {op!r}, {channels} channels: {difference}")
    return found
