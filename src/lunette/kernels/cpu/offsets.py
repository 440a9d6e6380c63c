"""Who wins each small window of a max: values and marks, neighbours side by side.

Rows are read where they lie, cell by cell of the windows; those whose elements are not side by side
are laid so first.

A mark is the number of the winning cell in its window, in row-major order, in one byte. `offsets`
keeps the marks for a gradient; `indices` writes each winner's flat position; `jvp` reads the tangent
there. Numbers are taken on trust: an item with a NaN is flagged, to be done again.
"""

# Numba types the kernels, not mypy.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numba import types

from lunette.kernels.cpu import machine
from lunette.kernels.cpu.asking import ask
from lunette.kernels.cpu.halves import Codec, codec, same
from lunette.kernels.cpu.lanes import lanes
from lunette.kernels.cpu.machine import apart, compiled, pointer, within
from lunette.kernels.cpu.passes import least, moves
from lunette.kernels.cpu.phases import leading_place, rows_of, tile_of, tile_rows
from lunette.kernels.cpu.places import item_offset, list_cells
from lunette.kernels.cpu.plan import AXES, AXIS_WIDTH, RANK
from lunette.kernels.cpu.tiling import (
    AREA,
    COLUMNS,
    DEPTH,
    FIRSTS,
    FLOW,
    MOST,
    OUTPUTS,
    SLOT,
    SPARE,
)
from lunette.kernels.cpu.trust import trust

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
    from_x, wide = lanes(memory, work, outer.half), lanes(mark, mark, "")
    here, bytes_ = lanes(work, work, ""), lanes(types.uint8, mark, "")
    width, load, load_part, load_step = (
        from_x.width,
        from_x.load,
        from_x.load_part,
        from_x.load_step,
    )
    load_bits = from_x.load_bits
    spread, most, most_from = here.spread, here.most, here.most_from
    evens, odds = here.evens, here.odds
    store_y, store_y_part = from_x.store, from_x.store_part
    load_first, store_mark, store_mark_part = bytes_.load, bytes_.store, bytes_.store_part
    spread_mark, add_mark = wide.spread, wide.add
    all_lanes, both, lost, while_ordered, *_ = trust(work, "")
    lay = moves(Codec(memory, memory, memory, same, same, "")).fetch
    fill, zero, nothing = least(work), work(0), memory(0)
    size_of, few_lanes = memory.bitwidth // 8, width <= 16
    keeps, writes, gathers = verb == "offsets", verb == "indices", verb == "jvp"

    @compiled
    def in_row(p, n):
        """A bit for each of the positions p … p + 64 that is in a row of `n`."""
        within()
        low, high = max(0, min(64, -p)), max(0, min(64, n - p))
        above = np.int64(0) if low == 64 else np.int64(-1) << low
        below = np.int64(-1) if high == 64 else (np.int64(1) << high) - 1
        return above & below

    @compiled
    def cells(x, at, p, n, inside):
        """Cells p … p + width of a row of `n` that begins at `at`; `fill` outside it."""
        within()
        if inside:
            return load(x, at + p)
        return load_part(x, at + p, max(0, min(width, -p)), max(0, min(width, n - p)), fill)

    @compiled
    def cells_apart(x, at, p, n, stride):
        """Cells p, p + stride, … of a row."""
        within()
        low, high = max(0, min(width, -(p // stride))), max(0, min(width, -((p - n) // stride)))
        return load_step(x, at + p, stride, low, high, fill)

    @compiled
    def joined(best, where, value, code):
        """The winners so far, `code` being where a later value is; of equals the first stays."""
        within()
        return most(best, value), most_from(best, value, where, code)

    @compiled
    def beside(x, at, p, n, inside, dilation, size, code, trusted):
        """The winners of the part of windows of stride 1 that is in one row, the first part at `p`."""
        within()
        one = spread_mark(mark(1))
        best, where = cells(x, at, p, n, inside), code
        trusted = while_ordered(trusted, best, best)
        for t in range(1, size):
            code = add_mark(code, one)
            value = cells(x, at, p + t * dilation, n, inside)
            trusted = while_ordered(trusted, value, value)
            best, where = joined(best, where, value, code)
        return best, where, trusted

    @compiled
    def by_step(x, at, p, n, stride, dilation, size, code, trusted):
        """The same for any stride and dilation."""
        within()
        one = spread_mark(mark(1))
        best, where = cells_apart(x, at, p, n, stride), code
        trusted = while_ordered(trusted, best, best)
        for t in range(1, size):
            code = add_mark(code, one)
            value = cells_apart(x, at, p + t * dilation, n, stride)
            trusted = while_ordered(trusted, value, value)
            best, where = joined(best, where, value, code)
        return best, where, trusted

    @compiled
    def winners(x, at, rows, count, p, n, stride, dilation, size, where, trusted):
        """The winners of a vector of windows; `where` has those of windows with nothing above −∞."""
        within()
        best, code, more = spread(fill), spread_mark(mark(0)), spread_mark(mark(size))
        inside = (p >= 0) & (p + width + dilation * (size - 1) <= n)
        for r in range(count):
            place = at + rows[r]
            if stride == 1:
                found = beside(x, place, p, n, inside, dilation, size, code, trusted)
            else:
                found = by_step(x, place, p, n, stride, dilation, size, code, trusted)
            value, cell, trusted = found
            best, where = joined(best, where, value, cell)
            code = add_mark(code, more)
        return best, where, trusted

    @compiled
    def keep(y, q, marks, k, best, where, left):
        """A vector of values and marks, or what is left of the row."""
        within()
        if left >= width:
            store_mark(marks, k, where)
            if writes:
                store_y(y, q, best)
        else:
            store_mark_part(marks, k, where, left)
            if writes:
                store_y_part(y, q, best, left)

    @compiled
    def any_row(x, at, rows, count, p, n, stride, dilation, size, y, q, marks, k, firsts, columns):
        """A row of outputs: values to y from q on, unless only marks are asked for; marks from k on.

        Windows have `size` cells of each of the rows at `rows` from `at` on; the first has its first
        cell at position `p`. Gives whether a lane must not be trusted.
        """
        apart()
        trusted = all_lanes()
        for c in range(0, columns, width):
            first = load_first(firsts, c)
            found = winners(
                x, at, rows, count, p + stride * c, n, stride, dilation, size, first, trusted
            )
            best, where, trusted = found
            keep(y, q + c, marks, k + c, best, where, columns - c)
        return lost(trusted)

    @compiled
    def of_pairs(a, b, d, e, long, code, trusted):
        """The winners among cells 0, 1 and, if `long`, 2 of windows of stride 2, in vectors of cells 0 and 2 on."""
        within()
        trusted = while_ordered(trusted, a, b)
        best, where = joined(
            evens(a, b), spread_mark(code), odds(a, b), spread_mark(code + mark(1))
        )
        if long:
            trusted = while_ordered(trusted, d, e)
            best, where = joined(best, where, evens(d, e), spread_mark(code + mark(2)))
        return best, where, trusted

    @compiled
    def plain(x, at, long, code, trusted):
        """`of_pairs` of one row, all inside."""
        within()
        a, b = load(x, at), load(x, at + width)
        d, e = a, b
        if long:
            d, e = load(x, at + 2), load(x, at + 2 + width)
        return of_pairs(a, b, d, e, long, code, trusted)

    @compiled
    def clipped(x, at, bits, long, code, trusted):
        """`of_pairs` of one row, of which the cells whose bits are set are inside."""
        within()
        a, b = load_bits(x, at, bits, fill), load_bits(x, at + width, bits >> width, fill)
        d, e = a, b
        if long:
            d = load_bits(x, at + 2, bits >> 2, fill)
            e = load_bits(x, at + 2 + width, bits >> (2 + width), fill)
        return of_pairs(a, b, d, e, long, code, trusted)

    @compiled
    def row_by_two(x, at, rows, count, p, n, long, y, q, marks, k, firsts, columns):
        """As `any_row` for stride 2 and two or, if `long`, three neighbouring cells.

        Two vectors go together where they are inside.
        """
        within()
        trusted, others, c, size = all_lanes(), all_lanes(), 0, mark(3) if long else mark(2)
        while c < columns:
            here_, code = at + p + 2 * c, mark(0)
            a, b, i = spread(fill), spread(fill), load_first(firsts, c)
            if (p + 2 * c >= 0) & (p + 2 * c + 4 * width + long <= n) & (c + 2 * width <= columns):
                j = load_first(firsts, c + width)
                for r in range(count):
                    place = here_ + rows[r]
                    d, u, trusted = plain(x, place, long, code, trusted)
                    e, v, others = plain(x, place + 2 * width, long, code, others)
                    a, i = joined(a, i, d, u)
                    b, j = joined(b, j, e, v)
                    code += size
                keep(y, q + c, marks, k + c, a, i, width)
                keep(y, q + c + width, marks, k + c + width, b, j, width)
                c += 2 * width
            else:
                bits = in_row(p + 2 * c, n)
                for r in range(count):
                    d, u, trusted = clipped(x, here_ + rows[r], bits, long, code, trusted)
                    a, i = joined(a, i, d, u)
                    code += size
                keep(y, q + c, marks, k + c, a, i, columns - c)
                c += width
        return lost(both(trusted, others))

    @machine.kernel
    def win(x_at, y_at, z_at, scratch_at, g_at, flags_at, begin_unit, end_unit):
        g, flags = pointer(g_at, types.int64), pointer(flags_at, types.uint8)
        lists, s = pointer(scratch_at, types.int64), pointer(scratch_at + g[AREA], memory)
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
            scratch_at + g[AREA] + size_of * (most_cells * deep + SPARE), types.uint8
        )
        row_places = pointer(scratch_at + 24 * most_cells, types.int64)
        source, flow = x if far == 1 else s, size_of * g[FLOW]
        quick = few_lanes & (stride == 2) & (dilation == 1) & ((size == 2) | (size == 3))
        for unit in range(begin_unit, end_unit):
            item, lead, row_tile, column_tile = tile_of(g, unit)
            begin, end, low, high = tile_rows(g, row_tile, 1)
            from_j = column_tile * g[COLUMNS]
            columns = min(m, from_j + g[COLUMNS]) - from_j
            leads, _ = list_cells(g, g[RANK] - 2, lead, lists, most_cells)
            base, third, seen = item_offset(g, item, 0), item_offset(g, item, 2), False
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
            target = item_offset(g, item, 1) + leading_place(g, lead, 1, 1) + from_j
            rows_before = lead * (g[f + 1] if rank > 1 else 1)
            known, count = -1, 0
            asked = reached = base * size_of + (rows_before + begin) * flow
            for i in range(begin, end):
                start, step, rows, _ = rows_of(g, i)
                if flow > 0:
                    reached += flow
                    asked = ask(x_at, asked, reached)
                if rows != known:
                    known, count = rows, 0
                    for layer in range(leads):
                        for r in range(rows):
                            to = lists[layer] if far == 1 else layer * deep
                            row_places[count] = to + r * step * pitch
                            count += 1
                q = target + i * pitch_y
                flat_y = item * g[OUTPUTS] + (rows_before + i) * m + from_j
                at = (base if far == 1 else -left) + (start - first_row) * pitch
                marks, k = (kept, flat_y) if keeps else (row_marks, 0)
                p, firsts = (
                    stride * from_j + origin,
                    pointer(g_at + 8 * g[FIRSTS] + from_j, types.uint8),
                )
                if quick:
                    seen |= row_by_two(
                        source,
                        at,
                        row_places,
                        count,
                        p,
                        right,
                        size == 3,
                        y,
                        q,
                        marks,
                        k,
                        firsts,
                        columns,
                    )
                else:
                    seen |= any_row(
                        source,
                        at,
                        row_places,
                        count,
                        p,
                        right,
                        stride,
                        dilation,
                        size,
                        y,
                        q,
                        marks,
                        k,
                        firsts,
                        columns,
                    )
                if keeps:
                    continue
                # Where each cell of these windows is, from the place of the first tap in the row.
                places, code = pointer(scratch_at + 24 * most_cells + 8 * count, types.int64), 0
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
            if seen:
                flags[item] = 1

    return win
