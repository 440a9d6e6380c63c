"""One axis at a time: the passes that every fast kernel is made of.

`load_row` brings a row of the input into scratch memory as numbers to compute with; `along` reduces
windows of such a row; `across` reduces whole rows element by element; `double` replaces every cell
by the fold of it and the cells after it, twice as many each time; `store_row` writes results.

A vector may read past the end of a row in scratch memory, which has slack for that, but never
writes past it. Of the input and the output, nothing past the end is touched.
"""

# Numba types the kernels, not mypy; `v != v` is how a NaN is known.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"
# ruff: noqa: PLR0124

from __future__ import annotations

import math
from functools import cache
from typing import Any, NamedTuple

from numba import types

from lunette.kernels.cpu.jit.intrinsics import alwaysinline, compiled, noinline
from lunette.kernels.cpu.simd.half import DType
from lunette.kernels.cpu.simd.prefetch import prefetch_always, prefetch_for
from lunette.kernels.cpu.simd.vec import vec

__all__ = [
    "Moves",
    "Passes",
    "add",
    "averaged",
    "clipped",
    "inside",
    "least",
    "maximum",
    "moves",
    "passes",
    "takes",
]


class Moves(NamedTuple):
    """Between arrays and scratch memory, for one codec."""

    load_row: Any
    store_row: Any


class Passes(NamedTuple):
    """Within scratch memory, for one operation on one type."""

    along: Any
    along_table: Any
    across: Any
    double: Any
    join: Any


@compiled
def takes(best, v):
    """Whether `v` wins over `best`: larger, or the first NaN."""
    return (v > best) | ((v != v) & (best == best))


@compiled
def maximum(best, v):
    """The larger; `best` of equals, and the first NaN."""
    return v if (v > best) | ((v != v) & (best == best)) else best


@compiled
def add(total, v):
    """The sum."""
    return total + v


def least(work: Any) -> Any:
    """The number of a Numba type that no other is below."""
    return work(-math.inf) if isinstance(work, types.Float) else work(work.minval)


@cache
def moves(dtype_of: DType, watch: bool = False) -> Moves:
    """Fetch and emit for a codec; where it watches, fetch gives non-zero after a NaN."""
    from_x = vec(dtype_of.memory, dtype_of.work, dtype_of.half)
    to_y = vec(dtype_of.kept, dtype_of.work, dtype_of.half)
    here = vec(dtype_of.work, dtype_of.work, "")
    width = here.width
    load, load_n, gather_strided = from_x.load, from_x.load_n, from_x.gather_strided
    store_y, store_y_part = to_y.store, to_y.store_n
    load_s, store_s, isnan_bits = here.load, here.store, from_x.isnan_bits

    @compiled
    def keep(s, to, value):
        store_s(s, to, value)
        return isnan_bits(value, value) if watch else 0

    @compiled
    def load_row(x, at, far, s, to, size, fill):
        """s[to + c] = x[at + far·c] for c < size, then `fill` up to the end of the vector."""
        noinline()
        whole, seen = size - size % width, 0
        if far == 1:
            for c in range(0, whole, width):
                prefetch_always(x, at + c)
                seen |= keep(s, to + c, load(x, at + c))
            if whole < size:
                seen |= keep(s, to + whole, load_n(x, at + whole, 0, size - whole, fill))
        else:
            for c in range(0, size, width):
                left = min(width, size - c)
                seen |= keep(s, to + c, gather_strided(x, at + c * far, far, 0, left, fill))
        return seen

    @compiled
    def store_row(s, at, y, to, size):
        """y[to + c] = s[at + c] for c < size, rounded where y is of a half type."""
        noinline()
        whole = size - size % width
        for c in range(0, whole, width):
            store_y(y, to + c, load_s(s, at + c))
        if whole < size:
            store_y_part(y, to + whole, load_s(s, at + whole), size - whole)

    return Moves(load_row, store_row)


