"""Means along rows of one axis, summed from the input itself: the same sums as `column_first`, with no row between."""

# Numba types the kernels, not mypy.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

from functools import cache
from typing import Any

from lunette.kernels.cpu.jit import intrinsics
from lunette.kernels.cpu.jit.intrinsics import compiled, pointer
from lunette.kernels.cpu.micro.divide_by_count import finished
from lunette.kernels.cpu.micro.divisors import cells_of_row
from lunette.kernels.cpu.micro.index import batch_offset
from lunette.kernels.cpu.micro.log_step import brief, log_step
from lunette.kernels.cpu.micro.reduce_along import along_input
from lunette.kernels.cpu.micro.rows import inside
from lunette.kernels.cpu.schedule.records import PLAN
from lunette.kernels.cpu.simd.half import dtype_of
from lunette.kernels.cpu.simd.streaming import stream_fence
from lunette.kernels.cpu.simd.vec import vec
from lunette.kernels.cpu.tuning import LINE

__all__ = ["kernel"]

plan_of = PLAN.at

HORIZONTAL_MIN_TAPS = 32
"""Cells of windows that are summed in registers from memory to memory: fewer than these."""


@cache
def kernel(dtype: str, doubling: bool) -> Any:
    """The kernel for a dtype: windows of a few cells with stride 1 or 2, or all summed by doubling."""
    outer = dtype_of(dtype, True)
    memory, work, kept = outer.memory, outer.work, outer.kept
    width, kept_size = vec(work, work, "").width, kept.bitwidth // 8
    sixteen = width == 16
    along_x: Any = None if doubling else along_input(outer, "add")
    long_x: Any = log_step(outer) if doubling else None
    means: Any = brief(outer) if doubling else None
    finish = finished(outer, doubling)

    @compiled
    def in_registers(x, base, n, p, target, size, streaming):
        """Means of windows that lie within their row, from p on: up to a line of memory, then by lines."""
        y, y_at, result, outputs = target
        head = outputs
        if streaming:
            head = min(outputs, -(y_at // kept_size + result) % (LINE // kept_size))
        share = work(1) / work(size)
        means(x, base + p, n - p, y, result, head, size, share, False)
        if head < outputs:
            p, result = p + head, result + head
            means(x, base + p, n - p, y, result, outputs - head, size, share, True)

    @intrinsics.kernel
    def reduce_row(x_at, y_at, z_at, scratch_at, plan_at, room, first, last):
        plan, s = plan_of(plan_at), pointer(scratch_at, work)
        x, y = pointer(x_at, memory), pointer(y_at, kept)
        n, table, divisors = plan.axes[0].in_len, plan.axes[0].windows, pointer(plan.divisors, work)
        stride, origin, size, to = (
            plan.axes[0].stride,
            plan.axes[0].origin,
            plan.axes[0].taps,
            plan.result,
        )
        quick = sixteen & (stride == 1) & (size < HORIZONTAL_MIN_TAPS) & (plan.divisor == 0)
        for unit in range(first, last):
            item, tile = unit // plan.tiles, unit % plan.tiles
            from_j, to_j = tile * plan.tile, min(plan.axes[0].out_len, (tile + 1) * plan.tile)
            base, result = batch_offset(plan, item, 0), batch_offset(plan, item, 1) + from_j
            if doubling:
                p, outputs = from_j + origin, to_j - from_j
                if quick & (p >= 0) & (p + outputs - 1 + size <= n):
                    in_registers(x, base, n, p, (y, y_at, result, outputs), size, plan.stream > 0)
                    continue
                long_x(x, base, n, from_j, to_j, s, room, to, stride, origin, size)
            else:
                begin, end = inside(from_j, to_j, n, stride, origin, size, width)
                windows = (from_j, begin, end, to_j, stride, origin, size, table)
                along_x(x, base, 0, 1, n, s, to, *windows)
            finish(s, plan, to, divisors, cells_of_row(plan, 0), y, result, from_j, to_j)
        stream_fence()

    return reduce_row
