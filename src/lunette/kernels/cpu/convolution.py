"""Convolution on the CPU: tiles of an unfolded image, multiplied while they are in the cache.

Three sums make every verb. `windows` and `image` are the same loop, a correlation: an image cell is
a sum over the windows that read it, and the cells of one residue modulo the stride share their taps.
`weight` sums over positions. Scratch memory is a few tiles per thread and a copy of the weights.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import product
from math import prod
from typing import Any, NamedTuple

import numpy as np

from lunette.kernels import threads
from lunette.kernels.cpu import tiles
from lunette.kernels.cpu.halves import codec
from lunette.kernels.cpu.vectors import VECTOR_BYTES
from lunette.ops.base import Shape, is_float
from lunette.ops.convolution import Convolution

__all__ = ["forward", "forward_with_indices", "jvp", "refuses", "vjp"]

Array = np.ndarray[Any, Any]

DEPTH = 224
"""Products of one chunk of a correlation: its tile stays in the first-level cache."""
PANELS = 4
UNITS = 16
"""Tiles are made narrower until there are this many, so that threads end together."""
BLOCK = 192
"""Positions that are summed at a time for a gradient of the weights."""
SCRATCH = 1 << 23
"""Bytes of packed weights, or of transposed windows, at a time."""


def refuses(op: Convolution, verb: str, shapes: Any, dtypes: Any) -> str | None:
    """None, or why these kernels cannot serve the call."""
    if not is_float(dtypes[0]):
        return f"has no convolution of dtype {dtypes[0]}"
    return None


# -- the verbs --


def forward(op: Convolution, operands: tuple[Array, ...]) -> Array:
    """The value of the convolution."""
    x, weight, *bias = operands
    out = np.empty(op.out_shape(*(a.shape for a in operands)), x.dtype)
    _value(op, [(x, weight)], bias, out)
    return out


def forward_with_indices(op: Convolution, operands: tuple[Array, ...]) -> tuple[Array, Array]:
    """Only a max has indices."""
    raise TypeError(f"{op!r}: only a max has indices")


def jvp(op: Convolution, operands: tuple[Array, ...], tangents: tuple[Array, ...]) -> Array:
    """The directional derivative: the terms of both operands are one sum."""
    (x, weight, *_), (dx, dweight, *dbias) = operands, tangents
    out = np.empty(op.out_shape(*(a.shape for a in operands)), x.dtype)
    _value(op, [(dx, weight), (x, dweight)], dbias, out)
    return out


def vjp(op: Convolution, operands: tuple[Array, ...], grad: Array) -> tuple[Array, ...]:
    """The gradients of x, of the weight and of the bias, if there is one."""
    x, weight = operands[:2]
    gx, gweight = np.empty(x.shape, x.dtype), np.empty(weight.shape, x.dtype)
    if op.transposed:
        _windows(op, [(grad, weight)], [], gx)
        _weight(op, grad, x, gweight)
    else:
        _image(op, [(grad, weight)], [], gx)
        _weight(op, x, grad, gweight)
    if len(operands) == 2:
        return gx, gweight
    return gx, gweight, _channel_sums(op, grad)


def _value(op: Convolution, sources: list[Any], bias: list[Array], out: Array) -> None:
    if op.transposed:
        _image(op, sources, bias, out)
    else:
        _windows(op, sources, bias, out)


# -- geometry --


class Phase(NamedTuple):
    """A correlation: output `start + stride·i` on each axis reads positions `step·i + tap`.

    `kernel` has the flat kernel index of each tap.
    """

    lengths: Array
    counts: Array
    steps: Array
    taps: Array
    kernel: Array
    start: tuple[int, ...]
    stride: tuple[int, ...]


@lru_cache(maxsize=256)
def _window_phase(op: Convolution, image: Shape, windows: Shape) -> Phase:
    """Windows read the image: one correlation with the op's own steps."""
    befores = [region.margins(n)[0] for region, n in zip(op.regions, image, strict=True)]
    axes = [
        [j * region.dilation - before for j in range(region.kernel)]
        for region, before in zip(op.regions, befores, strict=True)
    ]
    kernel = list(range(prod(op.kernel)))
    ones = (1,) * op.rank
    return _phase(image, windows, op.stride, list(product(*axes)), kernel, (0,) * op.rank, ones)


