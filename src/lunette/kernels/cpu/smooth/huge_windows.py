"""Smooth max of windows so large, and so many to a cell, that even pairs one by one would take too long: whole axes at a time, in NumPy.

Pairs are those of `pairs`, in float64. Runs of 1, 2, 4, … neighbours are joined for all positions of an axis at once, and after each doubling
the windows whose length has that digit take their run, the last run of a window first. So a cell costs as many exponentials as a length has digits, and
the bits depend on the window alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from lunette.ops.pooling import Pooling
from lunette.reductions import SmoothMax
from lunette.regions import Region

__all__ = ["gradients", "tangents", "values"]

Array = np.ndarray[Any, Any]


class _Pairs(NamedTuple):
    """Pivots, sums about them, and sums of tangents where there are any."""

    pivot: Array
    total: Array
    tangent: Array | None

    def at(self, where: Any) -> _Pairs:
        """Some of them."""
        tangent = None if self.tangent is None else self.tangent[where]
        return _Pairs(self.pivot[where], self.total[where], tangent)

    def put(self, where: Any, other: _Pairs) -> None:
        """Others in the place of some."""
        self.pivot[where], self.total[where] = other.pivot, other.total
        if self.tangent is not None:
            self.tangent[where] = other.tangent

    def each(self, change: Callable[[Array], Array]) -> _Pairs:
        """All arrays changed alike."""
        tangent = None if self.tangent is None else change(self.tangent)
        return _Pairs(change(self.pivot), change(self.total), tangent)


def values(op: Pooling, x: Array, y: Array) -> None:
    """The value of every window, written to `y`."""
    beta = _beta(op)
    for item in np.ndindex(x.shape[: x.ndim - op.rank]):
        windows, _, counted = _windows(op, x[item], None)
        value = windows.pivot + np.log(windows.total) / beta
        value = np.where(np.isnan(windows.total), np.nan, value)
        y[item] = np.where(counted > 0, value, 0)


def tangents(op: Pooling, x: Array, dx: Array, y: Array) -> None:
    """The directional derivative of every window's value, written to `y`."""
    for item in np.ndindex(x.shape[: x.ndim - op.rank]):
        windows, cells, _ = _windows(op, x[item], dx[item])
        assert windows.tangent is not None
        # Shares about an infinite pivot are not numbers.
        moved = windows.tangent / windows.total + (windows.pivot - windows.pivot)
        y[item] = np.where(cells > 0, moved, 0)


def gradients(op: Pooling, x: Array, gy: Array, gx: Array) -> None:
    """The gradient of every cell, written to `gx`: the windows that read it, joined about the least extreme pivot."""
    beta, rank = _beta(op), op.rank
    for item in np.ndindex(x.shape[: x.ndim - rank]):
        windows, cells, _ = _windows(op, x[item], None)
        none = cells == 0
        weight = np.where(none, 0, gy[item] / np.where(none, 1, windows.total))
        pairs = _Pairs(np.where(none, np.copysign(np.inf, beta), windows.pivot), weight, None)
        for axis in range(rank - 1, -1, -1):
            readers = _readers(op.regions[axis], x.shape[x.ndim - rank + axis])
            pairs = _fold(pairs, axis, *readers, -beta)
        below = beta * (x[item].astype(np.float64) - pairs.pivot)
        value = pairs.total * np.exp(below)
        gx[item] = np.where(_read(op, x.shape[x.ndim - rank :]), value, 0)


def _beta(op: Pooling) -> float:
    assert isinstance(op.reduction, SmoothMax)
    return op.reduction.beta


