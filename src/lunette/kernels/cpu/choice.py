"""Which kernel serves a pooling call: by op, shape, layout and dtype; found once and remembered."""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from lunette.kernels.cpu.calls import (
    Call,
    LaneGradient,
    LaneShares,
    MarkedGradient,
    QuickCall,
    ScatteredGradient,
    TiledCall,
    WeightedGradient,
)
from lunette.kernels.cpu.lane_plan import LanePlan, lane_plan
from lunette.kernels.cpu.layout import ROW_SIZE
from lunette.kernels.cpu.library import Kernels
from lunette.kernels.cpu.plan import (
    BANDS,
    BRIEF,
    DIRECT,
    FOLDED,
    FOLDED_SUM,
    LINE,
    MAX,
    MEAN,
    SIDE_BY_SIDE,
    SLACK,
    SMOOTH,
    Plan,
    lane_axis,
    memory_order,
)
from lunette.kernels.cpu.same_work import ANY_LENGTH, on_one_axis, said_anew
from lunette.kernels.cpu.small_items import Operand, SmallItems, in_parts
from lunette.kernels.cpu.smooth_choice import (
    far_apart,
    gradient_by_lanes,
    lanes_of,
    rises,
    value_by_lanes,
)
from lunette.kernels.cpu.tiling import MOST_CELLS, Tiling, lies_alike
from lunette.kernels.cpu.traits import (
    doubling,
    few_rows,
    folds,
    is_narrow,
    ladder_cells,
    last_axis,
    past_caches,
    shares_little,
    straight,
    way,
    with_lanes,
)
from lunette.kernels.cpu.window_tables import few_cells, reach, reach_of_window, regular
from lunette.ops.base import is_float
from lunette.ops.pooling import Pooling
from lunette.reductions import Max, Mean, Reduction

__all__ = [
    "forward_call",
    "gather_call",
    "gradient_call",
    "indices_call",
    "offsets_call",
    "tangent_call",
]

Shape = tuple[int, ...]

FEW = 4
"""Outputs of a row that are too few to go side by side; twice as many are if their windows are long."""

row_first, column_first, wide = Kernels("row_first"), Kernels("column_first"), Kernels("wide")
folded_rows, folded_lanes = Kernels("folded_rows"), Kernels("folded_lanes")
unshared = Kernels("unshared")
winners, offsets, gathered = Kernels("winners"), Kernels("offsets"), Kernels("gathered")
spread, smooth, shares = Kernels("spread"), Kernels("smooth"), Kernels("shares")
smooth_tangents = Kernels("smooth_tangents")
straight_means, narrow_means = Kernels("straight_means"), Kernels("narrow_means")
direct, scattered = Kernels("direct"), Kernels("scattered")
lane_winners, lane_gathered = Kernels("lane_winners"), Kernels("lane_gathered")
lane_scattered = Kernels("lane_scattered")


@lru_cache(maxsize=1024)
def forward_call(
    op: Pooling, shape: Shape, strides: Shape, dtype: Any, trusting: bool = True
) -> Call | TiledCall | SmallItems:
    """The call for values. Where it does not trust its cells, any NaN or infinity is served."""
    kind, result = _kind(op.reduction), op.result_dtype(dtype)
    out = _kept_shape(op, shape)
    operands = [Operand("r", shape, dtype, strides), Operand("w", out, result)]
    again = lambda: forward_call(op, shape, strides, dtype, False)  # noqa: E731
    if trusting and (
        small := in_parts(op, shape, operands, lambda *part: forward_call(op, *part, dtype))
    ):
        small.again = again
        return small
    if kind == SMOOTH:
        return _smooth_value(op, shape, strides, dtype, out, again if trusting else None)
    op, shape, (strides,), _ = said_anew(op, shape, (strides,), (), dtype.itemsize)
    steps = _elements(strides, dtype)
    lane = lane_axis(shape, steps, op.rank)
    y_steps = _result_steps(_kept_shape(op, shape), lane)
    plan = Plan(op, shape, (steps, y_steps, y_steps), lane, by_columns=kind == MEAN)
    if kind == MEAN:
        return _mean_value(plan, op, dtype, out, result, lane)
    if plan.empty:
        return _direct_value(op, shape, steps, dtype, out, -1)
    return _max_value(plan, dtype, out, lane, again if trusting else None)


