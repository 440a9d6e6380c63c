"""Convolution on the CPU: parts of the image multiplied with the weights while they are in the cache.

Three sums make every verb. Those of windows and of image cells are the same loop, a correlation: an
image cell is a sum over the windows that read it, and cells of one residue modulo the stride share
their taps. Each is a fold that starts from the bias and takes channels, then taps, in order, with
fused multiply-adds where the processor has them; so its bits depend on nothing but the numbers.
That of the weights goes over positions, block by block. Scratch memory is a few hundred kilobytes
per thread and some megabytes of weights or gradients in another order.
"""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

import numpy as np

from lunette.kernels import threads
from lunette.kernels.cpu import slabs, tiles
from lunette.kernels.cpu.geometry import (
    Phase,
    WeightPlan,
    image_phases,
    plan,
    weight_plan,
    window_phase,
)
from lunette.kernels.cpu.vectors import VECTOR_BYTES
from lunette.ops.base import Shape, is_float
from lunette.ops.convolution import Convolution

__all__ = ["forward", "forward_with_indices", "jvp", "refuses", "vjp", "vjp_of"]

Array = np.ndarray[Any, Any]

BLOCK = 192
"""Positions of the windows that are transposed at a time."""
SCRATCH = 1 << 23
"""Bytes of packed weights, of transposed windows, or of widened half types, at a time."""


def refuses(op: Convolution, verb: str, shapes: Any, dtypes: Any) -> str | None:
    """None, or why these kernels cannot serve the call."""
    if not is_float(dtypes[0]):
        return f"has no convolution of dtype {dtypes[0]}"
    return None


# -- the verbs --


def forward(op: Convolution, operands: tuple[Array, ...]) -> Array:
    """The value of the convolution."""
    return _sum(op, operands, None)


def forward_with_indices(op: Convolution, operands: tuple[Array, ...]) -> tuple[Array, Array]:
    """Only a max has indices."""
    raise TypeError(f"{op!r}: only a max has indices")


def jvp(op: Convolution, operands: tuple[Array, ...], tangents: tuple[Array, ...]) -> Array:
    """The directional derivative: the terms of both operands are one sum."""
    return _sum(op, operands, tangents)


def _sum(op: Convolution, operands: tuple[Array, ...], tangents: tuple[Array, ...] | None) -> Array:
    """The sum of the terms of one source, x and weight, or of both, one of them a tangent."""
    out = np.empty(op.out_shape(*(a.shape for a in operands)), operands[0].dtype)
    constants = [_widened(a) for a in operands[1:]]
    moves = [_widened(a) for a in tangents[1:]] if tangents else []
    for part in _parts(op, operands[0], out):
        x, result = _widened(operands[0][part]), out[part]
        wide = result if out.dtype in FORMS else np.empty(result.shape, x.dtype)
        sources, bias = [(x, constants[0])], constants[1:]
        if tangents:
            sources, bias = [(_widened(tangents[0][part]), constants[0]), (x, moves[0])], moves[1:]
        _value(op, sources, bias, wide)
        if wide is not result:
            result[...] = wide
    return out


def vjp(op: Convolution, operands: tuple[Array, ...], grad: Array) -> tuple[Array, ...]:
    """The gradients of x, of the weight and of the bias, if there is one."""
    return vjp_of(op, operands, grad, (True,) * len(operands))


def vjp_of(
    op: Convolution, operands: tuple[Array, ...], grad: Array, needs: tuple[bool, ...]
) -> tuple[Any, ...]:
    """The gradients that are needed; None for the others."""
    weight = _widened(operands[1])
    gx = np.empty(operands[0].shape if needs[0] else 0, grad.dtype)
    gweight = np.zeros(weight.shape if needs[1] else 0, weight.dtype)
    gbias = np.zeros(grad.shape[-op.rank - 1], weight.dtype)
    for number, part in enumerate(_parts(op, operands[0], grad)):
        x, gy = _widened(operands[0][part]), _widened(grad[part])
        if needs[0]:
            result = gx[part]
            wide = result if gx.dtype in FORMS else np.empty(result.shape, x.dtype)
            (_windows if op.transposed else _image)(op, [(gy, weight)], [], wide)
            if wide is not result:
                result[...] = wide
        if needs[1]:
            more = np.empty_like(gweight) if number else gweight
            _weight(op, *((gy, x) if op.transposed else (x, gy)), more)
            if number:
                with np.errstate(all="ignore"):
                    gweight += more
        if len(operands) == 3 and needs[2]:
            with np.errstate(all="ignore"):
                gbias += _channel_sums(op, gy)
    found = zip((gx, gweight, gbias), operands, needs, strict=False)
    return tuple(g.astype(grad.dtype, copy=False) if need else None for g, _, need in found)


def _widened(array: Array) -> Array:
    """Half types as float32; they are rounded once, at the end."""
    return array if array.dtype in FORMS else array.astype(np.float32)


