"""Which kernels serve a smooth max of large windows: in pairs, whatever the layout."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from lunette.kernels.cpu.choice.questions import (
    in_elements,
    kept_shape,
    real_dtype,
    result_steps,
)
from lunette.kernels.cpu.choice.smooth import rises
from lunette.kernels.cpu.compiling.library import Kernels
from lunette.kernels.cpu.plans.layout import MEMBERS, STEP
from lunette.kernels.cpu.plans.plan import Plan, lane_axis
from lunette.kernels.cpu.plans.sizes import LINE, SIDE_BY_SIDE
from lunette.kernels.cpu.plans.window_tables import reach_of_window, window_table
from lunette.kernels.cpu.running.calls import Call
from lunette.kernels.cpu.smooth.pair_rooms import PairRooms
from lunette.ops.pooling import Pooling
from lunette.reductions import SmoothMax

__all__ = ["by_pairs", "pairs_call"]

Shape = tuple[int, ...]

pairs = Kernels("smooth.pairs")


FEW = 4
"""Cells of windows whose tangents are quicker one by one, at most."""


@lru_cache(maxsize=1024)
def by_pairs(op: Pooling, shape: Shape, verb: str) -> bool:
    """Whether windows of a smooth max are large, none is empty, and their cells are side by side on each axis.

    That is for all layouts alike, and so are the bits. Verbs are "values", "tangents" and "gradients".
    """
    if not isinstance(op.reduction, SmoothMax) or 0 in shape:
        return False
    if reach_of_window(op, shape) <= (FEW if verb == "tangents" else SIDE_BY_SIDE):
        return False
    for region, n in zip(op.regions, shape[len(shape) - op.rank :], strict=True):
        windows = window_table(region, n, region.out_length(n))
        if not ((windows[:, STEP] == 1) | (windows[:, MEMBERS] == 1)).all():
            return False
        if (windows[:, MEMBERS] == 0).any():
            return False
    return True


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
