"""Compiled loops over slabs: the part of the image that a block of output rows reads, padded.

A slab has, for each channel, one *plane* for each way that taps can fall between the steps of the
last two axes and on the axes before them. In a plane, output (row, column) and a tap differ by a
fixed offset, so windows are read where they lie, whatever the stride, and nothing is unfolded.
"""

# mypy: disallow-untyped-defs = False
from __future__ import annotations

import numpy as np

from lunette.kernels.cpu.machine import compiled, kernel
from lunette.kernels.cpu.tiles import COLUMNS, ROWS, elements, fill
from lunette.kernels.cpu.vectors import SUMS, copy_vectors, dot, multiply_across, multiply_add

__all__ = ["ROWS_1", "correlate", "dots", "outer"]

ROWS_4, ROWS_2, ROWS_1 = SUMS // 4, SUMS // 2, min(12, SUMS)
"""Taps of a block of `outer`, by its vectors of channels."""


@compiled
def place(unit, counts, blocks, index):
    """Batch item, first row and first column of a unit (item, outer axes, block of rows, of columns).

    `blocks` is (rows of a block, columns of a block); `index` takes the indices on the outer axes.
    """
    rank = counts.size
    wide = -(-counts[rank - 1] // blocks[1])
    column, unit = unit % wide * blocks[1], unit // wide
    high = -(-counts[rank - 2] // blocks[0])
    row, unit = unit % high * blocks[0], unit // high
    for a in range(rank - 3, -1, -1):
        index[a] = unit % counts[a]
        unit //= counts[a]
    return unit, row, column


@compiled
def lay(
    target, index, row, column, shape, planes, source, offset, channel, strides, lengths, steps,
    first, last, zero, size,
):  # fmt: skip
    """Planes of channels `first … last` of the block at (row, column): zeros around the image."""
    height, width = shape
    rank = steps.size
    step, stride = steps[rank - 1], strides[rank - 1] * steps[rank - 1]
    for c in range(first, last):
        for p in range(planes.shape[0]):
            start, outside = offset + c * channel, False
            for a in range(rank - 2):
                position = index[a] * steps[a] + planes[p, a]
                outside = outside or not 0 <= position < lengths[a]
                start += position * strides[a]
            position = column * step + planes[p, rank - 1]
            start += position * strides[rank - 1]
            low, high = 0, 0
            if position < lengths[rank - 1]:
                low = 0 if position >= 0 else min(width, (step - 1 - position) // step)
                high = max(low, min(width, (lengths[rank - 1] - 1 - position) // step + 1))
            for y in range(height):
                line = (row + y) * steps[rank - 2] + planes[p, rank - 2]
                if outside or low == high or not 0 <= line < lengths[rank - 2]:
                    fill(target, width, zero)
                else:
                    at = source + (start + line * strides[rank - 2] + low * stride) * size
                    if low:
                        fill(target, low, zero)
                    if stride == 1:
                        copy_vectors(target + low * size, at, high - low, zero)
                    else:
                        out, values = elements(target + low * size, zero), elements(at, zero)
                        for j in range(high - low):
                            out[j] = values[j * stride]
                    if high < width:
                        fill(target + high * size, width - high, zero)
                target += width * size


@kernel
def correlate(
    first, last, units, counts, lengths, steps, blocks, shape, planes, table, sources, offsets,
    channels, strides, in_channels, packed, rows, group_rows, bias, out, out_offsets, out_channel,
    out_strides, zero, size, columns,
):  # fmt: skip
    """Units (group, block of output rows): `out = bias + Σ packed · source`, as tiles.correlate.

    `table` has the offset in the slab, in bytes, of each (channel, tap).
    """
    rank, depth = counts.size, table.size
    height, width = shape
    area = in_channels * planes.shape[0] * height * width
    line = 64 // size
    slab = np.empty(sources.size * area + columns + line, type(zero))
    slab[sources.size * area :] = zero
    sums = np.empty(ROWS * columns + line, type(zero))
    slab_at, sums_at = -(-slab.ctypes.data // 64) * 64, -(-sums.ctypes.data // 64) * 64
    block = elements(sums_at, zero)
    index = np.zeros(rank, np.int64)
    pitch = columns * size
    for unit in range(first, last):
        group = unit // units
        item, row, column = place(unit % units, counts, blocks, index)
        high = min(blocks[0], counts[rank - 2] - row)
        wide = min(blocks[1], counts[rank - 1] - column)
        origin = out_offsets[item] + row * out_strides[rank - 2] + column * out_strides[rank - 1]
        for a in range(rank - 2):
            origin += index[a] * out_strides[a]
        for s in range(sources.size):
            lay(
                slab_at + s * area * size, index, row, column, shape, planes, sources[s],
                offsets[s, item], channels[s], strides[s], lengths, steps, group * in_channels,
                (group + 1) * in_channels, zero, size,
            )  # fmt: skip
        for begin in range(0, (high - 1) * width + wide, columns):
            for r in range(0, rows, ROWS):
                for q in range(ROWS):
                    value = zero
                    if r + q < rows and bias.size:
                        value = bias[group * group_rows + r + q]
                    for j in range(columns):
                        block[q * columns + j] = value
                for s in range(sources.size):
                    multiply_add(
                        ROWS, COLUMNS, 1,
                        packed[s] + (group * -(-rows // ROWS) * ROWS + r) * depth * size,
                        slab_at + (s * area + begin) * size, table.ctypes.data, sums_at, pitch,
                        depth, zero,
                    )  # fmt: skip
                # Columns beyond the output's width lie between its rows: they are left out.
                y, x, j = begin // width, begin % width, 0
                while j < columns and y < high:
                    count = min(wide - x, columns - j)
                    if count > 0:
                        offset = origin + y * out_strides[rank - 2] + x * out_strides[rank - 1]
                        for q in range(min(ROWS, rows - r)):
                            channel = (group * group_rows + r + q) * out_channel
                            to = out + (offset + channel) * size
                            at = sums_at + (q * columns + j) * size
                            if out_strides[rank - 1] == 1:
                                copy_vectors(to, at, count, zero)
                            else:
                                results, values = elements(to, zero), elements(at, zero)
                                for i in range(count):
                                    results[i * out_strides[rank - 1]] = values[i]
                    j += width - x
                    x = 0
                    y += 1
    # An array is freed after its last mention, and these are in use until here by their addresses.
    return slab.size, sums.size


@kernel
def outer(
    first, last, start, stop, base, counts, lengths, steps, blocks, shape, planes, table, chunks,
    source, offsets, channel, strides, groups, in_channels, windows, lanes, sums, sums_pitch,
    zero, size, vector,
):  # fmt: skip
    """Units (group, chunk): add `Σ_position slab[k, position] · windows[position, channel]`.

    A chunk is (first channel, last channel, rows, first plane, last plane) and a row of `table`,
    offsets in the slab; one of several channels has all planes. Blocks `start … stop` of output rows
    are summed one by one; `windows` begins at position `base`.
    """
    rank = counts.size
    height, width = shape
    deepest = 0
    for i in range(chunks.shape[0]):
        deepest = max(deepest, chunks[i, 1] - chunks[i, 0])
    line = 64 // size
    slab = np.empty(deepest * planes.shape[0] * height * width + line, type(zero))
    slab_at = -(-slab.ctypes.data // 64) * 64
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
    # An array is freed after its last mention, and this is in use until here by their addresses.
    return slab.size


@kernel
def dots(
    first, last, units, counts, lengths, steps, blocks, shape, planes, table, source, offsets,
    channel, strides, in_channels, windows, window_offsets, window_channel, window_strides, rows,
    sums, zero, size,
):  # fmt: skip
    """Units (group): add `Σ_position slab · window` to `sums[group, row, channel, tap]`.

    For groups of few rows: a vector holds positions, where that of `outer` holds channels.
    """
    rank, count_taps = counts.size, table.size
    height, width = shape
    area = planes.shape[0] * height * width
    slab = np.empty(area + 1, type(zero))
    lines = np.empty(rows * blocks[0] * blocks[1], type(zero))
    slab_at = np.int64(slab.ctypes.data)
    index = np.zeros(rank, np.int64)
    for group in range(first, last):
        for b in range(units):
            item, row, column = place(b, counts, blocks, index)
            high = min(blocks[0], counts[rank - 2] - row)
            wide = min(blocks[1], counts[rank - 1] - column)
            start = window_offsets[item] + row * window_strides[rank - 2]
            start += column * window_strides[rank - 1]
            for a in range(rank - 2):
                start += index[a] * window_strides[a]
            for r in range(rows):
                for y in range(high):
                    offset = start + (group * rows + r) * window_channel
                    offset += y * window_strides[rank - 2]
                    at = elements(windows + offset * size, zero)
                    for x in range(wide):
                        value = at[x * window_strides[rank - 1]]
                        lines[(r * blocks[0] + y) * blocks[1] + x] = value
            for c in range(in_channels):
                lay(
                    slab_at, index, row, column, shape, planes, source, offsets[item], channel,
                    strides, lengths, steps, group * in_channels + c, group * in_channels + c + 1,
                    zero, size,
                )  # fmt: skip
                for r in range(rows):
                    for t in range(count_taps):
                        total = zero
                        for y in range(high):
                            line = lines[(r * blocks[0] + y) * blocks[1] :].ctypes.data
                            total += dot(slab_at + table[t] + y * width * size, line, wide, zero)
                        sums[group, r, c, t] += total
    # An array is freed after its last mention, and these are in use until here by their addresses.
    return slab.size, lines.size
