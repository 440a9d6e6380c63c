"""The gradient of a mean: each output's share spread over its window, along the last axis first.

What an output sends back is the same for each of its cells, so the adjoint goes axis by axis too:
a position receives the sum of the outputs that read it: neighbours, or with dilation every so many.
Each axis adds from the first reader to the last, so the order depends on the windows alone. With r readers in all, a
gradient is within γᵣ Σ|gy / divisor| of the exact one. A unit owns a slab of the first pooled axis.
"""

# Numba types the kernels, not mypy.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

from functools import cache
from typing import Any

from numba import types

from lunette.kernels.cpu.jit import intrinsics
from lunette.kernels.cpu.jit.intrinsics import compiled, noinline, pointer
from lunette.kernels.cpu.micro.divisors import cells_of_row
from lunette.kernels.cpu.micro.index import batch_offset, output_row
from lunette.kernels.cpu.micro.reduce_across import across_between
from lunette.kernels.cpu.micro.rows import averaged, moves, passes
from lunette.kernels.cpu.schedule.slots import (
    AXES,
    AXIS_WIDTH,
    CHANNEL_STEP,
    CHANNELS,
    COUNT,
    DILATION,
    DIVISORS,
    EXTENT,
    KERNEL,
    MEMBERS,
    ORIGIN,
    RANK,
    READ_BY,
    SLABS,
    SLABS_AT,
    SPREAD_END,
    SPREAD_LEFT,
    SPREAD_ROW,
    SPREAD_SECOND,
    START,
    STEP,
    STEP_Y,
    STOP,
    STRIDE,
    TABLE,
    WINDOW_WIDTH,
)
from lunette.kernels.cpu.simd.half import dtype_of
from lunette.kernels.cpu.simd.vec import vec

__all__ = ["kernel"]


