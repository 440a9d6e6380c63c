"""Smooth max of small windows, neighbours side by side: its value, its tangent, and what its gradient needs.

`log Σ exp(beta·x) / beta`. Values and weights of a gradient come from powers about zero that windows share:
sums down the rows of a window, then along them. A cell past the limit is laid out as infinity, and
so is every sum that has it: such windows are done again about their own pivots, and an item where
those meet a cell that is not finite is flagged, to be done again. Tangents are about pivots throughout.
"""

# Numba types the kernels, not mypy.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

import math
from functools import cache
from typing import Any

from numba import types

from lunette.kernels.cpu import machine
from lunette.kernels.cpu.exponentials import log_up
from lunette.kernels.cpu.halves import codec
from lunette.kernels.cpu.lanes import lanes
from lunette.kernels.cpu.machine import apart, compiled, pointer, real, within
from lunette.kernels.cpu.phases import (
    cleared,
    layout,
    leading_place,
    rows_of,
    tile_of,
    tile_rows,
)
from lunette.kernels.cpu.pivots import about_pivots
from lunette.kernels.cpu.places import item_offset, list_cells
from lunette.kernels.cpu.plan import AXES, AXIS_WIDTH, BETA, COUNT_PADDING, RANK
from lunette.kernels.cpu.powers import log_over_beta, scales_of, sound, where_finite
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
    array 1 is the gradient of the result; array 2 gets three numbers for every output, one kind after
    the other. The first is the gradient over the sum of powers; where that is NaN, the others are the
    pivot and the gradient over the sum of shares about it.
    """
    outer = codec(dtype, True)
    memory, work, kept = outer.memory, outer.work, outer.kept
    here = lanes(work, work, "")
    from_y = lanes(memory, work, outer.half)
    to_y = lanes(kept if outer.half else work, work, outer.half)
    width, load, spread, store = here.width, here.load, here.spread, here.store
    store_part, unordered = here.store_part, here.unordered
    add, subtract, multiply, divide = here.add, here.subtract, here.multiply, here.divide
    store_y, store_y_part = to_y.store, to_y.store_part
    load_y, load_y_part, load_y_step = from_y.load, from_y.load_part, from_y.load_step
    lay = layout(outer, "finite", rarely=verb != "jvp")
    lay_powers = layout(outer, "powers")
    scales = scales_of(work)
    pivots, sums, tangents = about_pivots(work, rising)
    bytes_each, zero = work.bitwidth // 8, work(0)
    fill, infinity, nan = work(-math.inf if rising else math.inf), work(math.inf), work(math.nan)
    forward, tangent_wanted = verb == "forward", verb == "jvp"

    @compiled
    def uncounted(counts, counted, real_rows, cells, c):
        """Cells of padding that count in each window."""
        return subtract(multiply(counts, load(counted, c)), multiply(real_rows, load(cells, c)))

    @compiled
    def write(y, q, value, left):
        if left >= width:
            store_y(y, q, value)
        else:
            store_y_part(y, q, value, left)

    @compiled
    def note(z, k, value, left):
        if left >= width:
            store(z, k, value)
        else:
            store_part(z, k, value, left)

    @compiled
    def gradients(y, q, far, left):
        if far != 1:
            return load_y_step(y, q, far, 0, left, zero)
        if left >= width:
            return load_y(y, q)
        return load_y_part(y, q, 0, left, zero)

    @compiled
    def down(s, v, g, begin, end, low, leads):
        """For each row of outputs the sums down the rows of its windows, for all columns; from v on."""
        apart()
        slot, deep = g[SLOT], g[DEPTH] * g[SLOT]
        for i in range(begin, end):
            start, step, rows, _ = rows_of(g, i)
            for column in range(0, slot, 4 * width):
                a = b = c = d = spread(zero)
                row = (start - low) * slot + column
                for _ in range(leads):
                    for r in range(rows):
                        k = row + r * step * slot
                        a, b = add(a, load(s, k)), add(b, load(s, k + width))
                        c, d = add(c, load(s, k + 2 * width)), add(d, load(s, k + 3 * width))
                    row += deep
                k = v + column
                store(s, k, a)
                store(s, k + width, b)
                store(s, k + 2 * width, c)
                store(s, k + 3 * width, d)
            v += slot

    @compiled
    def total_at(s, v, c, counted, cells, counts, real_rows, g, taps, size, alone):
        """The sums of powers of a vector of windows."""
        within()
        total = load(s, v + c + g[taps])
        for t in range(1, size):
            total = add(total, load(s, v + c + g[taps + t]))
        if g[COUNT_PADDING]:
            total = add(total, uncounted(counts, counted, real_rows, cells, c))
        if alone:  # a window of one cell is that cell: 0/0 is NaN
            count = multiply(real_rows, load(cells, c))
            if g[COUNT_PADDING]:
                count = multiply(counts, load(counted, c))
            total = add(total, divide(spread(zero), subtract(count, spread(work(1)))))
        return total

    @compiled
    def a_row(
        s, v, y, q, far, z, k, columns, counted, cells, factor, whole_rows, g, alone, back, rest
    ):
        """A row of outputs from powers; whether some windows have to be done about their pivots."""
        apart()
        taps, size = g[TAPS], g[AXES + (g[RANK] - 1) * AXIS_WIDTH + 10]
        real_rows, counts, seen = spread(work(whole_rows)), spread(factor), 0
        backs, rests = spread(back), spread(rest)
        for c in range(0, columns, width):
            left = columns - c
            total = total_at(s, v, c, counted, cells, counts, real_rows, g, taps, size, alone)
            if forward:
                write(y, q + c, log_over_beta(total, backs, rests), left)
            else:
                gradient = gradients(y, q + c * far, far, left)
                weight = divide(gradient, total)
                total = sound(total, gradient, weight)
                note(z, k + c, weight, left)
            store(s, v + c, total)  # in place: what is right of it is all that the next ones need
            strange = subtract(total, total)
            seen |= unordered(strange, strange) & ((1 << min(left, width)) - 1)
        return seen

    @compiled
    def a_row_about_pivots(
        s, p, v, y, q, far, z, k, columns, counted, cells, factor, g, back, rest, leads, deep,
        rows, step,
    ):  # fmt: skip
        """A row of outputs again, where powers would not do: its cells are at p, the sums of powers at v."""
        apart()
        beta = spread(work(real(g[BETA])))
        taps, size = g[TAPS], g[AXES + (g[RANK] - 1) * AXIS_WIDTH + 10]
        real_rows, counts = spread(work(leads * rows)), spread(factor)
        for c in range(0, columns, width):
            left = columns - c
            total = load(s, v + c)
            strange = subtract(total, total)
            if unordered(strange, strange) == 0:
                continue
            pads = uncounted(counts, counted, real_rows, cells, c)
            pivot = pivots(s, p + c, pads, g, taps, size, leads, deep, rows, step)
            own = sums(s, p + c, pads, pivot, beta, g, taps, size, leads, deep, rows, step)
            if forward:
                value = log_over_beta(total, spread(back), spread(rest))
                other = add(pivot, divide(log_up(own), beta))
                write(y, q + c, where_finite(total, value, other), left)
            else:
                gradient = gradients(y, q + c * far, far, left)
                note(z, k + c, where_finite(total, divide(gradient, total), spread(nan)), left)
                note(z, k + g[ALL_OUTPUTS] + c, pivot, left)
                note(z, k + 2 * g[ALL_OUTPUTS] + c, divide(gradient, own), left)

    @compiled
    def a_row_of_tangents(
        s, second, p, y, q, columns, counted, cells, factor, g, leads, deep, rows, step
    ):
        apart()
        beta = spread(work(real(g[BETA])))
        taps, size = g[TAPS], g[AXES + (g[RANK] - 1) * AXIS_WIDTH + 10]
        real_rows, counts = spread(work(leads * rows)), spread(factor)
        for c in range(0, columns, width):
            pads = uncounted(counts, counted, real_rows, cells, c)
            pivot = pivots(s, p + c, pads, g, taps, size, leads, deep, rows, step)
            own = sums(s, p + c, pads, pivot, beta, g, taps, size, leads, deep, rows, step)
            total = tangents(s, second, p + c, pivot, beta, g, taps, size, leads, deep, rows, step)
            write(y, q + c, divide(total, own), columns - c)

    @compiled
    def lay_all(x, base, lists, leads, low, high, pitch, far, start, s, to, g):
        """The cells of every layer of a tile; not zero if one is not finite."""
        e, deep, seen = AXES + (g[RANK] - 1) * AXIS_WIDTH, g[DEPTH] * g[SLOT], 0
        for layer in range(leads):
            at, place = base + lists[layer] + low * pitch, to + layer * deep
            seen |= lay(
                x, at, pitch, high - low, far, start, g[e], s, place, g[SLOT], g[LENGTH],
                g[LENGTH], g[e + 7], g[PHASES], fill,
            )  # fmt: skip
        return seen

    @machine.kernel
    def smooth(x_at, y_at, z_at, scratch_at, g_at, flags_at, begin_unit, end_unit):
        g, flags = pointer(g_at, types.int64), pointer(flags_at, types.uint8)
        lists, s = pointer(scratch_at, types.int64), pointer(scratch_at + g[AREA], work)
        x, z, dx = pointer(x_at, memory), pointer(z_at, work), pointer(z_at, memory)
        y = pointer(y_at, kept if forward | tangent_wanted else memory)
        rank, most = g[RANK], g[MOST]
        e = AXES + (rank - 1) * AXIS_WIDTH
        f = AXES + max(0, rank - 2) * AXIS_WIDTH
        pitch_x, pitch_y, pitch_z = (g[f + 2], g[f + 3], g[f + 4]) if rank > 1 else (0, 0, 0)
        n, m, far, far_y, stride, alone = g[e], g[e + 1], g[e + 2], g[e + 3], g[e + 7], g[e + 11]
        slot, length, deep = g[SLOT], g[LENGTH], g[DEPTH] * g[SLOT]
        second = most * deep + SPARE
        summed = 2 * second
        rate, rest, limit, back, back_rest = scales(work(real(g[BETA])))
        how = (zero, rate, rest, limit, infinity)
        if tangent_wanted:
            cleared(s, g, 2, zero)
        for unit in range(begin_unit, end_unit):
            item, lead, row_tile, column_tile = tile_of(g, unit)
            begin, end, low, high = tile_rows(g, row_tile, 1)
            from_j = column_tile * g[COLUMNS]
            columns = min(m, from_j + g[COLUMNS]) - from_j
            leads, counted_leads = list_cells(g, g[RANK] - 2, lead, lists, most)
            start_x = stride * (from_j + g[BLOCK])
            base, third, laid = item_offset(g, item, 0), item_offset(g, item, 2), False
            if tangent_wanted:
                seen = lay_all(x, base, lists, leads, low, high, pitch_x, far, start_x, s, 0, g)
            for layer in range(leads):
                at = base + lists[layer] + low * pitch_x
                if tangent_wanted:
                    at, to = third + lists[most + layer] + low * pitch_z, second + layer * deep
                    seen |= lay(
                        dx, at, pitch_z, high - low, g[e + 4], start_x, n, s, to, slot, length,
                        length, stride, g[PHASES], zero,
                    )  # fmt: skip
                else:
                    lay_powers(
                        x, at, pitch_x, high - low, far, start_x, n, s, layer * deep, slot, length,
                        length, stride, g[PHASES], how,
                    )  # fmt: skip
            if tangent_wanted and seen:
                flags[item] = 1
            target = item_offset(g, item, 1) + leading_place(g, lead, 1, 1) + from_j * far_y
            rows_before = lead * (g[f + 1] if rank > 1 else 1)
            counted = pointer(g_at + 8 * g[COUNTED] + bytes_each * from_j, work)
            cells = pointer(g_at + 8 * g[CELLS] + bytes_each * from_j, work)
            if not tangent_wanted:
                down(s, summed, g, begin, end, low, leads)
            for i in range(begin, end):
                start, step, rows, counted_rows = rows_of(g, i)
                p, step, factor = (
                    (start - low) * slot,
                    step * slot,
                    work(counted_leads * counted_rows),
                )
                q, k = target + i * pitch_y, item * g[OUTPUTS] + (rows_before + i) * m + from_j
                if tangent_wanted:
                    a_row_of_tangents(
                        s,
                        second,
                        p,
                        y,
                        q,
                        columns,
                        counted,
                        cells,
                        factor,
                        g,
                        leads,
                        deep,
                        rows,
                        step,
                    )
                    continue
                whole, v = leads * rows, summed + (i - begin) * slot
                if a_row(
                    s, v, y, q, far_y, z, k, columns, counted, cells, factor, whole, g, alone,
                    back, back_rest,
                ):  # fmt: skip
                    if not laid:
                        laid = True
                        if lay_all(
                            x, base, lists, leads, low, high, pitch_x, far, start_x, s, second, g
                        ):
                            flags[item] = 1
                    a_row_about_pivots(
                        s, second + p, v, y, q, far_y, z, k, columns, counted, cells, factor,
                        g, back, back_rest, leads, deep, rows, step,
                    )  # fmt: skip

    return smooth
