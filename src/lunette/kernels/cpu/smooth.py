"""Smooth max of small windows, neighbours side by side: its value, its tangent, and what its gradient needs.

`log Σ exp(beta·x) / beta` about the window's largest cell (the smallest for beta < 0): two passes over
the cells, both in row-major order. Cells are taken on trust: an item with anything that is not
finite is flagged, to be done again. Padding that does not count is ∓inf, whose share is 0.
"""

# Numba types the kernels, not mypy.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

import math
from functools import cache
from typing import Any

from numba import types

from lunette.kernels.cpu import machine
from lunette.kernels.cpu.direct import item_offset
from lunette.kernels.cpu.exponentials import exp_down, log_up
from lunette.kernels.cpu.halves import codec
from lunette.kernels.cpu.lanes import lanes
from lunette.kernels.cpu.machine import apart, compiled, pointer, real
from lunette.kernels.cpu.phases import (
    layout,
    leading_cells,
    leading_place,
    rows_of,
    tile_of,
    tile_rows,
)
from lunette.kernels.cpu.plan import AXES, AXIS_WIDTH, BETA, COUNT_PADDING, RANK
from lunette.kernels.cpu.tiling import (
    ALL_OUTPUTS,
    AREA,
    BLOCK,
    CELLS,
    COLUMNS,
    COUNTED,
    DEPTH,
    LENGTH,
    MOST,
    OUTPUTS,
    PHASES,
    REACH,
    SLOT,
    SPARE,
    TAPS,
)

__all__ = ["kernel"]


