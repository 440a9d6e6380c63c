"""What a mean divides by: the cells of a window that count, axis by axis."""

# Numba types the kernels, not mypy.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

from lunette.kernels.cpu.jit.intrinsics import compiled, real
from lunette.kernels.cpu.micro.index import parted
from lunette.kernels.cpu.schedule.slots import (
    AXES,
    AXIS_WIDTH,
    COUNT,
    COUNT_PADDING,
    COUNTS,
    DIVISOR,
    MEMBERS,
    RANK,
    TABLE,
    WINDOW_WIDTH,
)

__all__ = ["cells_of_row", "counted", "divisor"]


@compiled
def counted(g, axis, i):
    """The cells of a window that count on one axis."""
    w = g[AXES + axis * AXIS_WIDTH + TABLE] + WINDOW_WIDTH * i
    return real(g[w + COUNTS]) if g[COUNT_PADDING] else float(g[w + MEMBERS])


@compiled
def divisor(g, cells):
    """What a sum is divided by, given the cells that count on all axes but the last."""
    if g[DIVISOR] > 0:
        return real(g[DIVISOR])
    return 1.0 if cells == 0 else cells


@compiled
def cells_of_row(g, row):
    """What the sums of an output row are divided by, besides the cells that count on the last axis."""
    cells = 1.0
    for axis in range(g[RANK] - 2, -1, -1):
        row, i = parted(row, g[AXES + axis * AXIS_WIDTH + COUNT])
        cells *= counted(g, axis, i)
    return divisor(g, cells)
