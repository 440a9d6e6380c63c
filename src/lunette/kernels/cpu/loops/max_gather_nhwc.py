"""The gradient of a max of small windows where channels lie side by side: every input gathers from the outputs that read it.

Sums start from +0 and follow the row-major order of outputs, as in `gathered` and in the specification.
"""

# Numba types the kernels, not mypy.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

from functools import cache
from typing import Any

from numba import types

from lunette.kernels.cpu.jit import intrinsics
from lunette.kernels.cpu.jit.intrinsics import pointer
from lunette.kernels.cpu.micro.index import batch_offset, readers_of_row
from lunette.kernels.cpu.schedule.records import NHWC_PLAN
from lunette.kernels.cpu.schedule.slots import DIRECT
from lunette.kernels.cpu.simd.half import dtype_of
from lunette.kernels.cpu.simd.prefetch import EVERY_ACCESS, PAGE, prefetch_line
from lunette.kernels.cpu.simd.streaming import store_or_stream, stream_fence
from lunette.kernels.cpu.simd.vec import vec
from lunette.kernels.cpu.tuning import LINE

__all__ = ["kernel"]

plan_of = NHWC_PLAN.at


@cache
def kernel(dtype: str) -> Any:
    """The kernel for a dtype: array 0 is the marks, 1 the gradient of the result, 2 that of the input.

    There are as many channels as a vector has numbers, at least. Marks and array 2 lie in memory as their positions
    come, each with its channels.
    """
    outer = dtype_of(dtype, False)
    memory, work = outer.memory, outer.work
    here, to_x = vec(work, work, ""), vec(memory, work, outer.half)
    width, broadcast, add = here.width, here.broadcast, here.add
    load_where_equal = to_x.load_where_equal
    zero, byte, size_of = work(0), types.uint8, memory.bitwidth // 8
    keep = store_or_stream(outer)

    @intrinsics.kernel
    def gather(marks_at, gy_at, gx_at, scratch_at, plan_at, rows_of_inputs, first, last):
        plan = plan_of(plan_at)
        gy, gx, marks = pointer(gy_at, memory), pointer(gx_at, memory), pointer(marks_at, byte)
        rank, wide, most = plan.rank, plan.channels, plan.list_size
        rows = pointer(scratch_at, types.int64)
        grads = pointer(scratch_at + 8 * most, types.int64)
        codes = pointer(scratch_at + 16 * most, types.int64)
        w_axis = plan.axes[rank - 1]
        n, m, far, box, list_at = (
            w_axis.in_len,
            w_axis.out_len,
            w_axis.y_stride,
            w_axis.box,
            w_axis.readers_at,
        )
        each = EVERY_ACCESS & (plan.out_of_cache != 0)
        streaming = (plan.stream == DIRECT) & (gx_at % LINE == 0)
        for unit in range(first, last):
            item, row = unit // rows_of_inputs, unit % rows_of_inputs
            source, lines = batch_offset(plan, item, 1), item * plan.output_rows
            count = readers_of_row(plan, row, rows, grads, codes)
            for p in range(n):
                begin, end, to = (
                    plan.numbers[list_at + p],
                    plan.numbers[list_at + p + 1],
                    (unit * n + p) * wide,
                )
                vector = 0
                while vector + 2 * width <= wide:
                    a, b = broadcast(zero), broadcast(zero)
                    for r in range(count):
                        k, i = (lines + rows[r]) * m * wide + vector, source + grads[r] + vector
                        if each:
                            at = gy_at + (i + plan.numbers[begin] * far) * size_of + PAGE
                            prefetch_line(at)
                            prefetch_line(at + width * size_of)
                        for reader in range(begin, end, 2):
                            j, code = (
                                plan.numbers[reader],
                                byte(codes[r] * box + plan.numbers[reader + 1]),
                            )
                            at, mark = i + j * far, k + j * wide
                            a = add(a, load_where_equal(gy, at, marks, mark, code))
                            b = add(b, load_where_equal(gy, at + width, marks, mark + width, code))
                    keep(gx, to + vector, a, streaming)
                    keep(gx, to + vector + width, b, streaming)
                    vector += 2 * width
                while vector < wide:
                    # The last vector ends with the position, so it may repeat some channels of the one before.
                    c, a = min(vector, wide - width), broadcast(zero)
                    for r in range(count):
                        k, i = (lines + rows[r]) * m * wide + c, source + grads[r] + c
                        for reader in range(begin, end, 2):
                            j, code = (
                                plan.numbers[reader],
                                byte(codes[r] * box + plan.numbers[reader + 1]),
                            )
                            a = add(a, load_where_equal(gy, i + j * far, marks, k + j * wide, code))
                    keep(gx, to + c, a, streaming)
                    vector += width
        stream_fence()

    return gather
