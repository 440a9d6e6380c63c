"""Runs correlations: the sums of windows and of image cells, over all threads."""

from __future__ import annotations

from functools import cache, lru_cache
from math import prod
from typing import Any

import numpy as np

from lunette.kernels.cpu.compiling.library import Kernels
from lunette.kernels.cpu.convolving.arrays import FORMS, Array, Form, Place, place
from lunette.kernels.cpu.convolving.blocks import address, room, run
from lunette.kernels.cpu.convolving.cutting import Plan, plan
from lunette.kernels.cpu.convolving.geometry import (
    Phase,
    fills,
    image_phases,
    spans,
    sparse,
    window_phase,
)
from lunette.kernels.cpu.convolving.sizes import BLOCKS, COLUMNS, POSITIONS, ROWS, VECTOR_BYTES
from lunette.kernels.cpu.convolving.sparse_sums import fill, sparse_image, sparse_windows
from lunette.ops.base import Shape
from lunette.ops.convolution import Convolution
from lunette.positions import unravel

__all__ = ["SCRATCH", "image_sums", "window_sums"]

panels, sliding = Kernels("convolving.panels"), Kernels("convolving.sliding")
packing = Kernels("convolving.packing")

SCRATCH = 1 << 23
"""Bytes of packed weights, or of widened half types, at a time."""


def window_sums(op: Convolution, sources: list[Any], bias: list[Array], out: Array) -> None:
    """out = bias + Σ over the sources (image, weight): a number per window."""
    image, _ = sources[0]
    geometry = op, image.shape[-op.rank :], out.shape[-op.rank :]
    if out.size and sparse(*geometry, False, _products(op, sources, out)):
        sparse_windows(op, spans(*geometry), sources, bias, out)
        return
    phase = window_phase(*geometry)
    _correlate(op, phase, sources, (0, 1), bias, out)


def image_sums(op: Convolution, sources: list[Any], bias: list[Array], out: Array) -> None:
    """out = bias + Σ over the sources (windows, weight): a number per image cell."""
    windows, _ = sources[0]
    geometry = op, out.shape[-op.rank :], windows.shape[-op.rank :]
    if out.size == 0:
        return
    # A correlation multiplies weights with the zeros around the windows, which is not the meaning
    # for an infinite weight or a NaN: it reaches its own cells alone.
    finite = all(np.isfinite(weight).all() for _, weight in sources)
    if not finite or sparse(*geometry, True, _products(op, sources, out)):
        sparse_image(op, spans(*geometry), sources, bias, out)
        return
    if fills(*geometry):
        fill(op, bias, out)
    for phase in image_phases(*geometry):
        _correlate(op, phase, sources, (1, 0), bias, out)


def _products(op: Convolution, sources: list[Any], out: Array) -> int:
    """Products of a cell with a tap: for each pair of channels, item and source."""
    rows, channels = sources[0][1].shape[:2]
    return int(len(sources) * rows * channels * prod(out.shape[: -op.rank - 1]))


