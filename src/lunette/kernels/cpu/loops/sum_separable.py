"""Sums over windows: across the first pooled axis first, along the last axis last.

The order of the additions depends on the window alone, never on where a tile or a part of an array
begins, nor on the layout: axis by axis from the first to the last, and on each axis from the first
cell to the last; on a regular axis whose windows overlap and have more than `DIRECT_SUM_MAX_TAPS` cells, by
doubling. There a window of k cells is cut into blocks whose lengths are the powers of two of k, the
longest first; each block is a balanced tree, and the blocks are added from the shortest up.
Padding is zeros, which change no sum. Each value is the sum of n cells by n − 1 additions, so it is
within γₙ₋₁ Σ|x| of the exact sum, with γₙ = n·u / (1 − n·u), before the one division.
"""

# Numba types the kernels, not mypy.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

from functools import cache
from typing import Any

from lunette.kernels.cpu.jit import intrinsics
from lunette.kernels.cpu.jit.intrinsics import compiled, noinline, pointer
from lunette.kernels.cpu.micro.divide_by_count import doubles, finished
from lunette.kernels.cpu.micro.divisors import cells_of_row
from lunette.kernels.cpu.micro.index import batch_offset, input_line, receptive_range
from lunette.kernels.cpu.micro.log_step import log_step
from lunette.kernels.cpu.micro.reduce_across import across_between
from lunette.kernels.cpu.micro.reduce_along import along_input
from lunette.kernels.cpu.micro.rows import inside, moves, passes
from lunette.kernels.cpu.schedule.records import PLAN
from lunette.kernels.cpu.simd.half import dtype_of
from lunette.kernels.cpu.simd.streaming import stream_fence
from lunette.kernels.cpu.simd.vec import vec

__all__ = ["kernel"]

plan_of = PLAN.at


