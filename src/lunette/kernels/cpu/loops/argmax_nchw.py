"""Who wins each small window of a max: values and marks, neighbours side by side.

Rows are read where they lie (`winning_rows`); those whose elements are not side by side are laid so
first.

A mark is the winner's place in the window's box of taps, in row-major order, in one byte; taps on
padding count. `offsets` keeps the marks for a gradient, `kept` the values as well; `indices` writes each
winner's flat position; `jvp` reads the tangent there, or takes it along (`max_tangent_rows`). Numbers are taken on trust: an item with a NaN is flagged, to be done again.
"""

# Numba types the kernels, not mypy.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

from functools import cache
from typing import Any

from numba import types

from lunette.kernels.cpu.jit import intrinsics
from lunette.kernels.cpu.jit.intrinsics import compiled, pointer
from lunette.kernels.cpu.micro.argmax_passes import mark_of
from lunette.kernels.cpu.micro.argmax_rows import winning_rows
from lunette.kernels.cpu.micro.index import batch_offset, list_offsets, list_tap_ids, skipped
from lunette.kernels.cpu.micro.max_tangent_rows import max_tangent_rows
from lunette.kernels.cpu.micro.polyphase import leading_place, rows_of, tile_of, tile_rows
from lunette.kernels.cpu.micro.rows import moves
from lunette.kernels.cpu.schedule.records import TILING
from lunette.kernels.cpu.schedule.tiling import SPARE
from lunette.kernels.cpu.simd.half import DType, dtype_of, same
from lunette.kernels.cpu.simd.prefetch import prefetch_by_rows
from lunette.kernels.cpu.simd.vec import vec

__all__ = ["kernel"]

tiling_of = TILING.at