@compiled
def inside(first, last, n, stride, origin, kernel, least):
    """The outputs of first … last whose windows lie in a row of `n`; none if fewer than `least`."""
    begin = min(last, max(first, -(origin // stride)))
    end = max(begin, min(last, (n - kernel - origin) // stride + 1))
    return (begin, end) if end - begin >= least else (last, last)


@cache
def clipped(dtype_of: DType, fill: Any) -> Any:
    """A vector of a row in memory, asked for ahead, with `fill` outside the row."""
    inputs, here = (
        vec(dtype_of.memory, dtype_of.work, dtype_of.half),
        vec(dtype_of.work, dtype_of.work, ""),
    )
    width, load, load_n, broadcast = inputs.width, inputs.load, inputs.load_n, here.broadcast

    @compiled
    def cells(x, at, p, n):
        """Cells p … p + width of a row of `n` that begins at `at`."""
        alwaysinline()
        if (p >= 0) & (p + width <= n):
            prefetch_for(x, at + p)
            return load(x, at + p)
        if p >= n:
            return broadcast(fill)
        low, high = max(0, min(width, -p)), max(0, min(width, n - p))
        return load_n(x, at + p, low, high, fill)

    return cells


@cache
def averaged(dtype_of: DType) -> Any:
    """The last step of a mean: rows added up, or one as it is, over the cells that count."""
    here, to_y = (
        vec(dtype_of.work, dtype_of.work, ""),
        vec(dtype_of.kept, dtype_of.work, dtype_of.half),
    )
    width, load, broadcast = here.width, here.load, here.broadcast
    add_lanes, multiply, divide = here.add, here.multiply, here.divide
    store, store_n, zero = to_y.store, to_y.store_n, dtype_of.work(0)

    @compiled
    def average(s, at, step, count, cells, first, factor, y, to, size):
        """y[to + c] = the sum of s[at + t·step + c], t < count, over factor · cells[first + c]."""
        noinline()
        nothing, lead = broadcast(zero), broadcast(factor)
        for c in range(0, size, width):
            total, p = nothing, at + c
            for _ in range(count):
                total = add_lanes(total, load(s, p))
                p += step
            value = divide(total, multiply(lead, load(cells, first + c)))
            value = add_lanes(value, nothing)  # a sum starts from +0: it is never −0
            if size - c >= width:
                store(y, to + c, value)
            else:
                store_n(y, to + c, value, size - c)

    return average


@cache
def passes(work: Any, operation: str) -> Passes:
    """The passes of `maximum` or `add`."""
    here = vec(work, work, "")
    width, load, gather_strided, store = here.width, here.load, here.gather_strided, here.store
    concat_even, concat_odd, join = here.concat_even, here.concat_odd, getattr(here, operation)
    join_two = add if operation == "add" else maximum
    summing, zero = operation == "add", work(0)
    store_n = here.store_n

    @compiled
    def keep(s, to, value, left):
        """Write a vector, or as many lanes as are left of the row."""
        if left >= width:
            store(s, to, value)
        else:
            store_n(s, to, value, left)

    @compiled
    def along(s, at, to, m, stride, dilation, kernel, onto):
        """s[to + j] = the fold of s[at + stride·j + dilation·t], t < kernel; after s[to + j] if `onto`."""
        noinline()
        for j in range(0, m, width):
            p = at + stride * j
            if stride == 1:
                best = load(s, p)
                if onto:
                    best = join(load(s, to + j), best)
                for _ in range(1, kernel):
                    p += dilation
                    best = join(best, load(s, p))
            elif (stride == 2) & (dilation == 1) & (not onto):
                a, b = load(s, p), load(s, p + width)
                best = concat_even(a, b)
                if kernel > 1:
                    best = join(best, concat_odd(a, b))
                for t in range(2, kernel, 2):
                    p += 2
                    a, b = load(s, p), load(s, p + width)
                    best = join(best, concat_even(a, b))
                    if t + 1 < kernel:
                        best = join(best, concat_odd(a, b))
            else:
                best = gather_strided(s, p, stride, 0, width, zero)
                if onto:
                    best = join(load(s, to + j), best)
                for _ in range(1, kernel):
                    p += dilation
                    best = join(best, gather_strided(s, p, stride, 0, width, zero))
            keep(s, to + j, best, m - j)

    @compiled
    def along_table(s, at, table, to, first, last):
        """s[to + j − first] = the fold of window j of a table, for windows that do not lie alike."""
        noinline()
        for j in range(first, last):
            window = table[j]
            start, stop, step = window.start, window.stop, window.step
            best = zero if summing else s[at + start]
            for p in range(start if summing else start + step, stop, step):
                best = join_two(best, s[at + p])
            s[to + j - first] = best

    @compiled
    def across(s, at, step, count, to, size, onto):
        """s[to + c] = the fold of s[at + t·step + c], t < count, c < size; after s[to + c] if `onto`."""
        for c in range(0, size, width):
            p = at + c
            best = load(s, p)
            if onto:
                best = join(load(s, to + c), best)
            for _ in range(1, count):
                p += step
                best = join(best, load(s, p))
            keep(s, to + c, best, size - c)

    @compiled
    def double(s, at, size, step):
        """s[at + c] = the fold of itself and s[at + c + step], from the first c to the last."""
        for c in range(0, size, width):
            keep(s, at + c, join(load(s, at + c), load(s, at + c + step)), size - c)

    return Passes(along, along_table, across, double, join_two)
