"""The gradient of a max of small windows where channels lie side by side: every input gathers from the outputs that read it.

Sums start from +0 and follow the row-major order of outputs, as in `gathered` and in the specification.
"""

# Numba types the kernels, not mypy.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

from functools import cache
from typing import Any

from numba import types

from lunette.kernels.cpu.compiling import machine
from lunette.kernels.cpu.compiling.machine import pointer
from lunette.kernels.cpu.plans.layout import (
    AXES,
    AXIS_WIDTH,
    BOX,
    COUNT,
    DIRECT,
    DISTANT,
    EXTENT,
    LANES,
    LIST,
    OUTPUT_ROWS,
    PAST,
    RANK,
    READ_BY,
    STEP_Y,
)
from lunette.kernels.cpu.plans.sizes import LINE
from lunette.kernels.cpu.rows.places import item_offset, rows_reading
from lunette.kernels.cpu.vectors.asking import ALWAYS, PAGE, ask_line
from lunette.kernels.cpu.vectors.halves import codec
from lunette.kernels.cpu.vectors.lanes import lanes
from lunette.kernels.cpu.vectors.past_caches import keeping, settle

__all__ = ["kernel"]


@cache
def kernel(dtype: str) -> Any:
    """The kernel for a dtype: array 0 is the marks, 1 the gradient of the result, 2 that of the input.

    There are as many channels as a vector has numbers, at least. Marks and array 2 lie in memory as their positions
    come, each with its channels.
    """
    outer = codec(dtype, False)
    memory, work = outer.memory, outer.work
    here, to_x = lanes(work, work, ""), lanes(memory, work, outer.half)
    width, spread, add = here.width, here.spread, here.add
    load_marked = to_x.load_marked
    zero, byte, size_of = work(0), types.uint8, memory.bitwidth // 8
    keep = keeping(outer)

    @machine.kernel
    def gather(marks_at, gy_at, gx_at, scratch_at, g_at, rows_of_inputs, first, last):
        g = pointer(g_at, types.int64)
        gy, gx, marks = pointer(gy_at, memory), pointer(gx_at, memory), pointer(marks_at, byte)
        rank, wide, most = g[RANK], g[LANES], g[LIST]
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
        each = ALWAYS & (g[DISTANT] != 0)
        past = (g[PAST] == DIRECT) & (gx_at % LINE == 0)
        for unit in range(first, last):
            item, row = unit // rows_of_inputs, unit % rows_of_inputs
            source, lines = item_offset(g, item, 1), item * g[OUTPUT_ROWS]
            count = rows_reading(g, row, most, rows, grads, codes)
            for p in range(n):
                begin, end, to = g[list_at + p], g[list_at + p + 1], (unit * n + p) * wide
                vector = 0
                while vector + 2 * width <= wide:
                    a, b = spread(zero), spread(zero)
                    for r in range(count):
                        k, i = (lines + rows[r]) * m * wide + vector, source + grads[r] + vector
                        if each:
                            at = gy_at + (i + g[begin] * far) * size_of + PAGE
                            ask_line(at)
                            ask_line(at + width * size_of)
                        for reader in range(begin, end, 2):
                            j, code = g[reader], byte(codes[r] * box + g[reader + 1])
                            at, mark = i + j * far, k + j * wide
                            a = add(a, load_marked(gy, at, marks, mark, code))
                            b = add(b, load_marked(gy, at + width, marks, mark + width, code))
                    keep(gx, to + vector, a, past)
                    keep(gx, to + vector + width, b, past)
                    vector += 2 * width
                while vector < wide:
                    # The last vector ends with the position, so it may repeat some channels of the one before.
                    c, a = min(vector, wide - width), spread(zero)
                    for r in range(count):
                        k, i = (lines + rows[r]) * m * wide + c, source + grads[r] + c
                        for reader in range(begin, end, 2):
                            j, code = g[reader], byte(codes[r] * box + g[reader + 1])
                            a = add(a, load_marked(gy, i + j * far, marks, k + j * wide, code))
                    keep(gx, to + c, a, past)
                    vector += width
        settle()

    return gather
