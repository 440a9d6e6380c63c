"""The tables of a weight's gradient: blocks of positions, and chunks of channels and taps."""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np

from lunette.kernels.cpu.convolving.geometry import (
    Phase,
    Slab,
    Strides,
    cells_of,
    chunked,
    merge,
    slab,
)
from lunette.kernels.cpu.convolving.slabs import Sizes
from lunette.kernels.cpu.convolving.weights import ROWS_MOST, rooms_of_dots, rooms_of_outer

__all__ = ["WeightPlan", "fits", "weight_plan"]

Array = np.ndarray[Any, Any]

SHORT = 128
"""An axis shorter than this, read as it lies, joins the one before it: rows of a block are longer."""


class WeightPlan(NamedTuple):
    """How to sum a gradient of the weights: blocks of positions, and chunks of channels and taps."""

    lengths: Array
    counts: Array
    steps: Array
    strides: Array
    slab: Slab
    chunks: Array
    taps: list[tuple[int, int]]
    table: Array
    rows: int
    cells: Array
    window_counts: Array
    window_strides: Array
    outer_rooms: Sizes
    dots_rooms: Sizes


@lru_cache(maxsize=1024)
def fits(phase: Phase, strides: Strides) -> bool:
    """Whether image and windows of these strides have the blocks of arrays without gaps.

    Blocks decide the order of a sum, and that must not depend on where the numbers lie.
    """
    whole = tuple(
        tuple(prod(lengths[a + 1 :]) for a in range(len(lengths)))
        for lengths in (phase.lengths, phase.counts)
    )
    found, wanted = (merge(phase, s, SHORT)[1] for s in (strides, whole))
    return np.array_equal(found, wanted)


@lru_cache(maxsize=1024)
def weight_plan(
    phase: Phase,
    strides: Strides,
    items: int,
    groups: int,
    channels: int,
    size: int,
    positions: int,
    rows: int,
    units: int,
) -> WeightPlan:
    """Blocks of about so many positions, and `units` chunks or more, of blocks of `rows` taps."""
    lengths, counts, steps, taps, table = merge(phase, strides, SHORT)
    high, wide = int(counts[-2]), int(counts[-1])
    # As many rows as a window's reach, so that few rows are laid twice; whole rows, or parts of one.
    reach = int(np.ptp(taps[:, -2]) // steps[-2]) if wide <= 160 else 1
    columns = wide if wide <= 160 else -(-wide // -(-wide // 128))
    blocks = (min(high, max(1, positions // wide, min(reach, 8))), columns)
    found = slab(counts, steps, taps, items, blocks)
    channel_chunk, tap_chunk = _filling(channels, len(taps), -(-units // groups), rows)
    area, cells = len(found.planes) * int(found.shape[0] * found.shape[1]), cells_of(found)
    chunks, parts, places = [], [], []
    for c in range(0, channels, channel_chunk):
        for t in range(0, len(taps), tap_chunk):
            last, stop = min(channels, c + channel_chunk), min(len(taps), t + tap_chunk)
            used = found.which[t:stop]
            chunks.append((c, last, (last - c) * (stop - t), used.min(), used.max() + 1))
            parts.append((t, stop))
            places.append(np.add.outer(np.arange(last - c) * area, cells[t:stop]).ravel() * size)
    deepest = channel_chunk * tap_chunk
    offsets = np.zeros((len(places), deepest + ROWS_MOST), np.int64)
    for line, row in zip(offsets, places, strict=True):
        line[: len(row)] = row
    return WeightPlan(
        lengths, counts, steps, table, found, np.array(chunks), parts, offsets, deepest + ROWS_MOST,
        cells * size, *_flat(counts, table[1]),
        rooms_of_outer(found, min(channels, channel_chunk), size), rooms_of_dots(found, size),
    )  # fmt: skip


def _filling(channels: int, taps: int, units: int, rows: int) -> tuple[int, int]:
    """Channels and taps of a chunk: those that leave the least of whole blocks of rows unused."""
    most = max(1, min(-(-channels // units), 144 // taps))
    if taps > 144:
        return chunked(channels, taps, 144 // rows * rows)

    def blocks(chunk: int) -> int:
        full, rest = divmod(channels, chunk)
        return full * -(-chunk * taps // rows) + -(-rest * taps // rows)

    return min(range(max(1, most // 2), most + 1), key=lambda chunk: (blocks(chunk), -chunk)), taps


def _flat(counts: Array, strides: Array) -> tuple[Array, Array]:
    """Axes that lie in memory one after the other, as one: runs along them are longer."""
    lengths, steps = [int(counts[-1])], [int(strides[-1])]
    for n, stride in zip(counts[-2::-1], strides[-2::-1], strict=True):
        if n == 1 or stride == lengths[0] * steps[0]:
            lengths[0] *= int(n)
        else:
            lengths.insert(0, int(n))
            steps.insert(0, int(stride))
    return np.array(lengths), np.array(steps)
