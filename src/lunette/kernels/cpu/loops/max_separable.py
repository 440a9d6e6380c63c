"""A max: along the last axis first, then across each axis before it.

Of equal cells, each step keeps the earlier, so the last axis first gives the first in row-major
order: the winner's own bits, be it a zero of either sign or a NaN. A unit is a tile of outputs on
the first pooled axis of one item; what it needs of each axis lies in this thread's scratch memory.
A window of many cells is folded by doubling: two cells, four, eight, then two halves that overlap.

There are two operations. `maximum` keeps the first NaN. `most`, one instruction, takes numbers on
trust; an item where it saw a NaN is flagged, to be done again with `maximum`.
"""

# Numba types the kernels, not mypy.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

from functools import cache
from typing import Any

from numba import types

from lunette.kernels.cpu.jit import intrinsics
from lunette.kernels.cpu.jit.intrinsics import compiled, noinline, pointer
from lunette.kernels.cpu.micro.index import batch_offset, input_line, receptive_range
from lunette.kernels.cpu.micro.reduce_across import across_between
from lunette.kernels.cpu.micro.reduce_along import along_input
from lunette.kernels.cpu.micro.rows import inside, moves, passes
from lunette.kernels.cpu.micro.van_herk import EIGHT, MOST_PIECES, eights, pieces, van_herk
from lunette.kernels.cpu.schedule.slots import (
    AXES,
    AXIS_WIDTH,
    CHANNELS,
    COUNT,
    DILATION,
    EXTENT,
    KERNEL,
    LEFT,
    MEMBERS,
    ORIGIN,
    OUT_OF_CACHE,
    RANK,
    ROW,
    ROW_SIZE,
    SECOND,
    START,
    STEP,
    STEP_X,
    STRIDE,
    TABLE,
    TILE,
    TILES,
    WINDOW_WIDTH,
)
from lunette.kernels.cpu.simd.half import dtype_of, ordered
from lunette.kernels.cpu.simd.vec import vec
from lunette.kernels.cpu.tuning import DIRECT_MAX_TAPS

__all__ = ["kernel"]


