"""Compiled loops over input tiles: what a tile of outputs reads of the image, with zeros for its padding.

An input tile has, for each channel, one *plane* for each way that taps can fall between the steps of the last two axes
and on the axes before them. In a plane, output (row, column) and a tap differ by a fixed offset. So windows are read
where they lie, whatever the stride, and nothing is unfolded.
"""

# mypy: disallow-untyped-defs = False
from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.extending import intrinsic

from lunette.kernels.cpu.conv.sizes import VECTOR_BYTES
from lunette.kernels.cpu.conv.vectors import (
    copy_column,
    copy_vectors,
    lay_row,
    transpose_part,
    transpose_square,
)
from lunette.kernels.cpu.jit.intrinsics import compiled, noinline

__all__ = [
    "COLUMN",
    "INDEX",
    "ITEM",
    "ROW",
    "elements",
    "load_tile",
    "locate",
    "offset_of",
    "out_address",
    "put",
    "size_of",
    "store_transposed",
    "tile_extent",
    "zero_of",
    "zeros",
]  # fmt: skip

ITEM, ROW, COLUMN, INDEX = range(4)
"""Where a tile is: batch item, first row and column, and the index on each outer axis."""


def zero_of(dtype: str) -> Any:
    """The zero of a type of numbers: kernels know the type by it."""
    return np.dtype(dtype).type(0)


@intrinsic  # type: ignore[untyped-decorator]
def elements(context: Any, address: Any, zero: Any) -> Any:
    """The address as a pointer to elements of the type of `zero`."""
    result = types.CPointer(zero)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

    return result(address, zero), generate


@intrinsic  # type: ignore[untyped-decorator]
def size_of(context: Any, zero: Any) -> Any:
    """Bytes of a number of the type of `zero`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return context.get_constant(types.int64, zero.bitwidth // 8)

    return types.int64(zero), generate


@compiled
def zeros(to, count, zero):
    """So many zeros."""
    out = elements(to, zero)
    for i in range(count):
        out[i] = zero


@compiled
def put(to, to_row, at, at_row, rows, count, stride, zero):
    """Copy `count` contiguous numbers to places `stride` elements apart, in each of `rows` rows; all but these in bytes."""
    size = size_of(zero)
    lanes = VECTOR_BYTES // size
    if stride != 1:
        for r in range(rows):
            results, values = elements(to + r * to_row, zero), elements(at + r * at_row, zero)
            for j in range(count):
                results[j * stride] = values[j]
    elif rows == 1:
        copy_vectors(to, at, count, zero)
    else:
        while count > 0:
            copy_column(to, to_row, at, at_row, rows, min(lanes, count), zero)
            to += lanes * size
            at += lanes * size
            count -= lanes


@compiled
def locate(plan, tile, at):
    """Write where a tile is (item, outer axes, rows, columns) to `at`."""
    noinline()
    rank, lengths = plan.rank, plan.out_len
    across = -(-lengths[rank - 1] // plan.tile_columns)
    at[COLUMN], tile = tile % across * plan.tile_columns, tile // across
    down = -(-lengths[rank - 2] // plan.tile_rows)
    at[ROW], tile = tile % down * plan.tile_rows, tile // down
    for a in range(rank - 3, -1, -1):
        at[INDEX + a] = tile % lengths[a]
        tile //= lengths[a]
    at[ITEM] = tile


@compiled
def tile_extent(plan, at):
    """Rows and columns of the tile at `at`: fewer at the ends."""
    rank = plan.rank
    high = min(plan.tile_rows, plan.out_len[rank - 1 - 1] - at[ROW])
    return high, min(plan.tile_columns, plan.out_len[rank - 1] - at[COLUMN])


@compiled
def offset_of(rank, strides, at):
    """The offset of a tile's first output, in elements, without its batch item's."""
    offset = at[ROW] * strides[rank - 2] + at[COLUMN] * strides[rank - 1]
    for a in range(rank - 2):
        offset += at[INDEX + a] * strides[a]
    return offset


@compiled
def load_tile(plan, source, target, at, channels, planes, zero):
    """Planes `planes[0] … planes[1]` of channels `channels[0] … channels[1]` of the tile at `at`.

    Rows are written as whole vectors, so up to a vector beyond the last plane.
    """
    noinline()
    rank, size, height, width = plan.rank, size_of(zero), plan.height, plan.width
    lengths, steps, strides = plan.in_len, plan.step, source.stride
    row, column, offset = at[ROW], at[COLUMN], source.item[at[ITEM]]
    step, stride = steps[rank - 1], strides[rank - 1] * steps[rank - 1]
    # Memory answers after about as long as it takes to copy a thousand numbers.
    ahead = max(1, 1024 // (height * width)) * source.channel * size
    for c in range(channels[0], channels[1]):
        for p in range(planes[0], planes[1]):
            start, outside = offset + c * source.channel, False
            for a in range(rank - 2):
                position = at[INDEX + a] * steps[a] + plan.planes[p * rank + a]
                outside = outside or not 0 <= position < lengths[a]
                start += position * strides[a]
            position = column * step + plan.planes[p * rank + rank - 1]
            start += position * strides[rank - 1]
            low, high = 0, 0
            if position < lengths[rank - 1]:
                low = 0 if position >= 0 else min(width, (step - 1 - position) // step)
                high = max(low, min(width, (lengths[rank - 1] - 1 - position) // step + 1))
            for y in range(height):
                line = (row + y) * steps[rank - 2] + plan.planes[p * rank + rank - 2]
                x = source.x + (start + line * strides[rank - 2]) * size
                if outside or low == high or not 0 <= line < lengths[rank - 2]:
                    lay_row(1, target, source.x, 0, 0, width, 0, zero)
                elif stride == 1:
                    lay_row(1, target, x, low, high, width, ahead, zero)
                elif stride == 2:
                    lay_row(2, target, x, low, high, width, ahead, zero)
                else:
                    lay_row(1, target, source.x, 0, 0, width, 0, zero)
                    out, values = elements(target, zero), elements(x, zero)
                    for j in range(low, high):
                        out[j] = values[j * stride]
                target += width * size


@compiled
def out_address(plan, at, group, zero):
    """Where the first output of a tile is, of the first channel of a group."""
    offset = plan.out_item[at[ITEM]] + offset_of(plan.rank, plan.out_stride, at)
    return plan.out + (offset + group * plan.group_rows * plan.out_channel) * size_of(zero)


@compiled
def store_transposed(out, sums, pitch, rows, count, square, zero):
    """Put sums of `count` positions, a row of channels each, away as `rows` channels.

    `out` is (address, elements from channel to channel, from position to position); `square` is room for a square of
    vectors. Of the last vector of positions all is read.
    """
    noinline()
    to, channel, stride = out
    size = size_of(zero)
    lanes = VECTOR_BYTES // size
    for r in range(0, rows, lanes):
        known = min(lanes, rows - r)
        for p in range(0, count, lanes):
            source = sums + p * pitch + r * size
            target = to + (r * channel + p * stride) * size
            left = min(lanes, count - p)
            if known == lanes and stride == 1:
                transpose_part(target, channel * size, source, pitch, left, zero)
            else:
                transpose_square(square, VECTOR_BYTES, source, pitch, zero)
                put(target, channel * size, square, VECTOR_BYTES, known, left, stride, zero)
