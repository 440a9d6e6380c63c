"""Long windows of a max that share few cells: their values, their winners, and the tangents of these.

A window is folded and, if need be, searched for the cells that win: see `wide_windows`. Windows side by
side are folded together, see `bands`, but where there is a NaN.
"""

# Numba types the kernels, not mypy; `v != v` is how a NaN is known.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"
# ruff: noqa: PLR0124

from __future__ import annotations

from functools import cache
from typing import Any

from numba import types

from lunette.kernels.cpu.jit import intrinsics
from lunette.kernels.cpu.jit.intrinsics import alwaysinline, compiled, pointer
from lunette.kernels.cpu.micro.index import batch_offset, output_row, parted, place_of, rows_of
from lunette.kernels.cpu.micro.reduce_items import is_global
from lunette.kernels.cpu.micro.reduce_rows import bands
from lunette.kernels.cpu.micro.reduce_window import first_of, wide_windows
from lunette.kernels.cpu.schedule.records import PLAN
from lunette.kernels.cpu.simd.half import dtype_of
from lunette.kernels.cpu.simd.prefetch import prefetch_line
from lunette.kernels.cpu.tuning import BAND_BYTES, LOOKUP_BATCH

__all__ = ["kernel"]

plan_of = PLAN.at


@cache
def kernel(dtype: str, verb: str, ties: str) -> Any:
    """The kernel of a verb for a dtype; no window may be empty.

    Of `forward` and `winners` array 1 is the values. Of `winners` array 2 of int64 is as large: the flat position
    of the first winner or, with ties `split`, how many win. For `jvp` array 1 is the result, array 2 the tangent.
    """
    outer = dtype_of(dtype, False)
    memory, work, read, write = outer.memory, outer.work, outer.load, outer.store
    (no_band, value_of), search = bands(outer), wide_windows(outer).search
    first_only, split, zero = ties == "first", ties == "split", work(0)
    values_only, gives_tangents = verb == "forward", verb == "jvp"
    real, size_of = isinstance(work, types.Float), memory.bitwidth // 8
    values_of_some, some = is_global(outer)

    @compiled
    def one_more(state, extra, flat):
        tied, first = state
        return (tied + 1, flat if tied == 0 else first), False

    @compiled
    def add_tangent(state, extra, flat):
        (total, tied), (plan, dx, third) = state, extra
        return (total + read(dx[third + place_of(plan, flat, 2)]), tied + 1), False

    find, count, add_tangents = search(first_of), search(one_more), search(add_tangent)

    @compiled
    def window_of(x, base, plan, row, of_row, j):
        alwaysinline()
        w = plan.axes[plan.rank - 1].windows[j]
        return x, base, plan, row, of_row, w.start, w.stop - w.start

    @compiled
    def tangents(source, plan, windows, s, winners, tangent, result):
        """Those of a row of outputs. What some winners' tangents are is asked for first: it may be anywhere."""
        alwaysinline()
        x, base = source
        row, of_row, m = windows
        dx, dx_at, third = tangent
        y, target = result
        band = no_band(plan, 0, m, of_row)
        for first in range(0, m, LOOKUP_BATCH):
            last = min(m, first + LOOKUP_BATCH)
            for j in range(first, last):
                window = window_of(x, base, plan, row, of_row, j)
                value, seen, band = value_of(window, s, j, m, band)
                flat = find(window, value, seen != 0, 0, 0)
                winners[j - first] = flat
                prefetch_line(dx_at + (third + place_of(plan, flat, 2)) * size_of)
            for j in range(first, last):
                flat = winners[j - first]
                if first_only:
                    total = read(dx[third + place_of(plan, flat, 2)]) + zero
                else:
                    window, value = (
                        window_of(x, base, plan, row, of_row, j),
                        read(x[base + place_of(plan, flat, 0)]),
                    )
                    total, tied = add_tangents(
                        window, value, value != value, (plan, dx, third), (zero, 0)
                    )
                    if split:
                        total = total / work(tied)
                y[target + j] = write(total)

    @intrinsics.kernel
    def win_windows(x_at, y_at, z_at, scratch_at, plan_at, room, first, last):
        plan, s = plan_of(plan_at), pointer(scratch_at, work)
        x, y = pointer(x_at, memory), pointer(y_at, memory)
        found, dx = pointer(z_at, types.int64), pointer(z_at, memory)
        winners = pointer(scratch_at + BAND_BYTES, types.int64)
        w_axis = plan.axes[plan.rank - 1]
        m = w_axis.out_len
        known, of_row = 0, rows_of(plan, 0)
        # Items with one window each, side by side in the result.
        together = (plan.rank == 1) & (m == 1) & (plan.batch_rank == 1)
        together &= plan.batch[0].y_stride == 1
        bits, done = 0, first  # units before `done` are done, but those whose bits are set
        for unit in range(first, last):
            if values_only and some > 0 and together:
                if unit == done:
                    items = min(some, last - unit)
                    bits, done = values_of_some(x, y, s, plan, unit, items), unit + items
                left, bits = bits & 1 != 0, bits >> 1
                if not left:
                    continue
            item, row = parted(unit, plan.output_rows)
            if row != known:
                known, of_row = row, rows_of(plan, row)
            base, third = batch_offset(plan, item, 0), batch_offset(plan, item, 2)
            target = batch_offset(plan, item, 1) + output_row(plan, row, 1)
            if gives_tangents:
                tangents(
                    (x, base), plan, (row, of_row, m), s, winners, (dx, z_at, third), (y, target)
                )
                continue
            band = no_band(plan, 0, m, of_row)
            for j in range(m):
                window = window_of(x, base, plan, row, of_row, j)
                value, seen, band = value_of(window, s, j, m, band)
                nan = seen != 0
                if values_only:
                    y[target + j] = write(value)
                    if real and nan | (value == zero):  # which NaN, or which zero
                        flat = find(window, value, nan, 0, 0)
                        y[target + j] = x[base + place_of(plan, flat, 0)]
                else:
                    if split:
                        tied, flat = count(window, value, nan, 0, (0, 0))
                    else:
                        flat = find(window, value, nan, 0, 0)
                    found[target + j] = tied if split else flat
                    y[target + j] = x[base + place_of(plan, flat, 0)]

    return win_windows
