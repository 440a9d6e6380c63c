"""The tangent of a smooth max of small windows, neighbours side by side: about the pivot of each window.

Rows of cells and of tangents are laid out by phase. An item with a cell that is not finite is flagged, to be
done again.
"""

# Numba types the kernels, not mypy.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

import math
from functools import cache
from typing import Any

from numba import types

from lunette.kernels.cpu.jit import intrinsics
from lunette.kernels.cpu.jit.intrinsics import compiled, noinline, pointer, real
from lunette.kernels.cpu.micro.index import batch_offset, list_offsets
from lunette.kernels.cpu.micro.lse_shifted import about_pivots
from lunette.kernels.cpu.micro.polyphase import (
    cleared,
    layout,
    leading_place,
    rows_in_ring,
    rows_of,
    tile_of,
    tile_rows,
)
from lunette.kernels.cpu.schedule.records import TILING
from lunette.kernels.cpu.schedule.tiling import SPARE
from lunette.kernels.cpu.simd.half import dtype_of
from lunette.kernels.cpu.simd.vec import vec

__all__ = ["kernel"]

tiling_of = TILING.at


@cache
def kernel(dtype: str, beta_positive: bool) -> Any:
    """The kernel for a dtype and a sign of beta (`beta_positive`: positive); no window may be empty.

    Array 0 is the input, array 1 the result, array 2 the tangent.
    """
    outer = dtype_of(dtype, True)
    memory, work, kept = outer.memory, outer.work, outer.kept
    here = vec(work, work, "")
    to_y = vec(kept if outer.half else work, work, outer.half)
    width, load, broadcast = here.width, here.load, here.broadcast
    subtract, multiply, divide = here.subtract, here.multiply, here.divide
    store_y, store_y_part = to_y.store, to_y.store_n
    lay = layout(outer, "finite")
    pivots, sums, tangents = about_pivots(work, beta_positive)
    bytes_each, zero, fill = (
        work.bitwidth // 8,
        work(0),
        work(-math.inf if beta_positive else math.inf),
    )

    @compiled
    def a_row(s, second, places, count, target, divisors, plan):
        """A row of outputs: the rows of its windows are at `places`, tangents `second` after them."""
        noinline()
        y, q, columns = target
        counted, cells, factor = divisors
        beta = broadcast(work(real(plan.beta)))
        taps, size = plan.taps_at, plan.axes[plan.rank - 1].taps
        real_rows, counts = broadcast(work(count)), broadcast(factor)
        for c in range(0, columns, width):
            pads = subtract(multiply(counts, load(counted, c)), multiply(real_rows, load(cells, c)))
            pivot = pivots(s, c, places, count, pads, plan, taps, size)
            own = sums(s, c, places, count, pads, pivot, beta, plan, taps, size)
            total = tangents(s, second, c, places, count, pivot, beta, plan, taps, size)
            value = divide(total, own)
            if columns - c >= width:
                store_y(y, q + c, value)
            else:
                store_y_part(y, q + c, value, columns - c)

    @intrinsics.kernel
    def smooth_tangents(x_at, y_at, dx_at, scratch_at, plan_at, flags_at, begin_unit, end_unit):
        plan, flags = tiling_of(plan_at), pointer(flags_at, types.uint8)
        lists, s = pointer(scratch_at, types.int64), pointer(scratch_at + plan.area, work)
        x, y, dx = pointer(x_at, memory), pointer(y_at, kept), pointer(dx_at, memory)
        rank, most = plan.rank, plan.max_leads
        places = pointer(scratch_at + 32 * most, types.int64)
        w_axis = plan.axes[rank - 1]
        h_axis = plan.axes[max(0, rank - 2)]
        pitch_x, pitch_y, pitch_dx = (
            (h_axis.x_stride, h_axis.y_stride, h_axis.z_stride) if rank > 1 else (0, 0, 0)
        )
        n, m, far, far_dx, stride, phases = (
            w_axis.in_len,
            w_axis.out_len,
            w_axis.x_stride,
            w_axis.z_stride,
            w_axis.stride,
            plan.phases,
        )
        slot, length, ring, deep = (
            plan.row_stride,
            plan.phase_stride,
            plan.tile_rows - 1,
            plan.tile_rows * plan.row_stride,
        )
        second = most * deep + SPARE
        cleared(s, plan, 2, zero)
        for unit in range(begin_unit, end_unit):
            item, lead, row_tile, column_tile = tile_of(plan, unit)
            begin, end, low, _ = tile_rows(plan, row_tile, 1)
            from_j = column_tile * plan.columns
            columns = min(m, from_j + plan.columns) - from_j
            leads, counted_leads = list_offsets(plan, plan.rank - 2, lead, lists, most)
            start, seen, laid_to = stride * (from_j + plan.block), 0, low
            base, third = batch_offset(plan, item, 0), batch_offset(plan, item, 2)
            target = (
                batch_offset(plan, item, 1)
                + leading_place(plan, lead, 1, 1)
                + from_j * w_axis.y_stride
            )
            counted = pointer(plan_at + 8 * plan.counted_at + bytes_each * from_j, work)
            cells = pointer(plan_at + 8 * plan.cells_at + bytes_each * from_j, work)
            for i in range(begin, end):
                first, step, rows, counted_rows = rows_of(plan, i)
                last = first + (rows - 1) * step + 1
                for row in range(max(laid_to, plan.numbers[plan.starts_at + i]), last):
                    for layer in range(leads):
                        to = layer * deep + (row & ring) * slot
                        seen |= lay(
                            x, base + lists[layer] + row * pitch_x, 0, 1, far, start, n, s, to, 0,
                            length, length, stride, phases, fill,
                        )  # fmt: skip
                        seen |= lay(
                            dx, third + lists[most + layer] + row * pitch_dx, 0, 1, far_dx, start, n, s,
                            second + to, 0, length, length, stride, phases, zero,
                        )  # fmt: skip
                laid_to = max(laid_to, last)
                count = rows_in_ring(plan, i, leads, deep, slot, 0, places)
                a_row(
                    s, second, places, count, (y, target + i * pitch_y, columns), (counted, cells,
                    work(counted_leads * counted_rows)), plan,
                )  # fmt: skip
            if seen:
                flags[item] = 1

    return smooth_tangents
