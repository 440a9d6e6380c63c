"""Which kernels give derivatives of a max with channels last where ties count."""

from __future__ import annotations

from typing import Any

from lunette.kernels.cpu.choice.questions import in_bytes, real_dtype, result_steps, vector_bytes
from lunette.kernels.cpu.choice.values import forward_call
from lunette.kernels.cpu.compiling.library import Kernels
from lunette.kernels.cpu.plans.lane_plan import LanePlan, lane_plan
from lunette.kernels.cpu.plans.sizes import LINE, SLACK
from lunette.kernels.cpu.plans.traits import past_caches
from lunette.kernels.cpu.rearranging.small_items import ties_count
from lunette.kernels.cpu.running.calls import Call, TiedGradient, TiedTangent
from lunette.ops.pooling import Pooling
from lunette.reductions import Max

__all__ = ["tied_gradient", "tied_tangent"]

Shape = tuple[int, ...]

lane_ties = Kernels("maxima.lane_ties")


def tied_tangent(
    op: Pooling,
    shape: Shape,
    strides: Shape,
    tangent: Shape,
    dtype: Any,
    out: Shape,
    trusting: bool,
) -> TiedTangent | None:
    """The call for directional derivatives; None where ties do not count, or channels are not last."""
    lanes = ties_count(op, "tangents") and lane_plan(op, shape, strides, tangent, dtype, True)
    if not lanes:
        return None
    plan, lane = lanes
    kernel = lane_ties.kernel(dtype.name, "jvp", _split(op))
    sums = Call(
        kernel, plan, out, dtype, lane, plan.items * plan.output_rows, _scratch(plan, shape[lane])
    )
    return TiedTangent(forward_call(op, shape, strides, dtype, trusting, True), sums)


def tied_gradient(
    op: Pooling, shape: Shape, strides: Shape, grad: Shape, dtype: Any, out: Shape, trusting: bool
) -> TiedGradient | None:
    """The call for gradients of cells; None where ties do not count, or channels are not last."""
    lanes = ties_count(op, "gradients") and lane_plan(op, shape, strides, grad, dtype, True)
    if not lanes:
        return None
    plan, lane = lanes
    split, shares = _split(op), None
    if split:
        kernel, units = lane_ties.kernel(dtype.name, "shares", True), plan.items * plan.output_rows
        shares = Call(
            kernel, plan, out, real_dtype(dtype), lane, units, _scratch(plan, shape[lane])
        )
        given = in_bytes(result_steps(out, lane), dtype)
        plan, _ = (
            lane_plan(op, shape, strides, given, dtype, True) or lanes
        )  # it is there if `lanes` are
    past_caches(plan, shape, dtype.itemsize, vector_bytes(dtype))
    kernel, units = lane_ties.gather_kernel(dtype.name, split), plan.items * plan.input_rows
    gather = Call(kernel, plan, shape, dtype, lane, units, plan.listed)
    return TiedGradient(forward_call(op, shape, strides, dtype, trusting, True), shares, gather)


def _split(op: Pooling) -> bool:
    return isinstance(op.reduction, Max) and op.reduction.ties == "split"


def _scratch(plan: LanePlan, channels: int) -> int:
    """Bytes for the lists of a window's rows and, of each channel, a sum, a number of winners, and a one."""
    return plan.listed + LINE + 8 * (3 * channels + SLACK)
