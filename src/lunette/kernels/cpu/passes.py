"""One axis at a time: the passes that every fast kernel is made of.

`along` reduces windows of a row whose neighbours lie side by side, or a fixed step apart; `across`
reduces whole rows, element by element. Both fold cells from the first to the last. `Passes` holds
them for one operation, from one element type to another.
"""

# Numba types the kernels, not mypy.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"
# ruff: noqa: PLR0124

from __future__ import annotations

import math
from functools import cache
from typing import Any, NamedTuple

from numba import types

from lunette.kernels.cpu.halves import Codec
from lunette.kernels.cpu.lanes import lanes
from lunette.kernels.cpu.machine import compiled

__all__ = ["Passes", "passes"]


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
    if isinstance(work, types.Float):
        return work(-math.inf)
    return work(work.minval)


class Passes(NamedTuple):
    """The passes of one operation from a source type to a target type."""

    along: Any
    along_table: Any
    across: Any


@cache
def passes(source: Codec, target: Codec, operation: str) -> Passes:
    """Passes from one codec's elements to another's.

    `operation` is `larger` or `add`. A cell outside the row counts as the number that changes no
    result: zero for a sum, the least for a max, where it may tie but has the bits of what it ties.
    """
    inputs = lanes(source.memory, source.work, source.half)
    outputs = lanes(target.memory, target.work, target.half)
    fill = source.work(0) if operation == "add" else least(source.work)
    read, write = source.load, target.store
    join_two = add if operation == "add" else larger
    width = inputs.count
    load, load_part, load_step = inputs.load, inputs.load_part, inputs.load_step
    evens, odds = inputs.evens, inputs.odds
    store, store_part = outputs.store, outputs.store_part
    join = getattr(inputs, operation)

    @compiled
    def clipped(x, at, first, step, n):
        """Elements first, first + step, … of a row of `n`; those outside are filled."""
        if step == 1:
            low, high = max(0, -first), max(0, min(width, n - first))
            return load_part(x, at + first, min(low, width), high, fill)
        low = max(0, -(first // step))
        high = max(0, min(width, (n - 1 - first) // step + 1))
        return load_step(x, at + first, step, min(low, width), high, fill)

    @compiled
    def clipped_far(x, at, first, step, n, far):
        """As `clipped`, in a row whose elements are `far` apart in memory."""
        low = max(0, -(first // step))
        high = max(0, min(width, (n - 1 - first) // step + 1))
        return load_step(x, at + first * far, step * far, min(low, width), high, fill)

    @compiled
    def along(x, at, far, n, y, to, m, stride, origin, dilation, kernel):
        """y[to + j] = the fold of x[at + far·(stride·j + origin + dilation·t)], t < kernel."""
        reach = origin + dilation * (kernel - 1)
        for j in range(0, m, width):
            first = stride * j + origin
            left = min(width, m - j)
            last = stride * (j + width - 1) + reach
            whole = (far == 1) & (first >= 0) & (left == width)
            if whole & (stride == 1) & (last < n):
                best = load(x, at + first)
                if (kernel == 3) & (dilation == 1):
                    best = join(best, load(x, at + first + 1))
                    best = join(best, load(x, at + first + 2))
                else:
                    for t in range(1, kernel):
                        best = join(best, load(x, at + first + t * dilation))
            elif whole & (stride == 2) & (dilation == 1) & (last + 2 < n):
                a, b = load(x, at + first), load(x, at + first + width)
                best = evens(a, b)
                if kernel == 3:
                    best = join(best, odds(a, b))
                    a, b = load(x, at + first + 2), load(x, at + first + 2 + width)
                    best = join(best, evens(a, b))
                else:
                    if kernel > 1:
                        best = join(best, odds(a, b))
                    for t in range(2, kernel, 2):
                        a, b = load(x, at + first + t), load(x, at + first + t + width)
                        best = join(best, evens(a, b))
                        if t + 1 < kernel:
                            best = join(best, odds(a, b))
            elif (far == 1) & (stride == 2):
                a = clipped(x, at, first, 1, n)
                b = clipped(x, at, first + width, 1, n)
                best = evens(a, b)
                if (dilation == 1) & (kernel > 1):
                    best = join(best, odds(a, b))
                t = 2 if dilation == 1 else 1
                while t < kernel:
                    a = clipped(x, at, first + t * dilation, 1, n)
                    b = clipped(x, at, first + t * dilation + width, 1, n)
                    best = join(best, evens(a, b))
                    if (dilation == 1) & (t + 1 < kernel):
                        best = join(best, odds(a, b))
                    t += 2 if dilation == 1 else 1
            elif far == 1:
                best = clipped(x, at, first, stride, n)
                for t in range(1, kernel):
                    best = join(best, clipped(x, at, first + t * dilation, stride, n))
            else:
                best = clipped_far(x, at, first, stride, n, far)
                for t in range(1, kernel):
                    value = clipped_far(x, at, first + t * dilation, stride, n, far)
                    best = join(best, value)
            if left == width:
                store(y, to + j, best)
            else:
                store_part(y, to + j, best, left)

    @compiled
    def along_table(x, at, far, windows, table, y, to, first, last):
        """y[to + j − first] = the fold of window j of a table, for windows that do not lie alike."""
        for j in range(first, last):
            window = table + 4 * j
            start, stop, step = windows[window], windows[window + 1], windows[window + 2]
            best = read(x[at + far * start])
            for p in range(start + step, stop, step):
                best = join_two(best, read(x[at + far * p]))
            y[to + j - first] = write(best)

    @compiled
    def across(x, at, step, count, y, to, size):
        """y[to + c] = the fold of x[at + t·step + c], t < count, for each c < size."""
        c = 0
        while c + 2 * width <= size:
            p = at + c
            a, b = load(x, p), load(x, p + width)
            if count == 3:
                a, b = join(a, load(x, p + step)), join(b, load(x, p + step + width))
                p += 2 * step
                a, b = join(a, load(x, p)), join(b, load(x, p + width))
            else:
                for _ in range(1, count):
                    p += step
                    a, b = join(a, load(x, p)), join(b, load(x, p + width))
            store(y, to + c, a)
            store(y, to + c + width, b)
            c += 2 * width
        while c < size:
            left = min(width, size - c)
            a = load_part(x, at + c, 0, left, fill)
            for t in range(1, count):
                a = join(a, load_part(x, at + c + t * step, 0, left, fill))
            store_part(y, to + c, a, left)
            c += width

    return Passes(along, along_table, across)
