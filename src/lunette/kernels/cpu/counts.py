"""What a mean divides by: the cells of a window that count, axis by axis."""

# Numba types the kernels, not mypy.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

from lunette.kernels.cpu.layout import (
    AXES,
    AXIS_WIDTH,
    COUNT_PADDING,
    COUNTS,
    DIVISOR,
    MEMBERS,
    TABLE,
    WINDOW_WIDTH,
)
from lunette.kernels.cpu.machine import compiled, real

__all__ = ["counted", "divisor"]


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
