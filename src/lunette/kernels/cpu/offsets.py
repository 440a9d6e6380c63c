"""Who wins each small window of a max: values and marks, neighbours side by side.

Rows are read where they lie, cell by cell of the windows; those whose elements are not side by side
are laid so first.

A mark is the winner's place in the window's box of taps, in row-major order, in one byte; taps on
padding count. `offsets` keeps the marks for a gradient, `kept` the values as well; `indices` writes each
winner's flat position; `jvp` reads the tangent there. Numbers are taken on trust: an item with a NaN is flagged, to be done again.
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
from lunette.kernels.cpu.phases import leading_place, rows_of, skipped, tile_of, tile_rows
from lunette.kernels.cpu.places import item_offset, list_cells
from lunette.kernels.cpu.plan import AXES, AXIS_WIDTH, RANK, WINDOW_WIDTH
from lunette.kernels.cpu.slides import slide
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
    evens, odds, slide_back = here.evens, here.odds, slide(width - 1)
    store_y, store_y_part = from_x.store, from_x.store_part
    load_first, store_mark, store_mark_part = bytes_.load, bytes_.store, bytes_.store_part
    spread_mark, add_mark = wide.spread, wide.add
    all_lanes, both, lost, while_ordered, *_ = trust(work, "")
    lay = moves(Codec(memory, memory, memory, same, same, "")).fetch
    fill, zero, nothing = least(work), work(0), memory(0)
    size_of, few_lanes = memory.bitwidth // 8, width <= 16
    keeps, gathers = verb in ("offsets", "kept"), verb == "jvp"
    indexes, writes = verb == "indices", verb in ("indices", "kept")

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
    def winners(x, at, rows, codes, count, p, n, stride, dilation, size, where, trusted):
        """The winners of a vector of windows; `where` has those of windows with nothing above −∞."""
        within()
        best = spread(fill)
        inside = (p >= 0) & (p + width + dilation * (size - 1) <= n)
        for r in range(count):
            place, code = at + rows[r], spread_mark(mark(codes[r]))
            if stride == 1:
                found = beside(x, place, p, n, inside, dilation, size, code, trusted)
            else:
                found = by_step(x, place, p, n, stride, dilation, size, code, trusted)
            value, cell, trusted = found
            best, where = joined(best, where, value, cell)
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
    def any_row(
        x, at, rows, codes, count, p, n, stride, dilation, size, y, q, marks, k, firsts, columns
    ):
        """A row of outputs: values to y from q on, unless only marks are asked for; marks from k on.

        Windows have `size` cells of each of the rows at `rows` from `at` on, the first of which are
        taps `codes`; the first window has its first cell at position `p`. Gives whether a lane must
        not be trusted.
        """
        apart()
        trusted = all_lanes()
        for c in range(0, columns, width):
            first = add_mark(load_first(firsts, c), spread_mark(mark(codes[0])))
            found = winners(
                x, at, rows, codes, count, p + stride * c, n, stride, dilation, size, first, trusted
            )
            best, where, trusted = found
            keep(y, q + c, marks, k + c, best, where, columns - c)
        return lost(trusted)

    @compiled
    def of_pairs(a, b, d, e, long, code, trusted):
        """The winners among two or, if `long`, three cells of windows of stride 2.

        `a` and `b` have the first two cells of all windows, `d` and `e` the third ones.
        """
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
    def of_three(a, b, d, long, code, trusted):
        """The winners among two or, if `long`, three cells of windows of stride 1: `a`, `b` and `d`."""
        within()
        trusted = while_ordered(trusted, a, b)
        best, where = joined(a, spread_mark(code), b, spread_mark(code + mark(1)))
        if long:
            trusted = while_ordered(trusted, d, d)
            best, where = joined(best, where, d, spread_mark(code + mark(2)))
        return best, where, trusted

    def short_rows(stride: int) -> Any:
        """Rows of windows of stride 1 or 2 and two or three neighbouring cells."""

        @compiled
        def plain(x, at, long, code, trusted):
            """The winners of one row's part of windows that are all inside; the first cell is at `at`."""
            within()
            a = load(x, at)
            if stride == 1:
                b, d = load(x, at + 1), a
                if long:
                    d = load(x, at + 2)
                return of_three(a, b, d, long, code, trusted)
            b, d, e = load(x, at + width), a, a
            if long:
                d, e = load(x, at + 2), load(x, at + 2 + width)
            return of_pairs(a, b, d, e, long, code, trusted)

        @compiled
        def pair(x, at, long, code, trusted, others):
            """`plain` of two neighbouring vectors of windows.

            Of three cells, the first of a window is the last of the one before, so each cell is read once,
            and one vector before them.
            """
            within()
            if stride == 1 or not long:
                d, u, trusted = plain(x, at, long, code, trusted)
                e, v, others = plain(x, at + stride * width, long, code, others)
                return d, u, e, v, trusted, others
            one, two = spread_mark(code), spread_mark(code + mark(1))
            three = spread_mark(code + mark(2))
            a, b = load(x, at + 1), load(x, at + 1 + width)
            trusted, odd = while_ordered(trusted, a, b), odds(a, b)
            d, u = joined(slide_back(load(x, at + 1 - width), odd), one, evens(a, b), two)
            d, u = joined(d, u, odd, three)
            a, b = load(x, at + 1 + 2 * width), load(x, at + 1 + 3 * width)
            others, after = while_ordered(others, a, b), odds(a, b)
            e, v = joined(slide_back(odd, after), one, evens(a, b), two)
            e, v = joined(e, v, after, three)
            return d, u, e, v, trusted, others

        @compiled
        def clipped(x, at, bits, long, code, trusted):
            """The same where only cells whose bits are set are inside."""
            within()
            a, b_at = load_bits(x, at, bits, fill), 1 if stride == 1 else width
            b, d, e = load_bits(x, at + b_at, bits >> b_at, fill), a, a
            if long:
                d = load_bits(x, at + 2, bits >> 2, fill)
                e = load_bits(x, at + 2 + width, bits >> (2 + width), fill)
            if stride == 1:
                return of_three(a, b, d, long, code, trusted)
            return of_pairs(a, b, d, e, long, code, trusted)

        @compiled
        def short_row(x, at, rows, codes, count, p, n, long, y, q, marks, k, firsts, columns):
            """As `any_row` for two or, if `long`, three neighbouring cells.

            Two vectors go together where they are inside.
            """
            within()
            trusted, others, c, top = all_lanes(), all_lanes(), 0, spread_mark(mark(codes[0]))
            reach = 2 * stride * width + (1 if stride == 1 else 0) + long
            ahead = width - 1 if stride == 2 and long else 0
            while c < columns:
                position = p + stride * c
                a, b, i = spread(fill), spread(fill), add_mark(load_first(firsts, c), top)
                inside = (position >= ahead) & (position + reach <= n)
                if inside & (c + 2 * width <= columns):
                    j = add_mark(load_first(firsts, c + width), top)
                    for r in range(count):
                        place, code = at + position + rows[r], mark(codes[r])
                        d, u, e, v, trusted, others = pair(x, place, long, code, trusted, others)
                        a, i = joined(a, i, d, u)
                        b, j = joined(b, j, e, v)
                    keep(y, q + c, marks, k + c, a, i, width)
                    keep(y, q + c + width, marks, k + c + width, b, j, width)
                    c += 2 * width
                else:
                    bits = in_row(position, n)
                    for r in range(count):
                        place, code = at + position + rows[r], mark(codes[r])
                        d, u, trusted = clipped(x, place, bits, long, code, trusted)
                        a, i = joined(a, i, d, u)
                    keep(y, q + c, marks, k + c, a, i, columns - c)
                    c += width
            return lost(both(trusted, others))

        return short_row

    by_one, by_two = short_rows(1), short_rows(2)

    @compiled
    def leading_taps(g, lead, codes):
        """Which taps of the box of the leading axes a window has there, in row-major order."""
        count, codes[0] = 1, 0
        for axis in range(g[RANK] - 2):
            entry, after = AXES + axis * AXIS_WIDTH, 1
            for later in range(axis + 1, g[RANK] - 2):
                after *= g[AXES + later * AXIS_WIDTH + 1]
            i = (lead // after) % g[entry + 1]
            length, skip = g[g[entry + 5] + WINDOW_WIDTH * i + 4], skipped(g, entry, i)
            for old in range(count - 1, -1, -1):  # from the back: each makes room for its own
                code = codes[old] * g[entry + 12] + skip
                for tap in range(length - 1, -1, -1):
                    codes[old * length + tap] = code + tap
            count *= length

    @compiled
    def place_cells(g, places, lists, layer, rows, start, step, code):
        """Where the cells of a layer of a row of windows are in array 2, or flat, by the numbers of their taps.

        From the place of the first tap in its row on; the first cell of the first row is tap `code`.
        """
        rank, most_cells = g[RANK], g[MOST]
        e, f = AXES + (rank - 1) * AXIS_WIDTH, AXES + max(0, rank - 2) * AXIS_WIDTH
        size, dilation, far, pitch, flat = g[e + 10], g[e + 9], g[e + 4], 0, 0
        if rank > 1:
            pitch, flat = g[f + 4], g[f + 6]
        for r in range(rows):
            for t in range(size):
                if indexes:
                    at = lists[2 * most_cells + layer] + (start + r * step) * flat + t * dilation
                else:
                    at = lists[most_cells + layer] + (start + r * step) * pitch + t * dilation * far
                places[code + r * size + t] = at

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
        pitch_x, pitch_y, box = 0, 0, 1
        if rank > 1:
            pitch_x, pitch_y, box = g[f + 2], g[f + 3], g[f + 12]
        n, m, far, far_z, stride, size = g[e], g[e + 1], g[e + 2], g[e + 4], g[e + 7], g[e + 10]
        origin, dilation = g[e + 8], g[e + 9]
        slot, deep = g[SLOT], g[DEPTH] * g[SLOT]
        row_marks = pointer(
            scratch_at + g[AREA] + size_of * (most_cells * deep + SPARE), types.uint8
        )
        layer_taps = pointer(scratch_at + 24 * most_cells, types.int64)
        row_places = pointer(scratch_at + 32 * most_cells, types.int64)
        source, flow = x if far == 1 else s, size_of * g[FLOW]
        quick = few_lanes & (stride <= 2) & (dilation == 1) & ((size == 2) | (size == 3))
        for unit in range(begin_unit, end_unit):
            item, lead, row_tile, column_tile = tile_of(g, unit)
            begin, end, low, high = tile_rows(g, row_tile, 1)
            from_j = column_tile * g[COLUMNS]
            columns = min(m, from_j + g[COLUMNS]) - from_j
            leads, _ = list_cells(g, rank - 2, lead, lists, most_cells)
            leading_taps(g, lead, layer_taps)
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
            known, known_skip, count, row_codes, places = -1, 0, 0, row_places, row_places
            asked = reached = base * size_of + (rows_before + begin) * flow
            p, firsts = (
                stride * from_j + origin,
                pointer(g_at + 8 * g[FIRSTS] + from_j, types.uint8),
            )
            for i in range(begin, end):
                start, step, rows, _ = rows_of(g, i)
                skip = skipped(g, f, i) if rank > 1 else 0
                if flow > 0:
                    reached += flow
                    asked = ask(x_at, asked, reached)
                if (rows != known) | (skip != known_skip):
                    known, known_skip, count = rows, skip, leads * rows
                    row_codes = pointer(scratch_at + 32 * most_cells + 8 * count, types.int64)
                    places = pointer(scratch_at + 32 * most_cells + 16 * count, types.int64)
                    for row in range(count):
                        layer, r = row // rows, row % rows
                        to = lists[layer] if far == 1 else layer * deep
                        row_places[row] = to + r * step * pitch
                        row_codes[row] = (layer_taps[layer] * box + skip + r) * size
                q = target + i * pitch_y
                flat_y = item * g[OUTPUTS] + (rows_before + i) * m + from_j
                at = (base if far == 1 else -left) + (start - first_row) * pitch
                marks, k = (kept, flat_y) if keeps else (row_marks, 0)
                long = size == 3
                if quick & (stride == 2):
                    seen |= by_two(
                        source,
                        at,
                        row_places,
                        row_codes,
                        count,
                        p,
                        right,
                        long,
                        y,
                        q,
                        marks,
                        k,
                        firsts,
                        columns,
                    )
                elif quick:
                    seen |= by_one(
                        source,
                        at,
                        row_places,
                        row_codes,
                        count,
                        p,
                        right,
                        long,
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
                        row_codes,
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
                for layer in range(leads):
                    place_cells(g, places, lists, layer, rows, start, step, row_codes[layer * rows])
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
