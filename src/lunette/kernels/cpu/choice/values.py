"""Which kernel gives the values of a pooling op: by op, shape, layout and dtype; found once and remembered."""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any

from lunette.kernels.cpu.choice.pairs import by_pairs, pairs_call
from lunette.kernels.cpu.choice.questions import (
    by_output_rows,
    in_elements,
    kept_shape,
    kind_of,
    real_dtype,
    result_steps,
    tiling_of,
    vector_bytes,
)
from lunette.kernels.cpu.choice.same_work import said_anew
from lunette.kernels.cpu.choice.smooth import lanes_of, rises, value_by_lanes
from lunette.kernels.cpu.compiling.library import Kernels
from lunette.kernels.cpu.plans.layout import MEAN, SMOOTH
from lunette.kernels.cpu.plans.plan import Plan, lane_axis
from lunette.kernels.cpu.plans.sizes import BANDS, FOLDED_SUM, LINE, SEVERAL
from lunette.kernels.cpu.plans.traits import (
    doubling,
    few_rows,
    folds,
    is_narrow,
    ladder_cells,
    last_axis,
    past_caches,
    plane_by_plane,
    shares_little,
    straight,
    way,
    with_lanes,
)
from lunette.kernels.cpu.plans.window_tables import reach
from lunette.kernels.cpu.rearranging.long_axes import long_outputs
from lunette.kernels.cpu.rearranging.small_items import Operand, SmallItems, in_parts
from lunette.kernels.cpu.running.calls import Call, QuickCall, TiledCall
from lunette.ops.pooling import Pooling
from lunette.regions import Adaptive

__all__ = ["forward_call"]

Shape = tuple[int, ...]

column_first = Kernels("means.column_first")
direct = Kernels("direct")
folded_lanes = Kernels("small_windows.folded_lanes")
folded_rows = Kernels("small_windows.folded_rows")
narrow_means = Kernels("means.narrow_means")
plane_after_plane = Kernels("small_windows.plane_after_plane")
row_first = Kernels("maxima.row_first")
smooth = Kernels("smooth.values")
straight_means = Kernels("means.straight_means")
wide = Kernels("maxima.wide")


@lru_cache(maxsize=1024)
def forward_call(
    op: Pooling,
    shape: Shape,
    strides: Shape,
    dtype: Any,
    trusting: bool = True,
    as_it_lies: bool = False,
) -> Call | TiledCall | SmallItems | None:
    """The call for values; None where there are too many outputs on an axis for one.

    Where it does not trust its cells, any NaN or infinity is served. Work on an array `as_it_lies` gives a result whose
    axes lie as those of the array do: nothing is laid side by side, or said on other axes.
    """
    if long_outputs(op, shape):
        return None
    kind, result = kind_of(op.reduction), op.result_dtype(dtype)
    out = kept_shape(op, shape)
    operands = [Operand("r", shape, dtype, strides), Operand("w", out, result)]
    again = partial(forward_call, op, shape, strides, dtype, False, as_it_lies)
    if by_pairs(op, shape, "values"):
        return pairs_call(op, "forward", shape, strides, strides, dtype)
    if (trusting and not as_it_lies) and (
        small := in_parts(
            op, shape, operands, "values", lambda *part: forward_call(op, *part, dtype)
        )
    ):
        small.again = lambda part, strides: forward_call(op, part, strides, dtype, False)
        return small
    if kind == SMOOTH:
        return _smooth_value(op, shape, strides, dtype, out, again if trusting else None)
    if not as_it_lies:
        op, shape, (strides,), _ = said_anew(op, shape, (strides,), (), dtype.itemsize)
    steps = in_elements(strides, dtype)
    lane = lane_axis(shape, steps, op.rank)
    y_steps = result_steps(kept_shape(op, shape), lane)
    plan = Plan(op, shape, (steps, y_steps, y_steps), lane, by_columns=kind == MEAN)
    if kind == MEAN:
        return _mean_value(plan, op, dtype, out, result, lane)
    if plan.empty:
        return _direct_value(op, shape, steps, dtype, out, -1)
    return _max_value(plan, dtype, out, lane, again if trusting else None)


def _max_value(plan: Plan, dtype: Any, out: Shape, lane: int, again: Any) -> Call:
    """Values of a max. With a call that does items `again`, numbers are taken on trust."""
    if lane < 0 and shares_little(plan):
        return by_output_rows(wide.kernel(dtype.name, "forward", ""), plan, out, dtype, BANDS)
    units, scratch, edges = plan.items * plan.tiles, 8 * plan.scratch_cells, plan.tile_edges
    if again is None:
        kernel = row_first.kernel(dtype.name, "larger", last_axis(plan), doubling(plan))
        return Call(kernel, plan, out, dtype, lane, units, scratch)
    folded = few_rows(plan)
    planes = folded and plane_by_plane(plan, dtype.itemsize)
    if folded:
        kernel = plane_after_plane.kernel(dtype.name) if planes else _folded(plan, dtype, "most")
        units, scratch = plan.items * plan.folded_tiles, plan.folded_bytes
        edges = plan.folded_edges
    else:
        kernel = row_first.kernel(dtype.name, "most", last_axis(plan), doubling(plan))
    call = QuickCall(kernel, plan, out, dtype, lane, units, scratch)
    call.again, call.in_order = again, lambda: _in_order(plan, dtype, out, lane)
    # Halves are folded as integers: a vector of them is a line. What waits for other planes is not written past caches.
    if folded and not planes and past_caches(plan, out, dtype.itemsize, LINE):
        return call
    return call.in_pieces(edges, 1)


