"""How a correlation is cut: which kernel runs it, on what tiles of outputs and parts of the channels, in what chunks.

Everything here follows from shapes, strides and the number of threads, and is remembered. Sums fold in one order whatever the
cut is, so that it is free to be chosen for speed: the one is taken that should be done first, by a model of its cycles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np

from lunette.kernels.cpu.conv.arrays import address
from lunette.kernels.cpu.conv.geometry import Axis, Phase, Strides, Tile, cells_of, merge, tile_of
from lunette.kernels.cpu.conv.sizes import BLOCKS, COLUMNS, POSITIONS, ROWS, SUMS, VECTOR_BYTES

__all__ = ["DEPTH", "Problem", "Schedule", "Slide", "schedule"]

Array = np.ndarray[Any, Any]

WAYS = ("packed", "implicit", "sliding")
"""The kernels to choose from; the first serves everything."""
DEPTH = 160
"""Products of one chunk, whose panel or weights then stay in the first-level cache."""
NEAR = 24_576
"""Bytes of panels that are multiplied together."""
TILE = 400_000
"""Bytes of an input tile: it stays in the second-level cache beside the weights."""
WEIGHTS = 600_000
"""Bytes of packed weights that stay in the second-level cache from tile to tile."""
COPY = 7.0
"""Cycles that a vector of a panel's row costs beside its multiplications."""
LOAD_CELL = 0.25
"""Cycles that a cell of an input tile costs."""
TRANSPOSE = 0.5
"""Cycles that a sum costs which is transposed."""
STREAM = 2.0
"""Cycles that a vector of weights costs which comes from beyond the second-level cache."""
UNIT = 500.0
"""Cycles that a unit costs by itself."""
SPLIT = 1.08
"""How much longer a product takes in the input tile, where vectors cross the lines of the cache."""
PRODUCT, LOAD = 0.5, 0.95
"""Cycles of a vector's product and of a load in a block of `sliding`, as measured."""
CYCLES_EACH = 40_000
"""Cycles of a call that are worth a thread."""
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


class Problem(NamedTuple):
    """What a correlation is: its geometry, strides of the sources and then of the output, and its sizes."""

    phase: Phase
    strides: Strides
    items: int
    groups: int
    channels: int
    rows: int
    sources: int
    size: int


class Schedule(NamedTuple):
    """How a problem is run: kernel, tiles, chunks, and the fields of its record that follow from shapes.

    `kernel` is the name of a factory and its arguments after the type of numbers. `scratch` are the bytes of the input tile, of the sums,
    their starts, a panel and an index, in this order. `arrays` are those that fields have the addresses of.
    """

    kernel: tuple[Any, ...]
    block_rows: int
    threads: int
    units: int
    fields: dict[str, int]
    source_strides: tuple[int, ...]
    scratch: tuple[int, ...]
    arrays: tuple[Array, ...]


Cycles = Callable[[tuple[int, int], int, int], float]
"""Cycles of a tile of (rows, columns) of outputs, whose planes have so many columns, times so many blocks of channels."""


class Way(NamedTuple):
    """A kernel to choose: its name and arguments, output channels of a block, and its cycles."""

    kernel: tuple[Any, ...]
    block_rows: int
    cycles: Cycles
    width: int = COLUMNS
    slide: Slide | None = None


class Cut(NamedTuple):
    """Rows and columns of a tile, blocks of channels of a part, units, and the cycles of all units together."""

    tile: tuple[int, int]
    part_blocks: int
    units: int
    total: float