def _correlate(
    op: Convolution,
    phase: Phase,
    sources: list[Any],
    axes: tuple[int, int],
    bias: list[Array],
    out: Array,
) -> None:
    """Run one correlation; `axes` are the weight's axes of output rows and of input channels."""
    if out.size == 0:
        return
    form, groups = FORMS[out.dtype], op.groups
    weights = [place(weight, op.rank) for _, weight in sources]
    places, target = [place(x, op.rank) for x, _ in sources], place(out, op.rank)
    start = sum(s * first for s, first in zip(target.strides, phase.start, strict=True))
    spread = tuple(s * step for s, step in zip(target.strides, phase.stride, strict=True))
    shape = list(sources[0][1].shape)
    shape[0] //= groups
    group_rows, channels = shape[axes[0]], shape[axes[1]]
    items, count = len(target.offsets), len(sources)
    strides = (*(p.strides for p in places), spread)
    cut = plan(phase, strides, items, groups, channels, group_rows, count, form.size)
    biases = np.ascontiguousarray(bias[0], form.work) if bias else None
    row_bytes = count * groups * channels * max(1, len(phase.taps)) * form.size
    height = ROWS if cut.variant < 0 else BLOCKS[cut.variant][0]
    if cut.slide:
        height = cut.slide.vectors * VECTOR_BYTES // form.size
    at_a_time = max(1, SCRATCH // (row_bytes * height)) * height
    for first in range(0, group_rows, at_a_time):
        rows = min(at_a_time, group_rows - first)
        packed = [
            _packed(p, phase, axes, first, rows, height, groups, channels, form) for p in weights
        ]
        if rows not in cut.ready:
            cut.ready[rows] = _kernel(cut, form.name), *_room(cut, channels, rows, count, form.size)
        kernel, (_, *parts), scratch = cut.ready[rows]
        numbers = [
            *cut.numbers, rows, group_rows,
            0 if biases is None else address(biases) + first * form.size,
            target.address + (start + first * target.channel) * form.size,
            target.offsets_at, target.channel, *parts, count,
        ]  # fmt: skip
        for source, weight, strides_at in zip(places, packed, cut.strides_at, strict=True):
            numbers += (
                source.address,
                source.offsets_at,
                source.channel,
                strides_at,
                address(weight),
            )
        held = places, packed, target, biases
        run(kernel, cut.slab.units * groups, numbers, held, scratch)


def _kernel(cut: Plan, dtype: str) -> Any:
    """The kernel of a plan."""
    if cut.slide:
        return sliding.sliding_kernel(dtype, *cut.slide)
    if cut.variant < 0:
        return panels.copied_kernel(dtype)
    return panels.in_place_kernel(dtype, *BLOCKS[cut.variant])


@cache
def _pack(dtype: str) -> Any:
    return packing.pack_kernel(dtype)


def _room(cut: Plan, channels: int, rows: int, sources: int, size: int) -> tuple[list[int], int]:
    """Where a kernel keeps its slab, sums, starts and what else it needs, and how many bytes that is."""
    lanes = VECTOR_BYTES // size
    block_rows, block_columns = map(int, cut.slab.blocks)
    area = len(cut.slab.planes) * int(cut.slab.shape[0] * cut.slab.shape[1])
    once = sources * -(-channels // cut.slab_channels) == 1
    if cut.slide:
        vectors, length, taps, _ = cut.slide
        row_lanes = vectors * lanes
        row_blocks = -(-rows // row_lanes)
        # Positions of a row, rounded up, and those that the last vector of a transpose reads.
        positions = -(-block_columns // length) * length
        lines = min(block_rows, max(1, POSITIONS // positions)) if once else row_blocks * block_rows
        slab, sums = cut.slab_channels * area + length + taps + lanes, lines * positions + lanes
        parts = [slab, sums * row_lanes, row_blocks * row_lanes, lanes * lanes]
    elif cut.variant < 0:
        row_blocks, columns = -(-rows // ROWS), COLUMNS * lanes
        slots = cut.near if once else -(-block_rows * block_columns // columns)
        tile = cut.near * cut.channel_chunk * cut.tap_chunk * columns
        slab, sums = cut.slab_channels * area + columns, row_blocks * slots * ROWS * columns
        parts = [slab, sums, row_blocks * ROWS * lanes, tile]
    else:
        height, width = BLOCKS[cut.variant]
        row_blocks, columns = -(-rows // height), width * lanes
        slab, sums = sources * channels * area + columns, row_blocks * height * columns
        parts = [slab, sums, row_blocks * height * lanes, 0]
    return room([*(n * size for n in parts), 8 * (len(cut.counts) + cut.near)])


def _packed(
    weight: Place,
    phase: Phase,
    axes: tuple[int, int],
    first: int,
    rows: int,
    height: int,
    groups: int,
    channels: int,
    form: Form,
) -> Array:
    """Rows `first … first + rows` of every group's weights, as blocks of `height` rows."""
    strides = tuple(stride // weight.array.itemsize for stride in weight.array.strides)
    steps = strides[axes[1]], *strides[2:]
    offsets, offsets_at, whole = _numbers(phase.kernel, weight.array.shape[2:], steps, channels)
    blocks = -(-rows // height)
    packed = np.empty(groups * blocks * len(offsets) * height, form.work)
    source = weight.address + first * strides[axes[0]] * weight.array.itemsize
    group_stride = weight.array.shape[0] // groups * strides[0]
    numbers = [
        address(packed), source, strides[axes[0]], group_stride, offsets_at, len(offsets),
        whole, rows, blocks, height,
    ]  # fmt: skip
    workers = 1 if packed.size < 1 << 16 else 0
    run(_pack(form.name), groups * blocks, numbers, (packed, weight), workers=workers)
    return packed


@lru_cache(maxsize=1024)
def _numbers(kernel: Shape, shape: Shape, strides: Shape, channels: int) -> tuple[Array, int, bool]:
    """The offset of each (channel, tap) in a row of the weights, where they are, and if side by side."""
    taps = np.zeros(len(kernel), np.int64)
    if kernel:
        for index, stride in zip(unravel(kernel, shape), strides[1:], strict=True):
            taps += index * stride
    offsets = np.add.outer(np.arange(channels) * strides[0], taps).ravel()
    return offsets, address(offsets), bool((np.diff(offsets) == 1).all())
