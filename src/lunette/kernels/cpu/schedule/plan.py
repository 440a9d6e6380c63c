"""What a call needs to know before it touches a cell: strides, window tables, tiles; made once and kept.

`records` says what stands in its table.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from lunette.kernels.cpu.schedule.slots import (
    AXES,
    BATCH,
    BATCH_RANK,
    BATCH_WIDTH,
    BESIDE,
    BETA,
    CHANNEL_STEP,
    CHANNELS,
    COUNT,
    COUNT_PADDING,
    COUNTS,
    DIVISOR,
    DIVISORS,
    EXTENT,
    FOLDED_LEFT,
    FOLDED_ROW,
    FOLDED_TILE,
    FOLDED_TILES,
    ITEMS,
    LEFT,
    LIST,
    LISTS,
    MEMBERS,
    OUT_OF_CACHE,
    OUTPUT_ROWS,
    PADDED,
    RANK,
    READ_BY,
    RESULT,
    ROW,
    ROW_BYTES,
    ROW_SIZE,
    SECOND,
    SLABS,
    SLABS_AT,
    SPREAD_END,
    SPREAD_LEFT,
    SPREAD_ROW,
    SPREAD_SECOND,
    STAGE,
    START,
    STEP,
    STOP,
    TABLE,
    THIRD,
    TILE,
    TILES,
    WINDOW_WIDTH,
    WINDOWS,
    entry_of,
    lie_of,
)
from lunette.kernels.cpu.schedule.windows import (
    affine,
    as_real,
    reader_table,
    window_table,
)
from lunette.kernels.cpu.tuning import (
    CELLS_NEAR,
    DIRECT_SUM_MAX_TAPS,
    FOLDED_OUTPUTS,
    LINE,
    MIN_TILES,
    ROW_CELLS,
    SERIAL_MAX_CELLS,
    SLAB_CELLS,
    SLACK,
    SMALL,
    SPREAD_CELLS,
    SPREAD_CHANNELS,
    TILE_CELLS,
)
from lunette.ops.pooling import Pooling
from lunette.reductions import Mean, SmoothMax
from lunette.regions import Region

__all__ = ["Plan", "channel_axis", "fold", "in_a_row", "memory_order"]

Shape = tuple[int, ...]
Strides = tuple[int, ...]


class Plan:
    """The table of one op on one shape, dtype and layout, and the sizes that go with it.

    `tile_edges` and `slab_edges` are where tiles of outputs and slabs of inputs begin in an item's
    results, and the end. `prepared` is the cells of scratch memory that a kernel may fill at each call.
    """

    def __init__(
        self,
        op: Pooling,
        shape: Shape,
        strides: tuple[Strides, Strides, Strides],
        lane: int = -1,
        with_readers: bool = False,
        by_columns: bool = False,
    ) -> None:
        rank = op.rank
        first = len(shape) - rank
        pooled = shape[first:]
        outputs = [r.out_length(n) for r, n in zip(op.regions, pooled, strict=True)]
        windows = [
            window_table(r, n, m) for r, n, m in zip(op.regions, pooled, outputs, strict=True)
        ]
        batch = [axis for axis in range(first) if axis != lane]
        axes = fold([(shape[a], *(s[a] for s in strides)) for a in batch])
        header = np.zeros(WINDOWS, np.int64)
        header[BATCH_RANK], header[RANK] = len(axes), rank
        for i, entry in enumerate(axes):
            header[BATCH + i * BATCH_WIDTH :][: len(entry)] = entry
        place = WINDOWS
        for i, region in enumerate(op.regions):
            steps = (s[first + i] for s in strides)
            flat = prod(pooled[i + 1 :])
            entry = (pooled[i], outputs[i], *steps, flat, place, *affine(region, pooled[i]))
            entry_of(header, i)[: len(entry)] = entry
            place += WINDOW_WIDTH * outputs[i]
        readers: list[Any] = [None] * rank
        if with_readers:
            readers = [reader_table(w, n) for w, n in zip(windows, pooled, strict=True)]
        self.has_readers = all(r is not None for r in readers)
        kept_readers = readers if self.has_readers else []
        # What goes to the cells of a window along a row is written to neighbours.
        together = bool(((windows[-1][:, MEMBERS] <= 1) | (windows[-1][:, STEP] == 1)).all())
        alone = all((r[:, MEMBERS] <= 1).all() for r in kept_readers)
        self.disjoint = rank > 1 and lane < 0 and together and alone
        self.most_readers = prod(int(r[:, MEMBERS].max(initial=0)) for r in kept_readers)
        for i, table in enumerate(kept_readers):
            entry_of(header, i)[READ_BY] = place
            place += table.size
        owned = SLAB_CELLS
        if with_readers:
            owned = SPREAD_CHANNELS if lane >= 0 else SPREAD_CELLS
        slabs = _slabs(op.regions[0], pooled, owned // (max(1, shape[lane]) if lane >= 0 else 1))
        header[SLABS], header[SLABS_AT] = len(slabs), place
        header[OUTPUT_ROWS] = prod(outputs[:-1])
        header[CHANNELS] = shape[lane] if lane >= 0 else 0
        reduction = op.reduction
        if isinstance(reduction, (Mean, SmoothMax)):
            header[COUNT_PADDING] = reduction.count_include_pad
        if isinstance(reduction, Mean):
            header[DIVISOR : DIVISOR + 1].view(np.float64)[0] = as_real(reduction.divisor_override)
        if isinstance(reduction, SmoothMax):
            header[BETA : BETA + 1].view(np.float64)[0] = reduction.beta
        self.items = header[ITEMS] = prod(shape[axis] for axis in batch)
        wide = max(1, int(header[CHANNELS]))
        cells = [prod(lengths[1:]) * wide for lengths in (outputs, pooled)]
        self.slab_edges = np.append(slabs[:, 0], pooled[0]) * cells[1]
        self.output_rows = prod(outputs[:-1])
        self.slabs = len(slabs)
        reads = [w[:, MEMBERS] for w in windows]
        self.room = prod(int(r.max(initial=1)) for r in reads[:-1])
        self.slab_cells = int((slabs[:, 1] - slabs[:, 0]).max(initial=1)) * prod(pooled[1:])
        header[OUT_OF_CACHE] = prod(shape) > CELLS_NEAR
        # Rows are read once for each window along the leading axes that has them: disjoint windows read each once.
        visits = prod(int(r.sum()) / n for r, n in zip(reads[:-1], pooled, strict=False))
        self.cells_visited = int(prod(shape) * max(1.0, visits))
        self.empty = any(bool((r == 0).any()) for r in reads)
        self.longest = [int(r.max(initial=0)) for r in reads]
        self.has_winners = not self.empty and prod(pooled) < 1 << 31
        self.summing = by_columns
        self.tiled(header, pooled, outputs, windows[0], by_columns)
        self.tile_edges = _edges(outputs[0], int(header[TILE]), cells[0])
        # Rows that are folded where they lie need no scratch memory for each: a tile may have many.
        tile = min(outputs[0], max(int(header[TILE]), FOLDED_OUTPUTS // max(1, cells[0])))
        if self.cells_visited > SMALL:
            tile = min(tile, max(1, -(-outputs[0] * self.items // MIN_TILES)))
        header[FOLDED_TILE], header[FOLDED_TILES] = tile, -(-outputs[0] // tile)
        self.folded_tiles = int(header[FOLDED_TILES])
        self.folded_edges = _edges(outputs[0], tile, cells[0])
        tables = [*windows, *kept_readers, slabs]
        self.table = np.concatenate([header, *(t.ravel() for t in tables)])
        # For the gradient of a mean: a slab's outputs spread over its positions, twice, and a row.
        longest = [max(n, m) for n, m in zip(pooled, outputs, strict=True)]
        most = int((slabs[:, 3] - slabs[:, 2]).max(initial=1))
        thick = int((slabs[:, 1] - slabs[:, 0]).max(initial=1))
        self.spread_area = max(most, thick) * prod(longest[1:]) * wide + SLACK
        _, origin, _, kernel = lie_of(header, rank - 1)
        pad = kernel + abs(origin) + SLACK
        self.spread_row = (longest[-1] + 2 * pad) * wide + SLACK
        header = self.table[:WINDOWS]
        header[SPREAD_SECOND], header[SPREAD_ROW] = self.spread_area, 2 * self.spread_area
        header[SPREAD_LEFT] = pad
        self.spread_cells = 2 * self.spread_area + self.spread_row
        header[SPREAD_END] = self.spread_cells
        header[CHANNEL_STEP] = strides[1][lane] if lane >= 0 else 0
        # For rows that are folded: one with its padding, and four lists.
        lead = -(-int(header[LEFT]) // SLACK) * SLACK
        padded = lead + int(header[ROW_SIZE]) + SLACK
        if lane >= 0:
            # With channels last, what a few outputs of a row read; they have no padding.
            stride, _, dilation, kernel = lie_of(header, rank - 1)
            reach = dilation * (kernel - 1) + 1
            beside = max(1, (SERIAL_MAX_CELLS // wide - reach) // max(1, stride) + 1)
            header[BESIDE], padded = beside, (stride * (beside - 1) + reach) * wide + SLACK
        header[FOLDED_LEFT], header[FOLDED_ROW] = lead, padded
        header[LISTS], header[LIST] = 8 * padded, self.room
        header[STAGE] = -(-(int(header[LISTS]) + 32 * self.room) // LINE) * LINE
        self.folded_bytes = int(header[STAGE]) + 8 * outputs[-1] + 4 * LINE
        order = memory_order(len(shape), lane) or range(len(shape))
        if in_a_row(tuple(shape[a] for a in order), tuple(strides[0][a] for a in order)):
            header[ROW_BYTES] = prod(pooled) * wide // max(1, self.output_rows)
        self.prepared = int(max(header[ROW_SIZE], self.spread_row))
        self.at: int = self.table.__array_interface__["data"][0]

    def divide_as(self, real: Any) -> None:
        """Make the divisors on the last axis, of each output and lane, for a mean computed in dtype `real`."""
        rank, wide = len(self.longest), max(1, int(self.table[CHANNELS]))
        outputs, table = entry_of(self.table, rank - 1)[[COUNT, TABLE]].tolist()
        windows = self.table[table:][: outputs * WINDOW_WIDTH].reshape(-1, WINDOW_WIDTH)
        counted = windows[:, MEMBERS].astype(np.float64)
        if self.table[COUNT_PADDING]:
            counted = windows[:, COUNTS].copy().view(np.float64)
        if self.table[DIVISOR]:
            counted = np.ones_like(counted)
        # Past the last, what a vector reads: to divide by anything could be slow.
        self.divisors = np.ones(outputs * wide + SLACK, real)
        self.divisors[: outputs * wide] = np.repeat(np.where(counted == 0, 1.0, counted), wide)
        self.table[DIVISORS] = self.divisors.__array_interface__["data"][0]

    def tiled(
        self, header: Any, pooled: Shape, outputs: list[int], windows: Any, by_columns: bool
    ) -> None:
        """Cut the outputs of the first pooled axis so that a tile's intermediate rows stay near.

        Scratch memory is two areas of intermediate rows, then one row with its padding. An area has
        what a tile reads; `by_columns`, what it makes, unless windows are summed by doubling.
        """
        m, wide = outputs[0], max(1, int(header[CHANNELS]))
        longest = [max(n, k) for n, k in zip(pooled, outputs, strict=True)]
        if not by_columns:  # the last axis is reduced before a row gets there
            longest[-1] = outputs[-1]
        line = prod(longest[1:]) * wide  # cells per position of the first axis
        stride, reach = max(1, pooled[0] // m), self.longest[0]
        room = TILE_CELLS // line if len(pooled) > 1 else ROW_CELLS
        tile = max(1, (room - reach) // stride, 2 * reach // stride)
        tile = min(m, tile, max(1, -(-m * max(1, self.items) // MIN_TILES)))
        header[TILE], header[TILES] = tile, -(-m // tile)
        self.tiles = int(header[TILES])
        hulls = [
            high - low
            for low, high in (
                _receptive_range(header, windows, i, min(m, i + tile)) for i in range(0, m, tile)
            )
        ]
        if by_columns and len(pooled) > 1 and not doubles(*lie_of(header, 0)):
            hulls = [1]
        area = max(tile, *hulls) * line + SLACK
        window_stride, origin, dilation, kernel = lie_of(header, len(pooled) - 1)
        left = max(0, -origin)
        reach = window_stride * (outputs[-1] + SLACK) + origin + dilation * kernel
        row = left + max(pooled[-1], reach) + SLACK
        if header[CHANNELS]:
            row = pooled[-1] * wide + SLACK
        header[SECOND], header[ROW], header[ROW_SIZE], header[LEFT] = area, 2 * area, row, left
        self.scratch_cells = 2 * area + row + SLACK
        # A mean has results of a row, a third area, and an axis with its padding.
        header[RESULT] = self.scratch_cells
        header[THIRD] = header[RESULT] + outputs[-1] * wide + SLACK
        header[PADDED] = header[THIRD] + area
        padded = 0
        spans = [prod(longest[i + 1 :]) * wide for i in range(len(pooled))]
        for i in range(len(pooled)):
            step, _, dilation, kernel = lie_of(header, i)
            if kernel > step:
                padded = max(padded, (step * outputs[i] + dilation * kernel) * spans[i])
        self.sum_cells = int(header[PADDED]) + padded + SLACK


def doubles(stride: int, _origin: int, _dilation: int, kernel: int) -> bool:
    """Whether windows of an axis are summed by doubling: they overlap, and are not short."""
    return kernel > max(DIRECT_SUM_MAX_TAPS, stride)


def _edges(m: int, tile: int, cells: int) -> Any:
    """Where tiles of `tile` positions of an axis of `m` begin and the last ends, `cells` to a position."""
    return np.minimum(np.arange(-(-m // tile) + 1) * tile, m) * cells


def in_a_row(shape: Shape, strides: Strides, size: int = 1) -> bool:
    """Whether the cells of an array lie in memory one after the other, each of `size` of what strides count."""
    for length, step in zip(reversed(shape), reversed(strides), strict=True):
        if length > 1 and step != size:
            return False
        size *= length
    return True


def _receptive_range(header: Any, windows: Any, first: int, last: int) -> tuple[int, int]:
    """What outputs first … last of the first pooled axis read, as kernels reckon it.

    Of windows that lie alike these are whole spans: a window with dilation may reach into padding
    with all but one of its cells.
    """
    n, (stride, origin, dilation, kernel) = int(header[AXES + EXTENT]), lie_of(header, 0)
    if kernel == 0:
        return int(windows[first:last, START].min()), int(windows[first:last, STOP].max())
    low = min(max(stride * first + origin, 0), n)
    return low, max(low, min(stride * (last - 1) + origin + dilation * (kernel - 1) + 1, n))


def _slabs(region: Region, pooled: Shape, cells: int) -> Any:
    """Cut the first pooled axis; of each slab, the outputs from its first to its last reader."""
    n = pooled[0]
    thick = min(n, max(1, cells // prod(pooled[1:])))
    slabs = []
    for low in range(0, n, thick):
        high = min(n, low + thick)
        readers = region.readers(n, low, high)
        span = (readers[0], readers[-1] + 1) if len(readers) else (0, 0)
        slabs.append((low, high, *span))
    return np.array(slabs, np.int64).reshape(-1, 4)


def fold(entries: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Batch axes with neighbours joined where every array steps through them as through one."""
    axes: list[tuple[int, ...]] = []
    for entry in entries:
        length, *steps = entry
        if length == 1:
            continue
        if axes and all(
            outer == step * length for outer, step in zip(axes[-1][1:], steps, strict=True)
        ):
            axes[-1] = (axes[-1][0] * length, *steps)
        else:
            axes.append(entry)
    return axes


FEWEST_CHANNELS = 4
"""Channels that are worth a vector: with fewer, elements of a row are gathered instead."""


def channel_axis(shape: Shape, strides: Strides, rank: int) -> int:
    """The batch axis whose cells lie side by side, where the last pooled axis's do not; or −1."""
    if shape[-1] == 1 or strides[-1] != 1:
        for axis in range(len(shape) - rank):
            if strides[axis] == 1 and shape[axis] >= FEWEST_CHANNELS:
                return axis
    return -1


def memory_order(ndim: int, lane: int) -> tuple[int, ...] | None:
    """The axes of a result from outermost to innermost in memory; None where that is as they come."""
    if lane < 0 or lane == ndim - 1:
        return None
    return (*(axis for axis in range(ndim) if axis != lane), lane)
