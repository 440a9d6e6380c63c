"""The gradient of a smooth max of small windows: every input gathers its shares, in the order of outputs.

With weights w = gradient / sum of powers, a cell receives `e^(beta·x) Σ w` from the windows that use powers, one
exponential for each cell, and `Σ w·e^(beta·(x − pivot))` from the others. Of the first sum, the windows of each
row of outputs are added first: that is done once for all inputs that the row reads. All sums start
from +0 and follow the row-major order of outputs, so no bit depends on tiles or threads.
"""

# Numba types the kernels, not mypy.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

import math
from functools import cache
from typing import Any

from numba import types

from lunette.kernels.cpu import machine
from lunette.kernels.cpu.asking import ask_for
from lunette.kernels.cpu.exponentials import exp_down
from lunette.kernels.cpu.halves import codec
from lunette.kernels.cpu.lanes import lanes
from lunette.kernels.cpu.machine import apart, compiled, pointer, real, within
from lunette.kernels.cpu.phases import layout, leading_place, leading_readers, tile_of, tile_rows
from lunette.kernels.cpu.places import item_offset
from lunette.kernels.cpu.plan import AXES, AXIS_WIDTH, BETA, RANK
from lunette.kernels.cpu.powers import fused, power, scales_of, where_finite
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
    SLOT,
    SPARE,
    TAPS,
)

__all__ = ["kernel"]


