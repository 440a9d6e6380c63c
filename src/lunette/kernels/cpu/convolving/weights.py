"""Compiled loops of a weight's gradient: sums over positions of image cell × window.

Where a group has many rows, windows are transposed and a vector holds channels; where it has few,
a vector holds positions.
"""

# mypy: disallow-untyped-defs = False
from __future__ import annotations

from functools import cache
from typing import Any

from numba import types

from lunette.kernels.cpu.compiling import machine
from lunette.kernels.cpu.compiling.machine import apart, compiled, pointer
from lunette.kernels.cpu.convolving import products
from lunette.kernels.cpu.convolving.blocks import (
    BASE,
    BLOCK_COLUMNS,
    BLOCK_ROWS,
    CHUNK_COUNT,
    CHUNKS,
    COUNTS,
    DOTS_CHANNEL,
    DOTS_CHANNELS,
    DOTS_INTEGERS,
    DOTS_OFFSETS,
    DOTS_ROWS,
    DOTS_SOURCE,
    DOTS_STRIDES,
    DOTS_SUMS,
    DOTS_TABLE,
    DOTS_TAPS,
    DOTS_UNITS,
    DOTS_WINDOWS,
    GROUPS,
    HEAD,
    HEIGHT,
    LANES,
    LENGTHS,
    LINES_AT,
    OUTER_CHANNEL,
    OUTER_CHANNELS,
    OUTER_INTEGERS,
    OUTER_OFFSETS,
    OUTER_PITCH,
    OUTER_SOURCE,
    OUTER_STRIDES,
    OUTER_SUMS,
    OUTER_TABLE,
    PLANE_COUNT,
    PLANES,
    RANK,
    START,
    STEPS,
    STOP,
    SUMS_PITCH,
    TURN_BLOCK,
    TURN_CHANNEL,
    TURN_COUNTS,
    TURN_GROUPS,
    TURN_LANES,
    TURN_OFFSETS,
    TURN_RANK,
    TURN_ROWS,
    TURN_SOURCE,
    TURN_START,
    TURN_STOP,
    TURN_STRIDES,
    TURN_TARGET,
    WIDTH,
    WINDOW_CHANNEL,
    WINDOW_OFFSETS,
    WINDOW_STRIDES,
    WINDOWS,
)
from lunette.kernels.cpu.convolving.products import multiply_across
from lunette.kernels.cpu.convolving.sizes import ROWS_1, ROWS_2, ROWS_4, TAPS, VECTOR_BYTES
from lunette.kernels.cpu.convolving.slabs import elements, lay, place, zero_of
from lunette.kernels.cpu.convolving.vectors import transpose_square

__all__ = ["dots_kernel", "outer_kernel", "transpose_kernel"]


@compiled
def cut(first, last, counts, rank, runs):
    """Cut positions `first … last` into runs along the last axis; how many there are."""
    apart()
    width = HEAD + rank
    rest = first
    for a in range(rank - 1, -1, -1):
        runs[HEAD + a] = rest % counts[a]
        rest //= counts[a]
    runs[2] = rest
    n, q = 0, first
    while True:
        length = min(counts[rank - 1] - runs[n * width + HEAD + rank - 1], last - q)
        runs[n * width], runs[n * width + 1] = q - first, length
        q += length
        if q >= last:
            return n + 1
        for i in range(2, HEAD + rank):
            runs[(n + 1) * width + i] = runs[n * width + i]
        n += 1
        runs[n * width + HEAD + rank - 1] = 0
        a = rank - 2
        while a >= 0:
            runs[n * width + HEAD + a] += 1
            if runs[n * width + HEAD + a] < counts[a]:
                break
            runs[n * width + HEAD + a] = 0
            a -= 1
        if a < 0:
            runs[n * width + 2] += 1


