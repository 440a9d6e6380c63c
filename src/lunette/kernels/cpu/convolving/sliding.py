"""Compiled correlations whose vectors hold output channels: a number of the slab meets all its taps.

Weights are packed, so every vector is aligned; a number of the slab is spread over the lanes, wherever
it lies, and multiplied with the weights of a run of taps side by side. So few loads feed many
products, and nothing is unfolded. The sums are transposed once, at the end.
"""

# mypy: disallow-untyped-defs = False
from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from lunette.kernels.cpu.compiling.machine import apart, compiled, kernel
from lunette.kernels.cpu.convolving.products import multiply_sliding
from lunette.kernels.cpu.convolving.slabs import Sizes, area_of, clear, elements, lay, place, put
from lunette.kernels.cpu.convolving.vectors import (
    VECTOR_BYTES,
    ask_line,
    transpose_part,
    transpose_square,
)

__all__ = ["rooms_of_sliding", "sliding"]

POSITIONS = 128
"""Positions of the rows that are summed while a chunk of the weights is in the first-level cache."""


@compiled
def turn(to, channel, at, row, rows, count, stride, square, lanes, zero, size):
    """Put sums of `count` positions, a row each, away as `rows` channels, with `stride` between."""
    apart()
    for r in range(0, rows, lanes):
        known = min(lanes, rows - r)
        for p in range(0, count, lanes):
            source = at + p * row + r * size
            target = to + (r * channel + p * stride) * size
            left = min(lanes, count - p)
            if known == lanes and stride == 1:
                transpose_part(target, channel * size, source, row, left, zero)
            else:
                transpose_square(square, VECTOR_BYTES, source, row, zero)
                put(
                    target, channel * size, square, VECTOR_BYTES, known, left, stride, lanes, zero,
                    size,
                )  # fmt: skip


def rooms_of_sliding(cut: Any, sources: int, channels: int, rows: int, size: int) -> Sizes:
    """Bytes of slab, sums, starts and a square of `sliding`."""
    vectors, length, run, _ = cut.slide
    lanes, (high, wide) = VECTOR_BYTES // size, cut.slab.blocks.tolist()
    row_lanes, positions = vectors * lanes, -(-wide // length) * length
    row_blocks = -(-rows // row_lanes)
    once = sources * -(-channels // cut.slab_channels) == 1
    kept = min(high, max(1, POSITIONS // positions)) if once else row_blocks * high
    slab = cut.slab_channels * area_of(cut.slab) + length + run + lanes
    sums = (kept * positions + lanes) * row_lanes
    return tuple(n * size for n in (slab, sums, row_blocks * row_lanes, lanes * lanes))


@cache
def sliding(vectors: int, length: int, run: int, back: int) -> Any:
    """The kernel for so many vectors of channels, positions, and taps side by side."""

    @kernel
    def sliding(
        first, last, rooms, units, counts, lengths, steps, blocks, shape, planes, table, slab_channels,
        channel_chunk, sources, offsets, channels, strides, in_channels, packed, rows, group_rows,
        bias, out, out_offsets, out_channel, out_strides, zero, size,
    ):  # fmt: skip
        """Units (group, block of output rows): `out = bias + Σ packed · source`, the same fold.

        A slab has `slab_channels`; `table` has the offset in it, in bytes, of each (channel, run of
        taps). The weights of `channel_chunk` are multiplied with all positions of a block while
        they are in the first-level cache. `rooms` are the addresses of memory to work in, as
        `rooms_of_sliding` has it; positions past a row's last are read past the slab.
        """
        rank, runs = counts.size, table.size // slab_channels
        lanes = VECTOR_BYTES // size
        height, width = shape
        area = planes.shape[0] * height * width
        row_lanes = vectors * lanes
        row_blocks = (rows + row_lanes - 1) // row_lanes
        pitch, step = row_lanes * size, run * row_lanes * size
        slabs = (in_channels + slab_channels - 1) // slab_channels
        once = sources.size * slabs == 1
        # Positions of a row, rounded up, and those that the last vector of a transpose reads.
        row_positions = (blocks[1] + length - 1) // length * length
        lines = min(blocks[0], max(1, POSITIONS // row_positions))
        slab_at, sums_at, starts_at, square_at = rooms[0], rooms[1], rooms[2], rooms[3]
        clear(slab_at + slab_channels * area * size, length + run + lanes, zero)
        spread = elements(starts_at, zero)
        index = np.zeros(rank, np.int64)
        stride, jump = out_strides[rank - 1], out_strides[rank - 2]
        for unit in range(first, last):
            group = unit // units
            item, row, column = place(unit % units, counts, blocks, index)
            high = min(blocks[0], counts[rank - 2] - row)
            wide = min(blocks[1], counts[rank - 1] - column)
            whole = wide == row_positions
            target = out_offsets[item] + row * jump + column * stride
            for a in range(rank - 2):
                target += index[a] * out_strides[a]
            target = out + (target + group * group_rows * out_channel) * size
            for r in range(row_blocks * row_lanes):
                spread[r] = bias[group * group_rows + r] if r < rows and bias.size else zero
            for part in range(sources.size * slabs):
                s, begin = part // slabs, part % slabs * slab_channels
                end = min(in_channels, begin + slab_channels)
                lay(
                    slab_at, index, row, column, shape, planes, sources[s], offsets[s, item],
                    channels[s], strides[s], lengths, steps, group * in_channels + begin,
                    group * in_channels + end, zero, size,
                )  # fmt: skip
                chunks = (end - begin + channel_chunk - 1) // channel_chunk
                ends = part + 1 == sources.size * slabs
                for block in range(row_blocks):
                    weights = packed[s] + (group * row_blocks + block) * in_channels * runs * step
                    known = min(row_lanes, rows - block * row_lanes)
                    later = target + block * row_lanes * out_channel * size
                    for y in range(0, high, lines):
                        kept = sums_at
                        if not once:
                            kept += (block * blocks[0] + y) * row_positions * pitch
                        for c in range(begin, end, channel_chunk):
                            now = (min(end, c + channel_chunk) - c) * runs
                            places = table[(c - begin) * runs :].ctypes.data
                            opening = part == 0 and c == 0
                            number = (c - begin) // channel_chunk
                            for q in range(min(lines, high - y)):
                                for x in range(0, wide, length):
                                    to = kept + (q * row_positions + x) * pitch
                                    start, start_row = to, pitch
                                    if opening:
                                        start, start_row = starts_at + block * pitch, 0
                                    if ends:
                                        first_later = later + ((y + q) * jump + x * stride) * size
                                        for r in range(
                                            number, known, chunks
                                        ):  # a share in each chunk
                                            ask_line(
                                                1, 3, first_later + r * out_channel * size, zero
                                            )
                                    multiply_sliding(
                                        vectors, length, run, back, weights + c * runs * step,
                                        slab_at + ((y + q) * width + x) * size, places, start,
                                        start_row, to, now, zero,
                                    )  # fmt: skip
                        count, q = min(lines, high - y) if ends else 0, 0
                        while q < count:
                            # Rows that lie one after the other are put away as one.
                            together = count if jump == wide * stride and whole else 1
                            turn(
                                later + (y + q) * jump * size, out_channel,
                                kept + q * row_positions * pitch, pitch, known, together * wide,
                                stride, square_at, lanes, zero, size,
                            )  # fmt: skip
                            q += together

    return sliding
