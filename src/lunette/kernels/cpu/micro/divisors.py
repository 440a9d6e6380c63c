"""What a mean divides by: the cells of a window that count, axis by axis."""

# Numba types the kernels, not mypy.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

from lunette.kernels.cpu.jit.intrinsics import compiled, real
from lunette.kernels.cpu.micro.index import parted

__all__ = ["cells_of_row", "counted", "divisor"]


@compiled
def counted(plan, axis, i):
    """The cells of a window that count on one axis."""
    w = plan.axes[axis].windows[i]
    return real(w.counted) if plan.count_padding else float(w.in_bounds)


@compiled
def divisor(plan, cells):
    """What a sum is divided by, given the cells that count on all axes but the last."""
    if plan.divisor > 0:
        return real(plan.divisor)
    return 1.0 if cells == 0 else cells


@compiled
def cells_of_row(plan, row):
    """What the sums of an output row are divided by, besides the cells that count on the last axis."""
    cells = 1.0
    for axis in range(plan.rank - 2, -1, -1):
        row, i = parted(row, plan.axes[axis].out_len)
        cells *= counted(plan, axis, i)
    return divisor(plan, cells)
