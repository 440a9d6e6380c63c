"""Small windows of a max: reduce along the last axis first, then each axis before it.

Of equal cells, each step keeps the earlier, so the last axis first gives the first in row-major
order: the winner's own bits, be it a zero of either sign or a NaN. A unit is a tile of outputs on
the first pooled axis of one item; what it needs of each axis lies in this thread's scratch memory.
"""

# Numba types the kernels, not mypy.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

from functools import cache
from typing import Any

from numba import types

from lunette.kernels.cpu.direct import item_offset
from lunette.kernels.cpu.halves import codec
from lunette.kernels.cpu.machine import compiled, pointer
from lunette.kernels.cpu.passes import passes
from lunette.kernels.cpu.plan import AXES, AXIS_WIDTH, LANES, RANK, SECOND, TILE, TILES

__all__ = ["kernel"]


@compiled
def hull(g, axis, first, last):
    """The least range of positions that outputs first … last of an axis read."""
    table = g[AXES + axis * AXIS_WIDTH + 5]
    low, high = g[table + 4 * first], g[table + 4 * first + 1]
    for i in range(first + 1, last):
        low, high = min(low, g[table + 4 * i]), max(high, g[table + 4 * i + 1])
    return low, high


@cache
def kernel(dtype: str) -> Any:
    """The kernel for a dtype; every axis may be regular or not, but no window may be empty."""
    outer = codec(dtype, False)
    inner = outer.scratch
    from_x, within = passes(outer, inner, "larger"), passes(inner, inner, "larger")
    to_y, whole = passes(inner, outer, "larger"), passes(outer, outer, "larger")
    along, along_table, across = from_x.along, from_x.along_table, from_x.across
    along_y, along_table_y, across_y = whole.along, whole.along_table, whole.across
    across_within, across_to_y = within.across, to_y.across
    memory, work = outer.memory, outer.work

    @compiled
    def reduce_rows(x_at, y_at, z_at, scratch_at, g_at, room, first, last):
        g, s = pointer(g_at, types.int64), pointer(scratch_at, work)
        x, y = pointer(x_at, memory), pointer(y_at, memory)
        rank, wide = g[RANK], g[LANES]
        e = AXES + (rank - 1) * AXIS_WIDTH
        n, m, far, table = g[e], g[e + 1], g[e + 2], g[e + 5]
        stride, origin, dilation, size = g[e + 7], g[e + 8], g[e + 9], g[e + 10]
        for unit in range(first, last):
            item, tile = unit // g[TILES], unit % g[TILES]
            base, target = item_offset(g, item, 0), item_offset(g, item, 1)
            begin, end = tile * g[TILE], min(g[AXES + 1], (tile + 1) * g[TILE])
            if rank == 1:
                if wide > 0:
                    for j in range(begin, end):
                        w = table + 4 * j
                        count = (g[w + 1] - g[w] + g[w + 2] - 1) // g[w + 2]
                        at = base + g[w] * far
                        across_y(x, at, g[w + 2] * far, count, y, target + j * wide, wide)
                elif size > 0:
                    start = origin + stride * begin
                    to = target + begin
                    along_y(x, base, far, n, y, to, end - begin, stride, start, dilation, size)
                else:
                    along_table_y(x, base, far, g, table, y, target + begin, begin, end)
                continue
            low, high = hull(g, 0, begin, end)
            lines = 1
            for axis in range(1, rank - 1):
                lines *= g[AXES + axis * AXIS_WIDTH]
            place = 0
            for position in range(low, high):
                for line in range(lines):
                    at, rest = base + position * g[AXES + 2], line
                    for axis in range(rank - 2, 0, -1):
                        f = AXES + axis * AXIS_WIDTH
                        at += (rest % g[f]) * g[f + 2]
                        rest //= g[f]
                    if wide > 0:
                        for j in range(m):
                            w = table + 4 * j
                            count = (g[w + 1] - g[w] + g[w + 2] - 1) // g[w + 2]
                            across(x, at + g[w] * far, g[w + 2] * far, count, s, place, wide)
                            place += wide
                    elif size > 0:
                        along(x, at, far, n, s, place, m, stride, origin, dilation, size)
                        place += m
                    else:
                        along_table(x, at, far, g, table, s, place, 0, m)
                        place += m
            span, here, there = m * max(wide, 1), 0, g[SECOND]
            for axis in range(rank - 2, 0, -1):
                f = AXES + axis * AXIS_WIDTH
                lines //= g[f]
                place = there
                for line in range((high - low) * lines):
                    for i in range(g[f + 1]):
                        w = g[f + 5] + 4 * i
                        count = (g[w + 1] - g[w] + g[w + 2] - 1) // g[w + 2]
                        at = here + (line * g[f] + g[w]) * span
                        across_within(s, at, g[w + 2] * span, count, s, place, span)
                        place += span
                span *= g[f + 1]
                here, there = there, here
            for i in range(begin, end):
                w = g[AXES + 5] + 4 * i
                count = (g[w + 1] - g[w] + g[w + 2] - 1) // g[w + 2]
                at = here + (g[w] - low) * span
                across_to_y(s, at, g[w + 2] * span, count, y, target + i * span, span)

    return reduce_rows
