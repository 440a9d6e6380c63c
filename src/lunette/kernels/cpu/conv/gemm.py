"""Compiled correlations as matrix products: panels of output positions × blocks of output channels.

A panel is a few vectors of a tile's positions. In the *packed* kernel a panel's windows are first copied side by side, a row
per (channel, tap): every load is aligned, and stays in the first-level cache while all channels are multiplied. In the
*implicit* one windows are read in the input tile where they lie, by a table of offsets: an implicit GEMM.
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
    put,
    size_of,
    tile_extent,
    zero_of,
    zeros,
)
from lunette.kernels.cpu.conv.microkernel import multiply_add
from lunette.kernels.cpu.conv.records import CORRELATION, SOURCE
from lunette.kernels.cpu.conv.sizes import COLUMNS, VECTOR_BYTES
from lunette.kernels.cpu.conv.vectors import collect
from lunette.kernels.cpu.jit import intrinsics
from lunette.kernels.cpu.jit.intrinsics import compiled, noinline, pointer

__all__ = ["gemm_kernel"]

correlation, source_at = CORRELATION.at, SOURCE.at
SOURCE_BYTES = 8 * len(SOURCE.fields)


@compiled
def pack_panel(plan, panel, tile, offsets, count, begin, extent, zero):
    """A panel of a tile's positions, from `begin`, side by side in each of `count` rows.

    Position p of rows of `extent[1]` is at `p // extent[1] · width + p % extent[1]` from a row's place in the input tile;
    `offsets` is the address of these places. Reads whole vectors: up to one past the last plane of the tile.
    """
    noinline()
    size, wide, positions = size_of(zero), extent[1], extent[0] * extent[1]
    lanes, pitch = VECTOR_BYTES // size, COLUMNS * VECTOR_BYTES
    for v in range(min(COLUMNS, (positions - begin + lanes - 1) // lanes)):
        to, first = panel + v * VECTOR_BYTES, begin + v * lanes
        y, x = first // wide, first % wide
        at = tile + (y * plan.width + x) * size
        # Each further row of positions begins in some lane, and skips what lies between rows. Lanes past the last
        # position take what follows: there may be no further row.
        low, jump, known = wide - x, (plan.width - wide) * size, positions - first
        collect(1, to, pitch, at, at + jump if low < known else at, offsets, count, low, zero)
        low += wide
        at += 2 * jump
        while low < min(lanes, known):
            collect(0, to, pitch, at, at, offsets, count, low, zero)
            low += wide
            at += jump


@compiled
def scatter(plan, target, sums, pitch, rows, span, extent, zero):
    """Put positions `span[0] … span[1]` of a tile away, for `rows` channels: lines of `extent[0]` positions.

    Among the positions lines are `extent[1]` apart, and those between are left out.
    """
    noinline()
    begin, count, size = span[0], span[1] - span[0], size_of(zero)
    wide, line = extent
    stride, jump = plan.out_stride[plan.rank - 1], plan.out_stride[plan.rank - 2]
    y, x = begin // line, begin % line
    while count > 0 and rows > 0:
        if x < wide:
            to = target + (y * jump + x * stride) * size
            put(to, plan.out_channel * size, sums, pitch, rows, min(count, wide - x), stride, zero)
        sums += (line - x) * size
        count -= line - x
        x = 0
        y += 1


@compiled
def broadcast_bias(plan, starts, first, count, zero):
    """A vector of the bias for each of `count` output channels from `first` of all; zeros without one, and past the last."""
    lanes = VECTOR_BYTES // size_of(zero)
    bias, out, group = elements(plan.bias, zero), elements(starts, zero), first // plan.group_rows
    known = min(count, group * plan.group_rows + plan.rows - first) if plan.bias != 0 else 0
    for r in range(count):
        value = bias[first + r] if r < known else zero
        for j in range(lanes):
            out[r * lanes + j] = value


@cache
def gemm_kernel(dtype: str, height: int, width: int, packed: bool) -> Any:
    """Units (group, part of the output channels, tile): `out = bias + Σ_source Σ_channel Σ_tap packed · source`.

    A fold that starts from the bias and takes channels and taps in order, chunk after chunk. A block is `height` output
    channels × `width` vectors of positions; `near` panels are multiplied together. The input tile has `tile_channels`.
    """
    zero = zero_of(dtype)
    size = zero.itemsize
    lanes = VECTOR_BYTES // size
    columns, pitch, indexed = width * lanes, width * VECTOR_BYTES, 0 if packed else 1
    third, two_thirds = width // 3, width // 3 * 2

    @compiled
    def multiply(vectors, fetched, a, b, start, to, later, zero):
        """A block of channels and the `vectors` of a panel; pairs are (address, bytes from row to row, …)."""
        if vectors == width and fetched:
            multiply_add(
                height, width, indexed, 1, a, b[0], b[1], start[0], start[1], start[2], to[0], to[1], later[0],
                later[1], b[2], zero,
            )  # fmt: skip
        elif vectors == width:
            multiply_add(
                height, width, indexed, 0, a, b[0], b[1], start[0], start[1], start[2], to[0], to[1], later[0],
                later[1], b[2], zero,
            )  # fmt: skip
        elif vectors > third:
            multiply_add(
                height, two_thirds, indexed, 0, a, b[0], b[1], start[0], start[1], start[2], to[0], to[1], later[0],
                later[1], b[2], zero,
            )  # fmt: skip
        else:
            multiply_add(
                height, third, indexed, 0, a, b[0], b[1], start[0], start[1], start[2], to[0], to[1], later[0],
                later[1], b[2], zero,
            )  # fmt: skip

    @intrinsics.kernel
    def gemm(told, scratch, _a, _b, _c, _d, first, last):
        plan = correlation(told)
        at = pointer(scratch + plan.index_at, types.int64)
        tile_at, panel_at = scratch, scratch + plan.panel_at
        sums_at, starts_at = scratch + plan.sums_at, scratch + plan.starts_at
        channels, taps, out_row = plan.channels, plan.taps, plan.out_channel * size
        depth, all_blocks = channels * taps, (plan.rows + height - 1) // height
        loads = (channels + plan.tile_channels - 1) // plan.tile_channels
        pieces = plan.sources * loads
        zeros(
            tile_at + plan.tile_channels * plan.plane_count * plan.height * plan.width * size,
            columns,
            zero,
        )
        stride, jump = plan.out_stride[plan.rank - 1], plan.out_stride[plan.rank - 2]
        for unit in range(first, last):
            group, part = unit // (plan.tiles * plan.parts), unit // plan.tiles % plan.parts
            locate(plan, unit % plan.tiles, at)
            high, wide = tile_extent(plan, at)
            first_block = part * plan.part_blocks
            blocks = min(all_blocks - first_block, plan.part_blocks)
            rows = min(plan.rows - first_block * height, blocks * height)
            target = out_address(plan, at, group, zero) + first_block * height * out_row
            line = wide if packed else plan.width
            positions = (high - 1) * line + wide
            panels = (positions + columns - 1) // columns
            whole = stride == 1 and (high == 1 or (jump == wide and line == wide))
            broadcast_bias(
                plan,
                starts_at,
                group * plan.group_rows + first_block * height,
                blocks * height,
                zero,
            )
            for piece in range(pieces):
                source = source_at(plan.sources_at + piece // loads * SOURCE_BYTES)
                begin = piece % loads * plan.tile_channels
                end = min(channels, begin + plan.tile_channels)
                load_tile(
                    plan, source, tile_at, at, (group * channels + begin, group * channels + end),
                    (0, plan.plane_count), zero,
                )  # fmt: skip
                for p in range(0, panels, plan.near):
                    p_end, slot = min(panels, p + plan.near), p if pieces == 1 else 0
                    for k in range(begin * taps, end * taps, plan.chunk):
                        now = min(plan.chunk, end * taps - k)
                        offsets = plan.offsets + (k - begin * taps) * 8
                        if packed:
                            for q in range(p, p_end):
                                pack_panel(
                                    plan, panel_at + (q - p) * now * pitch, tile_at, offsets, now, q * columns,
                                    (high, wide), zero,
                                )  # fmt: skip
                        opening, ending = (
                            piece == 0 and k == 0,
                            piece + 1 == pieces and k + now == depth,
                        )
                        for block in range(blocks):
                            weights = (group * all_blocks + first_block + block) * depth + k
                            for q in range(p, p_end):
                                kept = sums_at + ((q - slot) * blocks + block) * height * pitch
                                left = positions - q * columns
                                vectors = min(
                                    width,
                                    ((left + lanes - 1) // lanes + third - 1) // third * third,
                                )
                                y, x = q * columns // line, q * columns % line
                                later = (
                                    target
                                    + (y * jump + x * stride) * size
                                    + block * height * out_row
                                )
                                start = kept, pitch, VECTOR_BYTES
                                if opening:
                                    start = (
                                        starts_at + block * height * VECTOR_BYTES,
                                        VECTOR_BYTES,
                                        0,
                                    )
                                to = kept, pitch
                                if (
                                    ending
                                    and whole
                                    and left >= vectors * lanes
                                    and (block + 1) * height <= rows
                                ):
                                    to = later, out_row
                                b = tile_at + q * columns * size, offsets, now
                                if packed:
                                    b = panel_at + (q - p) * now * pitch, pitch, now
                                multiply(
                                    vectors, ending, source.packed + weights * height * size, b, start, to,
                                    (later, out_row), zero,
                                )  # fmt: skip
                    if piece + 1 < pieces:
                        continue
                    for q in range(p, p_end):
                        left = positions - q * columns
                        vectors = min(
                            width, ((left + lanes - 1) // lanes + third - 1) // third * third
                        )
                        direct = rows // height * height if whole and left >= vectors * lanes else 0
                        scatter(
                            plan, target + direct * out_row, sums_at + ((q - slot) * blocks * height + direct) * pitch,
                            pitch, rows - direct, (q * columns, min(positions, (q + 1) * columns)), (wide, line), zero,
                        )  # fmt: skip

    return gemm
