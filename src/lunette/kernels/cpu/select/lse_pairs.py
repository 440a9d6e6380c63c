"""Which kernels serve a smooth max of large windows: in pairs, whatever the layout."""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Any

from lunette.kernels.cpu.jit.cache import Kernels
from lunette.kernels.cpu.micro.lse_pairs_scratch import MOST, LsePairScratch, rows_of_tile
from lunette.kernels.cpu.program.calls import Call
from lunette.kernels.cpu.schedule.plan import Plan, channel_axis
from lunette.kernels.cpu.schedule.windows import longest
from lunette.kernels.cpu.select.lse_nhwc import beta_positive
from lunette.kernels.cpu.select.questions import (
    in_elements,
    kept_shape,
    real_dtype,
    result_steps,
)
from lunette.kernels.cpu.tuning import ARGMAX_DIRECT_MAX_TAPS, LINE
from lunette.ops.pooling import Pooling
from lunette.reductions import SmoothMax
from lunette.regions import Adaptive, Global, Part, Region, Sliding

__all__ = ["is_huge", "lse_by_pairs", "pairs_call", "whole_axis"]

Shape = tuple[int, ...]

pairs = Kernels("loops.lse_pairs")


AGAIN = 16
"""How often the tiles of a gradient go through a cell, at most."""

MUCH = 1 << 11
"""Visits of a cell from which whole axes at a time are quicker."""

FEW = 4
"""Cells of windows whose tangents are quicker one by one, at most."""


@lru_cache(maxsize=1024)
def lse_by_pairs(op: Pooling, shape: Shape, verb: str) -> bool:
    """Whether windows of a smooth max are large, none is empty, and their cells are side by side on each axis.

    That is for all layouts alike, and for a part as for the whole; so are the bits. Verbs are "values", "tangents" and "gradients".
    """
    if not isinstance(op.reduction, SmoothMax) or 0 in shape:
        return False
    axes = [*map(whole_axis, op.regions, shape[len(shape) - op.rank :])]
    if prod(longest(*axis) for axis in axes) <= (
        FEW if verb == "tangents" else ARGMAX_DIRECT_MAX_TAPS
    ):
        return False
    return all(_near(*axis) for axis in axes) and _bounded(axes, verb)


@lru_cache(maxsize=1024)
def is_huge(op: Pooling, shape: Shape, verb: str) -> bool:
    """Whether windows of a smooth max are so large, and overlap so much, that only whole axes at a time take time in proportion to cells.

    As for `lse_by_pairs`, a part is as the whole.
    """
    if not isinstance(op.reduction, SmoothMax) or 0 in shape:
        return False
    axes = [*map(whole_axis, op.regions, shape[len(shape) - op.rank :])]
    reads = [longest(region, n) for region, n in axes]
    known = all(type(region) in (Sliding, Adaptive, Global) for region, _ in axes)
    if max(reads) <= MUCH or not known:  # readers of another may lie anyhow
        return False
    outputs = [region.out_length(n) for region, n in axes]
    again = [
        k * m // (n + m) for k, m, (_, n) in zip(reads, outputs, axes, strict=True)
    ]  # visits of a cell
    if lse_by_pairs(op, shape, verb):
        return max(again) > MUCH
    cells = prod(n for _, n in axes) + prod(outputs)
    return prod(reads) * prod(outputs) // cells > MUCH


def _bounded(axes: list[tuple[Region, int]], verb: str) -> bool:
    """Whether a tile of such windows has room, and does not go through what other tiles go through again and again."""
    (_, n), reach = axes[0], longest(*axes[0])
    across = prod(max(n, region.out_length(n)) for region, n in axes[1:])
    if reach * across > MOST:
        return False
    rows = min(n, rows_of_tile(reach, across))
    return verb != "gradients" or min(n, rows + 2 * reach) <= AGAIN * rows


def _near(region: Region, n: int) -> bool:
    """Whether windows of an axis have neighbours for cells, and none is empty: if the first and the last are not, no other is."""
    if type(region) is Sliding and region.dilation > 1 and region.kernel > 1:
        return False
    ends = region.window(n, 0), region.window(n, region.out_length(n) - 1)
    return all(window.stop > window.start for window in ends)


def whole_axis(region: Region, n: int) -> tuple[Region, int]:
    """The windows of an axis that some are a part of, and its length."""
    return whole_axis(region.region, region.length) if type(region) is Part else (region, n)


def pairs_call(
    op: Pooling, verb: str, shape: Shape, strides: Shape, other: Shape, dtype: Any
) -> Call:
    """The call of a verb that `lse_by_pairs` says yes to; `other` has the strides of the tangent or of the gradient."""
    steps, others = in_elements(strides, dtype), in_elements(other, dtype)
    lane, back = channel_axis(shape, steps, op.rank), verb == "vjp"
    whole = shape if back else kept_shape(op, shape)
    made = result_steps(whole, lane)
    plan = Plan(op, shape, (steps, others, made) if back else (steps, made, others), -1, back)
    width = LINE // real_dtype(dtype).itemsize
    rooms = LsePairScratch(plan, 3 if verb == "jvp" else 2, width, back)
    kernel = pairs.kernel(dtype.name, verb, beta_positive(op))
    result = op.result_dtype(dtype) if verb == "forward" else dtype
    call = Call(kernel, plan, whole, result, lane, rooms.units, rooms.bytes)
    plan.room, call.kept = rooms.at, rooms
    return call
