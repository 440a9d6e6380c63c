"""Which kernels give derivatives of a max with channels last where ties count."""

from __future__ import annotations

from typing import Any

from lunette.kernels.cpu.jit.cache import Kernels
from lunette.kernels.cpu.layout.batch_interleave import ties_count
from lunette.kernels.cpu.program.calls import Call, TiedGradient, TiedTangent
from lunette.kernels.cpu.schedule.nhwc import NhwcPlan, nhwc_plan
from lunette.kernels.cpu.schedule.properties import worth_streaming
from lunette.kernels.cpu.select.forward import forward_call
from lunette.kernels.cpu.select.questions import in_bytes, real_dtype, result_steps, vector_bytes
from lunette.kernels.cpu.tuning import LINE, SLACK
from lunette.ops.pooling import Pooling
from lunette.reductions import Max

__all__ = ["tied_gradient", "tied_tangent"]

Shape = tuple[int, ...]

lane_ties = Kernels("loops.tied_nhwc")


def tied_tangent(
    op: Pooling,
    shape: Shape,
    strides: Shape,
    tangent: Shape,
    dtype: Any,
    out: Shape,
    speculative: bool,
) -> TiedTangent | None:
    """The call for directional derivatives; None where ties do not count, or channels are not last."""
    lanes = ties_count(op, "tangents") and nhwc_plan(op, shape, strides, tangent, dtype, True)
    if not lanes:
        return None
    plan, lane = lanes
    kernel = lane_ties.kernel(dtype.name, "jvp", _split(op))
    sums = Call(
        kernel, plan, out, dtype, lane, plan.items * plan.output_rows, _scratch(plan, shape[lane])
    )
    return TiedTangent(forward_call(op, shape, strides, dtype, speculative, True), sums)


def tied_gradient(
    op: Pooling,
    shape: Shape,
    strides: Shape,
    grad: Shape,
    dtype: Any,
    out: Shape,
    speculative: bool,
) -> TiedGradient | None:
    """The call for gradients of cells; None where ties do not count, or channels are not last."""
    lanes = ties_count(op, "gradients") and nhwc_plan(op, shape, strides, grad, dtype, True)
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
            nhwc_plan(op, shape, strides, given, dtype, True) or lanes
        )  # it is there if `lanes` are
    worth_streaming(plan, shape, dtype.itemsize, vector_bytes(dtype))
    kernel, units = lane_ties.gather_kernel(dtype.name, split), plan.items * plan.input_rows
    gather = Call(kernel, plan, shape, dtype, lane, units, plan.listed)
    return TiedGradient(forward_call(op, shape, strides, dtype, speculative, True), shares, gather)


def _split(op: Pooling) -> bool:
    return isinstance(op.reduction, Max) and op.reduction.ties == "split"


def _scratch(plan: NhwcPlan, channels: int) -> int:
    """Bytes for the lists of a window's rows and, of each channel, a sum, a number of winners, and a one."""
    return plan.listed + LINE + 8 * (3 * channels + SLACK)
