"""The plan of a max with channels last whose winners are marked: who reads each position, and with which tap."""

from __future__ import annotations

from math import prod

import numpy as np

from lunette.kernels.cpu.layout import (
    BOX,
    COUNT,
    EXTENT,
    KERNEL,
    LIST,
    LISTS,
    READ_BY,
    TABLE,
    WINDOW_WIDTH,
    entry_of,
    lie_of,
)
from lunette.kernels.cpu.plan import Plan
from lunette.kernels.cpu.tiling import reading_spans, reading_taps
from lunette.ops.pooling import Pooling

__all__ = ["LanePlan"]

Shape = tuple[int, ...]


class LanePlan(Plan):
    """A plan whose table has the readers of each axis, too. `cells` is the taps of a window's box."""

    def __init__(
        self, op: Pooling, shape: Shape, strides: tuple[Shape, Shape, Shape], lane: int
    ) -> None:
        super().__init__(op, shape, strides, lane)
        tables, place, readers, self.cells = [self.table], len(self.table), 1, 1
        for axis, longest in enumerate(self.longest):
            entry = entry_of(self.table, axis)
            n, m, at = entry[[EXTENT, COUNT, TABLE]].tolist()
            windows = self.table[at:][: m * WINDOW_WIDTH].reshape(m, WINDOW_WIDTH)
            spans = reading_spans(self.table, axis, windows)
            taps = reading_taps(windows, spans, lie_of(self.table, axis)[2], n, place)
            entry[READ_BY], entry[BOX] = place, entry[KERNEL] or longest
            self.cells *= int(entry[BOX])
            readers *= int(np.diff(taps[: n + 1]).max(initial=2)) // 2
            tables.append(taps)
            place += len(taps)
        # Of each row that a window reads four numbers, or of each row of readers three.
        self.table[LISTS], self.table[LIST] = 0, max(self.room, readers)
        self.listed = 40 * int(self.table[LIST])
        # The kernel that gathers is told how many rows of inputs there are.
        self.room = self.input_rows = prod(shape[len(shape) - op.rank : -1])
        self.table = np.concatenate(tables)
        self.at = self.table.__array_interface__["data"][0]
