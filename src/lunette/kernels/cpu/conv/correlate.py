"""Runs correlations: the sums of windows and of image cells, over all threads."""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from lunette.kernels import threads
from lunette.kernels.cpu.conv.arrays import (
    FORMS,
    Array,
    Form,
    Place,
    address,
    place,
    run,
    scratchpad,
)
from lunette.kernels.cpu.conv.geometry import (
    Phase,
    fills,
    image_phases,
    spans,
    sparse,
    window_phase,
    with_batch,
)
from lunette.kernels.cpu.conv.records import CORRELATION, PACKING, SOURCE
from lunette.kernels.cpu.conv.sparse import fill, sparse_image, sparse_windows
from lunette.kernels.cpu.conv.tiling import Problem, Schedule, schedule
from lunette.kernels.cpu.jit.cache import Kernels
from lunette.kernels.cpu.memory.block_cache import new_array
from lunette.ops.base import Shape
from lunette.ops.convolution import Conv, Convolution
from lunette.positions import unravel

__all__ = ["SCRATCH", "image_sums", "window_sums"]

KERNELS = {
    "gemm": Kernels("conv.gemm").gemm_kernel,
    "sliding": Kernels("conv.sliding").sliding_kernel,
    "pack": Kernels("conv.packing").pack_kernel,
}

SCRATCH = 1 << 24
"""Bytes of packed weights, or of widened half types, at a time."""

ENOUGH_ROWS = 16
"""Channels of results that read an image whose cells are picked first, at least: to pick them takes as long as some of these."""

PACKED_EACH = 1 << 14
"""Numbers that a thread packs, at least."""


def window_sums(op: Convolution, sources: list[Any], bias: list[Array], out: Array) -> None:
    """out = bias + Σ over the sources (image, weight): a number per window."""
    if out.size and _picks(op, sources[0][1]):
        op, sources = _dense(op), [(_picked(op, x, out), weight) for x, weight in sources]
    image, _ = sources[0]
    geometry = op, image.shape[-op.rank :], out.shape[-op.rank :]
    if out.size and sparse(*geometry, False, _products(op, sources, out)):
        sparse_windows(op, spans(*geometry), sources, bias, out)
        return
    _correlate(op, window_phase(*geometry), sources, (0, 1), bias, out)


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


def _picks(op: Convolution, weight: Array) -> bool:
    """Whether windows of one cell each lie apart, and enough rows of results read them: then they are laid side by side first."""
    single = not op.transposed and prod(op.kernel) == 1 and max(op.stride) > 1
    return single and len(weight) // op.groups >= ENOUGH_ROWS and not any(map(any, op.padding))


@lru_cache(maxsize=1024)
def _dense(op: Convolution) -> Convolution:
    """The op on cells that were picked."""
    return Conv(op.kernel, groups=op.groups)


def _picked(op: Convolution, x: Array, out: Array) -> Array:
    """The cells that windows of one cell read."""
    lengths = out.shape[-op.rank :]
    places: list[Any] = [
        slice(0, (m - 1) * s + 1, s) for m, s in zip(lengths, op.stride, strict=True)
    ]
    return np.ascontiguousarray(x[(..., *places)])


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
    shape = list(sources[0][1].shape)
    shape[0] //= groups
    group_rows, channels = shape[axes[0]], shape[axes[1]]
    if not channels:
        fill(op, bias, out)
        return
    weights = [place(weight, op.rank) for _, weight in sources]
    places, target = [place(x, op.rank) for x, _ in sources], place(out, op.rank)
    start = sum(s * first for s, first in zip(target.strides, phase.start, strict=True))
    spread = tuple(s * step for s, step in zip(target.strides, phase.stride, strict=True))
    target = target._replace(strides=spread)
    whole = phase
    if all(p.item is not None for p in (*places, target)):
        whole = with_batch(phase, len(target.offsets))
        places, target = [p.with_batch() for p in places], target.with_batch()
    strides = (*(p.strides for p in places), target.strides)
    problem = Problem(
        whole, strides, len(target.offsets), groups, channels, group_rows, len(sources), form.size
    )
    row_bytes = len(sources) * groups * channels * len(phase.taps) * form.size
    biases = np.ascontiguousarray(bias[0], form.work) if bias else None
    first = 0
    while first < group_rows:
        cut = schedule(problem._replace(rows=group_rows - first), threads.get_num_threads())
        height = cut.block_rows
        rows = min(max(1, SCRATCH // (row_bytes * height)) * height, group_rows - first)
        if rows < group_rows - first:
            cut = schedule(problem._replace(rows=rows), threads.get_num_threads())
            height = cut.block_rows
        packed = [_packed(p, phase, axes, (first, rows, height), groups, form) for p in weights]
        _run(cut, places, packed, (rows, group_rows), biases, (target, start, first), form)
        first += rows


def _run(
    cut: Schedule,
    places: list[Place],
    packed: list[Array],
    rows: tuple[int, int],
    biases: Array | None,
    result: tuple[Place, int, int],
    form: Form,
) -> None:
    """Run a schedule on so many rows of those of a group; the result has a start, in elements, and a first row."""
    (_, sums, starts, panel, index), scratch = scratchpad(cut.scratch)
    target, start, first = result
    told = np.array(
        [
            SOURCE.numbers(
                x=p.address, item=p.offsets_at, channel=p.channel, stride=strides, packed=address(w)
            )
            for p, w, strides in zip(places, packed, cut.source_strides, strict=True)
        ],
        np.int64,
    )
    fields = {
        **cut.fields, "rows": rows[0], "group_rows": rows[1],
        "bias": 0 if biases is None else address(biases) + first * form.size,
        "out": target.address + (start + first * target.channel) * form.size, "out_item": target.offsets_at,
        "out_channel": target.channel, "sums_at": sums, "starts_at": starts, "panel_at": panel, "index_at": index,
        "sources_at": address(told),
    }  # fmt: skip
    name, *arguments = cut.kernel
    kernel = KERNELS[name](form.name, *arguments)
    held = cut, told, places, packed, target, biases
    run(kernel, cut.units, CORRELATION.numbers(**fields), held, scratch, cut.threads)


def _packed(
    weight: Place,
    phase: Phase,
    axes: tuple[int, int],
    block: tuple[int, int, int],
    groups: int,
    form: Form,
) -> Array:
    """So many rows from a first one of every group's weights, as blocks of some height."""
    first, rows, height = block
    strides = tuple(stride // weight.array.itemsize for stride in weight.array.strides)
    channels = weight.array.shape[axes[1]] // (groups if axes[1] == 0 else 1)
    steps = strides[axes[1]], *strides[2:]
    offsets, offsets_at, whole = _numbers(phase.kernel, weight.array.shape[2:], steps, channels)
    blocks = -(-rows // height)
    packed = new_array((groups * blocks * len(offsets) * height,), np.dtype(form.work))
    source = weight.address + first * strides[axes[0]] * weight.array.itemsize
    record = PACKING.numbers(
        packed=address(packed), weight=source, row_stride=strides[axes[0]],
        group_stride=weight.array.shape[0] // groups * strides[0], offsets=offsets_at, depth=len(offsets),
        contiguous=int(whole), rows=rows, blocks=blocks, block_rows=height,
    )  # fmt: skip
    workers = min(threads.get_num_threads(), 1 + packed.size // PACKED_EACH)
    run(
        KERNELS["pack"](form.name),
        groups * blocks,
        record,
        (packed, weight, offsets),
        workers=workers,
    )
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
