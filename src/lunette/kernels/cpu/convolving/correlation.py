"""Runs correlations: the sums of windows and of image cells, over all threads."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from lunette.kernels import threads
from lunette.kernels.cpu.convolving import panels
from lunette.kernels.cpu.convolving.cutting import DEPTH, plan, rooms
from lunette.kernels.cpu.convolving.geometry import Phase, image_phases, window_phase
from lunette.kernels.cpu.convolving.slabs import Sizes
from lunette.kernels.cpu.convolving.sliding import sliding
from lunette.kernels.cpu.convolving.vectors import VECTOR_BYTES
from lunette.kernels.cpu.memory.working_memory import of_this_thread
from lunette.ops.base import Shape
from lunette.ops.convolution import Convolution

__all__ = [
    "FORMS",
    "SCRATCH",
    "Array",
    "Place",
    "image_sums",
    "place",
    "share",
    "window_sums",
]

Array = np.ndarray[Any, Any]

SCRATCH = 1 << 23
"""Bytes of packed weights, or of widened half types, at a time."""


class Place(NamedTuple):
    """Where an array's numbers are: strides in elements; offsets of the batch items."""

    array: Array
    address: int
    offsets: Array
    channel: int
    strides: tuple[int, ...]


def place(array: Array, rank: int) -> Place:
    """Where an array lies; one whose strides are no whole elements is copied."""
    size = array.itemsize
    if not array.flags.aligned or any(stride % size for stride in array.strides):
        array = np.ascontiguousarray(array)
    offsets, strides = _layout(array.shape, array.strides, size, rank)
    return Place(array, _address(array), offsets, strides[0], strides[1:])


@lru_cache(maxsize=1024)
def _layout(shape: Shape, strides: Shape, size: int, rank: int) -> tuple[Array, Shape]:
    """Offsets of the batch items, and the strides of the channels and the axes, in elements."""
    offsets, steps = np.zeros(1, np.int64), [stride // size for stride in strides]
    for n, step in zip(shape[: -rank - 1], steps, strict=False):
        offsets = np.add.outer(offsets, np.arange(n) * step).ravel()
    return offsets, tuple(steps[-rank - 1 :])


def _address(array: Array) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


class Form(NamedTuple):
    """The type of the arithmetic, its zero, and the bytes of a number."""

    work: Any
    zero: Any
    size: int


FORMS = {np.dtype(work): Form(work, work(0), work().itemsize) for work in (np.float32, np.float64)}


def window_sums(op: Convolution, sources: list[Any], bias: list[Array], out: Array) -> None:
    """out = bias + Σ over the sources (image, weight): a number per window."""
    image, _ = sources[0]
    phase = window_phase(op, image.shape[-op.rank :], out.shape[-op.rank :])
    _correlate(op, phase, sources, (0, 1), bias, out)


def image_sums(op: Convolution, sources: list[Any], bias: list[Array], out: Array) -> None:
    """out = bias + Σ over the sources (windows, weight): a number per image cell."""
    if not all(np.isfinite(weight).all() for _, weight in sources):
        _spread(op, sources, bias, out)
        return
    windows, _ = sources[0]
    for phase in image_phases(op, out.shape[-op.rank :], windows.shape[-op.rank :]):
        _correlate(op, phase, sources, (1, 0), bias, out)


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
            np.array([_address(p) for p in packed]), rows, group_rows, biases[first:],
            target.address + (start + first * target.channel) * out.itemsize,
            target.offsets, target.channel, cut.strides[-1], form.zero, form.size,
        )  # fmt: skip
        share(
            kernel, cut.slab.units * groups,
            (cut.slab.units, cut.counts, cut.lengths, cut.steps, cut.slab.blocks, cut.slab.shape,
             cut.slab.planes, cut.table, *chunks, *inputs, *outputs),
            cut.rooms if rows == group_rows else rooms(cut, count, channels, rows, form.size),
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
        (_address(packed), address, strides[axes[0]], group_stride, offsets,
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


def share(
    kernel: Any, units: int, arguments: tuple[Any, ...], sizes: Sizes = (), workers: int = 0
) -> None:
    """Run a kernel's units on all threads, or on so many; one that works in rooms of these sizes has them for its third argument."""

    def task(first: int, last: int) -> None:
        if not sizes:
            kernel(first, last, *arguments)
            return
        at, kept = of_this_thread().rooms(sizes)  # until the kernel is done
        kernel(first, last, at, *arguments)
        del kept

    threads.run(task, units, workers)


def _spread(op: Convolution, sources: list[Any], bias: list[Array], out: Array) -> None:
    """The image from the windows tap by tap, so that a weight reaches its own cells alone.

    A correlation multiplies weights with the zeros around the windows, which is not the meaning
    for an infinite weight or a NaN.
    """
    rank, groups, work = op.rank, op.groups, FORMS[out.dtype].work
    batch, lengths = out.shape[: -rank - 1], out.shape[-rank:]
    with np.errstate(all="ignore"):
        for item in np.ndindex(batch):
            total = np.zeros((groups, out.shape[-rank - 1] // groups, *lengths), work)
            for windows, weight in sources:
                values = windows[item].astype(work).reshape(groups, weight.shape[0] // groups, -1)
                matrices = weight.astype(work).reshape(*values.shape[:2], weight.shape[1], -1)
                for tap, place in enumerate(np.ndindex(op.kernel)):
                    # Row by row: the order of a library's product may depend on its size.
                    sent = np.zeros((*total.shape[:2], values.shape[2]), work)
                    for row in range(values.shape[1]):
                        sent += matrices[:, row, :, tap, None] * values[:, row, None]
                    cells, senders = _reached(op, place, lengths, windows.shape[-rank:])
                    shape = (*total.shape[:2], *windows.shape[-rank:])
                    total[(..., *cells)] += sent.reshape(shape)[(..., *senders)]
            if bias:
                total += bias[0].astype(work).reshape(*total.shape[:2], *(1,) * rank)
            out[item] = total.reshape(out.shape[-rank - 1 :])


def _reached(op: Convolution, place: Shape, lengths: Shape, windows: Shape) -> tuple[Any, Any]:
    """The image cells that a tap reaches, and the windows that it reaches them from."""
    cells, senders = [], []
    for region, j, n, m in zip(op.regions, place, lengths, windows, strict=True):
        stride = region.stride or 1
        origin = j * region.dilation - region.margins(n)[0]
        first = max(0, -(origin // stride))
        last = min(m, (n - 1 - origin) // stride + 1)
        last = max(first, last)
        senders.append(slice(first, last))
        begin = origin + first * stride
        cells.append(slice(begin, begin + (last - first) * stride, stride))
    return tuple(cells), tuple(senders)
