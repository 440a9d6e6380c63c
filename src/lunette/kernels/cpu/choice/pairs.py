"""Which kernels serve a smooth max of large windows: in pairs, whatever the layout."""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Any

from lunette.kernels.cpu.choice.questions import (
    in_elements,
    kept_shape,
    real_dtype,
    result_steps,
)
from lunette.kernels.cpu.choice.smooth import rises
from lunette.kernels.cpu.compiling.library import Kernels
from lunette.kernels.cpu.plans.plan import Plan, lane_axis
from lunette.kernels.cpu.plans.sizes import LINE, SIDE_BY_SIDE
from lunette.kernels.cpu.plans.window_tables import longest
from lunette.kernels.cpu.running.calls import Call
from lunette.kernels.cpu.smooth.pair_rooms import MOST, PairRooms, rows_of_tile
from lunette.ops.pooling import Pooling
from lunette.reductions import SmoothMax
from lunette.regions import Part, Region, Sliding

__all__ = ["by_pairs", "is_huge", "pairs_call"]

Shape = tuple[int, ...]

pairs = Kernels("smooth.pairs")


AGAIN = 16
"""How often the tiles of a gradient go through a cell, at most."""

MUCH = 1 << 11
"""Visits of a cell from which whole axes at a time are quicker."""

FEW = 4
"""Cells of windows whose tangents are quicker one by one, at most."""


@lru_cache(maxsize=1024)
def by_pairs(op: Pooling, shape: Shape, verb: str) -> bool:
    """Whether windows of a smooth max are large, none is empty, and their cells are side by side on each axis.

    That is for all layouts alike, and for a part as for the whole; so are the bits. Verbs are "values", "tangents" and "gradients".
    """
    if not isinstance(op.reduction, SmoothMax) or 0 in shape:
        return False
    axes = [*map(_whole, op.regions, shape[len(shape) - op.rank :])]
    if prod(longest(*axis) for axis in axes) <= (FEW if verb == "tangents" else SIDE_BY_SIDE):
        return False
    return all(_near(*axis) for axis in axes) and _bounded(axes, verb)


@lru_cache(maxsize=1024)
def is_huge(op: Pooling, shape: Shape, verb: str) -> bool:
    """Whether windows of a smooth max are so large, and overlap so much, that only whole axes at a time take time in proportion to cells.

    As for `by_pairs`, a part is as the whole.
    """
    if not isinstance(op.reduction, SmoothMax) or 0 in shape:
        return False
    axes = [*map(_whole, op.regions, shape[len(shape) - op.rank :])]
    reads = [longest(region, n) for region, n in axes]
    if max(reads) <= MUCH:
        return False
    outputs = [region.out_length(n) for region, n in axes]
    again = [
        k * m // (n + m) for k, m, (_, n) in zip(reads, outputs, axes, strict=True)
    ]  # visits of a cell
    if by_pairs(op, shape, verb):
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


def _whole(region: Region, n: int) -> tuple[Region, int]:
    """The windows of an axis that some are a part of, and its length."""
    return _whole(region.region, region.length) if type(region) is Part else (region, n)


def pairs_call(
    op: Pooling, verb: str, shape: Shape, strides: Shape, other: Shape, dtype: Any
) -> Call:
    """The call of a verb that `by_pairs` says yes to; `other` has the strides of the tangent or of the gradient."""
    steps, others = in_elements(strides, dtype), in_elements(other, dtype)
    lane, back = lane_axis(shape, steps, op.rank), verb == "vjp"
    whole = shape if back else kept_shape(op, shape)
    made = result_steps(whole, lane)
    plan = Plan(op, shape, (steps, others, made) if back else (steps, made, others), -1, back)
    width = LINE // real_dtype(dtype).itemsize
    rooms = PairRooms(plan, 3 if verb == "jvp" else 2, width, back)
    kernel = pairs.kernel(dtype.name, verb, rises(op))
    result = op.result_dtype(dtype) if verb == "forward" else dtype
    call = Call(kernel, plan, whole, result, lane, rooms.units, rooms.bytes)
    plan.room, call.kept = rooms.at, rooms
    return call
