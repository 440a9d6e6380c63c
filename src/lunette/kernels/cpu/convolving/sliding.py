"""Compiled correlations whose vectors hold output channels: a number of the slab meets all its taps.

Weights are packed, so every vector is aligned; a number of the slab is spread over the lanes, wherever
it lies, and multiplied with the weights of a run of taps side by side. So few loads feed many
products, and nothing is unfolded. The sums are transposed once, at the end.
"""

# mypy: disallow-untyped-defs = False
from __future__ import annotations

from functools import cache
from typing import Any

from numba import types

from lunette.kernels.cpu.compiling import machine
from lunette.kernels.cpu.compiling.machine import apart, compiled, pointer
from lunette.kernels.cpu.convolving.blocks import (
    BIAS,
    BLOCK_COLUMNS,
    BLOCK_ROWS,
    CHANNEL_CHUNK,
    COUNTS,
    FIRST_SOURCE,
    GROUP_ROWS,
    HEIGHT,
    IN_CHANNELS,
    INTEGERS_AT,
    LENGTHS,
    OTHER_AT,
    OUT,
    OUT_CHANNEL,
    OUT_OFFSETS,
    OUT_STRIDES,
    PACKED,
    PLANE_COUNT,
    PLANES,
    RANK,
    ROWS_NOW,
    SLAB_CHANNELS,
    SOURCE,
    SOURCE_CHANNEL,
    SOURCE_OFFSETS,
    SOURCE_STRIDES,
    SOURCE_WIDTH,
    SOURCES,
    STARTS_AT,
    STEPS,
    SUMS_AT,
    TABLE,
    TAPS_OF_CHANNEL,
    UNITS,
    WIDTH,
)
from lunette.kernels.cpu.convolving.products import multiply_sliding
from lunette.kernels.cpu.convolving.sizes import POSITIONS, VECTOR_BYTES
from lunette.kernels.cpu.convolving.slabs import elements, lay, place, put, zero_of, zeros
from lunette.kernels.cpu.convolving.vectors import ask_line, transpose_part, transpose_square

__all__ = ["sliding_kernel"]


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


@cache
def sliding_kernel(dtype: str, vectors: int, length: int, run: int, back: int) -> Any:
    """Units (group, block of output rows): `out = bias + Σ packed · source`, the same fold.

    A block is so many vectors of channels and positions, and taps side by side. A slab has
    `slab_channels`; `table` has the offset in it, in bytes, of each (channel, run of taps). The
    weights of `channel_chunk` are multiplied with all positions of a block while they are in the
    first-level cache.
    """
    zero, size = zero_of(dtype)
    lanes = VECTOR_BYTES // size
    row_lanes = vectors * lanes
    pitch, step = row_lanes * size, run * row_lanes * size

    @machine.kernel
    def sliding(first, last, told, scratch, _a, _b, _c, _d):
        a = pointer(told, types.int64)
        rank, counts, lengths = (
            a[RANK],
            pointer(a[COUNTS], types.int64),
            pointer(a[LENGTHS], types.int64),
        )
        steps, planes = pointer(a[STEPS], types.int64), pointer(a[PLANES], types.int64)
        block_rows, block_columns, plane_count = a[BLOCK_ROWS], a[BLOCK_COLUMNS], a[PLANE_COUNT]
        height, width = a[HEIGHT], a[WIDTH]
        units, table = a[UNITS], a[TABLE]
        in_channels, rows, group_rows = a[IN_CHANNELS], a[ROWS_NOW], a[GROUP_ROWS]
        bias, has_bias = elements(a[BIAS], zero), a[BIAS] != 0
        out, out_offsets, out_channel = a[OUT], pointer(a[OUT_OFFSETS], types.int64), a[OUT_CHANNEL]
        out_strides, sources = pointer(a[OUT_STRIDES], types.int64), a[SOURCES]
        slab_channels, channel_chunk, runs = a[SLAB_CHANNELS], a[CHANNEL_CHUNK], a[TAPS_OF_CHANNEL]
        area = plane_count * height * width
        row_blocks = (rows + row_lanes - 1) // row_lanes
        slabs = (in_channels + slab_channels - 1) // slab_channels
        once = sources * slabs == 1
        # Positions of a row, rounded up.
        row_positions = (block_columns + length - 1) // length * length
        lines = min(block_rows, max(1, POSITIONS // row_positions))
        slab_at, sums_at = scratch, scratch + a[SUMS_AT]
        starts_at, square_at = scratch + a[STARTS_AT], scratch + a[OTHER_AT]
        zeros(slab_at + slab_channels * area * size, length + run + lanes, zero)
        spread = elements(starts_at, zero)
        index = pointer(scratch + a[INTEGERS_AT], types.int64)
        stride, jump = out_strides[rank - 1], out_strides[rank - 2]
        for unit in range(first, last):
            group = unit // units
            item, row, column = place(unit % units, counts, rank, block_rows, block_columns, index)
            high = min(block_rows, counts[rank - 2] - row)
            wide = min(block_columns, counts[rank - 1] - column)
            whole = wide == row_positions
            target = out_offsets[item] + row * jump + column * stride
            for axis in range(rank - 2):
                target += index[axis] * out_strides[axis]
            target = out + (target + group * group_rows * out_channel) * size
            for r in range(row_blocks * row_lanes):
                spread[r] = bias[group * group_rows + r] if r < rows and has_bias else zero
            for part in range(sources * slabs):
                s, begin = part // slabs, part % slabs * slab_channels
                end = min(in_channels, begin + slab_channels)
                g = FIRST_SOURCE + s * SOURCE_WIDTH
                offset = pointer(a[g + SOURCE_OFFSETS], types.int64)[item]
                strides, packed = pointer(a[g + SOURCE_STRIDES], types.int64), a[g + PACKED]
                lay(
                    slab_at, index, row, column, rank, height, width, planes, plane_count, a[g + SOURCE],
                    offset, a[g + SOURCE_CHANNEL], strides, lengths, steps, group * in_channels + begin,
                    group * in_channels + end, zero, size,
                )  # fmt: skip
                chunks = (end - begin + channel_chunk - 1) // channel_chunk
                ends = part + 1 == sources * slabs
                for number in range(row_blocks):
                    weights = packed + (group * row_blocks + number) * in_channels * runs * step
                    known = min(row_lanes, rows - number * row_lanes)
                    later = target + number * row_lanes * out_channel * size
                    for y in range(0, high, lines):
                        kept = sums_at
                        if not once:
                            kept += (number * block_rows + y) * row_positions * pitch
                        for c in range(begin, end, channel_chunk):
                            now = (min(end, c + channel_chunk) - c) * runs
                            places = table + (c - begin) * runs * 8
                            opening = part == 0 and c == 0
                            share = (c - begin) // channel_chunk
                            for q in range(min(lines, high - y)):
                                for x in range(0, wide, length):
                                    to = kept + (q * row_positions + x) * pitch
                                    start, start_row = to, pitch
                                    if opening:
                                        start, start_row = starts_at + number * pitch, 0
                                    if ends:
                                        first_later = later + ((y + q) * jump + x * stride) * size
                                        for r in range(
                                            share, known, chunks
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