def _max_value(plan: Plan, dtype: Any, out: Shape, lane: int, again: Any) -> Call:
    """Values of a max. With a call that does items `again`, numbers are taken on trust."""
    if lane < 0 and shares_little(plan):
        return _of_rows(wide.kernel(dtype.name, "forward", ""), plan, out, dtype, BANDS)
    units, scratch, edges = plan.items * plan.tiles, 8 * plan.scratch_cells, plan.tile_edges
    if again is None:
        kernel = row_first.kernel(dtype.name, "larger", last_axis(plan), doubling(plan))
        return Call(kernel, plan, out, dtype, lane, units, scratch)
    if few_rows(plan):
        kernel, units = _folded(plan, dtype, "most"), plan.items * plan.folded_tiles
        scratch, edges = plan.folded_bytes, plan.folded_edges
    else:
        kernel = row_first.kernel(dtype.name, "most", last_axis(plan), doubling(plan))
    call = QuickCall(kernel, plan, out, dtype, lane, units, scratch)
    call.again, call.in_order = again, lambda: _in_order(plan, dtype, out, lane)
    # Halves are folded as integers: a vector of them is a line.
    if few_rows(plan) and past_caches(plan, out, dtype.itemsize, LINE):
        return call
    return call.in_pieces(edges, 1)


def _mean_value(plan: Plan, op: Pooling, dtype: Any, out: Shape, result: Any, lane: int) -> Call:
    """Values of a mean."""
    plan.divide_as(_real(dtype))
    if lane < 0 and not plan.empty and is_narrow(plan):
        return _of_rows(narrow_means.kernel(dtype.name), plan, out, result, 8 * SLACK)
    volume = op.rank == 3 and way(plan) != "" and not with_lanes(plan)
    by_rows = few_rows(plan) and (op.rank == 2 or volume)
    by_rows = by_rows and all(reach(r) <= FOLDED_SUM for r in op.regions[:-1])
    if by_rows:
        kernel, units = _folded(plan, dtype, "add"), plan.items * plan.folded_tiles
        scratch, edges = plan.folded_bytes, plan.folded_edges
    else:
        kernel, units = _summed(plan, dtype), plan.items * plan.tiles
        scratch, edges = 8 * (plan.sum_cells + ladder_cells(plan)), plan.tile_edges
    # After the sums, the levels of long windows; `room` says where they begin.
    plan.room = plan.sum_cells
    call = Call(kernel, plan, out, result, lane, units, scratch)
    if by_rows and past_caches(plan, out, result.itemsize, _vector(dtype)):
        return call
    call.in_pieces(edges, 1)
    if call.pieces is None:
        past_caches(plan, out, result.itemsize, _vector(dtype))
    return call


def _smooth_value(
    op: Pooling, shape: Shape, strides: Shape, dtype: Any, out: Shape, again: Any
) -> Call | TiledCall:
    """Values of a smooth max. With a call that does items `again`, cells are taken to be finite."""
    if lanes := lanes_of(op, shape, strides, strides, dtype):
        if again is not None:
            return value_by_lanes(op, "forward", lanes, out, dtype, again)
        return _direct_value(op, shape, _elements(strides, dtype), dtype, out, lanes[1])
    op, shape, (strides,), _ = said_anew(op, shape, (strides,), (), dtype.itemsize)
    steps, y_steps = _elements(strides, dtype), _result_steps(_kept_shape(op, shape), -1)
    tiling = _tiling(op, shape, (steps, y_steps, y_steps), dtype, in_turn=True)
    if again is None or tiling is None:
        return _direct_value(op, shape, steps, dtype, out, -1)
    kernel = smooth.kernel(dtype.name, "forward", rises(op))
    return TiledCall([(kernel, tiling)], out, op.result_dtype(dtype), again)


