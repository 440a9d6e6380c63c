"""Tangents of winners that were kept: each output takes what stands where its mark says.

A mark is the winner's place in the window's box of taps (`offsets.py`). Where a tap is in memory repeats from row to row, so a
table of taps serves many rows. A mark that is no cell of its window is not followed, and its item is flagged.
"""

# Numba types the kernels, not mypy.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

from functools import cache
from typing import Any

from numba import types

from lunette.kernels.cpu.jit import intrinsics
from lunette.kernels.cpu.jit.intrinsics import compiled, noinline, pointer
from lunette.kernels.cpu.micro.index import batch_offset, list_offsets, list_tap_ids, skipped
from lunette.kernels.cpu.micro.polyphase import leading_place, rows_of, tile_of, tile_rows
from lunette.kernels.cpu.schedule.records import TILING
from lunette.kernels.cpu.simd.half import dtype_of
from lunette.kernels.cpu.simd.prefetch import prefetch_by_rows
from lunette.kernels.cpu.tuning import ARGMAX_CODES

__all__ = ["kernel"]

tiling_of = TILING.at

NO_COLUMN = 1 << 40
"""A column that no row has."""


@cache
def kernel(dtype: str) -> Any:
    """The kernel for a dtype: array 0 is the tangent of the input, 1 that of the result, 2 the marks in row-major order."""
    outer = dtype_of(dtype, False)
    memory, work, read, write = outer.memory, outer.work, outer.load, outer.store
    zero, size_of = work(0), memory.bitwidth // 8

    @compiled
    def list_places(plan, leading, window, places, columns):
        """Of each mark: where its cell is in a window at position 0, and its column from there; `NO_COLUMN` if it is none."""
        noinline()
        lists, taps, leads = leading
        rows, step, skip = window
        rank = plan.rank
        w_axis, h_axis = plan.axes[rank - 1], plan.axes[max(0, rank - 2)]
        size, pitch, box = w_axis.taps, 0, 1
        if rank > 1:
            pitch, box = h_axis.x_stride, h_axis.box
        for mark in range(ARGMAX_CODES):
            places[mark], columns[mark] = 0, NO_COLUMN
        for layer in range(leads):
            for r in range(rows):
                for t in range(size):
                    mark, column = (taps[layer] * box + skip + r) * size + t, t * w_axis.dilation
                    places[mark] = lists[layer] + r * step * pitch + column * w_axis.x_stride
                    columns[mark] = column

    @intrinsics.kernel
    def take(dx_at, y_at, marks_at, scratch_at, plan_at, flags_at, begin_unit, end_unit):
        plan, flags = tiling_of(plan_at), pointer(flags_at, types.uint8)
        places = pointer(scratch_at, types.int64)
        columns_of = pointer(scratch_at + 8 * ARGMAX_CODES, types.int64)
        lists = pointer(scratch_at + 16 * ARGMAX_CODES, types.int64)
        taps = pointer(scratch_at + 16 * ARGMAX_CODES + 24 * plan.max_leads, types.int64)
        dx, y, marks = pointer(dx_at, memory), pointer(y_at, memory), pointer(marks_at, types.uint8)
        rank = plan.rank
        w_axis, h_axis = plan.axes[rank - 1], plan.axes[max(0, rank - 2)]
        pitch, pitch_y, lines, row_bytes = 0, 0, 1, plan.row_bytes * size_of
        if rank > 1:
            pitch, pitch_y, lines = h_axis.x_stride, h_axis.y_stride, h_axis.out_len
        n, m, far, stride, origin = (
            w_axis.in_len,
            w_axis.out_len,
            w_axis.x_stride,
            w_axis.stride,
            w_axis.origin,
        )
        for unit in range(begin_unit, end_unit):
            item, lead, row_tile, column_tile = tile_of(plan, unit)
            begin, end, _, _ = tile_rows(plan, row_tile, 1)
            from_j = column_tile * plan.columns
            outputs = min(m, from_j + plan.columns) - from_j
            leads, _ = list_offsets(plan, rank - 2, lead, lists, plan.max_leads)
            list_tap_ids(plan, rank - 2, lead, taps)
            base, nonfinite, known, known_skip = batch_offset(plan, item, 0), False, -1, 0
            prefetched = read_to = base * size_of + (lead * lines + begin) * row_bytes
            target = batch_offset(plan, item, 1) + leading_place(plan, lead, 1, 1) + from_j
            for i in range(begin, end):
                start, step, rows, _ = rows_of(plan, i)
                skip = skipped(h_axis, i) if rank > 1 else 0
                if (rows != known) | (skip != known_skip):
                    known, known_skip = rows, skip
                    list_places(plan, (lists, taps, leads), (rows, step, skip), places, columns_of)
                at, to = base + start * pitch, target + i * pitch_y
                k = item * plan.outputs + (lead * lines + i) * m + from_j
                if row_bytes > 0:
                    read_to += row_bytes
                    prefetched = prefetch_by_rows(dx_at, prefetched, read_to, n * size_of, 0)
                for c in range(outputs):
                    mark, position = marks[k + c], stride * (from_j + c) + origin
                    column = position + columns_of[mark]
                    found = (column >= 0) & (column < n)
                    nonfinite |= not found
                    place = at + places[mark] + position * far if found else base
                    y[to + c] = write(read(dx[place]) + zero)
            if nonfinite:
                flags[item] = 1

    return take
