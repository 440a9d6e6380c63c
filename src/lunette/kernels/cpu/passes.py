"""One axis at a time: the passes that every fast kernel is made of.

`fetch` brings a row of the input into scratch memory as numbers to compute with; `along` reduces
windows of such a row; `across` reduces whole rows element by element; `double` replaces every cell
by the fold of it and the cells after it, twice as many each time; `emit` writes results.

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

from lunette.kernels.cpu.halves import Codec
from lunette.kernels.cpu.lanes import lanes
from lunette.kernels.cpu.machine import apart, compiled

__all__ = ["Moves", "Passes", "least", "moves", "passes"]


class Moves(NamedTuple):
    """Between arrays and scratch memory, for one codec."""

    fetch: Any
    emit: Any


class Passes(NamedTuple):
    """Within scratch memory, for one operation on one type."""

    along: Any
    along_table: Any
    across: Any
    double: Any
    join: Any


@compiled
def larger(best, v):
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
def moves(codec: Codec) -> Moves:
    """Fetch and emit for a codec."""
    from_x = lanes(codec.memory, codec.work, codec.half)
    to_y = lanes(codec.kept, codec.work, codec.half)
    here = lanes(codec.work, codec.work, "")
    width = here.count
    load, load_part, load_step = from_x.load, from_x.load_part, from_x.load_step
    store_y, store_y_part = to_y.store, to_y.store_part
    load_s, store_s = here.load, here.store

    @compiled
    def fetch(x, at, far, s, to, size, fill):
        """s[to + c] = x[at + far·c] for c < size, then `fill` up to the end of the vector."""
        apart()
        whole = size - size % width
        if far == 1:
            for c in range(0, whole, width):
                store_s(s, to + c, load(x, at + c))
            if whole < size:
                store_s(s, to + whole, load_part(x, at + whole, 0, size - whole, fill))
        else:
            for c in range(0, size, width):
                left = min(width, size - c)
                store_s(s, to + c, load_step(x, at + c * far, far, 0, left, fill))

    @compiled
    def emit(s, at, y, to, size):
        """y[to + c] = s[at + c] for c < size, rounded where y is of a half type."""
        apart()
        whole = size - size % width
        for c in range(0, whole, width):
            store_y(y, to + c, load_s(s, at + c))
        if whole < size:
            store_y_part(y, to + whole, load_s(s, at + whole), size - whole)

    return Moves(fetch, emit)


@cache
def across_from(codec: Codec, operation: str) -> Any:
    """`across` that reads rows of the input in place."""
    from_x, here = lanes(codec.memory, codec.work, codec.half), lanes(codec.work, codec.work, "")
    width, load, load_part, store = here.count, from_x.load, from_x.load_part, here.store
    store_part = here.store_part
    join = getattr(here, operation)
    zero = codec.work(0)

    @compiled
    def across(x, at, step, count, s, to, size):
        """s[to + c] = the fold of x[at + t·step + c], t < count, for each c < size."""
        apart()
        whole = size - size % width
        for c in range(0, whole, width):
            best = load(x, at + c)
            for t in range(1, count):
                best = join(best, load(x, at + c + t * step))
            store(s, to + c, best)
        if whole < size:
            left = size - whole
            best = load_part(x, at + whole, 0, left, zero)
            for t in range(1, count):
                best = join(best, load_part(x, at + whole + t * step, 0, left, zero))
            store_part(s, to + whole, best, left)

    return across


@cache
def passes(work: Any, operation: str) -> Passes:
    """The passes of `larger` or `add`."""
    here = lanes(work, work, "")
    width, load, load_step, store = here.count, here.load, here.load_step, here.store
    evens, odds, join = here.evens, here.odds, getattr(here, operation)
    join_two = add if operation == "add" else larger
    zero = work(0)
    store_part = here.store_part

    @compiled
    def keep(s, to, value, left):
        """Write a vector, or as many lanes as are left of the row."""
        if left >= width:
            store(s, to, value)
        else:
            store_part(s, to, value, left)

    @compiled
    def along(s, at, to, m, stride, dilation, kernel, onto):
        """s[to + j] = the fold of s[at + stride·j + dilation·t], t < kernel; after s[to + j] if `onto`."""
        apart()
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
                best = evens(a, b)
                if kernel > 1:
                    best = join(best, odds(a, b))
                for t in range(2, kernel, 2):
                    p += 2
                    a, b = load(s, p), load(s, p + width)
                    best = join(best, evens(a, b))
                    if t + 1 < kernel:
                        best = join(best, odds(a, b))
            else:
                best = load_step(s, p, stride, 0, width, zero)
                if onto:
                    best = join(load(s, to + j), best)
                for _ in range(1, kernel):
                    p += dilation
                    best = join(best, load_step(s, p, stride, 0, width, zero))
            keep(s, to + j, best, m - j)

    @compiled
    def along_table(s, at, g, table, to, first, last):
        """s[to + j − first] = the fold of window j of a table, for windows that do not lie alike."""
        apart()
        for j in range(first, last):
            window = table + 4 * j
            start, stop, step = g[window], g[window + 1], g[window + 2]
            best = s[at + start]
            for p in range(start + step, stop, step):
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