def _direct_value(
    op: Pooling, shape: Shape, steps: Shape, dtype: Any, out: Shape, lane: int
) -> Call:
    """Values cell by cell, in the order of memory that channels along an axis give."""
    y_steps, kind = _result_steps(_kept_shape(op, shape), lane), _kind(op.reduction)
    plan = Plan(op, shape, (steps, y_steps, y_steps))
    kernel, units = direct.value_kernel(dtype.name, kind, False), plan.items * plan.output_rows
    return Call(kernel, plan, out, op.result_dtype(dtype), lane, units, 24 * plan.room)


@lru_cache(maxsize=1024)
def indices_call(
    op: Pooling, shape: Shape, strides: Shape, dtype: Any, trusting: bool = True
) -> Call | TiledCall | SmallItems:
    """The call for values and the flat positions of their winners."""
    out = _kept_shape(op, shape)
    places = Operand("w", out, np.dtype(np.int64))
    operands = [Operand("r", shape, dtype, strides), Operand("w", out, dtype), places]
    if trusting and (
        small := in_parts(op, shape, operands, lambda *part: indices_call(op, *part, dtype))
    ):
        return small
    if lanes := lane_plan(op, shape, strides, strides, dtype):
        return _by_lanes(*lanes, "indices", out, dtype)
    if same := on_one_axis(op, shape, (strides,), (), dtype.itemsize, ANY_LENGTH):
        op, shape, (strides,), _ = same
    y_steps = _result_steps(_kept_shape(op, shape), -1)
    if trusting and _few_cells(op, shape, dtype) and not _few_and_long(op, shape):
        steps = (_elements(strides, dtype), y_steps, y_steps)
        tiling = _tiling(op, shape, steps, dtype)
        if tiling is not None:
            again = lambda: indices_call(op, shape, strides, dtype, False)  # noqa: E731
            return TiledCall([(offsets.kernel(dtype.name, "indices"), tiling)], out, dtype, again)
    plan = Plan(op, shape, (_elements(strides, dtype), y_steps, y_steps))
    if plan.has_winners and shares_little(plan, searched=True):
        return _of_rows(wide.kernel(dtype.name, "winners", "first"), plan, out, dtype, BANDS)
    if plan.has_winners:
        return _winners(plan, "indices", out, dtype, plan.items * plan.tiles)
    kernel = direct.value_kernel(dtype.name, MAX, True)
    return Call(kernel, plan, out, dtype, -1, plan.items * plan.output_rows, 24 * plan.room)


@lru_cache(maxsize=1024)
def offsets_call(
    op: Pooling, shape: Shape, strides: Shape, dtype: Any
) -> Call | TiledCall | SmallItems | None:
    """The call for values and offsets; items with a NaN may be flagged, and left to the caller."""
    out = _kept_shape(op, shape)
    kept = Operand("w", out, np.dtype(np.uint8))
    operands = [Operand("r", shape, dtype, strides), Operand("w", out, dtype), kept]
    if small := in_parts(op, shape, operands, lambda *part: offsets_call(op, *part, dtype)):
        return small
    lanes = lane_plan(op, shape, strides, strides, dtype)
    if lanes and lanes[0].cells <= MOST_CELLS:
        return _by_lanes(*lanes, "kept", out, dtype)
    y_steps = _result_steps(out, -1)
    steps = (_elements(strides, dtype), y_steps, y_steps)
    tiling = _tiling(op, shape, steps, dtype)
    if tiling is None:
        return None
    return TiledCall([(offsets.kernel(dtype.name, "kept"), tiling)], out, dtype, None)