def _windows(op: Pooling, x: Array, dx: Array | None) -> tuple[_Pairs, Array, Array]:
    """The pairs of all windows of one item with the zeros of their padding; how many cells each has, and how many count."""
    beta, cells = _beta(op), x.astype(np.float64)
    nan = np.isnan(cells)
    moves = None if dx is None else dx.astype(np.float64)
    pairs = _Pairs(np.where(nan, 0, cells), np.where(nan, np.nan, 1.0), moves)
    members, counted = np.ones((1,) * op.rank), np.ones((1,) * op.rank)
    for axis in range(op.rank - 1, -1, -1):
        n, along = x.shape[axis], [1] * op.rank
        along[axis] = -1
        found = [op.regions[axis].window(n, i) for i in range(op.regions[axis].out_length(n))]
        starts, sizes = np.array([w.start for w in found]), np.array([w.real for w in found])
        step = max((w.step for w in found if w.real > 1), default=1)
        pairs = _fold(pairs, axis, starts, sizes, step, beta)
        members = members * sizes.reshape(along)
        counted = counted * np.array([float(w.counted) for w in found]).reshape(along)
    if not op.reduction.count_include_pad:  # type: ignore[attr-defined]
        counted = members
    zeros = _Pairs(np.zeros_like(pairs.pivot), counted - members + np.zeros_like(pairs.pivot), None)
    if pairs.tangent is not None:
        zeros = zeros._replace(tangent=np.zeros_like(pairs.pivot))
    padded = counted > members
    joined = _joined(pairs, zeros, beta)
    kept = [
        None if a is None or b is None else np.where(padded, a, b)
        for a, b in zip(joined, pairs, strict=True)
    ]
    zero = np.zeros(pairs.pivot.shape)
    return _Pairs(*kept), members + zero, counted + zero  # type: ignore[arg-type]


def _joined(a: _Pairs, b: _Pairs, beta: float) -> _Pairs:
    """Two pairs as one, about the more extreme pivot: the greater one of a positive beta."""
    pivot = (np.maximum if beta > 0 else np.minimum)(a.pivot, b.pivot)
    shares = []
    for side in (a, b):
        # Equal infinities are no distance apart.
        apart = np.where(side.pivot == pivot, 0, np.abs(side.pivot - pivot))
        shares.append(np.exp(-abs(beta) * apart))
    total = a.total * shares[0] + b.total * shares[1]
    tangent = None
    if a.tangent is not None and b.tangent is not None:
        tangent = a.tangent * shares[0] + b.tangent * shares[1]
    return _Pairs(pivot, total, tangent)


def _fold(
    pairs: _Pairs, axis: int, starts: Array, members: Array, step: int, beta: float
) -> _Pairs:
    """Windows of `members` cells, `step` apart, from each start on, along one axis. One of none is a sum of 0."""
    runs = pairs.each(lambda a: np.ascontiguousarray(np.moveaxis(a, axis, 0)))
    shape = (len(starts), *runs.pivot.shape[1:])
    nothing = np.zeros(shape) if pairs.tangent is not None else None
    out = _Pairs(np.full(shape, -np.copysign(np.inf, beta)), np.zeros(shape), nothing)
    level, longest = 0, int(members.max(initial=0))
    while True:
        (taking,) = np.nonzero(members >> level & 1)
        before = members[taking] >> (level + 1) << (level + 1)
        run = runs.at(starts[taking] + step * before)
        first = members[taking] & ((1 << level) - 1) == 0  # nothing is taken yet
        both = _joined(run, out.at(taking), beta)
        both.put(first, run.at(first))
        out.put(taking, both)
        level += 1
        if longest >> level == 0:
            break
        far = step << (level - 1)
        runs = _joined(runs.at(slice(None, -far)), runs.at(slice(far, None)), beta)
    return out.each(lambda a: np.moveaxis(a, 0, axis))


def _readers(region: Region, n: int) -> tuple[Array, Array, int]:
    """The outputs that read each position: the first, how many, and what is between them."""
    found = [region.readers(n, p, p + 1) for p in range(n)]
    sizes = np.array([len(r) for r in found], np.int64)
    starts = np.array([r[0] if len(r) else 0 for r in found], np.int64)
    step = max((r[1] - r[0] for r in found if len(r) > 1), default=1)
    return starts, sizes, step


def _read(op: Pooling, pooled: tuple[int, ...]) -> Array:
    """Which positions some window reads."""
    read = np.ones((1,) * op.rank, bool)
    for axis, (region, n) in enumerate(zip(op.regions, pooled, strict=True)):
        along = [1] * op.rank
        along[axis] = -1
        sizes = np.array([len(region.readers(n, p, p + 1)) for p in range(n)])
        read = read & (sizes > 0).reshape(along)
    return read
