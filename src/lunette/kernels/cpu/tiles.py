"""Compiled loops over the tiles of a convolution: unfold a tile, multiply it, put the sums away.

An unfolded tile has a row per (channel, tap) and a column per output position; it is never larger
than the second-level cache. Positions are numbered row-major over the batch and the output's axes
and handled in *runs* along the last axis. All addresses and strides are signed 64-bit integers, in
bytes for addresses and in elements for strides, so arrays of any layout are read where they are.
"""

# mypy: disallow-untyped-defs = False
from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.extending import intrinsic

from lunette.kernels.cpu.machine import compiled, kernel
from lunette.kernels.cpu.vectors import SUMS, copy_vectors, multiply_add, transpose_square

__all__ = ["COLUMNS", "HEAD", "ROWS", "correlate", "cut", "elements", "fill", "pack", "transpose"]

ROWS = SUMS // 3
COLUMNS = 3
"""A block of `correlate`: ROWS output channels × COLUMNS vectors of positions."""
HEAD = 3
"""A run is (first column, length, batch item, index on each axis)."""


@intrinsic  # type: ignore[untyped-decorator]
def elements(context: Any, address: Any, zero: Any) -> Any:
    """The address as a pointer to elements of the type of `zero`."""
    result = types.CPointer(zero)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

    return result(address, zero), generate


@compiled
def cut(first, last, counts, runs):
    """Cut positions `first … last` into runs along the last axis; how many there are."""
    rank = counts.size
    rest = first
    for a in range(rank - 1, -1, -1):
        runs[0, HEAD + a] = rest % counts[a]
        rest //= counts[a]
    runs[0, 2] = rest
    n, q = 0, first
    while True:
        length = min(counts[rank - 1] - runs[n, HEAD + rank - 1], last - q)
        runs[n, 0], runs[n, 1] = q - first, length
        q += length
        if q >= last:
            return n + 1
        for i in range(2, HEAD + rank):
            runs[n + 1, i] = runs[n, i]
        n += 1
        runs[n, HEAD + rank - 1] = 0
        a = rank - 2
        while a >= 0:
            runs[n, HEAD + a] += 1
            if runs[n, HEAD + a] < counts[a]:
                break
            runs[n, HEAD + a] = 0
            a -= 1
        if a < 0:
            runs[n, 2] += 1


@compiled
def fill(target, count, zero):
    """Zeros."""
    out = elements(target, zero)
    for i in range(count):
        out[i] = zero


