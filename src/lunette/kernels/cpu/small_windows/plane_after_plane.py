"""A max over three axes or more whose windows share no plane: each plane is pooled as it comes, onto what is there.

A plane is the last two axes, with windows of two cells along a row. Planes of one window lie apart; read one after
the other they are in the order of memory, which the processor foresees. Results wait in a near cache until the
last plane of their windows has come, so there must not be many.

As in `folded_rows`, cells are folded in another order than the first winner's: an item is flagged where that may show.
"""

# Numba types the kernels, not mypy.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

from functools import cache
from typing import Any

from numba import types

from lunette.kernels.cpu.compiling import machine
from lunette.kernels.cpu.compiling.machine import apart, compiled, pointer, within
from lunette.kernels.cpu.plans.layout import (
    AXES,
    AXIS_WIDTH,
    COUNT,
    EXTENT,
    FLOW,
    FOLDED_TILE,
    FOLDED_TILES,
    ITEMS,
    LIST,
    LISTS,
    MEMBERS,
    RANK,
    START,
    STEP,
    STEP_X,
    TABLE,
    WINDOW_WIDTH,
)
from lunette.kernels.cpu.rows.places import item_offset, list_cells, rows_of_planes
from lunette.kernels.cpu.small_windows.folding import folding
from lunette.kernels.cpu.small_windows.rows_alike import alike
from lunette.kernels.cpu.small_windows.trust import trust
from lunette.kernels.cpu.vectors.asking import ask
from lunette.kernels.cpu.vectors.halves import INFINITY
from lunette.kernels.cpu.vectors.lanes import lanes

__all__ = ["kernel"]


