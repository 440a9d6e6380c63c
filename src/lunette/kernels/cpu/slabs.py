"""Compiled loops over slabs: the part of the image that a block of output rows reads, padded.

A slab has, for each channel, one *plane* for each way that taps can fall between the steps of the
last two axes and on the axes before them. In a plane, output (row, column) and a tap differ by a
fixed offset, so windows are read where they lie, whatever the stride, and nothing is unfolded.
"""

# mypy: disallow-untyped-defs = False
from __future__ import annotations

import numpy as np

from lunette.kernels.cpu.machine import compiled, kernel
from lunette.kernels.cpu.products import multiply_add
from lunette.kernels.cpu.tiles import COLUMNS, ROWS, elements, fill, put
from lunette.kernels.cpu.vectors import VECTOR_BYTES, copy_vectors

__all__ = ["BLOCKS", "correlate", "lay", "place"]

BLOCKS = ((ROWS, COLUMNS), (ROWS // 2, 2 * COLUMNS), (1, 12))
"""Output channels × vectors of positions of a block: the fewer the channels, the longer."""


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


def _correlation(height, width):
    """The kernel for blocks of `height` output channels and `width` vectors of positions."""

    @kernel
    def correlate(
        first, last, units, counts, lengths, steps, blocks, shape, planes, table, sources, offsets,
        channels, strides, in_channels, packed, rows, group_rows, bias, out, out_offsets,
        out_channel, out_strides, zero, size,
    ):  # fmt: skip
        """Units (group, block of output rows): `out = bias + Σ packed · source`, as for tiles.

        `table` has the offset in the slab, in bytes, of each (channel, tap).
        """
        rank, depth = counts.size, table.size
        high_slab, wide_slab = shape
        area = in_channels * planes.shape[0] * high_slab * wide_slab
        lanes = VECTOR_BYTES // size
        columns, pitch, line = width * lanes, width * VECTOR_BYTES, 64 // size
        slab = np.empty(sources.size * area + columns + line, type(zero))
        slab[sources.size * area :] = zero
        sums = np.empty(height * columns + line, type(zero))
        starts = np.empty(height * lanes + line, type(zero))
        slab_at, sums_at = -(-slab.ctypes.data // 64) * 64, -(-sums.ctypes.data // 64) * 64
        starts_at = -(-starts.ctypes.data // 64) * 64
        spread = elements(starts_at, zero)
        index = np.zeros(rank, np.int64)
        stride = out_strides[rank - 1]
        for unit in range(first, last):
            group = unit // units
            item, row, column = place(unit % units, counts, blocks, index)
            high = min(blocks[0], counts[rank - 2] - row)
            wide = min(blocks[1], counts[rank - 1] - column)
            origin = out_offsets[item] + row * out_strides[rank - 2] + column * stride
            for a in range(rank - 2):
                origin += index[a] * out_strides[a]
            for s in range(sources.size):
                lay(
                    slab_at + s * area * size, index, row, column, shape, planes, sources[s],
                    offsets[s, item], channels[s], strides[s], lengths, steps,
                    group * in_channels, (group + 1) * in_channels, zero, size,
                )  # fmt: skip
            for begin in range(0, (high - 1) * wide_slab + wide, columns):
                for r in range(0, rows, height):
                    for q in range(height):
                        value = zero
                        if r + q < rows and bias.size:
                            value = bias[group * group_rows + r + q]
                        for j in range(lanes):
                            spread[q * lanes + j] = value
                    at, row_step, step = starts_at, VECTOR_BYTES, 0
                    for s in range(sources.size):
                        block = group * -(-rows // height) * height + r
                        multiply_add(
                            height, width, 1, packed[s] + block * depth * size,
                            slab_at + (s * area + begin) * size, table.ctypes.data, at, row_step,
                            step, sums_at, pitch, depth, zero,
                        )  # fmt: skip
                        at, row_step, step = sums_at, pitch, VECTOR_BYTES
                    # Columns beyond the output's width lie between its rows: they are left out.
                    y, x, j = begin // wide_slab, begin % wide_slab, 0
                    while j < columns and y < high:
                        count = min(wide - x, columns - j)
                        if count > 0:
                            offset = origin + y * out_strides[rank - 2] + x * stride
                            for q in range(min(height, rows - r)):
                                channel = (group * group_rows + r + q) * out_channel
                                to = out + (offset + channel) * size
                                put(to, sums_at + (q * columns + j) * size, count, stride, zero)
                        j += wide_slab - x
                        x = 0
                        y += 1
        # An array is freed after its last mention, and these are in use until here.
        return slab.size, sums.size, starts.size

    return correlate


correlate = tuple(_correlation(height, width) for height, width in BLOCKS)
