"""The tables that a convolution's kernels walk by: which positions are read, and in what blocks.

Everything here follows from shapes and strides alone and is remembered. Sums fold in one order
whatever the blocks are, so that blocks are free to be chosen for speed.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import product
from math import inf, prod
from typing import Any, NamedTuple

import numpy as np

from lunette.kernels.cpu.panels import BLOCKS, COLUMNS, ROWS
from lunette.kernels.cpu.vectors import VECTOR_BYTES
from lunette.ops.base import Shape
from lunette.ops.convolution import Convolution

__all__ = [
    "DEPTH",
    "Phase",
    "Plan",
    "Slab",
    "Strides",
    "cells_of",
    "chunked",
    "image_phases",
    "merge",
    "plan",
    "slab",
    "window_phase",
]

Array = np.ndarray[Any, Any]
Strides = tuple[tuple[int, ...], ...]

DEPTH = 160
"""Products of one chunk of a panel, which then stays in the first-level cache."""
NEAR = 24_576
"""Bytes of panels that are multiplied together."""
UNITS = 16
"""Blocks are made smaller until there are this many, so that threads end together."""
SLAB = 400_000
"""Bytes of a slab, or of sums: they stay in the second-level cache beside the weights."""
COPY = 7.0
"""Cycles that a vector of a panel's row costs beside its multiplications."""
LAY = 0.25
"""Cycles that a cell of a slab costs."""
UNIT = 500.0
"""Cycles that a block costs by itself."""
SPLIT = 1.08
"""How much longer a product takes in the slab, where vectors cross the lines of the cache."""


class Phase(NamedTuple):
    """A correlation: output `start + stride·i` on each axis reads positions `step·i + tap`.

    `kernel` has the flat kernel index of each tap.
    """

    lengths: Shape
    counts: Shape
    steps: Shape
    taps: tuple[Shape, ...]
    kernel: Shape
    start: Shape
    stride: Shape


@lru_cache(maxsize=256)
def window_phase(op: Convolution, image: Shape, windows: Shape) -> Phase:
    """Windows read the image: one correlation with the op's own steps."""
    axes = [
        [j * region.dilation - region.margins(n)[0] for j in range(region.kernel)]
        for region, n in zip(op.regions, image, strict=True)
    ]
    zeros, ones = (0,) * op.rank, (1,) * op.rank
    kernel = tuple(range(prod(op.kernel)))
    return Phase(image, windows, op.stride, tuple(product(*axes)), kernel, zeros, ones)


