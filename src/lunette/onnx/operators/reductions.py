"""Sums, means and maxima over whole axes."""

from __future__ import annotations

from lunette.onnx.graph import Step
from lunette.onnx.operators.table import operator
from lunette.onnx.recorder import Recorder, Value, axes_of
from lunette.ops import AvgPool, MaxPool

__all__: list[str] = []


@operator("ReduceMean", "ReduceSum", "ReduceMax")
def reduce(run: Recorder, step: Step, x: Value, axes: Value | None = None) -> Value:
    ndim, keepdims = len(x.shape), bool(step.get("keepdims"))
    by_input = step.opset >= (13 if step.op == "ReduceSum" else 18)
    if by_input:
        given = [] if axes is None else run.ints(step, axes, "axes")
    else:
        given = step.get("axes")
    if not given:
        if step.get("noop_with_empty_axes"):
            return x
        given = list(range(ndim))
    step.get("noop_with_empty_axes")
    over = tuple(sorted(axes_of(step, given, ndim)))
    if not over:
        return x
    if step.op != "ReduceMax":
        if any(x.shape[i] == 0 for i in over) and step.op == "ReduceMean":
            raise step.error(f"the mean over an empty axis of {x.shape}")
        name = "mean" if step.op == "ReduceMean" else "sum"
        return run.apply(step, name, x, axis=over, keepdims=keepdims)
    # The axes go last, where one window holds them all.
    rest = tuple(i for i in range(ndim) if i not in over)
    if any(x.shape[i] == 0 for i in over):
        raise step.error(f"the maximum over an empty axis of {x.shape}")
    moved = x if rest + over == tuple(range(ndim)) else run.transpose(step, x, rest + over)
    largest = run.apply(step, MaxPool(tuple(x.shape[i] for i in over)), moved)
    sizes = [n for i, n in enumerate(x.shape) if i not in over]
    if keepdims:
        sizes = [1 if i in over else n for i, n in enumerate(x.shape)]
    return run.reshape(step, largest, tuple(sizes))


@operator("GlobalAveragePool", "GlobalMaxPool")
def global_pool(run: Recorder, step: Step, x: Value) -> Value:
    kernel = x.shape[2:]
    if not kernel or 0 in kernel:
        raise step.error(f"x has shape {x.shape}: expected (batch, channels, …), with some cells")
    op = AvgPool(kernel) if step.op == "GlobalAveragePool" else MaxPool(kernel)
    return run.apply(step, op, x)
