"""Max of windows so long, and so many to a cell, that cell by cell would take too long: where some are empty, or where ties count.

Whole axes at a time, by doubling. Cells are compared as integers, among which NaN is the greatest and the two zeros are one. Values,
positions, and derivatives with ties to the first are those of the specification to the bit. Where ties count, their sums are in float64 and
by doubling: those of three winners and more may be rounded otherwise.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lunette.kernels.cpu.micro.whole_axes import Folded, fold, readers, windows
from lunette.ops.base import is_float
from lunette.ops.pooling import Pooling
from lunette.reductions import Max

__all__ = ["gradients", "indices", "tangents", "values"]

Array = np.ndarray[Any, Any]

LEAST, MOST = np.iinfo(np.int64).min, np.iinfo(np.int64).max


def values(op: Pooling, x: Array, y: Array) -> None:
    """The value of every window, written to `y`."""
    for item in np.ndindex(x.shape[: x.ndim - op.rank]):
        y[item] = _taken(x[item], _winners(op, x[item]))


def indices(op: Pooling, x: Array, y: Array, z: Array) -> None:
    """The value of every window, and its first winner's flat position or −1, written to `y` and `z`."""
    for item in np.ndindex(x.shape[: x.ndim - op.rank]):
        z[item] = _winners(op, x[item])
        y[item] = _taken(x[item], z[item])


def tangents(op: Pooling, x: Array, dx: Array, y: Array) -> None:
    """The directional derivative of every window's value, written to `y`."""
    for item in np.ndindex(x.shape[: x.ndim - op.rank]):
        if _ties(op) == "first":
            y[item] = _taken(dx[item], _winners(op, x[item])) + y.dtype.type(0)
            continue
        _, count, total = _tied(op, x[item], dx[item].astype(np.float64))
        y[item] = _shared(op, total, count) + 0.0


def gradients(op: Pooling, x: Array, gy: Array, gx: Array) -> None:
    """The gradient of every cell, written to `gx`."""
    for item in np.ndindex(x.shape[: x.ndim - op.rank]):
        if _ties(op) == "first":
            winners = _winners(op, x[item]).reshape(-1)
            won = winners >= 0
            sums = np.zeros(x[item].size, np.promote_types(x.dtype, np.float32))
            # One after the other, in the order of outputs.
            np.add.at(sums, winners[won], gy[item].reshape(-1)[won].astype(sums.dtype))
            gx[item] = sums.reshape(x[item].shape)
            continue
        best, count, _ = _tied(op, x[item], np.zeros(x[item].shape))
        sent = _shared(op, gy[item].astype(np.float64), count)
        # No window that reads a cell has a smaller maximum; a cell wins where it is that small.
        things: Folded = np.where(count > 0, best, MOST), np.where(count > 0, sent, 0)
        for axis in range(op.rank - 1, -1, -1):
            reading = readers(op.regions[axis], x.shape[x.ndim - op.rank + axis])
            assert reading is not None  # or it would not have come here
            things = fold(things, axis, reading, _least, (MOST, 0))
        gx[item] = np.where(things[0] == _ordered(x[item]), things[1], 0) + 0.0


def _ties(op: Pooling) -> str:
    assert isinstance(op.reduction, Max)
    return op.reduction.ties


def _shared(op: Pooling, total: Array, count: Array) -> Array:
    return total / np.maximum(count, 1) if _ties(op) == "split" else total


def _taken(x: Array, places: Array) -> Array:
    """The cells at flat positions; 0 where there is none."""
    return np.where(places < 0, x.dtype.type(0), x.reshape(-1)[np.maximum(places, 0)])


def _ordered(x: Array) -> Array:
    """Integers that compare as cells do, none of which is the least; a NaN is the greatest."""
    if x.dtype.kind == "u" and x.dtype.itemsize == 8:
        found = (x ^ np.uint64(1 << 63)).view(np.int64)
        return _after_the_least(found)
    if not is_float(x.dtype):
        return _after_the_least(x.astype(np.int64))
    real = x.astype(np.float64) + 0.0
    bits = np.where(np.isnan(real), np.inf, real).view(np.int64)
    return np.where(np.isnan(real), MOST, np.where(bits < 0, ~(bits & MOST), bits))


def _after_the_least(x: Array) -> Array:
    """Ranks, where the least integer is among them: windows of none have that."""
    return x if x.min() > LEAST else np.unique(x, return_inverse=True)[1].reshape(x.shape)


def _winners(op: Pooling, x: Array) -> Array:
    """The flat position of the first winner of every window of one item; −1 where there is none."""
    things: Folded = _ordered(x), np.arange(x.size).reshape(x.shape)
    for axis in range(op.rank - 1, -1, -1):
        things = fold(things, axis, windows(op.regions[axis], x.shape[axis]), _first, (LEAST, MOST))
    return np.where(things[1] == MOST, -1, things[1])


def _tied(op: Pooling, x: Array, dx: Array) -> Folded:
    """The maximum of every window of one item, how many cells have it, and the sum of their tangents."""
    things: Folded = _ordered(x), np.ones(x.shape, np.int64), dx
    for axis in range(op.rank - 1, -1, -1):
        things = fold(things, axis, windows(op.regions[axis], x.shape[axis]), _all, (LEAST, 0, 0))
    return things


def _first(a: Folded, b: Folded) -> Folded:
    """The greater of two, the first where they are equal."""
    later = (b[0] > a[0]) | ((b[0] == a[0]) & (b[1] < a[1]))
    return np.where(later, b[0], a[0]), np.where(later, b[1], a[1])


def _all(a: Folded, b: Folded) -> Folded:
    """The greater of two with its sums, and both sums where they are equal."""
    return _met(a, b, a[0] >= b[0], b[0] >= a[0])


def _least(a: Folded, b: Folded) -> Folded:
    """The smaller of two with its sums, and both sums where they are equal."""
    return _met(a, b, a[0] <= b[0], b[0] <= a[0])


def _met(a: Folded, b: Folded, of_a: Array, of_b: Array) -> Folded:
    sums = (np.where(of_a, p, 0) + np.where(of_b, q, 0) for p, q in zip(a[1:], b[1:], strict=True))
    return np.where(of_a, a[0], b[0]), *sums