@cache
def kernel(dtype: str, last: str, doubling: bool) -> Any:
    """The kernel of a mean for a dtype. What a call does not need is not compiled for it.

    On the last axis each position has `lanes`, or windows are `near` (a few cells side by side, with
    stride 1 or 2), `long` (all summed by doubling, their cells side by side) or `any`. Whether some
    axis is summed by doubling.
    """
    lane, near, long = last == "lanes", last == "near", last == "long"
    outer = dtype_of(dtype, True)
    memory, work, kept = outer.memory, outer.work, outer.kept
    inner = outer.scratch
    zero, width = work(0), vec(work, work, "").width
    load_row, _ = moves(outer)
    from_x = across_between(outer, inner, "add")
    along_s: Any = along_input(inner, "add") if near else None
    long_s: Any = log_step(inner) if long else None
    finish = finished(outer, doubling)
    along, along_table, across, double, _ = passes(work, "add")

    @compiled
    def clear(s, at, size):
        for c in range(size):
            s[at + c] = zero

    @compiled
    def doubled(s, at, to, outputs, stride, dilation, kernel, span):
        """Sums of `kernel` rows of `span` cells, `dilation` apart, by doubling in place."""
        done, started = 1, False
        reach = stride * (outputs - 1) + dilation * (kernel - 1) + 1
        while done <= kernel:
            if kernel & done:
                offset = kernel - kernel % (2 * done)
                for i in range(outputs):
                    row = at + (stride * i + offset * dilation) * span
                    across(s, row, 0, 1, to + i * span, span, started)
                started = True
            step = done * dilation
            if 2 * done <= kernel:
                double(s, at, (reach - step) * span, step * span)
            done *= 2

    @compiled
    def by_doubling(s, at, to, outputs, stride, dilation, kernel):
        """`doubled` along a row that has its padding; the row is cleared."""
        done, started = 1, False
        reach = stride * (outputs - 1) + dilation * (kernel - 1) + 1
        while done <= kernel:
            if kernel & done:
                offset = (kernel - kernel % (2 * done)) * dilation
                along(s, at + offset, to, outputs, stride, 1, 1, started)
                started = True
            if 2 * done <= kernel:
                double(s, at, reach - done * dilation, done * dilation)
            done *= 2
        clear(s, at, reach + width)

    @compiled
    def across_axis(s, plan, axis, at, held, outputs, target):
        """Outputs first … last of an axis, from rows of `span` cells at positions low … low + n."""
        noinline()
        low, n = held
        first, last = outputs
        to, span = target
        entry = plan.axes[axis]
        if doubling and doubles(plan, axis):
            stride, dilation, size = entry.stride, entry.dilation, entry.taps
            begin = stride * first + entry.origin
            reach = stride * (last - first - 1) + dilation * (size - 1) + 1
            for q in range(reach):
                row = plan.padded + q * span
                if low <= begin + q < low + n:
                    across(s, at + (begin + q - low) * span, 0, 1, row, span, False)
                else:
                    clear(s, row, span)
            doubled(s, plan.padded, to, last - first, stride, dilation, size, span)
            return
        for i in range(first, last):
            w, place = entry.windows[i], to + (i - first) * span
            if w.in_bounds == 0:
                clear(s, place, span)
            else:
                row = at + (w.start - low) * span
                across(s, row, w.step * span, w.in_bounds, place, span, False)

    @compiled
    def last_axis(s, at, pitch, rows, plan, room, to, columns):
        """Sums of windows from_j … to_j of `rows` lines, `pitch` apart in s from `at` on, to s[to …]."""
        noinline()
        from_j, to_j = columns
        w_axis = plan.axes[plan.rank - 1]
        n, table, dilation, size = w_axis.in_len, w_axis.windows, w_axis.dilation, w_axis.taps
        stride, origin, left, outputs = (
            w_axis.stride,
            w_axis.origin,
            plan.row + plan.left,
            to_j - from_j,
        )
        if near:
            first, last = inside(from_j, to_j, n, stride, origin, size, width)
            windows = (from_j, first, last, to_j, stride, origin, size, table)
            along_s(s, at, pitch, rows, n, s, to, *windows)
            return
        for r in range(rows):
            here, there = at + r * pitch, to + r * outputs
            if long:
                long_s(s, here, n, from_j, to_j, s, room, there, stride, origin, size)
            elif (size == 0) | ((stride >= size) & (size > 4)):
                along_table(s, here, table, there, from_j, to_j)
            else:
                if plan.rank > 1:
                    across(s, here, 0, 1, left, n, False)
                start = left + origin + stride * from_j
                if doubling and doubles(plan, plan.rank - 1):
                    by_doubling(s, start, there, outputs, stride, dilation, size)
                else:
                    along(s, start, there, outputs, stride, dilation, size, False)

    @intrinsics.kernel
    def reduce_columns(x_at, y_at, z_at, scratch_at, plan_at, room, first, last):
        plan, s = plan_of(plan_at), pointer(scratch_at, work)
        x, y = pointer(x_at, memory), pointer(y_at, kept)
        rank, wide = plan.rank, max(1, plan.channels)
        w_axis = plan.axes[rank - 1]
        n, m, far = w_axis.in_len, w_axis.out_len, w_axis.x_stride
        row, left, divisors = plan.row, plan.row + plan.left, pointer(plan.divisors, work)
        if not lane:
            clear(s, row, plan.row_size)
        lines = 1
        for axis in range(1, rank - 1):
            lines *= plan.axes[axis].in_len
        row_cells = n * wide
        in_row = (far == 1) & (not lane)
        as_one = lane & (far == wide)  # positions of a row lie side by side, lanes and all
        at_once, distant = (rank == 2) & (not lane), plan.out_of_cache != 0
        # Positions that no two windows share, or few, are added up where they lie.
        direct = lane & (rank == 1) & ((w_axis.taps == 0) | (w_axis.stride >= w_axis.taps))
        for unit in range(first, last):
            item, tile = unit // plan.tiles, unit % plan.tiles
            base, target = batch_offset(plan, item, 0), batch_offset(plan, item, 1)
            begin, end = tile * plan.tile, min(plan.axes[0].out_len, (tile + 1) * plan.tile)
            from_j, to_j, from_p, to_p = 0, m, 0, n
            block = lines * row_cells
            area = plan.second_area
            if rank == 1:
                from_j, to_j = begin, end
                begin, end = 0, 1
            outputs = to_j - from_j
            # The first axis, into the second area: a block for each of its outputs.
            if rank == 1:
                from_p, to_p = receptive_range(plan, 0, from_j, to_j)
                if direct:
                    to_p = from_p
                elif lane:
                    for p in range(from_p, to_p):
                        load_row(x, base + p * far, 1, s, area + (p - from_p) * wide, wide, zero)
                else:
                    load_row(x, base + from_p * far, far, s, left + from_p, to_p - from_p, zero)
            elif doubling and doubles(plan, 0):
                low, high = receptive_range(plan, 0, begin, end)
                for position in range(low, high):
                    for line in range(lines):
                        at = base + input_line(plan, line, 0) + position * plan.axes[0].x_stride
                        to = ((position - low) * lines + line) * row_cells
                        if lane:
                            for p in range(n):
                                load_row(x, at + p * far, 1, s, to + p * wide, wide, zero)
                        else:
                            load_row(x, at, far, s, to, n, zero)
                across_axis(s, plan, 0, 0, (low, high - low), (begin, end), (area, block))
            else:
                for i in range(begin, end):
                    w = plan.axes[0].windows[i]
                    step, count = w.step * plan.axes[0].x_stride, w.in_bounds
                    for line in range(lines):
                        at = base + input_line(plan, line, 0) + w.start * plan.axes[0].x_stride
                        to = area + ((i - begin) * lines + line) * row_cells
                        if count == 0:
                            clear(s, to, row_cells)
                        elif in_row | as_one:
                            from_x(x, at, step, count, s, to, row_cells, distant)
                        elif lane:
                            for p in range(n):
                                from_x(
                                    x, at + p * far, step, count, s, to + p * wide, wide, distant
                                )
                        else:
                            load_row(x, at, far, s, to, n, zero)
                            for t in range(1, count):
                                load_row(x, at + t * step, far, s, row, n, zero)
                                across(s, row, 0, 1, to, n, True)
                            clear(s, row, n + width)
            if at_once:
                # All sums of a tile before the first mean: what is just written is slow to read.
                last_axis(s, area, block, end - begin, plan, room, 0, (from_j, to_j))
            for i in range(begin, end):
                # The axes between, block by block, from one area to the other.
                here, there, other = area + (i - begin) * block, 0, plan.third_area
                before, span = 1, block
                for axis in range(1, rank - 1):
                    entry = plan.axes[axis]
                    cells, made = entry.in_len, entry.out_len
                    span //= cells
                    for line in range(before):
                        at, to = here + line * cells * span, there + line * made * span
                        across_axis(s, plan, axis, at, (0, cells), (0, made), (to, span))
                    before *= made
                    here, there, other = there, other, there
                # The last axis, line by line.
                for line in range(before):
                    at, to = here + line * row_cells, plan.result
                    result = target + (line + i * before) * m * wide + from_j * wide
                    if at_once:
                        to = (i - begin) * outputs
                    elif direct:
                        for j in range(from_j, to_j):
                            w, place = w_axis.windows[j], to + (j - from_j) * wide
                            step, start = w.step * far, base + w.start * far
                            if w.in_bounds == 0:
                                clear(s, place, wide)
                            else:
                                from_x(x, start, step, w.in_bounds, s, place, wide, distant)
                    elif lane:
                        cells = to_p - from_p
                        across_axis(
                            s, plan, rank - 1, at, (from_p, cells), (from_j, to_j), (to, wide)
                        )
                    else:
                        at = left if rank == 1 else at
                        last_axis(s, at, 0, 1, plan, room, to, (from_j, to_j))
                    factor = cells_of_row(plan, i * before + line)
                    finish(s, plan, to, divisors, factor, y, result, from_j, to_j)
            if (rank == 1) & (not lane):
                clear(s, left + from_p, to_p - from_p + width)
        stream_fence()

    return reduce_columns
