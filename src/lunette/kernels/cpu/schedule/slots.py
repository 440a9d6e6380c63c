"""Where the fields of a plan's records stand, for those who fill its table; kernels read them by name (`records`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lunette.kernels.cpu.jit.record import Entry
from lunette.kernels.cpu.schedule.records import (
    AXES,
    AXIS,
    BATCH,
    BATCH_AXIS,
    PLAN,
    WINDOW,
    WINDOWS,
)

__all__ = ["AXES", "BATCH", "WINDOWS", "entry_of", "lie_of"]


def _places(entry: Entry, names: str) -> Iterator[int]:
    return map(entry.place, names.split())


BATCH_RANK, RANK, COUNT_PADDING, BETA = _places(PLAN, "batch_rank rank count_padding beta")
OUTPUT_ROWS, DIVISOR, SLABS, SLABS_AT = _places(PLAN, "output_rows divisor slab_count slabs")
CHANNELS, TILE, TILES, SECOND = _places(PLAN, "channels tile tiles second_area")
ROW, ROW_SIZE, LEFT, RESULT = _places(PLAN, "row row_size left result")
THIRD, PADDED, DIVISORS = _places(PLAN, "third_area padded divisors")
SPREAD_SECOND, SPREAD_ROW = _places(PLAN, "spread_second spread_row")
SPREAD_LEFT, SPREAD_END = _places(PLAN, "spread_left spread_end")
CHANNEL_STEP, FOLDED_LEFT, FOLDED_ROW = _places(PLAN, "channel_stride folded_left folded_row")
LISTS, LIST, ROW_BYTES, ITEMS = _places(PLAN, "lists list_size row_bytes items")
STREAM, STAGE, FOLDED_TILE, FOLDED_TILES = _places(PLAN, "stream stage folded_tile folded_tiles")
BESIDE, OUT_OF_CACHE = _places(PLAN, "beside out_of_cache")

EXTENT, COUNT, TABLE, READ_BY, BOX = _places(AXIS, "in_len out_len windows readers box")
STEP_X, STRIDE, KERNEL = _places(AXIS, "x_stride stride taps")
AXIS_WIDTH = len(AXIS.fields)

BATCH_WIDTH = len(BATCH_AXIS.fields)

START, STOP, STEP, COUNTS, MEMBERS = _places(WINDOW, "start stop step counted in_bounds")
WINDOW_WIDTH = len(WINDOW.fields)

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
