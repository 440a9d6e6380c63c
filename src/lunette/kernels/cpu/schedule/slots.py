"""Where things stand in a plan's table: one array of int64 that kernels read through its address.

A header, an entry per pooled axis, an entry per batch axis, the windows of each pooled axis, and
what else a kernel wants. Array X is the input; array Y has the shape of the output; array Z is the
third array of the verb. Steps through memory count elements.
"""

from __future__ import annotations

from typing import Any

# The header of every table.
BATCH_RANK, RANK, COUNT_PADDING, BETA = 0, 1, 3, 5

# The header of a plan, besides.
OUTPUT_ROWS, DIVISOR, SLABS, SLABS_AT = 2, 4, 6, 7
CHANNELS, TILE, TILES, SECOND, ROW, ROW_SIZE, LEFT = range(8, 15)
RESULT, THIRD, PADDED, DIVISORS = range(16, 20)
SPREAD_SECOND, SPREAD_ROW, SPREAD_LEFT, SPREAD_END, CHANNEL_STEP = range(20, 25)
FOLDED_LEFT, FOLDED_ROW, LISTS, LIST, ROW_BYTES, ITEMS, STREAM, STAGE = range(25, 33)
FOLDED_TILE, FOLDED_TILES, BESIDE, OUT_OF_CACHE = range(33, 37)

AXES = 37
"""Where the entries of pooled axes begin."""

EXTENT, COUNT, STEP_X, STEP_Y, STEP_Z, TABLE, FLAT = range(7)
STRIDE, ORIGIN, DILATION, KERNEL, READ_BY, BOX = range(7, 13)
AXIS_WIDTH = 13
"""Of an axis: its cells and its outputs; the steps between them in each array; where its windows are;
cells of the pooled axes from one position to the next; the windows' stride, origin, dilation and kernel
where they lie alike (kernel 0: they do not); where the readers of its cells are; and the taps of the box
that every window is a part of."""

BATCH = AXES + 64 * AXIS_WIDTH
BATCH_WIDTH = 4
"""Where the entries of batch axes begin: length, step in arrays X, Y and Z. NumPy has at most 64 axes."""

WINDOWS = BATCH + 64 * BATCH_WIDTH
"""Where windows begin, then readers, then slabs: low, high, first and last output that reads it."""

START, STOP, STEP, COUNTS, MEMBERS = range(5)
WINDOW_WIDTH = 5
"""Of a window: the first cell, the end, the step, the cells that count, as the bits of a float64, and the
cells that are there."""

MAX, MEAN, SMOOTH = range(3)
"""Kinds of reduction."""

DIRECT, LINE_BUFFER = 1, 2
"""How a result goes past the caches: rows are whole lines, or lines are put together first."""


def entry_of(table: Any, axis: int) -> Any:
    """The entry of a pooled axis, in place."""
    return table[AXES + axis * AXIS_WIDTH :][:AXIS_WIDTH]


def lie_of(table: Any, axis: int) -> tuple[int, int, int, int]:
    """Stride, origin, dilation and kernel of the windows of a pooled axis."""
    stride, origin, dilation, kernel = entry_of(table, axis)[STRIDE : KERNEL + 1].tolist()
    return stride, origin, dilation, kernel
