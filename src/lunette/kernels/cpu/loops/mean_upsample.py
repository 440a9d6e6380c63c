"""The gradient of a mean whose windows share no cell: each cell has the share of its one reader, or zero.

A row of the outputs' gradient is divided and spread along the last axis once, then written to each
row that reads it. A unit owns a slab of the first pooled axis. It gives the bits that `spread` gives.
"""

# Numba types the kernels, not mypy.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

from functools import cache
from typing import Any

from lunette.kernels.cpu.jit import intrinsics
from lunette.kernels.cpu.jit.intrinsics import alwaysinline, compiled, pointer
from lunette.kernels.cpu.micro.divisors import counted, divisor
from lunette.kernels.cpu.micro.index import batch_offset
from lunette.kernels.cpu.schedule.records import PLAN
from lunette.kernels.cpu.schedule.slots import DIRECT
from lunette.kernels.cpu.simd.half import dtype_of
from lunette.kernels.cpu.simd.streaming import stream, stream_fence
from lunette.kernels.cpu.simd.vec import vec
from lunette.kernels.cpu.tuning import LINE

__all__ = ["kernel"]

plan_of = PLAN.at


@compiled
def outer_reader(plan, number):
    """The output that reads position `number` of all axes but the last two: its number, or −1 for none.

    And where its rows begin in the outputs' gradient, and the cells that count on these axes.
    """
    reader, at, factor, scale = 0, 0, 1.0, 1
    for axis in range(plan.rank - 3, -1, -1):
        entry = plan.axes[axis]
        w = entry.readers[number % entry.in_len]
        number //= entry.in_len
        if w.in_bounds == 0:
            return -1, 0, 1.0
        reader, at, scale = (
            reader + scale * w.start,
            at + w.start * entry.y_stride,
            scale * entry.out_len,
        )
        factor *= counted(plan, axis, w.start)
    return reader, at, factor


@cache
def kernel(dtype: str) -> Any:
    """The kernel for a dtype, for two pooled axes or more; no position may have two readers on an axis.

    The cells of a window on the last axis are side by side.
    """
    outer = dtype_of(dtype, True)
    memory, work = outer.memory, outer.work
    here, from_gy = vec(work, work, ""), vec(memory, work, outer.half)
    width, load, store, store_n = here.width, here.load, here.store, here.store_n
    load_gy, load_n, gather_strided = from_gy.load, from_gy.load_n, from_gy.gather_strided
    store_gx, store_gx_part = from_gy.store, from_gy.store_n
    interleave_lower, interleave_upper, broadcast = (
        here.interleave_lower,
        here.interleave_upper,
        here.broadcast,
    )
    add, multiply, divide = here.add, here.multiply, here.divide
    zero, whole_lines = work(0), memory == work

    @compiled
    def shares(gy, at, far, j, m, divisors, lead):
        """What outputs j … j + width of a row send to each of their cells; zero past the last."""
        alwaysinline()
        if far != 1:
            value = gather_strided(gy, at + j * far, far, 0, min(width, m - j), zero)
        elif j + width <= m:
            value = load_gy(gy, at + j)
        else:
            value = load_n(gy, at + j, 0, m - j, zero)
        value = divide(value, multiply(lead, load(divisors, j)))
        return add(value, broadcast(zero))  # a gradient is a sum from +0: it is never −0

    @compiled
    def expand(gy, at, s, to, axis, divisors, factor):
        """Spread the shares of a row over the positions of a row at `to`; those without a reader are left."""
        alwaysinline()
        m, far, table, lead = axis.out_len, axis.y_stride, axis.windows, broadcast(factor)
        if (axis.stride == 2) & (axis.origin == 0) & (axis.taps == 2) & (axis.dilation == 1):
            for j in range(0, m, width):
                value = shares(gy, at, far, j, m, divisors, lead)
                store(s, to + 2 * j, interleave_lower(value, value))
                store(s, to + 2 * j + width, interleave_upper(value, value))
            return
        for j in range(0, m, width):
            store(s, to - width, shares(gy, at, far, j, m, divisors, lead))
            for i in range(j, min(m, j + width)):
                w, value = table[i], broadcast(s[to - width + i - j])
                for p in range(w.start, w.stop, width):
                    store_n(s, to + p, value, w.stop - p)

    @compiled
    def store_row(s, at, gx, to, n, streaming):
        """gx[to + c] = s[at + c], c < n. As in `moves`, but not by a call, which made a row 5 % slower.

        With `streaming` a row is whole lines of memory, and goes past the caches.
        """
        alwaysinline()
        whole = n - n % width
        if whole_lines & streaming:
            for c in range(0, whole, width):
                stream(gx, to + c, load(s, at + c))
        else:
            for c in range(0, whole, width):
                store_gx(gx, to + c, load(s, at + c))
        if whole < n:
            store_gx_part(gx, to + whole, load(s, at + whole), n - whole)

    @intrinsics.kernel
    def spread_rows(x_at, gy_at, gx_at, scratch_at, plan_at, room, first, last):
        plan, s = plan_of(plan_at), pointer(scratch_at, work)
        gy, gx = pointer(gy_at, memory), pointer(gx_at, memory)
        rank, divisors = plan.rank, pointer(plan.divisors, work)
        w_axis, h_axis = plan.axes[rank - 1], plan.axes[rank - 2]
        streaming = (plan.stream == DIRECT) & (gx_at % LINE == 0)
        n, lines, rows, nothing, row = (
            w_axis.in_len,
            h_axis.in_len,
            1,
            width,
            width + plan.spread_second,
        )
        for c in range(n + 2 * width):
            s[nothing + c] = s[row + c] = zero
        for axis in range(1, rank - 1):
            rows *= plan.axes[axis].in_len
        for unit in range(first, last):
            item, slab = unit // plan.slab_count, plan.slabs[unit % plan.slab_count]
            source, target = batch_offset(plan, item, 1), batch_offset(plan, item, 2)
            begin, end = slab.low * rows, slab.high * rows
            position, line = begin // lines, begin % lines
            reader, at, factor = outer_reader(plan, position)
            known, other = -1, -1
            for number in range(begin, end):
                w = h_axis.readers[line]
                place = nothing
                if (reader >= 0) & (w.in_bounds > 0):
                    place = row
                    if (w.start != known) | (reader != other):
                        known, other = w.start, reader
                        lead = work(divisor(plan, factor * counted(plan, rank - 2, known)))
                        expand(
                            gy,
                            source + at + known * h_axis.y_stride,
                            s,
                            row,
                            w_axis,
                            divisors,
                            lead,
                        )
                store_row(s, place, gx, target + number * n, n, streaming)
                line += 1
                if line == lines:
                    position, line = position + 1, 0
                    reader, at, factor = outer_reader(plan, position)
        stream_fence()

    return spread_rows
