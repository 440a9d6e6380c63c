"""Kernels that walk every window cell by cell, in the specification's own order.

They serve any region, rank, layout and reduction, and are the ones for the derivatives of rare tie
rules. Every kernel has one signature, all integers: three addresses, the address of this thread's
scratch memory, the address of the plan's table, and a range of units.
"""

# Numba types the kernels, not mypy; `v != v` is how a NaN is known.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"
# ruff: noqa: PLR0124

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numba import types

from lunette.kernels.cpu.jit import intrinsics
from lunette.kernels.cpu.jit.intrinsics import pointer, real
from lunette.kernels.cpu.micro.exp_scaled import (
    exp_scaled,
    fused,
    is_finite,
    log_over_beta,
    scales_of,
    shared_sums,
)
from lunette.kernels.cpu.micro.index import batch_offset, list_offsets, output_row
from lunette.kernels.cpu.micro.rows import takes
from lunette.kernels.cpu.schedule.records import PLAN
from lunette.kernels.cpu.schedule.slots import MAX, MEAN, SMOOTH
from lunette.kernels.cpu.simd.half import dtype_of
from lunette.kernels.cpu.simd.scalar_math import elementary

__all__ = ["derivative_kernel", "gradient_kernel", "value_kernel"]

plan_of = PLAN.at


@cache
def value_kernel(dtype: str, kind: int, indices: bool) -> Any:
    """Values of windows, and of a max its winners' flat positions."""
    memory, work, result, load, store, _ = dtype_of(dtype, kind != MAX)
    exponential, logarithm = elementary(work)
    shared_sum, scales_for = shared_sums(dtype), scales_of(work)

    @intrinsics.kernel
    def values(x_at, y_at, z_at, scratch_at, plan_at, room, first, last):
        plan, rows = plan_of(plan_at), pointer(scratch_at, types.int64)
        x, y, z = pointer(x_at, memory), pointer(y_at, result), pointer(z_at, types.int64)
        entry = plan.axes[plan.rank - 1]
        m, step_x, step_y, table = (
            entry.out_len,
            entry.x_stride,
            entry.y_stride,
            entry.windows,
        )
        zero = work(0)
        beta = work(real(plan.beta)) if kind == SMOOTH else work(1)
        scales = scales_for(beta) if kind == SMOOTH else (beta, beta, beta, beta, beta)
        for unit in range(first, last):
            item, row = unit // plan.output_rows, unit % plan.output_rows
            base, target = (
                batch_offset(plan, item, 0),
                batch_offset(plan, item, 1) + output_row(plan, row, 1),
            )
            count, counted_rows = list_offsets(plan, plan.rank - 1, row, rows, room)
            for j in range(m):
                window = table[j]
                start, stop, step = window.start, window.stop, window.step
                length = window.in_bounds
                real_cells = np.float64(count * length)
                cells = counted_rows * real(window.counted) if plan.count_padding else real_cells
                padding = cells - real_cells
                value, winner, total = zero, -1, zero
                if kind == SMOOTH:
                    total = shared_sum(
                        x, base, rows, count, start, stop, step, step_x, length, cells, scales
                    )
                    if total > zero:
                        value = log_over_beta(total, scales[3], scales[4])
                        y[target + j * step_y] = store(value)
                        continue
                if count * length > 0:
                    value = load(x[base + rows[0] + start * step_x])
                    winner = rows[2 * room] + start
                if kind != MEAN:
                    for r in range(count):
                        for p in range(start, stop, step):
                            v = load(x[base + rows[r] + p * step_x])
                            if kind == SMOOTH and beta < 0:
                                better = takes(-value, -v)
                            else:
                                better = takes(value, v)
                            if better:
                                value, winner = v, rows[2 * room + r] + p
                if kind == SMOOTH and padding > 0 and (zero > value if beta > 0 else zero < value):
                    value = zero
                if kind == MEAN:
                    for r in range(count):
                        for p in range(start, stop, step):
                            total += load(x[base + rows[r] + p * step_x])
                    divisor = real(plan.divisor) if plan.divisor > 0 else cells
                    value = total / work(divisor) if cells > 0 else zero
                if kind == SMOOTH and cells > 0:
                    pivot = zero if value - value != zero and value == value else value
                    for r in range(count):
                        for p in range(start, stop, step):
                            v = load(x[base + rows[r] + p * step_x])
                            total += exponential(beta * (v - pivot))
                    if padding > 0:
                        total += work(padding) * exponential(beta * (zero - pivot))
                    value = pivot + logarithm(total) / beta
                y[target + j * step_y] = store(value)
                if indices:
                    z[target + j * step_y] = winner

    return values


