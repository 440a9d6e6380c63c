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

from lunette.kernels.cpu.jit import intrinsics
from lunette.kernels.cpu.jit.intrinsics import alwaysinline, compiled, pointer, real
from lunette.kernels.cpu.micro.exp_scaled import exp_scaled, fused, if_finite, scales_of
from lunette.kernels.cpu.micro.index import batch_offset, place_of, readers_of_row
from lunette.kernels.cpu.schedule.records import NHWC_PLAN
from lunette.kernels.cpu.schedule.slots import DIRECT
from lunette.kernels.cpu.simd.half import dtype_of
from lunette.kernels.cpu.simd.prefetch import prefetch_for
from lunette.kernels.cpu.simd.streaming import store_or_stream, stream_fence
from lunette.kernels.cpu.simd.vec import vec
from lunette.kernels.cpu.simd.vec_math import exp_down
from lunette.kernels.cpu.tuning import LINE

__all__ = ["kernel"]

plan_of = NHWC_PLAN.at


@cache
def kernel(dtype: str, beta_positive: bool) -> Any:
    """The kernel for a dtype and a sign of beta (`beta_positive`: positive).

    Array 0 is the input, 1 the weights, 2 the gradient of the input. Weights and array 2 lie in memory as their positions
    come, each with its channels.
    """
    outer = dtype_of(dtype, False)
    memory, work = outer.memory, outer.work
    here, of_x = vec(work, work, ""), vec(memory, work, outer.half)
    width, load, broadcast, add = here.width, here.load, here.broadcast, here.add
    subtract, multiply, isnan_bits = here.subtract, here.multiply, here.isnan_bits
    load_x, keep, scales = of_x.load, store_or_stream(outer), scales_of(work)
    zero = work(0)
    beyond = work(math.inf if beta_positive else -math.inf)  # a pivot whose shares are 0

    @compiled
    def weights_of(weights, k, cells, plan, readers, wide):
        """The sum of the weights of the windows that read a vector: those of each row of outputs first."""
        alwaysinline()
        rows, count, apart = cells
        begin, end = readers
        total = broadcast(zero)
        for r in range(count):
            part = broadcast(zero)
            for reader in range(begin, end, 2):
                part = add(part, load(weights, k + rows[r] * apart + plan.numbers[reader] * wide))
            total = add(total, part)
        return total

    @compiled
    def mixed(weights, every, k, cells, plan, readers, wide, softmax):
        """The same where some windows are about pivots, and what these send; NaN beside it where that is not finite."""
        rows, count, apart = cells
        begin, end = readers
        cell, beta = softmax
        total, extra, nonfinite = broadcast(zero), broadcast(zero), broadcast(zero)
        for r in range(count):
            part = broadcast(zero)
            for reader in range(begin, end, 2):
                at = k + rows[r] * apart + plan.numbers[reader] * wide
                weight = load(weights, at)
                own = if_finite(weight, broadcast(zero), load(weights, at + 2 * every))
                pivot = if_finite(weight, broadcast(beyond), load(weights, at + every))
                part = add(part, if_finite(weight, weight, broadcast(zero)))
                share = exp_down(multiply(beta, subtract(cell, pivot)))
                extra = add(extra, multiply(own, share))
                nonfinite = add(nonfinite, subtract(own, own))
            total = add(total, part)
        return total, extra, nonfinite

    @intrinsics.kernel
    def gather(x_at, weights_at, gx_at, scratch_at, plan_at, flags_at, first, last):
        plan, flags = plan_of(plan_at), pointer(flags_at, types.uint8)
        x, gx, weights = pointer(x_at, memory), pointer(gx_at, memory), pointer(weights_at, work)
        rank, wide, most = plan.rank, plan.channels, plan.list_size
        rows = pointer(scratch_at, types.int64)
        grads = pointer(scratch_at + 8 * most, types.int64)
        codes = pointer(scratch_at + 16 * most, types.int64)
        w_axis, lines = plan.axes[rank - 1], 1
        for axis in range(rank - 1):
            lines *= plan.axes[axis].in_len
        n, m, far, list_at = w_axis.in_len, w_axis.out_len, w_axis.x_stride, w_axis.readers_at
        streaming, every = (
            (plan.stream == DIRECT) & (gx_at % LINE == 0),
            plan.items * plan.output_rows * m * wide,
        )
        beta, none = broadcast(work(real(plan.beta))), broadcast(zero)
        rate, rest, limit, _, _ = scales(work(real(plan.beta)))
        rates, rests, limits = broadcast(rate), broadcast(rest), broadcast(limit)
        for unit in range(first, last):
            item, row = unit // lines, unit % lines
            at = batch_offset(plan, item, 0) + place_of(plan, row * n, 0)
            flat, seen = item * plan.output_rows, 0
            count = readers_of_row(plan, row, rows, grads, codes)
            for p in range(n):
                begin, end, to = (
                    plan.numbers[list_at + p],
                    plan.numbers[list_at + p + 1],
                    (unit * n + p) * wide,
                )
                for vector in range(0, wide, width):
                    # The last vector ends with the position, so it may repeat some channels of the one before.
                    c = min(vector, wide - width)
                    k = flat * m * wide + c
                    prefetch_for(x, at + p * far + c)
                    cell, extra = load_x(x, at + p * far + c), none
                    total = weights_of(
                        weights, k, (rows, count, m * wide), plan, (begin, end), wide
                    )
                    nonfinite = subtract(total, total)
                    if isnan_bits(nonfinite, nonfinite) != 0:
                        total, extra, nonfinite = mixed(
                            weights,
                            every,
                            k,
                            (rows, count, m * wide),
                            plan,
                            (begin, end),
                            wide,
                            (cell, beta),
                        )
                        seen |= isnan_bits(nonfinite, nonfinite)
                    value = fused(exp_scaled(cell, rates, rests, limits, none), total, extra)
                    keep(gx, to + c, value, streaming)
            if seen:
                flags[item] = 1
        stream_fence()

    return gather
