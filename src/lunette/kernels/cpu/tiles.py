"""Compiled loops over the tiles of a convolution: unfold a tile, multiply it, put the sums away.

An unfolded tile has a row per (channel, tap) and a column per output position; it stays in the
first-level cache while all output channels are multiplied with it. Positions are numbered row-major over the batch and the output's axes
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
from lunette.kernels.cpu.products import multiply_add
from lunette.kernels.cpu.vectors import SUMS, VECTOR_BYTES, copy_vectors, move_part

__all__ = ["COLUMNS", "HEAD", "ROWS", "correlate", "cut", "elements", "fill", "pack", "put"]

ROWS = SUMS // 3
COLUMNS = 3
"""A block of `correlate`: ROWS output channels × COLUMNS vectors of positions."""
NEAR = 24576
"""Bytes of unfolded panels that are multiplied together."""
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

    Column i of a run reads position `index·step + tap` on each axis. A vector of a row is put
    together from the runs that it spans, for one channel after the other.
    """
    rank = steps.size
    step, jump = steps[rank - 1], strides[rank - 1] * steps[rank - 1]
    lanes = VECTOR_BYTES // size
    channels, row_step = last_channel - first_channel, (last_tap - first_tap) * pitch
    for tap in range(first_tap, last_tap):
        row = target + (tap - first_tap) * pitch
        written = 0
        for i in range(count):
            inside = True
            offset, position = offsets[runs[i, 2]] + first_channel * channel, 0
            for a in range(rank):
                position = runs[i, HEAD + a] * steps[a] + taps[tap, a]
                offset += position * strides[a]
                if a < rank - 1 and not 0 <= position < lengths[a]:
                    inside = False
            if not inside or position >= lengths[rank - 1]:
                continue
            start, length = runs[i, 0], runs[i, 1]
            low = start if position >= 0 else start + (step - 1 - position) // step
            high = start + min(length, (lengths[rank - 1] - 1 - position) // step + 1)
            if low >= high:
                continue
            at = source + (offset - start * jump) * size
            if 1 <= jump <= 2:
                for v in range(low // lanes, (high - 1) // lanes + 1):
                    to, column = row + v * VECTOR_BYTES, v * lanes
                    x, y = max(low - column, 0), min(high - column, lanes)
                    merge = written >> v & 1
                    if jump == 1:
                        move_part(
                            1, to, row_step, at + column * size, channel * size, channels, x, y,
                            merge, zero,
                        )  # fmt: skip
                    else:
                        move_part(
                            2, to, row_step, at + 2 * column * size, channel * size, channels, x,
                            y, merge, zero,
                        )  # fmt: skip
                    written |= 1 << v
            else:
                if not written:
                    written = clear(row, row_step, channels, written, zero)
                for c in range(channels):
                    out = elements(row + c * row_step, zero)
                    values = elements(at + c * channel * size, zero)
                    for j in range(low, high):
                        out[j] = values[j * jump]
        clear(row, row_step, channels, written, zero)


@compiled
def clear(row, row_step, channels, written, zero):
    """Zeros in the vectors of a row that were not written, for each channel; now all of them are."""
    for v in range(COLUMNS):
        if not written >> v & 1:
            move_part(1, row + v * VECTOR_BYTES, row_step, row, 0, channels, 0, 0, 0, zero)
    return (1 << COLUMNS) - 1


@kernel
def pack(
    first, last, target, weight, row_stride, group_stride, offsets, rows, blocks, height, zero, size
):
    """The weights as blocks (group, block of `height` rows): k × height, zeros for missing rows."""
    depth = offsets.size
    for unit in range(first, last):
        group, block = unit // blocks, unit % blocks
        out = elements(target + unit * depth * height * size, zero)
        for r in range(height):
            row = block * height + r
            if row >= rows:
                for k in range(depth):
                    out[k * height + r] = zero
                continue
            values = elements(weight + (group * group_stride + row * row_stride) * size, zero)
            for k in range(depth):
                out[k * height + r] = values[offsets[k]]


@compiled
def put(to, at, count, stride, zero):
    """Copy `count` numbers that lie side by side to places `stride` elements apart."""
    if stride == 1:
        copy_vectors(to, at, count, zero)
    else:
        results, values = elements(to, zero), elements(at, zero)
        for j in range(count):
            results[j * stride] = values[j]


@kernel
def correlate(
    first, last, tiles, panels, counts, lengths, steps, taps, channel_chunk, tap_chunk, sources,
    offsets, channels, strides, in_channels, packed, rows, group_rows, bias, out, out_offsets,
    out_channel, out_counts, out_strides, zero, size,
):  # fmt: skip
    """Units (group, tile of `panels` panels of COLUMNS vectors): sums over channels and taps.

    `out[group·group_rows + r] = bias + Σ_source Σ_channel Σ_tap packed · source`, a fold that starts
    from the bias and takes channels and taps in order, chunk after chunk. Positions of the output
    have `out_counts` and `out_strides`, those of the image `counts`.
    """
    lanes = VECTOR_BYTES // size
    columns, pitch = COLUMNS * lanes, COLUMNS * VECTOR_BYTES
    total = out_offsets.size
    for n in counts:
        total *= n
    count_taps = taps.shape[0]
    depth, blocks = in_channels * count_taps, (rows + ROWS - 1) // ROWS
    line = 64 // size  # buffers start on a cache line
    tile_rows = channel_chunk * min(count_taps, tap_chunk)
    near = max(1, NEAR // max(1, tile_rows * pitch))
    tile = np.empty(near * tile_rows * columns + line, type(zero))
    sums = np.empty(blocks * panels * ROWS * columns + line, type(zero))
    starts = np.empty(blocks * ROWS * lanes + line, type(zero))
    tile_at, sums_at = -(-tile.ctypes.data // 64) * 64, -(-sums.ctypes.data // 64) * 64
    starts_at = -(-starts.ctypes.data // 64) * 64
    runs = np.empty((panels, columns, HEAD + counts.size), np.int64)
    out_runs = np.empty((panels, columns, HEAD + out_counts.size), np.int64)
    run_counts, out_run_counts = np.empty(panels, np.int64), np.empty(panels, np.int64)
    direct = np.empty(panels, np.int64)
    for unit in range(first, last):
        group, start = unit // tiles, unit % tiles * panels * columns
        target = out + group * group_rows * out_channel * size
        used = 0
        for p in range(panels):
            begin = start + p * columns
            if begin < total:
                end = min(total, begin + columns)
                run_counts[p] = cut(begin, end, counts, runs[p])
                out_run_counts[p] = cut(begin, end, out_counts, out_runs[p])
                direct[p] = 0
                if out_runs[p, 0, 1] == columns and out_strides[out_counts.size - 1] == 1:
                    direct[p] = target + run_offset(out_runs[p, 0], out_offsets, out_strides) * size
                used = p + 1
        spread = elements(starts_at, zero)
        for r in range(blocks * ROWS):
            value = bias[group * group_rows + r] if r < rows and bias.size else zero
            for j in range(lanes):
                spread[r * lanes + j] = value
        done = 0
        for s in range(sources.size):
            for c in range(0, in_channels, channel_chunk):
                c_end = min(in_channels, c + channel_chunk)
                for t in range(0, count_taps, tap_chunk):
                    t_end = min(count_taps, t + tap_chunk)
                    now = (c_end - c) * (t_end - t)
                    done += now
                    # Panels that fit in the first-level cache together are multiplied together.
                    for q in range(0, used, near):
                        q_end = min(used, q + near)
                        for p in range(q, q_end):
                            unfold(
                                tile_at + (p - q) * now * pitch, pitch, runs[p], run_counts[p],
                                sources[s], offsets[s], channels[s], strides[s], lengths, steps,
                                taps, t, t_end, group * in_channels + c,
                                group * in_channels + c_end, zero, size,
                            )  # fmt: skip
                        for block in range(blocks):
                            k = (group * blocks + block) * depth + c * count_taps + t
                            for p in range(q, q_end):
                                kept = sums_at + (block * panels + p) * ROWS * pitch
                                begins, begins_row, begins_step = kept, pitch, VECTOR_BYTES
                                if done == now:
                                    begins = starts_at + block * ROWS * VECTOR_BYTES
                                    begins_row, begins_step = VECTOR_BYTES, 0
                                ends, ends_row = kept, pitch
                                if done == depth * sources.size and goes(direct[p], block, rows):
                                    ends_row = out_channel * size
                                    ends = direct[p] + block * ROWS * ends_row
                                multiply_add(
                                    ROWS, COLUMNS, 0, packed[s] + k * ROWS * size,
                                    tile_at + (p - q) * now * pitch, pitch, begins, begins_row,
                                    begins_step, ends, ends_row, now, zero,
                                )  # fmt: skip
        for r in range(rows):
            for p in range(used):
                if done and goes(direct[p], r // ROWS, rows):
                    continue
                row = sums_at + ((r // ROWS * panels + p) * ROWS + r % ROWS) * pitch
                if not done:
                    for v in range(COLUMNS):
                        copy_vectors(row + v * VECTOR_BYTES, starts_at + r * VECTOR_BYTES, lanes, zero)
                for i in range(out_run_counts[p]):
                    run = out_runs[p, i]
                    offset = run_offset(run, out_offsets, out_strides) + r * out_channel
                    put(
                        target + offset * size, row + run[0] * size, run[1],
                        out_strides[out_counts.size - 1], zero,
                    )  # fmt: skip
    # An array is freed after its last mention, and these are in use until here by their addresses.
    return tile.size, sums.size, starts.size


@compiled
def goes(direct, block, rows):
    """Whether a block's sums go from the registers to the output: whole rows of one run."""
    return direct != 0 and (block + 1) * ROWS <= rows


@compiled
def run_offset(run, offsets, strides):
    """Where a run begins, in elements."""
    offset = offsets[run[2]]
    for a in range(strides.size):
        offset += run[HEAD + a] * strides[a]
    return offset
