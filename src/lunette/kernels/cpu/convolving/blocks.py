"""What the kernels of a convolution are told: a table of integers, and where in scratch memory things lie.

A kernel takes a range of units, the address of such a table and the address of this thread's scratch
memory. Arrays stand in the table as addresses; all that they hold are int64 or numbers of the result's type.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import Any

import numpy as np

from lunette.kernels import threads
from lunette.kernels.cpu.memory.working_memory import Memory, of_this_thread
from lunette.kernels.cpu.plans.sizes import LINE

__all__ = ["address", "run", "slab_numbers"]

Array = np.ndarray[Any, Any]

KEPT = 16 << 20
"""Bytes of scratch memory that a thread keeps for its next call, at most."""

(
    RANK, COUNTS, LENGTHS, STEPS, BLOCK_ROWS, BLOCK_COLUMNS, HEIGHT, WIDTH, PLANES, PLANE_COUNT, AFTER_SLAB,
) = range(11)  # fmt: skip
"""Every table begins with how slabs are laid: axes; addresses of the outputs on each, the lengths that are read
and the steps; rows and columns of a block and of a plane; the address of the planes, and their number."""

(
    UNITS, OUT_STRIDES, TABLE, TAPS_OF_CHANNEL, SLAB_CHANNELS, CHANNEL_CHUNK, TAP_CHUNK, NEAR, IN_CHANNELS,
    ROWS_NOW, GROUP_ROWS, BIAS, OUT, OUT_OFFSETS, OUT_CHANNEL, SUMS_AT, STARTS_AT, OTHER_AT, INTEGERS_AT,
    SOURCES, FIRST_SOURCE,
) = range(AFTER_SLAB, AFTER_SLAB + 21)  # fmt: skip
"""Then, of a correlation: units of a group, strides of the output, the table of taps, how the work is chunked; channels,
rows at a time and of a group; the bias or 0; the output; places in scratch memory; and the sources."""

SOURCE, SOURCE_OFFSETS, SOURCE_CHANNEL, SOURCE_STRIDES, PACKED, SOURCE_WIDTH = range(6)
"""Of each source: addresses of its numbers and of its batch items' offsets, strides, and its packed weights."""

(PACKED_TO, WEIGHT, ROW_STRIDE, GROUP_STRIDE, PACKED_OFFSETS, DEPTH, SIDE_BY_SIDE, PACKED_ROWS, ROW_BLOCKS,
 BLOCK_HEIGHT) = range(10)  # fmt: skip
"""Of `pack`: where to, from where, and how the weights lie."""

(
    OUTER_TABLE, OUTER_PITCH, CHUNKS, CHUNK_COUNT, OUTER_SOURCE, OUTER_OFFSETS, OUTER_CHANNEL, OUTER_STRIDES, GROUPS,
    OUTER_CHANNELS, WINDOWS, LANES, OUTER_SUMS, SUMS_PITCH, START, STOP, BASE, OUTER_INTEGERS,
) = range(AFTER_SLAB, AFTER_SLAB + 18)  # fmt: skip
"""Of `outer`, after how slabs are laid."""

(
    DOTS_UNITS, DOTS_TABLE, DOTS_TAPS, DOTS_SOURCE, DOTS_OFFSETS, DOTS_CHANNEL, DOTS_STRIDES, DOTS_CHANNELS,
    DOTS_WINDOWS, WINDOW_OFFSETS, WINDOW_CHANNEL, WINDOW_STRIDES, DOTS_ROWS, DOTS_SUMS, LINES_AT, DOTS_INTEGERS,
) = range(AFTER_SLAB, AFTER_SLAB + 16)  # fmt: skip
"""Of `dots`, after how slabs are laid."""

(TURN_START, TURN_STOP, TURN_BLOCK, TURN_RANK, TURN_COUNTS, TURN_SOURCE, TURN_OFFSETS, TURN_CHANNEL, TURN_STRIDES,
 TURN_GROUPS, TURN_ROWS, TURN_LANES, TURN_TARGET) = range(13)  # fmt: skip
"""Of `transpose`."""

(
    CELLS, CELL_RANK, CELL_SOURCES, CELL_TERMS, CELL_SUMS, LINES, LINE_HEADS, LINE_COUNTS, A_BASE, A_TERMS, A_STRIDES,
    B_BASE, B_TERMS, B_STRIDES, CELL_STARTS, CELL_OUT, CELL_OUT_STRIDES,
) = range(17)  # fmt: skip
"""Of sums cell by cell: cells of a sum; axes, sources, terms and sums; the lines of the axes; both factors; starts, and results."""

HEAD = 3
"""A run of positions is (first column, length, batch item, index on each axis)."""


def address(numbers: Array) -> int:
    """Where an array's first number is."""
    found: int = numbers.__array_interface__["data"][0]
    return found


def slab_numbers(counts: Array, lengths: Array, steps: Array, slab: Any) -> tuple[int, ...]:
    """How slabs are laid, as every table begins; the arrays are the plan's, which outlives the call."""
    rows, columns = map(int, slab.blocks)
    height, width = map(int, slab.shape)
    assert slab.planes.flags.c_contiguous and slab.planes.dtype == np.int64
    return (
        len(counts), address(counts), address(lengths), address(steps), rows, columns, height, width,
        address(slab.planes), len(slab.planes),
    )  # fmt: skip


def room(parts: Iterable[int]) -> tuple[list[int], int]:
    """Where parts of so many bytes lie one after the other, each from a cache line on, and the bytes of all."""
    places, end = [], 0
    for size in parts:
        places.append(end)
        end += -(-size // LINE) * LINE
    return places, end


def run(
    kernel: Any, units: int, numbers: list[int], held: Any, scratch: int = 0, workers: int = 0
) -> None:
    """Run a kernel's units on all threads, or on so many, each with so many bytes of scratch memory.

    Some numbers are addresses in what is `held`: it lives until every thread is done.
    """
    table = array("q", numbers)
    at, _ = table.buffer_info()

    def work(first: int, last: int) -> None:
        memory = Memory() if scratch > KEPT else of_this_thread()
        kernel(first, last, at, memory.scratch(scratch), 0, 0, 0, 0)
        del memory  # in use until here, by its address

    threads.run(work, units, workers, (table, held))
