"""Convolution over Dask arrays: blocks of windows that read the image, blocks of image that read windows.

A convolution and the gradient of its transpose are blocks of windows; a transposed convolution and
the gradient of a convolution in x are blocks of image. A block is a convolution of its own slab
with the padding that the array's true edges leave it. Gradients of weights and bias are sums over
blocks, block by block in row-major order.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise, product
from typing import Any, NamedTuple

import dask.array as da
import numpy as np
from dask._task_spec import List, Task, TaskRef
from dask.base import tokenize

from lunette import dispatch
from lunette.adapters.graphs import (
    Operand,
    Whole,
    build,
    collection,
    gather,
    inputs,
    on_host,
    ranges_of,
)
from lunette.adapters.slabs import bounds_of, cut_outputs
from lunette.ops.convolution import Conv, Convolution, ConvTranspose
from lunette.regions import Sliding

__all__ = ["forward", "jvp", "vjp"]

FAN_IN = 16
"""Partial sums that one task adds up."""


def forward(op: Convolution, arrays: tuple[Any, ...], backend: str | None, chunks: Any) -> Any:
    """The value of the convolution."""
    return _value(op, "forward", arrays[:1], arrays[1:], backend, chunks)


def jvp(
    op: Convolution,
    arrays: tuple[Any, ...],
    tangents: tuple[Any, ...],
    backend: str | None,
    chunks: Any,
) -> Any:
    """The directional derivative."""
    images = (arrays[0], tangents[0])
    return _value(op, "jvp", images, arrays[1:] + tangents[1:], backend, chunks)


def vjp(
    op: Convolution, arrays: tuple[Any, ...], gradient: Any, backend: str | None
) -> tuple[Any, ...]:
    """The gradients of x, in x's chunks, of the weight and of the bias, each one chunk."""
    x, weight = arrays[:2]
    adjoint = _Blocks(op, not op.transposed, x.shape, gradient.shape)
    gx = adjoint.apply("forward", (gradient,), (weight,), x.chunks, x.shape, backend)
    image, windows = (gradient, x) if op.transposed else (x, gradient)
    gradients = [gx.rechunk(x.chunks), _weight_gradient(op, image, windows, weight, backend)]
    if len(arrays) == 3:
        gradients.append(_bias_gradient(op, gradient))
    return tuple(gradients)


def _value(
    op: Convolution,
    verb: str,
    images: tuple[Any, ...],
    parameters: tuple[Any, ...],
    backend: str | None,
    chunks: Any,
) -> Any:
    x, weight = images[0], parameters[0]
    out_shape = op.out_shape(x.shape, weight.shape)
    blocks = _Blocks(op, op.transposed, out_shape, x.shape)
    if chunks is None:
        chunks = (*x.chunks[: -op.rank - 1], (out_shape[-op.rank - 1],))
        chunks += tuple(
            _cut_image(region, c, n) if op.transposed else cut_outputs(region, c)
            for region, c, n in zip(
                op.regions, x.chunks[-op.rank :], out_shape[-op.rank :], strict=True
            )
        )
    else:
        chunks = da.core.normalize_chunks(chunks, out_shape, dtype=x.dtype)
        channel = len(chunks) - op.rank - 1
        if len(chunks[channel]) > 1:
            raise ValueError(
                f"chunks={chunks[channel]} on axis {channel}: expected one chunk of all output channels"
            )
    return blocks.apply(verb, images, parameters, chunks, out_shape, backend)


class Axis(NamedTuple):
    """One axis of a block: the slab it reads, and the block's own padding.

    With `zeros`, the block reads padding alone: the slab is so many zeros.
    """

    slab: tuple[int, int]
    padding: tuple[int, int]
    zeros: int
    output_padding: int


