"""Compiled loops of a weight's gradient: sums over positions of image cell × window.

Where a group has many rows, windows are transposed and a vector holds channels; where it has few,
a vector holds positions.
"""

# mypy: disallow-untyped-defs = False
from __future__ import annotations

from typing import Any

import numpy as np

from lunette.kernels.cpu.compiling.machine import apart, compiled, kernel
from lunette.kernels.cpu.convolving import products
from lunette.kernels.cpu.convolving.products import multiply_across
from lunette.kernels.cpu.convolving.slabs import Sizes, area_of, elements, lay, place
from lunette.kernels.cpu.convolving.vectors import SUMS, VECTOR_BYTES, transpose_square

__all__ = [
    "ROWS_MOST",
    "TAPS",
    "dots",
    "height",
    "outer",
    "rooms_of_dots",
    "rooms_of_outer",
    "transpose",
]

ROWS_4, ROWS_2, ROWS_1 = SUMS // 4, SUMS // 2, min(12, SUMS)
"""Taps of a block of `outer`, by its vectors of channels."""
ROWS_MOST = max(ROWS_4, ROWS_2, ROWS_1)
TAPS = 5
"""Taps that `dots` sums at a time."""
HEAD = 3
"""A run is (first column, length, batch item, index on each axis)."""


def height(vectors: int) -> int:
    """Taps of the blocks that do most of the work on so many vectors of channels."""
    return ROWS_4 if vectors >= 4 else ROWS_2 if vectors >= 2 else ROWS_1


@compiled
def cut(first, last, counts, runs):
    """Cut positions `first … last` into runs along the last axis; how many there are."""
    apart()
    rank = counts.size
    rest = first
    for a in range(rank - 1, -1, -1):
        runs[0, HEAD + a] = rest % counts[a]
        rest //= counts[a]
    runs[0, 2] = rest
    n, q = 0, first
    while True:
        length = min(counts[rank - 1] - runs[n, HEAD + rank - 1], last - q)
        runs[n, 0], runs[n, 1] = q - first, length
        q += length
        if q >= last:
            return n + 1
        for i in range(2, HEAD + rank):
            runs[n + 1, i] = runs[n, i]
        n += 1
        runs[n, HEAD + rank - 1] = 0
        a = rank - 2
        while a >= 0:
            runs[n, HEAD + a] += 1
            if runs[n, HEAD + a] < counts[a]:
                break
            runs[n, HEAD + a] = 0
            a -= 1
        if a < 0:
            runs[n, 2] += 1


@kernel
def transpose(
    first, last, start, stop, block, counts, source, offsets, channel, strides, groups, rows,
    lanes, target, zero, size, vector,
):  # fmt: skip
    """Windows as rows of channels: for each position of `start … stop`, `groups × lanes` numbers.

    Units are blocks of positions; lanes beyond a group's `rows` channels are zeros.
    """
    rank = counts.size
    runs = np.empty((block, HEAD + rank), np.int64)
    width = groups * lanes
    for unit in range(first, last):
        begin = start + unit * block
        n = cut(begin, min(stop, begin + block), counts, runs)
        for i in range(n):
            offset = offsets[runs[i, 2]]
            for a in range(rank):
                offset += runs[i, HEAD + a] * strides[a]
            row = target + (begin - start + runs[i, 0]) * width * size
            stride = strides[rank - 1]
            squares = runs[i, 1] // vector * vector if stride == 1 else 0
            for g in range(groups):
                for r in range(0, lanes, vector):
                    at = source + (offset + (g * rows + r) * channel) * size
                    to = row + (g * lanes + r) * size
                    known = min(vector, rows - r)
                    first_left = squares if known == vector else 0
                    for j in range(0, first_left, vector):
                        transpose_square(
                            to + j * width * size, width * size, at + j * size, channel * size, zero
                        )
                    out, values = elements(to, zero), elements(at, zero)
                    for j in range(first_left, runs[i, 1]):
                        for q in range(known):
                            out[j * width + q] = values[q * channel + j * stride]
                        for q in range(known, vector):
                            out[j * width + q] = zero


def rooms_of_outer(slab: Any, deepest: int, size: int) -> Sizes:
    """Bytes of the slab of `outer`: as many channels as a chunk has, and a vector that may be written past them."""
    return (deepest * area_of(slab) * size + VECTOR_BYTES,)


