"""How a correlation is cut: which kernel runs it, on what blocks of output rows, in what chunks.

Everything here follows from shapes and strides alone and is remembered. Sums fold in one order
whatever the cut is, so that it is free to be chosen for speed: the one that should take the fewest
cycles is taken.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np

from lunette.kernels.cpu.convolving.geometry import (
    Axis,
    Phase,
    Slab,
    Strides,
    cells_of,
    chunked,
    merge,
    slab,
)
from lunette.kernels.cpu.convolving.panels import (
    BLOCKS,
    COLUMNS,
    ROWS,
    rooms_in_place,
    rooms_of_copied,
)
from lunette.kernels.cpu.convolving.slabs import Sizes
from lunette.kernels.cpu.convolving.sliding import rooms_of_sliding
from lunette.kernels.cpu.convolving.vectors import SUMS, VECTOR_BYTES

__all__ = ["DEPTH", "Plan", "Slide", "plan", "rooms"]

Array = np.ndarray[Any, Any]

WAYS = ("copied", "in place", "sliding")
"""The kernels to choose from; the first serves everything."""
DEPTH = 160
"""Products of one chunk, whose panel or weights then stay in the first-level cache."""
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
TURN = 0.5
"""Cycles that a sum costs which is transposed."""
UNIT = 500.0
"""Cycles that a block costs by itself."""
SPLIT = 1.08
"""How much longer a product takes in the slab, where vectors cross the lines of the cache."""
PRODUCT, LOAD = 0.5, 0.95
"""Cycles of a vector's product and of a load in a block of `sliding`, as measured."""
REGISTERS = SUMS * 4 // 3
RUNS = (5, 4, 3, 2)
"""Taps side by side whose weights fit in the registers beside the sums."""
LENGTHS = (16, 12, 10, 8, 7, 4)
"""Positions of a block of `sliding`: few, for each is compiled by itself."""


class Slide(NamedTuple):
    """A block of `sliding`: vectors of channels, positions, taps of a run, and whether they go back."""

    vectors: int
    length: int
    run: int
    back: int


