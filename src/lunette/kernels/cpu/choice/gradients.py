"""Which kernels give the gradient of a pooling op: by op, shape, layout and dtype; found once and remembered."""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any

import numpy as np

from lunette.kernels.cpu.choice.pairs import by_pairs, pairs_call
from lunette.kernels.cpu.choice.questions import (
    FEW,
    by_items,
    by_output_rows,
    by_winners,
    few_and_long,
    in_bytes,
    in_elements,
    kept_shape,
    kind_of,
    looked_at_each,
    marks_are_offsets,
    real_dtype,
    result_steps,
    tiling_of,
    vector_bytes,
)
from lunette.kernels.cpu.choice.same_work import said_anew
from lunette.kernels.cpu.choice.smooth import gradient_by_lanes, lanes_of, rises
from lunette.kernels.cpu.choice.ties import tied_gradient
from lunette.kernels.cpu.choice.winners import by_lanes
from lunette.kernels.cpu.compiling.library import Kernels
from lunette.kernels.cpu.plans.lane_plan import LanePlan, lane_plan
from lunette.kernels.cpu.plans.layout import DIRECT, MAX, MEAN, SMOOTH
from lunette.kernels.cpu.plans.plan import Plan, lane_axis
from lunette.kernels.cpu.plans.sizes import BANDS, LINE, SIDE_BY_SIDE
from lunette.kernels.cpu.plans.tiling import MOST_CELLS
from lunette.kernels.cpu.plans.traits import one_window_each, past_caches, shares_little
from lunette.kernels.cpu.plans.window_tables import regular
from lunette.kernels.cpu.rearranging.small_items import Operand, SmallItems, in_parts, ties_count
from lunette.kernels.cpu.running.calls import (
    Call,
    LaneGradient,
    LaneShares,
    MarkedGradient,
    ScatteredGradient,
    TiedGradient,
    TiledCall,
    WeightedGradient,
)
from lunette.ops.base import is_float
from lunette.ops.pooling import Pooling

__all__ = ["gather_call", "gradient_call"]

Shape = tuple[int, ...]

FEW_READERS, ENOUGH_LINES = 9, 3
"""Where shares of a mean's gradient are added up at once and not axis by axis: outputs that read a position, at most,
and lines of channels, at least."""

direct = Kernels("direct")
gathered = Kernels("maxima.gathered")
lane_gathered = Kernels("maxima.lane_gathered")
lane_scattered = Kernels("maxima.lane_scattered")
lane_spread = Kernels("means.lane_spread")
offsets = Kernels("maxima.offsets")
scattered = Kernels("maxima.scattered")
shares = Kernels("smooth.shares")
smooth = Kernels("smooth.values")
spread = Kernels("means.spread")
unshared = Kernels("means.unshared")
wide = Kernels("maxima.wide")


@lru_cache(maxsize=1024)
def gradient_call(
    op: Pooling, shape: Shape, strides: Shape, grad: Shape, dtype: Any, trusting: bool = True
) -> Call | TiledCall | ScatteredGradient | LaneGradient | LaneShares | TiedGradient | SmallItems:
    """The call for gradients of cells."""
    kind, ties, whole_shape = kind_of(op.reduction), getattr(op.reduction, "ties", ""), shape
    operands = [
        Operand("-" if kind == MEAN else "r", shape, dtype, strides),
        Operand("r", kept_shape(op, shape), dtype, grad),
        Operand("w", shape, dtype),
    ]
    again = partial(gradient_call, op, shape, strides, grad, dtype, False)
    sure = not ties_count(op, "gradients")
    if by_pairs(op, shape, "gradients"):
        return pairs_call(op, "vjp", shape, strides, grad, dtype)
    if trusting and (
        small := in_parts(
            op, shape, operands, "gradients", lambda *part: gradient_call(op, *part, dtype, sure)
        )
    ):
        small.again = lambda part, *read: gradient_call(op, part, *read, dtype, False)
        return small
    if ties == "first" and (lanes := lane_plan(op, shape, strides, grad, dtype)):
        return _gradient_by_lanes(*lanes, shape, kept_shape(op, shape), dtype)
    out = kept_shape(op, shape)
    if tied := tied_gradient(op, shape, strides, grad, dtype, out, trusting):
        return tied
    lanes = lanes_of(op, shape, strides, grad, dtype)
    if lanes and trusting:
        return gradient_by_lanes(op, lanes, shape, kept_shape(op, shape), dtype, again)
    if not lanes:
        op, shape, (strides,), (grad,) = said_anew(
            op, shape, (strides,), (grad,), dtype.itemsize, kind == MEAN
        )
    steps, grad_steps = in_elements(strides, dtype), in_elements(grad, dtype)
    if kind == MEAN and (mean := _mean_gradient(op, shape, steps, grad_steps, dtype, whole_shape)):
        return mean
    tiled = kind != MEAN and ties in ("first", "") and looked_at_each(op, shape, dtype)
    if trusting and is_float(dtype) and tiled and not few_and_long(op, shape, 2 * FEW):
        arrays = (steps, grad_steps, result_steps(shape, -1))
        if by_tiles := _tiled_gradient(op, shape, arrays, dtype, whole_shape, again):
            return by_tiles
    lane = lanes[1] if lanes else -1
    x_steps = result_steps(shape, lane)
    plan = Plan(op, shape, (steps, grad_steps, x_steps))
    if kind == MAX and plan.has_winners and plan.slabs == 1 and one_window_each(plan):
        return by_items(plan, "vjp", ties, whole_shape, dtype).in_pieces(plan.slab_edges, 2)
    if kind == MAX and plan.has_winners and shares_little(plan, searched=True):
        return _scattered_gradient(plan, op, shape, steps, ties, dtype, whole_shape)
    units = plan.items * plan.slabs
    if ties == "first" and plan.has_winners:
        return by_winners(plan, "vjp", whole_shape, dtype, units)
    kernel = direct.gradient_kernel(dtype.name, kind, ties)
    scratch = 24 * plan.room + 8 * (2 * plan.slab_cells + max(plan.slab_cells, shape[-1]))
    return Call(kernel, plan, whole_shape, dtype, lane, units, scratch)


