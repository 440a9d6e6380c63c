"""The gradient of a mean: each output's share spread over its window, along the last axis first.

What an output sends back is the same for each of its cells, so the adjoint goes axis by axis too:
a position receives the sum of the outputs that read it: neighbours, or with dilation every so many.
Each axis adds from the first reader to the last, so the order depends on the windows alone. With r readers in all, a
gradient is within γᵣ Σ|gy / divisor| of the exact one. A unit owns a slab of the first pooled axis.
"""

# Numba types the kernels, not mypy.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

from functools import cache
from typing import Any

from lunette.kernels.cpu.jit import intrinsics
from lunette.kernels.cpu.jit.intrinsics import compiled, noinline, pointer
from lunette.kernels.cpu.micro.divisors import cells_of_row
from lunette.kernels.cpu.micro.index import batch_offset, output_row
from lunette.kernels.cpu.micro.reduce_across import across_between
from lunette.kernels.cpu.micro.rows import averaged, moves, passes
from lunette.kernels.cpu.schedule.records import PLAN
from lunette.kernels.cpu.simd.half import dtype_of
from lunette.kernels.cpu.simd.vec import vec

__all__ = ["kernel"]

plan_of = PLAN.at


@cache
def kernel(dtype: str) -> Any:
    """The kernel for a dtype; the readers of every position must be at equal steps."""
    outer = dtype_of(dtype, True)
    memory, work, inner = outer.memory, outer.work, outer.scratch
    zero = work(0)
    here_lanes = vec(work, work, "")
    width, load, store, store_n = (
        here_lanes.width,
        here_lanes.load,
        here_lanes.store,
        here_lanes.store_n,
    )
    broadcast, join, interleave_lower, interleave_upper = (
        here_lanes.broadcast,
        here_lanes.add,
        here_lanes.interleave_lower,
        here_lanes.interleave_upper,
    )
    load_row, store_row = moves(outer)
    average = averaged(inner)
    to_gx = across_between(inner, outer, "add")
    along, along_table, across, _, _ = passes(work, "add")

    @compiled
    def folded(s, at, first, last):
        total = load(s, at + first)
        for i in range(first + 1, last + 1):
            total = join(total, load(s, at + i))
        return total

    @compiled
    def by_two(s, at, to, low, size, origin, kernel):
        """Spread over positions low … low + size with stride 2: even and odd ones by themselves."""
        noinline()
        for c in range(0, size, 2 * width):
            q = low + c - origin
            a = folded(s, at, (q - kernel + 2) // 2, q // 2)
            b = folded(s, at, (q - kernel + 3) // 2, (q + 1) // 2)
            left = size - c
            if left >= 2 * width:
                store(s, to + c, interleave_lower(a, b))
                store(s, to + c + width, interleave_upper(a, b))
            else:
                store_n(s, to + c, interleave_lower(a, b), min(left, width))
                store_n(s, to + c + width, interleave_upper(a, b), max(0, left - width))

    @compiled
    def across_axis(s, table, at, to, first, begin, end, span):
        """Sum rows first, first + 1, … at `at` over the readers of positions begin … end."""
        noinline()
        for p in range(begin, end):
            w = table[p]
            place = to + (p - begin) * span
            if w.in_bounds == 0:
                for c in range(span):
                    s[place + c] = zero
            else:
                row = at + (w.start - first) * span
                across(s, row, w.step * span, w.in_bounds, place, span, False)

    @compiled
    def in_order(windows, outputs):
        """Whether every window has cells, one after the other, and begins and ends no earlier than the one before."""
        low, high = 0, 0
        for j in range(outputs):
            w = windows[j]
            start, stop = w.start, w.stop
            if (w.step != 1) | (start < low) | (stop < high) | (stop <= start):
                return False
            low, high = start, stop
        return True

    @compiled
    def by_runs(s, at, to, windows, from_j, to_j, from_p, to_p):
        """Sums over the readers of positions from_p … to_p, which are among outputs from_j … to_j: one for all that have the same."""
        noinline()
        a, b, p = from_j, from_j, from_p
        while p < to_p:
            while (b < to_j) and (windows[b].start <= p):
                b += 1
            while (a < b) and (windows[a].stop <= p):
                a += 1
            end, total = to_p, zero
            if b < to_j:
                end = min(end, windows[b].start)
            if a < b:
                end = min(end, windows[a].stop)
            for j in range(a, b):
                total += s[at + j]
            value, place = broadcast(total), to + p - from_p
            for c in range(0, end - p, width):
                left = to_p - p - c
                if left >= width:  # what is too many is written again
                    store(s, place + c, value)
                else:
                    store_n(s, place + c, value, left)
            p = end

    @intrinsics.kernel
    def spread(x_at, gy_at, gx_at, scratch_at, plan_at, room, first, last):
        plan, s = plan_of(plan_at), pointer(scratch_at, work)
        gy, gx = pointer(gy_at, memory), pointer(gx_at, memory)
        rank, wide, lane = plan.rank, max(1, plan.channels), plan.channels > 0
        w_axis = plan.axes[rank - 1]
        n, m, far, table = w_axis.in_len, w_axis.out_len, w_axis.y_stride, w_axis.readers
        stride, origin, dilation, size = (
            w_axis.stride,
            w_axis.origin,
            w_axis.dilation,
            w_axis.taps,
        )
        row, divisors = plan.spread_row, pointer(plan.divisors, work)
        left = row + plan.spread_left * wide
        alike = (not lane) & (size > 0) & ((dilation == 1) | (size == 1))
        regular = alike & (stride <= 2)
        runs = (not lane) & (not regular) and in_order(w_axis.windows, m)
        for c in range(row, plan.spread_end):
            s[c] = zero
        lines = 1
        for axis in range(1, rank - 1):
            lines *= plan.axes[axis].out_len
        for unit in range(first, last):
            item, slab = unit // plan.slab_count, plan.slabs[unit % plan.slab_count]
            source, target = batch_offset(plan, item, 1), batch_offset(plan, item, 2)
            low, high, begin, end = (
                slab.low,
                slab.high,
                slab.first,
                slab.last,
            )
            from_j, to_j, from_p, to_p = 0, m, 0, n
            if rank == 1:
                from_j, to_j, from_p, to_p = begin, end, low, high
                begin, end = 0, 1
            to = 0
            for i in range(begin, end):
                for line in range(lines):
                    row = i * lines + line
                    at, factor = source + output_row(plan, row, 1), cells_of_row(plan, row)
                    start, outputs = left + from_j * wide, (to_j - from_j) * wide
                    if lane & ((far != wide) | (plan.channel_stride != 1)):
                        for j in range(from_j, to_j):
                            load_row(
                                gy,
                                at + j * far,
                                plan.channel_stride,
                                s,
                                left + j * wide,
                                wide,
                                zero,
                            )
                    else:
                        step = 1 if lane else far
                        load_row(gy, at + from_j * far, step, s, start, outputs, zero)
                    average(
                        s, start, 0, 1, divisors, from_j * wide, work(factor), s, start, outputs
                    )
                    if lane:
                        across_axis(s, table, left, to, 0, from_p, to_p, wide)
                    elif alike & (stride == 1):
                        at = left + from_p - origin - size + 1
                        along(s, at, to, to_p - from_p, 1, 1, size, False)
                    elif alike & (stride == 2) & (size > 1):
                        by_two(s, left, to, from_p, to_p - from_p, origin, size)
                    elif runs:
                        by_runs(s, left, to, w_axis.windows, from_j, to_j, from_p, to_p)
                    else:
                        along_table(s, left, table, to, from_p, to_p)
                    to += (to_p - from_p) * wide
                    if rank == 1:
                        for c in range(outputs + width):
                            s[start + c] = zero
            span, here, there = (to_p - from_p) * wide, 0, plan.spread_second
            if rank == 1:
                store_row(s, 0, gx, target + low * wide, span)
                continue
            before = lines
            for axis in range(rank - 2, 0, -1):
                entry = plan.axes[axis]
                before //= entry.out_len
                for line in range((end - begin) * before):
                    at, to = here + line * entry.out_len * span, there + line * entry.in_len * span
                    across_axis(s, entry.readers, at, to, 0, 0, entry.in_len, span)
                span *= entry.in_len
                here, there = there, here
            for p in range(low, high):
                w = plan.axes[0].readers[p]
                if w.in_bounds == 0:
                    for c in range(span):
                        gx[target + p * span + c] = memory(0)
                else:
                    at, step = here + (w.start - begin) * span, w.step * span
                    to_gx(s, at, step, w.in_bounds, gx, target + p * span, span, False)

    return spread
