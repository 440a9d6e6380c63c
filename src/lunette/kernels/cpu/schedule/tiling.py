"""How a call is cut into tiles that fit the nearest cache, for windows that lie alike along a row.

A tile is a few neighbouring outputs of the last two pooled axes (or inputs, for a gradient) at one
place of the axes before them, so the memory it needs is a few rows whatever the rank. Its table is
an array of int64 with the axes, batch and windows of `plan`, and a header of its own.

With stride s, position p of a row is cell p mod s of block p // s. A window of output c has tap t at
s·c + origin + t·dilation = s·(c + o) + u, where o is `BLOCK` and u is the tap's *place*.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from lunette.kernels.cpu.schedule.plan import fold, in_a_row
from lunette.kernels.cpu.schedule.records import TILING
from lunette.kernels.cpu.schedule.slots import (
    BATCH,
    BATCH_RANK,
    BATCH_WIDTH,
    BETA,
    BOX,
    COUNT,
    COUNT_PADDING,
    COUNTS,
    EXTENT,
    MEMBERS,
    RANK,
    READ_BY,
    START,
    STEP,
    STOP,
    WINDOWS,
    entry_of,
    lie_of,
)
from lunette.kernels.cpu.schedule.staging import LARGE
from lunette.kernels.cpu.schedule.windows import affine, window_table
from lunette.kernels.cpu.tuning import SMALL
from lunette.ops.pooling import Pooling
from lunette.reductions import SmoothMax

__all__ = ["MOST_CELLS", "Tiling", "is_affine", "reading_spans", "reading_taps"]

Shape = tuple[int, ...]
Strides = tuple[int, ...]

# The head, past the entries that every plan has.
ALL_OUTPUTS, READERS = map(TILING.place, ("all_outputs", "max_readers"))
COLUMNS, COLUMN_TILES, ROWS, ROW_TILES = map(
    TILING.place, ("columns", "column_tiles", "rows", "row_tiles")
)
LEADS, SLOT, LENGTH, PHASES = map(TILING.place, ("leads", "row_stride", "phase_stride", "phases"))
DEPTH, MOST, TAPS, COUNTED = map(TILING.place, ("tile_rows", "max_leads", "taps_at", "counted_at"))
CELLS, FIRSTS, OUTPUTS, BLOCK = map(TILING.place, ("cells_at", "first_taps_at", "outputs", "block"))
REACH, AREA, HULLS, STREAM = map(TILING.place, ("reach", "area", "hulls_at", "stream"))
ROW_BYTES, ROW_KINDS, STARTS, LONE = map(
    TILING.place, ("row_bytes", "row_kinds_at", "starts_at", "lone")
)

SPARE = 128
"""Cells of scratch memory after each area: a vector may reach past what is used."""

NEAR = 24 << 10
"""Bytes of rows that a tile should not exceed: half of a usual first-level cache."""

LONGEST = 2048
"""Cells of a row that a tile takes, about."""

ENOUGH = 16
"""Tiles of a large call, at least, so that threads have something to share."""

TURN = 4
"""Rows of outputs that are made at once, where rows of inputs are taken in turn."""

KINDS = 8
"""Kinds of rows whose lists of readers are kept."""

MOST_CELLS = 255
"""Cells of a window that a mark of one byte can tell apart."""


def is_affine(op: Pooling, shape: Shape) -> bool:
    """Whether the windows of the last axis are one window moved by a stride."""
    return affine(op.regions[-1], shape[-1])[3] > 0


class Tiling:
    """The table of one op on one shape and layout, cut for values or, `backward`, for gradients.

    `size` is the bytes of a number of the arithmetic. `areas` is how many sets of rows a tile has, `spare`
    how many more it may need. Rows of inputs may be taken `in_turn`: a tile then has as many as a window
    and its next neighbours reach over, the power of two above that, and each takes the place of an earlier one.
    """

    def __init__(
        self,
        op: Pooling,
        shape: Shape,
        strides: tuple[Strides, Strides, Strides],
        size: int,
        *,
        backward: bool = False,
        areas: int = 2,
        spare: int = 0,
        in_turn: bool = False,
    ) -> None:
        rank, first = op.rank, len(shape) - op.rank
        pooled = shape[first:]
        outputs = [r.out_length(n) for r, n in zip(op.regions, pooled, strict=True)]
        windows = [
            window_table(r, n, m) for r, n, m in zip(op.regions, pooled, outputs, strict=True)
        ]
        g = np.zeros(WINDOWS, np.int64)
        self.items, self.size = prod(shape[:first]), size
        self.all_outputs = self.items * prod(outputs)
        self.longest = [int(w[:, MEMBERS].max(initial=0)) for w in windows]
        self.empty = any(bool((w[:, MEMBERS] == 0).any()) for w in windows)
        if self.empty:  # nothing to tile: no kernel here serves such windows
            return
        self.tables: list[Any] = []
        self.place = WINDOWS
        _batch(g, fold([(shape[a], *(s[a] for s in strides)) for a in range(first)]))
        g[STREAM] = prod(shape) * size >= LARGE
        g[RANK], g[OUTPUTS], g[ALL_OUTPUTS] = rank, prod(outputs), self.items * prod(outputs)
        for i, region in enumerate(op.regions):
            steps = (s[first + i] for s in strides)
            flat = prod(pooled[i + 1 :])
            at = self._keep(windows[i])
            alike = affine(region, pooled[i])
            entry = (pooled[i], outputs[i], *steps, flat, at, *alike)
            entry_of(g, i)[: len(entry)] = entry
            entry_of(g, i)[BOX] = alike[3] or self.longest[i]
        spans = [reading_spans(g, i, w) for i, w in enumerate(windows)]
        if backward:
            for i in range(rank - 2):
                entry_of(g, i)[READ_BY] = self._keep(_readers(spans[i], pooled[i]))
            if rank > 1:
                at = self.place
                dilation = lie_of(g, rank - 2)[2]
                lists = reading_taps(windows[-2], spans[-2], dilation, pooled[-2], at)
                entry_of(g, rank - 2)[READ_BY] = self._keep(lists)
                g[ROW_KINDS] = self._keep(_kinds(g, rank - 2, lists, at))
        made, taken = (pooled, outputs) if backward else (outputs, pooled)
        if in_a_row((*shape[:first], *taken), strides[int(backward)]):
            g[ROW_BYTES] = prod(taken) // prod(made[:-1])
        _scalars(g, op)
        stride, origin, dilation, kernel = alike
        self.cells = prod(int(entry_of(g, i)[BOX]) for i in range(rank))
        # A mark beside a value costs as much as another cell.
        self.cells_visited = 2 * self.all_outputs * self.cells
        self.small = self.cells_visited <= SMALL
        g[BLOCK] = origin // stride
        places = [origin % stride + t * dilation for t in range(kernel)]
        g[PHASES] = stride if backward else min(stride, places[-1] + 1)
        g[REACH] = places[-1] // stride
        width = 64 // size
        self._columns(g, -(-pooled[-1] // stride) if backward else outputs[-1], width, backward)
        if not backward:  # a row as it is: up to a vector ahead of it, and one of the next outputs
            g[SLOT] = max(int(g[SLOT]), stride * int(g[LENGTH]) + 2 * width)
            g[SLOT] = -(-int(g[SLOT]) // width) * width
        g[TAPS] = self._keep(_by_phase(places, stride) if backward else _taps(g, places, stride))
        padded = g[COUNT_PADDING]
        counted = [w[:, COUNTS].view(np.float64) if padded else w[:, MEMBERS] for w in windows]
        g[COUNTED], g[CELLS] = self._row(counted[-1]), self._row(windows[-1][:, MEMBERS])
        g[LONE] = all(int(cells.min()) == 1 for cells in counted)
        skipped = (windows[-1][:, START] - origin - stride * np.arange(outputs[-1])) // dilation
        g[FIRSTS] = self._keep(_padded(skipped.clip(0, 255).astype(np.uint8), 128).view(np.int64))
        leads = pooled[: rank - 2] if backward else outputs[: rank - 2]
        per_axis = [_most_readers(w, n) for w, n in zip(spans, pooled, strict=True)]
        self.readers = per_axis
        g[LEADS] = prod(leads) if rank > 2 else 1
        g[MOST] = prod((per_axis if backward else self.longest)[: rank - 2]) if rank > 2 else 1
        g[ROWS] = g[ROW_TILES] = g[DEPTH] = 1
        if rank > 1:
            self._rows(g, windows[rank - 2], spans[rank - 2], areas, backward, in_turn)
        if in_turn:
            self._turns(g, windows[rank - 2] if rank > 1 else np.array([[0, 1]]))
        # On the leading axes; then of each cell three numbers, or of each reader two, and
        # of each cell that one reads two more; or, of each kind of rows, three for each of these and where
        # those of each phase end.
        g[READERS] = int(g[MOST]) * (per_axis[-2] if rank > 1 else 1)
        lists = 3 * self.cells
        if backward:
            lists = 2 * int(g[READERS]) * (1 + kernel)
            lists += KINDS * (3 * int(g[READERS]) * kernel + stride + 2)
        g[AREA] = -(-8 * (4 * int(g[MOST]) + lists + 8) // 64) * 64
        self.area = int(g[MOST] * g[DEPTH] * g[SLOT]) + SPARE
        self.units = self.items * int(g[LEADS] * g[ROW_TILES] * g[COLUMN_TILES])
        # Two rows of the input by phase, or two rows of sums for each row of outputs of a turn, and three more.
        rows = max(2 * int(g[PHASES] + 1) * int(g[LENGTH]), (2 * TURN + 3) * int(g[SLOT]))
        cells = (areas + spare) * self.area + rows + SPARE
        self.scratch = int(g[AREA]) + cells * size
        self.table = np.concatenate([g, *self.tables])
        self.at: int = self.table.__array_interface__["data"][0]

    def _keep(self, table: Any) -> int:
        """Where a table goes, after those kept before."""
        at = self.place
        self.tables.append(np.asarray(table, np.int64).ravel())
        self.place += self.tables[-1].size
        return at

    def _row(self, values: Any) -> int:
        """Keep a number for each output of the last axis, in the arithmetic's type."""
        work = np.float32 if self.size == 4 else np.float64
        return self._keep(_padded(np.asarray(values, work), 64).view(np.int64))

    def _columns(self, g: Any, columns: int, width: int, backward: bool) -> None:
        """Cut the last axis, where it is long."""
        stride = lie_of(g, int(g[RANK]) - 1)[0]
        tiles = min(-(-columns * stride // LONGEST), -(-columns // width))
        g[COLUMNS] = -(-columns // tiles)
        if tiles > 1:
            g[COLUMNS] = -(-int(g[COLUMNS]) // width) * width
        g[COLUMN_TILES] = -(-columns // int(g[COLUMNS]))
        # Four vectors of inputs go together, and may go past the last column.
        together = 4 * width if backward else width
        whole = -(-int(g[COLUMNS]) // together) * together
        g[LENGTH] = -(-(whole + int(g[REACH])) // width) * width
        g[SLOT] = int(g[LENGTH]) * (1 if backward else int(g[PHASES]))

    def _rows(
        self, g: Any, windows: Any, spans: Any, areas: int, backward: bool, in_turn: bool
    ) -> None:
        """Cut the axis before the last so that the rows a tile reads fit, if it has all of them at once."""
        n, m = entry_of(g, int(g[RANK]) - 2)[[EXTENT, COUNT]].tolist()
        room = NEAR // (int(g[SLOT]) * self.size * int(g[MOST]) * areas)
        count, stride = n if backward else m, max(1, n // m)
        if in_turn:
            rows = count
        elif backward:
            rows = (room - _most_readers(spans, n)) * stride
        else:
            rows = (room - int(windows[:, MEMBERS].max(initial=1))) // stride
        rows = min(count, max(1, rows))
        if not self.small:
            rows = min(rows, max(1, -(-count * self.items * int(g[LEADS]) // ENOUGH)))
        g[ROWS], g[ROW_TILES] = rows, -(-count // rows)
        receptive_range = _readers(spans, n) if backward else windows
        cuts = range(0, count, rows)
        hulls = [
            (receptive_range[i : i + rows, 0].min(), receptive_range[i : i + rows, 1].max())
            for i in cuts
        ]
        g[HULLS] = self._keep(hulls)
        g[DEPTH] = max(1, *(int(high - low) for low, high in hulls))

    def _turns(self, g: Any, windows: Any) -> None:
        """Where the rows of each output begin, and how many have to be there at once for one turn."""
        starts = np.minimum.accumulate(windows[::-1, START])[::-1]
        stops = np.maximum.accumulate(windows[:, STOP])
        ends = np.minimum(np.arange(len(stops)) + TURN, len(stops)) - 1
        most = int((stops[ends] - starts).max())
        g[STARTS], g[DEPTH] = self._keep(starts), 1 << (most - 1).bit_length()


def _batch(g: Any, axes: list[tuple[int, ...]]) -> None:
    g[BATCH_RANK] = len(axes)
    for i, entry in enumerate(axes):
        g[BATCH + i * BATCH_WIDTH :][: len(entry)] = entry


def _scalars(g: Any, op: Pooling) -> None:
    """What the reduction itself says."""
    reduction = op.reduction
    if isinstance(reduction, SmoothMax):
        g[COUNT_PADDING] = reduction.count_include_pad
        g[BETA : BETA + 1].view(np.float64)[0] = reduction.beta


def _taps(g: Any, places: list[int], stride: int) -> list[int]:
    """Where each tap is in a row laid out by phase, from the place of its output."""
    return [(u % stride) * int(g[LENGTH]) + u // stride for u in places]


def _by_phase(places: list[int], stride: int) -> list[int]:
    """For each phase the taps on it, the last first: where they begin, then their tap and block.

    The last tap of a window is on the cell that later outputs reach with earlier taps, so this is
    the order of outputs.
    """
    taps = [
        [t for t in reversed(range(len(places))) if places[t] % stride == f] for f in range(stride)
    ]
    begins = np.cumsum([0, *map(len, taps)]).tolist()
    pairs = [v for phase in taps for t in phase for v in (t, places[t] // stride)]
    return [*begins, *pairs]


def _padded(values: Any, more: int) -> Any:
    """An array with `more` elements at its end, and a multiple of 8."""
    padded = np.ones(-(-len(values) // 8) * 8 + more, values.dtype)
    padded[: len(values)] = values
    return padded


def reading_spans(g: Any, axis: int, windows: Any) -> Any:
    """The first position that each window may read and the one past the last, in order of outputs.

    Dilation and padding together can put the first cell of a later window before that of an
    earlier one; the windows of a regular axis are in order before they are clipped.
    """
    stride, origin, dilation, kernel = lie_of(g, axis)
    if kernel == 0:
        return windows[:, :2]
    starts = origin + stride * np.arange(len(windows))
    return np.stack([starts, starts + dilation * (kernel - 1) + 1], axis=1)


def _readers(spans: Any, n: int) -> Any:
    """The first output that may read each position, and the one past the last."""
    positions = np.arange(n)
    readers = np.empty((n, 2), np.int64)
    readers[:, 0] = np.searchsorted(spans[:, 1], positions, "right")
    readers[:, 1] = np.searchsorted(spans[:, 0], positions, "right")
    readers[:, 1] = np.maximum(readers[:, 0], readers[:, 1])
    return readers


def reading_taps(windows: Any, spans: Any, dilation: int, n: int, place: int) -> Any:
    """For each position the outputs that read it, in order, and which tap of their box it is.

    First where the list of each position begins and the last one ends, then the lists; all is to
    lie at `place`. The dilation is 0 where windows do not lie alike: then taps count from their start.
    """
    cells = windows[:, MEMBERS]
    outputs = np.repeat(np.arange(len(windows)), cells)
    numbers = np.arange(len(outputs)) - np.repeat(np.cumsum(cells) - cells, cells)
    positions = windows[outputs, START] + numbers * windows[outputs, STEP]
    if dilation:  # a window of one cell has a step no longer than the axis
        numbers = (positions - spans[outputs, 0]) // dilation
    order = np.argsort(positions, kind="stable")
    begins = np.searchsorted(positions[order], np.arange(n + 1))
    lists = np.stack([outputs[order], numbers[order]], axis=1)
    return np.concatenate([place + n + 1 + 2 * begins, lists.ravel()])


def _kinds(g: Any, axis: int, lists: Any, place: int) -> Any:
    """A number for each position of an axis, and its first reader.

    Two positions have the same number only where their readers are alike: as many, as far from the
    first, which reach it with the same taps. Where windows lie alike, they are if no reader is missing
    and the stride brings one position to the other.
    """
    n, (stride, origin, dilation, kernel) = int(entry_of(g, axis)[EXTENT]), lie_of(g, axis)
    positions, begins = np.arange(n), (lists[: n + 1] - place - n - 1) // 2
    readers = np.append(lists[n + 1 :: 2], 0)[begins[:-1]]
    if kernel == 0:
        return np.stack([positions, readers], axis=1)
    residues = (positions - origin) % stride
    taps = np.bincount(dilation * np.arange(kernel) % stride, minlength=stride)
    alike = np.diff(begins) == taps[residues]
    return np.stack([np.where(alike, residues, stride + positions), readers], axis=1)


def _most_readers(spans: Any, n: int) -> int:
    """Outputs between the first and the last that may read one position, at most."""
    readers = _readers(spans, n)
    return max(1, int((readers[:, 1] - readers[:, 0]).max(initial=1)))
