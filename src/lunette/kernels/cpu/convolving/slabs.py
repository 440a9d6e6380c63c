"""Compiled loops over slabs: the part of the image that a block of output rows reads, padded.

A slab has, for each channel, one *plane* for each way that taps can fall between the steps of the
last two axes and on the axes before them. In a plane, output (row, column) and a tap differ by a
fixed offset, so windows are read where they lie, whatever the stride, and nothing is unfolded.
"""

# mypy: disallow-untyped-defs = False
from __future__ import annotations

from typing import Any

from numba import types
from numba.extending import intrinsic

from lunette.kernels.cpu.compiling.machine import apart, compiled
from lunette.kernels.cpu.convolving.vectors import copy_column, copy_vectors, lay_row

__all__ = ["Sizes", "area_of", "clear", "elements", "lay", "place", "put"]

Sizes = tuple[int, ...]
"""Bytes of the rooms that a kernel works in."""


def area_of(slab: Any) -> int:
    """Cells of a channel's planes in a slab."""
    height, width = slab.shape.tolist()
    return len(slab.planes) * int(height * width)


@intrinsic  # type: ignore[untyped-decorator]
def elements(context: Any, address: Any, zero: Any) -> Any:
    """The address as a pointer to elements of the type of `zero`."""
    result = types.CPointer(zero)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

    return result(address, zero), generate


@compiled
def clear(at, count, zero):
    """Zeros for `count` numbers: what is read past a slab meets weights all the same, and may be slow."""
    numbers = elements(at, zero)
    for i in range(count):
        numbers[i] = zero


@compiled
def put(to, to_row, at, at_row, rows, count, stride, lanes, zero, size):
    """Copy `count` numbers that lie side by side to places `stride` elements apart, in each row."""
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
def place(unit, counts, blocks, index):
    """Batch item, first row and first column of a unit (item, outer axes, block of rows, of columns).

    `blocks` is (rows of a block, columns of a block); `index` takes the indices on the outer axes.
    """
    apart()
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
    """Planes of channels `first … last` of the block at (row, column): zeros around the image.

    Rows are written as whole vectors, so up to a vector beyond the last plane.
    """
    apart()
    height, width = shape
    rank = steps.size
    step, stride = steps[rank - 1], strides[rank - 1] * steps[rank - 1]
    # Memory answers after about as long as it takes to lay a thousand cells.
    ahead = max(1, 1024 // (height * width)) * channel * size
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
                at = source + (start + line * strides[rank - 2]) * size
                if outside or low == high or not 0 <= line < lengths[rank - 2]:
                    lay_row(1, target, source, 0, 0, width, 0, zero)
                elif stride == 1:
                    lay_row(1, target, at, low, high, width, ahead, zero)
                elif stride == 2:
                    lay_row(2, target, at, low, high, width, ahead, zero)
                else:
                    lay_row(1, target, source, 0, 0, width, 0, zero)
                    out, values = elements(target, zero), elements(at, zero)
                    for j in range(low, high):
                        out[j] = values[j * stride]
                target += width * size
