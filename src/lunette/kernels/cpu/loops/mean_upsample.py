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

from lunette.kernels.cpu.jit import intrinsics
from lunette.kernels.cpu.jit.intrinsics import alwaysinline, compiled, pointer
from lunette.kernels.cpu.micro.divisors import counted, divisor
from lunette.kernels.cpu.micro.index import batch_offset
from lunette.kernels.cpu.schedule.slots import (
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
    RANK,
    READ_BY,
    SLABS,
    SLABS_AT,
    SPREAD_SECOND,
    START,
    STEP_Y,
    STOP,
    STREAM,
    STRIDE,
    TABLE,
    WINDOW_WIDTH,
)
from lunette.kernels.cpu.simd.half import dtype_of
from lunette.kernels.cpu.simd.streaming import stream, stream_fence
from lunette.kernels.cpu.simd.vec import vec
from lunette.kernels.cpu.tuning import LINE

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
    outer = dtype_of(dtype, True)
    memory, work = outer.memory, outer.work
    here, from_gy = vec(work, work, ""), vec(memory, work, outer.half)
    width, load, store, store_n = here.width, here.load, here.store, here.store_n
    load_gy, load_n, gather_strided = from_gy.load, from_gy.load_n, from_gy.gather_strided
    store_gx, store_gx_part = from_gy.store, from_gy.store_n
    interleave_lower, interleave_upper, broadcast = (
        here.interleave_lower,
        here.interleave_upper,
        here.broadcast,
    )
    add, multiply, divide = here.add, here.multiply, here.divide
    zero, whole_lines = work(0), memory == work

    @compiled
    def shares(gy, at, far, j, m, divisors, lead):
        """What outputs j … j + width of a row send to each of their cells; zero past the last."""
        alwaysinline()
        if far != 1:
            value = gather_strided(gy, at + j * far, far, 0, min(width, m - j), zero)
        elif j + width <= m:
            value = load_gy(gy, at + j)
        else:
            value = load_n(gy, at + j, 0, m - j, zero)
        value = divide(value, multiply(lead, load(divisors, j)))
        return add(value, broadcast(zero))  # a gradient is a sum from +0: it is never −0

    @compiled
    def expand(gy, at, s, to, g, e, divisors, factor):
        """Spread the shares of a row over the positions of a row at `to`; those without a reader are left."""
        alwaysinline()
        m, far, table, lead = g[e + COUNT], g[e + STEP_Y], g[e + TABLE], broadcast(factor)
        if (
            (g[e + STRIDE] == 2)
            & (g[e + ORIGIN] == 0)
            & (g[e + KERNEL] == 2)
            & (g[e + DILATION] == 1)
        ):
            for j in range(0, m, width):
                value = shares(gy, at, far, j, m, divisors, lead)
                store(s, to + 2 * j, interleave_lower(value, value))
                store(s, to + 2 * j + width, interleave_upper(value, value))
            return
        for j in range(0, m, width):
            store(s, to - width, shares(gy, at, far, j, m, divisors, lead))
            for i in range(j, min(m, j + width)):
                w, value = table + WINDOW_WIDTH * i, broadcast(s[to - width + i - j])
                for p in range(g[w + START], g[w + STOP], width):
                    store_n(s, to + p, value, g[w + STOP] - p)

    @compiled
    def store_row(s, at, gx, to, n, streaming):
        """gx[to + c] = s[at + c], c < n. As in `moves`, but not by a call, which made a row 5 % slower.

        With `streaming` a row is whole lines of memory, and goes past the caches.
        """
        alwaysinline()
        whole = n - n % width
        if whole_lines & streaming:
            for c in range(0, whole, width):
                stream(gx, to + c, load(s, at + c))
        else:
            for c in range(0, whole, width):
                store_gx(gx, to + c, load(s, at + c))
        if whole < n:
            store_gx_part(gx, to + whole, load(s, at + whole), n - whole)

    @intrinsics.kernel
    def spread_rows(x_at, gy_at, gx_at, scratch_at, g_at, room, first, last):
        g, s = pointer(g_at, types.int64), pointer(scratch_at, work)
        gy, gx = pointer(gy_at, memory), pointer(gx_at, memory)
        rank, divisors = g[RANK], pointer(g[DIVISORS], work)
        e = AXES + (rank - 1) * AXIS_WIDTH
        f = e - AXIS_WIDTH
        streaming = (g[STREAM] == DIRECT) & (gx_at % LINE == 0)
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
            source, target = batch_offset(g, item, 1), batch_offset(g, item, 2)
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
                store_row(s, place, gx, target + number * n, n, streaming)
                line += 1
                if line == lines:
                    position, line = position + 1, 0
                    reader, at, factor = outer_reader(g, position)
        stream_fence()

    return spread_rows