@cache
def kernel(dtype: str, operation: str, last: str, doubling: bool) -> Any:
    """The kernel of an operation for a dtype; every axis may be regular or not, no window may be empty.

    What a call does not need is not compiled for it. On the last axis each position has `lanes`, or
    windows are `near` (at most `DIRECT_MAX_TAPS` cells side by side in memory, with stride 1 or 2), `long`
    (more cells side by side) or `any`. Whether long windows that share cells are folded by doubling:
    on an axis before the last, or on any axis if there are lanes.
    """
    lane, near, long = last == "lanes", last == "near", last == "long"
    speculative = operation == "max_num"
    outer = dtype_of(dtype, False)
    watch = speculative and isinstance(outer.work, types.Float)
    if speculative and outer.half:
        outer = ordered(dtype)
    memory, work, kept = outer.memory, outer.work, outer.kept
    fill, width = outer.lowest, vec(work, work, "").width
    load_row, store_row = moves(outer, watch)
    from_x = across_between(outer, outer.scratch, operation, watch)
    to_y = across_between(outer.scratch, outer, operation)
    along_x: Any = along_input(outer, operation) if near else None
    along, along_table, across, double, _ = passes(work, operation)
    eight: Any = eights(outer, operation, watch) if long else None
    together: Any = pieces(work, operation) if long else None
    sweep_s, sweep_y = van_herk(outer, outer.scratch, operation), van_herk(outer, outer, operation)

    @compiled
    def brief(g, e):
        """Whether windows of an axis have few cells, or share none."""
        return (g[e + KERNEL] <= DIRECT_MAX_TAPS) | (g[e + STRIDE] >= g[e + KERNEL])

    @compiled
    def clear(s, at, size):
        for c in range(size):
            s[at + c] = fill

    @compiled
    def doubled(s, g, e, at, low, n, first, last, to, span):
        """`across_axis` for windows of many cells that lie apart: two cells, four, eight, …"""
        table, done = g[e + TABLE], 1
        while True:
            for i in range(first, last):
                w = table + WINDOW_WIDTH * i
                count = g[w + MEMBERS]
                if done <= count < 2 * done:
                    row, rest = (
                        at + (g[w + START] - low) * span,
                        (count - done) * g[w + STEP] * span,
                    )
                    across(s, row, rest, 2, to + (i - first) * span, span, False)
            if 2 * done > g[e + KERNEL]:
                return
            step = done * g[e + DILATION]
            if step < n:
                double(s, at, (n - step) * span, step * span)
            done *= 2

    @compiled
    def across_axis(s, g, axis, at, low, n, first, last, to, span):
        """Outputs first … last of an axis, from rows of `span` cells at positions low … low + n."""
        noinline()
        e = AXES + axis * AXIS_WIDTH
        table = g[e + TABLE]
        if doubling and not brief(g, e):
            if g[e + DILATION] == 1:
                start = g[e + STRIDE] * first + g[e + ORIGIN]
                row, count = at + (start - low) * span, last - first
                reach, stride = g[e + KERNEL], g[e + STRIDE]
                sweep_s(s, row, span, low - start, low - start + n, reach, stride, s, to, count)
            else:
                doubled(s, g, e, at, low, n, first, last, to, span)
            return
        for i in range(first, last):
            w, place = table + WINDOW_WIDTH * i, to + (i - first) * span
            row = at + (g[w + START] - low) * span
            across(s, row, g[w + STEP] * span, g[w + MEMBERS], place, span, False)

    @compiled
    def other_rows(x, s, g, base, low, high, lines, from_j, to_j, from_p, to_p):
        """Rows that are not read in place: by lanes, with gaps between cells, or with long windows."""
        rank, wide = g[RANK], g[CHANNELS]
        e = AXES + (rank - 1) * AXIS_WIDTH
        n, m, far, table = g[e + EXTENT], g[e + COUNT], g[e + STEP_X], g[e + TABLE]
        stride, origin, dilation, size = (
            g[e + STRIDE],
            g[e + ORIGIN],
            g[e + DILATION],
            g[e + KERNEL],
        )
        row, left = g[ROW], g[ROW] + g[LEFT]
        outputs, place, seen = to_j - from_j, 0, 0
        for position in range(low, high):
            for line in range(lines):
                at = base + input_line(g, line, 0)
                if rank > 1:
                    at += position * g[AXES + STEP_X]
                if lane:
                    if doubling and (not brief(g, e)) & (m > 1):
                        for p in range(from_p, to_p):
                            to = row + (p - from_p) * wide
                            seen |= load_row(x, at + p * far, 1, s, to, wide, fill)
                        count, axis = to_p - from_p, rank - 1
                        across_axis(s, g, axis, row, from_p, count, from_j, to_j, place, wide)
                    else:
                        for j in range(from_j, to_j):
                            w, to = table + WINDOW_WIDTH * j, place + (j - from_j) * wide
                            p, step = at + g[w + START] * far, g[w + STEP] * far
                            seen |= from_x(
                                x, p, step, g[w + MEMBERS], s, to, wide, g[OUT_OF_CACHE] != 0
                            )
                    place += outputs * wide
                    continue
                if long:
                    start, to = origin + stride * from_j, -(-row // width) * width
                    reach = stride * (outputs - 1) + size
                    seen |= eight(x, at, n, start, s, to, reach - EIGHT + 1)
                    done = EIGHT
                    while 2 * done <= size if stride > 1 else done * MOST_PIECES < size:
                        double(s, to, reach - 2 * done + 1, done)
                        done *= 2
                    if stride == 1:
                        together(s, to, place, outputs, done, size)
                    else:
                        along(s, to, place, outputs, stride, size - done, 2, False)
                    place += outputs
                    continue
                count = to_p - from_p
                seen |= load_row(x, at + from_p * far, far, s, left + from_p, count, fill)
                start = left + origin + stride * from_j
                if size == 0:
                    along_table(s, left, g, table, place, from_j, to_j)
                elif size <= DIRECT_MAX_TAPS:
                    along(s, start, place, outputs, stride, dilation, size, False)
                else:
                    done, reach = 1, stride * (outputs - 1) + dilation * (size - 1) + 1
                    while 2 * done <= size:
                        double(s, start, reach - done * dilation, done * dilation)
                        done *= 2
                    rest = (size - done) * dilation
                    along(s, start, place, outputs, stride, rest, 2, False)
                    for c in range(row, left):
                        s[c] = fill
                    for c in range(left + to_p, start + reach):
                        s[c] = fill
                place += outputs
        return seen

    @intrinsics.kernel
    def reduce_rows(x_at, y_at, z_at, scratch_at, g_at, flags_at, first, last):
        g, s = pointer(g_at, types.int64), pointer(scratch_at, work)
        x, y = pointer(x_at, memory), pointer(y_at, kept)
        flags = pointer(flags_at, types.uint8)
        rank, wide = g[RANK], g[CHANNELS]
        e = AXES + (rank - 1) * AXIS_WIDTH
        n, m, table = g[e + EXTENT], g[e + COUNT], g[e + TABLE]
        stride, origin, size = g[e + STRIDE], g[e + ORIGIN], g[e + KERNEL]
        if not near:
            clear(s, g[ROW], g[ROW_SIZE])
        for unit in range(first, last):
            item, tile = unit // g[TILES], unit % g[TILES]
            base, target = batch_offset(g, item, 0), batch_offset(g, item, 1)
            begin, end = tile * g[TILE], min(g[AXES + COUNT], (tile + 1) * g[TILE])
            low, high, lines, from_j, to_j, from_p, to_p = 0, 1, 1, 0, m, 0, n
            if rank == 1:
                from_j, to_j = begin, end
                from_p, to_p = receptive_range(g, 0, begin, end)
            else:
                low, high = receptive_range(g, 0, begin, end)
                for axis in range(1, rank - 1):
                    lines *= g[AXES + axis * AXIS_WIDTH + EXTENT]
            outputs, place, seen = to_j - from_j, 0, 0
            if near:
                begin_j, end_j = inside(from_j, to_j, n, stride, origin, size, width)
                # Rows that lie evenly in memory go together: those of the axis before the last.
                rows, pitch, sets = 1, 0, 1
                if rank == 2:
                    rows, pitch = high - low, g[AXES + STEP_X]
                elif rank > 2:
                    rows, pitch = g[e - AXIS_WIDTH + EXTENT], g[e - AXIS_WIDTH + STEP_X]
                    sets = (high - low) * (lines // rows)
                for number in range(sets):
                    at = base
                    if rank == 2:
                        at += low * pitch
                    elif rank > 2:
                        position = number // (lines // rows)
                        at += (low + position) * g[AXES + STEP_X]
                        at += input_line(g, (number - position * (lines // rows)) * rows, 0)
                    seen |= along_x(
                        x,
                        at,
                        pitch,
                        rows,
                        n,
                        s,
                        place,
                        from_j,
                        begin_j,
                        end_j,
                        to_j,
                        stride,
                        origin,
                        size,
                        g,
                        table,
                    )
                    place += rows * outputs
            else:
                seen = other_rows(x, s, g, base, low, high, lines, from_j, to_j, from_p, to_p)
            if watch & (seen != 0):
                flags[item] = 1
            span, here, there = outputs * max(wide, 1), 0, g[SECOND]
            if rank == 1:
                store_row(s, 0, y, target + begin * max(wide, 1), span)
                continue
            for axis in range(rank - 2, 0, -1):
                f = AXES + axis * AXIS_WIDTH
                lines //= g[f + EXTENT]
                for line in range((high - low) * lines):
                    at, to = here + line * g[f + EXTENT] * span, there + line * g[f + COUNT] * span
                    across_axis(s, g, axis, at, 0, g[f + EXTENT], 0, g[f + COUNT], to, span)
                span *= g[f + COUNT]
                here, there = there, here
            if doubling and not brief(g, AXES):
                if g[AXES + DILATION] == 1:
                    cells, step = g[AXES + KERNEL], g[AXES + STRIDE]
                    start = step * begin + g[AXES + ORIGIN]
                    at, to, count = here + (start - low) * span, target + begin * span, end - begin
                    sweep_y(s, at, span, low - start, high - start, cells, step, y, to, count)
                else:
                    across_axis(s, g, 0, here, low, high - low, begin, end, there, span)
                    store_row(s, there, y, target + begin * span, (end - begin) * span)
                continue
            for i in range(begin, end):
                w = g[AXES + TABLE] + WINDOW_WIDTH * i
                at = here + (g[w + START] - low) * span
                to_y(s, at, g[w + STEP] * span, g[w + MEMBERS], y, target + i * span, span, False)

    return reduce_rows