def _parts(op: Convolution, x: Array, y: Array) -> list[Any]:
    """Slices of the first batch axis: all of it, or what half types may be widened of at a time."""
    if x.dtype in FORMS or x.ndim == op.rank + 1:
        return [...]
    bytes_per_item = 4 * (x.size + y.size) // (len(x) or 1)
    step = max(1, SCRATCH // (bytes_per_item or 1))
    return [slice(i, i + step) for i in range(0, len(x), step)]


def _value(op: Convolution, sources: list[Any], bias: list[Array], out: Array) -> None:
    if op.transposed:
        _image(op, sources, bias, out)
    else:
        _windows(op, sources, bias, out)


# -- arrays --


class Place(NamedTuple):
    """Where an array's numbers are: strides in elements; offsets of the batch items."""

    array: Array
    address: int
    offsets: Array
    channel: int
    strides: tuple[int, ...]


def _place(array: Array, rank: int) -> Place:
    size = array.itemsize
    if not array.flags.aligned or any(stride % size for stride in array.strides):
        array = np.ascontiguousarray(array)
    strides = [stride // size for stride in array.strides]
    offsets = np.zeros(1, np.int64)
    for n, stride in zip(array.shape[: -rank - 1], strides, strict=False):
        offsets = np.add.outer(offsets, np.arange(n) * stride).ravel()
    return Place(array, array.ctypes.data, offsets, strides[-rank - 1], tuple(strides[-rank:]))


class Form(NamedTuple):
    """The type of the arithmetic, its zero, and the bytes of a number."""

    work: Any
    zero: Any
    size: int


FORMS = {np.dtype(work): Form(work, work(0), work().itemsize) for work in (np.float32, np.float64)}


# -- the three sums --


def _windows(op: Convolution, sources: list[Any], bias: list[Array], out: Array) -> None:
    """out = bias + Σ over the sources (image, weight): a number per window."""
    image, _ = sources[0]
    phase = window_phase(op, image.shape[-op.rank :], out.shape[-op.rank :])
    _correlate(op, phase, sources, (0, 1), bias, out)


def _image(op: Convolution, sources: list[Any], bias: list[Array], out: Array) -> None:
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
    weights = [_place(weight, op.rank) for _, weight in sources]
    places, target = [_place(x, op.rank) for x, _ in sources], _place(out, op.rank)
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
    at_a_time = max(1, SCRATCH // (row_bytes * tiles.ROWS)) * tiles.ROWS
    for first in range(0, group_rows, at_a_time):
        rows = min(at_a_time, group_rows - first)
        packed = [_packed(p, phase, axes, first, rows, groups, channels, form) for p in weights]
        outputs = (
            np.array([p.ctypes.data for p in packed]), rows, group_rows, biases[first:],
            target.address + (start + first * target.channel) * out.itemsize,
            target.offsets, target.channel, cut.strides[-1],
            form.zero, form.size,
            tiles.COLUMNS * VECTOR_BYTES // form.size,
        )  # fmt: skip
        if cut.slab:
            _share(
                slabs.correlate, cut.slab.units * groups,
                (cut.slab.units, cut.counts, cut.lengths, cut.steps, cut.slab.blocks,
                 cut.slab.shape, cut.slab.planes, cut.table, *inputs, *outputs),
            )  # fmt: skip
        else:
            _share(
                tiles.correlate, cut.tiles * groups,
                (cut.tiles, cut.panels, cut.counts, cut.lengths, cut.steps, cut.taps,
                 cut.channel_chunk, cut.tap_chunk, *inputs, *outputs),
            )  # fmt: skip


def _packed(
    weight: Place,
    phase: Phase,
    axes: tuple[int, int],
    first: int,
    rows: int,
    groups: int,
    channels: int,
    form: Form,
) -> Array:
    """Rows `first … first + rows` of every group's weights, as the blocks that are multiplied."""
    kernel = weight.array.shape[2:]
    strides = [stride // weight.array.itemsize for stride in weight.array.strides]
    taps = np.zeros(len(phase.kernel), np.int64)
    if phase.kernel:
        for index, stride in zip(np.unravel_index(phase.kernel, kernel), strides[2:], strict=True):
            taps += index * stride
    offsets = np.add.outer(np.arange(channels) * strides[axes[1]], taps).ravel()
    blocks = -(-rows // tiles.ROWS)
    packed = np.empty(groups * blocks * len(offsets) * tiles.ROWS, form.work)
    address = weight.address + first * strides[axes[0]] * weight.array.itemsize
    group_stride = weight.array.shape[0] // groups * strides[0]
    _share(
        tiles.pack, groups * blocks,
        (packed.ctypes.data, address, strides[axes[0]], group_stride, offsets, rows, blocks,
         form.zero, form.size),
    )  # fmt: skip
    return packed


def _weight(op: Convolution, image: Array, windows: Array, out: Array) -> None:
    """out = Σ over positions of image cell × window, for each weight."""
    form, rank, groups = FORMS[out.dtype], op.rank, op.groups
    phase = window_phase(op, image.shape[-rank:], windows.shape[-rank:])
    if groups == 1 and out.shape[0] > out.shape[1] and _is_matrix(phase):
        turned = np.empty((out.shape[1], out.shape[0], *out.shape[2:]), out.dtype)
        _weight(op, windows, image, turned)
        out[...] = turned.swapaxes(0, 1)
        return
    source, grads = _place(image, rank), _place(windows, rank)
    rows, channels, items = out.shape[0] // groups, out.shape[1], len(source.offsets)
    strides = (source.strides, grads.strides)
    cut = weight_plan(phase, strides, items, groups, channels, form.size, slabs.ROWS_1)
    vector = VECTOR_BYTES // form.size
    if rows * 4 <= vector:
        _weight_of_few(op, cut, source, grads, out)
        return
    lanes = -(-rows // vector) * vector
    sums = np.zeros((groups * len(cut.chunks), cut.rows, lanes), form.work)
    per_block = int(np.prod(cut.slab.blocks))
    units = cut.slab.units if image.size else 0
    at_a_time = max(1, SCRATCH // (groups * lanes * form.size * per_block))
    turned = np.empty(min(at_a_time, units) * per_block * groups * lanes, form.work)
    for start in range(0, units, at_a_time):
        stop = min(units, start + at_a_time)
        begin, end = _first_position(cut, start), _first_position(cut, stop)
        _share(
            tiles.transpose, -(-(end - begin) // BLOCK),
            (begin, end, BLOCK, cut.window_counts, grads.address, grads.offsets, grads.channel,
             cut.window_strides, groups, rows, lanes, turned.ctypes.data, form.zero,
             form.size, vector),
        )  # fmt: skip
        _share(
            slabs.outer, len(sums),
            (start, stop, begin, cut.counts, cut.lengths, cut.steps, cut.slab.blocks,
             cut.slab.shape, cut.slab.planes, cut.table, cut.chunks, source.address,
             source.offsets, source.channel, cut.strides[0], groups, channels,
             turned.ctypes.data, lanes, sums.ctypes.data, cut.rows, form.zero,
             form.size, vector),
        )  # fmt: skip
    result = out.reshape(groups, rows, channels, -1)
    for unit, values in enumerate(sums):
        group, number = divmod(unit, len(cut.chunks))
        (c, last, depth), (t, stop) = cut.chunks[number, :3], cut.taps[number]
        whole = values[:depth, :rows].reshape(last - c, stop - t, rows)
        result[group, :, c:last, t:stop] = whole.transpose(2, 0, 1)


def _is_matrix(phase: Phase) -> bool:
    """Whether every window reads its own cell alone; then image and windows may change places."""
    return phase.lengths == phase.counts and set(phase.steps) == {1} and not np.any(phase.taps)


def _weight_of_few(
    op: Convolution, cut: WeightPlan, source: Place, grads: Place, out: Array
) -> None:
    """The same for groups of a few rows, by dot products along the positions."""
    form, groups = FORMS[out.dtype], op.groups
    sums = np.zeros((groups, out.shape[0] // groups, out.shape[1], prod(op.kernel)), form.work)
    if source.array.size:
        _share(
            slabs.dots, groups,
            (cut.slab.units, cut.counts, cut.lengths, cut.steps, cut.slab.blocks, cut.slab.shape,
             cut.slab.planes, cut.cells, source.address, source.offsets, source.channel,
             cut.strides[0], out.shape[1], grads.address, grads.offsets, grads.channel,
             cut.strides[1], sums.shape[1], sums, form.zero, form.size),
        )  # fmt: skip
    out[...] = sums.reshape(out.shape)


def _first_position(cut: WeightPlan, unit: int) -> int:
    """The number of the first position of a block, row-major over the batch and the axes."""
    high, wide = (int(n) for n in cut.counts[-2:])
    rows, columns = (int(n) for n in cut.slab.blocks)
    unit, column = divmod(unit, -(-wide // columns))
    outside, row = divmod(unit, -(-high // rows))
    return (outside * high + row * rows) * wide + column * columns


def _share(kernel: Any, units: int, arguments: tuple[Any, ...]) -> None:
    """Run a kernel's units on all threads."""
    threads.run(lambda first, last: kernel(first, last, *arguments), units)


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
                    sent = np.matmul(matrices[..., tap].transpose(0, 2, 1), values)
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


def _channel_sums(op: Convolution, grad: Array) -> Array:
    """The sum of each channel: pairwise over a channel of a batch item, then over the items."""
    form, rank = FORMS[grad.dtype], op.rank
    channels = grad.shape[-rank - 1]
    sums = np.zeros((prod(grad.shape[: -rank - 1]), channels), form.work)
    with np.errstate(all="ignore"):
        for number, item in enumerate(np.ndindex(grad.shape[: -rank - 1])):
            for c in range(channels):
                row = np.ascontiguousarray(grad[item][c], dtype=form.work)
                sums[number, c] = row.ravel().sum()
        total: Array = sums.sum(0).astype(grad.dtype)
    return total
