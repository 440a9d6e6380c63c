"""Smooth max of small windows where channels lie side by side: its value, what its gradient needs, its tangent.

Vectors of channels go through a window together. Sums are those of `smooth` and `smooth_tangents`, cell by cell in
the same order, so the bits are the same. A row of outputs makes the powers that it needs, a few positions at a time.
"""

# Numba types the kernels, not mypy.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

import math
from functools import cache
from typing import Any

from numba import types

from lunette.kernels.cpu.jit import intrinsics
from lunette.kernels.cpu.jit.intrinsics import alwaysinline, compiled, noinline, pointer, real
from lunette.kernels.cpu.micro.exp_scaled import (
    exp_scaled,
    if_finite,
    is_finite,
    log_over_beta,
    scales_of,
)
from lunette.kernels.cpu.micro.index import batch_offset, list_offsets, output_row, receptive_range
from lunette.kernels.cpu.schedule.records import PLAN
from lunette.kernels.cpu.simd.half import dtype_of
from lunette.kernels.cpu.simd.prefetch import prefetch_for
from lunette.kernels.cpu.simd.vec import vec
from lunette.kernels.cpu.simd.vec_math import exp_beside_one, exp_down, log_up
from lunette.kernels.cpu.tuning import LINE

__all__ = ["kernel"]

plan_of = PLAN.at