def _mean_gradient(
    op: Pooling, shape: Shape, steps: Shape, grad_steps: Shape, dtype: Any, whole_shape: Shape
) -> Call | None:
    """Gradients of a mean, axis by axis; None where the readers of a cell are not at equal steps, as those of any region here are."""
    lane = lane_axis(shape, steps, op.rank)
    plan = Plan(op, shape, (steps, grad_steps, result_steps(shape, lane)), lane, True)
    if not plan.has_readers:
        return None
    plan.divide_as(real_dtype(dtype))
    kernels = _spreading(plan, real_dtype(dtype).itemsize, shape[lane] if lane >= 0 else 0)
    units, scratch = plan.items * plan.slabs, 8 * plan.spread_cells
    call = Call(kernels.kernel(dtype.name), plan, whole_shape, dtype, lane, units, scratch)
    whole = past_caches(plan, shape, dtype.itemsize, vector_bytes(dtype)) == DIRECT
    return call if kernels is not spread and whole else call.in_pieces(plan.slab_edges, 2)


def _spreading(plan: Plan, size: int, channels: int) -> Kernels:
    """Which kernels spread the gradient of a mean, on numbers of `size` bytes; where there are channels, these are last."""
    if plan.unshared:
        return unshared
    few = plan.most_readers <= FEW_READERS and channels * size >= ENOUGH_LINES * LINE
    return lane_spread if few and len(plan.longest) == 2 else spread


def _tiled_gradient(
    op: Pooling, shape: Shape, arrays: Any, dtype: Any, whole_shape: Shape, again: Any
) -> TiledCall | None:
    """Gradients of small windows by tiles: marks or weights, then gathering; None where windows do not allow it."""
    smoothly, stride = kind_of(op.reduction) == SMOOTH, regular(op.regions[-1], shape[-1])[0]
    rows = {"areas": 1 + stride, "spare": 2} if smoothly else {"areas": 2}
    back = tiling_of(op, shape, arrays, dtype, backward=True, **rows)
    if back is None or max(back.readers) > SIDE_BY_SIDE:
        return None
    # It is there if `back` is.
    ahead = tiling_of(op, shape, arrays, dtype, areas=1, spare=1, in_turn=smoothly) or back
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
    out = kept_shape(op, shape)
    y_steps = result_steps(out, -1)
    kernel = wide.kernel(dtype.name, "winners", ties)
    found = by_output_rows(kernel, Plan(op, shape, (steps, y_steps, y_steps)), out, dtype, BANDS)
    return ScatteredGradient(found, scatter)


def _gradient_by_lanes(
    plan: LanePlan, lane: int, shape: Shape, out: Shape, dtype: Any
) -> LaneGradient:
    """Marks and gathering, or where a byte does not tell the cells of a window apart, places and scattering."""
    if plan.cells <= MOST_CELLS:
        found = by_lanes(plan, lane, "offsets", out, dtype, np.dtype(np.uint8))
        return LaneGradient(found, _gather_by_lanes(plan, lane, shape, dtype))
    found = by_lanes(plan, lane, "places", out, dtype, np.dtype(np.int64))
    kernel, units = lane_scattered.kernel(dtype.name), plan.items * plan.slabs
    return LaneGradient(found, Call(kernel, plan, shape, dtype, lane, units, 8 * plan.slab_cells))


@lru_cache(maxsize=1024)
def gather_call(
    op: Pooling, shape: Shape, grad: Shape, dtype: Any
) -> Call | TiledCall | SmallItems | None:
    """The call for gradients of cells from offsets."""
    if not marks_are_offsets(op, shape):
        return None
    out = kept_shape(op, shape)
    operands = [
        Operand("r", out, np.dtype(np.uint8)),
        Operand("r", out, dtype, grad),
        Operand("w", shape, dtype),
    ]
    if small := in_parts(
        op, shape, operands, "gradients", lambda part, _, grad: gather_call(op, part, grad, dtype)
    ):
        return small
    lane = lane_axis(kept_shape(op, shape), in_elements(grad, dtype), op.rank)
    steps = in_bytes(result_steps(shape, lane), dtype)
    lanes = lane_plan(op, shape, steps, grad, dtype)
    if lanes and lanes[0].cells <= MOST_CELLS:
        return _gather_by_lanes(*lanes, shape, dtype)
    steps = result_steps(shape, -1)
    back = tiling_of(op, shape, (steps, in_elements(grad, dtype), steps), dtype, backward=True)
    if back is None or max(back.readers) > SIDE_BY_SIDE:
        return None
    return TiledCall([(gathered.kernel(dtype.name), back)], shape, dtype, None)


def _gather_by_lanes(plan: LanePlan, lane: int, shape: Shape, dtype: Any) -> Call:
    past_caches(plan, shape, dtype.itemsize, vector_bytes(dtype))
    units = plan.items * plan.input_rows
    return Call(lane_gathered.kernel(dtype.name), plan, shape, dtype, lane, units, plan.listed)
