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
from lunette.kernels.cpu.schedule.slots import (
    AXES,
    AXIS_WIDTH,
    BOX,
    CHANNELS,
    COUNT,
    DIRECT,
    EXTENT,
    LIST,
    OUT_OF_CACHE,
    OUTPUT_ROWS,
    RANK,
    READ_BY,
    STEP_Y,
    STREAM,
)
from lunette.kernels.cpu.simd.half import dtype_of
from lunette.kernels.cpu.simd.prefetch import EVERY_ACCESS, PAGE, prefetch_line
from lunette.kernels.cpu.simd.streaming import store_or_stream, stream_fence
from lunette.kernels.cpu.simd.vec import vec
from lunette.kernels.cpu.tuning import LINE

__all__ = ["kernel"]


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
    def gather(marks_at, gy_at, gx_at, scratch_at, g_at, rows_of_inputs, first, last):
        g = pointer(g_at, types.int64)
        gy, gx, marks = pointer(gy_at, memory), pointer(gx_at, memory), pointer(marks_at, byte)
        rank, wide, most = g[RANK], g[CHANNELS], g[LIST]
        rows = pointer(scratch_at, types.int64)
        grads = pointer(scratch_at + 8 * most, types.int64)
        codes = pointer(scratch_at + 16 * most, types.int64)
        e = AXES + (rank - 1) * AXIS_WIDTH
        n, m, far, box, list_at = (
            g[e + EXTENT],
            g[e + COUNT],
            g[e + STEP_Y],
            g[e + BOX],
            g[e + READ_BY],
        )
        each = EVERY_ACCESS & (g[OUT_OF_CACHE] != 0)
        streaming = (g[STREAM] == DIRECT) & (gx_at % LINE == 0)
        for unit in range(first, last):
            item, row = unit // rows_of_inputs, unit % rows_of_inputs
            source, lines = batch_offset(g, item, 1), item * g[OUTPUT_ROWS]
            count = readers_of_row(g, row, most, rows, grads, codes)
            for p in range(n):
                begin, end, to = g[list_at + p], g[list_at + p + 1], (unit * n + p) * wide
                vector = 0
                while vector + 2 * width <= wide:
                    a, b = broadcast(zero), broadcast(zero)
                    for r in range(count):
                        k, i = (lines + rows[r]) * m * wide + vector, source + grads[r] + vector
                        if each:
                            at = gy_at + (i + g[begin] * far) * size_of + PAGE
                            prefetch_line(at)
                            prefetch_line(at + width * size_of)
                        for reader in range(begin, end, 2):
                            j, code = g[reader], byte(codes[r] * box + g[reader + 1])
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
                            j, code = g[reader], byte(codes[r] * box + g[reader + 1])
                            a = add(a, load_where_equal(gy, i + j * far, marks, k + j * wide, code))
                    keep(gx, to + c, a, streaming)
                    vector += width
        stream_fence()

    return gather
