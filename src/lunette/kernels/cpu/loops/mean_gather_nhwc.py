"""The gradient of a mean of two axes where channels lie side by side: each position adds up the shares of its readers.

A share is what an output sends back to each of its cells. Those of the rows that a slab needs are made once. A
position adds the readers of each row from the first to the last, then the rows: it gives the bits that `spread` gives.
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
from lunette.kernels.cpu.micro.rows import averaged, moves
from lunette.kernels.cpu.schedule.records import PLAN
from lunette.kernels.cpu.schedule.slots import DIRECT
from lunette.kernels.cpu.simd.half import dtype_of
from lunette.kernels.cpu.simd.streaming import store_or_stream, stream_fence
from lunette.kernels.cpu.simd.vec import vec
from lunette.kernels.cpu.tuning import LINE

__all__ = ["kernel"]

plan_of = PLAN.at


@cache
def kernel(dtype: str) -> Any:
    """The kernel for a dtype; the readers of every position must be at equal steps, and channels fill a vector."""
    outer = dtype_of(dtype, True)
    memory, work = outer.memory, outer.work
    here, zero = vec(work, work, ""), work(0)
    width, load, add, broadcast = here.width, here.load, here.add, here.broadcast
    keep, average, load_row = store_or_stream(outer), averaged(outer.scratch), moves(outer).load_row

    @compiled
    def of_readers(s, p, far, rows, beside, cells):
        """The sum of a vector of each reader: `cells` of each of some rows, `beside` apart."""
        total = broadcast(zero)
        for row in range(rows):
            line = load(s, p + row * far)
            for cell in range(1, cells):
                line = add(line, load(s, p + row * far + cell * beside))
            total = line if row == 0 else add(total, line)
        return total

    @compiled
    def position(s, at, far, rows, beside, cells, target):
        """All lanes of a position, whose first reader is at `at`; readers are `beside` apart, rows of them `far`."""
        noinline()
        gx, to, wide, streaming = target
        for vector in range(0, wide, width):
            # The last vector ends with the position, so it may repeat some lanes of the one before.
            c = min(vector, wide - width)
            p = at + c
            if (rows == 1) & (cells == 1):
                total = load(s, p)
            elif (rows == 1) & (cells == 2):
                total = add(load(s, p), load(s, p + beside))
            elif (rows == 2) & (cells == 1):
                total = add(load(s, p), load(s, p + far))
            elif (rows == 2) & (cells == 2):
                total = add(load(s, p), load(s, p + beside))
                total = add(total, add(load(s, p + far), load(s, p + far + beside)))
            else:
                total = of_readers(s, p, far, rows, beside, cells)
            keep(gx, to + c, total, streaming)

    @intrinsics.kernel
    def gather_nhwc(x_at, gy_at, gx_at, scratch_at, plan_at, room, first, last):
        plan, s = plan_of(plan_at), pointer(scratch_at, work)
        gy, gx = pointer(gy_at, memory), pointer(gx_at, memory)
        divisors, wide, w_axis = pointer(plan.divisors, work), plan.channels, plan.axes[1]
        n, m, step = w_axis.in_len, w_axis.out_len, w_axis.y_stride
        side_by_side = (step == wide) & (plan.channel_stride == 1)
        streaming = (plan.stream == DIRECT) & (gx_at % LINE == 0)
        for unit in range(first, last):
            item, slab = unit // plan.slab_count, plan.slabs[unit % plan.slab_count]
            source, target = batch_offset(plan, item, 1), batch_offset(plan, item, 2)
            low, high, begin, end = (
                slab.low,
                slab.high,
                slab.first,
                slab.last,
            )
            for i in range(begin, end):
                at, to = source + output_row(plan, i, 1), (i - begin) * m * wide
                if side_by_side:
                    load_row(gy, at, 1, s, to, m * wide, zero)
                else:
                    for j in range(m):
                        load_row(
                            gy, at + j * step, plan.channel_stride, s, to + j * wide, wide, zero
                        )
                factor = work(cells_of_row(plan, i))
                average(s, to, 0, 1, divisors, 0, factor, s, to, m * wide)
            for p in range(low, high):
                v = plan.axes[0].readers[p]
                rows, row = v.in_bounds, (v.start - begin) * m * wide
                far = v.step * m * wide
                for q in range(n):
                    w, to = w_axis.readers[q], target + (p * n + q) * wide
                    at, cells = row + w.start * wide, w.in_bounds
                    count, beside = rows if cells > 0 else 0, w.step * wide
                    position(s, at, far, count, beside, cells, (gx, to, wide, streaming))
        stream_fence()

    return gather_nhwc
