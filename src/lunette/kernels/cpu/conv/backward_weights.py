"""Backward-weights: sums over positions of image cell × window, cut into segments, chunks and groups.

Which positions are summed together follows from shapes alone: tiles one after the other in a segment, then neighbouring
segments, then neighbouring boxes. So the bits do not depend on threads, nor on where the numbers lie.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np

from lunette.kernels import threads
from lunette.kernels.cpu.conv.arrays import (
    FORMS,
    Array,
    Form,
    address,
    place,
    run,
    scratchpad,
)
from lunette.kernels.cpu.conv.geometry import (
    Phase,
    Strides,
    Tile,
    cells_of,
    merge,
    spans,
    sparse,
    tile_of,
    window_phase,
)  # fmt: skip
from lunette.kernels.cpu.conv.records import BACKWARD_WEIGHTS, DOTS, SOURCE
from lunette.kernels.cpu.conv.sizes import DOT_ROWS, ROWS_MOST, TAPS, VECTOR_BYTES, height
from lunette.kernels.cpu.conv.sparse import sparse_weights
from lunette.kernels.cpu.conv.tiling import tile_fields
from lunette.kernels.cpu.jit.cache import Kernels
from lunette.kernels.cpu.memory.block_cache import new_array
from lunette.ops.convolution import Convolution

__all__ = ["weight_sums"]

kernels = Kernels("conv.backward_kernels")

SHORT = 128
"""An axis shorter than this, read as it lies, joins the one before it: rows of a tile are longer."""
POSITIONS, DOT_POSITIONS = 128, 1 << 12
"""Positions of a tile, about, whose transposed windows stay in the nearest caches; and where they are not transposed."""
CHUNK, LEAST_CHUNK = 288, 48
"""Rows of a chunk: each is multiplied with windows that are transposed once for the chunk."""
UNITS = 32
"""Units that a large gradient is cut into, so that threads end together."""
SEGMENT = 1024
"""Positions of a segment, at least."""
PRODUCTS_EACH = 1 << 19
"""Products that are worth a thread."""


class WeightSchedule(NamedTuple):
    """How to sum a gradient of the weights: tiles of positions, segments of tiles, chunks of channels and taps."""

    tile: Tile
    fields: dict[str, int]
    area: int
    segments: int
    chunks: Array
    chunk_rows: int
    offsets: Array
    cells: Array
    strides: Array
    arrays: tuple[Array, ...]


@lru_cache(maxsize=1024)
def fits(phase: Phase, strides: Strides) -> bool:
    """Whether image and windows of these strides have the tiles of arrays without gaps.

    Tiles decide the order of a sum, and that must not depend on where the numbers lie.
    """
    whole = tuple(
        tuple(prod(lengths[a + 1 :]) for a in range(len(lengths)))
        for lengths in (phase.lengths, phase.counts)
    )
    found, wanted = (merge(phase, s, SHORT)[1] for s in (strides, whole))
    return np.array_equal(found, wanted)


@lru_cache(maxsize=1024)
def weight_schedule(
    phase: Phase, strides: Strides, items: int, groups: int, channels: int, rows: int, size: int
) -> WeightSchedule:
    """Tiles, segments and chunks for so many rows of a group: by shapes alone."""
    lengths, counts, steps, taps, table = merge(phase, strides, SHORT)
    high, wide, vector = int(counts[-2]), int(counts[-1]), VECTOR_BYTES // size
    positions = DOT_POSITIONS if few(rows, size) else POSITIONS
    # As many rows as a window's reach, so that few rows are loaded twice; whole rows, or parts of one.
    reach = int(np.ptp(taps[:, -2]) // steps[-2]) if wide <= 160 else 1
    columns = wide if wide <= 160 else -(-wide // -(-wide // 128))
    blocks = (min(high, max(1, positions // wide, min(reach, 8))), columns)
    found = tile_of(counts, steps, taps, items, blocks)
    cells, area = cells_of(found), len(found.planes) * int(found.shape[0] * found.shape[1])
    per_tile = blocks[0] * blocks[1]
    most = max(1, found.tiles * per_tile // SEGMENT)
    # As few chunks as there may be, for each transposes all windows; then segments, so that there are enough units.
    lanes = -(-rows // vector)
    depth = channels * len(taps)
    wanted = max(1, -(-UNITS // (groups * most)))
    chunk = max(LEAST_CHUNK, min(CHUNK, -(-depth // wanted)))
    channel_chunk, tap_chunk = _filling(channels, len(taps), chunk, height(lanes))
    chunks, places = [], []
    for c in range(0, channels, channel_chunk):
        for t in range(0, len(taps), tap_chunk):
            last, stop = min(channels, c + channel_chunk), min(len(taps), t + tap_chunk)
            used = found.which[t:stop]
            chunks.append((c, last, t, (last - c) * (stop - t), used.min(), used.max() + 1))
            places.append(np.add.outer(np.arange(last - c) * area, cells[t:stop]).ravel() * size)
    segments = max(1, min(most, -(-UNITS // (groups * len(chunks)))))
    chunk_rows = channel_chunk * tap_chunk + max(ROWS_MOST, vector)
    offsets = np.zeros((len(places), chunk_rows), np.int64)
    for line, row in zip(offsets, places, strict=True):
        line[: len(row)] = row
    padded = np.zeros(-(-len(cells) // TAPS) * TAPS, np.int64)
    padded[: len(cells)] = cells * size
    ranges = np.array(chunks, np.int64)
    return WeightSchedule(
        found, tile_fields(counts, lengths, steps, found), area, segments, ranges, chunk_rows, offsets, padded, table,
        (counts, lengths, steps),
    )  # fmt: skip


def few(rows: int, size: int) -> bool:
    """Whether a group has so few rows that vectors had better hold positions."""
    return rows * size * 2 <= VECTOR_BYTES


def _filling(channels: int, taps: int, chunk: int, rows: int) -> tuple[int, int]:
    """Channels and taps of a chunk: those that leave the least of whole blocks of rows unused."""
    if taps > chunk:
        parts = -(-taps // (max(1, chunk // rows) * rows))
        return 1, -(-taps // parts)
    most = min(channels, chunk // taps)

    def blocks(count: int) -> int:
        full, rest = divmod(channels, count)
        return full * -(-count * taps // rows) + -(-rest * taps // rows)

    return min(range(max(1, most // 2), most + 1), key=lambda count: (blocks(count), -count)), taps


def weight_sums(
    op: Convolution, image: Array, windows: Array, shape: tuple[int, ...], work: Any
) -> Array:
    """The sum over positions of image cell × window, for each weight of an array of this shape."""
    form, rank, groups = FORMS[np.dtype(work)], op.rank, op.groups
    geometry = op, image.shape[-rank:], windows.shape[-rank:]
    if sparse(*geometry, False, prod(windows.shape[: -rank - 1]) * shape[0] * shape[1]):
        return sparse_weights(op, spans(*geometry), image, windows, shape, work)
    if not image.size:
        return np.zeros(shape, work)
    phase, swapped = window_phase(*geometry), False
    if groups == 1 and shape[0] > shape[1] and not few(shape[1], form.size) and _is_matrix(phase):
        swapped, image, windows = True, windows, image
    source, grads = place(image, rank), place(windows, rank)
    if not fits(phase, (source.strides, grads.strides)):
        image, windows = np.array(image, order="C"), np.array(windows, order="C")
        source, grads = place(image, rank), place(windows, rank)
    rows, channels = shape[0] // groups, shape[1]
    if swapped:
        rows, channels = channels, rows
    strides = (source.strides, grads.strides)
    cut = weight_schedule(phase, strides, len(source.offsets), groups, channels, rows, form.size)
    table = np.array(
        SOURCE.numbers(
            x=source.address,
            item=source.offsets_at,
            channel=source.channel,
            stride=address(cut.strides[0]),
            packed=0,
        ),
        np.int64,
    )
    products = prod(shape) * prod(windows.shape) // windows.shape[-rank - 1]
    workers = max(1, min(threads.get_num_threads(), products // PRODUCTS_EACH))
    fields = {
        **cut.fields, "tiles": cut.tile.tiles, "channels": channels, "rows": rows, "grad": grads.address,
        "grad_item": grads.offsets_at, "grad_channel": grads.channel, "grad_stride": address(cut.strides[1]),
        "source_at": address(table),
    }  # fmt: skip
    held = source, grads, table, cut
    if few(rows, form.size):
        return _dots(op, cut, fields, held, shape, (form, workers))
    return _outer(cut, fields, held, shape, (form, workers), groups, swapped)


def _outer(
    cut: WeightSchedule,
    fields: dict[str, int],
    held: Any,
    shape: tuple[int, ...],
    how: tuple[Form, int],
    groups: int,
    swapped: bool,
) -> Array:
    """Products of rows of the input tile with transposed windows."""
    (form, workers), vector = how, VECTOR_BYTES // how[0].size
    rows = fields["rows"]
    lanes = -(-rows // vector) * vector
    out, units = np.empty(shape, form.work), groups * len(cut.chunks)
    sums = new_array((cut.segments * units * cut.chunk_rows * lanes,), np.dtype(form.work))
    deepest = max(last - first for first, last, *_ in cut.chunks.tolist())
    positions = int(cut.tile.blocks[0] * cut.tile.blocks[1])
    parts = deepest * cut.area * form.size + VECTOR_BYTES, (positions + vector) * lanes * form.size
    (_, turned, index), scratch = scratchpad([*parts, 8 * (fields["rank"] + 3)])
    record = BACKWARD_WEIGHTS.numbers(
        **fields, segments=cut.segments, taps=prod(shape[2:]), groups=groups, lanes=lanes, chunks=address(cut.chunks),
        chunk_count=len(cut.chunks), offsets=address(cut.offsets), offsets_stride=cut.offsets.shape[1],
        chunk_rows=cut.chunk_rows, sums=address(sums), out=address(out), swapped=int(swapped), turned_at=turned,
        index_at=index,
    )  # fmt: skip
    held = held, out, sums
    run(kernels.outer_kernel(form.name), cut.segments * units, record, held, scratch, workers)
    if cut.segments > 1:
        run(kernels.reduce_kernel(form.name), units, record, held, vector * VECTOR_BYTES, workers)
    return out


def _is_matrix(phase: Phase) -> bool:
    """Whether every window reads its own cell alone; then image and windows may change places."""
    return phase.lengths == phase.counts and set(phase.steps) == {1} and not np.any(phase.taps)


def _dots(
    op: Convolution,
    cut: WeightSchedule,
    fields: dict[str, int],
    held: Any,
    shape: tuple[int, ...],
    how: tuple[Form, int],
) -> Array:
    """The same for groups of a few rows, by dot products along the positions."""
    (form, workers), taps, padded = how, prod(op.kernel), len(cut.cells)
    sums = np.zeros((op.groups, fields["rows"], fields["channels"], padded), form.work)
    line = DOT_ROWS * int(cut.tile.blocks[0] * cut.tile.blocks[1])
    parts = cut.area * form.size + VECTOR_BYTES, line * form.size, 8 * (fields["rank"] + 3)
    (_, lines, index), scratch = scratchpad(parts)
    record = DOTS.numbers(
        **fields, offsets=address(cut.cells), taps=taps, padded=padded, sums=address(sums), lines_at=lines, index_at=index
    )  # fmt: skip
    units = op.groups * fields["channels"]
    run(kernels.dots_kernel(form.name), units, record, (held, sums), scratch, workers)
    return sums[..., :taps].reshape(shape)
