"""Smooth max of windows so large, and so many to a cell, that even pairs one by one would take too long: whole axes at a time.

Pairs are those of `pairs`, in float64: pivots, sums about them and, for a derivative, sums of tangents.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from lunette.kernels.cpu.micro.whole_axes import Folded, Windows, fold, readers
from lunette.ops.pooling import Pooling
from lunette.reductions import SmoothMax

__all__ = ["gradients", "tangents", "values"]

Array = np.ndarray[Any, Any]


def values(op: Pooling, x: Array, y: Array) -> None:
    """The value of every window, written to `y`."""
    beta = _beta(op)
    for item in np.ndindex(x.shape[: x.ndim - op.rank]):
        (pivot, total), _, counted = _windows(op, x[item], None)
        value = pivot + np.log(total) / beta
        value = np.where(np.isnan(total), np.nan, value)
        y[item] = np.where(counted > 0, value, 0)


def tangents(op: Pooling, x: Array, dx: Array, y: Array) -> None:
    """The directional derivative of every window's value, written to `y`."""
    for item in np.ndindex(x.shape[: x.ndim - op.rank]):
        (pivot, total, tangent), cells, _ = _windows(op, x[item], dx[item])
        # Shares about an infinite pivot are not numbers.
        moved = tangent / total + (pivot - pivot)
        y[item] = np.where(cells > 0, moved, 0)


def gradients(op: Pooling, x: Array, gy: Array, gx: Array) -> None:
    """The gradient of every cell, written to `gx`: the windows that read it, joined about the least extreme pivot."""
    beta, rank = _beta(op), op.rank
    for item in np.ndindex(x.shape[: x.ndim - rank]):
        (pivot, total), cells, _ = _windows(op, x[item], None)
        none = cells == 0
        weight = np.where(none, 0, gy[item] / np.where(none, 1, total))
        pairs: Folded = (np.where(none, np.copysign(np.inf, beta), pivot), weight)
        for axis in range(rank - 1, -1, -1):
            reading = readers(op.regions[axis], x.shape[x.ndim - rank + axis])
            assert reading is not None  # or it would not have come here
            pairs = _fold(pairs, axis, reading, -beta)
        below = beta * (x[item].astype(np.float64) - pairs[0])
        value = pairs[1] * np.exp(below)
        gx[item] = np.where(_read(op, x.shape[x.ndim - rank :]), value, 0)


def _beta(op: Pooling) -> float:
    assert isinstance(op.reduction, SmoothMax)
    return op.reduction.beta


def _windows(op: Pooling, x: Array, dx: Array | None) -> tuple[Folded, Array, Array]:
    """The pairs of all windows of one item with the zeros of their padding; how many cells each has, and how many count."""
    beta, cells = _beta(op), x.astype(np.float64)
    nan = np.isnan(cells)
    moves = () if dx is None else (dx.astype(np.float64),)
    pairs: Folded = (np.where(nan, 0, cells), np.where(nan, np.nan, 1.0), *moves)
    members, counted = np.ones((1,) * op.rank), np.ones((1,) * op.rank)
    for axis in range(op.rank - 1, -1, -1):
        n, along = x.shape[axis], [1] * op.rank
        along[axis] = -1
        found = [op.regions[axis].window(n, i) for i in range(op.regions[axis].out_length(n))]
        starts, sizes = np.array([w.start for w in found]), np.array([w.real for w in found])
        step = max((w.step for w in found if w.real > 1), default=1)
        pairs = _fold(pairs, axis, (starts, sizes, step), beta)
        members = members * sizes.reshape(along)
        counted = counted * np.array([float(w.counted) for w in found]).reshape(along)
    if not op.reduction.count_include_pad:  # type: ignore[attr-defined]
        counted = members
    zero, padded = np.zeros(pairs[0].shape), counted > members
    zeros = (zero, counted - members + zero, *(zero for _ in moves))
    merge = _joined(pairs, zeros, beta)
    kept = tuple(np.where(padded, a, b) for a, b in zip(merge, pairs, strict=True))
    return kept, members + zero, counted + zero


def _joined(a: Folded, b: Folded, beta: float) -> Folded:
    """Two pairs as one, about the more extreme pivot: the greater one of a positive beta."""
    pivot = (np.maximum if beta > 0 else np.minimum)(a[0], b[0])
    shares = []
    for side in (a, b):
        # Equal infinities are no distance apart.
        apart = np.where(side[0] == pivot, 0, np.abs(side[0] - pivot))
        shares.append(np.exp(-abs(beta) * apart))
    sums = (p * shares[0] + q * shares[1] for p, q in zip(a[1:], b[1:], strict=True))
    return pivot, *sums


def _fold(pairs: Folded, axis: int, of: Windows, beta: float) -> Folded:
    """Windows along one axis; one of none is a sum of 0."""
    nothing = (-np.copysign(np.inf, beta), *(0 for _ in pairs[1:]))
    return fold(pairs, axis, of, partial(_joined, beta=beta), nothing)


def _read(op: Pooling, pooled: tuple[int, ...]) -> Array:
    """Which positions some window reads."""
    read = np.ones((1,) * op.rank, bool)
    for axis, (region, n) in enumerate(zip(op.regions, pooled, strict=True)):
        along = [1] * op.rank
        along[axis] = -1
        reading = readers(region, n)
        assert reading is not None
        read = read & (reading[1] > 0).reshape(along)
    return read
