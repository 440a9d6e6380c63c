"""Means over windows of two axes that share few cells and are not wide: adaptive and global ones, mostly.

Rows of a window are added up in a register, then the sums of its columns one by one: the order in which every
kernel of a mean adds.
"""

# Numba types the kernels, not mypy.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

from functools import cache
from typing import Any

from numba import types

from lunette.kernels.cpu import machine
from lunette.kernels.cpu.asking import ask_for
from lunette.kernels.cpu.counts import cells_of_row
from lunette.kernels.cpu.halves import codec
from lunette.kernels.cpu.lanes import lanes
from lunette.kernels.cpu.layout import (
    AXES,
    AXIS_WIDTH,
    BATCH,
    BATCH_RANK,
    COUNT,
    DIVISORS,
    OUTPUT_ROWS,
    START,
    STEP_X,
    STOP,
    TABLE,
    WINDOW_WIDTH,
)
from lunette.kernels.cpu.machine import apart, compiled, pointer, within
from lunette.kernels.cpu.places import item_offset, output_row, parted
from lunette.kernels.cpu.wide_windows import cell_place, rows_of

__all__ = ["kernel"]


@cache
def kernel(dtype: str) -> Any:
    """The kernel for a dtype; no window may be empty."""
    outer = codec(dtype, True)
    memory, work, kept, write = outer.memory, outer.work, outer.kept, outer.store
    inputs, here = lanes(memory, work, outer.half), lanes(work, work, "")
    width, load, load_part, add, store = (
        inputs.width,
        inputs.load,
        inputs.load_part,
        inputs.add,
        here.store,
    )
    load_step, divide, spread = here.load_step, here.divide, here.spread
    keep = lanes(kept, work, outer.half).store
    zero = work(0)

    @compiled
    def add_rows(x, at, pitch, rows, cells, s, to):
        """The sums of `rows` of up to a vector of cells, to s[to …]."""
        within()
        if cells >= width:
            total = load(x, at)
            ask_for(x, at)
            for _ in range(1, rows):
                at += pitch
                total = add(total, load(x, at))
                ask_for(x, at)
        else:
            for c in range(0, rows * pitch, width):
                ask_for(x, at + c)
            total = load_part(x, at, 0, cells, zero)
            for _ in range(1, rows):
                at += pitch
                total = add(total, load_part(x, at, 0, cells, zero))
        store(s, to, total)

    @compiled
    def some_at_once(x, y, s, g, divisors, first, last):
        """A vector of items with one window each, then the next, while they are whole; gives the first that is left.

        What the columns of each add up to is a row of s; their sums go column by column.
        """
        apart()
        table = g[AXES + AXIS_WIDTH + TABLE]
        size = g[table + STOP] - g[table + START]
        if (size > width) | (g[BATCH + 2] != 1):
            return first
        rows, pitch, _ = rows_of(g, 0)
        at, to = cell_place(g, 0, 0, 0, 0, STEP_X) + g[table + START], output_row(g, 0, 1)
        count = spread(work(cells_of_row(g, 0)) * divisors[0])
        while first + width <= last:
            for i in range(width):
                place = at + (first + i) * g[BATCH + 1]
                add_rows(x, place, pitch, rows, size, s, i * width)
            total = load_step(s, 0, width, 0, width, zero)
            for c in range(1, size):
                total = add(total, load_step(s, c, width, 0, width, zero))
            keep(y, to + first, add(divide(total, count), spread(zero)))  # never −0
            first += width
        return first

    @machine.kernel
    def average_windows(x_at, y_at, z_at, scratch_at, g_at, room, first, last):
        g, s = pointer(g_at, types.int64), pointer(scratch_at, work)
        x, y, divisors = pointer(x_at, memory), pointer(y_at, kept), pointer(g[DIVISORS], work)
        e = AXES + AXIS_WIDTH
        m, table = g[e + COUNT], g[e + TABLE]
        known, place, to, rows, pitch, factor = -1, 0, 0, 0, 0, work(1)
        if (m == 1) & (g[OUTPUT_ROWS] == 1) & (g[BATCH_RANK] == 1):
            first = some_at_once(x, y, s, g, divisors, first, last)
        for unit in range(first, last):
            item, row = parted(unit, g[OUTPUT_ROWS])
            if row != known:
                known, place, to = row, cell_place(g, row, 0, 0, 0, STEP_X), output_row(g, row, 1)
                rows, pitch, _ = rows_of(g, row)
                factor = work(cells_of_row(g, row))
            base, target = item_offset(g, item, 0) + place, item_offset(g, item, 1) + to
            for j in range(m):
                start = g[table + WINDOW_WIDTH * j + START]
                size = g[table + WINDOW_WIDTH * j + STOP] - start
                for c in range(0, size, width):
                    add_rows(x, base + start + c, pitch, rows, size - c, s, c)
                total = zero
                for c in range(size):
                    total += s[c]
                y[target + j] = write(total / (factor * divisors[j]) + zero)  # never −0

    return average_windows