@cache
def kernel(dtype: str, rising: bool) -> Any:
    """The kernel for a dtype and a sign of beta (`rising`: positive).

    Array 0 is the input, array 1 what the kernel `weights` has left, array 2 the gradient of the input.
    A tile has areas of rows: the weights of powers, their sums in each row of outputs by the position of
    the input (as many areas as the stride), then, where there are some, pivots and the weights about them.
    """
    outer = codec(dtype, False)
    memory, work = outer.memory, outer.work
    here, of_x = lanes(work, work, ""), lanes(memory, work, outer.half)
    width, load, store, store_step = here.width, here.load, here.store, here.store_step
    spread, zip_low, zip_high = here.spread, here.zip_low, here.zip_high
    add, subtract, multiply, unordered = here.add, here.subtract, here.multiply, here.unordered
    load_x, load_x_part, load_x_step = of_x.load, of_x.load_part, of_x.load_step
    store_x, store_x_part = of_x.store, of_x.store_part
    lay, lay_marked = layout(outer.scratch, "", True), layout(outer.scratch, "nan")
    lay_x, scales = layout(outer, "", True), scales_of(work)
    zero = work(0)
    beyond = work(math.inf if rising else -math.inf)  # a pivot whose shares are 0

    @compiled
    def put(s, to, stride, phase, c, a, b):
        """A vector of phase `phase` of blocks c, c + 1, …; of stride 2, a is phase 0 and b phase 1."""
        within()
        if stride == 1:
            store(s, to + c, a)
        elif stride == 2:
            store(s, to + 2 * c, zip_low(a, b))
            store(s, to + 2 * c + width, zip_high(a, b))
        else:
            store_step(s, to + stride * c + phase, stride, a, width)

    @compiled
    def along(s, w, to, rows, blocks, g, stride):
        """The sums along rows of weights at w, by the position of the input, from `to` on."""
        apart()
        taps, pairs = g[TAPS], g[TAPS] + stride + 1
        for _ in range(rows):
            for c in range(0, blocks, width):
                for phase in range(0, stride, 2 if stride == 2 else 1):
                    k, a, b = w + g[REACH] + c, spread(zero), spread(zero)
                    for tap in range(g[taps + phase], g[taps + phase + 1]):
                        a = add(a, load(s, k - g[pairs + 2 * tap + 1]))
                    if stride == 2:
                        for tap in range(g[taps + 1], g[taps + 2]):
                            b = add(b, load(s, k - g[pairs + 2 * tap + 1]))
                    put(s, to, stride, phase, c, a, b)
            w += g[SLOT]
            to += stride * g[LENGTH]

    @compiled
    def parted(s, pivots, second, begin, end):
        """Weights of powers, pivots and weights about them: of each window the ones that it uses.

        Not zero if a weight about a pivot is not finite.
        """
        apart()
        seen = 0
        for c in range(begin, end, width):
            weight, pivot, own = load(s, c), load(s, pivots + c), load(s, pivots + second + c)
            own = where_finite(weight, spread(zero), own)
            strange = subtract(own, own)
            seen |= unordered(strange, strange)
            store(s, c, where_finite(weight, weight, spread(zero)))
            store(s, pivots + c, where_finite(weight, spread(beyond), pivot))
            store(s, pivots + second + c, own)
        return seen

    @compiled
    def about_pivots(s, pivots, second, sums_at, count, raw, to, blocks, g, stride, beta):
        """What a row of cells, by phase at `raw`, receives from windows about pivots; from `to` on."""
        apart()
        taps, pairs = g[TAPS], g[TAPS] + stride + 1
        for c in range(0, blocks, width):
            before = spread(zero)
            for phase in range(stride):
                total, value = spread(zero), load(s, raw + phase * g[LENGTH] + c)
                for r in range(count):
                    row = pivots + (sums_at[r] - second) // stride + g[REACH] + c
                    for tap in range(g[taps + phase], g[taps + phase + 1]):
                        k = row - g[pairs + 2 * tap + 1]
                        share = exp_down(multiply(beta, subtract(value, load(s, k))))
                        total = add(total, multiply(load(s, second + k), share))
                if stride != 2:
                    put(s, to, stride, phase, c, total, total)
                elif phase == 1:
                    put(s, to, stride, phase, c, before, total)
                before = total

    @compiled
    def a_row(s, sums_at, count, more, mixed, x, at, far, gx, to, left, scales):
        """A row of inputs: `left` of them from `to` on in gx; `more` is what windows about pivots send."""
        apart()
        rate, rest, limit, _, _ = scales
        rates, rests, limits, none = spread(rate), spread(rest), spread(limit), spread(zero)
        whole = left - left % (2 * width) if (far == 1) & (mixed == 0) else 0
        for c in range(0, whole, 2 * width):  # the usual case, two vectors side by side
            ask_for(x, at + c)
            ask_for(x, at + c + width)
            a, b = none, none
            for r in range(count):
                k = sums_at[r] + c
                a, b = add(a, load(s, k)), add(b, load(s, k + width))
            value = power(load_x(x, at + c), rates, rests, limits, none)
            other = power(load_x(x, at + c + width), rates, rests, limits, none)
            store_x(gx, to + c, fused(value, a, none))
            store_x(gx, to + c + width, fused(other, b, none))
        for c in range(whole, left, width):
            total, extra, lanes_left = none, none, min(width, left - c)
            for r in range(count):
                total = add(total, load(s, sums_at[r] + c))
            if mixed:
                extra = load(s, more + c)
            if far == 1:
                value = load_x_part(x, at + c, 0, lanes_left, zero)
            else:
                value = load_x_step(x, at + c * far, far, 0, lanes_left, zero)
            value = fused(power(value, rates, rests, limits, none), total, extra)
            store_x_part(gx, to + c, value, lanes_left)

    @machine.kernel
    def gather(x_at, weights_at, gx_at, scratch_at, g_at, flags_at, begin_unit, end_unit):
        g, flags = pointer(g_at, types.int64), pointer(flags_at, types.uint8)
        lists, s = pointer(scratch_at, types.int64), pointer(scratch_at + g[AREA], work)
        x, gx, weights = pointer(x_at, memory), pointer(gx_at, memory), pointer(weights_at, work)
        rank, most = g[RANK], g[MOST]
        e = AXES + (rank - 1) * AXIS_WIDTH
        f = AXES + max(0, rank - 2) * AXIS_WIDTH
        pitch_x, pitch_gx, of_row, inner = 0, 0, 0, 0
        if rank > 1:
            pitch_x, pitch_gx, of_row, inner = g[f + 2], g[f + 4], g[f + 11], g[e + 1]
        n, m, far, stride = g[e], g[e + 1], g[e + 2], g[e + 7]
        slot, length, deep = g[SLOT], g[LENGTH], g[DEPTH] * g[SLOT]
        line, second = stride * length, most * deep + SPARE
        pivots = (1 + stride) * second
        raw = pivots + 2 * second
        sums_at = pointer(scratch_at + 24 * most, types.int64)
        number = work(real(g[BETA]))
        scales_here, beta = scales(number), spread(number)
        blocks_in_row = (n + stride - 1) // stride
        for unit in range(begin_unit, end_unit):
            item, lead, row_tile, column_tile = tile_of(g, unit)
            begin, end, low, high = tile_rows(g, row_tile, 0)
            from_j = column_tile * g[COLUMNS]
            blocks = min(blocks_in_row, from_j + g[COLUMNS]) - from_j
            leads = leading_readers(g, lead, lists, most)
            start, rows, mixed, first = from_j - g[BLOCK] - g[REACH], high - low, 0, stride * from_j
            for layer in range(leads):
                flat = item * g[OUTPUTS] + lists[most + layer] + low * inner
                mixed |= lay_marked(
                    weights,
                    flat,
                    m,
                    rows,
                    1,
                    start,
                    m,
                    s,
                    layer * deep,
                    slot,
                    0,
                    length,
                    1,
                    1,
                    zero,
                )
            for layer in range(leads):
                to = layer * deep
                if mixed:
                    flat = item * g[OUTPUTS] + lists[most + layer] + low * inner
                    for kind in range(2):
                        flat += g[ALL_OUTPUTS]
                        lay(
                            weights, flat, m, rows, 1, start, m, s, pivots + kind * second + to, slot,
                            0, length, 1, 1, zero,
                        )  # fmt: skip
                    if parted(s, pivots, second, to, to + rows * slot):
                        flags[item] = 1
                along(s, to, second + to * stride, rows, blocks, g, stride)
            base = item_offset(g, item, 0) + leading_place(g, lead, 0, 0)
            target = item_offset(g, item, 2) + leading_place(g, lead, 2, 0) + first
            left = min(n - first, stride * blocks)
            for p in range(begin, end):
                # The rows of outputs that read this one, in order: where their sums are.
                count, at = 0, base + p * pitch_x
                for layer in range(leads):
                    if rank == 1:
                        sums_at[count] = second + layer * deep * stride
                        count += 1
                        continue
                    for reader in range(g[of_row + p], g[of_row + p + 1], 2):
                        row = layer * deep + (g[reader] - low) * slot
                        sums_at[count] = second + row * stride
                        count += 1
                if mixed:
                    lay_x(
                        x, at, 0, 1, far, first, n, s, raw, 0, length, length, stride, stride, zero
                    )
                    about_pivots(
                        s, pivots, second, sums_at, count, raw, raw + line, blocks, g, stride, beta
                    )
                at += first * far
                a_row(
                    s, sums_at, count, raw + line, mixed, x, at, far, gx,
                    target + p * pitch_gx, left, scales_here,
                )  # fmt: skip

    return gather
