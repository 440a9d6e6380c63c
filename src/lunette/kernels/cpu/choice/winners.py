"""Which kernel finds the winners of a max, or follows a tangent: by op, shape, layout and dtype; found once and remembered."""

from __future__ import annotations

from functools import lru_cache, partial
from math import prod
from typing import Any

import numpy as np

from lunette.kernels.cpu.choice.pairs import by_pairs, pairs_call
from lunette.kernels.cpu.choice.questions import (
    by_items,
    by_output_rows,
    by_winners,
    few_and_long,
    in_elements,
    kept_shape,
    kind_of,
    looked_at_each,
    marks_are_offsets,
    result_steps,
    tiling_of,
)
from lunette.kernels.cpu.choice.same_work import ANY_LENGTH, on_one_axis, said_anew
from lunette.kernels.cpu.choice.smooth import lanes_of, rises, value_by_lanes
from lunette.kernels.cpu.choice.ties import tied_tangent
from lunette.kernels.cpu.compiling.library import Kernels
from lunette.kernels.cpu.plans.lane_plan import LanePlan, lane_plan
from lunette.kernels.cpu.plans.layout import MAX, SMOOTH
from lunette.kernels.cpu.plans.plan import Plan
from lunette.kernels.cpu.plans.sizes import BANDS, MARKS, SOME
from lunette.kernels.cpu.plans.tiling import MOST_CELLS
from lunette.kernels.cpu.plans.traits import one_window_each, shares_little
from lunette.kernels.cpu.rearranging.long_axes import long_outputs
from lunette.kernels.cpu.rearranging.small_items import Operand, SmallItems, in_parts, ties_count
from lunette.kernels.cpu.running.calls import Call, TiedTangent, TiledCall
from lunette.ops.base import is_float
from lunette.ops.pooling import Pooling

__all__ = ["by_lanes", "indices_call", "offsets_call", "taken_call", "tangent_call"]

Shape = tuple[int, ...]

MOST_PLACES = (1 << 31) - 1
"""Cells of the pooled axes that kernels can number beside a vector of values of four bytes, at most."""

direct = Kernels("direct")
lane_winners = Kernels("maxima.lane_winners")
offsets = Kernels("maxima.offsets")
smooth_tangents = Kernels("smooth.tangents")
taken = Kernels("maxima.taken")
wide = Kernels("maxima.wide")


@lru_cache(maxsize=1024)
def indices_call(
    op: Pooling, shape: Shape, strides: Shape, dtype: Any, trusting: bool = True
) -> Call | TiledCall | SmallItems | None:
    """The call for values and the flat positions of their winners; None where an axis has too many outputs."""
    if long_outputs(op, shape):
        return None
    out = kept_shape(op, shape)
    places = Operand("w", out, np.dtype(np.int64))
    again = partial(indices_call, op, shape, strides, dtype, False)
    operands = [Operand("r", shape, dtype, strides), Operand("w", out, dtype), places]
    if trusting and (
        small := in_parts(
            op, shape, operands, "winners", lambda *part: indices_call(op, *part, dtype)
        )
    ):
        return small
    numbered = prod(shape[len(shape) - op.rank :]) <= MOST_PLACES
    if numbered and (lanes := lane_plan(op, shape, strides, strides, dtype)):
        return by_lanes(*lanes, "indices", out, dtype)
    if same := on_one_axis(op, shape, (strides,), (), dtype.itemsize, ANY_LENGTH):
        op, shape, (strides,), _ = same
    y_steps = result_steps(kept_shape(op, shape), -1)
    alike = looked_at_each(op, shape, dtype) and not few_and_long(op, shape)
    if trusting and numbered and alike:
        steps = (in_elements(strides, dtype), y_steps, y_steps)
        tiling = tiling_of(op, shape, steps, dtype)
        if tiling is not None:
            return TiledCall([(offsets.kernel(dtype.name, "indices"), tiling)], out, dtype, again)
    plan = Plan(op, shape, (in_elements(strides, dtype), y_steps, y_steps))
    if plan.has_winners and one_window_each(plan):
        return by_items(plan, "winners", "first", out, dtype)
    if plan.has_winners and shares_little(plan, searched=True):
        return by_output_rows(wide.kernel(dtype.name, "winners", "first"), plan, out, dtype, BANDS)
    if plan.has_winners:
        return by_winners(plan, "indices", out, dtype, plan.items * plan.tiles)
    kernel = direct.value_kernel(dtype.name, MAX, True)
    return Call(kernel, plan, out, dtype, -1, plan.items * plan.output_rows, 24 * plan.room)


