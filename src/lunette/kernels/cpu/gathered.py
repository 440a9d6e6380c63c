"""The gradient of a max of small windows: every input gathers from the outputs that read it, in their order.

A tile of inputs lays out the rows of outputs that read it; then each vector of inputs adds what each
reader sends: the gradient where the mark is this cell's. Sums start from +0 and follow the row-major
order of outputs, as in the specification, so no bit depends on tiles or threads.
"""

# Numba types the kernels, not mypy.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

from functools import cache
from typing import Any

from numba import types

from lunette.kernels.cpu import machine
from lunette.kernels.cpu.halves import Codec, codec, same
from lunette.kernels.cpu.lanes import lanes
from lunette.kernels.cpu.machine import apart, compiled, pointer
from lunette.kernels.cpu.phases import (
    cleared,
    layout,
    leading_place,
    leading_readers,
    tile_of,
    tile_rows,
)
from lunette.kernels.cpu.places import item_offset
from lunette.kernels.cpu.plan import (
    AXES,
    AXIS_WIDTH,
    RANK,
    WINDOW_WIDTH,
)
from lunette.kernels.cpu.tiling import (
    AREA,
    BLOCK,
    COLUMNS,
    DEPTH,
    LENGTH,
    MOST,
    OUTPUTS,
    REACH,
    READERS,
    SLOT,
    SPARE,
    TAPS,
)

__all__ = ["kernel"]


