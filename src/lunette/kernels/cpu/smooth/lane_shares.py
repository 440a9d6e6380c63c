"""The gradient of a smooth max where channels lie side by side: every position gathers its shares.

What the kernel `weights` of `smooth_lanes` has left is added in the order of `shares`, so the bits are the same.
"""

# Numba types the kernels, not mypy.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

import math
from functools import cache
from typing import Any

from numba import types

from lunette.kernels.cpu.compiling import machine
from lunette.kernels.cpu.compiling.machine import compiled, pointer, real, within
from lunette.kernels.cpu.plans.layout import (
    AXES,
    AXIS_WIDTH,
    BETA,
    COUNT,
    DIRECT,
    EXTENT,
    ITEMS,
    LANES,
    LIST,
    OUTPUT_ROWS,
    PAST,
    RANK,
    READ_BY,
    STEP_X,
)
from lunette.kernels.cpu.plans.sizes import LINE
from lunette.kernels.cpu.rows.places import item_offset, place_of, rows_reading
from lunette.kernels.cpu.smooth.powers import fused, power, scales_of, where_finite
from lunette.kernels.cpu.vectors.asking import ask_for
from lunette.kernels.cpu.vectors.exponentials import exp_down
from lunette.kernels.cpu.vectors.halves import codec
from lunette.kernels.cpu.vectors.lanes import lanes
from lunette.kernels.cpu.vectors.past_caches import keeping, settle

__all__ = ["kernel"]


@cache
def kernel(dtype: str, rising: bool) -> Any:
    """The kernel for a dtype and a sign of beta (`rising`: positive).

    Array 0 is the input, 1 the weights, 2 the gradient of the input. Weights and array 2 lie in memory as their positions
    come, each with its channels.
    """
    outer = codec(dtype, False)
    memory, work = outer.memory, outer.work
    here, of_x = lanes(work, work, ""), lanes(memory, work, outer.half)
    width, load, spread, add = here.width, here.load, here.spread, here.add
    subtract, multiply, unordered = here.subtract, here.multiply, here.unordered
    load_x, keep, scales = of_x.load, keeping(outer), scales_of(work)
    zero = work(0)
    beyond = work(math.inf if rising else -math.inf)  # a pivot whose shares are 0

    @compiled
    def weights_of(weights, k, rows, count, apart, g, begin, end, wide):
        """The sum of the weights of the windows that read a vector: those of each row of outputs first."""
        within()
        total = spread(zero)
        for r in range(count):
            part = spread(zero)
            for reader in range(begin, end, 2):
                part = add(part, load(weights, k + rows[r] * apart + g[reader] * wide))
            total = add(total, part)
        return total

    @compiled
    def mixed(weights, every, k, rows, count, apart, g, begin, end, wide, cell, beta):
        """The same where some windows are about pivots, and what these send; NaN beside it where that is not finite."""
        total, extra, strange = spread(zero), spread(zero), spread(zero)
        for r in range(count):
            part = spread(zero)
            for reader in range(begin, end, 2):
                at = k + rows[r] * apart + g[reader] * wide
                weight = load(weights, at)
                own = where_finite(weight, spread(zero), load(weights, at + 2 * every))
                pivot = where_finite(weight, spread(beyond), load(weights, at + every))
                part = add(part, where_finite(weight, weight, spread(zero)))
                share = exp_down(multiply(beta, subtract(cell, pivot)))
                extra = add(extra, multiply(own, share))
                strange = add(strange, subtract(own, own))
            total = add(total, part)
        return total, extra, strange

    @machine.kernel
    def gather(x_at, weights_at, gx_at, scratch_at, g_at, flags_at, first, last):
        g, flags = pointer(g_at, types.int64), pointer(flags_at, types.uint8)
        x, gx, weights = pointer(x_at, memory), pointer(gx_at, memory), pointer(weights_at, work)
        rank, wide, most = g[RANK], g[LANES], g[LIST]
        rows = pointer(scratch_at, types.int64)
        grads = pointer(scratch_at + 8 * most, types.int64)
        codes = pointer(scratch_at + 16 * most, types.int64)
        e, lines = AXES + (rank - 1) * AXIS_WIDTH, 1
        for axis in range(rank - 1):
            lines *= g[AXES + axis * AXIS_WIDTH + EXTENT]
        n, m, far, list_at = g[e + EXTENT], g[e + COUNT], g[e + STEP_X], g[e + READ_BY]
        past, every = (
            (g[PAST] == DIRECT) & (gx_at % LINE == 0),
            g[ITEMS] * g[OUTPUT_ROWS] * m * wide,
        )
        beta, none = spread(work(real(g[BETA]))), spread(zero)
        rate, rest, limit, _, _ = scales(work(real(g[BETA])))
        rates, rests, limits = spread(rate), spread(rest), spread(limit)
        for unit in range(first, last):
            item, row = unit // lines, unit % lines
            at = item_offset(g, item, 0) + place_of(g, row * n, 0)
            flat, seen = item * g[OUTPUT_ROWS], 0
            count = rows_reading(g, row, most, rows, grads, codes)
            for p in range(n):
                begin, end, to = g[list_at + p], g[list_at + p + 1], (unit * n + p) * wide
                for vector in range(0, wide, width):
                    # The last vector ends with the position, so it may repeat some channels of the one before.
                    c = min(vector, wide - width)
                    k = flat * m * wide + c
                    ask_for(x, at + p * far + c)
                    cell, extra = load_x(x, at + p * far + c), none
                    total = weights_of(weights, k, rows, count, m * wide, g, begin, end, wide)
                    strange = subtract(total, total)
                    if unordered(strange, strange) != 0:
                        total, extra, strange = mixed(
                            weights,
                            every,
                            k,
                            rows,
                            count,
                            m * wide,
                            g,
                            begin,
                            end,
                            wide,
                            cell,
                            beta,
                        )
                        seen |= unordered(strange, strange)
                    value = fused(power(cell, rates, rests, limits, none), total, extra)
                    keep(gx, to + c, value, past)
            if seen:
                flags[item] = 1
        settle()

    return gather