@cache
def kernel(dtype: str, verb: str, beta_positive: bool) -> Any:
    """The kernel of a verb for a dtype and a sign of beta (`beta_positive`: positive); no window may be empty.

    Array 0 is the input. `forward` writes array 1. `jvp` reads the tangent from array 2 and writes array 1. `weights`
    reads the gradient of the result from array 1 and writes array 2: three numbers for every output as
    `smooth` has them, in the order of positions, each with its channels. There are as many channels as
    a vector has numbers, at least.
    """
    outer = dtype_of(dtype, True)
    memory, work, kept = outer.memory, outer.work, outer.kept
    here, from_x = vec(work, work, ""), vec(memory, work, outer.half)
    to_y = vec(kept if outer.half else work, work, outer.half)
    width, load, broadcast, store = here.width, here.load, here.broadcast, here.store
    add, subtract, multiply, divide = here.add, here.subtract, here.multiply, here.divide
    extreme, least, isnan_bits = (
        here.max_num if beta_positive else here.min_num,
        here.min_num,
        here.isnan_bits,
    )
    load_x, store_y, scales = from_x.load, to_y.store, scales_of(work)
    zero, fill = work(0), work(-math.inf if beta_positive else math.inf)
    infinity, nan = work(math.inf), work(math.nan)
    forward, follows = verb == "forward", verb == "jvp"

    @compiled
    def exp_row(x, at, far, positions, cells, s, wide, how):
        """s[p·wide + c] = the sum of powers of lane c of position p, down the rows of a window."""
        noinline()
        rows, count = cells
        rate, rest, limit = how
        rates, rests, limits, others = (
            broadcast(rate),
            broadcast(rest),
            broadcast(limit),
            broadcast(infinity),
        )
        for p in range(positions):
            for vector in range(0, wide, width):
                # The last vector ends with the position, so it may repeat some channels of the one before.
                c = min(vector, wide - width)
                q, total = at + p * far + c, broadcast(zero)
                for r in range(count):
                    prefetch_for(x, q + rows[r])
                    cell = load_x(x, q + rows[r])
                    total = add(total, exp_scaled(cell, rates, rests, limits, others))
                store(s, p * wide + c, total)

    @compiled
    def extremes(x, p, rows, count, members, far, pads, padded):
        """The pivots of windows of vectors, and NaN where a cell is not finite."""
        alwaysinline()
        best, nonfinite = broadcast(fill), broadcast(zero)
        for r in range(count):
            for t in range(members):
                cell = load_x(x, p + rows[r] + t * far)
                best, nonfinite = extreme(best, cell), add(nonfinite, subtract(cell, cell))
        if padded:
            # Zeros that count, in the windows that have some: elsewhere 0/0 is NaN.
            best = extreme(best, divide(broadcast(zero), pads))
        return best, nonfinite

    @compiled
    def sums(x, p, cells, padding, pivot, beta):
        """The sums of shares about pivots."""
        alwaysinline()
        rows, count, members, far = cells
        pads, padded = padding
        total = broadcast(zero)
        for r in range(count):
            for t in range(members):
                cell = load_x(x, p + rows[r] + t * far)
                total = add(total, exp_beside_one(multiply(beta, subtract(cell, pivot))))
        if padded:
            below = least(broadcast(zero), multiply(beta, subtract(broadcast(zero), pivot)))
            total = add(total, multiply(pads, exp_beside_one(below)))
        return total

    @compiled
    def tangents(source, cells, pivot, beta):
        """The sums of shares times tangents, and NaN where one of these is not finite."""
        alwaysinline()
        x, p, dx, q = source
        rows, others, count, members, far, far_dx = cells
        total, nonfinite = broadcast(zero), broadcast(zero)
        for r in range(count):
            for t in range(members):
                cell, tangent = (
                    load_x(x, p + rows[r] + t * far),
                    load_x(dx, q + others[r] + t * far_dx),
                )
                part = exp_down(multiply(beta, subtract(cell, pivot)))
                total = add(total, multiply(part, tangent))
                nonfinite = add(nonfinite, subtract(tangent, tangent))
        return total, nonfinite

    @compiled
    def padding(plan, w, count, counted):
        """The cells of padding that count in a window, and whether it has one cell in all."""
        alwaysinline()
        members = count * w.in_bounds
        cells = counted * real(w.counted) if plan.count_padding else 1.0 * members
        return work(cells) - work(members), cells == 1.0

    @compiled
    def from_powers(plan, source, cells, s, outputs, values, weights, scales):
        """Outputs first … last of a row from the sums of positions `low` …; whether a cell was met that is not finite."""
        noinline()
        x, base = source
        rows, count, counted = cells
        low, first, last = outputs
        y, q = values
        z, k, every = weights
        w_axis, wide, padded = plan.axes[plan.rank - 1], plan.channels, plan.count_padding != 0
        far, far_y, seen = w_axis.x_stride, w_axis.y_stride, 0
        _, _, _, back, rest = scales
        backs, rests, beta = broadcast(back), broadcast(rest), broadcast(work(real(plan.beta)))
        for j in range(first, last):
            w = w_axis.windows[j]
            start, step, members = w.start, w.step, w.in_bounds
            extra, alone = padding(plan, w, count, counted)
            pads = broadcast(extra)
            added = broadcast(nan) if alone else pads
            for vector in range(0, wide, width):
                c = min(vector, wide - width)
                p, to = (start - low) * wide + c, k + j * wide + c
                total = load(s, p)
                for t in range(1, members):
                    total = add(total, load(s, p + t * step * wide))
                # A power of zero is 1.
                total = add(total, added)
                if forward:
                    value, gradient = log_over_beta(total, backs, rests), total
                else:
                    gradient = load_x(y, q + j * far_y + c)
                    value = divide(gradient, total)
                    total = is_finite(total, gradient, value)
                nonfinite = subtract(total, total)
                if isnan_bits(nonfinite, nonfinite) != 0:
                    p = base + start * far + c
                    pivot, odd = extremes(x, p, rows, count, members, step * far, pads, padded)
                    own = sums(
                        x, p, (rows, count, members, step * far), (pads, padded), pivot, beta
                    )
                    seen |= isnan_bits(odd, odd)
                    other = broadcast(nan)
                    if forward:
                        other = add(pivot, divide(log_up(own), beta))
                    else:
                        store(z, to + every, pivot)
                        store(z, to + 2 * every, divide(gradient, own))
                    value = if_finite(total, value, other)
                if forward:
                    store_y(y, to, value)
                else:
                    store(z, to, value)
        return seen

    @compiled
    def about_pivots(plan, source, cells, y, k):
        """The tangents of a row of outputs; whether a cell was met that is not finite."""
        noinline()
        x, base, dx, third = source
        rows, others, count, counted = cells
        w_axis, wide, padded = plan.axes[plan.rank - 1], plan.channels, plan.count_padding != 0
        far, far_dx, seen = w_axis.x_stride, w_axis.z_stride, 0
        beta = broadcast(work(real(plan.beta)))
        for j in range(w_axis.out_len):
            w = w_axis.windows[j]
            start, step, members = w.start, w.step, w.in_bounds
            pads = broadcast(padding(plan, w, count, counted)[0])
            for vector in range(0, wide, width):
                c = min(vector, wide - width)
                p, q = base + start * far + c, third + start * far_dx + c
                pivot, odd = extremes(x, p, rows, count, members, step * far, pads, padded)
                own = sums(x, p, (rows, count, members, step * far), (pads, padded), pivot, beta)
                total, nonfinite = tangents(
                    (x, p, dx, q),
                    (rows, others, count, members, step * far, step * far_dx),
                    pivot,
                    beta,
                )
                seen |= isnan_bits(odd, nonfinite)
                store_y(y, k + j * wide + c, divide(total, own))
        return seen

    @intrinsics.kernel
    def smooth(x_at, y_at, z_at, scratch_at, plan_at, flags_at, first, last):
        plan, flags = plan_of(plan_at), pointer(flags_at, types.uint8)
        rank, wide, most, lines = plan.rank, plan.channels, plan.list_size, plan.output_rows
        rows, others = pointer(scratch_at, types.int64), pointer(scratch_at + 8 * most, types.int64)
        # After the lists, from a line on.
        s = pointer(scratch_at + -(-40 * most // LINE) * LINE, work)
        x, dx, z = pointer(x_at, memory), pointer(z_at, memory), pointer(z_at, work)
        y = pointer(y_at, memory if verb == "weights" else kept)
        w_axis = plan.axes[rank - 1]
        m, far, together = w_axis.out_len, w_axis.x_stride, plan.beside
        every = plan.items * lines * m * wide
        scales_here = scales(work(real(plan.beta)))
        how = scales_here[0], scales_here[1], scales_here[2]
        for unit in range(first, last):
            item, row = unit // lines, unit % lines
            base, k, seen = batch_offset(plan, item, 0), unit * m * wide, 0
            count, counted = list_offsets(plan, rank - 1, row, rows, most)
            if follows:
                third = batch_offset(plan, item, 2)
                seen = about_pivots(
                    plan, (x, base, dx, third), (rows, others, count, counted), y, k
                )
            else:
                q = batch_offset(plan, item, 1) + output_row(plan, row, 1)
                for j in range(0, m, together):
                    after = min(m, j + together)
                    low, high = receptive_range(plan, rank - 1, j, after)
                    exp_row(x, base + low * far, far, high - low, (rows, count), s, wide, how)
                    seen |= from_powers(
                        plan, (x, base), (rows, count, counted), s, (low, j, after), (y, q), (z, k, every),
                        scales_here,
                    )  # fmt: skip
            if seen:
                flags[item] = 1

    return smooth
