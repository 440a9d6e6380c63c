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

from lunette.kernels.cpu.jit import intrinsics
from lunette.kernels.cpu.jit.intrinsics import alwaysinline, compiled, noinline, pointer, real
from lunette.kernels.cpu.micro.exp_scaled import exp_scaled, fused, if_finite, scales_of
from lunette.kernels.cpu.micro.index import batch_offset
from lunette.kernels.cpu.micro.polyphase import (
    layout,
    leading_place,
    leading_readers,
    tile_of,
    tile_rows,
)
from lunette.kernels.cpu.schedule.records import TILING
from lunette.kernels.cpu.schedule.tiling import SPARE
from lunette.kernels.cpu.simd.half import dtype_of
from lunette.kernels.cpu.simd.prefetch import prefetch_for
from lunette.kernels.cpu.simd.streaming import store_or_stream, stream_fence
from lunette.kernels.cpu.simd.vec import vec
from lunette.kernels.cpu.simd.vec_math import exp_down
from lunette.kernels.cpu.tuning import LINE, PAGE

__all__ = ["kernel"]

tiling_of = TILING.at


@cache
def kernel(dtype: str, beta_positive: bool) -> Any:
    """The kernel for a dtype and a sign of beta (`beta_positive`: positive).

    Array 0 is the input, array 1 what the kernel `weights` has left, array 2 the gradient of the input.
    A tile has areas of rows: the weights of powers, their sums in each row of outputs by the position of
    the input (as many areas as the stride), then, where there are some, pivots and the weights about them.
    """
    outer = dtype_of(dtype, False)
    memory, work = outer.memory, outer.work
    here, of_x = vec(work, work, ""), vec(memory, work, outer.half)
    width, load, store, scatter_strided = here.width, here.load, here.store, here.scatter_strided
    broadcast, interleave_lower, interleave_upper = (
        here.broadcast,
        here.interleave_lower,
        here.interleave_upper,
    )
    add, subtract, multiply, isnan_bits = here.add, here.subtract, here.multiply, here.isnan_bits
    load_x, load_x_part, load_x_step = of_x.load, of_x.load_n, of_x.gather_strided
    store_x_part, keep = of_x.store_n, store_or_stream(outer)
    lay, lay_marked = layout(outer.scratch, "", True), layout(outer.scratch, "nan")
    lay_x, scales = layout(outer, "", True), scales_of(work)
    zero, size_of = work(0), memory.bitwidth // 8
    beyond = work(math.inf if beta_positive else -math.inf)  # a pivot whose shares are 0

    @compiled
    def put(s, to, stride, phase, c, a, b):
        """A vector of phase `phase` of blocks c, c + 1, …; of stride 2, a is phase 0 and b phase 1."""
        alwaysinline()
        if stride == 1:
            store(s, to + c, a)
        elif stride == 2:
            store(s, to + 2 * c, interleave_lower(a, b))
            store(s, to + 2 * c + width, interleave_upper(a, b))
        else:
            scatter_strided(s, to + stride * c + phase, stride, a, width)

    @compiled
    def along(s, w, to, rows, blocks, plan, stride):
        """The sums along rows of weights at w, by the position of the input, from `to` on."""
        noinline()
        taps, pairs = plan.taps_at, plan.taps_at + stride + 1
        for _ in range(rows):
            for c in range(0, blocks, width):
                for phase in range(0, stride, 2 if stride == 2 else 1):
                    k, a, b = w + plan.reach + c, broadcast(zero), broadcast(zero)
                    for tap in range(plan.numbers[taps + phase], plan.numbers[taps + phase + 1]):
                        a = add(a, load(s, k - plan.numbers[pairs + 2 * tap + 1]))
                    if stride == 2:
                        for tap in range(plan.numbers[taps + 1], plan.numbers[taps + 2]):
                            b = add(b, load(s, k - plan.numbers[pairs + 2 * tap + 1]))
                    put(s, to, stride, phase, c, a, b)
            w += plan.row_stride
            to += stride * plan.phase_stride

    @compiled
    def along_two(s, w, to, rows, blocks, plan, blank):
        """`along` for stride 2 where no phase has more than two taps, without a loop over them."""
        noinline()
        taps, pairs, reach = plan.taps_at, plan.taps_at + 3, plan.reach
        first, second, last = plan.numbers[taps], plan.numbers[taps + 1], plan.numbers[taps + 2]
        for _ in range(rows):
            k = w + reach
            a0 = k - plan.numbers[pairs + 2 * first + 1] if second > first else blank
            a1 = k - plan.numbers[pairs + 2 * first + 3] if second > first + 1 else blank
            b0 = k - plan.numbers[pairs + 2 * second + 1] if last > second else blank
            b1 = k - plan.numbers[pairs + 2 * second + 3] if last > second + 1 else blank
            for c in range(0, blocks, width):
                a = add(load(s, a0 + c), load(s, a1 + c))
                b = add(load(s, b0 + c), load(s, b1 + c))
                put(s, to, 2, 0, c, a, b)
            w += plan.row_stride
            to += 2 * plan.phase_stride

    @compiled
    def few_readers(
        s, plan, readers, scratch, source, target, ending, scales,
    ):  # fmt: skip
        """Rows of inputs that no more than three rows of outputs read, without a loop over these.

        Where it goes `back`, a row is made from its end.
        """
        noinline()
        of_row, begin, end, low = readers
        sums, pitch_s, blank = scratch
        x, at, pitch_x = source
        gx, to, pitch_gx = target
        left, streaming, back = ending
        rate, rest, limit, _, _ = scales
        rates, rests, limits, none = (
            broadcast(rate),
            broadcast(rest),
            broadcast(limit),
            broadcast(zero),
        )
        whole = left - left % width
        start, step = (whole - width, -width) if back else (0, width)
        for p in range(begin, end):
            r, last = plan.numbers[of_row + p], plan.numbers[of_row + p + 1]
            a = sums + (plan.numbers[r] - low) * pitch_s if r < last else blank
            b = sums + (plan.numbers[r + 2] - low) * pitch_s if r + 2 < last else blank
            if r + 4 < last:
                d = sums + (plan.numbers[r + 4] - low) * pitch_s
                for k in range(whole // width):
                    c = start + k * step
                    prefetch_for(x, at + c)
                    total = add(add(load(s, a + c), load(s, b + c)), load(s, d + c))
                    value = exp_scaled(load_x(x, at + c), rates, rests, limits, none)
                    keep(gx, to + c, fused(value, total, none), streaming)
            else:
                d = blank
                for k in range(whole // width):
                    c = start + k * step
                    prefetch_for(x, at + c)
                    total = add(load(s, a + c), load(s, b + c))
                    value = exp_scaled(load_x(x, at + c), rates, rests, limits, none)
                    keep(gx, to + c, fused(value, total, none), streaming)
            if whole < left:
                total = add(add(load(s, a + whole), load(s, b + whole)), load(s, d + whole))
                value = load_x_part(x, at + whole, 0, left - whole, zero)
                value = fused(exp_scaled(value, rates, rests, limits, none), total, none)
                store_x_part(gx, to + whole, value, left - whole)
            at += pitch_x
            to += pitch_gx

    @compiled
    def parted(s, pivots, second, begin, end):
        """Weights of powers, pivots and weights about them: of each window the ones that it uses.

        Not zero if a weight about a pivot is not finite.
        """
        noinline()
        seen = 0
        for c in range(begin, end, width):
            weight, pivot, own = load(s, c), load(s, pivots + c), load(s, pivots + second + c)
            own = if_finite(weight, broadcast(zero), own)
            nonfinite = subtract(own, own)
            seen |= isnan_bits(nonfinite, nonfinite)
            store(s, c, if_finite(weight, weight, broadcast(zero)))
            store(s, pivots + c, if_finite(weight, broadcast(beyond), pivot))
            store(s, pivots + second + c, own)
        return seen

    @compiled
    def about_pivots(s, pivots, second, weights, target, plan, stride, beta):
        """What a row of cells, by phase at `raw`, receives from windows about pivots; from `to` on."""
        noinline()
        sums_at, count = weights
        raw, to, blocks = target
        taps, pairs = plan.taps_at, plan.taps_at + stride + 1
        for c in range(0, blocks, width):
            before = broadcast(zero)
            for phase in range(stride):
                total, value = broadcast(zero), load(s, raw + phase * plan.phase_stride + c)
                for r in range(count):
                    row = pivots + (sums_at[r] - second) // stride + plan.reach + c
                    for tap in range(plan.numbers[taps + phase], plan.numbers[taps + phase + 1]):
                        k = row - plan.numbers[pairs + 2 * tap + 1]
                        share = exp_down(multiply(beta, subtract(value, load(s, k))))
                        total = add(total, multiply(load(s, second + k), share))
                if stride != 2:
                    put(s, to, stride, phase, c, total, total)
                elif phase == 1:
                    put(s, to, stride, phase, c, before, total)
                before = total

    @compiled
    def a_row(s, weights, more, mixed, source, target, scales):
        """A row of inputs: `left` of them from `to` on in gx; `more` is what windows about pivots send."""
        noinline()
        sums_at, count = weights
        x, at, far = source
        gx, to, left = target
        rate, rest, limit, _, _ = scales
        rates, rests, limits, none = (
            broadcast(rate),
            broadcast(rest),
            broadcast(limit),
            broadcast(zero),
        )
        for c in range(0, left, width):
            total, extra, lanes_left = none, none, min(width, left - c)
            for r in range(count):
                total = add(total, load(s, sums_at[r] + c))
            if mixed:
                extra = load(s, more + c)
            if far == 1:
                value = load_x_part(x, at + c, 0, lanes_left, zero)
            else:
                value = load_x_step(x, at + c * far, far, 0, lanes_left, zero)
            value = fused(exp_scaled(value, rates, rests, limits, none), total, extra)
            store_x_part(gx, to + c, value, lanes_left)

    @intrinsics.kernel
    def gather(x_at, weights_at, gx_at, scratch_at, plan_at, flags_at, begin_unit, end_unit):
        plan, flags = tiling_of(plan_at), pointer(flags_at, types.uint8)
        lists, s = pointer(scratch_at, types.int64), pointer(scratch_at + plan.area, work)
        x, gx, weights = pointer(x_at, memory), pointer(gx_at, memory), pointer(weights_at, work)
        rank, most = plan.rank, plan.max_leads
        w_axis = plan.axes[rank - 1]
        h_axis = plan.axes[max(0, rank - 2)]
        pitch_x, pitch_gx, of_row, inner = 0, 0, 0, 0
        if rank > 1:
            pitch_x, pitch_gx, of_row, inner = (
                h_axis.x_stride,
                h_axis.z_stride,
                h_axis.readers_at,
                w_axis.out_len,
            )
        n, m, far, stride = w_axis.in_len, w_axis.out_len, w_axis.x_stride, w_axis.stride
        slot, length, deep = plan.row_stride, plan.phase_stride, plan.tile_rows * plan.row_stride
        line, second = stride * length, most * deep + SPARE
        pivots = (1 + stride) * second
        raw = pivots + 2 * second
        sums_at = pointer(scratch_at + 24 * most, types.int64)
        number = work(real(plan.beta))
        scales_here, beta = scales(number), broadcast(number)
        blocks_in_row = (n + stride - 1) // stride
        taps, blank = plan.taps_at, raw + 2 * line
        few_taps = (
            (stride == 2)
            & (plan.numbers[taps + 1] - plan.numbers[taps] <= 2)
            & (plan.numbers[taps + 2] - plan.numbers[taps + 1] <= 2)
        )
        # A load waits for an earlier store to the same place of another page.
        back = 0 < (gx_at - x_at) % PAGE < PAGE // 8
        few = (rank > 1) & (stride <= 2) & (far == 1) & (plan.max_readers <= 3)
        for c in range(2 * length):
            s[blank + c] = zero
        for unit in range(begin_unit, end_unit):
            item, lead, row_tile, column_tile = tile_of(plan, unit)
            begin, end, low, high = tile_rows(plan, row_tile, 0)
            from_j = column_tile * plan.columns
            blocks = min(blocks_in_row, from_j + plan.columns) - from_j
            leads = leading_readers(plan, lead, lists, most)
            start, rows, mixed, first = (
                from_j - plan.block - plan.reach,
                high - low,
                0,
                stride * from_j,
            )
            for layer in range(leads):
                flat = item * plan.outputs + lists[most + layer] + low * inner
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
                    flat = item * plan.outputs + lists[most + layer] + low * inner
                    for kind in range(2):
                        flat += plan.all_outputs
                        lay(
                            weights, flat, m, rows, 1, start, m, s, pivots + kind * second + to, slot,
                            0, length, 1, 1, zero,
                        )  # fmt: skip
                    if parted(s, pivots, second, to, to + rows * slot):
                        flags[item] = 1
                if few_taps:
                    along_two(s, to, second + to * 2, rows, blocks, plan, blank)
                else:
                    along(s, to, second + to * stride, rows, blocks, plan, stride)
            base = batch_offset(plan, item, 0) + leading_place(plan, lead, 0, 0)
            target = batch_offset(plan, item, 2) + leading_place(plan, lead, 2, 0) + first
            left = min(n - first, stride * blocks)
            if few & (leads == 1) & (mixed == 0):
                streaming = (plan.stream > 0) & ((gx_at + size_of * target) % LINE == 0)
                streaming &= (size_of * pitch_gx % LINE == 0) & (size_of * n % LINE == 0)
                few_readers(
                    s, plan, (of_row, begin, end, low), (second, slot * stride, blank), (x,
                    base + begin * pitch_x + first, pitch_x), (gx, target + begin * pitch_gx, pitch_gx), (left,
                    streaming, back), scales_here,
                )  # fmt: skip
                continue
            for p in range(begin, end):
                # The rows of outputs that read this one, in order: where their sums are.
                count, at = 0, base + p * pitch_x
                for layer in range(leads):
                    if rank == 1:
                        sums_at[count] = second + layer * deep * stride
                        count += 1
                        continue
                    for reader in range(plan.numbers[of_row + p], plan.numbers[of_row + p + 1], 2):
                        row = layer * deep + (plan.numbers[reader] - low) * slot
                        sums_at[count] = second + row * stride
                        count += 1
                if mixed:
                    lay_x(
                        x, at, 0, 1, far, first, n, s, raw, 0, length, length, stride, stride, zero
                    )
                    about_pivots(
                        s,
                        pivots,
                        second,
                        (sums_at, count),
                        (raw, raw + line, blocks),
                        plan,
                        stride,
                        beta,
                    )
                at += first * far
                a_row(
                    s, (sums_at, count), raw + line, mixed, (x, at, far), (gx,
                    target + p * pitch_gx, left), scales_here,
                )  # fmt: skip
        stream_fence()

    return gather
