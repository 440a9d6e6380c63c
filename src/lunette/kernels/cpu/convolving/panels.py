"""Compiled correlations: panels of output positions multiplied with blocks of output channels.

A slab has what a block of output rows reads. A panel is a few vectors of the block's positions. Where
there are many output channels, a panel's windows are first put side by side, a row per (channel, tap);
then every vector is aligned, and stays in the first-level cache while all channels are multiplied.
Where there are few, windows are read in the slab. Runs of taps side by side have kernels of their own.
"""

# mypy: disallow-untyped-defs = False
from __future__ import annotations

from functools import cache
from typing import Any

from numba import types

from lunette.kernels.cpu.compiling import machine
from lunette.kernels.cpu.compiling.machine import apart, compiled, pointer
from lunette.kernels.cpu.convolving.blocks import (
    BIAS,
    BLOCK_COLUMNS,
    BLOCK_ROWS,
    CHANNEL_CHUNK,
    COUNTS,
    FIRST_SOURCE,
    GROUP_ROWS,
    HEIGHT,
    IN_CHANNELS,
    INTEGERS_AT,
    LENGTHS,
    NEAR,
    OTHER_AT,
    OUT,
    OUT_CHANNEL,
    OUT_OFFSETS,
    OUT_STRIDES,
    PACKED,
    PLANE_COUNT,
    PLANES,
    RANK,
    ROWS_NOW,
    SLAB_CHANNELS,
    SOURCE,
    SOURCE_CHANNEL,
    SOURCE_OFFSETS,
    SOURCE_STRIDES,
    SOURCE_WIDTH,
    SOURCES,
    STARTS_AT,
    STEPS,
    SUMS_AT,
    TABLE,
    TAP_CHUNK,
    TAPS_OF_CHANNEL,
    UNITS,
    WIDTH,
)
from lunette.kernels.cpu.convolving.products import multiply_add
from lunette.kernels.cpu.convolving.sizes import COLUMNS, ROWS, VECTOR_BYTES
from lunette.kernels.cpu.convolving.slabs import elements, lay, place, put, zero_of, zeros
from lunette.kernels.cpu.convolving.vectors import collect, copy_vectors

__all__ = ["copied_kernel", "in_place_kernel"]


