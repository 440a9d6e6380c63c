"""What a mean divides by: the cells of a window that count, axis by axis."""

# Numba types the kernels, not mypy.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

from lunette.kernels.cpu.machine import compiled, real
from lunette.kernels.cpu.plan import AXES, AXIS_WIDTH, COUNT_PADDING, DIVISOR, WINDOW_WIDTH

__all__ = ["counted", "divisor"]


@compiled
def counted(g, axis, i):
    """The cells of a window that count on one axis."""
    w = g[AXES + axis * AXIS_WIDTH + 5] + WINDOW_WIDTH * i
    return real(g[w + 3]) if g[COUNT_PADDING] else float(g[w + 4])


@compiled
def divisor(g, cells):
    """What a sum is divided by, given the cells that count on all axes but the last."""
    if g[DIVISOR] > 0:
        return real(g[DIVISOR])
    return 1.0 if cells == 0 else cells
