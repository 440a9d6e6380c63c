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
from lunette.kernels.cpu.exponentials import exp_beside_one, exp_down, log_up
from lunette.kernels.cpu.halves import codec
from lunette.kernels.cpu.lanes import lanes
from lunette.kernels.cpu.machine import apart, compiled, pointer, real, within
from lunette.kernels.cpu.phases import (
    cleared,
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
    from_y, to_y = (
        lanes(memory, work, outer.half),
        lanes(kept if outer.half else work, work, outer.half),
    )
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
        """e^(beta·(value − pivot)), where the pivot is beyond every cell: one cell has 1."""
        return exp_beside_one(multiply(beta, subtract(value, pivot)))

    @compiled
    def uncounted(counts, counted, real_rows, cells, c):
        """Cells of padding that count in each window."""
        within()
        return subtract(multiply(counts, load(counted, c)), multiply(real_rows, load(cells, c)))

    @compiled
    def pivots(s, p, pads, g, taps, size, leads, deep, rows, step):
        """The extreme cells of four vectors of windows at p, p + 1, …: four chains side by side."""
        within()
        a = b = c = d = spread(fill)
        for _ in range(leads):
            for r in range(rows):
                for t in range(size):
                    k = p + r * step + g[taps + t]
                    a, b = extreme(a, load(s, k)), extreme(b, load(s, k + width))
                    c = extreme(c, load(s, k + 2 * width))
                    d = extreme(d, load(s, k + 3 * width))
            p += deep
        if g[
            COUNT_PADDING
        ]:  # zeros that count, in the windows that have some: elsewhere 0/0 is NaN
            nothing = spread(zero)
            a, b = extreme(a, divide(nothing, pads[0])), extreme(b, divide(nothing, pads[1]))
            c, d = extreme(c, divide(nothing, pads[2])), extreme(d, divide(nothing, pads[3]))
        return a, b, c, d

    @compiled
    def padding(pads, pivot, beta):
        """The shares of zeros that count."""
        below = least(spread(zero), multiply(beta, subtract(spread(zero), pivot)))
        return multiply(pads, exp_beside_one(below))

    @compiled
    def sums(s, p, pads, pivot, beta, g, taps, size, leads, deep, rows, step):
        """The sums of shares of four vectors of windows."""
        within()
        a = b = c = d = spread(zero)
        for _ in range(leads):
            for r in range(rows):
                for t in range(size):
                    k = p + r * step + g[taps + t]
                    a = add(a, share(load(s, k), pivot[0], beta))
                    b = add(b, share(load(s, k + width), pivot[1], beta))
                    c = add(c, share(load(s, k + 2 * width), pivot[2], beta))
                    d = add(d, share(load(s, k + 3 * width), pivot[3], beta))
            p += deep
        if g[COUNT_PADDING]:
            a, b = (
                add(a, padding(pads[0], pivot[0], beta)),
                add(b, padding(pads[1], pivot[1], beta)),
            )
            c, d = (
                add(c, padding(pads[2], pivot[2], beta)),
                add(d, padding(pads[3], pivot[3], beta)),
            )
        return a, b, c, d

    @compiled
    def tangent_of(s, second, p, pivot, beta, g, taps, size, leads, deep, rows, step):
        """The sum of shares times tangents of a vector of windows."""
        total = spread(zero)
        for _ in range(leads):
            for r in range(rows):
                for t in range(size):
                    k = p + r * step + g[taps + t]
                    part = exp_down(multiply(beta, subtract(load(s, k), pivot)))
                    total = add(total, multiply(part, load(s, second + k)))
            p += deep
        return total

    @compiled
    def put(y, q, far_y, z, k, all_outputs, c, columns, pivot, total, tangent, beta):
        """Write a vector of outputs, as many as are left of the row."""
        within()
        left = min(width, columns - c)
        if left <= 0:
            return
        if weighs:
            weight = divide(load_step(y, q + c * far_y, far_y, 0, left, zero), total)
            if left == width:
                store(z, k + c, pivot)
                store(z, k + all_outputs + c, weight)
            else:
                store_part(z, k + c, pivot, left)
                store_part(z, k + all_outputs + c, weight, left)
            return
        value = divide(tangent, total)
        if forward:
            value = add(pivot, divide(log_up(total), beta))
        if left == width:
            store_y(y, q + c, value)
        else:
            store_y_part(y, q + c, value, left)

    @compiled
    def a_row(
        s,
        second,
        p,
        y,
        q,
        far_y,
        z,
        k,
        all_outputs,
        columns,
        counted,
        cells,
        factor,
        g,
        leads,
        deep,
        rows,
        step,
    ):
        """A row of outputs from q on in y; pivots and weights from k on in z."""
        apart()
        beta = spread(work(real(g[BETA])))
        taps, size = g[TAPS], g[AXES + (g[RANK] - 1) * AXIS_WIDTH + 10]
        real_rows, counts = spread(work(leads * rows)), spread(factor)
        for c in range(0, columns, 4 * width):
            pads = (
                uncounted(counts, counted, real_rows, cells, c),
                uncounted(counts, counted, real_rows, cells, c + width),
                uncounted(counts, counted, real_rows, cells, c + 2 * width),
                uncounted(counts, counted, real_rows, cells, c + 3 * width),
            )
            pivot = pivots(s, p + c, pads, g, taps, size, leads, deep, rows, step)
            total = sums(s, p + c, pads, pivot, beta, g, taps, size, leads, deep, rows, step)
            for v in range(4):
                at = c + v * width
                if at >= columns:
                    break
                tangent = pivot[v]
                if tangents:
                    tangent = tangent_of(
                        s, second, p + at, pivot[v], beta, g, taps, size, leads, deep, rows, step
                    )
                put(y, q, far_y, z, k, all_outputs, at, columns, pivot[v], total[v], tangent, beta)

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
        cleared(s, g, 2 if tangents else 1, zero)
        for unit in range(begin_unit, end_unit):
            item, lead, row_tile, column_tile = tile_of(g, unit)
            begin, end, low, high = tile_rows(g, row_tile, 1)
            from_j = column_tile * g[COLUMNS]
            columns = min(m, from_j + g[COLUMNS]) - from_j
            leads, counted_leads = leading_cells(g, lead, lists, most)
            start_x, need = stride * (from_j + g[BLOCK]), g[LENGTH]
            base, third, seen = item_offset(g, item, 0), item_offset(g, item, 2), 0
            for layer in range(leads):
                at = base + lists[layer] + low * pitch_x
                seen |= lay(
                    x,
                    at,
                    pitch_x,
                    high - low,
                    far,
                    start_x,
                    n,
                    s,
                    layer * deep,
                    slot,
                    g[LENGTH],
                    need,
                    stride,
                    g[PHASES],
                    fill,
                )
                if tangents:
                    at, to = third + lists[most + layer] + low * pitch_z, second + layer * deep
                    seen |= lay(
                        dx,
                        at,
                        pitch_z,
                        high - low,
                        g[e + 4],
                        start_x,
                        n,
                        s,
                        to,
                        slot,
                        g[LENGTH],
                        need,
                        stride,
                        g[PHASES],
                        zero,
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