@cache
def derivative_kernel(dtype: str, kind: int, ties: str) -> Any:
    """Directional derivatives of max and smooth max: array 0 is x, 1 the result, 2 the tangent."""
    memory, work, _, load, store, _ = dtype_of(dtype, kind != MAX)
    first_only, split = ties == "first", ties == "split"
    exponential, _ = elementary(work)

    @intrinsics.kernel
    def derivatives(x_at, y_at, dx_at, scratch_at, plan_at, room, first, last):
        plan, rows = plan_of(plan_at), pointer(scratch_at, types.int64)
        x, y, dx = pointer(x_at, memory), pointer(y_at, memory), pointer(dx_at, memory)
        entry = plan.axes[plan.rank - 1]
        m, step_x, step_y, table = (
            entry.out_len,
            entry.x_stride,
            entry.y_stride,
            entry.windows,
        )
        step_dx = entry.z_stride
        zero = work(0)
        beta = work(real(plan.beta)) if kind == SMOOTH else work(1)
        for unit in range(first, last):
            item, row = unit // plan.output_rows, unit % plan.output_rows
            base, target = (
                batch_offset(plan, item, 0),
                batch_offset(plan, item, 1) + output_row(plan, row, 1),
            )
            base_dx = batch_offset(plan, item, 2)
            count, counted_rows = list_offsets(plan, plan.rank - 1, row, rows, room)
            for j in range(m):
                window = table[j]
                start, stop, step = window.start, window.stop, window.step
                length = window.in_bounds
                real_cells = np.float64(count * length)
                cells = counted_rows * real(window.counted) if plan.count_padding else real_cells
                padding = cells - real_cells
                total, divisor, best, tangent = zero, work(1), zero, zero
                if count * length > 0:
                    best = load(x[base + rows[0] + start * step_x])
                    tangent = load(dx[base_dx + rows[room] + start * step_dx])
                for r in range(count):
                    for p in range(start, stop, step):
                        v = load(x[base + rows[r] + p * step_x])
                        if kind == SMOOTH and beta < 0:
                            better = takes(-best, -v)
                        else:
                            better = takes(best, v)
                        if better:
                            best = v
                            tangent = load(dx[base_dx + rows[room + r] + p * step_dx])
                if kind == SMOOTH:
                    if padding > 0 and (zero > best if beta > 0 else zero < best):
                        best = zero
                    if best - best != zero and best == best:
                        best = zero
                    divisor = zero
                if kind == MAX and first_only:
                    total = zero + tangent
                elif count * length > 0:
                    tied = 0
                    for r in range(count):
                        for p in range(start, stop, step):
                            d = load(dx[base_dx + rows[room + r] + p * step_dx])
                            v = load(x[base + rows[r] + p * step_x])
                            if kind == SMOOTH:
                                share = exponential(beta * (v - best))
                                total += share * d
                                divisor += share
                            elif (v == best) | ((v != v) & (best != best)):
                                total += d
                                tied += 1
                    if kind == MAX and split:
                        divisor = work(tied)
                    if kind == SMOOTH and padding > 0:
                        divisor += work(padding) * exponential(beta * (zero - best))
                if count * length == 0:
                    divisor = work(1)
                y[target + j * step_y] = store(total / divisor)

    return derivatives


