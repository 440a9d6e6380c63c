"""The gradient of a smooth max of small windows: every input gathers its shares, in the order of outputs.

With weights w = gradient / sum of powers, a cell receives `e^(beta·x) Σ w` from the windows that use powers,
one exponential for each cell, and `Σ w·e^(beta·(x − pivot))` from the others. Both sums start from +0 and
follow the row-major order of outputs, so no bit depends on tiles or threads.
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
from lunette.kernels.cpu.exponentials import exp_down
from lunette.kernels.cpu.halves import codec
from lunette.kernels.cpu.lanes import lanes
from lunette.kernels.cpu.machine import apart, compiled, pointer, real, within
from lunette.kernels.cpu.phases import (
    layout,
    leading_place,
    leading_readers,
    tile_of,
    tile_rows,
)
from lunette.kernels.cpu.plan import AXES, AXIS_WIDTH, BETA, RANK
from lunette.kernels.cpu.powers import fused, scales_of, where_finite
from lunette.kernels.cpu.tiling import (
    ALL_OUTPUTS,
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
    TOGETHER,
)

__all__ = ["kernel"]


@cache
def kernel(dtype: str, rising: bool) -> Any:
    """The kernel for a dtype and a sign of beta (`rising`: positive).

    Array 0 is the input, array 1 what the kernel `weights` has left, array 2 the gradient of the input.
    """
    outer = codec(dtype, False)
    memory, work = outer.memory, outer.work
    here, to_x = lanes(work, work, ""), lanes(memory, work, outer.half)
    width, load, store, spread = here.width, here.load, here.store, here.spread
    add, subtract, multiply, unordered = here.add, here.subtract, here.multiply, here.unordered
    zip_low, zip_high = here.zip_low, here.zip_high
    store_x, store_x_part, store_x_step = to_x.store, to_x.store_part, to_x.store_step
    lay, lay_marked = layout(outer.scratch, ""), layout(outer.scratch, "nan")
    lay_x, lay_powers = layout(outer, ""), layout(outer, "powers")
    scales = scales_of(work)
    bytes_each, zero = work.bitwidth // 8, work(0)
    beyond = work(math.inf if rising else -math.inf)  # a pivot whose shares are 0

    @compiled
    def received(s, second, cells, raw, at, c, places, first, last, beta, mixed):
        """What two vectors of cells of one phase receive from readers first … last of the list."""
        within()
        a = b = d = e = spread(zero)
        for reader in range(first, last):
            k = places[reader] + c
            a, b = add(a, load(s, k)), add(b, load(s, k + width))
        if mixed:
            value, other = load(cells, raw + at + c), load(cells, raw + at + c + width)
            for reader in range(first, last):
                k = second + places[reader] + c
                share = exp_down(multiply(beta, subtract(value, load(s, k))))
                d = add(d, multiply(load(s, second + k), share))
                k += width
                share = exp_down(multiply(beta, subtract(other, load(s, k))))
                e = add(e, multiply(load(s, second + k), share))
        a = fused(load(cells, at + c), a, d)
        return a, fused(load(cells, at + c + width), b, e)

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
        s, second, cells, cell, raw, length, places, readers, gx, at, left, blocks, g, taps, stride, beta, mixed
    ):  # fmt: skip
        """A row of inputs: `left` of them from `at` on in gx, in `blocks` of `stride`."""
        apart()
        for c in range(0, blocks, 2 * width):
            if stride == 2:
                one, two = readers * g[taps + 1], readers * g[taps + 2]
                a, b = received(s, second, cells, raw, cell, c, places, 0, one, beta, mixed)
                d, e = received(
                    s, second, cells, raw, cell + length, c, places, one, two, beta, mixed
                )
                place, rest = at + 2 * c, left - 2 * c
                keep_joined(gx, place, a, d, rest)
                keep_joined(gx, place + 2 * width, b, e, rest - 2 * width)
                continue
            for phase in range(stride):
                first, last = readers * g[taps + phase], readers * g[taps + phase + 1]
                place = cell + phase * length
                a, b = received(s, second, cells, raw, place, c, places, first, last, beta, mixed)
                if stride == 1:
                    keep(gx, at + c, a, left - c)
                    keep(gx, at + c + width, b, left - c - width)
                    continue
                cells_left = max(0, (left - stride * c - phase + stride - 1) // stride)
                place = at + stride * c + phase
                store_x_step(gx, place, stride, a, min(width, cells_left))
                cells_left = max(0, cells_left - width)
                store_x_step(gx, place + stride * width, stride, b, min(width, cells_left))

    @compiled
    def listed(places, rows, count, g, taps, stride):
        """Where each reader of a row is, by phase, in order."""
        entry, pairs = 0, taps + stride + 1
        for phase in range(stride):
            for r in range(count):
                for tap in range(g[taps + phase], g[taps + phase + 1]):
                    places[entry] = rows[r] - g[pairs + 2 * tap + 1]
                    entry += 1

    @compiled
    def parted(s, second, begin, end):
        """Weights of powers, pivots and weights about them: of each window the ones that it uses.

        Not zero if a weight about a pivot is not finite.
        """
        apart()
        seen = 0
        for c in range(begin, end, width):
            weight, pivot, own = (
                load(s, c), load(s, second + c), load(s, 2 * second + c)
            )  # fmt: skip
            own = where_finite(weight, spread(zero), own)
            strange = subtract(own, own)
            seen |= unordered(strange, strange)
            store(s, c, where_finite(weight, weight, spread(zero)))
            store(s, second + c, where_finite(weight, spread(beyond), pivot))
            store(s, 2 * second + c, own)
        return seen

    @machine.kernel
    def gather(x_at, weights_at, gx_at, scratch_at, g_at, flags_at, begin_unit, end_unit):
        g, flags = pointer(g_at, types.int64), pointer(flags_at, types.uint8)
        lists, s = pointer(scratch_at, types.int64), pointer(scratch_at + g[AREA], work)
        x, gx, weights = pointer(x_at, memory), pointer(gx_at, memory), pointer(weights_at, work)
        rank, most, all_outputs = g[RANK], g[MOST], g[ALL_OUTPUTS]
        e = AXES + (rank - 1) * AXIS_WIDTH
        f = AXES + max(0, rank - 2) * AXIS_WIDTH
        pitch_x, pitch_gx, of_row, inner = 0, 0, 0, 0
        if rank > 1:
            pitch_x, pitch_gx, of_row, inner = g[f + 2], g[f + 4], g[f + 11], g[e + 1]
        n, m, far, stride = g[e], g[e + 1], g[e + 2], g[e + 7]
        slot, deep, second = g[SLOT], g[DEPTH] * g[SLOT], most * g[DEPTH] * g[SLOT] + SPARE
        cells = pointer(scratch_at + g[AREA] + bytes_each * 3 * second, work)
        rows_at = pointer(scratch_at + 24 * most, types.int64)
        places = pointer(scratch_at + 24 * most + 16 * g[READERS], types.int64)
        number = work(real(g[BETA]))
        rate, rest, limit, _, _ = scales(number)
        how, beta, length = (zero, rate, rest, limit, zero), spread(number), g[LENGTH]
        line = stride * length
        together = max(1, TOGETHER // line)
        raw = together * line
        blocks_in_row = (n + stride - 1) // stride
        for unit in range(begin_unit, end_unit):
            item, lead, row_tile, column_tile = tile_of(g, unit)
            begin, end, low, high = tile_rows(g, row_tile, 0)
            from_j = column_tile * g[COLUMNS]
            blocks = min(blocks_in_row, from_j + g[COLUMNS]) - from_j
            leads = leading_readers(g, lead, lists, most)
            start, rows, mixed = from_j - g[BLOCK] - g[REACH], high - low, 0
            for layer in range(leads):
                flat = item * g[OUTPUTS] + lists[most + layer] + low * inner
                to = layer * deep
                mixed |= lay_marked(
                    weights, flat, m, rows, 1, start, m, s, to, slot, 0, length, 1, 1, zero
                )
            if mixed:
                for layer in range(leads):
                    flat = item * g[OUTPUTS] + lists[most + layer] + low * inner
                    for kind in range(1, 3):
                        flat, to = flat + all_outputs, kind * second + layer * deep
                        lay(weights, flat, m, rows, 1, start, m, s, to, slot, 0, length, 1, 1, zero)
                    if parted(s, second, layer * deep, layer * deep + rows * slot):
                        flags[item] = 1
            base = item_offset(g, item, 0) + leading_place(g, lead, 0, 0)
            target = item_offset(g, item, 2) + leading_place(g, lead, 2, 0) + stride * from_j
            first = stride * from_j
            for p in range(begin, end):
                place = (p - begin) % together * line
                if place == 0:
                    at, ahead = base + p * pitch_x, min(together, end - p)
                    lay_powers(
                        x, at, pitch_x, ahead, far, first, n, cells, 0, line, length, length,
                        stride, stride, how,
                    )  # fmt: skip
                    if mixed:
                        lay_x(
                            x, at, pitch_x, ahead, far, first, n, cells, raw, line, length, length,
                            stride, stride, zero,
                        )  # fmt: skip
                # The rows of outputs that read this one, in order.
                count = 0
                for layer in range(leads):
                    to = layer * deep + g[REACH]
                    if rank == 1:
                        rows_at[count] = to
                        count += 1
                        continue
                    for reader in range(g[of_row + p], g[of_row + p + 1], 2):
                        rows_at[count] = to + (g[reader] - low) * slot
                        count += 1
                listed(places, rows_at, count, g, g[TAPS], stride)
                left = min(n - first, stride * blocks)
                a_row(
                    s, second, cells, place, raw, length, places, count, gx, target + p * pitch_gx, left,
                    blocks, g, g[TAPS], stride, beta, mixed,
                )  # fmt: skip

    return gather
