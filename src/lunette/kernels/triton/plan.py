"""The normal form of a call: any rank and layout as batch × planes × H × W × lanes.

Pooled axes that leave their length alone fold into batch or lanes, neighbouring axes reduced
whole merge, and axes before the last two become a table of planes. What remains is two axes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from lunette.cached import cached_property
from lunette.regions import Adaptive, Global, Part, Region, Sliding

__all__ = ["ONE", "Axis", "Plan", "Unserved", "passes", "plan", "separable"]

Ints = np.ndarray[Any, Any]
LARGEST_TABLE = 1 << 25


class Unserved(ValueError):
    """Why these kernels cannot serve a region."""


@dataclass(frozen=True)
class Axis:
    """One pooled axis of length `n` with `m` windows.

    Window `i` has `kernel` taps, `dilation` apart, from `i·stride − before`; taps below `limit`
    count. With a table, it has `lengths[i]` taps from `starts[i]` on, and all of them are real.
    """

    n: int
    m: int
    kernel: int
    stride: int = 1
    before: int = 0
    dilation: int = 1
    limit: int = 0
    table: tuple[tuple[int, ...], tuple[int, ...]] | None = None

    @property
    def extent(self) -> int:
        return self.dilation * (self.kernel - 1) + 1

    @property
    def identity(self) -> bool:
        """Every output is the input at its own position."""
        return (
            self.table is None
            and (self.kernel, self.before, self.n) == (1, 0, self.m)
            and (self.stride == 1 or self.m == 1)
        )

    @property
    def whole(self) -> bool:
        """One output reads the whole axis, each cell once and no padding."""
        return (
            self.table is None
            and (self.m, self.kernel, self.before) == (1, self.n, 0)
            and self.dilation == 1
            and self.limit >= self.n
        )

    @property
    def readers(self) -> int:
        """Candidates for the outputs that read one position."""
        if self.table is None:
            return (self.extent - 1) // self.stride + 1
        return int((self._read_range[1] - self._read_range[0]).max())

    @cached_property
    def _read_range(self) -> tuple[Ints, Ints]:
        """First reader of each position and one past the last: windows are in order."""
        assert self.table is not None
        starts, lengths = np.array(self.table[0]), np.array(self.table[1])
        positions = np.arange(self.n)
        first = np.searchsorted(starts + lengths, positions, "right")
        return first, np.searchsorted(starts, positions, "right")

    @property
    def reader_table(self) -> Ints:
        return np.concatenate(self._read_range)

    def origins(self) -> Ints:
        """Position of tap 0 of every window."""
        if self.table is not None:
            return np.array(self.table[0], np.int64)
        return np.arange(self.m, dtype=np.int64) * self.stride - self.before

    def taps(self) -> Ints:
        """(windows, taps) → position, or −1 where the tap is no cell of the input."""
        tap = np.arange(self.kernel, dtype=np.int64)
        position = self.origins()[:, None] + tap * self.dilation
        real = (position >= 0) & (position < self.n)
        if self.table is not None:
            real &= tap < np.array(self.table[1])[:, None]
        return np.where(real, position, -1)

    def counted(self) -> Ints:
        """Cells of each window that count."""
        if self.table is not None:
            return np.array(self.table[1], np.int64)
        room = self.limit - 1 - self.origins()
        return np.asarray(np.minimum(room // self.dilation + 1, self.kernel))

    @cached_property
    def padded(self) -> bool:
        """Some window has a tap that is no cell of the input."""
        return self.table is None and int(self.ends()[0].min()) < self.kernel

    def ends(self) -> tuple[Ints, Ints]:
        """Real cells and counted cells of each window, of the windows that can differ from the rest."""
        if self.table is not None:
            lengths = np.array(self.table[1], np.int64)
            return lengths, lengths
        origin = self.origins() if self.m <= 4096 else self._border()
        skipped = np.maximum(-(origin // self.dilation), 0)
        last = np.minimum((self.n - 1 - origin) // self.dilation, self.kernel - 1)
        counted = np.minimum((self.limit - 1 - origin) // self.dilation + 1, self.kernel)
        return np.maximum(last - skipped + 1, 0), counted

    def _border(self) -> Ints:
        """Origins of windows near both ends; those between lie inside, or see both ends alike."""
        reach = min(self.m, (self.extent + abs(self.before)) // self.stride + 2)
        if reach * 2 >= self.m:
            return np.arange(self.m, dtype=np.int64) * self.stride - self.before
        picks = np.concatenate([np.arange(reach), np.arange(self.m - reach, self.m)])
        return picks.astype(np.int64) * self.stride - self.before


ONE = Axis(1, 1, 1, limit=1)


@dataclass(frozen=True, eq=False)
class Plan:
    """x as (batch, planes, H, W, lanes), and what its windows are.

    Plans are made once per shape and told apart by identity: launches look things up by plan.
    `leading` is the length of the pooled axes inside the batch; `channels` that of the channels at
    the end of the lanes, whose rest is pooled axes. With `lanes_in_row` the lanes stand as W.
    """

    batch: int
    outer: tuple[Axis, ...]
    h: Axis
    w: Axis
    lanes: int
    leading: int
    channels: int
    lanes_in_row: bool

    @cached_property
    def planes(self) -> Ints:
        """(outer outputs, outer taps) → plane of the input, or −1."""
        table = np.zeros((1, 1), np.int64)
        for axis in self.outer:
            taps = axis.taps()
            joined = table[:, None, :, None] * axis.n + taps[None, :, None, :]
            missing = (table[:, None, :, None] < 0) | (taps[None, :, None, :] < 0)
            table = np.where(missing, -1, joined)
            table = table.reshape(table.shape[0] * table.shape[1], -1)
        return table

    @cached_property
    def plane_readers(self) -> Ints:
        """(planes, readers, 2) → (outer output, tap) in row-major output order, padded with −1."""
        output, tap = np.nonzero(self.planes >= 0)
        plane = self.planes[output, tap]
        order = np.argsort(plane, kind="stable")
        counts = np.bincount(plane, minlength=self.outer_in)
        table = np.full((self.outer_in, max(int(counts.max()), 1), 2), -1, np.int64)
        rank = np.arange(len(plane)) - np.repeat(np.cumsum(counts) - counts, counts)
        table[plane[order], rank] = np.stack([output[order], tap[order]], 1)
        return table

    @cached_property
    def outer_real(self) -> Ints:
        return np.asarray((self.planes >= 0).sum(1))

    @cached_property
    def outer_first(self) -> Ints:
        """The first tap of each outer output that is a plane."""
        return np.asarray(np.argmax(self.planes >= 0, 1))

    @cached_property
    def outer_counted(self) -> Ints:
        counts = np.ones(1, np.int64)
        for axis in self.outer:
            counts = (counts[:, None] * axis.counted()[None, :]).ravel()
        return counts

    @property
    def outer_in(self) -> int:
        return prod(axis.n for axis in self.outer)

    @property
    def outer_out(self) -> int:
        return prod(axis.m for axis in self.outer)

    @property
    def outer_taps(self) -> int:
        """Taps of the plane table; 0 where there are no outer axes."""
        return prod(axis.kernel for axis in self.outer) if self.outer else 0

    @property
    def cells(self) -> int:
        """Taps in the largest window."""
        return prod(axis.kernel for axis in (*self.outer, self.h, self.w))

    @property
    def size(self) -> int:
        return self.batch * self.outer_in * self.h.n * self.w.n * self.lanes

    @property
    def out_size(self) -> int:
        return self.batch * self.outer_out * self.h.m * self.w.m * self.lanes

    @cached_property
    def ends(self) -> tuple[list[Ints], list[Ints]]:
        pairs = [axis.ends() for axis in (*self.outer, self.h, self.w)]
        return [real for real, _ in pairs], [counted for _, counted in pairs]

    @cached_property
    def may_be_empty(self) -> bool:
        """Some window has no cell in the input."""
        return any(int(real.min()) == 0 for real in self.ends[0])

    @cached_property
    def padded(self) -> bool:
        """Some window has a tap that is no cell of the input."""
        return any(axis.padded for axis in (*self.outer, self.h, self.w))

    @cached_property
    def uniform(self) -> tuple[int | None, int | None]:
        """How many real cells, and how many counted, every window has, if it is one number."""

        def common(axes: list[Ints]) -> int | None:
            if any(int(counts.min()) != int(counts.max()) for counts in axes):
                return None
            return prod(int(counts.min()) for counts in axes)

        return common(self.ends[0]), common(self.ends[1])

    @cached_property
    def wide(self) -> int:
        """0: positions fit 32 bits; 1: they need 64; 2: so do those along one row."""
        if max(self.w.n, self.w.m) * self.lanes + (1 << 22) >= 1 << 31:
            return 2
        return int(max(self.size, self.out_size) + (1 << 22) >= 1 << 31)


@lru_cache(maxsize=1024)
def separable(made: Plan) -> bool:
    """Whether a window is cheaper along W first and then along H: windows are large and overlap."""
    h, w = made.h, made.w
    overlap = h.kernel * w.kernel * min(1, h.extent // h.stride) * min(1, w.extent // w.stride)
    return not made.outer and overlap >= 64 and min(h.kernel, w.kernel) > 2 and h.stride < h.extent


@lru_cache(maxsize=256)
def passes(made: Plan) -> tuple[Plan, Plan]:
    """The same windows as windows along W, then along H; an empty window gives 0 in either."""
    h, w, rows = made.h, made.w, made.h.n
    along_w = replace(made, batch=made.batch * rows, h=ONE)
    row = Axis(w.m * made.lanes, w.m * made.lanes, 1, limit=w.m * made.lanes)
    return along_w, replace(made, h=h, w=row, lanes=1)


@lru_cache(maxsize=1024)
def plan(regions: tuple[Region, ...], batch: int, pooled: tuple[int, ...], channels: int) -> Plan:
    """The normal form of `regions` over `pooled` axes, `batch` of them, `channels` innermost."""
    axes = [normal(region, n) for region, n in zip(regions, pooled, strict=True)]
    leading = trailing = 1
    while axes and axes[0].identity:
        leading *= axes.pop(0).n
    while axes and axes[-1].identity:
        trailing *= axes.pop().n
    axes = _merged(axes)
    lanes = trailing * channels
    if not axes:
        axes = [ONE]
    lanes_in_row = len(axes) == 1 and lanes > 1 and not axes[0].whole
    if lanes_in_row:  # so that a band shares its rows
        axes, lanes = [axes[0], Axis(lanes, lanes, 1, limit=lanes)], 1
    elif len(axes) == 1:
        axes = [ONE, axes[0]]
    outer, h, w = tuple(axes[:-2]), axes[-2], axes[-1]
    made = Plan(batch * leading, outer, h, w, lanes, leading, channels, lanes_in_row)
    if made.outer and max(made.outer_out, made.outer_in) * made.outer_taps > LARGEST_TABLE:
        raise Unserved(f"the table of {made.outer_out} × {made.outer_taps} planes is too large")
    if made.cells >= 1 << 31:
        raise Unserved(f"windows of {made.cells} cells are too large; the limit is 2³¹ − 1")
    return made


def normal(region: Region, n: int) -> Axis:
    """A region over an axis of length `n` as taps at a stride, or as a table."""
    m = region.out_length(n)
    if type(region) is Sliding:
        before, after = region.margins(n)
        assert region.stride is not None
        return Axis(n, m, region.kernel, region.stride, before, region.dilation, n + after)
    if type(region) is Global:
        return Axis(n, 1, n, n, limit=n)
    if type(region) is Adaptive:
        if n % m == 0:
            return Axis(n, m, n // m, n // m, limit=n)
        return _tabled(n, [region.window(n, i) for i in range(m)])
    if type(region) is Part:
        inner = normal(region.region, region.length)
        (first, last), (low, high) = region.outputs, region.slab_range
        if inner.table is None:
            before = inner.before + low - first * inner.stride
            limit = inner.limit - low
            return replace(inner, n=high - low, m=last - first, before=before, limit=limit)
    return _tabled(n, [region.window(n, i) for i in range(m)])


def _tabled(n: int, windows: Sequence[Any]) -> Axis:
    """Windows of neighbouring positions in order; anything else is not served."""
    if any(w.start < 0 or w.stop > n for w in windows):
        raise ValueError(f"windows {windows!r} leave an axis of length {n}")
    starts = tuple(w.start for w in windows)
    stops = tuple(w.stop for w in windows)
    plain = all(w.step == 1 and w.counted == w.stop - w.start > 0 for w in windows)
    if not plain or sorted(starts) != list(starts) or sorted(stops) != list(stops):
        raise Unserved("serves regions whose windows are neighbouring positions, in order")
    lengths = tuple(b - a for a, b in zip(starts, stops, strict=True))
    return Axis(n, len(windows), max(lengths), limit=n, table=(starts, lengths))


def _merged(axes: list[Axis]) -> list[Axis]:
    merged: list[Axis] = []
    for axis in axes:
        if merged and merged[-1].whole and axis.whole:
            n = merged.pop().n * axis.n
            merged.append(Axis(n, 1, n, n, limit=n))
        else:
            merged.append(axis)
    return merged
