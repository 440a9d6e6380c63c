"""Means over windows of two axes, one to a row, that share few cells and are not wide: adaptive and global ones, mostly.

Rows of a window are added up, then the sums of its columns one by one: the order in which every kernel of a mean
adds. Where items have one window each, as many of them as a vector has lanes go at once: what their columns add up
to is turned, so that each lane adds up an item's.
"""

# Numba types the kernels, not mypy.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

from functools import cache
from typing import Any

from lunette.kernels.cpu.jit import intrinsics
from lunette.kernels.cpu.jit.intrinsics import alwaysinline, compiled, noinline, pointer
from lunette.kernels.cpu.micro.divisors import cells_of_row
from lunette.kernels.cpu.micro.index import batch_offset, cell_place, output_row, parted, rows_of
from lunette.kernels.cpu.micro.reduce_across import across_between
from lunette.kernels.cpu.schedule.records import PLAN, X
from lunette.kernels.cpu.simd.half import dtype_of
from lunette.kernels.cpu.simd.prefetch import prefetch_in_order
from lunette.kernels.cpu.simd.shuffle import slide
from lunette.kernels.cpu.simd.transpose import turning
from lunette.kernels.cpu.simd.vec import vec
from lunette.kernels.cpu.tuning import NARROW_MAX_COLUMNS

__all__ = ["kernel"]

plan_of = PLAN.at


@cache
def kernel(dtype: str) -> Any:
    """The kernel for a dtype; no window may be empty."""
    outer = dtype_of(dtype, True)
    memory, work, kept, write = outer.memory, outer.work, outer.kept, outer.store
    inputs, here = vec(memory, work, outer.half), vec(work, work, "")
    width, load, load_n, add, store = (
        inputs.width,
        inputs.load,
        inputs.load_n,
        inputs.add,
        here.store,
    )
    load_halves, load_s, divide, broadcast = (
        inputs.load_halves,
        here.load,
        here.divide,
        here.broadcast,
    )
    half = width // 2
    interleave_lower, upper = here.interleave_lower, slide(half)
    turn, turn_halves, from_x = (
        turning(width),
        turning(half),
        across_between(outer, outer.scratch, "add"),
    )
    to_y = vec(kept, work, outer.half)
    keep, keep_part = to_y.store, to_y.store_n
    zero, as_it_is = work(0), memory == work

    @compiled
    def add_rows(x, at, pitch, rows, cells, s, to):
        """The sums of `rows` of up to a vector of cells, to s[to …]."""
        alwaysinline()
        if cells >= width:
            total = load(x, at)
            prefetch_in_order(x, at)
            for _ in range(1, rows):
                at += pitch
                total = add(total, load(x, at))
                prefetch_in_order(x, at)
        else:
            for c in range(0, rows * pitch, width):
                prefetch_in_order(x, at + c)
            total = load_n(x, at, 0, cells, zero)
            for _ in range(1, rows):
                at += pitch
                total = add(total, load_n(x, at, 0, cells, zero))
        store(s, to, total)

    @compiled
    def add_rows_of_two(x, at, other, pitch, rows, cells, s, to):
        """`add_rows` of two items whose rows fill half a vector at most: one has the first half of the sums, one the other."""
        alwaysinline()
        for c in range(0, rows * pitch, width):
            prefetch_in_order(x, at + c)
            prefetch_in_order(x, other + c)
        total = load_halves(x, at, other, cells)
        for _ in range(1, rows):
            at, other = at + pitch, other + pitch
            total = add(total, load_halves(x, at, other, cells))
        store(s, to, total)

    @compiled
    def some_at_once(x, y, s, plan, divisors, first, last):
        """Items with one window each, a vector of them at a time; gives the first that is left.

        What the columns of each add up to is a row of s, or half of one. Blocks of these are turned, and added one after the other.
        """
        noinline()
        table = plan.axes[1].windows
        size, next_item = table[0].stop - table[0].start, plan.batch[0].x_stride
        if plan.batch[0].y_stride != 1:
            return first
        rows, pitch, _ = rows_of(plan, 0)
        at, to = cell_place(plan, 0, 0, 0, 0, X) + table[0].start, output_row(plan, 0, 1)
        count = broadcast(work(cells_of_row(plan, 0)) * divisors[0])
        whole = min(size, NARROW_MAX_COLUMNS)
        padded = whole + width - whole % width
        turned = width * padded
        while first < last:
            items, place, total = min(width, last - first), at + first * next_item, broadcast(zero)
            if size <= half:
                for i in range(0, items, 2):
                    other = place + next_item if i + 1 < items else place
                    add_rows_of_two(x, place, other, pitch, rows, size, s, i * half)
                    place += 2 * next_item
                turn_halves(s, 0, width, s, turned)
                for c in range(size):
                    total = add(total, load_s(s, turned + c * width))
                total = interleave_lower(
                    total, upper(total, total)
                )  # every other item has the second half
            else:
                done = 0
                if as_it_is:  # noqa: SIM102 — elsewhere it is not compiled
                    if (rows == 1) & (items == width) & (plan.out_of_cache == 0):
                        # A row is its own sums: whole vectors are turned where they lie. What memory has to send first comes
                        # sooner row by row.
                        for column in range(0, size - width + 1, width):
                            turn(x, place + column, next_item, s, turned)
                            for c in range(width):
                                total = add(total, load_s(s, turned + c * width))
                        done = size - size % width
                for begin in range(done, size, NARROW_MAX_COLUMNS):
                    cells = min(NARROW_MAX_COLUMNS, size - begin)
                    for i in range(items):
                        item = place + i * next_item + begin
                        from_x(x, item, pitch, rows, s, i * padded, cells, plan.out_of_cache != 0)
                    for column in range(0, cells, width):
                        turn(s, column, padded, s, turned)
                        for c in range(min(width, cells - column)):
                            total = add(total, load_s(s, turned + c * width))
            mean = add(divide(total, count), broadcast(zero))  # never −0
            if items == width:
                keep(y, to + first, mean)
            else:
                keep_part(y, to + first, mean, items)
            first += width
        return last

    @intrinsics.kernel
    def average_windows(x_at, y_at, z_at, scratch_at, plan_at, room, first, last):
        plan, s = plan_of(plan_at), pointer(scratch_at, work)
        x, y, divisors = pointer(x_at, memory), pointer(y_at, kept), pointer(plan.divisors, work)
        w_axis = plan.axes[1]
        m, table = w_axis.out_len, w_axis.windows
        known, place, to, rows, pitch, factor = -1, 0, 0, 0, 0, work(1)
        if room > 1:  # units are so many items
            first, last = first * room, min(last * room, plan.batch[0].length)
        if (m == 1) & (plan.output_rows == 1) & (plan.batch_rank == 1):
            first = some_at_once(x, y, s, plan, divisors, first, last)
        for unit in range(first, last):
            item, row = parted(unit, plan.output_rows)
            if row != known:
                known, place, to = row, cell_place(plan, row, 0, 0, 0, X), output_row(plan, row, 1)
                rows, pitch, _ = rows_of(plan, row)
                factor = work(cells_of_row(plan, row))
            base, target = batch_offset(plan, item, 0) + place, batch_offset(plan, item, 1) + to
            for j in range(m):
                start = table[j].start
                size = table[j].stop - start
                for c in range(0, size, width):
                    add_rows(x, base + start + c, pitch, rows, size - c, s, c)
                total = zero
                for c in range(size):
                    total += s[c]
                y[target + j] = write(total / (factor * divisors[j]) + zero)  # never −0

    return average_windows