@cache
def kernel(dtype: str, verb: str, rising: bool) -> Any:
    """The kernel of a verb for a dtype and a sign of beta (`rising`: positive); no window may be empty.

    `forward`: array 1 is the result. `jvp`: array 1 is the result, array 2 the tangent. `weights`:
    array 1 is the gradient of the result; array 2 gets, for every output, the pivot, then for every
    output its gradient over the sum.
    """
    outer = codec(dtype, True)
    memory, work, kept = outer.memory, outer.work, outer.kept
    here = lanes(work, work, "")
    from_y, to_y = lanes(memory, work, outer.half), lanes(kept if outer.half else work, work, outer.half)
    width, load, spread, store, store_part = (
        here.width,
        here.load,
        here.spread,
        here.store,
        here.store_part,
    )
    add, subtract, multiply, divide = here.add, here.subtract, here.multiply, here.divide
    extreme, least = here.most if rising else here.least, here.least
    store_y, store_y_part, load_step = to_y.store, to_y.store_part, from_y.load_step
    lay = layout(outer, "finite")
    bytes_each, zero, fill = work.bitwidth // 8, work(0), work(-math.inf if rising else math.inf)
    forward, tangents, weighs = verb == "forward", verb == "jvp", verb == "weights"

    @compiled
    def share(value, pivot, beta):
        """e^(beta·(value − pivot)), where the pivot is beyond every cell."""
        return exp_down(multiply(beta, subtract(value, pivot)))

    @compiled
    def sums(s, second, p, pads, beta, g, taps, size, leads, deep, rows, step):
        """Pivot, sum of shares, and sum of shares times tangents, of windows at p, p + 1, …"""
        pivot, q = spread(fill), p
        for _ in range(leads):
            for r in range(rows):
                for t in range(size):
                    pivot = extreme(pivot, load(s, q + r * step + g[taps + t]))
            q += deep
        if g[COUNT_PADDING]:  # zeros that count, in the windows that have some
            none = divide(spread(zero), pads)  # 0, or NaN where there are none: then no pivot
            pivot = extreme(pivot, none)
        total, tangent = spread(zero), spread(zero)
        for _ in range(leads):
            for r in range(rows):
                for t in range(size):
                    k = p + r * step + g[taps + t]
                    part = share(load(s, k), pivot, beta)
                    total = add(total, part)
                    if tangents:
                        tangent = add(tangent, multiply(part, load(s, second + k)))
            p += deep
        if g[COUNT_PADDING]:
            below = least(spread(zero), multiply(beta, subtract(spread(zero), pivot)))
            total = add(total, multiply(pads, exp_down(below)))
        return pivot, total, tangent

    @compiled
    def a_row(s, second, p, y, q, far_y, z, k, all_outputs, columns, counted, cells, counts, g, leads, deep, rows, step):
        """A row of outputs from q on in y; pivots and weights from k on in z."""
        apart()
        beta = spread(work(real(g[BETA])))
        taps, size = g[TAPS], g[AXES + (g[RANK] - 1) * AXIS_WIDTH + 10]
        real_rows = spread(work(leads * rows))
        for c in range(0, columns, width):
            left = min(width, columns - c)
            pads = subtract(
                multiply(spread(counts), load(counted, c)), multiply(real_rows, load(cells, c))
            )
            pivot, total, tangent = sums(
                s, second, p + c, pads, beta, g, taps, size, leads, deep, rows, step
            )
            if weighs:
                gradient = load_step(y, q + c * far_y, far_y, 0, left, zero)
                weight = divide(gradient, total)
                if left == width:
                    store(z, k + c, pivot)
                    store(z, k + all_outputs + c, weight)
                else:
                    store_part(z, k + c, pivot, left)
                    store_part(z, k + all_outputs + c, weight, left)
            else:
                value = divide(tangent, total)
                if forward:
                    value = add(pivot, divide(log_up(total), beta))
                if left == width:
                    store_y(y, q + c, value)
                else:
                    store_y_part(y, q + c, value, left)

    @machine.kernel
    def smooth(x_at, y_at, z_at, scratch_at, g_at, flags_at, begin_unit, end_unit):
        g, flags = pointer(g_at, types.int64), pointer(flags_at, types.uint8)
        lists, s = pointer(scratch_at, types.int64), pointer(scratch_at + g[AREA], work)
        x, z, dx = pointer(x_at, memory), pointer(z_at, work), pointer(z_at, memory)
        y = pointer(y_at, memory if weighs else kept)
        rank, most = g[RANK], g[MOST]
        e = AXES + (rank - 1) * AXIS_WIDTH
        f = AXES + max(0, rank - 2) * AXIS_WIDTH
        pitch_x, pitch_y, pitch_z = (g[f + 2], g[f + 3], g[f + 4]) if rank > 1 else (0, 0, 0)
        n, m, far, far_y, stride = g[e], g[e + 1], g[e + 2], g[e + 3], g[e + 7]
        slot, deep, second = g[SLOT], g[DEPTH] * g[SLOT], most * g[DEPTH] * g[SLOT] + SPARE
        for unit in range(begin_unit, end_unit):
            item, lead, row_tile, column_tile = tile_of(g, unit)
            begin, end, low, high = tile_rows(g, row_tile, 1)
            from_j = column_tile * g[COLUMNS]
            columns = min(m, from_j + g[COLUMNS]) - from_j
            leads, counted_leads = leading_cells(g, lead, lists, most)
            start_x, need = stride * (from_j + g[BLOCK]), columns + g[REACH]
            base, third, seen = item_offset(g, item, 0), item_offset(g, item, 2), 0
            for l in range(leads):
                at = base + lists[l] + low * pitch_x
                seen |= lay(
                    x, at, pitch_x, high - low, far, start_x, n, s, l * deep, slot, g[LENGTH], need, stride, g[PHASES], fill
                )
                if tangents:
                    at, to = third + lists[most + l] + low * pitch_z, second + l * deep
                    seen |= lay(
                        dx, at, pitch_z, high - low, g[e + 4], start_x, n, s, to, slot, g[LENGTH], need, stride, g[PHASES], zero
                    )
            if seen:
                flags[item] = 1
            target = item_offset(g, item, 1) + leading_place(g, lead, 1, 1) + from_j * far_y
            rows_before = lead * (g[f + 1] if rank > 1 else 1)
            counted = pointer(g_at + 8 * g[COUNTED] + bytes_each * from_j, work)
            cells = pointer(g_at + 8 * g[CELLS] + bytes_each * from_j, work)
            for i in range(begin, end):
                start, step, rows, counted_rows = rows_of(g, i)
                a_row(
                    s,
                    second,
                    (start - low) * slot,
                    y,
                    target + i * pitch_y,
                    far_y,
                    z,
                    item * g[OUTPUTS] + (rows_before + i) * m + from_j,
                    g[ALL_OUTPUTS],
                    columns,
                    counted,
                    cells,
                    work(counted_leads * counted_rows),
                    g,
                    leads,
                    deep,
                    rows,
                    step * slot,
                )

    return smooth