class _Blocks:
    """A convolution cut into blocks of its result, with its numbers or those of its adjoint."""

    def __init__(
        self, op: Convolution, transposed: bool, out_shape: Sequence[int], in_shape: Sequence[int]
    ) -> None:
        self.op, self.transposed = op, transposed
        self.out_lengths, self.in_lengths = out_shape[-op.rank :], in_shape[-op.rank :]

    def axes(self, chunks: Sequence[tuple[int, ...]]) -> list[list[Axis]]:
        """The axis of each chunk of the result, for each axis that windows slide over."""
        cut = _image_axis if self.transposed else _window_axis
        lengths = zip(self.op.regions, self.in_lengths, self.out_lengths, chunks, strict=True)
        return [
            [cut(region, n, m, lo, hi) for lo, hi in ranges_of(c)] for region, n, m, c in lengths
        ]

    def settings(self, verb: str, backend: str | None) -> tuple[Any, ...]:
        """What every task of these blocks needs to know."""
        op = self.op
        return verb, self.transposed, (op.kernel, op.stride, op.dilation, op.groups), backend

    def apply(
        self,
        verb: str,
        images: tuple[Any, ...],
        parameters: tuple[Any, ...],
        chunks: Any,
        out_shape: Sequence[int],
        backend: str | None,
    ) -> Any:
        """The array of the blocks' results."""
        rank, x = self.op.rank, images[0]
        batch = len(chunks) - rank - 1
        chunks = (*tuple(chunks[:batch]), (out_shape[batch],), *tuple(chunks[batch + 1 :]))
        axes = self.axes(chunks[batch + 1 :])
        ranges = [ranges_of(c) for c in chunks[:batch]] + [[(0, x.shape[batch])]]
        ranges += [[a.slab for a in axis] for axis in axes]
        operands = [Operand(a, ranges) for a in images] + [Whole(p) for p in parameters]
        settings = self.settings(verb, backend)

        def arguments(index: tuple[int, ...]) -> tuple[Any, ...]:
            return settings, tuple(a[i] for a, i in zip(axes, index[batch + 1 :], strict=True))

        return build(
            f"lunette-convolution-{verb}",
            chunks,
            x.dtype,
            operands,
            _block_task,
            arguments,
            tuple(len(c) for c in chunks),
            (repr(self.op), self.transposed, backend),
        )


def _window_axis(region: Sliding, n: int, m: int, first: int, last: int) -> Axis:
    """Windows `first ≤ i < last` of an image of `n` positions."""
    before, _ = region.margins(n)
    stride = region.stride or 1
    origin = first * stride - before
    end = (last - 1) * stride - before + region.extent
    lo, hi = max(origin, 0), min(end, n)
    if lo >= hi:
        return Axis((0, 0), (0, 0), end - origin, 0)
    return Axis((lo, hi), (lo - origin, end - hi), 0, 0)