class Plan(NamedTuple):
    """A phase over given strides: tables of the kernels, and how to cut the work.

    Where there is a `slide`, windows are read in the slab number by number; where `variant` is not
    negative, vector by vector, in blocks of that number; else they are copied into panels, of which
    `near` are multiplied together. `table` has the place in the slab of every (channel, tap), or run
    of taps, or of those of a chunk. `rooms` are the bytes to work in, for all output rows.
    """

    lengths: Array
    counts: Array
    steps: Array
    strides: Array
    slab: Slab
    table: Array
    slide: Slide | None
    variant: int
    slab_channels: int
    channel_chunk: int
    tap_chunk: int
    near: int
    rooms: Sizes = ()


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
    units = items * groups * int(np.prod(counts[:-2]))
    sizes = _Sizes(counts, steps, taps, units, channels)
    chosen, least = sizes.best(channels * size, _copied(rows, lanes))
    slide, variant = None, -1
    if "in place" in WAYS and len(taps):
        costs = [-(-rows // height) * _cycles(height, width) / width for height, width in BLOCKS]
        number = int(np.argmin(costs))
        cost = _in_place(*BLOCKS[number], rows, lanes, len(taps) == 1)
        block, cycles = sizes.best(channels * sources * size, cost)
        if cycles < least or "copied" not in WAYS:
            chosen, least, variant = block, cycles, number
    for candidate in _slides(taps, int(steps[-1])) if "sliding" in WAYS else ():
        depth = sources * channels * len(taps)
        block, cycles = sizes.best(channels * size, _sliding(candidate, rows, lanes, depth))
        if cycles < least or ("copied" not in WAYS and slide is None):
            chosen, least, slide = block, cycles, candidate
    found = slab(counts, steps, taps, items, chosen)
    cells = cells_of(found)
    if slide:
        variant, cells = -1, cells[:: slide.run]
    channel_chunk, tap_chunk = chunked(channels, len(taps), DEPTH)
    near = max(1, NEAR // (channel_chunk * tap_chunk * COLUMNS * VECTOR_BYTES))
    area = len(found.planes) * int(found.shape[0] * found.shape[1])
    slab_channels = channels
    if variant < 0 and area * channels * size > SLAB:
        fitting = SLAB // (area * size * channel_chunk) * channel_chunk
        slab_channels = min(channels, max(channel_chunk, fitting))
    places = np.add.outer(np.arange(slab_channels) * area, cells).ravel() * size
    cut = Plan(
        lengths, counts, steps, table, found, places, slide, variant, slab_channels, channel_chunk,
        tap_chunk, near,
    )  # fmt: skip
    return cut._replace(rooms=rooms(cut, sources, channels, rows, size))


def rooms(cut: Plan, sources: int, channels: int, rows: int, size: int) -> Sizes:
    """Bytes of the memory that the kernel of a plan works in, for so many output rows of a group."""
    if cut.slide:
        return rooms_of_sliding(cut, sources, channels, rows, size)
    of = rooms_of_copied if cut.variant < 0 else rooms_in_place
    return of(cut, sources, channels, rows, size)


# -- cycles of a block of (rows, columns) in a slab of so many columns, for one channel and tap --

Cycles = Callable[[tuple[int, int], int], float]


def _cycles(height: int, width: int) -> float:
    """Cycles of a block's step: two products, or two loads, at a time; vectors count as two."""
    return max(height * width, 2 * width + height) / 2


def _copied(rows: int, lanes: int) -> Cycles:
    def cycles(block: tuple[int, int], pitch: int) -> float:
        panels, rest = divmod(-(-block[0] * block[1] // lanes), COLUMNS)
        steps = panels * _cycles(ROWS, COLUMNS) + (_cycles(ROWS, rest) if rest else 0)
        return -(-rows // ROWS) * steps + COPY * (panels * COLUMNS + rest)

    return cycles


def _in_place(height: int, width: int, rows: int, lanes: int, single: bool) -> Cycles:
    def cycles(block: tuple[int, int], pitch: int) -> float:
        panels, rest = divmod((block[0] - 1) * pitch + block[1], width * lanes)
        steps = panels * _cycles(height, width)
        if rest:
            steps += _cycles(height, width if rest > width // 3 * lanes else width // 3)
        # Vectors of a single tap are aligned where rows are.
        return (1.0 if single and pitch % lanes == 0 else SPLIT) * -(-rows // height) * steps

    return cycles


def _sliding(slide: Slide, rows: int, lanes: int, depth: int) -> Cycles:
    vectors, length, run, _ = slide
    products, loads = vectors * length * run, vectors * run + length + run - 1
    step = max(PRODUCT * products, LOAD * loads) / run
    blocks = -(-rows // (vectors * lanes))

    def cycles(block: tuple[int, int], pitch: int) -> float:
        turned = TURN * blocks * vectors * lanes * block[0] * block[1] / depth
        return blocks * block[0] * -(-block[1] // length) * step + turned

    return cycles


def _slides(taps: Array, step: int) -> list[Slide]:
    """The blocks that fit in the registers, for the longest runs of taps side by side."""
    moves = np.diff(taps, axis=0)
    unit = np.eye(taps.shape[1], dtype=np.int64)[-1]
    for run in RUNS if step == 1 else ():
        if len(taps) and len(taps) % run == 0:
            within = np.delete(moves, np.arange(run - 1, len(moves), run), axis=0)
            for back, move in enumerate((unit, -unit)):
                if (within == move).all():
                    return [
                        Slide(vectors, length, run, back)
                        for vectors in (2, 1)
                        for length in LENGTHS
                        if vectors * (length + run) + 2 <= REGISTERS
                    ]
    return []


class _Sizes:
    """The blocks of output rows that a phase may be cut into, and the slabs that they need."""

    def __init__(self, counts: Array, steps: Array, taps: Array, units: int, channels: int) -> None:
        self.high, self.wide, self.units = int(counts[-2]), int(counts[-1]), units
        self.taps, self.channels = max(1, len(taps)), channels
        self.axes = [Axis.of(taps[:, a], int(steps[a])) for a in (-2, -1)]
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


def _cuts(length: int, part: int) -> list[tuple[int, int]]:
    """The parts of a length, and how many there are of each: whole ones, and a rest."""
    whole, rest = divmod(length, part)
    return [(n, times) for n, times in ((part, whole), (rest, 1)) if n and times]