@cache
def gradient_kernel(dtype: str, kind: int, ties: str) -> Any:
    """Gradients of cells: array 0 is x, 1 the gradient of the result, 2 the gradient of x.

    A unit is a slab of one item: positions `low … high` of the first pooled axis, written by this
    unit alone. Every output that reads the slab is visited in row-major order.
    """
    memory, work, _, load, store, _ = dtype_of(dtype, kind != MAX)
    first_only, split = ties == "first", ties == "split"
    exponential, _ = elementary(work)
    shared_sum, scales_for = shared_sums(dtype), scales_of(work)

    @intrinsics.kernel
    def gradients(x_at, gy_at, gx_at, scratch_at, plan_at, room, first, last):
        plan, rows = plan_of(plan_at), pointer(scratch_at, types.int64)
        sums = pointer(scratch_at + 24 * room, work)
        x, gy, gx = pointer(x_at, memory), pointer(gy_at, memory), pointer(gx_at, memory)
        entry = plan.axes[plan.rank - 1]
        n, m, step_x, step_y, table = (
            entry.in_len,
            entry.out_len,
            entry.x_stride,
            entry.y_stride,
            entry.windows,
        )
        step_gx = entry.z_stride
        zero = work(0)
        beta = work(real(plan.beta)) if kind == SMOOTH else work(1)
        scales = scales_for(beta) if kind == SMOOTH else (beta, beta, beta, beta, beta)
        inner = plan.axes[0].flat_stride  # cells of the pooled axes per position of the first
        rows_inner = plan.output_rows // plan.axes[0].out_len if plan.rank > 1 else 1
        for unit in range(first, last):
            item, slab = unit // plan.slab_count, plan.slabs[unit % plan.slab_count]
            low, high = slab.low * inner, slab.high * inner
            # Of a smooth max, sums of weights of powers come after the others, then those of one row.
            weights = high - low
            along, n_along = (low, weights) if plan.rank == 1 else (0, n)
            for c in range(2 * weights if kind == SMOOTH else weights):
                sums[c] = zero
            base, source = batch_offset(plan, item, 0), batch_offset(plan, item, 1)
            from_row, to_row, from_column, to_column = (
                0,
                1,
                slab.first,
                slab.last,
            )
            if plan.rank > 1:
                from_row, to_row = (
                    slab.first * rows_inner,
                    slab.last * rows_inner,
                )
                from_column, to_column = 0, m
            for row in range(from_row, to_row):
                count, counted_rows = list_offsets(plan, plan.rank - 1, row, rows, room)
                place = source + output_row(plan, row, 1)
                if kind == SMOOTH:  # the weights of powers in this row, by position along it
                    for c in range(n_along):
                        sums[2 * weights + c] = zero
                for j in range(from_column, to_column):
                    window = table[j]
                    start, stop, step = window.start, window.stop, window.step
                    length = window.in_bounds
                    if count * length == 0:
                        continue
                    real_cells = np.float64(count * length)
                    cells = (
                        counted_rows * real(window.counted) if plan.count_padding else real_cells
                    )
                    padding = cells - real_cells
                    gradient = load(gy[place + j * step_y])
                    if kind == SMOOTH:
                        total = shared_sum(
                            x, base, rows, count, start, stop, step, step_x, length, cells, scales
                        )
                        if total > zero and is_finite(total, gradient, gradient / total) == total:
                            for p in range(start, stop, step):
                                if 0 <= p - along < n_along:
                                    sums[2 * weights + p - along] += gradient / total
                            continue
                    best, winner = load(x[base + rows[0] + start * step_x]), rows[2 * room] + start
                    if kind != MEAN:
                        for r in range(count):
                            for p in range(start, stop, step):
                                v = load(x[base + rows[r] + p * step_x])
                                if kind == SMOOTH and beta < 0:
                                    better = takes(-best, -v)
                                else:
                                    better = takes(best, v)
                                if better:
                                    best, winner = v, rows[2 * room + r] + p
                    if kind == MAX and first_only:
                        if low <= winner < high:
                            sums[winner - low] += gradient
                        continue
                    if kind == SMOOTH:
                        if padding > 0 and (zero > best if beta > 0 else zero < best):
                            best = zero
                        if best - best != zero and best == best:
                            best = zero
                        divisor = zero
                        for r in range(count):
                            for p in range(start, stop, step):
                                v = load(x[base + rows[r] + p * step_x])
                                divisor += exponential(beta * (v - best))
                        if padding > 0:
                            divisor += work(padding) * exponential(beta * (zero - best))
                        gradient = gradient / divisor
                    elif kind == MEAN:
                        gradient = gradient / work(
                            real(plan.divisor) if plan.divisor > 0 else cells
                        )
                    elif split:
                        tied = 0
                        for r in range(count):
                            for p in range(start, stop, step):
                                v = load(x[base + rows[r] + p * step_x])
                                tied += (v == best) | ((v != v) & (best != best))
                        gradient = gradient / work(tied)
                    for r in range(count):
                        flat = rows[2 * room + r]
                        for p in range(start, stop, step):
                            if low <= flat + p < high:
                                if kind == MEAN:
                                    sums[flat + p - low] += gradient
                                else:
                                    v = load(x[base + rows[r] + p * step_x])
                                    if kind == SMOOTH:
                                        share = exponential(beta * (v - best))
                                        sums[flat + p - low] += share * gradient
                                    elif (v == best) | ((v != v) & (best != best)):
                                        sums[flat + p - low] += gradient
                if kind == SMOOTH:
                    for r in range(count):
                        c = rows[2 * room + r] + along - low
                        if 0 <= c < weights:
                            for p in range(n_along):
                                sums[weights + c + p] += sums[2 * weights + p]
            target = batch_offset(plan, item, 2)
            for line in range(weights // n_along):
                flat, place, source = low // n + line, target, base
                if plan.rank == 1:
                    place, source = target + low * step_gx, base + low * step_x
                for axis in range(plan.rank - 2, -1, -1):
                    entry = plan.axes[axis]
                    place += (flat % entry.in_len) * entry.z_stride
                    source += (flat % entry.in_len) * entry.x_stride
                    flat //= entry.in_len
                for p in range(n_along):
                    c = line * n_along + p
                    total = sums[c]
                    if kind == SMOOTH:
                        v = load(x[source + p * step_x])
                        share = exp_scaled(v, scales[0], scales[1], scales[2], zero)
                        total = fused(share, sums[weights + c], total)
                    gx[place + p * step_gx] = store(total)

    return gradients
