"""The mean of integers in their own type: exact sums, rounded once, half to even."""

from __future__ import annotations

import sys
from math import prod
from typing import Any

import numpy as np

from lunette.kernels import threads
from lunette.kernels.cpu.integers.pairs import paired
from lunette.kernels.cpu.jit.cache import Kernels
from lunette.ops.pooling import Pooling
from lunette.reductions import RoundedMean

__all__ = ["in_lanes", "values"]

Array = np.ndarray[Any, Any]

kernels = Kernels("integers.swar_mean")

LONG = 16
"""Cells of a window from which sums run along the axis."""


def values(op: Pooling, x: Array) -> Array:
    """The rounded mean of each window, with every pooled axis kept."""
    assert isinstance(op.reduction, RoundedMean)
    pooled = x.shape[x.ndim - op.rank :]
    if in_lanes(x.dtype, op.regions, pooled):
        return _by_pairs(op, x, paired(op.regions, pooled))
    return _exact(op, x, op.reduction.count_include_pad)


def in_lanes(dtype: np.dtype[Any], regions: tuple[Any, ...], pooled: tuple[int, ...]) -> bool:
    """Whether several numbers of a machine word are done at once, without further memory."""
    small = dtype.kind in "iu" and dtype.itemsize <= 2 and dtype.isnative
    return small and sys.byteorder == "little" and paired(regions, pooled) is not None


def _by_pairs(op: Pooling, x: Array, halved: Any) -> Array:
    x = np.ascontiguousarray(x)
    out = np.empty(_kept(op, x), x.dtype)
    (nz, ny, nx), (fz, fy) = halved
    flip = 1 << (8 * x.itemsize - 1) if x.dtype.kind == "i" else 0
    table = np.array([nz, ny, nx, fz, fy, flip], np.int64)
    kernel = kernels.halving_kernel(x.itemsize)
    at_x, at_out, at = (a.__array_interface__["data"][0] for a in (x, out, table))

    def task(first: int, last: int) -> None:
        kernel(at_x, at_out, at, 0, 0, 0, first, last)

    threads.run(task, out.size // -(-nx // 2), held=(x, out, table))
    return out


def _kept(op: Pooling, x: Array) -> tuple[int, ...]:
    lead = x.ndim - op.rank
    lengths = (r.out_length(n) for r, n in zip(op.regions, x.shape[lead:], strict=True))
    return (*x.shape[:lead], *lengths)


def _exact(op: Pooling, x: Array, count_padding: bool) -> Array:
    """Sums are exact whatever their order, so they are taken axis by axis.

    Numbers of 64 bits are summed as halves: `x = high·2³² + low`.
    """
    lead = x.ndim - op.rank
    tables = [r.cells(n) for r, n in zip(op.regions, x.shape[lead:], strict=True)]
    counts = [counted if count_padding else members for _, members, _, counted in tables]
    # Products below are at most 2³² of it.
    exact = prod(int(counted.max(initial=1)) for counted in counts) > 1 << 30
    count = np.ones((), object if exact else np.int64)
    for axis, counted in enumerate(counts, lead):
        along = counted.reshape((-1,) + (1,) * (x.ndim - axis - 1))
        count = count * along.astype(count.dtype)
    count = np.maximum(count, 1)  # a window without a cell has the sum 0
    if x.dtype.itemsize < 8:
        total = _sum(x.astype(np.int64), tables)
        quotient, rest = total // count, total % count
    else:
        wide = np.int64 if x.dtype.kind == "i" else np.uint64
        high = _sum((x >> np.asarray(32, x.dtype)).astype(np.int64), tables)
        low = _sum((x & np.asarray(0xFFFFFFFF, x.dtype)).astype(np.int64), tables)
        whole, over = high // count, high % count
        rest = (over << 32) + low
        part, rest = rest // count, rest % count
        quotient = (whole.astype(wide) << wide(32)) + part.astype(wide)
    odd = (quotient & 1).astype(bool)
    up = ((2 * rest > count) | ((2 * rest == count) & odd)).astype(bool)
    result: Array = (quotient + up.astype(quotient.dtype)).astype(x.dtype)
    return result


def _sum(x: Array, tables: list[tuple[Array, Array, Array, Array]]) -> Array:
    """The sum over each window, axis by axis."""
    lead = x.ndim - len(tables)
    for axis, (starts, reals, steps, _) in enumerate(tables, lead):
        m, n = len(starts), x.shape[axis]
        if m == n and (reals == 1).all() and (starts == np.arange(n)).all():
            continue
        if reals.max(initial=0) > LONG and (steps == steps[0]).all():
            x = _running(x, axis, starts, reals, int(steps[0]))
            continue
        shape = (-1,) + (1,) * (x.ndim - axis - 1)
        total = np.zeros((*x.shape[:axis], m, *x.shape[axis + 1 :]), np.int64)
        for j in range(int(reals.max(initial=0))):
            inside = j < reals
            cells = np.take(x, np.where(inside, starts + j * steps, 0), axis=axis)
            total += cells if inside.all() else cells * inside.reshape(shape)
        x = total
    return x


def _running(x: Array, axis: int, starts: Array, reals: Array, step: int) -> Array:
    """Each window's sum as the difference of two sums from the start of the axis; past 2⁶³ both turn over alike."""
    n = x.shape[axis]
    rows = -(-n // step) + 1
    sums = np.zeros((*x.shape[:axis], rows * step, *x.shape[axis + 1 :]), np.int64)
    sums[(slice(None),) * axis + (slice(step, step + n),)] = x
    apart = sums.reshape(*x.shape[:axis], rows, step, *x.shape[axis + 1 :])
    np.cumsum(apart, axis=axis, out=apart)  # at each position the sum of those before it
    total: Array = np.take(sums, starts + reals * step, axis=axis)
    total -= np.take(sums, starts, axis=axis)
    return total