@cache
def transpose_kernel(dtype: str) -> Any:
    """Windows as rows of channels: for each position of `start … stop`, `groups × lanes` numbers.

    Units are blocks of positions; lanes beyond a group's `rows` channels are zeros.
    """
    zero, size = zero_of(dtype)
    vector = VECTOR_BYTES // size

    @machine.kernel
    def transpose(first, last, told, scratch, _a, _b, _c, _d):
        a, runs = pointer(told, types.int64), pointer(scratch, types.int64)
        start, stop, block, rank = a[TURN_START], a[TURN_STOP], a[TURN_BLOCK], a[TURN_RANK]
        counts, offsets = (
            pointer(a[TURN_COUNTS], types.int64),
            pointer(a[TURN_OFFSETS], types.int64),
        )
        source, channel, strides = (
            a[TURN_SOURCE],
            a[TURN_CHANNEL],
            pointer(a[TURN_STRIDES], types.int64),
        )
        groups, rows, lanes, target = a[TURN_GROUPS], a[TURN_ROWS], a[TURN_LANES], a[TURN_TARGET]
        width = groups * lanes
        for unit in range(first, last):
            begin = start + unit * block
            n = cut(begin, min(stop, begin + block), counts, rank, runs)
            for i in range(n):
                run = i * (HEAD + rank)
                offset = offsets[runs[run + 2]]
                for axis in range(rank):
                    offset += runs[run + HEAD + axis] * strides[axis]
                row = target + (begin - start + runs[run]) * width * size
                stride = strides[rank - 1]
                squares = runs[run + 1] // vector * vector if stride == 1 else 0
                for g in range(groups):
                    for r in range(0, lanes, vector):
                        at = source + (offset + (g * rows + r) * channel) * size
                        to = row + (g * lanes + r) * size
                        known = min(vector, rows - r)
                        first_left = squares if known == vector else 0
                        for j in range(0, first_left, vector):
                            transpose_square(
                                to + j * width * size,
                                width * size,
                                at + j * size,
                                channel * size,
                                zero,
                            )
                        out, values = elements(to, zero), elements(at, zero)
                        for j in range(first_left, runs[run + 1]):
                            for q in range(known):
                                out[j * width + q] = values[q * channel + j * stride]
                            for q in range(known, vector):
                                out[j * width + q] = zero

    return transpose


@cache
def outer_kernel(dtype: str) -> Any:
    """Units (group, chunk): add `Σ_position slab[k, position] · windows[position, channel]`.

    A chunk is (first channel, last channel, rows, first plane, last plane) and a row of `table`,
    offsets in the slab; one of several channels has all planes. Blocks `start … stop` of output rows
    are summed one by one; `windows` begins at position `base`.
    """
    zero, size = zero_of(dtype)
    vector = VECTOR_BYTES // size

    @machine.kernel
    def outer(first, last, told, scratch, _a, _b, _c, _d):
        a = pointer(told, types.int64)
        rank, counts, lengths = (
            a[RANK],
            pointer(a[COUNTS], types.int64),
            pointer(a[LENGTHS], types.int64),
        )
        steps, block_rows, block_columns = (
            pointer(a[STEPS], types.int64),
            a[BLOCK_ROWS],
            a[BLOCK_COLUMNS],
        )
        height, width = a[HEIGHT], a[WIDTH]
        start, stop, base = a[START], a[STOP], a[BASE]
        table, table_pitch = a[OUTER_TABLE], a[OUTER_PITCH]
        chunks, chunk_count = pointer(a[CHUNKS], types.int64), a[CHUNK_COUNT]
        source, offsets = a[OUTER_SOURCE], pointer(a[OUTER_OFFSETS], types.int64)
        channel, strides = a[OUTER_CHANNEL], pointer(a[OUTER_STRIDES], types.int64)
        groups, in_channels, windows, lanes = a[GROUPS], a[OUTER_CHANNELS], a[WINDOWS], a[LANES]
        sums, sums_pitch = a[OUTER_SUMS], a[SUMS_PITCH]
        slab_at, index = scratch, pointer(scratch + a[OUTER_INTEGERS], types.int64)
        step = groups * lanes * size
        pitch = lanes * size
        for unit in range(first, last):
            group, number = unit // chunk_count, unit % chunk_count
            chunk = number * 5
            rows, used, end = chunks[chunk + 2], chunks[chunk + 3], chunks[chunk + 4]
            for b in range(start, stop):
                item, row, column = place(b, counts, rank, block_rows, block_columns, index)
                high = min(block_rows, counts[rank - 2] - row)
                wide = min(block_columns, counts[rank - 1] - column)
                some = pointer(a[PLANES] + used * rank * 8, types.int64)
                lay(
                    slab_at + used * height * width * size, index, row, column, rank, height, width, some,
                    end - used, source, offsets[item], channel, strides, lengths, steps,
                    group * in_channels + chunks[chunk], group * in_channels + chunks[chunk + 1], zero, size,
                )  # fmt: skip
                position = item
                for axis in range(rank - 2):
                    position = position * counts[axis] + index[axis]
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
                                ROWS_4, 4, slab_at, table + (number * table_pitch + r) * 8, x, step,
                                y + r * pitch, pitch, wide, high, jump, zero,
                            )  # fmt: skip
                        lane += 4 * vector
                    elif left >= 2:
                        for r in range(0, rows, ROWS_2):
                            multiply_across(
                                ROWS_2, 2, slab_at, table + (number * table_pitch + r) * 8, x, step,
                                y + r * pitch, pitch, wide, high, jump, zero,
                            )  # fmt: skip
                        lane += 2 * vector
                    else:
                        for r in range(0, rows, ROWS_1):
                            multiply_across(
                                ROWS_1, 1, slab_at, table + (number * table_pitch + r) * 8, x, step,
                                y + r * pitch, pitch, wide, high, jump, zero,
                            )  # fmt: skip
                        lane += vector

    return outer


