"""The verbs of min, mode and rounded mean on NumPy arrays.

A min is a max of the numbers turned around: complement turns the order of integers, a change of sign
that of floats. A rounded mean of floats is their mean.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np

from lunette.kernels.cpu import pooling
from lunette.kernels.cpu.integers import mode, rounded
from lunette.ops.base import is_float
from lunette.ops.pooling import Pool, Pooling
from lunette.reductions import Max, Mean, Min, Mode, RoundedMean
from lunette.regions import Part, Sliding

__all__ = ["forward", "forward_with_indices", "jvp", "refuses", "vjp", "without_cells"]

Array = np.ndarray[Any, Any]
Arrays = TypeVar("Arrays")


def refuses(op: Pooling, verb: str, shapes: Any, dtypes: Any) -> str | None:
    """Why the kernels cannot serve this call, or None."""
    (dtype,) = dtypes
    if not is_float(dtype) and dtype.kind not in "iub":
        return f"has no kernel for dtype {dtype}"
    if verb == "forward_with_indices" and not isinstance(op.reduction, Min):
        return "has indices for max and min alone"
    return None


def forward(op: Pooling, operands: tuple[Array, ...]) -> Array:
    """The value of every window."""
    (x,) = operands
    if isinstance(op.reduction, Min):
        return without_cells(op, x.shape, _turned(pooling.forward(_as_max(op), (_turned(x),))))
    if is_float(x.dtype):
        return pooling.forward(_as_mean(op), operands)
    if not x.dtype.isnative:
        x = x.astype(x.dtype.newbyteorder("="))
    values = mode.values if isinstance(op.reduction, Mode) else rounded.values
    return values(op, x).reshape(op.out_shape(x.shape))


def forward_with_indices(op: Pooling, operands: tuple[Array, ...]) -> tuple[Array, Array]:
    """A min's value, and its first winner's flat position in the pooled axes, or −1."""
    (x,) = operands
    value, indices = pooling.forward_with_indices(_as_max(op), (_turned(x),))
    return without_cells(op, x.shape, _turned(value)), indices


def jvp(op: Pooling, operands: tuple[Array, ...], tangents: tuple[Array, ...]) -> Array:
    """The directional derivative; two changes of sign leave it that of the max."""
    if isinstance(op.reduction, Min):
        return pooling.jvp(_as_max(op), (_turned(operands[0]),), tangents)
    return pooling.jvp(_as_mean(op), operands, tangents)


def vjp(op: Pooling, operands: tuple[Array, ...], grad: Array) -> tuple[Array, ...]:
    """The gradient of every cell."""
    if isinstance(op.reduction, Min):
        return pooling.vjp(_as_max(op), (_turned(operands[0]),), grad)
    return pooling.vjp(_as_mean(op), operands, grad)


def without_cells(op: Pooling, shape: tuple[int, ...], value: Arrays) -> Arrays:
    """The value with zeros, in place, where a window holds padding alone."""
    if not value.size:  # type: ignore[attr-defined]
        return value  # the axes of an empty batch may have any length
    for axis, region in enumerate(op.regions, len(shape) - op.rank):
        whole = region.region if isinstance(region, Part) else region
        if not isinstance(whole, Sliding) or whole.padding in ((0, 0), "same"):
            continue
        _, members, *_ = region.cells(shape[axis])
        if not members.all():
            value[(slice(None),) * axis + (np.flatnonzero(members == 0),)] = 0  # type: ignore[index]
    return value


def _as_max(op: Pooling) -> Pool:
    assert isinstance(op.reduction, Min)
    return Pool(op.regions, Max(op.reduction.ties), op.keepdims)


def _as_mean(op: Pooling) -> Pool:
    assert isinstance(op.reduction, RoundedMean)
    return Pool(op.regions, Mean(op.reduction.count_include_pad), op.keepdims)


def _turned(x: Array) -> Array:
    """The same numbers in the other order."""
    turned: Array = -x if is_float(x.dtype) else ~x
    return turned
