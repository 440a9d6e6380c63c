"""A max: along the last axis first, then across each axis before it.

Of equal cells, each step keeps the earlier, so the last axis first gives the first in row-major
order: the winner's own bits, be it a zero of either sign or a NaN. A unit is a tile of outputs on
the first pooled axis of one item; what it needs of each axis lies in this thread's scratch memory.
A window of many cells is folded by doubling: two cells, four, eight, then two halves that overlap.

There are two operations. `maximum` keeps the first NaN. `max_num`, one instruction, takes numbers on
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
from lunette.kernels.cpu.schedule.records import PLAN
from lunette.kernels.cpu.simd.half import dtype_of, ordered
from lunette.kernels.cpu.simd.vec import vec
from lunette.kernels.cpu.tuning import DIRECT_MAX_TAPS

__all__ = ["kernel"]

plan_of = PLAN.at


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
    def brief(axis):
        """Whether windows of an axis have few cells, or share none."""
        return (axis.taps <= DIRECT_MAX_TAPS) | (axis.stride >= axis.taps)

    @compiled
    def clear(s, at, size):
        for c in range(size):
            s[at + c] = fill

    @compiled
    def doubled(s, axis, at, held, outputs, target):
        """`across_axis` for windows of many cells that lie apart: two cells, four, eight, …"""
        low, n = held
        first, last = outputs
        to, span = target
        table, done = axis.windows, 1
        while True:
            for i in range(first, last):
                w = table[i]
                count = w.in_bounds
                if done <= count < 2 * done:
                    row, rest = (
                        at + (w.start - low) * span,
                        (count - done) * w.step * span,
                    )
                    across(s, row, rest, 2, to + (i - first) * span, span, False)
            if 2 * done > axis.taps:
                return
            step = done * axis.dilation
            if step < n:
                double(s, at, (n - step) * span, step * span)
            done *= 2

    @compiled
    def across_axis(s, plan, axis, at, held, outputs, target):
        """Outputs first … last of an axis, from rows of `span` cells at positions low … low + n."""
        noinline()
        low, n = held
        first, last = outputs
        to, span = target
        entry = plan.axes[axis]
        table = entry.windows
        if doubling and not brief(entry):
            if entry.dilation == 1:
                start = entry.stride * first + entry.origin
                row, count = at + (start - low) * span, last - first
                reach, stride = entry.taps, entry.stride
                sweep_s(s, row, span, low - start, low - start + n, reach, stride, s, to, count)
            else:
                doubled(s, entry, at, (low, n), (first, last), (to, span))
            return
        for i in range(first, last):
            w, place = table[i], to + (i - first) * span
            row = at + (w.start - low) * span
            across(s, row, w.step * span, w.in_bounds, place, span, False)

    @compiled
    def other_rows(x, s, plan, base, rows, columns):
        """Rows that are not read in place: by lanes, with gaps between cells, or with long windows."""
        low, high, lines = rows
        from_j, to_j, from_p, to_p = columns
        rank, wide = plan.rank, plan.channels
        w_axis = plan.axes[rank - 1]
        n, m, far, table = w_axis.in_len, w_axis.out_len, w_axis.x_stride, w_axis.windows
        stride, origin, dilation, size = (
            w_axis.stride,
            w_axis.origin,
            w_axis.dilation,
            w_axis.taps,
        )
        row, left = plan.row, plan.row + plan.left
        outputs, place, seen = to_j - from_j, 0, 0
        for position in range(low, high):
            for line in range(lines):
                at = base + input_line(plan, line, 0)
                if rank > 1:
                    at += position * plan.axes[0].x_stride
                if lane:
                    if doubling and (not brief(w_axis)) & (m > 1):
                        for p in range(from_p, to_p):
                            to = row + (p - from_p) * wide
                            seen |= load_row(x, at + p * far, 1, s, to, wide, fill)
                        count, axis = to_p - from_p, rank - 1
                        across_axis(
                            s, plan, axis, row, (from_p, count), (from_j, to_j), (place, wide)
                        )
                    else:
                        for j in range(from_j, to_j):
                            w, to = table[j], place + (j - from_j) * wide
                            p, step = at + w.start * far, w.step * far
                            seen |= from_x(
                                x, p, step, w.in_bounds, s, to, wide, plan.out_of_cache != 0
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
                    along_table(s, left, table, place, from_j, to_j)
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
    def reduce_rows(x_at, y_at, z_at, scratch_at, plan_at, flags_at, first, last):
        plan, s = plan_of(plan_at), pointer(scratch_at, work)
        x, y = pointer(x_at, memory), pointer(y_at, kept)
        flags = pointer(flags_at, types.uint8)
        rank, wide = plan.rank, plan.channels
        w_axis = plan.axes[rank - 1]
        n, m, table = w_axis.in_len, w_axis.out_len, w_axis.windows
        stride, origin, size = w_axis.stride, w_axis.origin, w_axis.taps
        if not near:
            clear(s, plan.row, plan.row_size)
        for unit in range(first, last):
            item, tile = unit // plan.tiles, unit % plan.tiles
            base, target = batch_offset(plan, item, 0), batch_offset(plan, item, 1)
            begin, end = tile * plan.tile, min(plan.axes[0].out_len, (tile + 1) * plan.tile)
            low, high, lines, from_j, to_j, from_p, to_p = 0, 1, 1, 0, m, 0, n
            if rank == 1:
                from_j, to_j = begin, end
                from_p, to_p = receptive_range(plan, 0, begin, end)
            else:
                low, high = receptive_range(plan, 0, begin, end)
                for axis in range(1, rank - 1):
                    lines *= plan.axes[axis].in_len
            outputs, place, seen = to_j - from_j, 0, 0
            if near:
                begin_j, end_j = inside(from_j, to_j, n, stride, origin, size, width)
                # Rows that lie evenly in memory go together: those of the axis before the last.
                rows, pitch, sets = 1, 0, 1
                if rank == 2:
                    rows, pitch = high - low, plan.axes[0].x_stride
                elif rank > 2:
                    rows, pitch = plan.axes[rank - 2].in_len, plan.axes[rank - 2].x_stride
                    sets = (high - low) * (lines // rows)
                for number in range(sets):
                    at = base
                    if rank == 2:
                        at += low * pitch
                    elif rank > 2:
                        position = number // (lines // rows)
                        at += (low + position) * plan.axes[0].x_stride
                        at += input_line(plan, (number - position * (lines // rows)) * rows, 0)
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
                        table,
                    )
                    place += rows * outputs
            else:
                seen = other_rows(
                    x, s, plan, base, (low, high, lines), (from_j, to_j, from_p, to_p)
                )
            if watch & (seen != 0):
                flags[item] = 1
            span, here, there = outputs * max(wide, 1), 0, plan.second_area
            if rank == 1:
                store_row(s, 0, y, target + begin * max(wide, 1), span)
                continue
            for axis in range(rank - 2, 0, -1):
                entry = plan.axes[axis]
                lines //= entry.in_len
                for line in range((high - low) * lines):
                    at, to = here + line * entry.in_len * span, there + line * entry.out_len * span
                    across_axis(
                        s, plan, axis, at, (0, entry.in_len), (0, entry.out_len), (to, span)
                    )
                span *= entry.out_len
                here, there = there, here
            if doubling and not brief(plan.axes[0]):
                if plan.axes[0].dilation == 1:
                    cells, step = plan.axes[0].taps, plan.axes[0].stride
                    start = step * begin + plan.axes[0].origin
                    at, to, count = here + (start - low) * span, target + begin * span, end - begin
                    sweep_y(s, at, span, low - start, high - start, cells, step, y, to, count)
                else:
                    across_axis(s, plan, 0, here, (low, high - low), (begin, end), (there, span))
                    store_row(s, there, y, target + begin * span, (end - begin) * span)
                continue
            for i in range(begin, end):
                w = plan.axes[0].windows[i]
                at = here + (w.start - low) * span
                to_y(s, at, w.step * span, w.in_bounds, y, target + i * span, span, False)

    return reduce_rows
