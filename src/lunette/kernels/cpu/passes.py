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

from lunette.kernels.cpu.asking import ask_for
from lunette.kernels.cpu.halves import Codec
from lunette.kernels.cpu.lanes import lanes
from lunette.kernels.cpu.machine import apart, compiled, within
from lunette.kernels.cpu.plan import WINDOW_WIDTH

__all__ = [
    "Moves",
    "Passes",
    "across_between",
    "add",
    "averaged",
    "clipped",
    "inside",
    "larger",
    "least",
    "moves",
    "passes",
]


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
def moves(codec: Codec, watch: bool = False) -> Moves:
    """Fetch and emit for a codec; where it watches, fetch gives non-zero after a NaN."""
    from_x = lanes(codec.memory, codec.work, codec.half)
    to_y = lanes(codec.kept, codec.work, codec.half)
    here = lanes(codec.work, codec.work, "")
    width = here.width
    load, load_part, load_step = from_x.load, from_x.load_part, from_x.load_step
    store_y, store_y_part = to_y.store, to_y.store_part
    load_s, store_s, unordered = here.load, here.store, from_x.unordered

    @compiled
    def keep(s, to, value):
        store_s(s, to, value)
        return unordered(value, value) if watch else 0

    @compiled
    def fetch(x, at, far, s, to, size, fill):
        """s[to + c] = x[at + far·c] for c < size, then `fill` up to the end of the vector."""
        apart()
        whole, seen = size - size % width, 0
        if far == 1:
            for c in range(0, whole, width):
                seen |= keep(s, to + c, load(x, at + c))
            if whole < size:
                seen |= keep(s, to + whole, load_part(x, at + whole, 0, size - whole, fill))
        else:
            for c in range(0, size, width):
                left = min(width, size - c)
                seen |= keep(s, to + c, load_step(x, at + c * far, far, 0, left, fill))
        return seen

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
def across_between(source: Codec, target: Codec, operation: str, watch: bool = False) -> Any:
    """`across` from rows of one array to rows of another: x to scratch, or scratch to y.

    Where it watches, it gives non-zero after a NaN.
    """
    inputs = lanes(source.memory, source.work, source.half)
    outputs = lanes(target.kept, target.work, target.half)
    width, load, load_part = inputs.width, inputs.load, inputs.load_part
    store, store_part, join = outputs.store, outputs.store_part, getattr(inputs, operation)
    zero, unordered, summing = source.work(0), inputs.unordered, operation == "add"

    @compiled
    def strange(a, b):
        return unordered(a, b) if watch else 0

    @compiled
    def many(x, p, step, count):
        best = load(x, p)
        seen = strange(best, best)
        ask_for(x, p)
        for t in range(1, count):
            value = load(x, p + t * step)
            ask_for(x, p + t * step)
            seen |= strange(value, value)
            best = join(best, value)
        return best, seen

    @compiled
    def ask_four(x, p):
        within()
        ask_for(x, p)
        ask_for(x, p + width)
        ask_for(x, p + 2 * width)
        ask_for(x, p + 3 * width)

    @compiled
    def four_of_many(x, p, step, count):
        """`many` of four vectors side by side, row by row."""
        within()
        a, b, d, e = load(x, p), load(x, p + width), load(x, p + 2 * width), load(x, p + 3 * width)
        seen = strange(a, b) | strange(d, e)
        ask_four(x, p)
        for _ in range(1, count):
            p += step
            i, j, k, m = (
                load(x, p),
                load(x, p + width),
                load(x, p + 2 * width),
                load(x, p + 3 * width),
            )
            ask_four(x, p)
            seen |= strange(i, j) | strange(k, m)
            a, b, d, e = join(a, i), join(b, j), join(d, k), join(e, m)
        return a, b, d, e, seen

    @compiled
    def row_of_many(x, at, step, count, y, to, size):
        """`many` of a row of five to eight vectors, row by row in the order of memory.

        The last ones end with the row, so they may repeat some of those before.
        """
        within()
        five, six = min(5 * width, size - width), min(6 * width, size - width)
        four, seven = min(4 * width, size - width), min(7 * width, size - width)
        a, b, d, e, _ = four_of_many(x, at, step, 1)
        i, j, k, m = load(x, at + four), load(x, at + five), load(x, at + six), load(x, at + seven)
        for t in range(1, count):
            p = at + t * step
            ask_four(x, p)
            ask_four(x, p + 4 * width)
            a, b = join(a, load(x, p)), join(b, load(x, p + width))
            d, e = join(d, load(x, p + 2 * width)), join(e, load(x, p + 3 * width))
            i, j = join(i, load(x, p + four)), join(j, load(x, p + five))
            k, m = join(k, load(x, p + six)), join(m, load(x, p + seven))
        store(y, to, a)
        store(y, to + width, b)
        store(y, to + 2 * width, d)
        store(y, to + 3 * width, e)
        store(y, to + four, i)
        store(y, to + five, j)
        store(y, to + six, k)
        store(y, to + seven, m)

    @compiled
    def few(x, p, step, count):
        a = load(x, p)
        if count == 1:
            return a, strange(a, a)
        b = load(x, p + step)
        if count == 2:
            return join(a, b), strange(a, b)
        c = load(x, p + 2 * step)
        return join(join(a, b), c), strange(a, b) | strange(c, c)

    @compiled
    def across(x, at, step, count, y, to, size):
        """y[to + c] = the fold of x[at + t·step + c], t < count, for each c < size."""
        seen = 0
        if size < width:
            best = load_part(x, at, 0, size, zero)
            seen |= strange(best, best)
            for t in range(1, count):
                value = load_part(x, at + t * step, 0, size, zero)
                seen |= strange(value, value)
                best = join(best, value)
            store_part(y, to, best, size)
            return seen
        # The last vector ends with the row, so it may repeat some of the one before.
        whole, last = size - size % width, size - width
        if count <= 3:
            for c in range(0, whole, width):
                value, more = few(x, at + c, step, count)
                store(y, to + c, value)
                seen |= more
            if whole < size:
                value, more = few(x, at + last, step, count)
                store(y, to + last, value)
                seen |= more
        elif summing & (4 * width < size) & (size <= 8 * width):
            row_of_many(x, at, step, count, y, to, size)
        else:
            fours = whole - whole % (4 * width)
            for c in range(0, fours, 4 * width):
                a, b, d, e, more = four_of_many(x, at + c, step, count)
                store(y, to + c, a)
                store(y, to + c + width, b)
                store(y, to + c + 2 * width, d)
                store(y, to + c + 3 * width, e)
                seen |= more
            for c in range(fours, whole, width):
                value, more = many(x, at + c, step, count)
                store(y, to + c, value)
                seen |= more
            if whole < size:
                value, more = many(x, at + last, step, count)
                store(y, to + last, value)
                seen |= more
        return seen

    return across


