"""A max that keeps its winners, one byte each, so that derivatives need not find them again.

A winner's *offset* is its tap's place in the window's box of taps, row-major over the pooled axes;
taps on padding count. A sliding window's box is its kernel; where windows differ in length, the box is
the longest and taps count from each window's own start. 255 stands for a window without a cell, so a box
has at most 255 taps. Arrays are NumPy's; torch's autograd uses the same functions on its own.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from lunette import dispatch
from lunette.memory import check_room
from lunette.ops.base import is_float
from lunette.ops.pooling import Pooling
from lunette.reductions import Max

__all__ = [
    "NOWHERE",
    "forward_with_offsets",
    "indices_of",
    "jvp_from_offsets",
    "offsets_of",
    "vjp_from_offsets",
]

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]

NOWHERE = 255
"""The offset of a window without a cell."""


def forward_with_offsets(op: Pooling, x: Array) -> tuple[Array, Array]:
    """The value of every window, and the offset of its first winner (uint8)."""
    x = np.asarray(x)
    _check_box(op, x.shape)
    found = _kernels().forward_with_offsets(op, x) if _served(x) else None
    if found is not None:
        return found  # type: ignore[no-any-return]
    values, indices = dispatch.forward_with_indices(op, x)
    return values, offsets_of(op, x.shape, indices)


def vjp_from_offsets(op: Pooling, offsets: Array, grad: Array, shape: Shape) -> Array:
    """The gradient of every cell of an input of this shape: what `op.vjp` gives where they were taken."""
    grad, shape = np.asarray(grad), tuple(shape)
    _check(op, offsets, shape)
    op.check_gradient((shape,), (grad.dtype,), grad.shape, grad.dtype)
    found = _kernels().vjp_from_offsets(op, shape, offsets, grad) if _served(grad) else None
    if found is not None:
        return found  # type: ignore[no-any-return]
    items, outputs = prod(shape[: len(shape) - op.rank]), prod(_lengths(op, shape[-op.rank :]))
    indices = indices_of(op, shape, offsets).reshape(items, outputs)
    wide = np.float32 if grad.dtype.itemsize == 2 else grad.dtype
    sums = np.zeros((items, prod(shape[len(shape) - op.rank :]) + 1), wide)
    item = np.arange(items)[:, None]
    # In row-major order of outputs, as in the specification; windows without a cell write past the end.
    np.add.at(sums, (item, indices), grad.reshape(items, outputs).astype(wide))
    return sums[:, :-1].astype(grad.dtype).reshape(shape)


def jvp_from_offsets(op: Pooling, offsets: Array, dx: Array) -> Array:
    """The directional derivative along `dx`: what `op.jvp` gives where the offsets were taken."""
    dx = np.asarray(dx)
    _check(op, offsets, dx.shape)
    op.check_tangents((dx.shape,), (dx.dtype,), (dx.shape,), (dx.dtype,))
    taken = _kernels().jvp_from_offsets(op, offsets, dx) if _served(dx) else None
    if taken is not None:
        return taken  # type: ignore[no-any-return]
    batch, pooled = dx.shape[: dx.ndim - op.rank], dx.shape[dx.ndim - op.rank :]
    indices = indices_of(op, dx.shape, offsets).reshape(*batch, prod(_lengths(op, pooled)))
    flat = dx.reshape(*batch, prod(pooled))
    found: Array = np.take_along_axis(flat, np.maximum(indices, 0), axis=-1)
    # A tangent is a sum from +0: it is never −0.
    found = np.where(indices >= 0, found + found.dtype.type(0), found.dtype.type(0))
    return np.asarray(found, dx.dtype).reshape(offsets.shape)


def offsets_of(op: Pooling, shape: Shape, indices: Array) -> Array:
    """Flat positions in the pooled axes, −1 for none, as offsets."""
    pooled = shape[len(shape) - op.rank :]
    taps = np.zeros((1,) * op.rank, np.int64)
    kept = np.reshape(indices, (*shape[: len(shape) - op.rank], *_lengths(op, pooled)))
    positions = np.unravel_index(np.maximum(kept, 0), pooled)
    for axis, (starts, step, box) in enumerate(_boxes(op, pooled)):
        along = [1] * op.rank
        along[axis] = -1
        taps = taps * box + (positions[axis] - starts.reshape(along)) // step
    return np.where(kept < 0, NOWHERE, taps).astype(np.uint8).reshape(indices.shape)


def indices_of(op: Pooling, shape: Shape, offsets: Array) -> Array:
    """Offsets as flat positions in the pooled axes (int64), −1 for none."""
    pooled = shape[len(shape) - op.rank :]
    axes = _boxes(op, pooled)
    kept = np.reshape(offsets, (*shape[: len(shape) - op.rank], *_lengths(op, pooled)))
    exact = any(starts.dtype == object for starts, *_ in axes)  # numbers past int64
    taps, outside = kept.astype(object if exact else np.int64), kept != NOWHERE
    empty, flat, after = ~outside, np.zeros_like(taps), 1
    wrong = outside & (taps >= prod(box for *_, box in axes))
    for axis in range(op.rank - 1, -1, -1):
        starts, step, box = axes[axis]
        along = [1] * op.rank
        along[axis] = -1
        positions = starts.reshape(along) + taps % box * step
        wrong |= outside & ((positions < 0) | (positions >= pooled[axis]))
        flat, taps, after = flat + positions * after, taps // box, after * pooled[axis]
    if wrong.any():
        raise ValueError(
            f"offsets: {int(kept[wrong][0])} at {tuple(map(int, np.argwhere(wrong)[0]))} is no cell of "
            f"its window; expected offsets that {op!r} gave for an input of shape {shape}"
        )
    return np.where(empty, -1, flat).astype(np.int64).reshape(offsets.shape)


# -- boxes --


@lru_cache(maxsize=1024)
def _check_box(op: Pooling, shape: Shape) -> None:
    """That a byte tells the taps of a window apart, and that results fit in memory."""
    op.check_indices()
    pooled = shape[len(shape) - op.rank :]
    # Indices, and positions on each axis, of all outputs; an empty batch has boxes too.
    outputs, lengths = prod(op.out_shape(shape)), _lengths(op, pooled)
    needed = 8 * (4 + 2 * op.rank) * outputs + 24 * sum(lengths)
    check_room(f"{op!r}: the offsets of {outputs} outputs of x of shape {shape}", needed)
    taps = prod(box for *_, box in _boxes(op, pooled))
    if taps > NOWHERE:
        raise ValueError(
            f"{op!r}: windows of {taps} taps; expected at most {NOWHERE}, so that an offset fits a byte; "
            "use indices"
        )


def _boxes(op: Pooling, pooled: Shape) -> list[tuple[Array, int, int]]:
    """Of each pooled axis: where tap 0 of each output is, what is between taps, and taps."""
    return [region.boxes(n) for region, n in zip(op.regions, pooled, strict=True)]


def _lengths(op: Pooling, pooled: Shape) -> Shape:
    return tuple(region.out_length(n) for region, n in zip(op.regions, pooled, strict=True))


def _check(op: Pooling, offsets: Array, shape: Shape) -> None:
    """That a max with one winner per window can have given these offsets."""
    _check_box(op, shape)
    if op.reduction != Max("first"):
        raise ValueError(f"{op!r}: one winner per window means ties='first'")
    if not isinstance(offsets, np.ndarray) or offsets.dtype != np.uint8:
        raise TypeError(f"offsets={type(offsets).__name__}: expected an array of uint8")
    if offsets.shape != op.out_shape(shape):
        raise ValueError(
            f"offsets have shape {offsets.shape}; expected the output's {op.out_shape(shape)}"
        )


# -- kernels --


def _served(x: Array) -> bool:
    return is_float(x.dtype) and x.dtype.isnative and x.size > 0


def _kernels() -> Any:
    from lunette.kernels.cpu import pooling

    return pooling
