"""Who wins each small window of a max: values and marks, neighbours side by side.

A mark is the number of the winning cell in its window, in row-major order, in one byte. `offsets`
keeps the marks for a gradient; `indices` writes each winner's flat position; `jvp` reads the tangent
there. Numbers are taken on trust: an item with a NaN is flagged, to be done again.
"""

# Numba types the kernels, not mypy.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

from functools import cache
from typing import Any

from numba import types

from lunette.kernels.cpu import machine
from lunette.kernels.cpu.halves import codec
from lunette.kernels.cpu.lanes import lanes
from lunette.kernels.cpu.machine import apart, compiled, pointer
from lunette.kernels.cpu.passes import least
from lunette.kernels.cpu.phases import (
    layout,
    leading_place,
    rows_of,
    tile_of,
    tile_rows,
)
from lunette.kernels.cpu.places import item_offset, list_cells
from lunette.kernels.cpu.plan import AXES, AXIS_WIDTH, RANK
from lunette.kernels.cpu.tiling import (
    AREA,
    BLOCK,
    COLUMNS,
    DEPTH,
    FIRSTS,
    LENGTH,
    MOST,
    OUTPUTS,
    PHASES,
    SLOT,
    SPARE,
    TAPS,
)

__all__ = ["kernel", "mark_type"]


def mark_type(work: Any) -> Any:
    """The integer as wide as a number of the arithmetic."""
    return {8: types.int8, 16: types.int16, 32: types.int32, 64: types.int64}[work.bitwidth]


