"""How a call is cut into tiles that fit the nearest cache, for windows that lie alike along a row.

A tile is a few neighbouring outputs of the last two pooled axes (or inputs, for a gradient) at one
place of the axes before them, so the memory it needs is a few rows whatever the rank. Its table is
an array of int64 with the axes, batch and windows of `plan`, and a header of its own.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from lunette.kernels.cpu.plan import (
    AXES,
    AXIS_WIDTH,
    BATCH,
    BATCH_RANK,
    BATCH_WIDTH,
    BETA,
    COUNT_PADDING,
    DIVISOR,
    RANK,
    WINDOW_WIDTH,
    WINDOWS,
    as_real,
    fold,
    regular,
    window_table,
)
from lunette.ops.pooling import Pooling
from lunette.reductions import Mean, SmoothMax

__all__ = ["Tiling", "lies_alike"]

Shape = tuple[int, ...]
Strides = tuple[int, ...]

# The header, past the entries that every plan has.
COLUMNS, COLUMN_TILES, ROWS, ROW_TILES, LEADS, SLOT, LENGTH, PHASES = range(6, 14)
DEPTH, MOST, TAPS, LISTS, COUNTS, SECOND, ITEM_OUTPUTS, FIRST_BLOCK, REACH, START = range(14, 24)
"""Outputs of a tile on the last axis and how many such tiles; the same on the axis before; places
of the axes before that; scratch cells of a row and of one of its phases; phases; rows of a tile;
cells of a window on the leading axes, at most; where the taps' offsets are; and where in scratch
memory, in bytes, the lists, the divisors and a second set of rows begin."""

NEAR = 24 << 10
"""Bytes of scratch memory that a tile should not exceed: half of a usual first-level cache."""

LONGEST = 1024
"""Outputs of a tile along the last axis, at most."""

ENOUGH = 16
"""Tiles of a large call, at least, so that threads have something to share."""


def lies_alike(op: Pooling, shape: Shape) -> bool:
    """Whether the windows of the last axis are one window moved by a stride."""
    return regular(op.regions[-1], shape[-1])[3] > 0


class Tiling:
    """The table of one op on one shape and layout, cut for values or, `backward`, for gradients."""

    def __init__(
        self,
        op: Pooling,
        shape: Shape,
        strides: tuple[Strides, Strides, Strides],
        size: int,
        backward: bool = False,
        folded: bool = False,
    ) -> None:
        rank, first = op.rank, len(shape) - op.rank
        pooled = shape[first:]
        outputs = [r.out_length(n) for r, n in zip(op.regions, pooled, strict=True)]
        windows = [window_table(r, n, m) for r, n, m in zip(op.regions, pooled, outputs, strict=True)]
        axes = fold([(shape[a], *(s[a] for s in strides)) for a in range(first)])
        g = np.zeros(WINDOWS, np.int64)
        g[BATCH_RANK], g[RANK] = len(axes), rank
        for i, entry in enumerate(axes):
            g[BATCH + i * BATCH_WIDTH :][: len(entry)] = entry
        tables, place = [], WINDOWS
        for i, region in enumerate(op.regions):
            steps = (s[first + i] for s in strides)
            flat = prod(pooled[i + 1 :])
            entry = (pooled[i], outputs[i], *steps, place, flat, *regular(region, pooled[i]))
            g[AXES + i * AXIS_WIDTH :][: len(entry)] = entry
            tables.append(windows[i].ravel())
            place += windows[i].size
            if backward and i < rank - 1:
                g[AXES + i * AXIS_WIDTH + 11] = place
                tables.append(_readers(windows[i], pooled[i]).ravel())
                place += tables[-1].size
        reduction = op.reduction
        if isinstance(reduction, (Mean, SmoothMax)):
            g[COUNT_PADDING] = reduction.count_include_pad
        if isinstance(reduction, Mean):
            g[DIVISOR : DIVISOR + 1].view(np.float64)[0] = as_real(reduction.divisor_override)
        if isinstance(reduction, SmoothMax):
            g[BETA : BETA + 1].view(np.float64)[0] = reduction.beta
        self.items = prod(shape[:first])
        self.shape, self.outputs = pooled, outputs
        self.longest = [int(w[:, 4].max(initial=0)) for w in windows]
        self.empty = any(bool((w[:, 4] == 0).any()) for w in windows)
        stride, origin, dilation, kernel = (int(v) for v in g[AXES + (rank - 1) * AXIS_WIDTH :][7:11])
        # A row is laid out from a multiple of the stride, so that blocks begin with the row itself.
        shift = origin % stride if not backward else 0
        g[START] = origin - shift
        taps = [shift + t * dilation for t in range(kernel)]
        g[TAPS] = place
        g[PHASES] = phases = min(stride, taps[-1] + 1)
        g[ITEM_OUTPUTS] = prod(outputs)
        width = 64 // size
        g[REACH] = reach = taps[-1] // stride
        if backward:
            g[FIRST_BLOCK] = -origin // stride  # the block of position 0
            columns = (pooled[-1] - 1 - origin) // stride - int(g[FIRST_BLOCK]) + 1
            leads = pooled[: rank - 2]
            most = prod(_most_readers(w) for w in windows[: rank - 2]) if rank > 2 else 1
        else:
            columns, leads = outputs[-1], tuple(outputs[: rank - 2])
            most = prod(self.longest[: rank - 2]) if rank > 2 else 1
        tiles = -(-columns // LONGEST)
        g[COLUMNS] = -(-columns // tiles)
        g[COLUMN_TILES] = -(-columns // int(g[COLUMNS]))
        g[LENGTH] = -(-(int(g[COLUMNS]) + reach) // width) * width
        if folded:  # rows of results, not of cells
            g[LENGTH] = -(-int(g[COLUMNS]) // width) * width + width
        g[SLOT] = int(g[LENGTH]) * (1 if backward or folded else phases)
        g[LEADS], g[MOST] = prod(leads), most
        if rank > 1:
            self._rows(g, windows[rank - 2], most, size, backward)
        else:
            g[ROWS] = g[ROW_TILES] = g[DEPTH] = 1
        # Where each tap of a window is, from the place of its first: its phase, then its block.
        offsets = [(u % stride) * int(g[LENGTH]) + u // stride for u in taps]
        tables.append(np.array(offsets, np.int64))
        g[COUNTS] = place + kernel
        tables.append(self._counts(g, windows[-1], size))
        self.table = np.concatenate([g, *tables])
        self.units = self.items * int(g[LEADS] * g[ROW_TILES] * g[COLUMN_TILES])
        self.cells, self.size = prod(self.longest[:-1]) * kernel, kernel
        h = self.table[:WINDOWS]
        h[LISTS] = -(-8 * (4 * most + 2 * self.cells) // 64) * 64
        h[SECOND] = most * int(g[DEPTH] * g[SLOT])
        self.scratch = int(h[LISTS]) + 2 * int(h[SECOND]) * size + 16 * 64
        self.at: int = self.table.__array_interface__["data"][0]

    def _counts(self, g: Any, windows: Any, size: int) -> Any:
        """What each window counts along the last axis, in the arithmetic's type; then a vector more."""
        counted = windows[:, 3].view(np.float64) if g[COUNT_PADDING] else windows[:, 4]
        if g[DIVISOR]:
            counted = np.ones(len(windows))
        padded = np.ones(-(-len(counted) // 8) * 8 + 64)
        padded[: len(counted)] = counted
        return padded.astype(np.float32 if size == 4 else np.float64).view(np.int64)

    def _rows(self, g: Any, windows: Any, most: int, size: int, backward: bool) -> None:
        """Cut the axis before the last so that the rows a tile reads fit."""
        axis = AXES + (int(g[RANK]) - 2) * AXIS_WIDTH
        n, m = int(g[axis]), int(g[axis + 1])
        room = NEAR // (int(g[SLOT]) * size * most * (2 if backward else 1))
        count = n if backward else m
        stride = max(1, n // m)
        reach = _most_readers(windows) if backward else int(windows[:, 4].max(initial=1))
        rows = (room - reach) * stride if backward else (room - reach) // stride
        rows = min(count, max(1, rows), max(1, -(-count * self.items * int(g[LEADS]) // ENOUGH)))
        g[ROWS], g[ROW_TILES] = rows, -(-count // rows)
        if backward:
            readers = _readers(windows, n)
            depth = max(
                int(readers[min(n, i + rows) - 1, 1] - readers[i, 0]) for i in range(0, n, rows)
            )
        else:
            depth = max(
                int(windows[i : i + rows, 1].max() - windows[i : i + rows, 0].min())
                for i in range(0, m, rows)
            )
        g[DEPTH] = max(1, depth)


def _readers(windows: Any, n: int) -> Any:
    """The first reader of each position and the one past the last, for windows in order."""
    positions = np.arange(n)
    readers = np.empty((n, 2), np.int64)
    readers[:, 0] = np.searchsorted(windows[:, 1], positions, "right")
    readers[:, 1] = np.searchsorted(windows[:, 0], positions, "right")
    readers[:, 1] = np.maximum(readers[:, 0], readers[:, 1])
    return readers


def _most_readers(windows: Any) -> int:
    """Outputs between the first and the last reader of one position, at most."""
    n = int(windows[:, 1].max(initial=1))
    readers = _readers(windows, n)
    return max(1, int((readers[:, 1] - readers[:, 0]).max(initial=1)))
