"""The memory that `pairs` works in, and the tiles of a call: sizes that follow from a plan."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from lunette.kernels.cpu.schedule.plan import Plan
from lunette.kernels.cpu.schedule.slots import (
    COUNT,
    EXTENT,
    MEMBERS,
    READ_BY,
    START,
    TABLE,
    WINDOW_WIDTH,
    entry_of,
)
from lunette.kernels.cpu.tuning import LINE

__all__ = [
    "FOUND",
    "LEVELS",
    "LONGEST",
    "MOST",
    "OTHER",
    "PLACES",
    "POSITIONS",
    "ROW",
    "RUNS",
    "SPARE",
    "TILE",
    "TILES",
    "LsePairScratch",
    "rows_of_tile",
]

LEVELS = 9
LONGEST, POSITIONS = 1 << LEVELS, 1024
"""Lengths of runs that are made for all positions at once, of windows of so many cells at most, and positions at a time."""

SPACE = 1 << 14
"""Pairs of a tile after the last axis, about."""

MOST = 1 << 16
"""Pairs that one row of windows reads after the last axis, at most: 8 MB of float32."""

ENOUGH = 16
"""Units of a call, at least, where there are so many tiles."""

TILE, TILES, ROW, RUNS, FOUND, OTHER, SPARE, PLACES = range(8)
"""Of the table: positions of a tile, and tiles of some items; where, in numbers, a line, its runs, two arrays of pairs and a vector
are; and where, in bytes, the places of items."""


def rows_of_tile(reach: int, across: int) -> int:
    """Positions of the first axis in a tile, at most, where windows reach over so many, and other axes have `across` cells.

    As many as there is space for; and more where windows are long, for a tile has to go through all that they read.
    """
    return max(1, SPACE // across - reach, min(2 * reach, MOST // across))


class LsePairScratch:
    """For a plan, `numbers` to each pair in vectors of `width`, and a gradient (`back`) or not.

    `table` is what the kernel reads, `bytes` its scratch memory, `units` how many there are.
    """

    def __init__(self, plan: Plan, numbers: int, width: int, back: bool) -> None:
        self.plan, rank = plan, len(plan.longest)
        entries = [entry_of(plan.table, axis) for axis in range(rank)]
        self.extents = [int(e[EXTENT]) for e in entries]
        self.counts = [int(e[COUNT]) for e in entries]
        self.windows = self._spans(int(entries[0][TABLE]), self.counts[0])
        if back:
            self.readers = self._spans(int(entries[0][READ_BY]), self.extents[0])
        blocks = -(-plan.items // width)
        tile = self._tile(blocks, back)
        length = self.extents[0] if back else self.counts[0]
        tiles = -(-length // tile)
        line, space = 0, 0
        for first in range(0, length, tile):
            here, pairs = self._needs(first, min(length, first + tile), back)
            line, space = max(line, here), max(space, pairs)
        each = numbers * width
        places = [0, line * each]
        places.append(places[-1] + LEVELS * POSITIONS * each)
        places += [places[-1] + space * each, places[-1] + 2 * space * each]
        size = LINE // width * (places[-1] + width)
        table = (tile, tiles, *places, size)
        self.table: Any = np.array(table, np.int64)
        self.bytes, self.units = size + 24 * LINE, blocks * tiles
        self.at: int = self.table.__array_interface__["data"][0]

    def _spans(self, at: int, count: int) -> Any:
        """First cell and end of each window of a table."""
        rows = self.plan.table[at:][: count * WINDOW_WIDTH].reshape(-1, WINDOW_WIDTH)
        return np.stack([rows[:, START], rows[:, START] + rows[:, MEMBERS]], 1)

    def _tile(self, blocks: int, back: bool) -> int:
        """Positions of a tile: as many as there is space for, fewer where there are few items."""
        length = self.extents[0] if back else self.counts[0]
        to_position = prod(
            max(a, b) for a, b in zip(self.extents[1:], self.counts[1:], strict=True)
        )
        reach = int((self.windows[:, 1] - self.windows[:, 0]).max())
        most = rows_of_tile(reach, to_position)
        return max(1, min(length, most, max(reach // 4, -(-length * blocks // ENOUGH))))

    def _needs(self, begin: int, end: int, back: bool) -> tuple[int, int]:
        """Cells of the longest line of a tile, and pairs of its largest array."""
        low, high = begin, end
        if back:
            some = self.readers[begin:end]
            some = some[some[:, 1] > some[:, 0]]
            if not len(some):  # zeros all the same
                return 1, (high - low) * prod(self.extents[1:])
            begin, end = int(some[:, 0].min()), int(some[:, 1].max())
        reads = self.windows[begin:end]
        rows, outputs = int(reads[:, 1].max() - reads[:, 0].min()), end - begin
        extents, counts = self.extents[1:], self.counts[1:]
        line = max(rows, outputs, high - low, *extents, *counts)
        pairs = [outputs * prod(counts)]
        if back:
            pairs.append((high - low) * prod(extents))
        # Axes are folded from the last to the first, of a gradient there and back.
        for axis in range(len(extents)):
            pairs.append(rows * prod(extents[:axis]) * prod(counts[axis:]))
            if back:
                pairs.append(outputs * prod(counts[:axis]) * prod(extents[axis:]))
        return line, max(pairs)
