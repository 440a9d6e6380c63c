"""Which tile reads what and writes where, so that memory is bounded and every chunk has one writer.

A job is a chain of steps: level k is pooled from level k−1. A *pass* does several steps at once: a
tile of its last level is a block of whole chunks; the slabs that it needs of the levels before are
found by walking the steps back, and those levels are written from the same tile. Where windows do
not overlap, tiles of every level of a pass are disjoint and cover it.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from lunette.kernels.cpu.integers.rounded import in_lanes
from lunette.positions import unravel
from lunette.regions import Region
from lunette.scale import npy
from lunette.scale.errors import ScaleError
from lunette.scale.stores import Level, Ranges, Source

__all__ = ["Job", "Pass", "Step", "check_count", "check_room", "plan_passes", "tiles_at_once"]

Shape = tuple[int, ...]

DECODED_AT_ONCE = 10
"""Chunks that the Zarr library decodes side by side."""

MOST_TILES = 1 << 40
"""A tile a microsecond would take twelve days."""


@dataclass(frozen=True)
class Step:
    """One level from the one before: a region for each axis."""

    regions: tuple[Region, ...]
    in_shape: Shape

    @property
    def out_shape(self) -> Shape:
        return tuple(r.out_length(n) for r, n in zip(self.regions, self.in_shape, strict=True))

    def slab(self, ranges: Ranges) -> Ranges:
        """The positions that these outputs read."""
        parts = (
            r.part(n, lo, hi)
            for r, n, (lo, hi) in zip(self.regions, self.in_shape, ranges, strict=True)
        )
        return tuple(p.slab_range for p in parts)


@dataclass(frozen=True)
class Pass:
    """Steps `first ≤ k < last` of the job in one go, in tiles of `tile` cells of the last level.

    `base` says that the tile's slab of the input is written too, as level 0.
    """

    first: int
    last: int
    tile: Shape
    out_shape: Shape
    base: bool

    @property
    def grid(self) -> Shape:
        """Tiles along each axis."""
        return tuple(-(-n // t) for n, t in zip(self.out_shape, self.tile, strict=True))

    @property
    def count(self) -> int:
        """The number of tiles."""
        return prod(self.grid)

    def ranges(self, number: int) -> Ranges:
        """The cells of the last level in tile `number`, in row-major order."""
        index = unravel(number, self.grid)
        return tuple(
            (i * t, min((i + 1) * t, n))
            for i, t, n in zip(index, self.tile, self.out_shape, strict=True)
        )


@dataclass(frozen=True)
class Job:
    """Everything that a tile needs: it can be sent to another process.

    `run` tells this run from others, before and after it. `added` are the names of levels that are added
    to an image that is there.
    """

    operator: str
    source: Source
    steps: tuple[Step, ...]
    base: Level | None
    levels: tuple[Level, ...]
    passes: tuple[Pass, ...] = ()
    run: str = ""
    codec: str = ""
    nodata: float | int | None = None
    added: tuple[str, ...] = ()

    def below(self, step: int) -> Any:
        """The array that a step reads."""
        return self.source if step == 0 else self.levels[step - 1]

    def chain(self, p: Pass, number: int) -> list[Ranges]:
        """Ranges of a tile: of what it reads, then of every level that it writes."""
        chain = [p.ranges(number)]
        for step in reversed(self.steps[p.first : p.last]):
            chain.append(step.slab(chain[-1]))
        return chain[::-1]


def tile_memory(job: Job, first: int, last: int, tile: Shape, base: bool) -> int:
    """Bytes that the largest tile of a pass holds at once: its slab, copies of it, its results."""
    step = job.steps[last - 1]
    ranges: Ranges = tuple((0, min(t, n)) for t, n in zip(tile, step.out_shape, strict=True))
    below = job.below(first)
    dtype = np.dtype(below.dtype)
    total: int = 0
    for k in range(last - 1, first - 1, -1):
        total += 2 * _cells(ranges) * dtype.itemsize
        ranges = job.steps[k].slab(ranges)
    slab = _cells(ranges) * dtype.itemsize
    total += slab + int(slab * _copies(job, dtype, job.steps[first], ranges))
    if first == 0 and job.source.order != tuple(range(len(job.source.order))):
        total += slab  # kernels copy what does not lie in order
    if below.kind in ("npy", "nifti") or job.levels[0].kind == "npy":
        total += npy.BAND
    if below.kind == "png":
        total += prod(below.shape) * dtype.itemsize
    if base:
        total += slab
    chunk = prod(below.chunks)  # decoded whole, also where it reaches past the edge
    touched = prod(-(-(hi - lo) // c) + 1 for (lo, hi), c in zip(ranges, below.chunks, strict=True))
    return int(total + 2 * min(DECODED_AT_ONCE, touched) * chunk * dtype.itemsize)


def _copies(job: Job, dtype: np.dtype[Any], step: Step, ranges: Ranges) -> float:
    """Further copies of a slab that the operator makes."""
    if job.nodata is not None:
        return 1 + 3 * 8 / dtype.itemsize
    if job.operator == "min":
        return 1.0
    if job.operator != "mean" or dtype.kind == "f":
        return 0.0
    lengths = tuple(hi - lo for lo, hi in ranges)
    if in_lanes(dtype, step.regions, lengths):
        return 0.0
    return 3 * 8 / dtype.itemsize


def plan_passes(
    job: Job, unit: Shape, budget: int, workers: int, together: bool
) -> tuple[Pass, ...]:
    """The passes of a job within `budget` bytes.

    `unit` is the chunk or shard that has one writer. With `together`, as many steps as memory
    allows share a pass, as long as every worker has a few tiles to do.
    """
    found: list[Pass] = []
    first = 0
    while first < len(job.steps):
        base = first == 0 and job.base is not None
        last = first + 1
        check_room(tile_memory(job, first, last, unit, base), budget, f"a tile of chunks {unit}")
        while together and last < len(job.steps):
            more = tile_memory(job, first, last + 1, unit, base)
            tiles = prod(-(-n // t) for n, t in zip(job.steps[last].out_shape, unit, strict=True))
            if more * workers > budget or tiles < 4 * workers:
                break
            last += 1
        tile = _covering(job, first, last, unit, base, budget // workers)
        found.append(Pass(first, last, tile, job.steps[last - 1].out_shape, base))
        first = last
    return tuple(found)


def _covering(job: Job, first: int, last: int, unit: Shape, base: bool, budget: int) -> Shape:
    """A unit; or so many that a tile reads whole chunks, each then decoded once, if memory allows.

    A TIFF may store a page as one chunk, which is longer than what a unit reads.
    """
    below = job.below(first)
    if below.kind not in ("tif", "zarr", "hdf5", "volume"):
        return unit
    tile = unit
    for axis in reversed(range(len(unit))):
        lo, hi = _slab(job, first, last, tile)[axis]
        units = -(-min(below.chunks[axis], below.shape[axis]) // (hi - lo))
        count, more = 1, units + 1  # the most that fits lies in between; a chunk may be very long
        while more - count > 1:
            middle = (count + more) // 2 if more <= units else units
            wider = (*tile[:axis], middle * unit[axis], *tile[axis + 1 :])
            if tile_memory(job, first, last, wider, base) <= budget:
                count = middle
            else:
                more = middle
        tile = (*tile[:axis], count * unit[axis], *tile[axis + 1 :])
    return tile


def _slab(job: Job, first: int, last: int, tile: Shape) -> Ranges:
    """What the first tile of a pass reads."""
    ranges: Ranges = tuple(
        (0, min(t, n)) for t, n in zip(tile, job.steps[last - 1].out_shape, strict=True)
    )
    for step in reversed(job.steps[first:last]):
        ranges = step.slab(ranges)
    return ranges


def tiles_at_once(job: Job, budget: int, workers: int) -> int:
    """How many tiles of the job's passes may be worked side by side within `budget` bytes."""
    need = max(tile_memory(job, p.first, p.last, p.tile, p.base) for p in job.passes)
    check_room(need, budget, f"a tile of {job.passes[0].tile}")
    return min(workers, budget // need)


def check_count(job: Job) -> None:
    """Refuse a job of more tiles than any machine will ever do."""
    for p in job.passes:
        if p.count > MOST_TILES:
            raise ScaleError(
                f"{p.out_shape} in tiles of {p.tile} are {p.count} tiles; use larger --chunks"
            )


def check_room(need: int, budget: int, what: str) -> None:
    """Refuse what memory cannot hold."""
    if need > budget:
        raise ScaleError(
            f"{what} needs {_human(need)}, and {_human(max(budget, 0))} of --memory are left for it; "
            "use smaller --chunks or more --memory"
        )


def _cells(ranges: Ranges) -> int:
    return prod(hi - lo for lo, hi in ranges)


def _human(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return ""