@lru_cache(maxsize=1024)
def offsets_call(
    op: Pooling, shape: Shape, strides: Shape, dtype: Any
) -> Call | TiledCall | SmallItems | None:
    """The call for values and offsets; items with a NaN may be flagged, and left to the caller."""
    if not marks_are_offsets(op, shape):
        return None
    out = kept_shape(op, shape)
    kept = Operand("w", out, np.dtype(np.uint8))
    operands = [Operand("r", shape, dtype, strides), Operand("w", out, dtype), kept]
    if small := in_parts(
        op, shape, operands, "winners", lambda *part: offsets_call(op, *part, dtype)
    ):
        return small
    lanes = lane_plan(op, shape, strides, strides, dtype)
    if lanes and lanes[0].cells <= MOST_CELLS:
        return by_lanes(*lanes, "kept", out, dtype)
    y_steps = result_steps(out, -1)
    steps = (in_elements(strides, dtype), y_steps, y_steps)
    tiling = tiling_of(op, shape, steps, dtype)
    if tiling is None:
        return None
    return TiledCall([(offsets.kernel(dtype.name, "kept"), tiling)], out, dtype, None)


@lru_cache(maxsize=1024)
def taken_call(op: Pooling, shape: Shape, strides: Shape, dtype: Any) -> TiledCall | None:
    """The call for tangents of winners that were kept; items with a mark of no cell are flagged, and left to the caller."""
    out = kept_shape(op, shape)
    y_steps = result_steps(out, -1)
    tiling = tiling_of(op, shape, (in_elements(strides, dtype), y_steps, y_steps), dtype)
    if tiling is None or not marks_are_offsets(op, shape):
        return None
    tiling.scratch += 16 * MARKS
    return TiledCall([(taken.kernel(dtype.name), tiling)], out, dtype, None)


@lru_cache(maxsize=1024)
def tangent_call(
    op: Pooling, shape: Shape, strides: Shape, tangent: Shape, dtype: Any, trusting: bool = True
) -> Call | TiledCall | SmallItems | TiedTangent | None:
    """The call for directional derivatives of max and smooth max; None where an axis has too many outputs."""
    if long_outputs(op, shape):
        return None
    kind, ties = kind_of(op.reduction), getattr(op.reduction, "ties", "")
    out = kept_shape(op, shape)
    operands = [
        Operand("r", shape, dtype, strides),
        Operand("w", out, dtype),
        Operand("r", shape, dtype, tangent),
    ]
    again = partial(tangent_call, op, shape, strides, tangent, dtype, False)
    sure = not ties_count(op, "tangents")
    if by_pairs(op, shape, "tangents"):
        return pairs_call(op, "jvp", shape, strides, tangent, dtype)
    if trusting and (
        small := in_parts(
            op, shape, operands, "tangents", lambda *part: tangent_call(op, *part, dtype, sure)
        )
    ):
        small.again = lambda part, *read: tangent_call(op, part, *read, dtype, False)
        return small
    if ties == "first" and (lanes := lane_plan(op, shape, strides, tangent, dtype)):
        return by_lanes(*lanes, "jvp", out, dtype)
    if tied := tied_tangent(op, shape, strides, tangent, dtype, out, trusting):
        return tied
    lanes = lanes_of(op, shape, strides, tangent, dtype)
    if lanes and trusting:
        return value_by_lanes(op, "jvp", lanes, out, dtype, again)
    if not lanes:
        whole = said_anew(op, shape, (strides, tangent), (), dtype.itemsize)
        op, shape, (strides, tangent), _ = whole
    lane = lanes[1] if lanes else -1
    y_steps = result_steps(kept_shape(op, shape), lane)
    all_steps = (in_elements(strides, dtype), y_steps, in_elements(tangent, dtype))
    tiled = (
        ties in ("first", "") and looked_at_each(op, shape, dtype) and not few_and_long(op, shape)
    )
    if trusting and is_float(dtype) and tiled:
        tiling = tiling_of(op, shape, all_steps, dtype, in_turn=kind == SMOOTH)
        if tiling is not None:
            kernel = offsets.kernel(dtype.name, "jvp")
            if kind == SMOOTH:
                kernel = smooth_tangents.kernel(dtype.name, rises(op))
            return TiledCall([(kernel, tiling)], out, dtype, again)
    plan = Plan(op, shape, all_steps)
    if kind == MAX and plan.has_winners and one_window_each(plan):
        return by_items(plan, "jvp", ties, out, dtype)
    if kind == MAX and plan.has_winners and shares_little(plan, searched=True):
        scratch = BANDS + 8 * SOME
        return by_output_rows(wide.kernel(dtype.name, "jvp", ties), plan, out, dtype, scratch)
    if ties == "first" and plan.has_winners:
        return by_winners(plan, "jvp", out, dtype, plan.items * plan.tiles)
    kernel = direct.derivative_kernel(dtype.name, kind, ties)
    return Call(kernel, plan, out, dtype, lane, plan.items * plan.output_rows, 24 * plan.room)


def by_lanes(
    plan: LanePlan, lane: int, verb: str, shape: Shape, dtype: Any, result: Any = None
) -> Call:
    kernel, units = lane_winners.kernel(dtype.name, verb), plan.items * plan.output_rows
    return Call(kernel, plan, shape, result or dtype, lane, units, plan.listed)
