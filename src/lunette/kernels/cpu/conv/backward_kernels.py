"""Compiled loops of a weight's gradient: sums over positions of image cell × window.

Where a group has many output channels, windows are transposed and a vector holds channels; where it has few, a vector
holds positions.
"""

# mypy: disallow-untyped-defs = False
from __future__ import annotations

from functools import cache
from typing import Any

from numba import types

from lunette.kernels.cpu.conv import microkernel
from lunette.kernels.cpu.conv.input_tile import (
    ITEM,
    elements,
    load_tile,
    locate,
    offset_of,
    put,
    size_of,
    store_transposed,
    tile_extent,
    zero_of,
    zeros,
)
from lunette.kernels.cpu.conv.microkernel import multiply_across
from lunette.kernels.cpu.conv.records import BACKWARD_WEIGHTS, DOTS, SOURCE
from lunette.kernels.cpu.conv.sizes import DOT_ROWS, ROWS_1, ROWS_2, ROWS_4, TAPS, VECTOR_BYTES
from lunette.kernels.cpu.conv.vectors import transpose_corner, transpose_square
from lunette.kernels.cpu.jit import intrinsics
from lunette.kernels.cpu.jit.intrinsics import compiled, noinline, pointer

__all__ = ["CHUNK", "dots_kernel", "outer_kernel", "reduce_kernel"]

outer_plan, dots_plan, source_at = BACKWARD_WEIGHTS.at, DOTS.at, SOURCE.at

CHUNK = 6
"""Numbers of a chunk: first and last channel, first tap, rows, first and last plane."""


@compiled
def transpose_windows(plan, at, group, target, zero):
    """The gradients of a tile's windows as rows of channels: `lanes` numbers for each position, zeros past the last channel.

    Writes up to a vector of rows beyond the last position.
    """
    noinline()
    size, rank, strides = size_of(zero), plan.rank, plan.grad_stride
    vector, pitch, channel = VECTOR_BYTES // size, plan.lanes * size, plan.grad_channel * size
    high, wide = tile_extent(plan, at)
    stride, jump = strides[rank - 1], strides[rank - 2]
    first = (
        plan.grad_item[at[ITEM]]
        + offset_of(rank, strides, at)
        + group * plan.rows * plan.grad_channel
    )
    count, lines = wide, high
    if jump == wide * stride:  # rows that lie one after the other are one
        count, lines = wide * high, 1
    for y in range(lines):
        for r in range(0, plan.lanes, vector):
            x = plan.grad + (first + y * jump + r * plan.grad_channel) * size
            to = target + y * wide * pitch + r * size
            known = min(vector, plan.rows - r)
            if stride != 1:
                out, values = elements(to, zero), elements(x, zero)
                for j in range(count):
                    for q in range(vector):
                        value = values[q * plan.grad_channel + j * stride] if q < known else zero
                        out[j * plan.lanes + q] = value
                continue
            for j in range(0, count, vector):
                if known == vector and count - j >= vector:
                    transpose_square(to + j * pitch, pitch, x + j * size, channel, zero)
                else:
                    transpose_corner(
                        to + j * pitch,
                        pitch,
                        x + j * size,
                        channel,
                        known,
                        min(vector, count - j),
                        zero,
                    )


@compiled
def add_products(plan, offsets, tile, windows, sums, rows, extent, zero):
    """Add `Σ_position tile[k, position] · windows[position, :]` to each of `rows` rows of sums."""
    size, lanes = size_of(zero), plan.lanes
    vector, pitch, high, wide = VECTOR_BYTES // size, lanes * size, extent[0], extent[1]
    lane, jump = 0, (plan.width - wide) * size
    while lane < lanes:
        left = (lanes - lane) // vector
        x, y = windows + lane * size, sums + lane * size
        if left >= 4:
            for r in range(0, rows, ROWS_4):
                multiply_across(
                    ROWS_4,
                    4,
                    tile,
                    offsets + r * 8,
                    x,
                    pitch,
                    y + r * pitch,
                    pitch,
                    wide,
                    high,
                    jump,
                    zero,
                )
            lane += 4 * vector
        elif left >= 2:
            for r in range(0, rows, ROWS_2):
                multiply_across(
                    ROWS_2,
                    2,
                    tile,
                    offsets + r * 8,
                    x,
                    pitch,
                    y + r * pitch,
                    pitch,
                    wide,
                    high,
                    jump,
                    zero,
                )
            lane += 2 * vector
        else:
            for r in range(0, rows, ROWS_1):
                multiply_across(
                    ROWS_1,
                    1,
                    tile,
                    offsets + r * 8,
                    x,
                    pitch,
                    y + r * pitch,
                    pitch,
                    wide,
                    high,
                    jump,
                    zero,
                )
            lane += vector


@compiled
def store_weights(plan, unit, square, zero):
    """A chunk's sums in the order of the weight; `swapped` ones have it already, but for the end of each row."""
    noinline()
    size, group, chunk = size_of(zero), unit // plan.chunk_count, unit % plan.chunk_count * CHUNK
    first, rows = plan.chunks[chunk] * plan.taps + plan.chunks[chunk + 2], plan.chunks[chunk + 3]
    depth, pitch = plan.channels * plan.taps, plan.lanes * size
    sums = plan.sums + unit * plan.chunk_rows * pitch
    if plan.swapped != 0:
        put(
            plan.out + first * plan.rows * size,
            plan.rows * size,
            sums,
            pitch,
            rows,
            plan.rows,
            1,
            zero,
        )
    else:
        to = plan.out + (group * plan.rows * depth + first) * size
        store_transposed((to, depth, 1), sums, pitch, plan.rows, rows, square, zero)


