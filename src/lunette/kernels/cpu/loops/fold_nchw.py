"""The rows of a window folded into one, then along the last axis: values of small windows.

It serves a max of two axes or more, and a mean of two, where cells of a row lie side by side, windows
lie alike on the last axis, and few of them share a row. A row of the input is read where it lies.

Of equal cells a max keeps the first in row-major order, which differ only where they are zeros of
either sign. This order is another, so where a maximum is zero and a −0 is near, the item is flagged to
be done again in order; where there is a NaN, by a kernel that knows them. A mean adds the cells of a column from the first to the last, then the columns so.
"""

# Numba types the kernels, not mypy.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

from functools import cache
from typing import Any

from numba import types

from lunette.kernels.cpu.jit import intrinsics
from lunette.kernels.cpu.jit.intrinsics import alwaysinline, compiled, pointer
from lunette.kernels.cpu.micro.divisors import cells_of_row
from lunette.kernels.cpu.micro.fold import folding
from lunette.kernels.cpu.micro.guards import guards
from lunette.kernels.cpu.micro.index import batch_offset, list_offsets, rows_of_planes
from lunette.kernels.cpu.micro.row_windows import alike, rows_alike
from lunette.kernels.cpu.schedule.records import PLAN
from lunette.kernels.cpu.schedule.slots import DIRECT, LINE_BUFFER
from lunette.kernels.cpu.simd.half import INFINITY
from lunette.kernels.cpu.simd.prefetch import prefetch_surely
from lunette.kernels.cpu.simd.streaming import line_buffer, stream_fence
from lunette.kernels.cpu.simd.strided import gathered, strided
from lunette.kernels.cpu.simd.vec import vec
from lunette.kernels.cpu.tuning import LINE, MAX_TILE_ROWS

__all__ = ["kernel"]

plan_of = PLAN.at

MOST_PLANES = 32
"""Planes of a window whose rows are asked for ahead, at most."""

WAITING, NEXT = 1 << 18, 1 << 13
"""Bytes between planes and those asked for, at most; and how far ahead rows of these planes are asked for else."""


@compiled
def planes_ahead(planes, count, beyond, ahead, size):
    """What is asked for while a row of windows is made: where it is, in bytes. Gives how many rows there are.

    Of planes `beyond` these, those that are not among these. Where they are too large to wait in a cache until then,
    what comes next in these.
    """
    more = 0
    for plane in range(count if count <= MOST_PLANES else 0):
        place, new = planes[plane] + beyond, True
        if beyond * size > WAITING:
            place = planes[plane] + NEXT // size
        else:
            for other in range(count):
                new &= planes[other] != place
        if new:
            ahead[more] = place * size
            more += 1
    return more