@lru_cache(maxsize=1024)
def gather_call(
    op: Pooling, shape: Shape, grad: Shape, dtype: Any
) -> Call | TiledCall | SmallItems | None:
    """The call for gradients of cells from offsets."""
    out = _kept_shape(op, shape)
    operands = [
        Operand("r", out, np.dtype(np.uint8)),
        Operand("r", out, dtype, grad),
        Operand("w", shape, dtype),
    ]
    if small := in_parts(
        op, shape, operands, lambda part, _, grad: gather_call(op, part, grad, dtype)
    ):
        return small
    lane = lane_axis(_kept_shape(op, shape), _elements(grad, dtype), op.rank)
    steps = _bytes(_result_steps(shape, lane), dtype)
    lanes = lane_plan(op, shape, steps, grad, dtype)
    if lanes and lanes[0].cells <= MOST_CELLS:
        return _gather_by_lanes(*lanes, shape, dtype)
    steps = _result_steps(shape, -1)
    back = _tiling(op, shape, (steps, _elements(grad, dtype), steps), dtype, backward=True)
    if back is None or max(back.readers) > SIDE_BY_SIDE:
        return None
    return TiledCall([(gathered.kernel(dtype.name), back)], shape, dtype, None)


@lru_cache(maxsize=1024)
def tangent_call(
    op: Pooling, shape: Shape, strides: Shape, tangent: Shape, dtype: Any, trusting: bool = True
) -> Call | TiledCall | SmallItems:
    """The call for directional derivatives of max and smooth max."""
    kind, ties = _kind(op.reduction), getattr(op.reduction, "ties", "")
    out = _kept_shape(op, shape)
    operands = [
        Operand("r", shape, dtype, strides),
        Operand("w", out, dtype),
        Operand("r", shape, dtype, tangent),
    ]
    again = lambda: tangent_call(op, shape, strides, tangent, dtype, False)  # noqa: E731
    if trusting and (
        small := in_parts(op, shape, operands, lambda *part: tangent_call(op, *part, dtype))
    ):
        small.again = again
        return small
    if ties == "first" and (lanes := lane_plan(op, shape, strides, tangent, dtype)):
        return _by_lanes(*lanes, "jvp", out, dtype)
    lanes = lanes_of(op, shape, strides, tangent, dtype)
    if lanes and trusting:
        return value_by_lanes(op, "jvp", lanes, out, dtype, again)
    if not lanes:
        whole = said_anew(op, shape, (strides, tangent), (), dtype.itemsize)
        op, shape, (strides, tangent), _ = whole
    y_steps = _result_steps(_kept_shape(op, shape), lanes[1] if lanes else -1)
    all_steps = (_elements(strides, dtype), y_steps, _elements(tangent, dtype))
    tiled = ties in ("first", "") and _few_cells(op, shape, dtype) and not _few_and_long(op, shape)
    if trusting and is_float(dtype) and tiled:
        tiling = _tiling(op, shape, all_steps, dtype, in_turn=kind == SMOOTH)
        if tiling is not None:
            kernel = offsets.kernel(dtype.name, "jvp")
            if kind == SMOOTH:
                kernel = smooth_tangents.kernel(dtype.name, rises(op))
            return TiledCall([(kernel, tiling)], out, dtype, again)
    plan = Plan(op, shape, all_steps)
    if kind == MAX and plan.has_winners and shares_little(plan, searched=True):
        return _of_rows(wide.kernel(dtype.name, "jvp", ties), plan, out, dtype, BANDS)
    if ties == "first" and plan.has_winners:
        return _winners(plan, "jvp", out, dtype, plan.items * plan.tiles)
    kernel = direct.derivative_kernel(dtype.name, kind, ties)
    return Call(kernel, plan, out, dtype, -1, plan.items * plan.output_rows, 24 * plan.room)


