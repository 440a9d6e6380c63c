"""The gradient of a max of small windows: every input gathers from the outputs that read it, in their order.

A tile of inputs lays out the marks of the rows of outputs that read it; then each vector of inputs adds
what each reader sends: the gradient where the mark is this cell's. It is read where it lies, unless
the elements of a row are not side by side. Sums start from +0 and follow the row-major order of
outputs, as in the specification, so no bit depends on tiles or threads.
"""

# Numba types the kernels, not mypy.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

from functools import cache
from typing import Any

from numba import types

from lunette.kernels.cpu.jit import intrinsics
from lunette.kernels.cpu.jit.intrinsics import alwaysinline, compiled, noinline, pointer
from lunette.kernels.cpu.micro.index import batch_offset
from lunette.kernels.cpu.micro.polyphase import (
    layout,
    leading_place,
    leading_readers,
    tile_of,
    tile_rows,
)
from lunette.kernels.cpu.schedule.records import TILING
from lunette.kernels.cpu.schedule.tiling import KINDS, SPARE
from lunette.kernels.cpu.simd.half import DType, dtype_of, same
from lunette.kernels.cpu.simd.prefetch import prefetch
from lunette.kernels.cpu.simd.streaming import stream, stream_fence
from lunette.kernels.cpu.simd.vec import vec
from lunette.kernels.cpu.tuning import LINE

__all__ = ["kernel"]

tiling_of = TILING.at


NOBODY = types.uint8(255)
"""The mark outside a row of outputs: no cell has that number."""


