"""The windows of an axis as numbers: tables of windows and of readers, and whether windows lie alike."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from lunette.kernels.cpu.schedule.slots import COUNTS, MEMBERS, START, STEP, STOP, WINDOW_WIDTH
from lunette.regions import Adaptive, Global, Part, Region, Sliding, check_windows

__all__ = [
    "affine",
    "as_real",
    "few_cells",
    "reach",
    "reach_of_window",
    "reader_table",
    "window_table",
]

FAR_APART = 1 << 12
"""A stride past which windows that are much shorter do not count as lying alike."""

FEW_QUICK, FEW_BESIDE, FEW_APART = 32, 12, 4
"""Cells of a window of a max, at most, whose winner is found by looking at one after the other: where there is
a kernel for just such windows, where vectors of cells are read as they lie, and where they are gathered."""


def window_table(region: Region, n: int, m: int) -> Any:
    """start, stop, step, counted and cells of each window; counted as the bits of a float64.

    A step past the axis is the axis: such a window reads one cell at most.
    """
    table = np.zeros((m, WINDOW_WIDTH), np.int64)
    counted = np.zeros(m)
    try:
        table[:, :4] = region.table(n, 0, m)
        counted[:] = table[:, COUNTS]
    except OverflowError:  # numbers past int64: a window of padding alone may count that many
        alike, others = region.common(n, 0, m)
        if alike is not None:
            table[:, :3] = alike.start, alike.stop, min(alike.step, n)
            counted[:] = as_real(alike.counted)
        for i in others:
            start, stop, step, cells = region.window(n, i)
            table[i, :3] = start, stop, min(step, n)
            counted[i] = as_real(cells)
    check_windows(region, n, table)
    table[:, STEP] = np.minimum(table[:, STEP], n)
    table[:, COUNTS] = counted.view(np.int64)
    spans = table[:, STOP] - table[:, START]
    table[:, MEMBERS] = -(-spans // table[:, STEP])
    return table


def reader_table(table: Any, n: int) -> Any:
    """The outputs that read each position, as a table of windows on the outputs; None where they are not at equal steps.

    Cells of a window are `step` apart, so it reads positions of one remainder. Of the windows of a remainder, in the order
    of outputs, those that read a position are neighbours.
    """
    full = np.flatnonzero(table[:, MEMBERS] > 0)
    readers = np.zeros((n, WINDOW_WIDTH), np.int64)
    readers[:, STEP] = 1
    if not len(full):
        return readers
    steps = table[full, STEP][table[full, MEMBERS] > 1]
    step = int(steps[0]) if len(steps) else n
    if (steps != step).any():
        return None
    starts, rows = table[full, START], n // step + 2  # a window ends before its remainder's rows do
    order = np.argsort(starts % step, kind="stable")
    outputs, remainders = full[order], (starts % step)[order]
    begins = remainders * rows + starts[order] // step
    ends = begins + table[outputs, MEMBERS]
    apart = np.diff(outputs)[np.diff(remainders) == 0]
    between = int(apart[0]) if len(apart) else 1
    if (apart != between).any() or (np.diff(begins) < 0).any() or (np.diff(ends) < 0).any():
        return None
    places = np.arange(n) % step * rows + np.arange(n) // step
    first, last = (np.searchsorted(edge, places, "right") for edge in (ends, begins))
    read = last > first
    readers[read, START], readers[read, STEP] = outputs[first[read]], between
    readers[:, MEMBERS] = last - first
    readers[read, STOP] = outputs[last[read] - 1] + 1
    return readers


def as_real(n: int | None) -> float:
    """An integer of any size as a float64; 0 for None."""
    try:
        return float(n or 0)
    except OverflowError:
        return float("inf")


def affine(region: Region, n: int) -> tuple[int, int, int, int]:
    """(stride, origin, dilation, kernel) of windows that lie alike: i reads stride·i + origin + …

    All zero where they do not, where nearly all of a window would be padding, or where windows lie
    so far apart that what is between them is not worth a thought.
    """
    if type(region) is Part:  # not a class of the user's own, which may have other windows
        stride, origin, dilation, kernel = affine(region.region, region.length)
        origin += stride * region.outputs[0] - region.slab_range[0]
        n = region.length
    elif type(region) is Sliding:
        stride, origin = int(region.stride or 1), -region.margins(n)[0]
        dilation, kernel = region.dilation, region.kernel
    elif type(region) is Adaptive and n % region.output_size == 0:
        stride = kernel = n // region.output_size
        origin, dilation = 0, 1
    elif type(region) is Global:
        stride, origin, dilation, kernel = n, 0, 1, n
    else:
        return (0, 0, 0, 0)
    extreme = max(stride, abs(origin), dilation * kernel) > 4 * n + 64
    extreme = extreme or stride > max(FAR_APART, 8 * dilation * kernel)
    return (0, 0, 0, 0) if extreme or kernel == 0 else (stride, origin, dilation, kernel)


def reach(region: Any) -> int:
    """Cells of a sliding window along its axis; of other regions more than any."""
    if type(region) is Part:
        return reach(region.region)
    return int(region.kernel) if type(region) is Sliding else 1 << 62


def longest(region: Any, n: int) -> int:
    """Cells of a window on an axis of length `n`, at most."""
    if type(region) is Part:
        return min(n, longest(region.region, region.length))
    if type(region) is Adaptive:
        return region.longest(n)
    return min(reach(region), n)


def reach_of_window(op: Any, shape: tuple[int, ...]) -> int:
    """Cells of a window of an op on an array of this shape, at most."""
    return prod(map(longest, op.regions, shape[len(shape) - op.rank :]))


def few_cells(op: Any, shape: tuple[int, ...], size: int) -> bool:
    """Whether windows of a max have so few cells that looking at each is quicker than one axis after the other.

    Numbers have `size` bytes. The bounds are where the two took equally long.
    """
    stride, _, dilation, kernel = affine(op.regions[-1], shape[-1])
    cells = reach_of_window(op, shape)
    if size >= 4 and dilation == 1 and stride <= 2 and kernel in (2, 3):
        return cells <= FEW_QUICK
    return cells <= (FEW_BESIDE if stride == 1 else FEW_APART)
