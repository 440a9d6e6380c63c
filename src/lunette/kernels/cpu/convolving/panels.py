"""Compiled correlations: panels of output positions multiplied with blocks of output channels.

A slab has what a block of output rows reads. A panel is a few vectors of the block's positions. Where
there are many output channels, a panel's windows are first put side by side, a row per (channel, tap);
then every vector is aligned, and stays in the first-level cache while all channels are multiplied.
Where there are few, windows are read in the slab. Runs of taps side by side have kernels of their own.
"""

# mypy: disallow-untyped-defs = False
from __future__ import annotations

from typing import Any

import numpy as np

from lunette.kernels.cpu.compiling.machine import apart, compiled, kernel
from lunette.kernels.cpu.convolving.products import multiply_add
from lunette.kernels.cpu.convolving.slabs import Sizes, area_of, clear, elements, lay, place, put
from lunette.kernels.cpu.convolving.vectors import (
    SUMS,
    VECTOR_BYTES,
    collect,
    copy_vectors,
    transpose_square,
)

__all__ = [
    "BLOCKS",
    "COLUMNS",
    "ROWS",
    "copied",
    "in_place",
    "pack",
    "rooms_in_place",
    "rooms_of_copied",
]

COLUMNS = 3
ROWS = SUMS // COLUMNS
"""A block of `copied`: ROWS output channels × COLUMNS vectors of positions."""
BLOCKS = ((ROWS, COLUMNS), (ROWS // 2, 2 * COLUMNS), (1, 12))
"""Blocks of `in_place`: the fewer the channels, the longer."""


@kernel
def pack(
    first, last, target, weight, row_stride, group_stride, offsets, whole, rows, blocks, height,
    zero, size,
):  # fmt: skip
    """The weights as blocks (group, block of `height` rows): k × height, zeros for missing rows.

    `whole` says that the numbers of a row lie side by side.
    """
    depth, lanes = offsets.size, VECTOR_BYTES // size
    for unit in range(first, last):
        group, row = unit // blocks, unit % blocks * height
        to = target + unit * depth * height * size
        at = weight + (group * group_stride + row * row_stride) * size
        out, values, known = elements(to, zero), elements(at, zero), min(height, rows - row)
        squares = depth // lanes * lanes if whole and known == height and height % lanes == 0 else 0
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


@compiled
def align(target, pitch, slab, table, count, begin, positions, wide, width, zero, size):
    """A panel of a block's positions, from `begin`, side by side in each of `count` rows.

    Reads whole vectors: up to one past the last plane of the slab.

    Position p is at `p // wide · width + p % wide` from the row's place in the slab; `table` is the
    address of these places.
    """
    apart()
    lanes = VECTOR_BYTES // size
    for v in range(min(COLUMNS, (positions - begin + lanes - 1) // lanes)):
        to, first = target + v * VECTOR_BYTES, begin + v * lanes
        y, x = first // wide, first % wide
        at = slab + (y * width + x) * size
        # Each further row of positions begins in some lane, and skips what lies between rows. Lanes past the last
        # position take what follows: there may be no further row.
        low, jump, known = wide - x, (width - wide) * size, positions - first
        collect(1, to, pitch, at, at + jump if low < known else at, table, count, low, zero)
        low += wide
        at += 2 * jump
        while low < min(lanes, known):
            collect(0, to, pitch, at, at, table, count, low, zero)
            low += wide
            at += jump


@compiled
def multiply(
    left, last, a, b, pitch, start, start_row, start_step, end, end_row, later, later_row, count,
    zero, size,
):  # fmt: skip
    """A block of ROWS channels and the vectors of a panel with `left` positions."""
    lanes = VECTOR_BYTES // size
    if left > 2 * lanes and last:
        multiply_add(
            ROWS, 3, 0, 1, a, b, pitch, start, start_row, start_step, end, end_row, later,
            later_row, count, zero,
        )  # fmt: skip
    elif left > 2 * lanes:
        multiply_add(
            ROWS, 3, 0, 0, a, b, pitch, start, start_row, start_step, end, end_row, later,
            later_row, count, zero,
        )  # fmt: skip
    elif left > lanes:
        multiply_add(
            ROWS, 2, 0, 0, a, b, pitch, start, start_row, start_step, end, end_row, later,
            later_row, count, zero,
        )  # fmt: skip
    else:
        multiply_add(
            ROWS, 1, 0, 0, a, b, pitch, start, start_row, start_step, end, end_row, later,
            later_row, count, zero,
        )  # fmt: skip


def rooms_of_copied(cut: Any, sources: int, channels: int, rows: int, size: int) -> Sizes:
    """Bytes of slab, tile, sums and starts of `copied`."""
    lanes, taps = VECTOR_BYTES // size, cut.table.size // cut.slab_channels
    columns, row_blocks = COLUMNS * lanes, -(-rows // ROWS)
    high, wide = cut.slab.blocks.tolist()
    slots = -(-high * wide // columns)
    if sources * -(-channels // cut.slab_channels) == 1:
        slots = min(cut.near, slots)
    tile = cut.near * cut.channel_chunk * min(taps, cut.tap_chunk) * columns
    numbers = (
        cut.slab_channels * area_of(cut.slab) + lanes,
        tile,
        row_blocks * slots * ROWS * columns,
    )
    return tuple(n * size for n in (*numbers, row_blocks * ROWS * lanes))


@kernel
def copied(
    first, last, rooms, units, counts, lengths, steps, blocks, shape, planes, table, slab_channels,
    channel_chunk, tap_chunk, near, sources, offsets, channels, strides, in_channels, packed, rows,
    group_rows, bias, out, out_offsets, out_channel, out_strides, zero, size,
):  # fmt: skip
    """Units (group, block of output rows): sums over channels and taps.

    `out[group·group_rows + r] = bias + Σ_source Σ_channel Σ_tap packed · source`, a fold that starts
    from the bias and takes channels and taps in order, chunk after chunk. A slab has `slab_channels`;
    `table` has the offset in it, in bytes, of each (channel, tap); `near` panels are multiplied
    together. `rooms` are the addresses of memory to work in, as `rooms_of_copied` has it.
    """
    rank, count_taps = counts.size, table.size // slab_channels
    lanes = VECTOR_BYTES // size
    columns, pitch = COLUMNS * lanes, COLUMNS * VECTOR_BYTES
    height, width = shape
    area = planes.shape[0] * height * width
    depth, row_blocks = in_channels * count_taps, (rows + ROWS - 1) // ROWS
    slabs = (in_channels + slab_channels - 1) // slab_channels
    once = sources.size * slabs == 1
    slab_at, tile_at, sums_at, starts_at = rooms[0], rooms[1], rooms[2], rooms[3]
    clear(slab_at + slab_channels * area * size, lanes, zero)
    spread = elements(starts_at, zero)
    index, first_later = np.zeros(rank, np.int64), np.zeros(near, np.int64)
    stride, jump = out_strides[rank - 1], out_strides[rank - 2]
    for unit in range(first, last):
        group = unit // units
        item, row, column = place(unit % units, counts, blocks, index)
        high = min(blocks[0], counts[rank - 2] - row)
        wide = min(blocks[1], counts[rank - 1] - column)
        positions = high * wide
        used = (positions + columns - 1) // columns
        target = out_offsets[item] + row * jump + column * stride
        for a in range(rank - 2):
            target += index[a] * out_strides[a]
        target = out + (target + group * group_rows * out_channel) * size
        whole = stride == 1 and (high == 1 or jump == wide)
        for r in range(row_blocks * ROWS):
            value = bias[group * group_rows + r] if r < rows and bias.size else zero
            for j in range(lanes):
                spread[r * lanes + j] = value
        for part in range(sources.size * slabs):
            s, begin = part // slabs, part % slabs * slab_channels
            end = min(in_channels, begin + slab_channels)
            lay(
                slab_at, index, row, column, shape, planes, sources[s], offsets[s, item],
                channels[s], strides[s], lengths, steps, group * in_channels + begin,
                group * in_channels + end, zero, size,
            )  # fmt: skip
            for p in range(0, used, near):
                p_end = min(used, p + near)
                slot = p if once else 0
                for c in range(begin, end, channel_chunk):
                    c_end = min(end, c + channel_chunk)
                    for t in range(0, count_taps, tap_chunk):
                        now = (c_end - c) * (min(count_taps, t + tap_chunk) - t)
                        done = c * count_taps + t
                        places = table[(c - begin) * count_taps + t :].ctypes.data
                        for q in range(p, p_end):
                            align(
                                tile_at + (q - p) * now * pitch, pitch, slab_at, places, now,
                                q * columns, positions, wide, width, zero, size,
                            )  # fmt: skip
                        first_chunk = s == 0 and done == 0
                        last_chunk = s + 1 == sources.size and done + now == depth
                        for q in range(p, p_end):
                            y, x = q * columns // wide, q * columns % wide
                            first_later[q - p] = target + (y * jump + x * stride) * size
                        for block in range(row_blocks):
                            k = (group * row_blocks + block) * depth + done
                            for q in range(p, p_end):
                                kept = sums_at + ((q - slot) * row_blocks + block) * ROWS * pitch
                                start, start_row, start_step = kept, pitch, VECTOR_BYTES
                                if first_chunk:
                                    start = starts_at + block * ROWS * VECTOR_BYTES
                                    start_row, start_step = VECTOR_BYTES, 0
                                left = positions - q * columns
                                to, to_row = kept, pitch
                                later = first_later[q - p] + block * ROWS * out_channel * size
                                if last_chunk and goes(whole, left, lanes, block, rows):
                                    to, to_row = later, out_channel * size
                                multiply(
                                    left, last_chunk, packed[s] + k * ROWS * size,
                                    tile_at + (q - p) * now * pitch, pitch, start, start_row,
                                    start_step, to, to_row, later, out_channel * size, now, zero,
                                    size,
                                )  # fmt: skip
                if s + 1 < sources.size or end < in_channels:
                    continue
                for q in range(p, p_end):
                    left = positions - q * columns
                    direct = 0
                    if depth and goes(whole, left, lanes, 0, rows):
                        direct = rows // ROWS * ROWS
                    at = sums_at + (q - slot) * row_blocks * ROWS * pitch
                    if not depth:
                        for r in range(rows):
                            for v in range(COLUMNS):
                                copy_vectors(
                                    at + r * pitch + v * VECTOR_BYTES,
                                    starts_at + r * VECTOR_BYTES, lanes, zero,
                                )  # fmt: skip
                    scatter(
                        target + direct * out_channel * size, out_channel * size,
                        at + direct * pitch, pitch, rows - direct, q * columns,
                        min(columns, left), wide, wide, jump, stride, lanes, zero, size,
                    )  # fmt: skip


@compiled
def scatter(
    target, channel, at, at_row, rows, begin, count, wide, pitch, jump, stride, lanes, zero, size
):
    """Put positions `begin …` of a block away, for `rows` channels: lines of `wide` positions.

    Lines are `jump` elements apart; among the positions `pitch`, and those beyond are left out.
    """
    apart()
    y, x = begin // pitch, begin % pitch
    while count > 0 and rows > 0:
        if x < wide:
            to = target + (y * jump + x * stride) * size
            put(to, channel, at, at_row, rows, min(count, wide - x), stride, lanes, zero, size)
        at += (pitch - x) * size
        count -= pitch - x
        x = 0
        y += 1


@compiled
def goes(whole, left, lanes, block, rows):
    """Whether a block's sums go from the registers to the output: whole vectors, side by side."""
    return whole and (left >= COLUMNS * lanes or left % lanes == 0) and (block + 1) * ROWS <= rows


def _in_place(height: int, width: int) -> Any:
    """The kernel for blocks of `height` output channels and `width` vectors of positions."""
    narrow = width // 3  # vectors of a last panel that has few positions

    @kernel
    def in_place(
        first, last, rooms, units, counts, lengths, steps, blocks, shape, planes, table, chunk, sources,
        offsets, channels, strides, in_channels, packed, rows, group_rows, bias, out, out_offsets,
        out_channel, out_strides, zero, size,
    ):  # fmt: skip
        """Units (group, block of output rows): `out = bias + Σ packed · source`, the same fold.

        `table` has the offset in the slab, in bytes, of each (channel, tap); `chunk` of them are
        multiplied with all output channels while they are in the first-level cache. `rooms` are the
        addresses of memory to work in, as `rooms_in_place` has it; a panel may be read past the slab.
        """
        rank, depth = counts.size, table.size
        slab_high, slab_wide = shape
        area = in_channels * planes.shape[0] * slab_high * slab_wide
        lanes, row_blocks = VECTOR_BYTES // size, (rows + height - 1) // height
        columns, pitch = width * lanes, width * VECTOR_BYTES
        slab_at, sums_at, starts_at = rooms[0], rooms[1], rooms[2]
        clear(slab_at + sources.size * area * size, columns, zero)
        spread = elements(starts_at, zero)
        index = np.zeros(rank, np.int64)
        stride, jump = out_strides[rank - 1], out_strides[rank - 2]
        for unit in range(first, last):
            group = unit // units
            item, row, column = place(unit % units, counts, blocks, index)
            high = min(blocks[0], counts[rank - 2] - row)
            wide = min(blocks[1], counts[rank - 1] - column)
            positions = (high - 1) * slab_wide + wide
            target = out_offsets[item] + row * jump + column * stride
            for a in range(rank - 2):
                target += index[a] * out_strides[a]
            target = out + (target + group * group_rows * out_channel) * size
            whole = stride == 1 and (high == 1 or (jump == wide and slab_wide == wide))
            for r in range(row_blocks * height):
                value = bias[group * group_rows + r] if r < rows and bias.size else zero
                for j in range(lanes):
                    spread[r * lanes + j] = value
            for s in range(sources.size):
                lay(
                    slab_at + s * area * size, index, row, column, shape, planes, sources[s],
                    offsets[s, item], channels[s], strides[s], lengths, steps,
                    group * in_channels, (group + 1) * in_channels, zero, size,
                )  # fmt: skip
            for begin in range(0, positions, columns):
                full = whole and positions - begin >= columns
                y, x = begin // slab_wide, begin % slab_wide
                first_later = target + (y * jump + x * stride) * size
                for s in range(sources.size):
                    for k in range(0, depth, chunk):
                        now = min(chunk, depth - k)
                        ends = s + 1 == sources.size and k + now == depth
                        for r in range(0, row_blocks * height, height):
                            kept = sums_at + r * pitch
                            start, start_row, start_step = kept, pitch, VECTOR_BYTES
                            if s == 0 and k == 0:
                                start = starts_at + r * VECTOR_BYTES
                                start_row, start_step = VECTOR_BYTES, 0
                            to, to_row = kept, pitch
                            block = (group * row_blocks * height + r) * depth + k * height
                            at = packed[s] + block * size
                            windows = slab_at + (s * area + begin) * size
                            places = table[k:].ctypes.data
                            later, later_row = (
                                first_later + r * out_channel * size,
                                out_channel * size,
                            )
                            if ends and full and r + height <= rows:
                                to, to_row = later, later_row
                            if positions - begin <= narrow * lanes:
                                multiply_add(
                                    height, narrow, 1, 0, at, windows, places, start, start_row,
                                    start_step, to, to_row, later, later_row, now, zero,
                                )  # fmt: skip
                            elif ends:
                                multiply_add(
                                    height, width, 1, 1, at, windows, places, start, start_row,
                                    start_step, to, to_row, later, later_row, now, zero,
                                )  # fmt: skip
                            else:
                                multiply_add(
                                    height, width, 1, 0, at, windows, places, start, start_row,
                                    start_step, to, to_row, later, later_row, now, zero,
                                )  # fmt: skip
                direct = rows // height * height if full else 0
                scatter(
                    target + direct * out_channel * size, out_channel * size,
                    sums_at + direct * pitch, pitch, rows - direct, begin,
                    min(columns, positions - begin), wide, slab_wide, jump, stride, lanes, zero, size,
                )  # fmt: skip

    return in_place


def rooms_in_place(cut: Any, sources: int, channels: int, rows: int, size: int) -> Sizes:
    """Bytes of slab, sums and starts of `in_place`."""
    height, width = BLOCKS[cut.variant]
    lanes, made = VECTOR_BYTES // size, -(-rows // height) * height
    slab = sources * channels * area_of(cut.slab) + width * lanes
    return tuple(n * size for n in (slab, made * width * lanes, made * lanes))


in_place = tuple(_in_place(height, width) for height, width in BLOCKS)
