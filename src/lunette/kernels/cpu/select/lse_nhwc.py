"""Which kernels serve a smooth max whose channels lie side by side."""

from __future__ import annotations

from typing import Any

import numpy as np

from lunette.kernels.cpu.jit.cache import Kernels
from lunette.kernels.cpu.program.calls import NhwcLseGradient, QuickNhwc
from lunette.kernels.cpu.schedule.nhwc import NhwcPlan, nhwc_plan
from lunette.kernels.cpu.schedule.properties import worth_streaming
from lunette.kernels.cpu.schedule.slots import FOLDED_ROW
from lunette.kernels.cpu.schedule.tiling import is_affine
from lunette.kernels.cpu.schedule.windows import affine
from lunette.kernels.cpu.tuning import LINE
from lunette.ops.pooling import Pooling
from lunette.reductions import SmoothMax

__all__ = ["beta_positive", "channels_of", "far_apart", "gradient_nhwc", "value_nhwc"]

Shape = tuple[int, ...]

smooth_lanes, lane_shares = Kernels("loops.lse_nhwc"), Kernels("loops.lse_gather_nhwc")


def channels_of(
    op: Pooling, shape: Shape, strides: Shape, other: Shape, dtype: Any
) -> tuple[NhwcPlan, int] | None:
    """The plan of a smooth max by vectors of channels, and their axis; None where it is not served so."""
    served = isinstance(op.reduction, SmoothMax) and 0 not in shape and is_affine(op, shape)
    if not served or far_apart(op.regions[-1], shape[-1]):
        return None
    return nhwc_plan(op, shape, strides, other, dtype)


def value_nhwc(
    op: Pooling, verb: str, lanes: tuple[NhwcPlan, int], out: Shape, dtype: Any, again: Any
) -> QuickNhwc:
    """The call for values (`forward`) or directional derivatives (`jvp`)."""
    plan, lane = lanes
    kernel = smooth_lanes.kernel(dtype.name, verb, beta_positive(op))
    call = QuickNhwc(kernel, plan, out, dtype, lane, plan.items * plan.output_rows, _scratch(plan))
    call.again = again
    return call


def gradient_nhwc(
    op: Pooling, lanes: tuple[NhwcPlan, int], shape: Shape, out: Shape, dtype: Any, again: Any
) -> NhwcLseGradient:
    """The call for gradients of cells."""
    plan, lane = lanes
    number = np.dtype(np.float64 if dtype.itemsize == 8 else np.float32)
    kernel = smooth_lanes.kernel(dtype.name, "weights", beta_positive(op))
    units = plan.items * plan.output_rows
    weights = QuickNhwc(kernel, plan, (3, *out), number, -1, units, _scratch(plan))
    worth_streaming(plan, shape, dtype.itemsize, LINE if dtype == number else 0)
    kernel, units = lane_shares.kernel(dtype.name, beta_positive(op)), plan.items * plan.input_rows
    gather = QuickNhwc(kernel, plan, shape, dtype, lane, units, plan.listed)
    return NhwcLseGradient(weights, gather, again)


def beta_positive(op: Pooling) -> bool:
    """Whether a smooth max goes to the max, not the min, as |beta| grows."""
    return isinstance(op.reduction, SmoothMax) and op.reduction.beta > 0


def far_apart(region: Any, n: int) -> bool:
    """Whether most cells between windows that lie alike are read by none, so that powers of all would be waste."""
    stride, _, dilation, kernel = affine(region, n)
    return stride > 2 * dilation * kernel + 16


def _scratch(plan: NhwcPlan) -> int:
    """Bytes of lists, then of a row of powers, which begins a line."""
    return -(-plan.listed // LINE) * LINE + 8 * int(plan.table[FOLDED_ROW])