@cache
def kernel(dtype: str) -> Any:
    """The kernel for a dtype: array 0 is the marks, 1 the gradient of the result, 2 that of the input."""
    outer = codec(dtype, False)
    memory, work = outer.memory, outer.work
    here, to_x = lanes(work, work, ""), lanes(memory, work, outer.half)
    width, load, spread = here.width, here.load, here.spread
    add, zip_low, zip_high = here.add, here.zip_low, here.zip_high
    where_marked = here.where_marked
    store_x, store_x_part, store_x_step = to_x.store, to_x.store_part, to_x.store_step
    lay = layout(outer, "")
    byte = types.uint8
    lay_marks = layout(Codec(byte, byte, byte, same, same, ""), "")
    bytes_each, zero = work.bitwidth // 8, work(0)

    @compiled
    def received(s, q, c, places, codes, first, last):
        """What two vectors of cells of one phase receive from readers first … last of the list."""
        a, b = spread(zero), spread(zero)
        for reader in range(first, last):
            k, code = places[reader] + c, codes[reader]
            a = add(a, where_marked(q, k, code, load(s, k)))
            k += width
            b = add(b, where_marked(q, k, code, load(s, k)))
        return a, b

    @compiled
    def keep(gx, at, value, left):
        if left >= width:
            store_x(gx, at, value)
        elif left > 0:
            store_x_part(gx, at, value, left)

    @compiled
    def keep_joined(gx, at, a, b, left):
        """Two phases of stride 2, as they alternate."""
        keep(gx, at, zip_low(a, b), left)
        keep(gx, at + width, zip_high(a, b), left - width)

    @compiled
    def a_row(
        s,
        q,
        places,
        codes,
        readers,
        gx,
        at,
        left,
        blocks,
        g,
        taps,
        stride,
    ):
        """A row of inputs: `left` of them from `at` on in gx, in `blocks` of `stride`."""
        apart()
        # Where the readers of the first two phases end in the list.
        one, two = readers * g[taps + 1], readers * g[taps + min(2, stride)]
        for c in range(0, blocks, 2 * width):
            if stride <= 2:
                a, b = received(s, q, c, places, codes, 0, one)
                if stride == 1:
                    keep(gx, at + c, a, left - c)
                    keep(gx, at + c + width, b, left - c - width)
                else:
                    d, e = received(s, q, c, places, codes, one, two)
                    place, rest = at + 2 * c, left - 2 * c
                    keep_joined(gx, place, a, d, rest)
                    keep_joined(gx, place + 2 * width, b, e, rest - 2 * width)
            else:
                for phase in range(stride):
                    first, last = readers * g[taps + phase], readers * g[taps + phase + 1]
                    a, b = received(s, q, c, places, codes, first, last)
                    cells_left = max(0, (left - stride * c - phase + stride - 1) // stride)
                    place = at + stride * c + phase
                    store_x_step(gx, place, stride, a, min(width, cells_left))
                    cells_left = max(0, cells_left - width)
                    store_x_step(gx, place + stride * width, stride, b, min(width, cells_left))

    @compiled
    def listed(places, codes, readers, count, g, taps, stride):
        """What each reader reads a row with, by phase, in order: its place, and the mark of the cell."""
        entry, pairs = 0, taps + stride + 1
        for phase in range(stride):
            for r in range(count):
                base, code = readers[2 * r], readers[2 * r + 1]
                for tap in range(g[taps + phase], g[taps + phase + 1]):
                    places[entry] = base - g[pairs + 2 * tap + 1]
                    codes[entry] = byte(code + g[pairs + 2 * tap])
                    entry += 1

    @machine.kernel
    def gather(marks_at, gy_at, gx_at, scratch_at, g_at, flags_at, begin_unit, end_unit):
        g = pointer(g_at, types.int64)
        lists, s = pointer(scratch_at, types.int64), pointer(scratch_at + g[AREA], work)
        gy, gx, marks = pointer(gy_at, memory), pointer(gx_at, memory), pointer(marks_at, byte)
        rank, most = g[RANK], g[MOST]
        e = AXES + (rank - 1) * AXIS_WIDTH
        f = AXES + max(0, rank - 2) * AXIS_WIDTH
        pitch_y, pitch_gx, table, of_row, inner = 0, 0, 0, 0, 0
        if rank > 1:
            pitch_y, pitch_gx = g[f + 3], g[f + 4]
            table, of_row, inner = g[f + 5], g[f + 11], g[e + 1]
        n, m, far_y, stride, size = g[e], g[e + 1], g[e + 3], g[e + 7], g[e + 10]
        slot, deep, second = g[SLOT], g[DEPTH] * g[SLOT], most * g[DEPTH] * g[SLOT] + SPARE
        q = pointer(scratch_at + g[AREA] + bytes_each * second, byte)
        readers = pointer(scratch_at + 24 * most, types.int64)
        places = pointer(scratch_at + 24 * most + 16 * g[READERS], types.int64)
        codes = pointer(scratch_at + 24 * most + 8 * g[READERS] * (2 + size), byte)
        blocks_in_row = (n + stride - 1) // stride
        cleared(s, g, 2, zero)
        for unit in range(begin_unit, end_unit):
            item, lead, row_tile, column_tile = tile_of(g, unit)
            begin, end, low, high = tile_rows(g, row_tile, 0)
            from_j = column_tile * g[COLUMNS]
            blocks = min(blocks_in_row, from_j + g[COLUMNS]) - from_j
            leads = leading_readers(g, lead, lists, most)
            start, need, rows = from_j - g[BLOCK] - g[REACH], g[LENGTH], high - low
            for layer in range(leads):
                flat = item * g[OUTPUTS] + lists[most + layer] + low * inner
                at = item_offset(g, item, 1) + lists[layer] + low * pitch_y
                to = layer * deep
                lay(gy, at, pitch_y, rows, far_y, start, m, s, to, slot, 0, need, 1, 1, zero)
                lay_marks(marks, flat, m, rows, 1, start, m, q, to, slot, 0, need, 1, 1, byte(0))
            target = item_offset(g, item, 2) + leading_place(g, lead, 2, 0) + stride * from_j
            for p in range(begin, end):
                # The rows that read this one, in order: where they are, and the number of the cell.
                count = 0
                for layer in range(leads):
                    cell = lists[2 * most + layer]
                    if rank == 1:
                        readers[2 * count], readers[2 * count + 1] = (
                            layer * deep + g[REACH],
                            cell * size,
                        )
                        count += 1
                        continue
                    for reader in range(g[of_row + p], g[of_row + p + 1], 2):
                        i, row = g[reader], g[reader + 1]
                        readers[2 * count] = layer * deep + (i - low) * slot + g[REACH]
                        cell_row = cell * g[table + WINDOW_WIDTH * i + 4] + row
                        readers[2 * count + 1] = cell_row * size
                        count += 1
                listed(places, codes, readers, count, g, g[TAPS], stride)
                a_row(
                    s,
                    q,
                    places,
                    codes,
                    count,
                    gx,
                    target + p * pitch_gx,
                    min(n - stride * from_j, stride * blocks),
                    blocks,
                    g,
                    g[TAPS],
                    stride,
                )

    return gather