@lru_cache(maxsize=1024)
def gradient_call(
    op: Pooling, shape: Shape, strides: Shape, grad: Shape, dtype: Any, trusting: bool = True
) -> Call | TiledCall | ScatteredGradient | LaneGradient | LaneShares | SmallItems:
    """The call for gradients of cells."""
    kind, ties, whole_shape = _kind(op.reduction), getattr(op.reduction, "ties", ""), shape
    operands = [
        Operand("-" if kind == MEAN else "r", shape, dtype, strides),
        Operand("r", _kept_shape(op, shape), dtype, grad),
        Operand("w", shape, dtype),
    ]
    again = lambda: gradient_call(op, shape, strides, grad, dtype, False)  # noqa: E731
    if trusting and (
        small := in_parts(op, shape, operands, lambda *part: gradient_call(op, *part, dtype))
    ):
        small.again = again
        return small
    if ties == "first" and (lanes := lane_plan(op, shape, strides, grad, dtype)):
        return _gradient_by_lanes(*lanes, shape, _kept_shape(op, shape), dtype)
    lanes = lanes_of(op, shape, strides, grad, dtype)
    if lanes and trusting:
        return gradient_by_lanes(op, lanes, shape, _kept_shape(op, shape), dtype, again)
    if not lanes:
        op, shape, (strides,), (grad,) = said_anew(
            op, shape, (strides,), (grad,), dtype.itemsize, kind == MEAN
        )
    steps, grad_steps = _elements(strides, dtype), _elements(grad, dtype)
    if kind == MEAN and (mean := _mean_gradient(op, shape, steps, grad_steps, dtype, whole_shape)):
        return mean
    tiled = kind != MEAN and ties in ("first", "") and _few_cells(op, shape, dtype)
    if trusting and is_float(dtype) and tiled and not _few_and_long(op, shape, 2 * FEW):
        arrays = (steps, grad_steps, _result_steps(shape, -1))
        if by_tiles := _tiled_gradient(op, shape, arrays, dtype, whole_shape, again):
            return by_tiles
    x_steps = _result_steps(shape, lanes[1] if lanes else -1)
    plan = Plan(op, shape, (steps, grad_steps, x_steps))
    if kind == MAX and plan.has_winners and shares_little(plan, searched=True):
        return _scattered_gradient(plan, op, shape, steps, ties, dtype, whole_shape)
    units = plan.items * plan.slabs
    if ties == "first" and plan.has_winners:
        return _winners(plan, "vjp", whole_shape, dtype, units)
    kernel = direct.gradient_kernel(dtype.name, kind, ties)
    scratch = 24 * plan.room + 8 * (2 * plan.slab_cells + max(plan.slab_cells, shape[-1]))
    return Call(kernel, plan, whole_shape, dtype, -1, units, scratch)


def _mean_gradient(
    op: Pooling, shape: Shape, steps: Shape, grad_steps: Shape, dtype: Any, whole_shape: Shape
) -> Call | None:
    """Gradients of a mean, axis by axis; None where the readers of a cell do not follow each other."""
    lane = lane_axis(shape, steps, op.rank)
    plan = Plan(op, shape, (steps, grad_steps, _result_steps(shape, lane)), lane, True)
    if not plan.has_readers:
        return None
    plan.divide_as(_real(dtype))
    kernel = (unshared if plan.unshared else spread).kernel(dtype.name)
    units, scratch = plan.items * plan.slabs, 8 * plan.spread_cells
    call = Call(kernel, plan, whole_shape, dtype, lane, units, scratch)
    whole = past_caches(plan, shape, dtype.itemsize, _vector(dtype)) == DIRECT
    return call if plan.unshared and whole else call.in_pieces(plan.slab_edges, 2)


def _tiled_gradient(
    op: Pooling, shape: Shape, arrays: Any, dtype: Any, whole_shape: Shape, again: Any
) -> TiledCall | None:
    """Gradients of small windows by tiles: marks or weights, then gathering; None where windows do not allow it."""
    smoothly, stride = _kind(op.reduction) == SMOOTH, regular(op.regions[-1], shape[-1])[0]
    rows = {"areas": 1 + stride, "spare": 2} if smoothly else {"areas": 2}
    back = _tiling(op, shape, arrays, dtype, backward=True, **rows)
    if back is None or max(back.readers) > SIDE_BY_SIDE:
        return None
    # It is there if `back` is.
    ahead = _tiling(op, shape, arrays, dtype, areas=1, spare=1, in_turn=smoothly) or back
    if not smoothly:
        marks, gather = offsets.kernel(dtype.name, "offsets"), gathered.kernel(dtype.name)
        return MarkedGradient([(marks, ahead), (gather, back)], whole_shape, dtype, again)
    weights = smooth.kernel(dtype.name, "weights", rises(op))
    gather = shares.kernel(dtype.name, rises(op))
    return WeightedGradient([(weights, ahead), (gather, back)], whole_shape, dtype, again)