@compiled
def unfold(
    target, pitch, runs, count, source, offsets, channel, strides, lengths, steps, taps,
    first_tap, last_tap, first_channel, last_channel, zero, size,
):  # fmt: skip
    """Rows (channel, tap) of the runs' columns, read from `source`; zeros outside of it.

    Column i of a run reads position `index·step + tap` on each axis.
    """
    rank = steps.size
    step, stride = steps[rank - 1], strides[rank - 1]
    for i in range(count):
        length = runs[i, 1]
        for tap in range(first_tap, last_tap):
            inside = True
            offset, position = offsets[runs[i, 2]], 0
            for a in range(rank):
                position = runs[i, HEAD + a] * steps[a] + taps[tap, a]
                offset += position * strides[a]
                if a < rank - 1 and not 0 <= position < lengths[a]:
                    inside = False
            low, high = 0, 0
            if inside and position < lengths[rank - 1]:
                low = 0 if position >= 0 else min(length, (step - 1 - position) // step)
                high = min(length, (lengths[rank - 1] - 1 - position) // step + 1)
                high = max(low, high)
            row = target + (tap - first_tap) * pitch + runs[i, 0] * size
            at = source + (offset + first_channel * channel + low * step * stride) * size
            for _ in range(first_channel, last_channel):
                if low > 0:
                    fill(row, low, zero)
                if high > low:
                    if stride * step == 1:
                        copy_vectors(row + low * size, at, high - low, zero)
                    else:
                        out, values = elements(row + low * size, zero), elements(at, zero)
                        for j in range(high - low):
                            out[j] = values[j * stride * step]
                if high < length:
                    fill(row + high * size, length - high, zero)
                row += (last_tap - first_tap) * pitch
                at += channel * size


@kernel
def pack(first, last, target, weight, row_stride, group_stride, offsets, rows, blocks, zero, size):  # fmt: skip
    """The weights as blocks (group, block of ROWS rows): each k × ROWS, zeros for missing rows."""
    depth = offsets.size
    for unit in range(first, last):
        group, block = unit // blocks, unit % blocks
        out = elements(target + unit * depth * ROWS * size, zero)
        for r in range(ROWS):
            row = block * ROWS + r
            if row >= rows:
                for k in range(depth):
                    out[k * ROWS + r] = zero
                continue
            values = elements(weight + (group * group_stride + row * row_stride) * size, zero)
            for k in range(depth):
                out[k * ROWS + r] = values[offsets[k]]


@kernel
def correlate(
    first, last, tiles, panels, counts, lengths, steps, taps, channel_chunk, tap_chunk, sources,
    offsets, channels, strides, in_channels, packed, rows, group_rows, bias, out, out_offsets,
    out_channel, out_strides, zero, size, columns,
):  # fmt: skip
    """Units (group, tile of `panels` panels of `columns` positions): sums over channels and taps.

    `out[group·group_rows + r] = bias + Σ_source Σ_channel Σ_tap packed · source`, a fold that starts
    from the bias and takes channels and taps in order, chunk after chunk.
    """
    rank, total = counts.size, out_offsets.size
    for a in range(rank):
        total *= counts[a]
    count_taps = taps.shape[0]
    depth, blocks = in_channels * count_taps, (rows + ROWS - 1) // ROWS
    pitch = columns * size
    line = 64 // size  # buffers start on a cache line
    room = channel_chunk * min(count_taps, tap_chunk) * columns
    tile = np.empty(panels * room + line, type(zero))
    sums = np.empty(blocks * panels * ROWS * columns + line, type(zero))
    tile_at, sums_at = -(-tile.ctypes.data // 64) * 64, -(-sums.ctypes.data // 64) * 64
    runs = np.empty((panels, columns, HEAD + rank), np.int64)
    run_counts = np.empty(panels, np.int64)
    for unit in range(first, last):
        group, start = unit // tiles, unit % tiles * panels * columns
        used = 0
        for p in range(panels):
            begin = start + p * columns
            if begin < total:
                run_counts[p] = cut(begin, min(total, begin + columns), counts, runs[p])
                used = p + 1
        for r in range(blocks * ROWS):
            value = bias[group * group_rows + r] if r < rows and bias.size else zero
            for p in range(used):
                at = elements(sums_at + ((r // ROWS * panels + p) * ROWS + r % ROWS) * pitch, zero)
                for j in range(columns):
                    at[j] = value
        for s in range(sources.size):
            for c in range(0, in_channels, channel_chunk):
                c_end = min(in_channels, c + channel_chunk)
                for t in range(0, count_taps, tap_chunk):
                    t_end = min(count_taps, t + tap_chunk)
                    for p in range(used):
                        unfold(
                            tile_at + p * room * size, pitch, runs[p], run_counts[p], sources[s],
                            offsets[s], channels[s], strides[s], lengths, steps, taps, t, t_end,
                            group * in_channels + c, group * in_channels + c_end, zero, size,
                        )  # fmt: skip
                    k = c * count_taps + t
                    for block in range(blocks):
                        a = packed[s] + ((group * blocks + block) * depth + k) * ROWS * size
                        for p in range(used):
                            multiply_add(
                                ROWS, COLUMNS, 0, a, tile_at + p * room * size, pitch,
                                sums_at + (block * panels + p) * ROWS * pitch, pitch,
                                (c_end - c) * (t_end - t), zero,
                            )  # fmt: skip
        for r in range(rows):
            for p in range(used):
                row = sums_at + ((r // ROWS * panels + p) * ROWS + r % ROWS) * pitch
                for i in range(run_counts[p]):
                    offset = out_offsets[runs[p, i, 2]] + (group * group_rows + r) * out_channel
                    for a in range(rank):
                        offset += runs[p, i, HEAD + a] * out_strides[a]
                    to, at = out + offset * size, row + runs[p, i, 0] * size
                    stride = out_strides[rank - 1]
                    if stride == 1:
                        copy_vectors(to, at, runs[p, i, 1], zero)
                    else:
                        results, values = elements(to, zero), elements(at, zero)
                        for j in range(runs[p, i, 1]):
                            results[j * stride] = values[j]
    # An array is freed after its last mention, and these are in use until here by their addresses.
    return tile.size, sums.size


@kernel
def transpose(
    first, last, start, stop, block, counts, source, offsets, channel, strides, groups, rows,
    lanes, target, zero, size, vector,
):  # fmt: skip
    """Windows as rows of channels: for each position of `start … stop`, `groups × lanes` numbers.

    Units are blocks of positions; lanes beyond a group's `rows` channels are zeros.
    """
    rank = counts.size
    runs = np.empty((block, HEAD + rank), np.int64)
    width = groups * lanes
    for unit in range(first, last):
        begin = start + unit * block
        n = cut(begin, min(stop, begin + block), counts, runs)
        for i in range(n):
            offset = offsets[runs[i, 2]]
            for a in range(rank):
                offset += runs[i, HEAD + a] * strides[a]
            row = target + (begin - start + runs[i, 0]) * width * size
            stride = strides[rank - 1]
            squares = runs[i, 1] // vector * vector if stride == 1 else 0
            for g in range(groups):
                for r in range(0, lanes, vector):
                    at = source + (offset + (g * rows + r) * channel) * size
                    to = row + (g * lanes + r) * size
                    known = min(vector, rows - r)
                    first_left = squares if known == vector else 0
                    for j in range(0, first_left, vector):
                        transpose_square(
                            to + j * width * size, width * size, at + j * size, channel * size, zero
                        )
                    out, values = elements(to, zero), elements(at, zero)
                    for j in range(first_left, runs[i, 1]):
                        for q in range(known):
                            out[j * width + q] = values[q * channel + j * stride]
                        for q in range(known, vector):
                            out[j * width + q] = zero
