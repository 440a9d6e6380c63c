"""Integers and bools that the elements decide: casts, comparisons, winners, and what reads them."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

from lunette.onnx.graph import Step
from lunette.onnx.operators.table import operator
from lunette.onnx.recorder import Recorder, Value, axis_of
from lunette.onnx.tensors import dtype_of
from lunette.ops.base import is_float
from lunette.spec import scalars
from lunette.tape import functions as fn

__all__: list[str] = []


@operator("Cast")
def cast(run: Recorder, step: Step, x: Value) -> Value:
    step.get("saturate")  # of 8-bit floats alone, which are not read
    step.get("round_mode")
    dtype = dtype_of(step.get("to"), f"{step.label}: the result")
    if x.id is None:
        if x.is_float and not is_float(dtype):
            return run.known(_whole(step, x.array, dtype), x)
        rounded = x.array.astype(dtype)
        if is_float(dtype) and not np.isfinite(rounded).all():
            raise step.error(f"a constant is too large for {dtype}")
        return Value(rounded, None, x.depends, x.name)
    if dtype == run.dtype:
        return x
    if is_float(dtype):
        raise step.error(f"attribute to={dtype}: this network computes in {run.dtype} throughout")
    return run.known(_whole(step, run.decided_floats(x), dtype), x)


def _whole(step: Step, x: Any, dtype: Any) -> Any:
    """Floats or exact numbers cut toward zero; as bools, whether they differ from zero."""
    x = x if isinstance(x, np.ndarray) else np.asarray(x)
    if dtype.kind == "b":
        return _equal(x, fn.zeros_like(x)) ^ True
    if fn.is_object(x):
        numbers = [_cut(v) for v in x.flat]
    else:
        if not np.isfinite(x).all():
            raise step.error("an element is not finite: it has no integer")
        numbers = [int(v) for v in x.flat]
    limits = np.iinfo(dtype)
    wrong = next((n for n in numbers if not limits.min <= n <= limits.max), None)
    if wrong is not None:
        raise step.error(f"{wrong} does not fit {dtype}")
    return np.array(numbers, dtype).reshape(x.shape)


def _cut(value: Any) -> int:
    """The integer of an exact number, or that of all points of an interval."""
    if isinstance(value, Fraction):
        return math.trunc(value)
    lo, hi = getattr(value, "lo", None), getattr(value, "hi", None)
    if lo is not None and hi is not None:
        if not (math.isfinite(lo) and math.isfinite(hi)) or math.trunc(lo) != math.trunc(hi):
            raise scalars.Undecided(f"which integer is {value!r}? Its points have several")
        return int(lo)
    raise scalars.MissingOperation(
        f"{type(value).__name__} numbers are not cut to integers: use floats, Fractions or intervals"
    )


def _equal(a: Any, b: Any) -> Any:
    """Where elements are equal; numbers whose order is not known raise `Undecided`."""
    a, b = np.broadcast_arrays(a, b)
    if not fn.is_object(a):
        return a == b
    system = scalars.of_array(a)
    found = [
        not system.greater(u, v) and not system.greater(v, u)
        for u, v in zip(a.flat, b.flat, strict=True)
    ]
    return np.array(found, bool).reshape(a.shape)


@operator("Equal")
def equal(run: Recorder, step: Step, a: Value, b: Value) -> Value:
    try:
        run.bounded(step, np.broadcast_shapes(a.shape, b.shape))
    except ValueError as error:
        raise step.error(str(error)) from None
    if a.id is None and b.id is None:
        return run.known(a.array == b.array, a, b)
    left, right = (
        run.converted(v.array) if v.id is None else run.decided_floats(v) for v in (a, b)
    )
    return run.known(_equal(left, right), a, b)


@operator("ArgMax")
def argmax(run: Recorder, step: Step, x: Value) -> Value:
    if step.get("select_last_index"):
        raise step.error("attribute select_last_index=1 is not read here")
    axis = axis_of(step, step.get("axis"), len(x.shape))
    if x.shape[axis] == 0:
        raise step.error(f"axis {axis} of shape {x.shape} is empty")
    numbers = np.moveaxis(run.decided_floats(x), axis, -1)
    if fn.is_object(numbers):
        system, winners = scalars.of_array(numbers), np.empty(numbers.shape[:-1], np.int64)
        for i in np.ndindex(winners.shape):
            winners[i] = system.winner(list(numbers[i]))
    else:
        winners = np.argmax(numbers, axis=-1)
    winners = np.expand_dims(winners, axis) if step.get("keepdims") else winners
    return run.known(np.asarray(winners, np.int64), x)


@operator("Where")
def where(run: Recorder, step: Step, condition: Value, a: Value, b: Value) -> Value:
    mask = run.array(step, condition, "the condition")
    if mask.dtype.kind != "b":
        raise step.error(f"the condition has dtype {mask.dtype}: expected bools")
    try:
        shape = run.bounded(step, np.broadcast_shapes(mask.shape, a.shape, b.shape))
    except ValueError as error:
        raise step.error(str(error)) from None
    first, second = math.prod(a.shape), math.prod(b.shape)
    left = np.broadcast_to(np.arange(first).reshape(a.shape), shape)
    right = np.broadcast_to(np.arange(first, first + second).reshape(b.shape), shape)
    chosen = run.merge(step, [a, b], np.where(mask, left, right))
    chosen.depends = chosen.depends or condition.depends
    return chosen


@operator("ScatterND")
def scatter_nd(run: Recorder, step: Step, x: Value, indices: Value, updates: Value) -> Value:
    if step.get("reduction") not in (None, "none"):
        raise step.error(f"attribute reduction={step.get('reduction')!r} is not read here")
    places = run.array(step, indices, "indices")
    if places.dtype.kind not in "iu" or not places.ndim or places.shape[-1] > len(x.shape):
        raise step.error(f"indices of {places.dtype} and shape {places.shape} for x of {x.shape}")
    depth = places.shape[-1]
    sizes = np.asarray(x.shape[:depth], np.int64)
    if ((places < -sizes) | (places >= sizes)).any():
        raise step.error(f"indices reach outside of shape {x.shape}")
    expected = (*places.shape[:-1], *x.shape[depth:])
    if updates.shape != expected:
        raise step.error(f"updates have shape {updates.shape}: expected {expected}")
    count = math.prod(x.shape)
    index = np.arange(count).reshape(x.shape)
    new = np.arange(count, count + math.prod(expected)).reshape(expected)
    index[tuple(np.moveaxis(places, -1, 0))] = new
    scattered = run.merge(step, [x, updates], index)
    scattered.depends = scattered.depends or indices.depends
    return scattered