def _scattered_gradient(
    plan: Plan, op: Pooling, shape: Shape, steps: Shape, ties: str, dtype: Any, whole_shape: Shape
) -> Call | ScatteredGradient:
    """Gradients of a max over long windows that share few cells, from the winners."""
    units, scratch = plan.items * plan.slabs, BANDS + 8 * plan.slab_cells
    plan.room = 0
    scatter = Call(
        scattered.kernel(dtype.name, ties), plan, whole_shape, dtype, -1, units, scratch
    ).in_pieces(plan.slab_edges, 2)
    if plan.slabs == 1:
        return scatter
    out = _kept_shape(op, shape)
    y_steps = _result_steps(out, -1)
    kernel = wide.kernel(dtype.name, "winners", ties)
    found = _of_rows(kernel, Plan(op, shape, (steps, y_steps, y_steps)), out, dtype, BANDS)
    return ScatteredGradient(found, scatter)


# -- a max with channels last --


def _by_lanes(
    plan: LanePlan, lane: int, verb: str, shape: Shape, dtype: Any, result: Any = None
) -> Call:
    kernel, units = lane_winners.kernel(dtype.name, verb), plan.items * plan.output_rows
    return Call(kernel, plan, shape, result or dtype, lane, units, plan.listed)


def _gradient_by_lanes(
    plan: LanePlan, lane: int, shape: Shape, out: Shape, dtype: Any
) -> LaneGradient:
    """Marks and gathering, or where a byte does not tell the cells of a window apart, places and scattering."""
    if plan.cells <= MOST_CELLS:
        found = _by_lanes(plan, lane, "offsets", out, dtype, np.dtype(np.uint8))
        return LaneGradient(found, _gather_by_lanes(plan, lane, shape, dtype))
    found = _by_lanes(plan, lane, "places", out, dtype, np.dtype(np.int64))
    kernel, units = lane_scattered.kernel(dtype.name), plan.items * plan.slabs
    return LaneGradient(found, Call(kernel, plan, shape, dtype, lane, units, 8 * plan.slab_cells))


def _gather_by_lanes(plan: LanePlan, lane: int, shape: Shape, dtype: Any) -> Call:
    past_caches(plan, shape, dtype.itemsize, _vector(dtype))
    units = plan.items * plan.input_rows
    return Call(lane_gathered.kernel(dtype.name), plan, shape, dtype, lane, units, plan.listed)


# -- what the choice depends on --


def _tiling(
    op: Pooling, shape: Shape, steps: tuple[Shape, Shape, Shape], dtype: Any, **how: Any
) -> Tiling | None:
    """The tiles of a call whose windows are small and lie alike; None where they do not."""
    if reach_of_window(op, shape) > SIDE_BY_SIDE or not lies_alike(op, shape) or 0 in shape:
        return None
    if _kind(op.reduction) == SMOOTH and far_apart(op.regions[-1], shape[-1]):
        return None
    size = 4 if _is_half(dtype) else dtype.itemsize
    if not is_float(dtype) and not isinstance(op.reduction, Max):
        size = 8
    tiling = Tiling(op, shape, steps, size, **how)
    return None if tiling.empty or tiling.cells > MOST_CELLS else tiling


def _few_cells(op: Pooling, shape: Shape, dtype: Any) -> bool:
    """Whether the winners of windows are found cell by cell, neighbours side by side; always, if a max is smooth."""
    size = 4 if _is_half(dtype) else dtype.itemsize
    return not isinstance(op.reduction, Max) or few_cells(op, shape, size)


