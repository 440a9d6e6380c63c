"""Compiled packing of weights: blocks of rows, as the correlations read them."""

# mypy: disallow-untyped-defs = False
from __future__ import annotations

from functools import cache
from typing import Any

from numba import types

from lunette.kernels.cpu.compiling import machine
from lunette.kernels.cpu.compiling.machine import pointer
from lunette.kernels.cpu.convolving.blocks import (
    BLOCK_HEIGHT,
    DEPTH,
    GROUP_STRIDE,
    PACKED_OFFSETS,
    PACKED_ROWS,
    PACKED_TO,
    ROW_BLOCKS,
    ROW_STRIDE,
    SIDE_BY_SIDE,
    WEIGHT,
)
from lunette.kernels.cpu.convolving.sizes import VECTOR_BYTES
from lunette.kernels.cpu.convolving.slabs import elements, zero_of
from lunette.kernels.cpu.convolving.vectors import transpose_square

__all__ = ["pack_kernel"]


@cache
def pack_kernel(dtype: str) -> Any:
    """The weights as blocks (group, block of `height` rows): k × height, zeros for missing rows."""
    zero, size = zero_of(dtype)
    lanes = VECTOR_BYTES // size

    @machine.kernel
    def pack(first, last, told, scratch, _a, _b, _c, _d):
        a = pointer(told, types.int64)
        target, weight, offsets = a[PACKED_TO], a[WEIGHT], pointer(a[PACKED_OFFSETS], types.int64)
        row_stride, group_stride, depth = a[ROW_STRIDE], a[GROUP_STRIDE], a[DEPTH]
        rows, blocks, height, whole = (
            a[PACKED_ROWS],
            a[ROW_BLOCKS],
            a[BLOCK_HEIGHT],
            a[SIDE_BY_SIDE],
        )
        for unit in range(first, last):
            group, row = unit // blocks, unit % blocks * height
            to = target + unit * depth * height * size
            at = weight + (group * group_stride + row * row_stride) * size
            out, values, known = elements(to, zero), elements(at, zero), min(height, rows - row)
            squares = (
                depth // lanes * lanes
                if whole != 0 and known == height and height % lanes == 0
                else 0
            )
            for k in range(0, squares, lanes):
                for r in range(0, height, lanes):
                    transpose_square(
                        to + (k * height + r) * size, height * size,
                        at + (r * row_stride + offsets[k]) * size, row_stride * size, zero,
                    )  # fmt: skip
            for k in range(squares, depth):
                offset = offsets[k]
                for r in range(known):
                    out[k * height + r] = values[r * row_stride + offset]
                for r in range(known, height):
                    out[k * height + r] = zero

    return pack