@compiled
def inside(first, last, n, stride, origin, kernel, least):
    """The outputs of first … last whose windows lie in a row of `n`; none if fewer than `least`."""
    begin = min(last, max(first, -(origin // stride)))
    end = max(begin, min(last, (n - kernel - origin) // stride + 1))
    return (begin, end) if end - begin >= least else (last, last)


@cache
def clipped(codec: Codec, fill: Any) -> Any:
    """A vector of a row in memory, asked for ahead, with `fill` outside the row."""
    inputs, here = lanes(codec.memory, codec.work, codec.half), lanes(codec.work, codec.work, "")
    width, load, load_part, spread = inputs.width, inputs.load, inputs.load_part, here.spread

    @compiled
    def cells(x, at, p, n):
        """Cells p … p + width of a row of `n` that begins at `at`."""
        within()
        if (p >= 0) & (p + width <= n):
            ask_for(x, at + p)
            return load(x, at + p)
        if p >= n:
            return spread(fill)
        low, high = max(0, min(width, -p)), max(0, min(width, n - p))
        return load_part(x, at + p, low, high, fill)

    return cells


@cache
def averaged(codec: Codec) -> Any:
    """The last step of a mean: rows added up, or one as it is, over the cells that count."""
    here, to_y = lanes(codec.work, codec.work, ""), lanes(codec.kept, codec.work, codec.half)
    width, load, spread = here.width, here.load, here.spread
    add_lanes, multiply, divide = here.add, here.multiply, here.divide
    store, store_part, zero = to_y.store, to_y.store_part, codec.work(0)

    @compiled
    def average(s, at, step, count, cells, first, factor, y, to, size):
        """y[to + c] = the sum of s[at + t·step + c], t < count, over factor · cells[first + c]."""
        apart()
        nothing, lead = spread(zero), spread(factor)
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
                store_part(y, to + c, value, size - c)

    return average


@cache
def passes(work: Any, operation: str) -> Passes:
    """The passes of `larger` or `add`."""
    here = lanes(work, work, "")
    width, load, load_step, store = here.width, here.load, here.load_step, here.store
    evens, odds, join = here.evens, here.odds, getattr(here, operation)
    join_two = add if operation == "add" else larger
    summing, zero = operation == "add", work(0)
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
            window = table + WINDOW_WIDTH * j
            start, stop, step = g[window], g[window + 1], g[window + 2]
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