def _few_and_long(op: Pooling, shape: Shape, most: int = FEW) -> bool:
    """Whether windows of a max along a row are few and long and share no cell, so that each is best folded by itself.

    Up to `most` of them may be shorter.
    """
    region, n = op.regions[-1], shape[-1]
    stride, _, dilation, kernel = regular(region, n)
    outputs = region.out_length(n)
    alone = dilation == 1 and (outputs == 1 or stride >= kernel)
    long = kernel > (BRIEF if outputs <= most else FOLDED)
    return isinstance(op.reduction, Max) and outputs <= 2 * FEW and long and alone


def _is_half(dtype: Any) -> bool:
    return dtype.name in ("float16", "bfloat16")


def _vector(dtype: Any) -> int:
    """Bytes of memory that a vector of results has: half a line for half types."""
    return LINE // 2 if _is_half(dtype) else LINE


def _real(dtype: Any) -> Any:
    """The dtype of the arithmetic of means."""
    return np.dtype(np.float64 if dtype.itemsize == 8 or not is_float(dtype) else np.float32)


def _in_order(plan: Plan, dtype: Any, shape: Shape, lane: int) -> Call:
    """The call for maxima of items with zeros of both signs and no NaN."""
    kernel, units = (
        row_first.kernel(dtype.name, "most", last_axis(plan), doubling(plan)),
        plan.items * plan.tiles,
    )
    return Call(kernel, plan, shape, dtype, lane, units, 8 * plan.scratch_cells)


def _summed(plan: Plan, dtype: Any) -> Any:
    """The kernel that sums axis by axis."""
    if straight(plan):
        return straight_means.kernel(dtype.name, doubling(plan))
    return column_first.kernel(dtype.name, last_axis(plan), doubling(plan))


def _folded(plan: Plan, dtype: Any, operation: str) -> Any:
    """The kernel that folds the rows of a window first."""
    if with_lanes(plan):
        return folded_lanes.kernel(dtype.name, operation)
    return folded_rows.kernel(dtype.name, operation, way(plan), folds(plan))


def _of_rows(kernel: Any, plan: Plan, shape: Shape, dtype: Any, scratch: int) -> Call:
    """The call of a kernel whose units are rows of outputs."""
    return Call(kernel, plan, shape, dtype, -1, plan.items * plan.output_rows, scratch)


def _winners(plan: Plan, verb: str, shape: Shape, dtype: Any, units: int) -> Call:
    kernel = winners.kernel(dtype.name, verb)
    # Values, marks, and for a gradient the sums of a slab; `room` says where each begins.
    plan.room = plan.scratch_cells + int(plan.table[ROW_SIZE]) + SLACK
    return Call(kernel, plan, shape, dtype, -1, units, 16 * plan.room + 8 * plan.slab_cells + 1024)


def _kind(reduction: Reduction) -> int:
    if isinstance(reduction, Max):
        return MAX
    return MEAN if isinstance(reduction, Mean) else SMOOTH


def _kept_shape(op: Pooling, shape: Shape) -> Shape:
    """The shape of the result with every pooled axis kept."""
    out = op.out_shape(shape)
    return out if op.keepdims else out + (1,) * op.rank


def _bytes(steps: Shape, dtype: Any) -> Shape:
    return tuple(s * dtype.itemsize for s in steps)


def _elements(strides: Shape, dtype: Any) -> Shape:
    return tuple(s // dtype.itemsize for s in strides)


def _result_steps(shape: Shape, lane: int) -> Shape:
    """Strides of a result that is contiguous in its order of axes, in elements."""
    order = memory_order(len(shape), lane) or tuple(range(len(shape)))
    steps = [0] * len(shape)
    for place, axis in enumerate(order):
        steps[axis] = prod(shape[a] for a in order[place + 1 :])
    return tuple(steps)
