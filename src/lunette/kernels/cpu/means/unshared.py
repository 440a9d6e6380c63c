"""The gradient of a mean whose windows share no cell: each cell has the share of its one reader, or zero.

A row of the outputs' gradient is divided and spread along the last axis once, then written to each
row that reads it. A unit owns a slab of the first pooled axis. It gives the bits that `spread` gives.
"""

# Numba types the kernels, not mypy.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

from functools import cache
from typing import Any

from numba import types

from lunette.kernels.cpu.compiling import machine
from lunette.kernels.cpu.compiling.machine import compiled, pointer, within
from lunette.kernels.cpu.plans.layout import (
    AXES,
    AXIS_WIDTH,
    COUNT,
    DILATION,
    DIRECT,
    DIVISORS,
    EXTENT,
    KERNEL,
    MEMBERS,
    ORIGIN,
    PAST,
    RANK,
    READ_BY,
    SLABS,
    SLABS_AT,
    SPREAD_SECOND,
    START,
    STEP_Y,
    STOP,
    STRIDE,
    TABLE,
    WINDOW_WIDTH,
)
from lunette.kernels.cpu.plans.sizes import LINE
from lunette.kernels.cpu.rows.counts import counted, divisor
from lunette.kernels.cpu.rows.places import item_offset
from lunette.kernels.cpu.vectors.halves import codec
from lunette.kernels.cpu.vectors.lanes import lanes
from lunette.kernels.cpu.vectors.past_caches import settle, store_past

__all__ = ["kernel"]


@compiled
def outer_reader(g, number):
    """The output that reads position `number` of all axes but the last two: its number, or −1 for none.

    And where its rows begin in the outputs' gradient, and the cells that count on these axes.
    """
    reader, at, factor, scale = 0, 0, 1.0, 1
    for axis in range(g[RANK] - 3, -1, -1):
        f = AXES + axis * AXIS_WIDTH
        w = g[f + READ_BY] + WINDOW_WIDTH * (number % g[f + EXTENT])
        number //= g[f + EXTENT]
        if g[w + MEMBERS] == 0:
            return -1, 0, 1.0
        reader, at, scale = (
            reader + scale * g[w + START],
            at + g[w + START] * g[f + STEP_Y],
            scale * g[f + COUNT],
        )
        factor *= counted(g, axis, g[w + START])
    return reader, at, factor


@cache
def kernel(dtype: str) -> Any:
    """The kernel for a dtype, for two pooled axes or more; no position may have two readers on an axis.

    The cells of a window on the last axis are side by side.
    """
    outer = codec(dtype, True)
    memory, work = outer.memory, outer.work
    here, from_gy = lanes(work, work, ""), lanes(memory, work, outer.half)
    width, load, store, store_part = here.width, here.load, here.store, here.store_part
    load_gy, load_part, load_step = from_gy.load, from_gy.load_part, from_gy.load_step
    store_gx, store_gx_part = from_gy.store, from_gy.store_part
    zip_low, zip_high, spread = here.zip_low, here.zip_high, here.spread
    add, multiply, divide = here.add, here.multiply, here.divide
    zero, whole_lines = work(0), memory == work

    @compiled
    def shares(gy, at, far, j, m, divisors, lead):
        """What outputs j … j + width of a row send to each of their cells; zero past the last."""
        within()
        if far != 1:
            value = load_step(gy, at + j * far, far, 0, min(width, m - j), zero)
        elif j + width <= m:
            value = load_gy(gy, at + j)
        else:
            value = load_part(gy, at + j, 0, m - j, zero)
        value = divide(value, multiply(lead, load(divisors, j)))
        return add(value, spread(zero))  # a gradient is a sum from +0: it is never −0

    @compiled
    def expand(gy, at, s, to, g, e, divisors, factor):
        """Spread the shares of a row over the positions of a row at `to`; those without a reader are left."""
        within()
        m, far, table, lead = g[e + COUNT], g[e + STEP_Y], g[e + TABLE], spread(factor)
        if (
            (g[e + STRIDE] == 2)
            & (g[e + ORIGIN] == 0)
            & (g[e + KERNEL] == 2)
            & (g[e + DILATION] == 1)
        ):
            for j in range(0, m, width):
                value = shares(gy, at, far, j, m, divisors, lead)
                store(s, to + 2 * j, zip_low(value, value))
                store(s, to + 2 * j + width, zip_high(value, value))
            return
        for j in range(0, m, width):
            store(s, to - width, shares(gy, at, far, j, m, divisors, lead))
            for i in range(j, min(m, j + width)):
                w, value = table + WINDOW_WIDTH * i, spread(s[to - width + i - j])
                for p in range(g[w + START], g[w + STOP], width):
                    store_part(s, to + p, value, g[w + STOP] - p)

    @compiled
    def emit(s, at, gx, to, n, past):
        """gx[to + c] = s[at + c], c < n. As in `moves`, but not by a call, which made a row 5 % slower.

        With `past` a row is whole lines of memory, and goes past the caches.
        """
        within()
        whole = n - n % width
        if whole_lines & past:
            for c in range(0, whole, width):
                store_past(gx, to + c, load(s, at + c))
        else:
            for c in range(0, whole, width):
                store_gx(gx, to + c, load(s, at + c))
        if whole < n:
            store_gx_part(gx, to + whole, load(s, at + whole), n - whole)

    @machine.kernel
    def spread_rows(x_at, gy_at, gx_at, scratch_at, g_at, room, first, last):
        g, s = pointer(g_at, types.int64), pointer(scratch_at, work)
        gy, gx = pointer(gy_at, memory), pointer(gx_at, memory)
        rank, divisors = g[RANK], pointer(g[DIVISORS], work)
        e = AXES + (rank - 1) * AXIS_WIDTH
        f = e - AXIS_WIDTH
        past = (g[PAST] == DIRECT) & (gx_at % LINE == 0)
        n, lines, rows, nothing, row = (
            g[e + EXTENT],
            g[f + EXTENT],
            1,
            width,
            width + g[SPREAD_SECOND],
        )
        for c in range(n + 2 * width):
            s[nothing + c] = s[row + c] = zero
        for axis in range(1, rank - 1):
            rows *= g[AXES + axis * AXIS_WIDTH + EXTENT]
        for unit in range(first, last):
            item, slab = unit // g[SLABS], g[SLABS_AT] + 4 * (unit % g[SLABS])
            source, target = item_offset(g, item, 1), item_offset(g, item, 2)
            begin, end = g[slab] * rows, g[slab + 1] * rows
            position, line = begin // lines, begin % lines
            reader, at, factor = outer_reader(g, position)
            known, other = -1, -1
            for number in range(begin, end):
                w = g[f + READ_BY] + WINDOW_WIDTH * line
                place = nothing
                if (reader >= 0) & (g[w + MEMBERS] > 0):
                    place = row
                    if (g[w + START] != known) | (reader != other):
                        known, other = g[w + START], reader
                        lead = work(divisor(g, factor * counted(g, rank - 2, known)))
                        expand(
                            gy, source + at + known * g[f + STEP_Y], s, row, g, e, divisors, lead
                        )
                emit(s, place, gx, target + number * n, n, past)
                line += 1
                if line == lines:
                    position, line = position + 1, 0
                    reader, at, factor = outer_reader(g, position)
        settle()

    return spread_rows
