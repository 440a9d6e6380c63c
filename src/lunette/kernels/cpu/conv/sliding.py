"""Compiled correlations that slide in registers: vectors of output channels, and taps side by side.

Where taps lie side by side, a number of the image is loaded once for all of them: it is multiplied with the weights of a
run of taps. So few loads feed many products, and nothing is unfolded. The sums are transposed once, at the end.
"""

# mypy: disallow-untyped-defs = False
from __future__ import annotations

from functools import cache
from typing import Any

from numba import types

from lunette.kernels.cpu.conv.input_tile import (
    elements,
    load_tile,
    locate,
    out_address,
    store_transposed,
    tile_extent,
    zero_of,
    zeros,
)
from lunette.kernels.cpu.conv.microkernel import multiply_sliding
from lunette.kernels.cpu.conv.records import CORRELATION, SOURCE
from lunette.kernels.cpu.conv.sizes import POSITIONS, VECTOR_BYTES
from lunette.kernels.cpu.conv.vectors import ask_line
from lunette.kernels.cpu.jit import intrinsics
from lunette.kernels.cpu.jit.intrinsics import pointer

__all__ = ["sliding_kernel"]

correlation, source_at = CORRELATION.at, SOURCE.at
SOURCE_BYTES = 8 * len(SOURCE.fields)


@cache
def sliding_kernel(dtype: str, vectors: int, length: int, run: int, back: int) -> Any:
    """Units (group, part of the output channels, tile): `out = bias + Σ packed · source`, the fold of `gemm`.

    A block is so many vectors of channels and positions, and taps side by side. The weights of a chunk are multiplied
    with many positions of a tile while they are in the first-level cache.
    """
    zero = zero_of(dtype)
    size = zero.itemsize
    lanes = VECTOR_BYTES // size
    height = vectors * lanes
    pitch, step = height * size, run * height * size

    @intrinsics.kernel
    def sliding(told, scratch, _a, _b, _c, _d, first, last):
        plan = correlation(told)
        at = pointer(scratch + plan.index_at, types.int64)
        tile_at, square_at = scratch, scratch + plan.panel_at
        sums_at, starts_at = scratch + plan.sums_at, scratch + plan.starts_at
        channels, runs, out_row = plan.channels, plan.taps, plan.out_channel * size
        all_blocks = (plan.rows + height - 1) // height
        loads = (channels + plan.tile_channels - 1) // plan.tile_channels
        pieces = plan.sources * loads
        # Positions of a row, rounded up.
        row_positions = (plan.tile_columns + length - 1) // length * length
        lines = min(plan.tile_rows, max(1, POSITIONS // row_positions))
        area = plan.plane_count * plan.height * plan.width
        zeros(tile_at + plan.tile_channels * area * size, length + run + lanes, zero)
        bias, starts = elements(plan.bias, zero), elements(starts_at, zero)
        stride, jump = plan.out_stride[plan.rank - 1], plan.out_stride[plan.rank - 2]
        for unit in range(first, last):
            group, part = unit // (plan.tiles * plan.parts), unit // plan.tiles % plan.parts
            locate(plan, unit % plan.tiles, at)
            high, wide = tile_extent(plan, at)
            first_block = part * plan.part_blocks
            blocks = min(all_blocks - first_block, plan.part_blocks)
            rows = min(plan.rows - first_block * height, blocks * height)
            target = out_address(plan, at, group, zero) + first_block * height * out_row
            first_row = group * plan.group_rows + first_block * height
            for r in range(blocks * height):
                starts[r] = bias[first_row + r] if r < rows and plan.bias != 0 else zero
            for piece in range(pieces):
                source = source_at(plan.sources_at + piece // loads * SOURCE_BYTES)
                begin = piece % loads * plan.tile_channels
                end = min(channels, begin + plan.tile_channels)
                load_tile(
                    plan, source, tile_at, at, (group * channels + begin, group * channels + end),
                    (0, plan.plane_count), zero,
                )  # fmt: skip
                chunks = (end - begin + plan.chunk - 1) // plan.chunk
                ending = piece + 1 == pieces
                for block in range(blocks):
                    weights = (
                        source.packed
                        + (group * all_blocks + first_block + block) * channels * runs * step
                    )
                    known = min(height, rows - block * height)
                    later = target + block * height * out_row
                    for y in range(0, high, lines):
                        kept, count = sums_at, min(lines, high - y)
                        if pieces > 1:
                            kept += (block * plan.tile_rows + y) * row_positions * pitch
                        for c in range(begin, end, plan.chunk):
                            now = (min(end, c + plan.chunk) - c) * runs
                            offsets = plan.offsets + (c - begin) * runs * 8
                            opening, share = piece == 0 and c == 0, (c - begin) // plan.chunk
                            for q in range(count):
                                for x in range(0, wide, length):
                                    to = kept + (q * row_positions + x) * pitch
                                    start, start_row = to, pitch
                                    if opening:
                                        start, start_row = starts_at + block * pitch, 0
                                    if ending:  # the lines to be written, a share in each chunk
                                        line = later + ((y + q) * jump + x * stride) * size
                                        for r in range(share, known, chunks):
                                            ask_line(1, 3, line + r * out_row, zero)
                                    multiply_sliding(
                                        vectors, length, run, back, weights + c * runs * step,
                                        tile_at + ((y + q) * plan.width + x) * size, offsets, start, start_row, to,
                                        now, zero,
                                    )  # fmt: skip
                        # Rows that lie one after the other are put away as one.
                        together = count if jump == wide * stride and wide == row_positions else 1
                        for q in range(0, count if ending else 0, together):
                            store_transposed(
                                (later + (y + q) * jump * size, plan.out_channel, stride),
                                kept + q * row_positions * pitch, pitch, known, together * wide, square_at, zero,
                            )  # fmt: skip

    return sliding