def _in_order(plan: Plan, dtype: Any, shape: Shape, lane: int) -> Call:
    """The call for maxima of items with zeros of both signs and no NaN."""
    kernel, units = (
        row_first.kernel(dtype.name, "most", last_axis(plan), doubling(plan)),
        plan.items * plan.tiles,
    )
    return Call(kernel, plan, shape, dtype, lane, units, 8 * plan.scratch_cells)


def _folded(plan: Plan, dtype: Any, operation: str) -> Any:
    """The kernel that folds the rows of a window first."""
    if with_lanes(plan):
        return folded_lanes.kernel(dtype.name, operation)
    return folded_rows.kernel(dtype.name, operation, way(plan), folds(plan))


def _mean_value(plan: Plan, op: Pooling, dtype: Any, out: Shape, result: Any, lane: int) -> Call:
    """Values of a mean."""
    plan.divide_as(real_dtype(dtype))
    if lane < 0 and not plan.empty and is_narrow(plan):
        return by_output_rows(narrow_means.kernel(dtype.name), plan, out, result, SEVERAL)
    volume = op.rank == 3 and way(plan) != "" and not with_lanes(plan)
    by_rows = few_rows(plan) and (op.rank == 2 or volume)
    cells = map(reach, op.regions[:-1])
    if with_lanes(plan) and all(type(r) is Adaptive for r in op.regions):
        cells = map(int, plan.longest[:-1])  # these are never summed by doubling
    by_rows = by_rows and all(k <= FOLDED_SUM for k in cells)
    if by_rows:
        kernel, units = _folded(plan, dtype, "add"), plan.items * plan.folded_tiles
        scratch, edges = plan.folded_bytes, plan.folded_edges
    else:
        kernel, units = _summed(plan, dtype), plan.items * plan.tiles
        scratch, edges = 8 * (plan.sum_cells + ladder_cells(plan)), plan.tile_edges
    # After the sums, the levels of long windows; `room` says where they begin.
    plan.room = plan.sum_cells
    call = Call(kernel, plan, out, result, lane, units, scratch)
    if by_rows and past_caches(plan, out, result.itemsize, vector_bytes(dtype)):
        return call
    call.in_pieces(edges, 1)
    if call.pieces is None:
        past_caches(plan, out, result.itemsize, vector_bytes(dtype))
    return call


def _summed(plan: Plan, dtype: Any) -> Any:
    """The kernel that sums axis by axis."""
    if straight(plan):
        return straight_means.kernel(dtype.name, doubling(plan))
    return column_first.kernel(dtype.name, last_axis(plan), doubling(plan))


def _smooth_value(
    op: Pooling, shape: Shape, strides: Shape, dtype: Any, out: Shape, again: Any
) -> Call | TiledCall:
    """Values of a smooth max. With a call that does items `again`, cells are taken to be finite."""
    if lanes := lanes_of(op, shape, strides, strides, dtype):
        if again is not None:
            return value_by_lanes(op, "forward", lanes, out, dtype, again)
        return _direct_value(op, shape, in_elements(strides, dtype), dtype, out, lanes[1])
    op, shape, (strides,), _ = said_anew(op, shape, (strides,), (), dtype.itemsize)
    steps, y_steps = in_elements(strides, dtype), result_steps(kept_shape(op, shape), -1)
    tiling = tiling_of(op, shape, (steps, y_steps, y_steps), dtype, in_turn=True)
    if again is None or tiling is None:
        return _direct_value(op, shape, steps, dtype, out, -1)
    kernel = smooth.kernel(dtype.name, "forward", rises(op))
    return TiledCall([(kernel, tiling)], out, op.result_dtype(dtype), again)


def _direct_value(
    op: Pooling, shape: Shape, steps: Shape, dtype: Any, out: Shape, lane: int
) -> Call:
    """Values cell by cell, in the order of memory that channels along an axis give."""
    y_steps, kind = result_steps(kept_shape(op, shape), lane), kind_of(op.reduction)
    plan = Plan(op, shape, (steps, y_steps, y_steps))
    kernel, units = direct.value_kernel(dtype.name, kind, False), plan.items * plan.output_rows
    return Call(kernel, plan, out, op.result_dtype(dtype), lane, units, 24 * plan.room)