@cache
def dots_kernel(dtype: str) -> Any:
    """Units (group): add `Σ_position slab · window` to `sums[group, row, channel, tap]`.

    `table` has the taps' offsets in the slab, in bytes, and `sums` as many taps: a multiple of TAPS.
    """
    zero, size = zero_of(dtype)

    @machine.kernel
    def dots(first, last, told, scratch, _a, _b, _c, _d):
        a = pointer(told, types.int64)
        rank, counts, lengths = (
            a[RANK],
            pointer(a[COUNTS], types.int64),
            pointer(a[LENGTHS], types.int64),
        )
        steps, planes = pointer(a[STEPS], types.int64), pointer(a[PLANES], types.int64)
        block_rows, block_columns, plane_count = a[BLOCK_ROWS], a[BLOCK_COLUMNS], a[PLANE_COUNT]
        height, width = a[HEIGHT], a[WIDTH]
        units, table, taps = a[DOTS_UNITS], a[DOTS_TABLE], a[DOTS_TAPS]
        source, offsets = a[DOTS_SOURCE], pointer(a[DOTS_OFFSETS], types.int64)
        channel, strides = a[DOTS_CHANNEL], pointer(a[DOTS_STRIDES], types.int64)
        in_channels, rows, sums = a[DOTS_CHANNELS], a[DOTS_ROWS], a[DOTS_SUMS]
        windows, window_offsets = a[DOTS_WINDOWS], pointer(a[WINDOW_OFFSETS], types.int64)
        window_channel, window_strides = a[WINDOW_CHANNEL], pointer(a[WINDOW_STRIDES], types.int64)
        slab_at, lines_at = scratch, scratch + a[LINES_AT]
        lines, index = elements(lines_at, zero), pointer(scratch + a[DOTS_INTEGERS], types.int64)
        stride = window_strides[rank - 1]
        for group in range(first, last):
            for b in range(units):
                item, row, column = place(b, counts, rank, block_rows, block_columns, index)
                high = min(block_rows, counts[rank - 2] - row)
                wide = min(block_columns, counts[rank - 1] - column)
                start = window_offsets[item] + row * window_strides[rank - 2] + column * stride
                for axis in range(rank - 2):
                    start += index[axis] * window_strides[axis]
                for c in range(in_channels):
                    lay(
                        slab_at, index, row, column, rank, height, width, planes, plane_count, source,
                        offsets[item], channel, strides, lengths, steps, group * in_channels + c,
                        group * in_channels + c + 1, zero, size,
                    )  # fmt: skip
                    for r in range(rows):
                        at = windows + (start + (group * rows + r) * window_channel) * size
                        line_step = window_strides[rank - 2] * size
                        if stride != 1:
                            for y in range(high):
                                values = elements(at + y * line_step, zero)
                                for x in range(wide):
                                    lines[y * wide + x] = values[x * stride]
                            at, line_step = lines_at, wide * size
                        total = sums + ((group * rows + r) * in_channels + c) * taps * size
                        for t in range(0, taps, TAPS):
                            products.dots(
                                TAPS, slab_at, table + t * 8, at, wide, high, width * size,
                                line_step, total + t * size, zero,
                            )  # fmt: skip

    return dots
