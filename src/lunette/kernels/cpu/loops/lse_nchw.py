"""Smooth max of small windows, neighbours side by side: its value, and what its gradient needs.

`log Σ exp(beta·x) / beta`, from powers about zero that windows share. A cell past the limit is laid out as
infinity, and so is every sum that has it: such windows are done again about their own pivots, and an
item where those meet a cell that is not finite is flagged, to be done again.
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
from lunette.kernels.cpu.micro.exp_scaled import if_finite, is_finite, log_over_beta, scales_of
from lunette.kernels.cpu.micro.exp_sums import exp_sums
from lunette.kernels.cpu.micro.index import batch_offset, list_offsets
from lunette.kernels.cpu.micro.lse_shifted import about_pivots
from lunette.kernels.cpu.micro.polyphase import (
    layout,
    leading_place,
    rows_in_ring,
    rows_of,
    tile_of,
    tile_rows,
)
from lunette.kernels.cpu.schedule.records import TILING
from lunette.kernels.cpu.schedule.tiling import SPARE, TURN
from lunette.kernels.cpu.simd.half import dtype_of
from lunette.kernels.cpu.simd.vec import vec
from lunette.kernels.cpu.simd.vec_math import log_up

__all__ = ["kernel"]

tiling_of = TILING.at


@cache
def kernel(dtype: str, verb: str, beta_positive: bool) -> Any:
    """The kernel of a verb for a dtype and a sign of beta (`beta_positive`: positive); no window may be empty.

    `forward`: array 1 is the result. `weights`: array 1 is the gradient of the result; array 2 gets three
    numbers for every output, one kind after the other. The first is the gradient over the sum of powers;
    where that is NaN, the others are the pivot and the gradient over the sum of shares about it.
    """
    outer = dtype_of(dtype, True)
    memory, work, kept = outer.memory, outer.work, outer.kept
    here = vec(work, work, "")
    from_y = vec(memory, work, outer.half)
    to_y = vec(kept if outer.half else work, work, outer.half)
    width, load, broadcast, store = here.width, here.load, here.broadcast, here.store
    store_n, isnan_bits, load_n = here.store_n, here.isnan_bits, here.load_n
    add, subtract, multiply, divide = here.add, here.subtract, here.multiply, here.divide
    store_y, store_y_part = to_y.store, to_y.store_n
    load_y, load_y_part, load_y_step = from_y.load, from_y.load_n, from_y.gather_strided
    lay = layout(outer, "finite", rarely=True)
    exp_row, exp_rows_down, down, along = exp_sums(dtype)
    scales = scales_of(work)
    pivots, sums, _ = about_pivots(work, beta_positive)
    bytes_each, zero = work.bitwidth // 8, work(0)
    fill, infinity, nan = (
        work(-math.inf if beta_positive else math.inf),
        work(math.inf),
        work(math.nan),
    )
    forward = verb == "forward"

    @compiled
    def write(y, q, value, left):
        alwaysinline()
        if left >= width:
            store_y(y, q, value)
        else:
            store_y_part(y, q, value, left)

    @compiled
    def note(z, k, value, left):
        alwaysinline()
        if left >= width:
            store(z, k, value)
        else:
            store_n(z, k, value, left)

    @compiled
    def gradients(y, q, far, left):
        alwaysinline()
        if far != 1:
            return load_y_step(y, q, far, 0, left, zero)
        if left >= width:
            return load_y(y, q)
        return load_y_part(y, q, 0, left, zero)

    @compiled
    def padding(counted, cells, factor, whole_rows, s, to, columns):
        """s[to + c] = the cells of padding that count in window c."""
        noinline()
        real_rows, counts = broadcast(work(whole_rows)), broadcast(factor)
        for c in range(0, columns, width):
            all_cells = multiply(counts, load(counted, c))
            store(s, to + c, subtract(all_cells, multiply(real_rows, load(cells, c))))

    @compiled
    def but_for_one(counted, factor, s, pads, to, columns):
        """The same with NaN in windows of one cell: such a window is that cell."""
        noinline()
        for c in range(0, columns, width):
            count = multiply(broadcast(factor), load(counted, c))
            nothing = divide(broadcast(zero), subtract(count, broadcast(work(1))))
            store(s, to + c, add(load(s, pads + c), nothing))

    @compiled
    def from_powers(s, sums, rows, pads, values, weights, columns, scales):
        """Rows of outputs from sums at v; whether some windows have to be done about their pivots."""
        noinline()
        v, slot = sums
        y, q, pitch, far = values
        z, k, m = weights
        _, _, _, back, rest = scales
        backs, rests, nonfinite = broadcast(back), broadcast(rest), broadcast(zero)
        for _ in range(rows):
            for c in range(0, columns, width):
                left = columns - c
                # A power of zero is 1.
                total = add(load(s, v + c), load(s, pads + c))
                if forward:
                    write(y, q + c, log_over_beta(total, backs, rests), left)
                else:
                    gradient = gradients(y, q + c * far, far, left)
                    weight = divide(gradient, total)
                    total = is_finite(total, gradient, weight)
                    note(z, k + c, weight, left)
                store(s, v + c, total)
                if left < width:
                    total = load_n(s, v + c, 0, left, zero)
                nonfinite = add(nonfinite, subtract(total, total))
            v += slot
            q += pitch
            k += m
        return isnan_bits(nonfinite, nonfinite)

    @compiled
    def from_pivots(s, cells, v, pads, values, weights, plan, scales):
        """A row of outputs again, where powers would not do: the sums of powers are at v."""
        noinline()
        rows, count = cells
        y, q, far = values
        z, k, columns = weights
        _, _, _, back, rest = scales
        beta = broadcast(work(real(plan.beta)))
        taps, size = plan.taps_at, plan.axes[plan.rank - 1].taps
        for c in range(0, columns, width):
            left = columns - c
            total = load(s, v + c)
            nonfinite = subtract(total, total)
            if isnan_bits(nonfinite, nonfinite) == 0:
                continue
            pivot = pivots(s, c, rows, count, load(s, pads + c), plan, taps, size)
            own = sums(s, c, rows, count, load(s, pads + c), pivot, beta, plan, taps, size)
            if forward:
                value = log_over_beta(total, broadcast(back), broadcast(rest))
                other = add(pivot, divide(log_up(own), beta))
                write(y, q + c, if_finite(total, value, other), left)
            else:
                gradient = gradients(y, q + c * far, far, left)
                note(z, k + c, if_finite(total, divide(gradient, total), broadcast(nan)), left)
                note(z, k + plan.all_outputs + c, pivot, left)
                note(z, k + 2 * plan.all_outputs + c, divide(gradient, own), left)

    @compiled
    def counted_rows(plan, i, leads, counted_leads):
        """Rows of output `i`'s windows, and what counts of them with padding or, where that does not, without."""
        alwaysinline()
        _, _, rows, counted = rows_of(plan, i)
        return leads * rows, counted_leads * counted if plan.count_padding else 1.0 * leads * rows

    @intrinsics.kernel
    def smooth(x_at, y_at, z_at, scratch_at, plan_at, flags_at, begin_unit, end_unit):
        plan, flags = tiling_of(plan_at), pointer(flags_at, types.uint8)
        lists, s = pointer(scratch_at, types.int64), pointer(scratch_at + plan.area, work)
        x, z = pointer(x_at, memory), pointer(z_at, work)
        y = pointer(y_at, kept if forward else memory)
        rank, most = plan.rank, plan.max_leads
        places = pointer(scratch_at + 32 * most, types.int64)
        w_axis = plan.axes[rank - 1]
        h_axis = plan.axes[max(0, rank - 2)]
        pitch_x, pitch_y = (h_axis.x_stride, h_axis.y_stride) if rank > 1 else (0, 0)
        n, m, far, far_y, stride, origin = (
            w_axis.in_len,
            w_axis.out_len,
            w_axis.x_stride,
            w_axis.y_stride,
            w_axis.stride,
            w_axis.origin,
        )
        dilation, size = w_axis.dilation, w_axis.taps
        shift, slot, ring = origin % width, plan.row_stride, plan.tile_rows - 1
        deep = plan.tile_rows * slot
        # Rows of powers, and of cells where they are needed; then sums down, sums of windows, padding.
        second = most * deep + SPARE
        summed = 2 * second
        totals = summed + TURN * slot
        pads = totals + TURN * slot
        lone = pads + slot if plan.lone else pads
        blank = pads + 2 * slot
        scales_here = scales(work(real(plan.beta)))
        how = (scales_here[0], scales_here[1], scales_here[2], infinity)
        for unit in range(begin_unit, end_unit):
            item, lead, row_tile, column_tile = tile_of(plan, unit)
            begin, end, low, _ = tile_rows(plan, row_tile, 1)
            from_j = column_tile * plan.columns
            columns = min(m, from_j + plan.columns) - from_j
            leads, counted_leads = list_offsets(plan, plan.rank - 2, lead, lists, most)
            base = batch_offset(plan, item, 0)
            # Rows begin a whole number of vectors from the first cell: what is stored is aligned.
            start = stride * from_j + origin - shift
            lo = min(slot, max(0, -start))
            hi = max(lo, min(slot, n - start))
            for c in range(TURN * slot):
                s[summed + c] = zero
            for c in range(slot):
                s[blank + c] = zero
            q = batch_offset(plan, item, 1) + leading_place(plan, lead, 1, 1) + from_j * far_y
            k = item * plan.outputs + lead * (h_axis.out_len if rank > 1 else 1) * m + from_j
            counted = pointer(plan_at + 8 * plan.counted_at + bytes_each * from_j, work)
            cells = pointer(plan_at + 8 * plan.cells_at + bytes_each * from_j, work)
            raised_to = laid_to = low
            known, known_factor = -1, 0.0
            # A few rows at a time: sums are read along the row when their stores have long been done.
            for turn in range(begin, end, TURN):
                turn_end, seen = min(end, turn + TURN), 0
                for i in range(turn, turn_end):
                    first, step, rows, _ = rows_of(plan, i)
                    stop, v, right = first + (rows - 1) * step + 1, summed + (i - turn) * slot, lo
                    fresh = max(raised_to, plan.numbers[plan.starts_at + i])
                    if (leads == 1) & (step == 1) & (far == 1) & (fresh >= first):
                        at, right = (
                            base + lists[0] + fresh * pitch_x + start,
                            hi - (hi - lo) % width,
                        )
                        old = min(fresh, stop) - first
                        exp_rows_down(
                            x,
                            at,
                            pitch_x,
                            first,
                            old,
                            rows - old,
                            s,
                            ring,
                            slot,
                            lo,
                            right,
                            blank,
                            v,
                            how,
                        )
                    if right < hi:
                        for row in range(fresh, stop):
                            for layer in range(leads):
                                at = base + lists[layer] + row * pitch_x + start * far
                                to = layer * deep + (row & ring) * slot
                                exp_row(x, at, far, right, hi, s, to, how)
                        count = rows_in_ring(plan, i, leads, deep, slot, 0, places)
                        down(s, places, count, right, hi, v)
                    raised_to = max(raised_to, stop)
                along(
                    s,
                    summed + shift,
                    totals,
                    slot,
                    turn_end - turn,
                    columns,
                    stride,
                    dilation,
                    size,
                )
                i = turn
                while i < turn_end:
                    same, (rows, factor) = i, counted_rows(plan, i, leads, counted_leads)
                    while (i < turn_end) & (
                        counted_rows(plan, i, leads, counted_leads) == (rows, factor)
                    ):
                        i += 1
                    if (rows != known) | (factor != known_factor):
                        known, known_factor = rows, factor
                        padding(counted, cells, work(factor), rows, s, pads, columns)
                        if lone != pads:
                            but_for_one(counted, work(factor), s, pads, lone, columns)
                    seen |= from_powers(
                        s, (totals + (same - turn) * slot, slot), i - same, lone, (y, q + same * pitch_y, pitch_y,
                        far_y), (z, k + same * m, m), columns, scales_here,
                    )  # fmt: skip
                if not seen:
                    continue
                for row in range(max(laid_to, plan.numbers[plan.starts_at + turn]), raised_to):
                    for layer in range(leads):
                        if lay(
                            x, base + lists[layer] + row * pitch_x, 0, 1, far, stride * (from_j + plan.block),
                            n, s, second + layer * deep + (row & ring) * slot, 0, plan.phase_stride, plan.phase_stride,
                            stride, plan.phases, fill,
                        ):  # fmt: skip
                            flags[item] = 1
                laid_to, known = raised_to, -1
                for i in range(turn, turn_end):
                    rows, factor = counted_rows(plan, i, leads, counted_leads)
                    padding(counted, cells, work(factor), rows, s, pads, columns)
                    count = rows_in_ring(plan, i, leads, deep, slot, second, places)
                    from_pivots(
                        s, (places, count), totals + (i - turn) * slot, pads, (y, q + i * pitch_y, far_y), (z,
                        k + i * m, columns), plan, scales_here,
                    )  # fmt: skip

    return smooth