@cache
def kernel(dtype: str) -> Any:
    """The kernel for a dtype; the readers of every position must be at equal steps."""
    outer = dtype_of(dtype, True)
    memory, work, inner = outer.memory, outer.work, outer.scratch
    zero = work(0)
    here_lanes = vec(work, work, "")
    width, load, store, store_n = (
        here_lanes.width,
        here_lanes.load,
        here_lanes.store,
        here_lanes.store_n,
    )
    broadcast, join, interleave_lower, interleave_upper = (
        here_lanes.broadcast,
        here_lanes.add,
        here_lanes.interleave_lower,
        here_lanes.interleave_upper,
    )
    load_row, store_row = moves(outer)
    average = averaged(inner)
    to_gx = across_between(inner, outer, "add")
    along, along_table, across, _, _ = passes(work, "add")

    @compiled
    def folded(s, at, first, last):
        total = load(s, at + first)
        for i in range(first + 1, last + 1):
            total = join(total, load(s, at + i))
        return total

    @compiled
    def by_two(s, at, to, low, size, origin, kernel):
        """Spread over positions low … low + size with stride 2: even and odd ones by themselves."""
        noinline()
        for c in range(0, size, 2 * width):
            q = low + c - origin
            a = folded(s, at, (q - kernel + 2) // 2, q // 2)
            b = folded(s, at, (q - kernel + 3) // 2, (q + 1) // 2)
            left = size - c
            if left >= 2 * width:
                store(s, to + c, interleave_lower(a, b))
                store(s, to + c + width, interleave_upper(a, b))
            else:
                store_n(s, to + c, interleave_lower(a, b), min(left, width))
                store_n(s, to + c + width, interleave_upper(a, b), max(0, left - width))

    @compiled
    def across_axis(s, g, table, at, to, first, begin, end, span):
        """Sum rows first, first + 1, … at `at` over the readers of positions begin … end."""
        noinline()
        for p in range(begin, end):
            w = table + WINDOW_WIDTH * p
            place = to + (p - begin) * span
            if g[w + MEMBERS] == 0:
                for c in range(span):
                    s[place + c] = zero
            else:
                row = at + (g[w + START] - first) * span
                across(s, row, g[w + STEP] * span, g[w + MEMBERS], place, span, False)

    @compiled
    def in_order(g, table, outputs):
        """Whether every window has cells, one after the other, and begins and ends no earlier than the one before."""
        low, high = 0, 0
        for w in range(table, table + WINDOW_WIDTH * outputs, WINDOW_WIDTH):
            start, stop = g[w + START], g[w + STOP]
            if (g[w + STEP] != 1) | (start < low) | (stop < high) | (stop <= start):
                return False
            low, high = start, stop
        return True

    @compiled
    def by_runs(s, at, to, g, table, from_j, to_j, from_p, to_p):
        """Sums over the readers of positions from_p … to_p, which are among outputs from_j … to_j: one for all that have the same."""
        noinline()
        a, b, p = from_j, from_j, from_p
        while p < to_p:
            while (b < to_j) and (g[table + WINDOW_WIDTH * b + START] <= p):
                b += 1
            while (a < b) and (g[table + WINDOW_WIDTH * a + STOP] <= p):
                a += 1
            end, total = to_p, zero
            if b < to_j:
                end = min(end, g[table + WINDOW_WIDTH * b + START])
            if a < b:
                end = min(end, g[table + WINDOW_WIDTH * a + STOP])
            for j in range(a, b):
                total += s[at + j]
            value, place = broadcast(total), to + p - from_p
            for c in range(0, end - p, width):
                left = to_p - p - c
                if left >= width:  # what is too many is written again
                    store(s, place + c, value)
                else:
                    store_n(s, place + c, value, left)
            p = end

    @intrinsics.kernel
    def spread(x_at, gy_at, gx_at, scratch_at, g_at, room, first, last):
        g, s = pointer(g_at, types.int64), pointer(scratch_at, work)
        gy, gx = pointer(gy_at, memory), pointer(gx_at, memory)
        rank, wide, lane = g[RANK], max(1, g[CHANNELS]), g[CHANNELS] > 0
        e = AXES + (rank - 1) * AXIS_WIDTH
        n, m, far, table = g[e + EXTENT], g[e + COUNT], g[e + STEP_Y], g[e + READ_BY]
        stride, origin, dilation, size = (
            g[e + STRIDE],
            g[e + ORIGIN],
            g[e + DILATION],
            g[e + KERNEL],
        )
        row, divisors = g[SPREAD_ROW], pointer(g[DIVISORS], work)
        left = row + g[SPREAD_LEFT] * wide
        alike = (not lane) & (size > 0) & ((dilation == 1) | (size == 1))
        regular = alike & (stride <= 2)
        runs = (not lane) & (not regular) and in_order(g, g[e + TABLE], m)
        for c in range(row, g[SPREAD_END]):
            s[c] = zero
        lines = 1
        for axis in range(1, rank - 1):
            lines *= g[AXES + axis * AXIS_WIDTH + COUNT]
        for unit in range(first, last):
            item, slab = unit // g[SLABS], g[SLABS_AT] + 4 * (unit % g[SLABS])
            source, target = batch_offset(g, item, 1), batch_offset(g, item, 2)
            low, high, begin, end = g[slab], g[slab + 1], g[slab + 2], g[slab + 3]
            from_j, to_j, from_p, to_p = 0, m, 0, n
            if rank == 1:
                from_j, to_j, from_p, to_p = begin, end, low, high
                begin, end = 0, 1
            to = 0
            for i in range(begin, end):
                for line in range(lines):
                    row = i * lines + line
                    at, factor = source + output_row(g, row, 1), cells_of_row(g, row)
                    start, outputs = left + from_j * wide, (to_j - from_j) * wide
                    if lane & ((far != wide) | (g[CHANNEL_STEP] != 1)):
                        for j in range(from_j, to_j):
                            load_row(
                                gy, at + j * far, g[CHANNEL_STEP], s, left + j * wide, wide, zero
                            )
                    else:
                        step = 1 if lane else far
                        load_row(gy, at + from_j * far, step, s, start, outputs, zero)
                    average(
                        s, start, 0, 1, divisors, from_j * wide, work(factor), s, start, outputs
                    )
                    if lane:
                        across_axis(s, g, table, left, to, 0, from_p, to_p, wide)
                    elif alike & (stride == 1):
                        at = left + from_p - origin - size + 1
                        along(s, at, to, to_p - from_p, 1, 1, size, False)
                    elif alike & (stride == 2) & (size > 1):
                        by_two(s, left, to, from_p, to_p - from_p, origin, size)
                    elif runs:
                        by_runs(s, left, to, g, g[e + TABLE], from_j, to_j, from_p, to_p)
                    else:
                        along_table(s, left, g, table, to, from_p, to_p)
                    to += (to_p - from_p) * wide
                    if rank == 1:
                        for c in range(outputs + width):
                            s[start + c] = zero
            span, here, there = (to_p - from_p) * wide, 0, g[SPREAD_SECOND]
            if rank == 1:
                store_row(s, 0, gx, target + low * wide, span)
                continue
            before = lines
            for axis in range(rank - 2, 0, -1):
                f = AXES + axis * AXIS_WIDTH
                before //= g[f + COUNT]
                for line in range((end - begin) * before):
                    at, to = here + line * g[f + COUNT] * span, there + line * g[f + EXTENT] * span
                    across_axis(s, g, g[f + READ_BY], at, to, 0, 0, g[f + EXTENT], span)
                span *= g[f + EXTENT]
                here, there = there, here
            for p in range(low, high):
                w = g[AXES + READ_BY] + WINDOW_WIDTH * p
                if g[w + MEMBERS] == 0:
                    for c in range(span):
                        gx[target + p * span + c] = memory(0)
                else:
                    at, step = here + (g[w + START] - begin) * span, g[w + STEP] * span
                    to_gx(s, at, step, g[w + MEMBERS], gx, target + p * span, span, False)

    return spread