@cache
def kernel(dtype: str, verb: str) -> Any:
    """The kernel of a verb for a dtype; no window may be empty or have more than 255 cells.

    Array 1 has the values (for `jvp` the tangents of the result); array 2 the marks, the positions
    or the tangent.
    """
    outer = dtype_of(dtype, False)
    memory, work, read, write = outer.memory, outer.work, outer.load, outer.store
    lay = moves(DType(memory, memory, memory, same, same, "")).load_row
    zero, nothing = work(0), memory(0)
    size_of, width = memory.bitwidth // 8, vec(work, work, "").width
    keeps, gathers = verb in ("offsets", "kept"), verb == "jvp"
    indexes = verb == "indices"
    # A number as wide as those of the arithmetic holds a place, if it has four bytes.
    carries = indexes and mark_of(work).bitwidth >= 32
    any_row, by_one, by_two = winning_rows(outer, verb in ("indices", "kept"), carries)
    follow_one: Any = max_tangent_rows(outer, 1) if gathers else None
    follow_two: Any = max_tangent_rows(outer, 2) if gathers else None

    @compiled
    def place_cells(plan, places, lists, layer, rows, start, step, code):
        """Where the cells of a layer of a row of windows are in array 2, or flat, by the numbers of their taps.

        From the place of the first tap in its row on; the first cell of the first row is tap `code`.
        """
        rank, most_cells = plan.rank, plan.max_leads
        w_axis, h_axis = plan.axes[rank - 1], plan.axes[max(0, rank - 2)]
        size, dilation, far, pitch, flat = w_axis.taps, w_axis.dilation, w_axis.z_stride, 0, 0
        if rank > 1:
            pitch, flat = h_axis.z_stride, h_axis.flat_stride
        for r in range(rows):
            for t in range(size):
                if indexes:
                    at = lists[2 * most_cells + layer] + (start + r * step) * flat + t * dilation
                else:
                    at = lists[most_cells + layer] + (start + r * step) * pitch + t * dilation * far
                places[code + r * size + t] = at

    @intrinsics.kernel
    def win(x_at, y_at, z_at, scratch_at, plan_at, flags_at, begin_unit, end_unit):
        plan, flags = tiling_of(plan_at), pointer(flags_at, types.uint8)
        lists, s = pointer(scratch_at, types.int64), pointer(scratch_at + plan.area, memory)
        x, y = pointer(x_at, memory), pointer(y_at, memory)
        kept, indices, dx = (
            pointer(z_at, types.uint8),
            pointer(z_at, types.int64),
            pointer(z_at, memory),
        )
        rank, most_cells = plan.rank, plan.max_leads
        w_axis = plan.axes[rank - 1]
        h_axis = plan.axes[max(0, rank - 2)]
        pitch_x, pitch_y, pitch_z, box, flat = 0, 0, 0, 1, 0
        if rank > 1:
            pitch_x, pitch_y, box = h_axis.x_stride, h_axis.y_stride, h_axis.box
            pitch_z, flat = h_axis.z_stride, h_axis.flat_stride
        n, m, far, far_z, stride, size = (
            w_axis.in_len,
            w_axis.out_len,
            w_axis.x_stride,
            w_axis.z_stride,
            w_axis.stride,
            w_axis.taps,
        )
        origin, dilation = w_axis.origin, w_axis.dilation
        slot, deep = plan.row_stride, plan.tile_rows * plan.row_stride
        row_marks = pointer(
            scratch_at + plan.area + size_of * (most_cells * deep + SPARE), types.uint8
        )
        layer_taps = pointer(scratch_at + 24 * most_cells, types.int64)
        row_places = pointer(scratch_at + 32 * most_cells, types.int64)
        source, row_bytes = x if far == 1 else s, size_of * plan.row_bytes
        quick = (width <= 16) & (stride <= 2) & (dilation == 1) & ((size == 2) | (size == 3))
        for unit in range(begin_unit, end_unit):
            item, lead, row_tile, column_tile = tile_of(plan, unit)
            begin, end, low, high = tile_rows(plan, row_tile, 1)
            from_j = column_tile * plan.columns
            columns = min(m, from_j + plan.columns) - from_j
            follows = gathers & quick & (far == 1) & (far_z == 1) & (columns >= width)
            leads, _ = list_offsets(plan, rank - 2, lead, lists, most_cells)
            list_tap_ids(plan, rank - 2, lead, layer_taps)
            base, third, seen = batch_offset(plan, item, 0), batch_offset(plan, item, 2), False
            # Elements of a row that are not side by side are laid so, from `left` on.
            left, right, pitch, first_row = 0, n, pitch_x, 0
            if far != 1:
                left = max(0, min(n, stride * from_j + origin))
                right = stride * (from_j + columns - 1) + origin + dilation * (size - 1) + 1
                right, pitch, first_row = max(left, min(n, right)), slot, low
                for layer in range(leads):
                    for row in range(low, high):
                        at, to = (
                            base + lists[layer] + row * pitch_x,
                            layer * deep + (row - low) * slot,
                        )
                        lay(x, at + left * far, far, s, to, right - left, nothing)
            target = batch_offset(plan, item, 1) + leading_place(plan, lead, 1, 1) + from_j
            rows_before = lead * (h_axis.out_len if rank > 1 else 1)
            known, known_skip, count, row_codes, places = -1, 0, 0, row_places, row_places
            dx_rows = row_places
            prefetched = read_to = base * size_of + (rows_before + begin) * row_bytes
            asked_dx = third * size_of + (rows_before + begin) * row_bytes
            behind = asked_dx - read_to
            p, firsts = (
                stride * from_j + origin,
                pointer(plan_at + 8 * plan.first_taps_at + from_j, types.uint8),
            )
            for i in range(begin, end):
                start, step, rows, _ = rows_of(plan, i)
                skip = skipped(h_axis, i) if rank > 1 else 0
                if row_bytes > 0:
                    read_to += row_bytes
                    prefetched = prefetch_by_rows(x_at, prefetched, read_to, n * size_of, 0)
                    if follows:
                        asked_dx = prefetch_by_rows(
                            z_at, asked_dx, read_to + behind, n * size_of, 0
                        )
                if (rows != known) | (skip != known_skip):
                    known, known_skip, count = rows, skip, leads * rows
                    row_codes = pointer(scratch_at + 32 * most_cells + 8 * count, types.int64)
                    # Where cells are by their taps, or rows of tangents.
                    places = pointer(scratch_at + 32 * most_cells + 16 * count, types.int64)
                    dx_rows = places
                    for row in range(count):
                        layer, r = row // rows, row % rows
                        to = lists[layer] if far == 1 else layer * deep
                        row_places[row] = to + r * step * pitch
                        row_codes[row] = (layer_taps[layer] * box + skip + r) * size
                        if carries:
                            row_codes[row] = lists[2 * most_cells + layer] + r * step * flat
                        if follows:
                            dx_rows[row] = lists[most_cells + layer] + r * step * pitch_z
                q = target + i * pitch_y
                flat_y = item * plan.outputs + (rows_before + i) * m + from_j
                at = (base if far == 1 else -left) + (start - first_row) * pitch
                if carries:
                    marks, k = indices, q
                elif keeps:
                    marks, k = kept, flat_y
                else:
                    marks, k = row_marks, 0
                long, first_place = size == 3, start * flat + p
                if gathers and follows:
                    to = third + start * pitch_z
                    followed = (x, at, row_places, dx, to, dx_rows, count, p, n, long)
                    if stride == 2:
                        seen |= follow_two(*followed, y, q, columns)
                    else:
                        seen |= follow_one(*followed, y, q, columns)
                    continue
                read_from = (source, at, row_places, row_codes, count, p, right)
                written = (y, q, marks, k, firsts, columns, first_place)
                if not gathers and quick & (stride == 2):
                    seen |= by_two(*read_from, long, *written)
                elif not gathers and quick:
                    seen |= by_one(*read_from, long, *written)
                else:
                    seen |= any_row(*read_from, stride, dilation, size, *written)
                if keeps or carries:
                    continue
                for layer in range(leads):
                    place_cells(
                        plan, places, lists, layer, rows, start, step, row_codes[layer * rows]
                    )
                for c in range(columns):
                    place = places[row_marks[c]]
                    position = stride * (from_j + c) + origin
                    if indexes:
                        indices[q + c] = place + position
                    if gathers:
                        y[q + c] = write(read(dx[third + place + position * far_z]) + zero)
            if seen:
                flags[item] = 1

    return win
