"""A part of a convolution: some of its windows or image cells, as a convolution of their own slab.

The part has the padding that the array's true edges leave it, so it computes what the whole does.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from lunette.ops.convolution import Conv, Convolution, ConvTranspose
from lunette.regions import Sliding

__all__ = ["Axis", "image_axis", "part_op", "window_axis", "with_zeros"]


class Axis(NamedTuple):
    """One axis of a part: the slab it reads, and the part's own padding.

    With `zeros`, the part reads padding alone: the slab is so many zeros, and the rest is padding again.
    """

    slab: tuple[int, int]
    padding: tuple[int, int]
    zeros: int
    output_padding: int


def window_axis(region: Sliding, n: int, first: int, last: int) -> Axis:
    """Windows `first ≤ i < last` of an image of `n` positions."""
    before, _ = region.margins(n)
    stride = region.stride or 1
    origin = first * stride - before
    end = (last - 1) * stride - before + region.extent
    lo, hi = max(origin, 0), min(end, n)
    if lo >= hi:
        return Axis((0, 0), (0, end - origin - 1), 1, 0)
    return Axis((lo, hi), (lo - origin, end - hi), 0, 0)


def image_axis(region: Sliding, n: int, m: int, lo: int, hi: int) -> Axis:
    """Positions `lo ≤ p < hi` of an image of `n` that `m` windows send to."""
    before, _ = region.margins(n)
    stride = region.stride or 1
    first = max(0, -((region.extent - 1 - lo - before) // stride))
    first = min(first, (lo + before) // stride, m - 1)
    last = max(first + 1, min(m, (hi - 1 + before) // stride + 1))
    end = (last - 1) * stride - before + region.extent
    padding = (lo - (first * stride - before), max(0, end - hi))
    return Axis((first, last), padding, 0, max(0, hi - end))


@lru_cache(maxsize=1024)
def part_op(op: Convolution, transposed: bool, axes: tuple[Axis, ...]) -> Convolution:
    """The part's own op: with the numbers of `op` or, if `transposed` differs, of its adjoint."""
    padding = tuple(a.padding for a in axes)
    if transposed:
        extra = tuple(a.output_padding for a in axes)
        return ConvTranspose(op.kernel, op.stride, padding, extra, op.dilation, op.groups)
    return Conv(op.kernel, op.stride, padding, op.dilation, op.groups)


def with_zeros(slab: Any, axes: Sequence[Axis]) -> Any:
    """The slab, or zeros where the part reads padding alone on some axis."""
    if not any(a.zeros for a in axes):
        return slab
    lengths = tuple(
        a.zeros or n for a, n in zip(axes, slab.shape[slab.ndim - len(axes) :], strict=True)
    )
    return np.zeros(slab.shape[: slab.ndim - len(axes)] + lengths, slab.dtype)
