"""The gradient of a max with channels last from the places of its winners: windows are large, and few.

A unit is a slab of positions with all their channels. Its sums are made in scratch memory, output by output.
"""

# Numba types the kernels, not mypy.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

from functools import cache
from typing import Any

from numba import types

from lunette.kernels.cpu.jit import intrinsics
from lunette.kernels.cpu.jit.intrinsics import compiled, noinline, pointer
from lunette.kernels.cpu.micro.index import batch_offset, output_row, parted
from lunette.kernels.cpu.micro.rows import moves
from lunette.kernels.cpu.schedule.records import PLAN
from lunette.kernels.cpu.simd.half import dtype_of

__all__ = ["kernel"]

plan_of = PLAN.at


@cache
def kernel(dtype: str) -> Any:
    """The kernel for a dtype: array 0 is the places, 1 the gradient of the result, 2 that of the input.

    Places and array 2 lie in memory as their positions come, each with its channels.
    """
    outer = dtype_of(dtype, False)
    memory, work, read, store_row = outer.memory, outer.work, outer.load, moves(outer).store_row
    zero = work(0)

    @compiled
    def add_to_winners(s, places, k, gy, at, wide, below, above):
        """Add the gradients of an output to the sums of its winners, those of positions below … above."""
        noinline()
        for c in range(wide):
            place = places[k + c]
            if below <= place < above:
                s[(place - below) * wide + c] += read(gy[at + c])

    @intrinsics.kernel
    def scatter(places_at, gy_at, gx_at, scratch_at, plan_at, room, first, last):
        plan, s, places = (
            plan_of(plan_at),
            pointer(scratch_at, work),
            pointer(places_at, types.int64),
        )
        gy, gx = pointer(gy_at, memory), pointer(gx_at, memory)
        rank, wide, inner = plan.rank, plan.channels, plan.axes[0].flat_stride
        w_axis = plan.axes[rank - 1]
        m, far = w_axis.out_len, w_axis.y_stride
        rows = plan.output_rows // plan.axes[0].out_len if rank > 1 else 1
        for unit in range(first, last):
            item, number = parted(unit, plan.slab_count)
            slab = plan.slabs[number]
            below, above = slab.low * inner, slab.high * inner
            source, target = batch_offset(plan, item, 1), item * plan.axes[0].in_len * inner * wide
            cells = (above - below) * wide
            for c in range(cells):
                s[c] = zero
            first_row, last_row, from_j, to_j = (
                slab.first * rows,
                slab.last * rows,
                0,
                m,
            )
            if rank == 1:
                first_row, last_row, from_j, to_j = 0, 1, slab.first, slab.last
            for row in range(first_row, last_row):
                at, k = source + output_row(plan, row, 1), (item * plan.output_rows + row) * m
                for j in range(from_j, to_j):
                    of = (k + j) * wide
                    add_to_winners(s, places, of, gy, at + j * far, wide, below, above)
            store_row(s, 0, gx, target + below * wide, cells)

    return scatter