@cache
def kernel(dtype: str, verb: str) -> Any:
    """The kernel of a verb for a dtype; no window may be empty or have more than 255 cells.

    Array 1 has the values (for `jvp` the tangents of the result); array 2 the marks, the positions
    or the tangent.
    """
    outer = codec(dtype, False)
    memory, work, read, write = outer.memory, outer.work, outer.load, outer.store
    mark = mark_type(work)
    here, to_y = lanes(work, work, ""), lanes(memory, work, outer.half)
    bytes_, wide = lanes(types.uint8, mark, ""), lanes(mark, mark, "")
    width, load, spread, most, most_from = (
        here.width,
        here.load,
        here.spread,
        here.most,
        here.most_from,
    )
    store_y, store_y_part = to_y.store, to_y.store_part
    load_first, store_mark, store_mark_part = bytes_.load, bytes_.store, bytes_.store_part
    spread_mark = wide.spread
    lay, fill, zero = layout(outer, "nan"), least(work), work(0)
    bytes_each = work.bitwidth // 8
    keeps, writes, gathers = verb == "offsets", verb == "indices", verb == "jvp"

    @compiled
    def listed(places, g, taps, size, leads, deep, rows, step):
        """Where the cells of a window are from the place of the first, in order; how many they are."""
        count = 0
        for layer in range(leads):
            for row in range(rows):
                for t in range(size):
                    places[count] = layer * deep + row * step + g[taps + t]
                    count += 1
        return count

    @compiled
    def keep(y, q, marks, k, best, where, left):
        """A vector of values and marks, or as many as are left of the row."""
        if left >= width:
            store_mark(marks, k, where)
            if writes:
                store_y(y, q, best)
        elif left > 0:
            store_mark_part(marks, k, where, left)
            if writes:
                store_y_part(y, q, best, left)

    @compiled
    def a_row(s, p, y, q, marks, k, firsts, columns, places, count):
        """A row of outputs: values to y from q on, unless only marks are asked for; marks from k on.

        Two vectors of windows go together, cell by cell.
        """
        apart()
        for c in range(0, columns, 2 * width):
            a, b = spread(fill), spread(fill)
            i, j = load_first(firsts, c), load_first(firsts, c + width)
            for cell in range(count):
                at, code = p + c + places[cell], spread_mark(mark(cell))
                value, other = load(s, at), load(s, at + width)
                i, j = most_from(a, value, i, code), most_from(b, other, j, code)
                a, b = most(a, value), most(b, other)
            keep(y, q + c, marks, k + c, a, i, columns - c)
            keep(y, q + c + width, marks, k + c + width, b, j, columns - c - width)

    @machine.kernel
    def win(x_at, y_at, z_at, scratch_at, g_at, flags_at, begin_unit, end_unit):
        g, flags = pointer(g_at, types.int64), pointer(flags_at, types.uint8)
        lists, s = pointer(scratch_at, types.int64), pointer(scratch_at + g[AREA], work)
        x, y = pointer(x_at, memory), pointer(y_at, memory)
        kept, indices, dx = (
            pointer(z_at, types.uint8),
            pointer(z_at, types.int64),
            pointer(z_at, memory),
        )
        rank, most_cells = g[RANK], g[MOST]
        e = AXES + (rank - 1) * AXIS_WIDTH
        f = AXES + max(0, rank - 2) * AXIS_WIDTH
        pitch_x, pitch_y, pitch_z, flat = 0, 0, 0, 0
        if rank > 1:
            pitch_x, pitch_y, pitch_z, flat = g[f + 2], g[f + 3], g[f + 4], g[f + 6]
        n, m, far, far_z, stride, size = g[e], g[e + 1], g[e + 2], g[e + 4], g[e + 7], g[e + 10]
        origin, dilation = g[e + 8], g[e + 9]
        slot, deep = g[SLOT], g[DEPTH] * g[SLOT]
        row_marks = pointer(
            scratch_at + g[AREA] + bytes_each * (most_cells * deep + SPARE), types.uint8
        )
        taps = pointer(scratch_at + 24 * most_cells, types.int64)  # of each cell, from the first
        for unit in range(begin_unit, end_unit):
            item, lead, row_tile, column_tile = tile_of(g, unit)
            begin, end, low, high = tile_rows(g, row_tile, 1)
            from_j = column_tile * g[COLUMNS]
            columns = min(m, from_j + g[COLUMNS]) - from_j
            leads, _ = list_cells(g, g[RANK] - 2, lead, lists, most_cells)
            base, third, seen = item_offset(g, item, 0), item_offset(g, item, 2), 0
            for layer in range(leads):
                seen |= lay(
                    x,
                    base + lists[layer] + low * pitch_x,
                    pitch_x,
                    high - low,
                    far,
                    stride * (from_j + g[BLOCK]),
                    n,
                    s,
                    layer * deep,
                    slot,
                    g[LENGTH],
                    g[LENGTH],
                    stride,
                    g[PHASES],
                    fill,
                )
            if seen:
                flags[item] = 1
            target = item_offset(g, item, 1) + leading_place(g, lead, 1, 1) + from_j
            rows_before = lead * (g[f + 1] if rank > 1 else 1)
            cells, known = 0, 0
            for i in range(begin, end):
                start, step, rows, _ = rows_of(g, i)
                if rows != known:
                    cells = listed(taps, g, g[TAPS], size, leads, deep, rows, step * slot)
                    known = rows
                p, q = (start - low) * slot, target + i * pitch_y
                flat_y = item * g[OUTPUTS] + (rows_before + i) * m + from_j
                marks, k = (kept, flat_y) if keeps else (row_marks, 0)
                a_row(
                    s,
                    p,
                    y,
                    q,
                    marks,
                    k,
                    pointer(g_at + 8 * g[FIRSTS] + from_j, types.uint8),
                    columns,
                    taps,
                    cells,
                )
                if keeps:
                    continue
                # Where each cell of these windows is, from the place of the first tap in the row.
                places = pointer(scratch_at + 24 * most_cells + 8 * cells, types.int64)
                code = 0
                for layer in range(leads):
                    for r in range(rows):
                        for t in range(size):
                            if writes:
                                here_row = lists[2 * most_cells + layer] + (start + r * step) * flat
                                places[code] = here_row + t * dilation
                            else:
                                here_row = lists[most_cells + layer] + (start + r * step) * pitch_z
                                places[code] = third + here_row + t * dilation * far_z
                            code += 1
                for c in range(columns):
                    place = places[row_marks[c]]
                    position = stride * (from_j + c) + origin
                    if writes:
                        indices[q + c] = place + position
                    if gathers:
                        y[q + c] = write(read(dx[place + position * far_z]) + zero)

    return win