@cache
def outer_kernel(dtype: str) -> Any:
    """Units (segment, group, chunk): the sums over a segment's tiles, one after the other."""
    zero = zero_of(dtype)
    size = zero.itemsize

    @intrinsics.kernel
    def outer(told, scratch, _a, _b, _c, _d, first, last):
        plan = outer_plan(told)
        source, at = source_at(plan.source_at), pointer(scratch + plan.index_at, types.int64)
        tile_at, turned_at = scratch, scratch + plan.turned_at
        units, area = plan.groups * plan.chunk_count, plan.height * plan.width * size
        for unit in range(first, last):
            segment, group, number = (
                unit // units,
                unit % units // plan.chunk_count,
                unit % plan.chunk_count,
            )
            chunk = number * CHUNK
            channels = (
                group * plan.channels + plan.chunks[chunk],
                group * plan.channels + plan.chunks[chunk + 1],
            )
            planes, rows = (plan.chunks[chunk + 4], plan.chunks[chunk + 5]), plan.chunks[chunk + 3]
            sums = plan.sums + unit * plan.chunk_rows * plan.lanes * size
            zeros(sums, plan.chunk_rows * plan.lanes, zero)
            for tile in range(
                plan.tiles * segment // plan.segments, plan.tiles * (segment + 1) // plan.segments
            ):
                locate(plan, tile, at)
                load_tile(plan, source, tile_at + planes[0] * area, at, channels, planes, zero)
                transpose_windows(plan, at, group, turned_at, zero)
                add_products(
                    plan, plan.offsets + number * plan.offsets_stride * 8, tile_at, turned_at, sums, rows,
                    tile_extent(plan, at), zero,
                )  # fmt: skip
            if plan.segments == 1:
                store_weights(plan, unit, turned_at, zero)

    return outer


@cache
def reduce_kernel(dtype: str) -> Any:
    """Units (group, chunk): sums of neighbouring segments are added, then of neighbours of these, and put away."""
    zero = zero_of(dtype)
    size = zero.itemsize

    @intrinsics.kernel
    def reduce(told, scratch, _a, _b, _c, _d, first, last):
        plan = outer_plan(told)
        count = plan.chunk_rows * plan.lanes
        apart_by = plan.groups * plan.chunk_count * count * size
        for unit in range(first, last):
            sums, step = plan.sums + unit * count * size, 1
            while step < plan.segments:
                for s in range(0, plan.segments - step, 2 * step):
                    total = elements(sums + s * apart_by, zero)
                    other = elements(sums + (s + step) * apart_by, zero)
                    for i in range(count):
                        total[i] += other[i]
                step *= 2
            store_weights(plan, unit, scratch, zero)

    return reduce


@cache
def dots_kernel(dtype: str) -> Any:
    """Units (group, channel): add `Σ_position tile · window` to `sums[group, row, channel, tap]`.

    `offsets` has the taps' places in the input tile, in bytes, and `sums` as many taps: a multiple of TAPS.
    """
    zero = zero_of(dtype)
    size = zero.itemsize

    @intrinsics.kernel
    def dots(told, scratch, _a, _b, _c, _d, first, last):
        plan = dots_plan(told)
        source, at = source_at(plan.source_at), pointer(scratch + plan.index_at, types.int64)
        tile_at, lines_at, rank = scratch, scratch + plan.lines_at, plan.rank
        stride, jump, channel = (
            plan.grad_stride[rank - 1],
            plan.grad_stride[rank - 2],
            plan.grad_channel,
        )
        sums_row = plan.channels * plan.padded * size
        for unit in range(first, last):
            group = unit // plan.channels
            for tile in range(plan.tiles):
                locate(plan, tile, at)
                high, wide = tile_extent(plan, at)
                load_tile(plan, source, tile_at, at, (unit, unit + 1), (0, plan.plane_count), zero)
                start = plan.grad_item[at[ITEM]] + offset_of(rank, plan.grad_stride, at)
                for r in range(0, plan.rows, DOT_ROWS):
                    some = min(DOT_ROWS, plan.rows - r)
                    x = plan.grad + (start + (group * plan.rows + r) * channel) * size
                    x_row, x_line = channel * size, jump * size
                    if stride != 1:
                        for i in range(some):
                            for y in range(high):
                                values = elements(x + i * x_row + y * x_line, zero)
                                line = elements(lines_at + (i * high + y) * wide * size, zero)
                                for j in range(wide):
                                    line[j] = values[j * stride]
                        x, x_row, x_line = lines_at, high * wide * size, wide * size
                    total = plan.sums + (
                        ((group * plan.rows + r) * plan.channels) + unit % plan.channels
                    ) * (plan.padded * size)
                    for t in range(0, plan.padded, TAPS):
                        if some == DOT_ROWS:
                            microkernel.dots(
                                DOT_ROWS, TAPS, tile_at, plan.offsets + t * 8, x, x_row, wide, high,
                                plan.width * size, x_line, total + t * size, sums_row, zero,
                            )  # fmt: skip
                        else:
                            for i in range(some):
                                microkernel.dots(
                                    1, TAPS, tile_at, plan.offsets + t * 8, x + i * x_row, 0, wide, high,
                                    plan.width * size, x_line, total + i * sums_row + t * size, 0, zero,
                                )  # fmt: skip

    return dots