@lru_cache(maxsize=256)
def image_phases(op: Convolution, image: Shape, windows: Shape) -> list[Phase]:
    """Image cells read windows: one correlation for each residue of the cell modulo the strides.

    Cell `p` reads window `i` through tap `j` where `i·stride + j·dilation − before = p`.
    """
    axes: list[list[Any]] = []
    for region, n in zip(op.regions, image, strict=True):
        before, stride, dilation = region.margins(n)[0], region.stride or 1, region.dilation
        residues = []
        for first in range(min(stride, n)):
            shifts = [(j, first + before - j * dilation) for j in range(region.kernel)]
            taps = [(j, shift // stride) for j, shift in shifts if shift % stride == 0]
            residues.append((first, -((first - n) // stride), taps))
        axes.append(residues)
    phases = []
    for residue in product(*axes):
        pairs = list(product(*(axis[2] for axis in residue)))
        kernel = [int(np.ravel_multi_index([j for j, _ in tap], op.kernel)) for tap in pairs]
        moves = tuple(tuple(shift for _, shift in tap) for tap in pairs)
        counts, start = tuple(axis[1] for axis in residue), tuple(axis[0] for axis in residue)
        ones = (1,) * op.rank
        phases.append(Phase(windows, counts, ones, moves, tuple(kernel), start, op.stride))
    return phases


class Slab(NamedTuple):
    """Blocks of output rows and the planes that they read.

    `blocks` is (rows, columns) of a block, `shape` (rows, columns) of a plane; `planes` has the
    position that a plane's first cell reads for output 0; tap t is `within[t]` in plane `which[t]`.
    """

    blocks: Array
    shape: Array
    planes: Array
    which: Array
    within: Array
    units: int


class Plan(NamedTuple):
    """A phase over given strides: tables of the kernels, and how to cut the work.

    `variant` is the block's number where windows are read in the slab; else -1: they are copied into
    panels, of which `near` are multiplied together, for chunks of channels and taps. `table` has the
    place in the slab of every (channel, tap), or of those of a chunk.
    """

    lengths: Array
    counts: Array
    steps: Array
    strides: Array
    slab: Slab
    table: Array
    variant: int
    slab_channels: int
    channel_chunk: int
    tap_chunk: int
    near: int


@lru_cache(maxsize=1024)
def plan(
    phase: Phase,
    strides: Strides,
    items: int,
    groups: int,
    channels: int,
    rows: int,
    sources: int,
    size: int,
) -> Plan:
    """How to run a correlation of `items` batch items; the last strides are the output's."""
    lengths, counts, steps, taps, table = merge(phase, strides)
    lanes = VECTOR_BYTES // size
    channel_chunk, tap_chunk = chunked(channels, len(taps), DEPTH)
    near = max(1, NEAR // (channel_chunk * tap_chunk * COLUMNS * VECTOR_BYTES))
    units = items * groups * int(np.prod(counts[:-2]))
    row_blocks = -(-rows // ROWS)

    def copied(block: tuple[int, int], pitch: int) -> float:
        panels, rest = divmod(-(-block[0] * block[1] // lanes), COLUMNS)
        cycles = panels * _cycles(ROWS, COLUMNS) + (_cycles(ROWS, rest) if rest else 0)
        return row_blocks * cycles + COPY * (panels * COLUMNS + rest)

    sizes = _Sizes(counts, steps, taps, units, channels)
    chosen, cost = sizes.best(channels * size, copied)
    variant = -1
    if len(taps):
        costs = [-(-rows // height) * _cycles(height, width) / width for height, width in BLOCKS]
        number = int(np.argmin(costs))
        height, width = BLOCKS[number]

        def in_place(block: tuple[int, int], pitch: int) -> float:
            panels, rest = divmod((block[0] - 1) * pitch + block[1], width * lanes)
            cycles = panels * _cycles(height, width)
            if rest:
                cycles += _cycles(height, width if rest > width // 3 * lanes else width // 3)
            return SPLIT * -(-rows // height) * cycles

        other, least = sizes.best(channels * sources * size, in_place)
        if least < cost:
            chosen, variant = other, number
    found = slab(counts, steps, taps, items, chosen)
    area = len(found.planes) * int(found.shape[0] * found.shape[1])
    slab_channels = channels
    if variant < 0 and area * channels * size > SLAB:
        fitting = SLAB // (area * size * channel_chunk) * channel_chunk
        slab_channels = min(channels, max(channel_chunk, fitting))
    cells = np.add.outer(np.arange(slab_channels) * area, cells_of(found)).ravel() * size
    return Plan(
        lengths, counts, steps, table, found, cells, variant, slab_channels, channel_chunk,
        tap_chunk, near,
    )  # fmt: skip


def _cycles(height: int, width: int) -> float:
    """Cycles of a block's step: two products, or two loads, at a time; vectors count as two."""
    return max(height * width, 2 * width + height) / 2


def cells_of(found: Slab) -> Array:
    """Where each tap is in a channel's planes, in elements."""
    height, width = found.shape
    rows = found.which * height + found.within[:, 0]
    cells: Array = rows * width + found.within[:, 1]
    return cells


class _Sizes:
    """The blocks of output rows that a phase may be cut into, and the slabs that they need."""

    def __init__(self, counts: Array, steps: Array, taps: Array, units: int, channels: int) -> None:
        self.high, self.wide, self.units = int(counts[-2]), int(counts[-1]), units
        self.taps, self.channels = max(1, len(taps)), channels
        self.axes = [_Axis.of(taps[:, a], int(steps[a])) for a in (-2, -1)]
        self.outer = prod(len(np.unique(taps[:, a])) for a in range(len(counts) - 2))

    def best(self, bytes_per_cell: int, cycles: Any) -> tuple[tuple[int, int], float]:
        """Rows and columns of the block that takes the fewest cycles for a position, and these.

        Blocks are whole rows, or parts of one, in slabs that stay in the second-level cache.
        `cycles` are those of a block and the columns of its slab, for one channel and tap.
        """
        parts = [(1, columns) for columns in (48, 96, 144, 240, 480) if columns < self.wide]
        rows = [(n, self.wide) for n in range(1, min(self.high, 4096 // self.wide) + 1)]
        best, least = (1, min(self.wide, 480)), np.inf
        for block in parts + rows:
            planes, lengths = zip(
                *(axis.planes(n) for axis, n in zip(self.axes, block, strict=True)), strict=True
            )
            cells = self.outer * prod(planes) * prod(lengths)
            number = -(-self.high // block[0]) * -(-self.wide // block[1]) * self.units
            if block != best and (cells * bytes_per_cell > SLAB or number < UNITS):
                continue
            fixed = (LAY * cells + UNIT / self.channels) / self.taps
            total = 0.0
            for n, times in _cuts(self.high, block[0]):
                for m, also in _cuts(self.wide, block[1]):
                    total += times * also * (cycles((n, m), lengths[1]) + fixed)
            if total / (self.high * self.wide) <= least:
                best, least = block, total / (self.high * self.wide)
        return best, least


class _Axis(NamedTuple):
    """The taps on an axis: how many, how many residues modulo the step, and how many steps apart."""

    places: int
    residues: int
    reach: int

    @classmethod
    def of(cls, taps: Array, step: int) -> _Axis:
        if not len(taps):
            return cls(0, 0, 0)
        away, residues = np.divmod(taps - taps.min(), step)
        return cls(len(np.unique(taps)), len(np.unique(residues)), int(away.max()))

    def shares(self, block: int) -> bool:
        """Whether planes that taps share are smaller than one plane for each."""
        return self.residues * (block + self.reach) <= self.places * block

    def planes(self, block: int) -> tuple[int, int]:
        """How many planes there are on this axis, and their length."""
        if self.shares(block):
            return self.residues, block + self.reach
        return self.places, block


def _cuts(length: int, part: int) -> list[tuple[int, int]]:
    """The parts of a length, and how many there are of each: whole ones, and a rest."""
    whole, rest = divmod(length, part)
    return [(n, times) for n, times in ((part, whole), (rest, 1)) if n and times]


def slab(counts: Array, steps: Array, taps: Array, items: int, blocks: tuple[int, int]) -> Slab:
    """Planes for blocks of output rows × columns: taps that differ by whole steps share a plane.

    On an axis where the shared planes would be larger, each place of a tap has a plane of its own.
    """
    within = np.zeros((len(taps), 2), np.int64)
    bases = taps.copy()
    for a in (-2, -1) if len(taps) else ():
        first = taps[:, a].min()
        if _Axis.of(taps[:, a], int(steps[a])).shares(blocks[a]):
            within[:, a], residues = np.divmod(taps[:, a] - first, steps[a])
            bases[:, a] = first + residues
    planes, which = np.unique(bases, axis=0, return_inverse=True)
    shape = np.array(blocks) + within.max(0, initial=0)
    per_item = prod(int(-(-n // b)) for n, b in zip(counts[-2:], blocks, strict=True))
    units = items * int(np.prod(counts[:-2])) * per_item
    return Slab(np.array(blocks), shape, planes, which.ravel(), within, units)


def chunked(channels: int, taps: int, depth: int) -> tuple[int, int]:
    """Channels and taps of a chunk of about `depth` of their pairs, all chunks about as large."""
    if taps > depth:
        return 1, -(-taps // -(-taps // depth))
    return -(-channels // (-(-channels * taps // depth) or 1)), max(1, taps)


def merge(phase: Phase, strides: Strides, short: float = inf) -> tuple[Array, ...]:
    """The phase's tables and the strides, at least two axes, those merged that are read as they lie.

    An axis without taps and padding joins the one before it if it is `short`; then runs are longer.
    """
    lengths, counts, steps = list(phase.lengths), list(phase.counts), list(phase.steps)
    taps = np.array(phase.taps, np.int64).reshape(-1, len(lengths))
    table = np.array(strides, np.int64)
    for a in range(len(lengths) - 2, -1, -1):
        n = lengths[a + 1]
        whole = steps[a + 1] == 1 and counts[a + 1] == n and not taps[:, a + 1].any()
        if n < short and whole and steps[a] == 1 and (table[:, a] == table[:, a + 1] * n).all():
            lengths[a : a + 2] = [lengths[a] * n]
            counts[a : a + 2] = [counts[a] * n]
            del steps[a + 1]
            taps[:, a] *= n
            taps, table = np.delete(taps, a + 1, 1), np.delete(table, a, 1)
    if len(lengths) == 1:
        lengths, counts, steps = [1, *lengths], [1, *counts], [1, *steps]
        taps, table = np.insert(taps, 0, 0, 1), np.insert(table, 0, 0, 1)
    tables = (np.array(v, np.int64) for v in (lengths, counts, steps))
    return (*tables, np.ascontiguousarray(taps), np.ascontiguousarray(table))
