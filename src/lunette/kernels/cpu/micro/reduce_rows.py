"""Windows side by side of a max: their rows are folded into one row first, which is read in the order of memory.

Window by window, memory would be read in steps from row to row, which processors foresee badly. Where they
need not, for memory is asked for ahead, that is still the faster way to windows that fill vectors and whose rows are one block.
"""

# Numba types the kernels, not mypy.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

from functools import cache
from typing import Any

from lunette.kernels.cpu.jit.intrinsics import alwaysinline, compiled, noinline
from lunette.kernels.cpu.micro.index import cell_place
from lunette.kernels.cpu.micro.reduce_across import across_between
from lunette.kernels.cpu.micro.reduce_window import wide_windows
from lunette.kernels.cpu.micro.rows import passes
from lunette.kernels.cpu.schedule.records import X
from lunette.kernels.cpu.simd.half import DType
from lunette.kernels.cpu.simd.prefetch import EVERY_ACCESS, PAGE_INTERLEAVED
from lunette.kernels.cpu.simd.shuffle import folded
from lunette.kernels.cpu.simd.vec import vec
from lunette.kernels.cpu.tuning import BAND_CELLS, SLACK

__all__ = ["bands"]

FEWEST_ROWS = 4
"""Rows of a band. Fewer are not worth a row that is written and read again."""

GAP = 16
"""Cells between windows that are read for nothing, at most."""


@compiled
def side_by_side(plan, first, last):
    """The end of the windows from `first` on that make a band, `first + 1` if they make none, and of its cells."""
    table = plan.axes[plan.rank - 1].windows
    w = table[first]
    begin, stop, until = w.start, w.stop, first + 1
    while until < last:
        w = table[until]
        if (w.start > stop + GAP) | (w.stop > begin + BAND_CELLS):
            break
        until, stop = until + 1, w.stop
    return until, stop


@cache
def bands(dtype_of: DType) -> tuple[Any, Any]:
    """`no_band` and `value_of` for a codec: the values of windows, one after the other along an output row.

    `value_of(window, s, j, last, band)` gives the value of window j, non-zero after a NaN, and its band. It
    is given the band of the window before it, at first that of `no_band`, and where windows end. A window is
    what `wide_windows` takes for one. A band is where it ends, its first position, and whether its windows
    are folded one by one: there is but one, or a NaN was seen. s[0 …] keeps its row.
    """
    fold = wide_windows(dtype_of).fold
    across = across_between(dtype_of, dtype_of.scratch, "max_num", True)
    join = passes(dtype_of.work, "max_num").across
    here = vec(dtype_of.work, dtype_of.work, "")
    width, load, load_n, max_num = here.width, here.load, here.load_n, here.max_num
    broadcast, fill, max_of_lanes = (
        here.broadcast,
        dtype_of.lowest,
        folded(dtype_of.work, "max_num"),
    )

    @compiled
    def no_band(plan, first, last, of_row):
        """What windows first … last of an output row begin with; −1 where bands would be no gain."""
        rows, _, blocks = of_row
        w = plan.axes[plan.rank - 1].windows[first]
        narrow = w.stop - w.start < width
        gains = (last - first > 1) & (rows >= FEWEST_ROWS)
        gains &= (blocks > 1) | narrow | (not PAGE_INTERLEAVED)
        return first if gains else -1, 0, True

    @compiled
    def fold_rows(x, base, s, plan, row, of_row, low, size):
        """The fold of all rows of a band, to s[0 …]; non-zero after a NaN."""
        rows, pitch, blocks = of_row
        seen = 0
        for block in range(blocks):
            at, to = (
                base + cell_place(plan, row, block, 0, low, X),
                min(block, 1) * (BAND_CELLS + SLACK),
            )
            seen |= across(x, at, pitch, rows, s, to, size, PAGE_INTERLEAVED or EVERY_ACCESS)
            if block > 0:
                join(s, to, 0, 1, 0, size, True)
        return seen

    @compiled
    def fold_part(s, at, size):
        best, c = broadcast(fill), 0
        while c + width <= size:
            best = max_num(best, load(s, at + c))
            c += width
        if c < size:
            best = max_num(best, load_n(s, at + c, 0, size - c, fill))
        return max_of_lanes(best)

    @compiled
    def band_from(x, base, s, plan, row, of_row, low, j, last):
        """The band that begins with window j, at position `low`, its rows folded."""
        noinline()
        until, stop = side_by_side(plan, j, last)
        alone = until == j + 1
        if not alone:
            alone = fold_rows(x, base, s, plan, row, of_row, low, stop - low) != 0
        return until, low, alone

    @compiled
    def value_of(window, s, j, last, band):
        alwaysinline()
        x, base, plan, row, of_row, start, size = window
        if j == band[0]:
            band = band_from(x, base, s, plan, row, of_row, start, j, last)
        _, low, alone = band
        if alone:
            value, seen = fold(window)
        else:
            value, seen = fold_part(s, start - low, size), 0
        return value, seen, band

    return no_band, value_of