@lru_cache(maxsize=1024)
def schedule(problem: Problem, threads: int) -> Schedule:
    """The quickest way to run a problem on so many threads."""
    merged = merge(problem.phase, problem.strides)
    _, counts, steps, taps, _ = merged
    sizes = _Sizes(problem, counts, steps, taps)
    chosen: tuple[Way, Cut] | None = None
    least = np.inf
    for way in _ways(problem, steps, taps):
        for cut in sizes.cuts(way):
            workers = _workers(cut.total, threads)
            time = cut.total / cut.units * -(-cut.units // workers)
            if time < least:
                chosen, least = (way, cut), time
    assert chosen is not None
    return _schedule(problem, merged, *chosen, _workers(chosen[1].total, threads))


def _workers(cycles: float, threads: int) -> int:
    return max(1, min(threads, int(cycles // CYCLES_EACH)))


def _schedule(problem: Problem, merged: Any, way: Way, cut: Cut, workers: int) -> Schedule:
    """The tables, fields and scratch memory of a way and a cut."""
    lengths, counts, steps, taps, table = merged
    size, channels = problem.size, problem.channels
    found, lanes = tile_of(counts, steps, taps, problem.items, cut.tile), VECTOR_BYTES // size
    cells = cells_of(found)
    if way.slide:
        cells = cells[:: way.slide.run]
    area = len(found.planes) * int(found.shape[0] * found.shape[1])
    tile_channels = channels
    if area * channels * size > TILE:
        tile_channels = min(channels, max(1, TILE // (area * size)))
        tile_channels = -(-channels // -(-channels // tile_channels))
    chunk = (
        _even(tile_channels, max(1, DEPTH // len(taps)))
        if way.slide
        else _even(tile_channels * len(taps), DEPTH)
    )
    near = max(1, NEAR // (chunk * way.width * VECTOR_BYTES))
    once = problem.sources * -(-channels // tile_channels) == 1
    rows, columns = cut.tile
    block, blocks = way.block_rows * cut.part_blocks, -(-problem.rows // way.block_rows)
    if way.slide:
        _, length, run, _ = way.slide
        # Positions of a row, rounded up, and those that the last vector of a transpose reads.
        positions = -(-columns // length) * length
        lines = min(rows, max(1, POSITIONS // positions)) if once else cut.part_blocks * rows
        numbers = [
            length + run + lanes,
            (lines * positions + lanes) * way.block_rows,
            block,
            lanes * lanes,
        ]
    else:
        panel, line = way.width * lanes, columns if way.kernel[-1] else int(found.shape[1])
        panels = near if once else -(-((rows - 1) * line + columns) // panel)
        packed = near * chunk * panel if way.kernel[-1] else 0
        numbers = [panel, block * panels * panel, block * lanes, packed]
    numbers[0] += tile_channels * area
    offsets = np.add.outer(np.arange(tile_channels) * area, cells).ravel() * size
    arrays = (counts, lengths, steps, found.planes, offsets, *table)
    *source_strides, out_strides = (address(row) for row in table)
    fields = {
        **tile_fields(counts, lengths, steps, found),
        "tiles": found.tiles, "parts": -(-blocks // cut.part_blocks),
        "part_blocks": cut.part_blocks, "channels": channels, "taps": len(cells), "tile_channels": tile_channels,
        "chunk": chunk, "near": near, "group_rows": problem.rows, "out_stride": out_strides,
        "offsets": address(offsets), "sources": problem.sources,
    }  # fmt: skip
    scratch = (*(n * size for n in numbers), 8 * (len(counts) + 3))
    return Schedule(
        way.kernel,
        way.block_rows,
        workers,
        cut.units,
        fields,
        tuple(source_strides),
        scratch,
        arrays,
    )


def tile_fields(counts: Array, lengths: Array, steps: Array, tile: Tile) -> dict[str, int]:
    """The fields of an input tile; the arrays are the schedule's, which outlives the call."""
    assert tile.planes.flags.c_contiguous and tile.planes.dtype == np.int64
    return {
        "rank": len(counts), "out_len": address(counts), "in_len": address(lengths), "step": address(steps),
        "tile_rows": int(tile.blocks[0]), "tile_columns": int(tile.blocks[1]), "height": int(tile.shape[0]),
        "width": int(tile.shape[1]), "planes": address(tile.planes), "plane_count": len(tile.planes),
    }  # fmt: skip


def _even(length: int, part: int) -> int:
    """About as many as `part`, so that all parts of a length are about as large."""
    return -(-length // -(-length // part))


# -- the ways, and their cycles for one channel and tap --


def _ways(problem: Problem, steps: Array, taps: Array) -> Iterator[Way]:
    """The kernels that can run a problem."""
    lanes, rows, depth = (
        VECTOR_BYTES // problem.size,
        problem.rows,
        problem.channels * problem.sources * len(taps),
    )
    if "packed" in WAYS:
        yield Way(("gemm", ROWS, COLUMNS, True), ROWS, _packed(lanes, depth))
    if "implicit" in WAYS:
        costs = [-(-rows // height) * _cycles(height, width) / width for height, width in BLOCKS]
        height, width = BLOCKS[int(np.argmin(costs))]
        cycles = _implicit(height, width, lanes, len(taps) == 1, depth)
        yield Way(("gemm", height, width, False), height, cycles, width)
    slides = _slides(taps, int(steps[-1])) if "sliding" in WAYS else []
    for slide in slides:
        yield Way(
            ("sliding", *slide),
            slide.vectors * lanes,
            _sliding(slide, lanes, depth),
            COLUMNS,
            slide,
        )
    if not slides and not {"packed", "implicit"} & set(WAYS):
        yield Way(("gemm", ROWS, COLUMNS, True), ROWS, _packed(lanes, depth))


def _cycles(height: int, width: int) -> float:
    """Cycles of a block's step: two products, or two loads, at a time; vectors count as two."""
    return max(height * width, 2 * width + height) / 2


def _packed(lanes: int, depth: int) -> Cycles:
    def cycles(tile: tuple[int, int], pitch: int, blocks: int) -> float:
        panels, rest = divmod(-(-tile[0] * tile[1] // lanes), COLUMNS)
        steps = panels * _cycles(ROWS, COLUMNS) + (_cycles(ROWS, rest) if rest else 0)
        return depth * (blocks * steps + COPY * (panels * COLUMNS + rest))

    return cycles


def _implicit(height: int, width: int, lanes: int, single: bool, depth: int) -> Cycles:
    def cycles(tile: tuple[int, int], pitch: int, blocks: int) -> float:
        third = width // 3
        panels, rest = divmod(-(-((tile[0] - 1) * pitch + tile[1]) // lanes), width)
        steps = panels * _cycles(height, width)
        if rest:
            steps += _cycles(height, -(-rest // third) * third)
        # Vectors of a single tap are aligned where rows are.
        return (1.0 if single and pitch % lanes == 0 else SPLIT) * depth * blocks * steps

    return cycles


def _sliding(slide: Slide, lanes: int, depth: int) -> Cycles:
    vectors, length, run, _ = slide
    products, loads = vectors * length * run, vectors * run + length + run - 1
    step = max(PRODUCT * products, LOAD * loads) / run

    def cycles(tile: tuple[int, int], pitch: int, blocks: int) -> float:
        transposed = TRANSPOSE * vectors * lanes * tile[0] * tile[1]
        return blocks * (depth * tile[0] * -(-tile[1] // length) * step + transposed)

    return cycles


def _slides(taps: Array, step: int) -> list[Slide]:
    """The blocks that fit in the registers, for the longest runs of taps side by side."""
    moves = np.diff(taps, axis=0)
    unit = np.eye(taps.shape[1], dtype=np.int64)[-1]
    for run in RUNS if step == 1 else ():
        if len(taps) % run == 0:
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
    """The tiles of outputs and parts of channels that a problem may be cut into."""

    def __init__(self, problem: Problem, counts: Array, steps: Array, taps: Array) -> None:
        self.problem = problem
        self.high, self.wide = int(counts[-2]), int(counts[-1])
        self.outer = problem.items * problem.groups * prod(map(int, counts[:-2]))
        self.axes = [Axis.of(taps[:, a], int(steps[a])) for a in (-2, -1)]
        self.planes = prod(len(np.unique(taps[:, a])) for a in range(len(counts) - 2))
        self.depth = problem.sources * problem.channels * len(taps)
        lanes = VECTOR_BYTES // problem.size
        self.tiles = [(1, columns) for columns in _columns(self.wide, lanes)]
        rows = min(self.high, 4096 // self.wide)
        self.tiles += [
            (n, self.wide) for n in sorted({_even(self.high, n) for n in range(1, rows + 1)})
        ]
        self.tiles = self.tiles or [(1, self.wide)]

    def cuts(self, way: Way) -> Iterator[Cut]:
        """Whole rows, or parts of one, in input tiles that stay in the second-level cache; parts of the channels."""
        problem = self.problem
        blocks = -(-problem.rows // way.block_rows)
        parts = sorted({-(-blocks // n) for n in (1, 2, 3, 4, 6, 8, 16, 32, 64) if n <= blocks})
        for number, tile in enumerate(self.tiles):
            planes, lengths = zip(
                *(axis.planes(n) for axis, n in zip(self.axes, tile, strict=True)), strict=True
            )
            cells = self.planes * prod(planes) * prod(lengths) * problem.channels * problem.sources
            if number and cells * problem.size > TILE * problem.sources:
                continue
            down, across = _cuts(self.high, tile[0]), _cuts(self.wide, tile[1])
            tiles = self.outer * -(-self.high // tile[0]) * -(-self.wide // tile[1])
            for part in parts:
                number_of_parts, rest = -(-blocks // part), blocks % part
                weights = part * way.block_rows * self.depth * problem.size
                fixed = UNIT + LOAD_CELL * cells
                if weights > WEIGHTS:
                    fixed += STREAM * weights / VECTOR_BYTES
                total = 0.0
                for n, times in down:
                    for m, also in across:
                        for some, count in ((part, number_of_parts - (rest > 0)), (rest, 1)):
                            if some:
                                cycles = way.cycles((n, m), lengths[1], some) + fixed
                                total += times * also * count * cycles
                yield Cut(tile, part, tiles * number_of_parts, total * self.outer)


def _columns(wide: int, lanes: int) -> list[int]:
    """Columns of a tile that is a part of a row: whole vectors, about as many in each part."""
    found = {-(-_even(wide, n) // lanes) * lanes for n in (48, 96, 144, 240, 480)}
    return sorted(n for n in found if n < wide)


def _cuts(length: int, part: int) -> list[tuple[int, int]]:
    """The parts of a length, and how many there are of each: whole ones, and a rest."""
    whole, rest = divmod(length, part)
    return [(n, times) for n, times in ((part, whole), (rest, 1)) if n and times]
