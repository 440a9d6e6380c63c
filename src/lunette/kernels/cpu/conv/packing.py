"""Compiled packing of weights: blocks of output channels, as the microkernels read them."""

# mypy: disallow-untyped-defs = False
from __future__ import annotations

from functools import cache
from typing import Any

from lunette.kernels.cpu.conv.input_tile import elements, zero_of
from lunette.kernels.cpu.conv.records import PACKING
from lunette.kernels.cpu.conv.sizes import VECTOR_BYTES
from lunette.kernels.cpu.conv.vectors import ask_line, transpose_square
from lunette.kernels.cpu.jit import intrinsics

__all__ = ["pack_kernel"]

packing = PACKING.at


@cache
def pack_kernel(dtype: str) -> Any:
    """Units (group, block of `block_rows` output channels): (channel, tap) × row, zeros for missing rows."""
    zero = zero_of(dtype)
    size = zero.itemsize
    lanes = VECTOR_BYTES // size

    @intrinsics.kernel
    def pack(told, scratch, _a, _b, _c, _d, first, last):
        plan = packing(told)
        height, depth, row_stride = plan.block_rows, plan.depth, plan.row_stride
        for unit in range(first, last):
            group, row = unit // plan.blocks, unit % plan.blocks * height
            to = plan.packed + unit * depth * height * size
            at = plan.weight + (group * plan.group_stride + row * row_stride) * size
            out, values, known = (
                elements(to, zero),
                elements(at, zero),
                min(height, plan.rows - row),
            )
            squares = 0
            if plan.contiguous != 0 and known == height and height % lanes == 0:
                squares = depth // lanes * lanes
            for k in range(0, squares, lanes):
                for r in range(0, height, lanes):
                    square = at + (r * row_stride + plan.offsets[k]) * size
                    for i in range(lanes):
                        ask_line(0, 3, square + i * row_stride * size + 4 * VECTOR_BYTES, zero)
                    transpose_square(
                        to + (k * height + r) * size, height * size, square, row_stride * size, zero
                    )
            for k in range(squares, depth):
                offset = plan.offsets[k]
                for r in range(known):
                    out[k * height + r] = values[r * row_stride + offset]
                for r in range(known, height):
                    out[k * height + r] = zero

    return pack
