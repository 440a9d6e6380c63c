"""Constants, shapes, and the same elements under another shape."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from lunette.onnx.graph import Step
from lunette.onnx.operators.table import operator
from lunette.onnx.recorder import Recorder, Value, axes_of, axis_of

__all__: list[str] = []


@operator("Constant")
def constant(run: Recorder, step: Step) -> Value:
    given = sorted(step.given)
    if len(given) != 1:
        raise step.error(f"has attributes {given}: expected exactly one value")
    kinds: dict[str, Any] = {
        "value": None,
        "value_float": np.float32,
        "value_floats": np.float32,
        "value_int": np.int64,
        "value_ints": np.int64,
    }
    name = given[0]
    if name not in kinds:
        raise step.error(f"attribute {name!r} is not read here")
    array = np.asarray(step.get(name), kinds[name])
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise step.error(f"attribute {name!r} holds a number that is not finite")
    return Value(array, None, False, step.outputs[0])


@operator("ConstantOfShape")
def constant_of_shape(run: Recorder, step: Step, shape: Value) -> Value:
    sizes = run.bounded(step, run.ints(step, shape, "the shape"))
    fill = step.get("value")
    fill = np.zeros(1, np.float32) if fill is None else np.asarray(fill)
    if fill.size != 1:
        raise step.error(f"attribute 'value' has {fill.size} elements: expected one")
    return Value(np.full(sizes, fill.reshape(())[()], fill.dtype), None, shape.depends)


@operator("Shape")
def shape_of(run: Recorder, step: Step, x: Value) -> Value:
    sizes = x.shape[slice(step.get("start") or 0, step.get("end"))]
    # The size of a value is the same for all inputs, unless an integer that they decide gave it.
    return Value(np.asarray(sizes, np.int64), None, x.depends and x.id is None)


@operator("Range")
def range_of(run: Recorder, step: Step, start: Value, limit: Value, delta: Value) -> Value:
    ends = []
    for value, what in ((start, "start"), (limit, "limit"), (delta, "delta")):
        if value.array is None or value.array.size != 1 or value.array.dtype.kind not in "iu":
            raise step.error(f"{what}: expected one known integer")
        ends.append(int(value.array.reshape(-1)[0]))
    if ends[2] == 0:
        raise step.error("delta is 0")
    run.bounded(step, (len(range(*ends)),))
    return run.known(np.arange(*ends, dtype=start.array.dtype), start, limit, delta)


@operator("Reshape")
def reshape(run: Recorder, step: Step, x: Value, shape: Value) -> Value:
    sizes = run.ints(step, shape, "shape")
    if not step.get("allowzero"):
        if any(n == 0 and i >= len(x.shape) for i, n in enumerate(sizes)):
            raise step.error(f"shape {sizes}: a 0 has no axis of {x.shape} to copy")
        sizes = [x.shape[i] if n == 0 else n for i, n in enumerate(sizes)]
    if sizes.count(-1) > 1 or min(sizes, default=0) < -1:
        raise step.error(f"shape {sizes}: expected sizes, and at most one -1")
    return run.reshape(step, x, tuple(sizes))


@operator("Flatten")
def flatten(run: Recorder, step: Step, x: Value) -> Value:
    axis, ndim = step.get("axis"), len(x.shape)
    if not (-ndim if step.opset >= 11 else 0) <= axis <= ndim:
        raise step.error(f"axis={axis}: x of shape {x.shape} has {ndim} axes")
    axis = axis + ndim if axis < 0 else axis
    return run.reshape(step, x, (math.prod(x.shape[:axis]), math.prod(x.shape[axis:])))


@operator("Transpose")
def transpose(run: Recorder, step: Step, x: Value) -> Value:
    order = step.get("perm")
    ndim = len(x.shape)
    order = tuple(range(ndim))[::-1] if order is None else tuple(order)
    if sorted(order) != list(range(ndim)):
        raise step.error(f"perm={list(order)}: expected every one of {ndim} axes once")
    return run.transpose(step, x, order)


def _axes(run: Recorder, step: Step, axes: Value | None) -> list[int] | None:
    """Axes by attribute before version 13, by input since."""
    if step.opset < 13:
        return step.get("axes")  # type: ignore[no-any-return]
    return None if axes is None else run.ints(step, axes, "axes")


@operator("Squeeze")
def squeeze(run: Recorder, step: Step, x: Value, axes: Value | None = None) -> Value:
    given = _axes(run, step, axes)
    if given is None:
        drop = tuple(i for i, n in enumerate(x.shape) if n == 1)
    else:
        drop = axes_of(step, given, len(x.shape))
    wrong = [i for i in drop if x.shape[i] != 1]
    if wrong:
        raise step.error(f"axis {wrong[0]} of shape {x.shape} has not length 1")
    return run.reshape(step, x, tuple(n for i, n in enumerate(x.shape) if i not in drop))


@operator("Unsqueeze")
def unsqueeze(run: Recorder, step: Step, x: Value, axes: Value | None = None) -> Value:
    given = _axes(run, step, axes) or []
    new = axes_of(step, given, len(x.shape) + len(given))
    old = iter(x.shape)
    sizes = [1 if i in new else next(old) for i in range(len(x.shape) + len(new))]
    return run.reshape(step, x, tuple(sizes))


@operator("Concat")
def concat(run: Recorder, step: Step, *values: Value) -> Value:
    ndim = len(values[0].shape)
    if ndim == 0:
        raise step.error("of values without axes")
    axis = axis_of(step, step.get("axis"), ndim)
    shapes = [v.shape for v in values]
    for shape in shapes[1:]:
        if len(shape) != ndim or any(shape[i] != shapes[0][i] for i in range(ndim) if i != axis):
            raise step.error(f"shapes {shapes[0]} and {shape} do not meet along axis {axis}")
    if all(v.id is None for v in values):
        if len({v.array.dtype for v in values}) > 1:
            raise step.error("of several dtypes")
        run.bounded(step, (sum(math.prod(s) for s in shapes),))
        return run.known(np.concatenate([v.array for v in values], axis), *values)
    return run.apply(step, "concatenate", *values, axis=axis)