@cache
def kernel(dtype: str) -> Any:
    """The kernel for a dtype. No window may be empty."""
    outer, fill, safe, _, negative, _ = folding(dtype, "most")
    memory, work, kept = outer.memory, outer.work, outer.kept
    from_x, here, to_y = (
        lanes(memory, work, outer.half),
        lanes(work, work, ""),
        lanes(kept, work, outer.half),
    )
    width, most, evens, odds = here.width, here.most, here.evens, here.odds
    load, load_part = from_x.load, from_x.load_part
    load_y, load_y_part, store, store_part = to_y.load, to_y.load_part, to_y.store, to_y.store_part
    all_lanes, both, lost, _, while_not_zero, *_ = trust(work, outer.half)
    size_of, halves = memory.bitwidth // 8, outer.half in INFINITY

    @compiled
    def onto(y, to, value, size, begun):
        """Store a vector of maxima, or `size` of its lanes: where some have `begun`, the larger of both. Gives it."""
        within()
        if size < width:
            if begun:
                value = most(load_y_part(y, to, 0, size, fill), value)
            store_part(y, to, value, size)
        else:
            if begun:
                value = most(load_y(y, to), value)
            store(y, to, value)
        return value

    @compiled
    def two(x, p, cells):
        """Two vectors of a row that has so many cells from there on."""
        within()
        if cells >= 2 * width:
            return load(x, p), load(x, p + width)
        return load_part(x, p, 0, cells, fill), load_part(x, p + width, 0, cells - width, fill)

    @compiled
    def pool(read, written, asks):
        """`count` rows of maxima, each of two rows of a plane: the first `down` further each time, the `second` so far from it.

        Gives whether a lane must not be trusted, whether a result is zero, and the bytes asked for.
        """
        apart()
        x, at, second, down, n = read
        y, to, m, count, begun = written
        x_at, asked, reached, share = asks
        trusted, others, nonzero = all_lanes(), all_lanes(), all_lanes()
        for _ in range(count):
            reached += share
            asked = ask(x_at, asked, reached)
            for j in range(0, m, width):
                p, cells = at + 2 * j, n - 2 * j
                a, b = two(x, p, cells)
                c, d = two(x, p + second, cells)
                trusted, others = safe(trusted, a, c), safe(others, b, d)
                a, b = most(a, c), most(b, d)
                best = onto(y, to + j, most(evens(a, b), odds(a, b)), m - j, begun)
                nonzero = while_not_zero(nonzero, best)
            at += down
            to += m
        return lost(both(trusted, others)), lost(nonzero), asked

    @compiled
    def pool_plane(x, y, g, base, planes, plane, count, to, rows, from_first, asks):
        """All rows of maxima of a window's plane number `plane` of `count`.

        Gives whether a lane must not be trusted, and whether a −0 is where the last plane leaves a zero.
        """
        within()
        x_at, reached, share = asks
        e = AXES + (g[RANK] - 1) * AXIS_WIDTH
        f = e - AXIS_WIDTH
        n, m, lines, far = g[e + EXTENT], g[e + COUNT], g[f + COUNT], g[f + STEP_X]
        at, line, asked = base + planes[plane], 0, reached
        seen = mixed = False
        while line < lines:
            w = g[f + TABLE] + WINDOW_WIDTH * line
            start, length = at + g[w + START] * far, g[w + MEMBERS]
            # A single row is its own second.
            second = g[w + STEP] * far if length > 1 else 0
            taken, down = from_first if line == 0 else alike(g, line, lines - line, False)
            read = (x, start, second, down * far, n)
            written = (y, to, m, taken, plane > 0)
            strange, zero, asked = pool(read, written, (x_at, asked, reached, share))
            if zero & (plane == count - 1):
                rows_of_planes(planes, count, second, length, rows, False)
                for t in range(taken):
                    there = base + start - at + t * down * far
                    mixed |= negative(x, there, rows, count * length, n)
            seen |= strange
            line, to, reached = line + taken, to + taken * m, reached + taken * share
        return seen, mixed

    @machine.kernel
    def pool_planes(x_at, y_at, z_at, scratch_at, g_at, flags_at, first, last):
        g, x, y = pointer(g_at, types.int64), pointer(x_at, memory), pointer(y_at, kept)
        flags = pointer(flags_at, types.uint8)
        planes = pointer(scratch_at + g[LISTS], types.int64)
        rows = pointer(scratch_at + g[LISTS] + 24 * g[LIST], types.int64)
        rank = g[RANK]
        e = AXES + (rank - 1) * AXIS_WIDTH
        f = e - AXIS_WIDTH
        n, lines, between = g[e + EXTENT], g[f + COUNT], 1
        for axis in range(1, rank - 2):
            between *= g[AXES + axis * AXIS_WIDTH + COUNT]
        results = lines * g[e + COUNT]
        flow = g[f + EXTENT] * n // lines * size_of if g[FLOW] > 0 else 0
        from_first = alike(g, 0, lines, False)
        for unit in range(first, last):
            item, tile = unit // g[FOLDED_TILES], unit % g[FOLDED_TILES]
            base, target = item_offset(g, item, 0), item_offset(g, item, 1)
            seen = mixed = False
            begin = tile * g[FOLDED_TILE]
            end = min(g[AXES + COUNT], begin + g[FOLDED_TILE])
            # In the order of memory: a position of the first axis, then the windows on the axes after it.
            i, member, output = begin, 0, begin * between
            while i < end:
                members = g[g[AXES + TABLE] + WINDOW_WIDTH * i + MEMBERS]
                count, _ = list_cells(g, rank - 2, output, planes, g[LIST])
                share, to = count // members, target + output * results
                for plane in range(member * share, (member + 1) * share):
                    asks = (x_at, (base + planes[plane]) * size_of, flow)
                    strange, found = pool_plane(
                        x, y, g, base, planes, plane, count, to, rows, from_first, asks
                    )
                    seen |= strange
                    mixed |= found
                output += 1
                if output == (i + 1) * between:
                    member += 1
                    if member == members:
                        i, member = i + 1, 0
                    output = i * between
            if seen:
                flags[item] = 1
            if mixed:  # of halves no quick kernel knows what to do with a −0
                flags[item if halves else g[ITEMS] + item] = 1

    return pool_planes
