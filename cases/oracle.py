"""Max pooling over whole arrays at once: the specification's folds, in its order, vectorised.

The specification walks cell by cell, too slowly for long sweeps and real sizes. This walks its
windows slot by slot instead: slot j holds the j-th cell of every window. Tests show that it gives
the specification's bits; then it stands in for it.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from lunette.ops.pooling import Pooling
from lunette.regions import Region
from lunette.spec.scalars import lift

__all__ = ["forward_with_indices", "jvp", "vjp"]

Array = np.ndarray[Any, Any]


def _slots(op: Pooling, pooled: tuple[int, ...]) -> Array:
    """(slots, windows): the flat position of each window's j-th cell in row-major order, or −1."""
    return _table(op.regions, pooled)


@lru_cache(maxsize=16)
def _table(regions: tuple[Region, ...], pooled: tuple[int, ...]) -> Array:
    table = np.zeros((1, 1), np.int64)
    for region, n in zip(regions, pooled, strict=True):
        windows = [region.window(n, i) for i in range(region.out_length(n))]
        longest = max((w.real for w in windows), default=0)
        axis = np.full((longest, len(windows)), -1, np.int64)
        for i, w in enumerate(windows):
            axis[: w.real, i] = w.positions
        joined = np.where(
            (table[:, None, :, None] < 0) | (axis[None, :, None, :] < 0),
            -1,
            table[:, None, :, None] * n + axis[None, :, None, :],
        )
        table = joined.reshape(table.shape[0] * longest, table.shape[1] * len(windows))
    return table


def _flat(op: Pooling, x: Array) -> tuple[Array, tuple[int, ...], tuple[int, ...]]:
    """The array as (batch, cells) in the numbers to compute with, its batch and its pooled shape."""
    batch, pooled = x.shape[: x.ndim - op.rank], x.shape[x.ndim - op.rank :]
    cells = int(np.prod(pooled, dtype=np.int64))
    return lift(np.ascontiguousarray(x)).reshape(-1, cells), batch, pooled


def _nan(values: Array) -> Array:
    return values != values  # noqa: PLR0124  (integers have no isnan)


def _winners(slots: Array, values: Array) -> Array:
    """(batch, windows): the slot of the first NaN, else of the first of the largest; −1: no cell."""
    count = values.shape[0]
    best_slot = np.full((count, slots.shape[1]), -1, np.int64)
    best = np.zeros((count, slots.shape[1]), values.dtype)
    for j, cells in enumerate(slots):
        v = values[:, np.maximum(cells, 0)]
        with np.errstate(invalid="ignore"):
            better = ((v > best) | _nan(v)) & ~_nan(best)
        take = (cells >= 0) & ((best_slot < 0) | better)
        best = np.where(take, v, best)
        best_slot = np.where(take, j, best_slot)
    return best_slot


def _at(slots: Array, winners: Array) -> Array:
    """The flat position of each window's winner."""
    return np.where(winners < 0, -1, slots[np.maximum(winners, 0), np.arange(slots.shape[1])])


def _shape(op: Pooling, x: Array) -> tuple[int, ...]:
    return op.out_shape(x.shape)


def forward_with_indices(op: Pooling, x: Array) -> tuple[Array, Array]:
    """The largest cell of every window, and its flat position; 0 and −1 where there is none."""
    values, _, pooled = _flat(op, x)
    slots = _slots(op, pooled)
    if not len(slots):
        return np.zeros(_shape(op, x), x.dtype), np.full(_shape(op, x), -1, np.int64)
    indices = _at(slots, _winners(slots, values))
    # Straight from the input: a maximum is one of its elements and keeps every bit.
    cells = np.ascontiguousarray(x).reshape(values.shape)
    out = np.take_along_axis(cells, np.maximum(indices, 0), axis=1)
    out[indices < 0] = 0
    return out.reshape(_shape(op, x)), indices.reshape(_shape(op, x))


def _tied(slots: Array, values: Array, ties: str) -> tuple[list[Array], Array]:
    """For each slot, which windows share their derivative with it; and the divisor of the shares."""
    winners = _winners(slots, values)
    if ties == "first":
        return [winners == j for j in range(len(slots))], np.ones(winners.shape, values.dtype)
    best = np.take_along_axis(values, np.maximum(_at(slots, winners), 0), axis=1)
    shares = []
    for cells in slots:
        v = values[:, np.maximum(cells, 0)]
        shares.append((cells >= 0) & (winners >= 0) & ((v == best) | (_nan(v) & _nan(best))))
    count = np.maximum(sum(s.astype(np.int64) for s in shares), 1)
    return shares, (count if ties == "split" else np.ones_like(count)).astype(values.dtype)


def jvp(op: Pooling, x: Array, dx: Array) -> Array:
    """The directional derivative of every window's value."""
    values, _, pooled = _flat(op, x)
    directions = _flat(op, dx)[0]
    slots = _slots(op, pooled)
    if not len(slots):
        return np.zeros(_shape(op, x), x.dtype)
    shares, divisor = _tied(slots, values, op.reduction.ties)
    total = np.zeros(divisor.shape, values.dtype)
    with np.errstate(all="ignore"):
        for cells, share in zip(slots, shares, strict=True):
            total = np.where(share, total + directions[:, np.maximum(cells, 0)], total)
        return (total / divisor).astype(x.dtype).reshape(_shape(op, x))


def vjp(op: Pooling, x: Array, grad: Array) -> Array:
    """The gradient of every cell, added up in the row-major order of the windows."""
    values, _, pooled = _flat(op, x)
    slots = _slots(op, pooled)
    out = np.zeros(values.shape, values.dtype)
    if len(slots):
        gradients = lift(np.ascontiguousarray(grad)).reshape(len(values), -1)
        shares, divisor = _tied(slots, values, op.reduction.ties)
        with np.errstate(all="ignore"):
            terms = gradients / divisor
            # Window by window: `add.at` adds in the order of its indices.
            takes = np.stack(shares, axis=-1)
            image, window, slot = np.nonzero(takes)
            np.add.at(out, (image, slots[slot, window]), terms[image, window])
    with np.errstate(over="ignore"):
        return out.astype(x.dtype).reshape(x.shape)
