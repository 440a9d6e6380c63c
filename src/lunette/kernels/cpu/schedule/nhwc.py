"""The plan of a max or smooth max with channels last: who reads each position, and with which tap."""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from lunette.kernels.cpu.schedule.plan import Plan, channel_axis
from lunette.kernels.cpu.schedule.slots import (
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
from lunette.kernels.cpu.schedule.tiling import reading_spans, reading_taps
from lunette.kernels.cpu.schedule.windows import reach_of_window
from lunette.kernels.cpu.tuning import ARGMAX_DIRECT_MAX_TAPS
from lunette.ops.base import is_float
from lunette.ops.pooling import Pooling
from lunette.reductions import Max, SmoothMax

__all__ = ["NhwcPlan", "cheap_argmax", "nhwc_plan"]

Shape = tuple[int, ...]


LOOKS = 32
"""How often a cell is looked at, at most, where its windows have to be searched one cell after the other."""

FEWEST_CHANNELS = 16
"""Channels that fill a vector of any dtype that goes by vectors of channels."""


@lru_cache(maxsize=1024)
def nhwc_plan(
    op: Pooling, shape: Shape, strides: Shape, other: Shape, dtype: Any, often: bool = False
) -> tuple[NhwcPlan, int] | None:
    """The plan of a max or smooth max by vectors of channels, and their axis; None where they are not served so.

    Windows of a smooth max are small then, and those of a max hold no cell often, unless they may.
    `other` has the strides of the gradient or of the tangent, whose channels have to lie side by side too.
    """
    smooth = isinstance(op.reduction, SmoothMax)
    if not (smooth or isinstance(op.reduction, Max)):
        return None
    if dtype.itemsize < (2 if is_float(dtype) else 4) or (smooth and not is_float(dtype)):
        return None
    steps, others = (tuple(s // dtype.itemsize for s in array) for array in (strides, other))
    lane = channel_axis(shape, steps, op.rank)
    if lane < 0 or shape[lane] < FEWEST_CHANNELS or others[lane] != 1 or 0 in shape:
        return None
    if smooth and reach_of_window(op, shape) > ARGMAX_DIRECT_MAX_TAPS:
        return None
    if not (smooth or often or cheap_argmax(op, shape)):
        return None
    plan = NhwcPlan(op, shape, (steps, others, others), lane)
    return (plan, lane) if plan.has_winners else None


def cheap_argmax(op: Pooling, shape: Shape) -> bool:
    """Whether windows of a max hold no cell so often that one axis after the other is quicker, channels first."""
    pooled = shape[len(shape) - op.rank :]
    outputs = prod(r.out_length(n) for r, n in zip(op.regions, pooled, strict=True))
    return reach_of_window(op, shape) * outputs <= LOOKS * prod(pooled)


class NhwcPlan(Plan):
    """A plan whose table has the readers of each axis, too. `cells` is the taps of a window's box."""

    def __init__(
        self, op: Pooling, shape: Shape, strides: tuple[Shape, Shape, Shape], lane: int
    ) -> None:
        super().__init__(op, shape, strides, lane)
        self.batch, self.lane = shape[: len(shape) - op.rank], lane
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
        self.slab_cells *= shape[lane]
        # The kernel that gathers is told how many rows of inputs there are.
        self.room = self.input_rows = prod(shape[len(shape) - op.rank : -1])
        self.table = np.concatenate(tables)
        self.at = self.table.__array_interface__["data"][0]

    def each_channel(self, items: Any) -> Any:
        """The numbers of the channels of some items in a plan where each channel is an item of its own."""
        numbers = np.moveaxis(np.arange(prod(self.batch)).reshape(self.batch), self.lane, -1)
        return np.sort(numbers.reshape(-1, self.batch[self.lane])[items], axis=None)