def _image_axis(region: Sliding, m: int, n: int, lo: int, hi: int) -> Axis:
    """Positions `lo ≤ p < hi` of an image of `n` that `m` windows send to."""
    before, _ = region.margins(n)
    stride = region.stride or 1
    first = max(0, -((region.extent - 1 - lo - before) // stride))
    first = min(first, (lo + before) // stride, m - 1)
    last = max(first + 1, min(m, (hi - 1 + before) // stride + 1))
    end = (last - 1) * stride - before + region.extent
    padding = (lo - (first * stride - before), max(0, end - hi))
    return Axis((first, last), padding, 0, max(0, hi - end))


def _cut_image(region: Sliding, chunks: tuple[int, ...], n: int) -> tuple[int, ...]:
    """Chunks of an image, one for each chunk of the windows that send to it."""
    before, _ = region.margins(n)
    stride = region.stride or 1
    cuts = {0, n} | {min(max(i * stride - before, 0), n) for i in bounds_of(chunks)[1:-1]}
    ordered = sorted(cuts)
    return tuple(b - a for a, b in pairwise(ordered))


# -- blocks --


def _block_op(settings: Any, axes: tuple[Axis, ...]) -> Convolution:
    _, transposed, (kernel, stride, dilation, groups), _ = settings
    padding = tuple(a.padding for a in axes)
    if transposed:
        extra = tuple(a.output_padding for a in axes)
        return ConvTranspose(kernel, stride, padding, extra, dilation, groups)
    return Conv(kernel, stride, padding, dilation, groups)


def _with_zeros(slab: Any, axes: tuple[Axis, ...]) -> Any:
    """The slab, or zeros where the block reads padding alone on some axis."""
    if not any(a.zeros for a in axes):
        return slab
    lengths = tuple(
        a.zeros or n for a, n in zip(axes, slab.shape[slab.ndim - len(axes) :], strict=True)
    )
    return np.zeros(slab.shape[: slab.ndim - len(axes)] + lengths, slab.dtype)


def _block_task(settings: Any, axes: tuple[Axis, ...], readings: Any, *blocks: Any) -> Any:
    return on_host(_block, settings, axes, gather(readings, blocks))


def _block(settings: Any, axes: tuple[Axis, ...], operands: list[Any]) -> Any:
    verb, _, _, backend = settings
    op = _block_op(settings, axes)
    if verb == "forward":
        x, *parameters = operands
        return dispatch.forward(op, _with_zeros(x, axes), *parameters, backend=backend)
    x, dx, *parameters = operands
    count = len(parameters) // 2
    primals = (_with_zeros(x, axes), *parameters[:count])
    tangents = (_with_zeros(dx, axes), *parameters[count:])
    return dispatch.jvp(op, primals, tangents, backend=backend)


# -- gradients of weights and bias --


def _weight_gradient(op: Convolution, image: Any, windows: Any, weight: Any, backend: Any) -> Any:
    """Every block of windows gives a part; parts are added in order, in float32 for half types."""
    rank = op.rank
    batch = windows.ndim - rank - 1
    chunks = windows.chunks
    blocks = _Blocks(op, False, windows.shape, image.shape)
    axes = blocks.axes(chunks[batch + 1 :])
    ranges = [ranges_of(c) for c in chunks[:batch]] + [[(0, image.shape[batch])]]
    ranges += [[a.slab for a in axis] for axis in axes]
    window_ranges = [ranges_of(c) for c in chunks[:batch]] + [[(0, windows.shape[batch])]]
    window_ranges += [ranges_of(c) for c in chunks[batch + 1 :]]
    operands: list[Operand | Whole] = [Operand(image, ranges), Operand(windows, window_ranges)]
    operands.append(Whole(weight))
    settings = blocks.settings("vjp", backend)
    names = [o.array.name for o in operands]
    name = f"lunette-weight-{tokenize(repr(op), backend, names)}"
    tasks, parts = {}, []
    counts = [1 if a == batch else len(c) for a, c in enumerate(chunks)]
    for index in product(*map(range, counts)):
        readings, references = inputs(operands, index)
        block_axes = tuple(a[i] for a, i in zip(axes, index[batch + 1 :], strict=True))
        key = (f"{name}-part", *index)
        tasks[key] = Task(key, _weight_task, settings, block_axes, readings, *references)
        parts.append(key)
    return _added(name, tasks, parts, [o.array for o in operands], weight)


def _weight_task(settings: Any, axes: tuple[Axis, ...], readings: Any, *blocks: Any) -> Any:
    return on_host(_weight_part, settings, axes, gather(readings, blocks))


def _weight_part(settings: Any, axes: tuple[Axis, ...], operands: list[Any]) -> Any:
    image, windows, weight = (_wide(a) for a in operands)
    op = _block_op(settings, axes)
    parts = dispatch.vjp(op, (_with_zeros(image, axes), weight), windows, backend=settings[3])
    return parts[1]


def _bias_gradient(op: Convolution, gradient: Any) -> Any:
    """The sum of the gradient over everything but channels, block by block."""
    channel = gradient.ndim - op.rank - 1
    merged = gradient.rechunk({channel: -1})
    name = f"lunette-bias-{tokenize(repr(op), merged.name)}"
    tasks, parts = {}, []
    for index in product(*map(range, merged.numblocks)):
        key = (f"{name}-part", *index)
        tasks[key] = Task(key, _channel_sum, channel, TaskRef((merged.name, *index)))
        parts.append(key)
    like = np.empty((gradient.shape[channel],), gradient.dtype)
    return _added(name, tasks, parts, [merged], like)


def _channel_sum(channel: int, block: Any) -> Any:
    axes = tuple(a for a in range(block.ndim) if a != channel)
    return _wide(block).sum(axis=axes)


def _added(name: str, tasks: dict[Any, Any], parts: list[Any], arrays: Any, like: Any) -> Any:
    """One chunk: the parts added in order, a few at a time."""
    level = 0
    while len(parts) > FAN_IN:
        groups = [parts[i : i + FAN_IN] for i in range(0, len(parts), FAN_IN)]
        parts = []
        for i, group in enumerate(groups):
            key = (f"{name}-sum-{level}", i)
            tasks[key] = Task(key, _sum, List(*map(TaskRef, group)))
            parts.append(key)
        level += 1
    key = (name, *(0,) * like.ndim)
    tasks[key] = Task(key, _last_sum, List(*map(TaskRef, parts)), np.dtype(like.dtype), like.shape)
    return collection(name, tasks, arrays, tuple((n,) for n in like.shape), like.dtype)


def _sum(parts: list[Any]) -> Any:
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def _last_sum(parts: list[Any], dtype: Any, shape: Any) -> Any:
    return _sum(parts).astype(dtype) if parts else np.zeros(shape, dtype)


def _wide(array: Any) -> Any:
    """Half types as float32, so that a sum of parts is rounded once."""
    return array.astype(np.float32) if array.dtype.itemsize == 2 else array
