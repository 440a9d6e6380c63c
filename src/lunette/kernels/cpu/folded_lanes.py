"""The rows of a window folded into one, then its positions: values of small windows with channels last.

It serves what `folded_rows` does, where the channels of a position lie side by side in memory, and positions of a row
after each other. What it flags, and the order in which a mean adds, are the same.
"""

# Numba types the kernels, not mypy.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

from functools import cache
from typing import Any

from numba import types

from lunette.kernels.cpu import machine
from lunette.kernels.cpu.asking import ask
from lunette.kernels.cpu.counts import cells_of_row
from lunette.kernels.cpu.folding import folding
from lunette.kernels.cpu.halves import INFINITY
from lunette.kernels.cpu.lanes import lanes
from lunette.kernels.cpu.layout import (
    AXES,
    AXIS_WIDTH,
    BESIDE,
    COUNT,
    DIVISORS,
    FLOW,
    FOLDED_TILE,
    FOLDED_TILES,
    ITEMS,
    LANES,
    LIST,
    LISTS,
    MEMBERS,
    PAST,
    RANK,
    START,
    STEP,
    TABLE,
    WINDOW_WIDTH,
)
from lunette.kernels.cpu.machine import apart, compiled, pointer, within
from lunette.kernels.cpu.places import item_offset, list_cells
from lunette.kernels.cpu.plan import DIRECT, LINE
from lunette.kernels.cpu.row_first import hull
from lunette.kernels.cpu.streams import settle
from lunette.kernels.cpu.trust import trust

__all__ = ["kernel"]

AT_ONCE = 128
"""Cells that are folded from one asking for memory to the next."""


@cache
def kernel(dtype: str, operation: str) -> Any:
    """The kernel of an operation, `most` or `add`, for a dtype. No window of a max may be empty."""
    summing = operation == "add"
    outer, fill, _, fold, negative, end = folding(dtype, operation)
    memory, work, kept = outer.memory, outer.work, outer.kept
    here = lanes(work, work, "")
    width, load, join, spread = here.width, here.load, getattr(here, operation), here.spread
    all_lanes, _, lost, *_ = trust(work, outer.half)
    size_of, halves = memory.bitwidth // 8, outer.half in INFINITY

    @compiled
    def positions(s, p, far, count):
        """The fold of a vector at each of `count` positions, `far` apart."""
        within()
        best = load(s, p)
        if count == 3:
            return join(join(best, load(s, p + far)), load(s, p + 2 * far))
        for _ in range(1, count):
            p += far
            best = join(best, load(s, p))
        return best

    @compiled
    def along(s, low, wide, g, table, first, last, divisors, factor, y, to, past):
        """y[to + j·wide + c] = the fold of window j, first ≤ j < last, of lane c of positions `low` … in s.

        Gives whether a result is zero.
        """
        apart()
        lead, trusted = spread(factor), all_lanes()
        for j in range(first, last):
            w = table + WINDOW_WIDTH * j
            p, far, count, at = (
                (g[w + START] - low) * wide,
                g[w + STEP] * wide,
                g[w + MEMBERS],
                j * wide,
            )
            for vector in range(0, wide, width):
                # The last vector ends with the position, so it may repeat some lanes of the one before.
                c = min(vector, max(0, wide - width))
                value = spread(fill)
                if count > 0:
                    value = positions(s, p + c, far, count)
                trusted = end(
                    value, divisors, at + c, lead, y, to + at + c, wide - c, past, trusted
                )
        return lost(trusted)

    @machine.kernel
    def fold_lanes(x_at, y_at, z_at, scratch_at, g_at, flags_at, first, last):
        g, s = pointer(g_at, types.int64), pointer(scratch_at, work)
        x, y = pointer(x_at, memory), pointer(y_at, kept)
        flags = pointer(flags_at, types.uint8)
        rows = pointer(scratch_at + g[LISTS], types.int64)
        rank, divisors, wide = g[RANK], pointer(g[DIVISORS], work), g[LANES]
        e = AXES + (rank - 1) * AXIS_WIDTH
        m, table, together = g[e + COUNT], g[e + TABLE], g[BESIDE]
        across = 1
        for axis in range(1, rank - 1):
            across *= g[AXES + axis * AXIS_WIDTH + COUNT]
        flow, past = g[FLOW] * size_of, (g[PAST] == DIRECT) & (y_at % LINE == 0)
        for unit in range(first, last):
            item, tile = unit // g[FOLDED_TILES], unit % g[FOLDED_TILES]
            base, target, seen, mixed = (
                item_offset(g, item, 0),
                item_offset(g, item, 1),
                False,
                False,
            )
            begin, stop = (
                tile * g[FOLDED_TILE] * across,
                min(g[AXES + COUNT], (tile + 1) * g[FOLDED_TILE]) * across,
            )
            asked = base * size_of + begin * flow
            for row in range(begin, stop):
                count, _ = list_cells(g, rank - 1, row, rows, g[LIST])
                factor = work(1)
                if summing:
                    factor = work(cells_of_row(g, row))
                to, reached = target + row * m * wide, base * size_of + row * flow
                for j in range(0, m, together):
                    after = min(m, j + together)
                    low, high = hull(g, rank - 1, j, after)
                    at, cells = base + low * wide, (high - low) * wide
                    start, share = reached + flow * j // m, flow * (after - j) // m
                    if count > 0:
                        for c in range(0, cells, AT_ONCE):
                            some = min(AT_ONCE, cells - c)
                            if flow > 0:
                                asked = ask(x_at, asked, start + share * (c + some) // cells)
                            seen |= fold(x, at + c, rows, count, some, s, c)
                    else:
                        for c in range(cells):
                            s[c] = fill
                    zero = along(s, low, wide, g, table, j, after, divisors, factor, y, to, past)
                    if zero:
                        mixed |= negative(x, at, rows, count, cells)
            if seen:
                flags[item] = 1
            if mixed:  # of halves no quick kernel knows what to do with a −0
                flags[item if halves else g[ITEMS] + item] = 1
        settle()

    return fold_lanes
