"""The verbs of pooling on NumPy arrays: find the prepared call, allocate its result, run it."""

from __future__ import annotations

from typing import Any

import numpy as np

from lunette.kernels.cpu.choice import (
    forward_call,
    gather_call,
    gradient_call,
    indices_call,
    offsets_call,
    tangent_call,
)
from lunette.kernels.cpu.long_axes import LONG, long_axis
from lunette.kernels.cpu.results import new_array
from lunette.ops.base import is_float
from lunette.ops.pooling import Pooling
from lunette.reductions import Max, Mean, SmoothMax

__all__ = [
    "forward",
    "forward_with_indices",
    "forward_with_offsets",
    "jvp",
    "refuses",
    "vjp",
    "vjp_from_offsets",
]

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]


def refuses(op: Pooling, verb: str, shapes: Any, dtypes: Any) -> str | None:
    """Why the kernels cannot serve this call, or None."""
    (dtype,) = dtypes
    if not is_float(dtype) and dtype.kind not in "iub":
        return f"has no kernel for dtype {dtype}"
    if verb == "forward_with_indices" and not isinstance(op.reduction, Max):
        return "has indices for max alone"
    if type(op.reduction) not in (Max, Mean, SmoothMax):
        return f"has no kernel for {op.reduction!r}"
    return None


def forward(op: Pooling, operands: tuple[Array, ...]) -> Array:
    """The value of every window."""
    x = _readable(operands[0])
    if not x.size:
        return _nothing(op, x)
    if max(x.shape) > LONG and (long := long_axis(op, x.shape)):
        return long.forward(lambda part, slab: forward(part, (slab,)), x)
    call = forward_call(op, x.shape, x.strides, x.dtype)
    y = call.new()
    call.run(x, y, y)
    return y if op.keepdims else y.reshape(call.shape[: -op.rank])


def forward_with_indices(op: Pooling, operands: tuple[Array, ...]) -> tuple[Array, Array]:
    """The value of every window, and its first winner's flat position in the pooled axes, or −1."""
    x = _readable(operands[0])
    if not x.size:
        return _nothing(op, x), _nothing(op, x).astype(np.int64)
    if max(x.shape) > LONG and (long := long_axis(op, x.shape)):
        return long.forward_with_indices(lambda part, x: forward_with_indices(part, (x,)), x)
    call = indices_call(op, x.shape, x.strides, x.dtype)
    y = call.new()
    z = new_array(call.shape, np.dtype(np.int64))
    call.run(x, y, z)
    if op.keepdims:
        return y, z
    shape = call.shape[: -op.rank]
    return y.reshape(shape), z.reshape(shape)


def jvp(op: Pooling, operands: tuple[Array, ...], tangents: tuple[Array, ...]) -> Array:
    """The directional derivative of every window's value."""
    if isinstance(op.reduction, Mean):
        return forward(op, tangents)  # linear, so the tangent has the same bits by either name
    x, dx = _readable(operands[0]), _readable(tangents[0])
    if not x.size:
        return _nothing(op, x)
    if max(x.shape) > LONG and (long := long_axis(op, x.shape)):
        return long.forward(lambda part, x, dx: jvp(part, (x,), (dx,)), x, dx)
    call = tangent_call(op, x.shape, x.strides, dx.strides, x.dtype)
    y = call.new()
    call.run(x, y, dx)
    return y if op.keepdims else y.reshape(call.shape[: -op.rank])


def vjp(op: Pooling, operands: tuple[Array, ...], grad: Array) -> tuple[Array, ...]:
    """The gradient of every cell."""
    x, gy = _readable(operands[0]), _readable(grad)
    if not x.size:
        return (np.empty_like(x),)
    if max(x.shape) > LONG and (long := long_axis(op, x.shape)):
        return (long.vjp(lambda part, x, gy: vjp(part, (x,), gy)[0], x, gy),)
    if not op.keepdims:
        gy = gy.reshape(gy.shape + (1,) * op.rank)
    call = gradient_call(op, x.shape, x.strides, gy.strides, x.dtype)
    gx = call.new()
    call.run(x, gy, gx)
    return (gx,)


def forward_with_offsets(op: Pooling, x: Array) -> tuple[Array, Array] | None:
    """The value of every window and the offset of its first winner; None where no kernel has them."""
    from lunette.offsets import offsets_of

    x = _readable(x)
    call = None
    if max(x.shape) <= LONG:
        call = offsets_call(op, x.shape, x.strides, x.dtype)
    if call is None:
        return None
    y, z = call.new(), new_array(call.shape, np.dtype(np.uint8))
    flags = np.zeros(call.steps[0][1].items, np.uint8)
    call.work(x, y, z, flags)
    if flags.any():
        # Items with a NaN, by kernels that know them.
        place = np.unravel_index(np.flatnonzero(flags), x.shape[: x.ndim - op.rank])
        some = np.ascontiguousarray(x[place])
        y[place], indices = forward_with_indices(op, (some,))
        z[place] = offsets_of(op, some.shape, indices)
    shape = call.shape if op.keepdims else call.shape[: -op.rank]
    return y.reshape(shape), z.reshape(shape)


def vjp_from_offsets(op: Pooling, shape: Shape, offsets: Array, grad: Array) -> Array | None:
    """The gradient of every cell; None where no kernel gives it."""
    gy, marks = _readable(grad), np.ascontiguousarray(offsets)
    if not op.keepdims:
        gy = gy.reshape(gy.shape + (1,) * op.rank)
    call = gather_call(op, shape, gy.strides, gy.dtype) if max(shape) <= LONG else None
    if call is None:
        return None
    gx = call.new()
    call.work(marks, gy, gx, np.zeros(1, np.uint8))
    return gx


def _nothing(op: Pooling, x: Array) -> Array:
    """The result of an empty batch; its axes may have any length, so nothing is planned."""
    return np.empty(op.out_shape(x.shape), op.result_dtype(x.dtype))


def _readable(x: Array) -> Array:
    """The array itself where its elements can be addressed in place; otherwise a copy.

    Elements that are not aligned, or strides that are not whole elements, leave no choice.
    """
    flags = x.flags
    if flags.aligned and (flags.c_contiguous or all(s % x.dtype.itemsize == 0 for s in x.strides)):
        return x
    return x.copy()