@kernel
def outer(
    first, last, rooms, start, stop, base, counts, lengths, steps, blocks, shape, planes, table, chunks,
    source, offsets, channel, strides, groups, in_channels, windows, lanes, sums, sums_pitch,
    zero, size, vector,
):  # fmt: skip
    """Units (group, chunk): add `Σ_position slab[k, position] · windows[position, channel]`.

    A chunk is (first channel, last channel, rows, first plane, last plane) and a row of `table`,
    offsets in the slab; one of several channels has all planes. Blocks `start … stop` of output rows
    are summed one by one; `windows` begins at position `base`. `rooms` has the address of the slab.
    """
    rank = counts.size
    height, width = shape
    slab_at = rooms[0]
    index = np.zeros(rank, np.int64)
    step = groups * lanes * size
    pitch = lanes * size
    for unit in range(first, last):
        group, number = unit // chunks.shape[0], unit % chunks.shape[0]
        rows = chunks[number, 2]
        used, end = chunks[number, 3], chunks[number, 4]
        for b in range(start, stop):
            item, row, column = place(b, counts, blocks, index)
            high = min(blocks[0], counts[rank - 2] - row)
            wide = min(blocks[1], counts[rank - 1] - column)
            lay(
                slab_at + used * height * width * size, index, row, column, shape,
                planes[used:end], source, offsets[item], channel, strides, lengths, steps,
                group * in_channels + chunks[number, 0], group * in_channels + chunks[number, 1],
                zero, size,
            )  # fmt: skip
            position = item
            for a in range(rank - 2):
                position = position * counts[a] + index[a]
            position = (position * counts[rank - 2] + row) * counts[rank - 1] + column
            at = windows + (position - base) * step + group * pitch
            to = sums + unit * sums_pitch * pitch
            jump = (width - wide) * size
            lane = 0
            while lane < lanes:
                left = (lanes - lane) // vector
                x, y = at + lane * size, to + lane * size
                if left >= 4:
                    for r in range(0, rows, ROWS_4):
                        multiply_across(
                            ROWS_4, 4, slab_at, table[number, r:].ctypes.data, x, step,
                            y + r * pitch, pitch, wide, high, jump, zero,
                        )  # fmt: skip
                    lane += 4 * vector
                elif left >= 2:
                    for r in range(0, rows, ROWS_2):
                        multiply_across(
                            ROWS_2, 2, slab_at, table[number, r:].ctypes.data, x, step,
                            y + r * pitch, pitch, wide, high, jump, zero,
                        )  # fmt: skip
                    lane += 2 * vector
                else:
                    for r in range(0, rows, ROWS_1):
                        multiply_across(
                            ROWS_1, 1, slab_at, table[number, r:].ctypes.data, x, step,
                            y + r * pitch, pitch, wide, high, jump, zero,
                        )  # fmt: skip
                    lane += vector


def rooms_of_dots(slab: Any, size: int) -> Sizes:
    """Bytes of the slab of `dots`, and a vector that may be written past it, and of its lines."""
    return area_of(slab) * size + VECTOR_BYTES, int(np.prod(slab.blocks)) * size


@kernel
def dots(
    first, last, rooms, units, counts, lengths, steps, blocks, shape, planes, table, source, offsets,
    channel, strides, in_channels, windows, window_offsets, window_channel, window_strides, rows,
    sums, zero, size,
):  # fmt: skip
    """Units (group): add `Σ_position slab · window` to `sums[group, row, channel, tap]`.

    `table` has the taps' offsets in the slab, in bytes, and `sums` as many taps: a multiple of TAPS.
    `rooms` has the addresses of the slab, and of lines for windows whose numbers are not side by side.
    """
    rank = counts.size
    width = shape[1]
    slab_at, lines = rooms[0], elements(rooms[1], zero)
    index = np.zeros(rank, np.int64)
    stride = window_strides[rank - 1]
    for group in range(first, last):
        for b in range(units):
            item, row, column = place(b, counts, blocks, index)
            high = min(blocks[0], counts[rank - 2] - row)
            wide = min(blocks[1], counts[rank - 1] - column)
            start = window_offsets[item] + row * window_strides[rank - 2] + column * stride
            for a in range(rank - 2):
                start += index[a] * window_strides[a]
            for c in range(in_channels):
                lay(
                    slab_at, index, row, column, shape, planes, source, offsets[item], channel,
                    strides, lengths, steps, group * in_channels + c, group * in_channels + c + 1,
                    zero, size,
                )  # fmt: skip
                for r in range(rows):
                    at = windows + (start + (group * rows + r) * window_channel) * size
                    line_step = window_strides[rank - 2] * size
                    if stride != 1:
                        for y in range(high):
                            values = elements(at + y * line_step, zero)
                            for x in range(wide):
                                lines[y * wide + x] = values[x * stride]
                        at, line_step = rooms[1], wide * size
                    for t in range(0, table.size, TAPS):
                        products.dots(
                            TAPS, slab_at, table[t:].ctypes.data, at, wide, high, width * size,
                            line_step, sums[group, r, c, t:].ctypes.data, zero,
                        )  # fmt: skip