@cache
def kernel(dtype: str) -> Any:
    """The kernel for a dtype: array 0 is the marks, 1 the gradient of the result, 2 that of the input."""
    outer = dtype_of(dtype, False)
    memory, work = outer.memory, outer.work
    here, to_x = vec(work, work, ""), vec(memory, work, outer.half)
    width, broadcast, add = here.width, here.broadcast, here.add
    interleave_lower, interleave_upper, load_where_equal = (
        here.interleave_lower,
        here.interleave_upper,
        to_x.load_where_equal,
    )
    store_x, store_x_part, store_x_step = to_x.store, to_x.store_n, to_x.scatter_strided
    byte = types.uint8
    lay = layout(DType(memory, memory, memory, same, same, ""), "", rarely=True)
    lay_marks = layout(DType(byte, byte, byte, same, same, ""), "")
    zero, nothing, whole_lines = work(0), memory(0), memory == work
    size_of = memory.bitwidth // 8

    @compiled
    def two(s, q, k, i, entries, first, last):
        """What two vectors of cells of a phase receive, with entries first … last of a list.

        `k` and `i` are where the marks and the gradients of their first reader would be.
        """
        alwaysinline()
        a, b = broadcast(zero), broadcast(zero)
        for entry in range(first, last):
            to, at = k + entries[3 * entry], i + entries[3 * entry + 1]
            mark = byte(entries[3 * entry + 2])
            a = add(a, load_where_equal(s, at, q, to, mark))
            b = add(b, load_where_equal(s, at + width, q, to + width, mark))
        return a, b

    @compiled
    def four(s, q, k, i, entries, first, last):
        """The same of four vectors."""
        alwaysinline()
        a, b, d, e = broadcast(zero), broadcast(zero), broadcast(zero), broadcast(zero)
        for entry in range(first, last):
            to, at = k + entries[3 * entry], i + entries[3 * entry + 1]
            mark = byte(entries[3 * entry + 2])
            a = add(a, load_where_equal(s, at, q, to, mark))
            b = add(b, load_where_equal(s, at + width, q, to + width, mark))
            d = add(d, load_where_equal(s, at + 2 * width, q, to + 2 * width, mark))
            e = add(e, load_where_equal(s, at + 3 * width, q, to + 3 * width, mark))
        return a, b, d, e

    @compiled
    def keep(gx, at, value, left, streaming):
        """A vector of the result, or what is left of the row; past the caches where that is asked for."""
        alwaysinline()
        if left >= width:
            if whole_lines & streaming:
                stream(gx, at, value)
            else:
                store_x(gx, at, value)
        elif left > 0:
            store_x_part(gx, at, value, left)

    @compiled
    def keep_joined(gx, at, a, b, left, streaming):
        """Two phases of stride 2, as they alternate."""
        alwaysinline()
        keep(gx, at, interleave_lower(a, b), left, streaming)
        keep(gx, at + width, interleave_upper(a, b), left - width, streaming)

    @compiled
    def a_row(senders, ends, entries, target, blocks, stride, streaming):
        """A row of inputs: `left` of them from `at` on in gx, in `blocks` of `stride`.

        The entries of a phase end where `ends` says.
        """
        alwaysinline()
        s, q, k, i = senders
        gx, at, left = target
        one, both, c = ends[0], ends[1], 0
        while c < blocks:
            place, rest = at + stride * c, left - stride * c
            if (stride <= 2) & (c + 2 * width < blocks):
                a, b, d, e = four(s, q, k + c, i + c, entries, 0, one)
                if stride == 1:
                    keep(gx, place, a, rest, streaming)
                    keep(gx, place + width, b, rest - width, streaming)
                    keep(gx, place + 2 * width, d, rest - 2 * width, streaming)
                    keep(gx, place + 3 * width, e, rest - 3 * width, streaming)
                else:
                    h, j, m, n = four(s, q, k + c, i + c, entries, one, both)
                    keep_joined(gx, place, a, h, rest, streaming)
                    keep_joined(gx, place + 2 * width, b, j, rest - 2 * width, streaming)
                    keep_joined(gx, place + 4 * width, d, m, rest - 4 * width, streaming)
                    keep_joined(gx, place + 6 * width, e, n, rest - 6 * width, streaming)
                c += 4 * width
                continue
            a, b = two(s, q, k + c, i + c, entries, 0, one)
            if stride == 1:
                keep(gx, place, a, rest, streaming)
                keep(gx, place + width, b, rest - width, streaming)
            elif stride == 2:
                d, e = two(s, q, k + c, i + c, entries, one, both)
                keep_joined(gx, place, a, d, rest, streaming)
                keep_joined(gx, place + 2 * width, b, e, rest - 2 * width, streaming)
            else:
                for phase in range(stride):
                    if phase > 0:
                        a, b = two(s, q, k + c, i + c, entries, ends[phase - 1], ends[phase])
                    cells_left = max(0, (rest - phase + stride - 1) // stride)
                    store_x_step(gx, place + phase, stride, a, min(width, cells_left))
                    cells_left = max(0, cells_left - width)
                    other = place + phase + stride * width
                    store_x_step(gx, other, stride, b, min(width, cells_left))
            c += 2 * width

    @compiled
    def listed(ends, entries, plan, lists, leads, first, last, frame):
        """What a row receives, by phase, in the order of outputs: where marks and gradients are from those
        of the first reader on, and the number of the cell. Readers first … last of each layer."""
        noinline()
        most, deep, slot, pitch, in_place, box, stride, size = frame
        taps, entry = plan.taps_at, 0
        pairs = taps + stride + 1
        for phase in range(stride):
            for layer in range(leads):
                for reader in range(first, last, 2):
                    i, row = 0, 0
                    if box > 0:
                        i, row = (
                            plan.numbers[reader] - plan.numbers[first],
                            plan.numbers[reader + 1],
                        )
                    code = (lists[2 * most + layer] * max(1, box) + row) * size
                    place = layer * deep + i * slot
                    other = lists[layer] + i * pitch if in_place else place
                    for tap in range(plan.numbers[taps + phase], plan.numbers[taps + phase + 1]):
                        back = plan.numbers[pairs + 2 * tap + 1]
                        entries[3 * entry], entries[3 * entry + 1] = place - back, other - back
                        entries[3 * entry + 2] = code + plan.numbers[pairs + 2 * tap]
                        entry += 1
            ends[phase] = entry

    @intrinsics.kernel
    def gather(marks_at, gy_at, gx_at, scratch_at, plan_at, flags_at, begin_unit, end_unit):
        plan = tiling_of(plan_at)
        lists, s = pointer(scratch_at, types.int64), pointer(scratch_at + plan.area, memory)
        gy, gx, marks = pointer(gy_at, memory), pointer(gx_at, memory), pointer(marks_at, byte)
        rank, most = plan.rank, plan.max_leads
        w_axis = plan.axes[rank - 1]
        h_axis = plan.axes[max(0, rank - 2)]
        pitch_y, pitch_gx, box, of_row, inner = 0, 0, 0, 0, 0
        if rank > 1:
            pitch_y, pitch_gx = h_axis.y_stride, h_axis.z_stride
            box, of_row, inner = h_axis.box, h_axis.readers_at, w_axis.out_len
        n, m, far_y, stride, size = (
            w_axis.in_len,
            w_axis.out_len,
            w_axis.y_stride,
            w_axis.stride,
            w_axis.taps,
        )
        slot, deep, second = (
            plan.row_stride,
            plan.tile_rows * plan.row_stride,
            most * plan.tile_rows * plan.row_stride + SPARE,
        )
        q = pointer(scratch_at + plan.area + size_of * second, byte)
        frame = (most, deep, slot, pitch_y, far_y == 1, box, stride, size)
        known = pointer(scratch_at + 24 * most, types.int64)
        lists_at, kinds = scratch_at + 24 * most + 8 * KINDS, plan.row_kinds_at
        room = 8 * (3 * plan.max_readers * size + stride + 1)
        for kind in range(KINDS):
            known[kind] = -1
        row_bytes, blocks_in_row = size_of * plan.row_bytes, (n + stride - 1) // stride
        for unit in range(begin_unit, end_unit):
            item, lead, row_tile, column_tile = tile_of(plan, unit)
            begin, end, low, high = tile_rows(plan, row_tile, 0)
            from_j = column_tile * plan.columns
            blocks = min(blocks_in_row, from_j + plan.columns) - from_j
            leads = leading_readers(plan, lead, lists, most)
            start, need, rows = from_j - plan.block - plan.reach, plan.phase_stride, high - low
            source = batch_offset(plan, item, 1)
            for layer in range(leads):
                flat = item * plan.outputs + lists[most + layer] + low * inner
                at = source + lists[layer] + low * pitch_y
                to = layer * deep
                lay_marks(marks, flat, m, rows, 1, start, m, q, to, slot, 0, need, 1, 1, NOBODY)
                if far_y != 1:
                    lay(gy, at, pitch_y, rows, far_y, start, m, s, to, slot, 0, need, 1, 1, nothing)
            target = batch_offset(plan, item, 2) + leading_place(plan, lead, 2, 0) + stride * from_j
            streaming = (plan.stream > 0) & ((gx_at + size_of * target) % LINE == 0)
            streaming &= (size_of * pitch_gx % LINE == 0) & (size_of * n % LINE == 0)
            # Marks, and gradients laid out, begin with row `low`; gradients in place with the first.
            k, i = plan.reach - low * slot, source + from_j - plan.block
            rows_before = lead * (h_axis.in_len if rank > 1 else 1)
            prefetched = read_to = source * size_of + (rows_before + begin) * row_bytes
            left = min(n - stride * from_j, stride * blocks)
            if rank > 2:  # other layers, other lists
                for kind in range(KINDS):
                    known[kind] = -1
            for p in range(begin, end):
                if row_bytes > 0:
                    read_to += row_bytes
                    prefetched = prefetch(gy_at, prefetched, read_to)
                kind, reader = 0, 0
                if rank > 1:
                    kind, reader = plan.numbers[kinds + 2 * p], plan.numbers[kinds + 2 * p + 1]
                ends = pointer(lists_at + room * (kind % KINDS), types.int64)
                entries = pointer(lists_at + room * (kind % KINDS) + 8 * (stride + 1), types.int64)
                if known[kind % KINDS] != kind:
                    known[kind % KINDS] = kind
                    first, last = 0, 2
                    if rank > 1:
                        first, last = plan.numbers[of_row + p], plan.numbers[of_row + p + 1]
                    listed(ends, entries, plan, lists, leads, first, last, frame)
                to = k + reader * slot
                a_row(
                    (gy if far_y == 1 else s, q, to, i + reader * pitch_y if far_y == 1 else to),
                    ends,
                    entries,
                    (gx, target + p * pitch_gx, left),
                    blocks,
                    stride,
                    streaming,
                )
        stream_fence()

    return gather
