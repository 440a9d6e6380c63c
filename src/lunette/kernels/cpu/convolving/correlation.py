"""Runs correlations: the sums of windows and of image cells, over all threads."""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from lunette.kernels.cpu.convolving import panels
from lunette.kernels.cpu.convolving.arrays import (
    FORMS,
    Array,
    Form,
    Place,
    address_of,
    place,
    share,
)
from lunette.kernels.cpu.convolving.cutting import DEPTH, plan
from lunette.kernels.cpu.convolving.geometry import (
    Phase,
    fills,
    image_phases,
    spans,
    sparse,
    window_phase,
)
from lunette.kernels.cpu.convolving.sliding import sliding
from lunette.kernels.cpu.convolving.sparse_sums import fill, sparse_image, sparse_windows
from lunette.kernels.cpu.convolving.vectors import VECTOR_BYTES
from lunette.ops.base import Shape
from lunette.ops.convolution import Convolution

__all__ = ["SCRATCH", "image_sums", "window_sums"]

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
    biases = np.empty(0, form.work) if not bias else np.ascontiguousarray(bias[0], form.work)
    inputs = (
        np.array([p.address for p in places]), np.array([p.offsets for p in places]),
        np.array([p.channel for p in places]), cut.strides[:-1], channels,
    )  # fmt: skip
    row_bytes = count * groups * channels * max(1, len(phase.taps)) * form.size
    if cut.slide:
        kernel, chunks = sliding(*cut.slide), [cut.slab_channels, cut.channel_chunk]
        height = cut.slide.vectors * VECTOR_BYTES // form.size
    elif cut.variant < 0:
        kernel, height = panels.copied, panels.ROWS
        chunks = [cut.slab_channels, cut.channel_chunk, cut.tap_chunk, cut.near]
    else:
        kernel, chunks = panels.in_place[cut.variant], [DEPTH]
        height = panels.BLOCKS[cut.variant][0]
    at_a_time = max(1, SCRATCH // (row_bytes * height)) * height
    for first in range(0, group_rows, at_a_time):
        rows = min(at_a_time, group_rows - first)
        packed = [
            _packed(p, phase, axes, first, rows, height, groups, channels, form) for p in weights
        ]
        outputs = (
            np.array([address_of(p) for p in packed]), rows, group_rows, biases[first:],
            target.address + (start + first * target.channel) * out.itemsize,
            target.offsets, target.channel, cut.strides[-1], form.zero, form.size,
        )  # fmt: skip
        share(
            kernel, cut.slab.units * groups,
            (cut.slab.units, cut.counts, cut.lengths, cut.steps, cut.slab.blocks, cut.slab.shape,
             cut.slab.planes, cut.table, *chunks, *inputs, *outputs),
        )  # fmt: skip


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
    offsets, whole = _numbers(phase.kernel, weight.array.shape[2:], steps, channels)
    blocks = -(-rows // height)
    packed = np.empty(groups * blocks * len(offsets) * height, form.work)
    address = weight.address + first * strides[axes[0]] * weight.array.itemsize
    group_stride = weight.array.shape[0] // groups * strides[0]
    share(
        panels.pack, groups * blocks,
        (address_of(packed), address, strides[axes[0]], group_stride, offsets,
         whole, rows, blocks, height, form.zero, form.size),
        workers=1 if packed.size < 1 << 16 else 0,
    )  # fmt: skip
    return packed


@lru_cache(maxsize=1024)
def _numbers(kernel: Shape, shape: Shape, strides: Shape, channels: int) -> tuple[Array, bool]:
    """The offset of each (channel, tap) in a row of the weights, and whether they are side by side."""
    taps = np.zeros(len(kernel), np.int64)
    if kernel:
        for index, stride in zip(np.unravel_index(kernel, shape), strides[1:], strict=True):
            taps += index * stride
    offsets = np.add.outer(np.arange(channels) * strides[0], taps).ravel()
    return offsets, bool((np.diff(offsets) == 1).all())