@compiled
def align(target, pitch, slab, table, count, begin, positions, wide, width, zero, size):
    """A panel of a block's positions, from `begin`, side by side in each of `count` rows.

    Reads whole vectors: up to one past the last plane of the slab. Position p is at `p // wide · width + p % wide` from the row's place in the slab; `table` is the
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


@cache
def copied_kernel(dtype: str) -> Any:
    """Units (group, block of output rows): sums over channels and taps.

    `out[group·group_rows + r] = bias + Σ_source Σ_channel Σ_tap packed · source`, a fold that starts
    from the bias and takes channels and taps in order, chunk after chunk. A slab has `slab_channels`;
    `table` has the offset in it, in bytes, of each (channel, tap); `near` panels are multiplied
    together.
    """
    zero, size = zero_of(dtype)
    lanes = VECTOR_BYTES // size
    columns, pitch = COLUMNS * lanes, COLUMNS * VECTOR_BYTES

    @machine.kernel
    def copied(first, last, told, scratch, _a, _b, _c, _d):
        a = pointer(told, types.int64)
        rank, counts, lengths = (
            a[RANK],
            pointer(a[COUNTS], types.int64),
            pointer(a[LENGTHS], types.int64),
        )
        steps, planes = pointer(a[STEPS], types.int64), pointer(a[PLANES], types.int64)
        block_rows, block_columns, plane_count = a[BLOCK_ROWS], a[BLOCK_COLUMNS], a[PLANE_COUNT]
        height, width = a[HEIGHT], a[WIDTH]
        units, table = a[UNITS], a[TABLE]
        in_channels, rows, group_rows = a[IN_CHANNELS], a[ROWS_NOW], a[GROUP_ROWS]
        bias, has_bias = elements(a[BIAS], zero), a[BIAS] != 0
        out, out_offsets, out_channel = a[OUT], pointer(a[OUT_OFFSETS], types.int64), a[OUT_CHANNEL]
        out_strides, sources = pointer(a[OUT_STRIDES], types.int64), a[SOURCES]
        slab_channels, count_taps = a[SLAB_CHANNELS], a[TAPS_OF_CHANNEL]
        channel_chunk, tap_chunk, near = a[CHANNEL_CHUNK], a[TAP_CHUNK], a[NEAR]
        area = plane_count * height * width
        depth, row_blocks = in_channels * count_taps, (rows + ROWS - 1) // ROWS
        slabs = (in_channels + slab_channels - 1) // slab_channels
        once = sources * slabs == 1
        slab_at, tile_at = scratch, scratch + a[OTHER_AT]
        sums_at, starts_at = scratch + a[SUMS_AT], scratch + a[STARTS_AT]
        zeros(slab_at + slab_channels * area * size, columns, zero)
        spread = elements(starts_at, zero)
        index = pointer(scratch + a[INTEGERS_AT], types.int64)
        first_later = pointer(scratch + a[INTEGERS_AT] + rank * 8, types.int64)
        stride, jump = out_strides[rank - 1], out_strides[rank - 2]
        for unit in range(first, last):
            group = unit // units
            item, row, column = place(unit % units, counts, rank, block_rows, block_columns, index)
            high = min(block_rows, counts[rank - 2] - row)
            wide = min(block_columns, counts[rank - 1] - column)
            positions = high * wide
            used = (positions + columns - 1) // columns
            target = out_offsets[item] + row * jump + column * stride
            for axis in range(rank - 2):
                target += index[axis] * out_strides[axis]
            target = out + (target + group * group_rows * out_channel) * size
            whole = stride == 1 and (high == 1 or jump == wide)
            for r in range(row_blocks * ROWS):
                value = bias[group * group_rows + r] if r < rows and has_bias else zero
                for j in range(lanes):
                    spread[r * lanes + j] = value
            for part in range(sources * slabs):
                s, begin = part // slabs, part % slabs * slab_channels
                end = min(in_channels, begin + slab_channels)
                g = FIRST_SOURCE + s * SOURCE_WIDTH
                offset = pointer(a[g + SOURCE_OFFSETS], types.int64)[item]
                strides, packed = pointer(a[g + SOURCE_STRIDES], types.int64), a[g + PACKED]
                lay(
                    slab_at, index, row, column, rank, height, width, planes, plane_count, a[g + SOURCE],
                    offset, a[g + SOURCE_CHANNEL], strides, lengths, steps, group * in_channels + begin,
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
                            places = table + ((c - begin) * count_taps + t) * 8
                            for q in range(p, p_end):
                                align(
                                    tile_at + (q - p) * now * pitch, pitch, slab_at, places, now,
                                    q * columns, positions, wide, width, zero, size,
                                )  # fmt: skip
                            first_chunk = s == 0 and done == 0
                            last_chunk = s + 1 == sources and done + now == depth
                            for q in range(p, p_end):
                                y, x = q * columns // wide, q * columns % wide
                                first_later[q - p] = target + (y * jump + x * stride) * size
                            for block in range(row_blocks):
                                k = (group * row_blocks + block) * depth + done
                                for q in range(p, p_end):
                                    kept = (
                                        sums_at + ((q - slot) * row_blocks + block) * ROWS * pitch
                                    )
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
                                        left, last_chunk, packed + k * ROWS * size,
                                        tile_at + (q - p) * now * pitch, pitch, start, start_row,
                                        start_step, to, to_row, later, out_channel * size, now, zero,
                                        size,
                                    )  # fmt: skip
                    if s + 1 < sources or end < in_channels:
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

    return copied


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


@cache
def in_place_kernel(dtype: str, height: int, width: int) -> Any:
    """Units (group, block of output rows): `out = bias + Σ packed · source`, the same fold.

    A block is `height` output channels × `width` vectors of positions. `table` has the offset in the
    slab, in bytes, of each (channel, tap); a chunk of them is multiplied with all output channels
    while they are in the first-level cache.
    """
    zero, size = zero_of(dtype)
    lanes = VECTOR_BYTES // size
    columns, pitch = width * lanes, width * VECTOR_BYTES
    narrow = width // 3  # vectors of a last panel that has few positions

    @machine.kernel
    def in_place(first, last, told, scratch, _a, _b, _c, _d):
        a = pointer(told, types.int64)
        rank, counts, lengths = (
            a[RANK],
            pointer(a[COUNTS], types.int64),
            pointer(a[LENGTHS], types.int64),
        )
        steps, planes = pointer(a[STEPS], types.int64), pointer(a[PLANES], types.int64)
        block_rows, block_columns, plane_count = a[BLOCK_ROWS], a[BLOCK_COLUMNS], a[PLANE_COUNT]
        slab_high, slab_wide = a[HEIGHT], a[WIDTH]
        units, table = a[UNITS], a[TABLE]
        in_channels, rows, group_rows = a[IN_CHANNELS], a[ROWS_NOW], a[GROUP_ROWS]
        bias, has_bias = elements(a[BIAS], zero), a[BIAS] != 0
        out, out_offsets, out_channel = a[OUT], pointer(a[OUT_OFFSETS], types.int64), a[OUT_CHANNEL]
        out_strides, sources = pointer(a[OUT_STRIDES], types.int64), a[SOURCES]
        depth, chunk = in_channels * a[TAPS_OF_CHANNEL], a[CHANNEL_CHUNK]
        area = in_channels * plane_count * slab_high * slab_wide
        row_blocks = (rows + height - 1) // height
        slab_at, sums_at, starts_at = scratch, scratch + a[SUMS_AT], scratch + a[STARTS_AT]
        zeros(slab_at + sources * area * size, columns, zero)
        spread = elements(starts_at, zero)
        index = pointer(scratch + a[INTEGERS_AT], types.int64)
        stride, jump = out_strides[rank - 1], out_strides[rank - 2]
        for unit in range(first, last):
            group = unit // units
            item, row, column = place(unit % units, counts, rank, block_rows, block_columns, index)
            high = min(block_rows, counts[rank - 2] - row)
            wide = min(block_columns, counts[rank - 1] - column)
            positions = (high - 1) * slab_wide + wide
            target = out_offsets[item] + row * jump + column * stride
            for axis in range(rank - 2):
                target += index[axis] * out_strides[axis]
            target = out + (target + group * group_rows * out_channel) * size
            whole = stride == 1 and (high == 1 or (jump == wide and slab_wide == wide))
            for r in range(row_blocks * height):
                value = bias[group * group_rows + r] if r < rows and has_bias else zero
                for j in range(lanes):
                    spread[r * lanes + j] = value
            for s in range(sources):
                g = FIRST_SOURCE + s * SOURCE_WIDTH
                offset = pointer(a[g + SOURCE_OFFSETS], types.int64)[item]
                strides = pointer(a[g + SOURCE_STRIDES], types.int64)
                lay(
                    slab_at + s * area * size, index, row, column, rank, slab_high, slab_wide, planes,
                    plane_count, a[g + SOURCE], offset, a[g + SOURCE_CHANNEL], strides, lengths, steps,
                    group * in_channels, (group + 1) * in_channels, zero, size,
                )  # fmt: skip
            for begin in range(0, positions, columns):
                full = whole and positions - begin >= columns
                y, x = begin // slab_wide, begin % slab_wide
                first_later = target + (y * jump + x * stride) * size
                for s in range(sources):
                    for k in range(0, depth, chunk):
                        now = min(chunk, depth - k)
                        ends = s + 1 == sources and k + now == depth
                        for r in range(0, row_blocks * height, height):
                            kept = sums_at + r * pitch
                            start, start_row, start_step = kept, pitch, VECTOR_BYTES
                            if s == 0 and k == 0:
                                start = starts_at + r * VECTOR_BYTES
                                start_row, start_step = VECTOR_BYTES, 0
                            to, to_row = kept, pitch
                            done = (group * row_blocks * height + r) * depth + k * height
                            at = a[FIRST_SOURCE + s * SOURCE_WIDTH + PACKED] + done * size
                            windows = slab_at + (s * area + begin) * size
                            places = table + k * 8
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
