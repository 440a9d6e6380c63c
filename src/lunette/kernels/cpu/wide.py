"""Values of long windows of a max that share few cells: see `wide_windows`."""

# Numba types the kernels, not mypy.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

from functools import cache
from typing import Any

from numba import types

from lunette.kernels.cpu import machine
from lunette.kernels.cpu.halves import codec
from lunette.kernels.cpu.layout import (
    AXES,
    AXIS_WIDTH,
    COUNT,
    OUTPUT_ROWS,
    RANK,
    START,
    STOP,
    TABLE,
    WINDOW_WIDTH,
)
from lunette.kernels.cpu.machine import pointer
from lunette.kernels.cpu.places import item_offset, output_row, parted, place_of
from lunette.kernels.cpu.wide_windows import first_of, rows_of, wide_windows

__all__ = ["kernel"]


@cache
def kernel(dtype: str) -> Any:
    """The kernel for a dtype; no window may be empty."""
    outer = codec(dtype, False)
    memory, work, write = outer.memory, outer.work, outer.store
    real = isinstance(work, types.Float)
    fold, search = wide_windows(outer)
    first_winner = search(first_of)

    @machine.kernel
    def reduce_windows(x_at, y_at, z_at, scratch_at, g_at, room, first, last):
        g, x, y = pointer(g_at, types.int64), pointer(x_at, memory), pointer(y_at, memory)
        e = AXES + (g[RANK] - 1) * AXIS_WIDTH
        m, table = g[e + COUNT], g[e + TABLE]
        known, of_row = 0, rows_of(g, 0)
        for unit in range(first, last):
            item, row = parted(unit, g[OUTPUT_ROWS])
            if row != known:
                known, of_row = row, rows_of(g, row)
            base, target = item_offset(g, item, 0), item_offset(g, item, 1) + output_row(g, row, 1)
            for j in range(m):
                start = g[table + WINDOW_WIDTH * j + START]
                window = (
                    x,
                    base,
                    g,
                    row,
                    of_row,
                    start,
                    g[table + WINDOW_WIDTH * j + STOP] - start,
                )
                value, seen = fold(window)
                if real and (seen != 0) | (value == work(0)):
                    flat = first_winner(window, value, seen != 0, 0, 0)
                    y[target + j] = x[base + place_of(g, flat, 0)]
                else:
                    y[target + j] = write(value)

    return reduce_windows