@cache
def kernel(dtype: str, operation: str, way: str, folds: str) -> Any:
    """The kernel of an operation, `max_num` or `add`, for a dtype, and the way of `rows_alike` if there is one.

    No window of a max may be empty. Where there is a way, it may be known how a window's rows are folded: there is
    "one"; or, for a mean of three axes, those that lie "across" planes are added first.
    """
    summing = operation == "add"
    outer, fill, safe, fold, negative, end = folding(dtype, operation)
    memory, work, kept = outer.memory, outer.work, outer.kept
    here = vec(work, work, "")
    width, load_s = here.width, here.load
    # Where there is a way, strides are 1 or 2, and what nobody runs makes the rest slower.
    every = (gathered if way else strided)(work, work, "")
    concat_even, join, broadcast = here.concat_even, getattr(here, operation), here.broadcast
    all_true, _, failed, *_ = guards(work, outer.half)
    halves = outer.half in INFINITY
    size_of, kept_size = memory.bitwidth // 8, kept.bitwidth // 8
    flush_lines, flush_tail = line_buffer()

    @compiled
    def windows(s, p, stride, dilation, kernel):
        """Windows of any size, stride and dilation."""
        alwaysinline()
        if stride == 1:
            best = load_s(s, p)
        elif stride == 2:
            best = concat_even(load_s(s, p), load_s(s, p + width))
        else:
            best = every(s, p, stride)
        for _ in range(1, kernel):
            p += dilation
            if stride == 1:
                best = join(best, load_s(s, p))
            elif stride == 2:
                best = join(best, concat_even(load_s(s, p), load_s(s, p + width)))
            else:
                best = join(best, every(s, p, stride))
        return best

    @compiled
    def along(s, at, factors, target, window):
        """y[to + j] = the fold of s[at + stride·j + dilation·t], t < kernel, for j < m.

        Gives whether a result is zero.
        """
        alwaysinline()
        divisors, factor = factors
        y, to, m, streaming = target
        stride, dilation, kernel = window
        lead, trusted = broadcast(factor), all_true()
        for j in range(0, m, width):
            value = windows(s, at + stride * j, stride, dilation, kernel)
            trusted = end(value, divisors, j, lead, y, to + j, m - j, streaming, trusted)
        return failed(trusted)

    together, lone, across_planes = way != "", folds == "one", folds == "across"
    pool = rows_alike(outer, operation, way, safe, end, folds)

    @intrinsics.kernel
    def fold_rows(x_at, y_at, z_at, scratch_at, plan_at, flags_at, first, last):
        plan, s = plan_of(plan_at), pointer(scratch_at, work)
        x, y = pointer(x_at, memory), pointer(y_at, kept)
        flags = pointer(flags_at, types.uint8)
        planes = pointer(scratch_at + plan.lists, types.int64)
        rows = pointer(scratch_at + plan.lists + 24 * plan.list_size, types.int64)
        rank, divisors = plan.rank, pointer(plan.divisors, work)
        w_axis, h_axis = plan.axes[rank - 1], plan.axes[rank - 2]
        n, m, stride, origin = w_axis.in_len, w_axis.out_len, w_axis.stride, w_axis.origin
        dilation, kernel = w_axis.dilation, w_axis.taps
        for c in range(plan.folded_row):
            s[c] = fill
        # Windows further on along the axis before the last two read planes so far away.
        ahead, beyond, more = (
            pointer(scratch_at + plan.lists + 8 * plan.list_size, types.int64),
            0,
            0,
        )
        planes_follow = (rank > 2) & (0 < h_axis.x_stride <= 2 * n)
        if planes_follow:
            beyond = plan.axes[rank - 3].stride * plan.axes[rank - 3].x_stride
        row, lines, across = plan.folded_left, h_axis.out_len, 1
        for axis in range(1, rank - 1):
            across *= plan.axes[axis].out_len
        row_bytes, streaming = (
            plan.row_bytes * size_of,
            (plan.stream == DIRECT) & (y_at % LINE == 0),
        )
        by_lines, stage_at = plan.stream == LINE_BUFFER, scratch_at + plan.stage
        stage = pointer(stage_at, kept)
        for unit in range(first, last):
            item, tile = unit // plan.folded_tiles, unit % plan.folded_tiles
            base, target, seen, count = (
                batch_offset(plan, item, 0),
                batch_offset(plan, item, 1),
                False,
                0,
            )
            mixed, known = False, -1
            # Rows of results by number, in the order of memory.
            begin, end = (
                tile * plan.folded_tile * across,
                min(plan.axes[0].out_len, (tile + 1) * plan.folded_tile) * across,
            )
            prefetched = read_to = base * size_of + begin * row_bytes
            output, line = begin // lines, begin % lines
            line_at = y_at + kept_size * (target + begin * m)
            filled = skip = line_at % LINE
            line_at -= skip
            number = begin
            while number < end:
                if (number == begin) | (line == 0):
                    count, _ = list_offsets(plan, rank - 2, output, planes, plan.list_size)
                    known, more = -1, 0
                    if planes_follow:
                        more = planes_ahead(planes, count, beyond, ahead, size_of)
                w = h_axis.windows[line]
                start, step, length = (
                    base + w.start * h_axis.x_stride,
                    w.step * h_axis.x_stride,
                    w.in_bounds,
                )
                if length != known:
                    rows_of_planes(planes, count, step, length, rows, across_planes)
                    known = length
                factor, total, taken, down = work(1), count * length, 1, 0
                if summing:
                    factor = work(cells_of_row(plan, number))
                to, nonfinite, zero_found = target + number * m, False, False
                result = y
                if by_lines:
                    result, to = stage, filled // kept_size
                if together & (total > (0 if lone else 1)):
                    taken, down = alike(
                        plan, line, min(MAX_TILE_ROWS, lines - line, end - number), summing
                    )
                    down *= h_axis.x_stride
                    read = (x, start, rows, total, count, down, taken, n, origin)
                    written = (divisors, factor, result, to, m, streaming)
                    flowing = (by_lines, stage_at, line_at, filled, skip)
                    asks = (x_at, prefetched, read_to, row_bytes, ahead, more)
                    found = pool(read, written, flowing, asks)
                    nonfinite, zero_found, (line_at, filled, skip), prefetched = found
                else:
                    if row_bytes > 0:
                        prefetched = prefetch_surely(x_at, prefetched, read_to + row_bytes)
                    if total > 0:
                        nonfinite = fold(x, start, rows, total, n, s, row)
                    else:
                        for c in range(n):
                            s[row + c] = fill
                    zero_found = along(
                        s,
                        row + origin,
                        (divisors, factor),
                        (result, to, m, streaming),
                        (stride, dilation, kernel),
                    )
                    if by_lines:
                        filled += kept_size * m
                        line_at, filled, skip = flush_lines(stage_at, line_at, filled, skip)
                if zero_found:
                    for i in range(taken):
                        mixed |= negative(x, start + i * down, rows, total, n)
                seen |= nonfinite
                read_to += row_bytes * taken
                number += taken
                line += taken
                if line == lines:
                    output, line = output + 1, 0
            if by_lines:
                flush_tail(stage_at, line_at, filled, skip)
            if seen:
                flags[item] = 1
            if mixed:  # of halves no quick kernel knows what to do with a −0
                flags[item if halves else plan.items + item] = 1
        stream_fence()

    return fold_rows
