"""The gradient of a max from its winners, where windows are long and share few cells.

A unit is a slab of the input, whose sums are made in scratch memory, output by output.
"""

# Numba types the kernels, not mypy; `v != v` is how a NaN is known.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"
# ruff: noqa: PLR0124

from __future__ import annotations

from functools import cache
from typing import Any

from numba import types

from lunette.kernels.cpu.jit import intrinsics
from lunette.kernels.cpu.jit.intrinsics import compiled, pointer
from lunette.kernels.cpu.micro.index import batch_offset, output_row, parted, rows_of
from lunette.kernels.cpu.micro.reduce_rows import bands
from lunette.kernels.cpu.micro.reduce_window import first_of, wide_windows
from lunette.kernels.cpu.micro.rows import moves
from lunette.kernels.cpu.schedule.records import PLAN
from lunette.kernels.cpu.simd.half import dtype_of
from lunette.kernels.cpu.tuning import BAND_BYTES

__all__ = ["kernel"]

plan_of = PLAN.at


@cache
def kernel(dtype: str, ties: str) -> Any:
    """The kernel for a dtype and a rule for ties.

    Array 0 is the input, array 1 the gradient of the output, array 2 that of the input. `found_at` is where the
    addresses of what the kernel `reduce_window` has found stand: the values, and positions or numbers of winners,
    in the order of the output. Where an item is one slab nobody else asks for its winners, and they are found here.
    """
    outer = dtype_of(dtype, False)
    memory, work, read = outer.memory, outer.work, outer.load
    _, store_row = moves(outer)
    zero, first_only, split = work(0), ties == "first", ties == "split"

    @compiled
    def add_gradient(state, extra, flat):
        s, below, above, gradient = extra
        if below <= flat < above:
            s[flat - below] += gradient
        return state, False

    @compiled
    def one_more(state, extra, flat):
        return state + 1, False

    (no_band, value_of), search = bands(outer), wide_windows(outer).search
    find, count, add_gradients = search(first_of), search(one_more), search(add_gradient)

    @intrinsics.kernel
    def scatter(x_at, gy_at, gx_at, scratch_at, plan_at, found_at, first, last):
        plan, found = plan_of(plan_at), pointer(found_at, types.int64)
        folded_row, s = pointer(scratch_at, work), pointer(scratch_at + BAND_BYTES, work)
        x, gy, gx = pointer(x_at, memory), pointer(gy_at, memory), pointer(gx_at, memory)
        known = found_at != 0
        values = pointer(found[0] if known else 0, memory)
        winners = pointer(found[1] if known else 0, types.int64)
        rank, inner = plan.rank, plan.axes[0].flat_stride
        w_axis = plan.axes[rank - 1]
        m, far, table = w_axis.out_len, w_axis.y_stride, w_axis.windows
        rows = plan.output_rows // plan.axes[0].out_len if rank > 1 else 1
        for unit in range(first, last):
            item, number = parted(unit, plan.slab_count)
            slab = plan.slabs[number]
            below, above = slab.low * inner, slab.high * inner
            base, source, target = (
                batch_offset(plan, item, 0),
                batch_offset(plan, item, 1),
                batch_offset(plan, item, 2),
            )
            for c in range(above - below):
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
                at, k, of_row = (
                    source + output_row(plan, row, 1),
                    (item * plan.output_rows + row) * m,
                    rows_of(plan, row),
                )
                band = no_band(plan, from_j, to_j, of_row)
                for j in range(from_j, to_j):
                    start, gradient = table[j].start, read(gy[at + j * far])
                    size = table[j].stop - start
                    if known & (rank == 1):  # others look after what lies outside
                        begin = max(start, below)
                        start, size = begin, max(0, min(start + size, above) - begin)
                    window = (x, base, plan, row, of_row, start, size)
                    if known:
                        winner, value = winners[k + j], read(values[k + j])
                        nan = value != value
                    else:
                        value, seen, band = value_of(window, folded_row, j, to_j, band)
                        winner, nan = 0, seen != 0
                        if first_only:
                            winner = find(window, value, nan, 0, 0)
                        if split:
                            winner = count(window, value, nan, 0, 0)
                    if split:
                        gradient = gradient / work(winner)
                    if first_only:
                        add_gradient(0, (s, below, above, gradient), winner)
                    else:
                        add_gradients(window, value, nan, (s, below, above, gradient), 0)
            store_row(s, 0, gx, target + below, above - below)

    return scatter