@lru_cache(maxsize=256)
def _image_phases(op: Convolution, image: Shape, windows: Shape) -> list[Phase]:
    """Image cells read windows: one correlation for each residue of the cell modulo the strides.

    Cell `p` reads window `i` through tap `j` where `i·stride + j·dilation − before = p`.
    """
    per_axis: list[list[Any]] = []
    for region, n in zip(op.regions, image, strict=True):
        before, stride = region.margins(n)[0], region.stride or 1
        per_axis.append(
            [
                (
                    first,
                    -((first - n) // stride),
                    [
                        (j, (first + before - j * region.dilation) // stride)
                        for j in range(region.kernel)
                        if (first + before - j * region.dilation) % stride == 0
                    ],
                )
                for first in range(min(stride, n))
            ]
        )
    phases = []
    for axes in product(*per_axis):
        taps = list(product(*(axis[2] for axis in axes)))
        kernel = [int(np.ravel_multi_index([j for j, _ in tap], op.kernel)) for tap in taps]
        offsets = [tuple(offset for _, offset in tap) for tap in taps]
        counts, start = tuple(axis[1] for axis in axes), tuple(axis[0] for axis in axes)
        phases.append(_phase(windows, counts, (1,) * op.rank, offsets, kernel, start, op.stride))
    return phases


def _phase(
    lengths: Shape, counts: Shape, steps: Any, taps: Any, kernel: Any, start: Any, stride: Any
) -> Phase:
    def table(values: Any) -> Array:
        return np.array(values, np.int64)

    return Phase(
        table(lengths),
        table(counts),
        table(steps),
        table(taps).reshape(-1, len(lengths)),
        table(kernel),
        start,
        stride,
    )


# -- the three sums --


class Place(NamedTuple):
    """Where an array's numbers are: strides in elements; offsets of the batch items."""

    array: Array
    address: int
    offsets: Array
    channel: int
    strides: Array


def _place(array: Array, rank: int) -> Place:
    size = array.itemsize
    if not array.flags.aligned or any(stride % size for stride in array.strides):
        array = np.ascontiguousarray(array)
    strides = [stride // size for stride in array.strides]
    offsets = np.zeros(1, np.int64)
    for n, stride in zip(array.shape[: -rank - 1], strides, strict=False):
        offsets = np.add.outer(offsets, np.arange(n) * stride).ravel()
    return Place(
        array,
        array.ctypes.data,
        offsets,
        strides[-rank - 1],
        np.array(strides[len(strides) - rank :], np.int64),
    )


class Form(NamedTuple):
    """How elements are stored, and what is computed with."""

    memory: tuple[Any, ...]
    store: Any
    zero: Any
    size: int


@lru_cache(maxsize=8)
def _form(dtype: np.dtype[Any]) -> Form:
    code = codec(dtype.name, True)
    plain = dtype.itemsize > 2
    work = np.float64 if dtype == np.float64 else np.float32
    memory = (code.memory, code.load, plain, dtype.itemsize)
    return Form(memory, code.store, work(0), np.dtype(work).itemsize)


def _windows(op: Convolution, sources: list[Any], bias: list[Array], out: Array) -> None:
    """out = bias + Σ over the sources (image, weight): a number per window."""
    image, weight = sources[0]
    phase = _window_phase(op, image.shape[-op.rank :], out.shape[-op.rank :])
    _correlate(op, phase, sources, (0, 1), bias, out)


def _image(op: Convolution, sources: list[Any], bias: list[Array], out: Array) -> None:
    """out = bias + Σ over the sources (windows, weight): a number per image cell."""
    if not all(np.isfinite(weight).all() for _, weight in sources):
        _spread(op, sources, bias, out)
        return
    windows, _ = sources[0]
    for phase in _image_phases(op, out.shape[-op.rank :], windows.shape[-op.rank :]):
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
    form, rank, groups = _form(out.dtype), op.rank, op.groups
    weights = [_place(weight, rank) for _, weight in sources]
    places = [_place(x, rank) for x, _ in sources]
    target = _place(out, rank)
    start = sum(int(s) * first for s, first in zip(target.strides, phase.start, strict=True))
    lengths, counts, steps, taps, strides = _merge(
        phase, [p.strides for p in places], target.strides * np.array(phase.stride, np.int64)
    )
    shape = list(sources[0][1].shape)
    shape[0] //= groups
    group_rows, channels = shape[axes[0]], shape[axes[1]]
    channel_chunk, tap_chunk = _chunks(channels, len(taps), DEPTH)
    columns = tiles.COLUMNS * VECTOR_BYTES // form.size
    positions = len(target.offsets) * int(np.prod(counts))
    panels = PANELS
    while panels > 1 and -(-positions // (panels * columns)) * groups < UNITS:
        panels //= 2
    count = -(-positions // (panels * columns))
    work = type(form.zero)
    biases = np.ascontiguousarray(bias[0], dtype=work) if bias else np.empty(0, work)
    row_bytes = len(sources) * groups * channels * max(1, len(taps)) * form.size
    at_a_time = max(1, SCRATCH // (row_bytes * tiles.ROWS)) * tiles.ROWS
    for first in range(0, group_rows, at_a_time):
        rows = min(at_a_time, group_rows - first)
        packed = [
            _packed(p, phase, axes, first, rows, groups, channels, shape[0], form) for p in weights
        ]
        arguments = (
            count, panels, counts, lengths, steps, taps,
            np.array([p.address for p in places]), np.array([p.offsets for p in places]),
            np.array([p.channel for p in places]), strides[:-1],
            channels, channel_chunk, tap_chunk,
            np.array([p.ctypes.data for p in packed]), rows, group_rows, biases[first:],
            target.address + (start + first * target.channel) * out.itemsize,
            target.offsets, target.channel, strides[-1],
            form.memory, form.store, form.zero, form.size, columns,
        )  # fmt: skip
        threads.run(lambda i, j, rest=arguments: tiles.correlate(i, j, *rest), count * groups)


def _packed(
    weight: Place,
    phase: Phase,
    axes: tuple[int, int],
    first: int,
    rows: int,
    groups: int,
    channels: int,
    group_channels: int,
    form: Form,
) -> Array:
    """Rows `first … first + rows` of every group's weights, as the blocks that tiles multiply."""
    size = weight.array.itemsize
    strides = [stride // size for stride in weight.array.strides]
    taps = np.zeros(len(phase.kernel), np.int64)
    kernel = weight.array.shape[2:]
    for index, stride in zip(np.unravel_index(phase.kernel, kernel), strides[2:], strict=True):
        taps += index * stride
    offsets = np.add.outer(np.arange(channels) * strides[axes[1]], taps).ravel()
    blocks = -(-rows // tiles.ROWS)
    packed = np.empty(groups * blocks * len(offsets) * tiles.ROWS, type(form.zero))
    address = weight.address + first * strides[axes[0]] * size
    arguments = (
        packed.ctypes.data, address, strides[axes[0]], group_channels * strides[0], offsets, rows,
        blocks, form.memory, form.zero, form.size,
    )  # fmt: skip
    threads.run(lambda i, j: tiles.pack(i, j, *arguments), groups * blocks)
    return packed


def _chunks(channels: int, taps: int, depth: int) -> tuple[int, int]:
    """Channels and taps of a chunk of about `depth` of their pairs, all chunks about as large."""
    if taps > depth:
        return 1, -(-taps // -(-taps // depth))
    return -(-channels // -(-channels * taps // depth or 1)), max(1, taps)


def _merge(phase: Phase, sources: list[Array], target: Array) -> tuple[Array, ...]:
    """The phase's tables and the strides, with the axes merged that are read as they lie.

    An axis without taps and padding joins the one before it; then runs are longer.
    """
    lengths, counts, steps = list(phase.lengths), list(phase.counts), list(phase.steps)
    taps, strides = phase.taps.copy(), np.array([*sources, target])
    for a in range(len(lengths) - 2, -1, -1):
        n = lengths[a + 1]
        whole = steps[a + 1] == 1 and counts[a + 1] == n and not taps[:, a + 1].any()
        if whole and steps[a] == 1 and (strides[:, a] == strides[:, a + 1] * n).all():
            lengths[a : a + 2] = [lengths[a] * n]
            counts[a : a + 2] = [counts[a] * n]
            del steps[a + 1]
            taps[:, a] *= n
            taps = np.delete(taps, a + 1, 1)
            strides = np.delete(strides, a, 1)
    tables = (np.array(v, np.int64) for v in (lengths, counts, steps))
    return (*tables, np.ascontiguousarray(taps), np.ascontiguousarray(strides))


def _weight(op: Convolution, image: Array, windows: Array, out: Array) -> None:
    """out = Σ over positions of image cell × window, for each weight."""
    form, rank, groups = _form(out.dtype), op.rank, op.groups
    source, grads = _place(image, rank), _place(windows, rank)
    phase = _window_phase(op, image.shape[-rank:], windows.shape[-rank:])
    lengths, counts, steps, taps, strides = _merge(phase, [source.strides], grads.strides)
    rows, channels = out.shape[0] // groups, out.shape[1]
    depth = min(max(-(-channels * len(taps) * groups // UNITS), 24), 128)
    channel_chunk, tap_chunk = _chunks(channels, len(taps), depth)
    chunks = np.array(
        [
            (c, min(channels, c + channel_chunk), t, min(len(taps), t + tap_chunk))
            for c in range(0, channels, channel_chunk)
            for t in range(0, len(taps), tap_chunk)
        ]
    )
    work, vector = type(form.zero), VECTOR_BYTES // form.size
    lanes = -(-rows // vector) * vector
    height = channel_chunk * tap_chunk + tiles.ROWS_1
    sums = np.zeros((groups * len(chunks), height, lanes), work)
    positions = len(source.offsets) * int(np.prod(counts))
    at_a_time = max(1, SCRATCH // (groups * lanes * form.size * BLOCK)) * BLOCK
    rows_of_windows = np.empty(min(at_a_time, positions) * groups * lanes, work)
    at = rows_of_windows.ctypes.data
    for start in range(0, positions, at_a_time):
        stop = min(positions, start + at_a_time)
        turn = (
            start, stop, BLOCK, counts, grads.address, grads.offsets, grads.channel, strides[1],
            groups, rows, lanes, at, form.memory, form.zero, form.size,
        )  # fmt: skip
        threads.run(
            lambda i, j, rest=turn: tiles.transpose(i, j, *rest), -(-(stop - start) // BLOCK)
        )
        arguments = (
            start, stop, BLOCK, counts, lengths, steps, taps, source.address, source.offsets,
            source.channel, strides[0], chunks, groups, channels, at, lanes, sums.ctypes.data,
            height, form.memory, form.zero, form.size, vector,
        )  # fmt: skip
        threads.run(lambda i, j, rest=arguments: tiles.outer(i, j, *rest), len(sums))
    result = out.reshape(groups, rows, channels, -1)
    for unit, values in enumerate(sums):
        group, (c, c_end, t, t_end) = unit // len(chunks), chunks[unit % len(chunks)]
        whole = values[: (c_end - c) * (t_end - t), :rows].reshape(c_end - c, t_end - t, rows)
        result[group, :, c:c_end, t:t_end] = whole.transpose(2, 0, 1)


def _spread(op: Convolution, sources: list[Any], bias: list[Array], out: Array) -> None:
    """The image from the windows tap by tap, so that a weight reaches its own cells alone.

    A correlation multiplies weights with the zeros around the windows, which is not the meaning
    for an infinite weight or a NaN.
    """
    rank, groups, work = op.rank, op.groups, type(_form(out.dtype).zero)
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
    form, rank = _form(grad.dtype), op.rank
    channels = grad.shape[-rank - 1]
    sums = np.zeros((prod(grad.shape[: -rank - 1]), channels), type(form.zero))
    with np.errstate(all="ignore"):
        for number, item in enumerate(np.ndindex(grad.shape[: -rank - 1])):
            for c in range(channels):
                row = np.ascontiguousarray(grad[item][c], dtype=type(form.zero))
                sums[number, c] = row.ravel().sum()
        return sums.sum(0).astype(grad.dtype)
