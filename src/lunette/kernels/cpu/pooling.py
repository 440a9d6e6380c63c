"""The verbs of pooling on NumPy arrays: find the plan, allocate, share the units out."""

from __future__ import annotations

import threading
from functools import lru_cache
from typing import Any

import numpy as np

from lunette.kernels import threads
from lunette.kernels.cpu import direct
from lunette.kernels.cpu.plan import Plan, plan
from lunette.ops.base import is_float
from lunette.ops.pooling import Pooling
from lunette.reductions import Max, Mean, Reduction, SmoothMax

__all__ = ["forward", "forward_with_indices", "jvp", "refuses", "vjp"]

Array = np.ndarray[Any, Any]

SMALL = 1 << 16
"""Cells visited below which one thread does the call: waking another would cost more."""


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
    kind, result = _kind(op.reduction), op.result_dtype(x.dtype)
    y = _alike(x, _keepdims_shape(op, x), result)
    p = plan(op, x.shape, _strides(x), _strides(y), _strides(y))
    kernel = direct.value_kernel(x.dtype.name, kind, False)
    _run(kernel, p, x, y, y, p.items * p.output_rows)
    return y if op.keepdims else y.reshape(op.out_shape(x.shape))


def forward_with_indices(op: Pooling, operands: tuple[Array, ...]) -> tuple[Array, Array]:
    """The value of every window, and its first winner's flat position in the pooled axes, or −1."""
    x = _readable(operands[0])
    y = _alike(x, _keepdims_shape(op, x), x.dtype)
    z = np.empty_like(y, np.int64)
    p = plan(op, x.shape, _strides(x), _strides(y), _strides(z))
    kernel = direct.value_kernel(x.dtype.name, direct.MAX, True)
    _run(kernel, p, x, y, z, p.items * p.output_rows)
    if not op.keepdims:
        y, z = y.reshape(op.out_shape(x.shape)), z.reshape(op.out_shape(x.shape))
    return y, z


def jvp(op: Pooling, operands: tuple[Array, ...], tangents: tuple[Array, ...]) -> Array:
    """The directional derivative of every window's value."""
    x, dx = _readable(operands[0]), _readable(tangents[0])
    kind, ties = _kind(op.reduction), getattr(op.reduction, "ties", "")
    y = _alike(x, _keepdims_shape(op, x), x.dtype)
    p = plan(op, x.shape, _strides(x), _strides(y), _strides(dx))
    kernel = direct.derivative_kernel(x.dtype.name, kind, ties)
    _run(kernel, p, x, y, dx, p.items * p.output_rows)
    return y if op.keepdims else y.reshape(op.out_shape(x.shape))


def vjp(op: Pooling, operands: tuple[Array, ...], grad: Array) -> tuple[Array, ...]:
    """The gradient of every cell."""
    x, gy = _readable(operands[0]), _readable(grad)
    kind, ties = _kind(op.reduction), getattr(op.reduction, "ties", "")
    if not op.keepdims:
        gy = gy.reshape(_keepdims_shape(op, x))
    gx = _alike(x, x.shape, x.dtype)
    p = plan(op, x.shape, _strides(x), _strides(gy), _strides(gx))
    kernel = direct.gradient_kernel(x.dtype.name, kind, ties)
    _run(kernel, p, x, gy, gx, p.items * p.slabs)
    return (gx,)


# -- arrays --


def _readable(x: Array) -> Array:
    """The array itself where its elements can be addressed in place; otherwise a copy.

    Elements that are not aligned, or strides that are not whole elements, leave no choice.
    """
    if x.flags.c_contiguous and x.flags.aligned:
        return x
    whole = all(s % x.itemsize == 0 for s in x.strides)
    return x if whole and x.flags.aligned else x.copy()


def _alike(x: Array, shape: tuple[int, ...], dtype: Any) -> Array:
    """A new array of `shape` whose axes lie in memory in the order of x's."""
    if x.flags.c_contiguous:
        return np.empty(shape, dtype)
    order = sorted(range(x.ndim), key=lambda axis: -abs(x.strides[axis]))
    back = sorted(range(x.ndim), key=order.__getitem__)
    return np.empty([shape[axis] for axis in order], dtype).transpose(back)


def _strides(x: Array) -> tuple[int, ...]:
    return tuple(s // x.itemsize for s in x.strides)


@lru_cache(maxsize=1024)
def _shape_kept(op: Pooling, shape: tuple[int, ...]) -> tuple[int, ...]:
    out = op.out_shape(shape)
    return out if op.keepdims else out + (1,) * op.rank


def _keepdims_shape(op: Pooling, x: Array) -> tuple[int, ...]:
    return _shape_kept(op, x.shape)


def _kind(reduction: Reduction) -> int:
    if isinstance(reduction, Max):
        return direct.MAX
    return direct.MEAN if isinstance(reduction, Mean) else direct.SMOOTH


# -- work --


class _Scratch(threading.local):
    """Memory of one thread that kernels use and nobody keeps."""

    def __init__(self) -> None:
        self.memory = np.empty(0, np.uint8)
        self.at = 0

    def of(self, size: int) -> int:
        """The address of at least `size` bytes."""
        if self.memory.size < size:
            self.memory = np.empty(size + 64, np.uint8)
            address = self.memory.__array_interface__["data"][0]
            self.at = -(-address // 64) * 64
        return self.at


_scratch = _Scratch()


def _run(kernel: Any, p: Plan, a: Array, b: Array, c: Array, units: int) -> None:
    at_a, at_b, at_c = _address(a), _address(b), _address(c)
    size = 24 * p.room + 8 * p.slab_cells

    def task(first: int, last: int) -> None:
        kernel(at_a, at_b, at_c, _scratch.of(size), p.at, p.room, first, last)

    if p.work <= SMALL:
        if units:
            task(0, units)
    else:
        threads.run(task, units)


def _address(x: Array) -> int:
    address: int = x.__array_interface__["data"][0]
    return address
