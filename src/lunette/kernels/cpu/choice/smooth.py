"""Which kernels serve a smooth max whose channels lie side by side."""

from __future__ import annotations

from typing import Any

import numpy as np

from lunette.kernels.cpu.compiling.library import Kernels
from lunette.kernels.cpu.plans.lane_plan import LanePlan, lane_plan
from lunette.kernels.cpu.plans.layout import FOLDED_ROW
from lunette.kernels.cpu.plans.sizes import LINE
from lunette.kernels.cpu.plans.tiling import lies_alike
from lunette.kernels.cpu.plans.traits import past_caches
from lunette.kernels.cpu.plans.window_tables import regular
from lunette.kernels.cpu.running.calls import LaneShares, QuickLanes
from lunette.ops.pooling import Pooling
from lunette.reductions import SmoothMax

__all__ = ["far_apart", "gradient_by_lanes", "lanes_of", "rises", "value_by_lanes"]

Shape = tuple[int, ...]

smooth_lanes, lane_shares = Kernels("smooth.lane_values"), Kernels("smooth.lane_shares")


def lanes_of(
    op: Pooling, shape: Shape, strides: Shape, other: Shape, dtype: Any
) -> tuple[LanePlan, int] | None:
    """The plan of a smooth max by vectors of channels, and their axis; None where it is not served so."""
    served = isinstance(op.reduction, SmoothMax) and 0 not in shape and lies_alike(op, shape)
    if not served or far_apart(op.regions[-1], shape[-1]):
        return None
    return lane_plan(op, shape, strides, other, dtype)


def value_by_lanes(
    op: Pooling, verb: str, lanes: tuple[LanePlan, int], out: Shape, dtype: Any, again: Any
) -> QuickLanes:
    """The call for values (`forward`) or directional derivatives (`jvp`)."""
    plan, lane = lanes
    kernel = smooth_lanes.kernel(dtype.name, verb, rises(op))
    call = QuickLanes(kernel, plan, out, dtype, lane, plan.items * plan.output_rows, _scratch(plan))
    call.again = again
    return call


def gradient_by_lanes(
    op: Pooling, lanes: tuple[LanePlan, int], shape: Shape, out: Shape, dtype: Any, again: Any
) -> LaneShares:
    """The call for gradients of cells."""
    plan, lane = lanes
    number = np.dtype(np.float64 if dtype.itemsize == 8 else np.float32)
    kernel = smooth_lanes.kernel(dtype.name, "weights", rises(op))
    units = plan.items * plan.output_rows
    weights = QuickLanes(kernel, plan, (3, *out), number, -1, units, _scratch(plan))
    past_caches(plan, shape, dtype.itemsize, LINE if dtype == number else 0)
    kernel, units = lane_shares.kernel(dtype.name, rises(op)), plan.items * plan.input_rows
    gather = QuickLanes(kernel, plan, shape, dtype, lane, units, plan.listed)
    return LaneShares(weights, gather, again)


def rises(op: Pooling) -> bool:
    """Whether a smooth max goes to the max, not the min, as |beta| grows."""
    return isinstance(op.reduction, SmoothMax) and op.reduction.beta > 0


def far_apart(region: Any, n: int) -> bool:
    """Whether most cells between windows that lie alike are read by none, so that powers of all would be waste."""
    stride, _, dilation, kernel = regular(region, n)
    return stride > 2 * dilation * kernel + 16


def _scratch(plan: LanePlan) -> int:
    """Bytes of lists, then of a row of powers, which begins a line."""
    return -(-plan.listed // LINE) * LINE + 8 * int(plan.table[FOLDED_ROW])
