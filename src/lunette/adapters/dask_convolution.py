"""Convolution over Dask arrays: blocks of windows that read the image, blocks of image that read windows.

A convolution and the gradient of its transpose are blocks of windows; a transposed convolution and
the gradient of a convolution in x are blocks of image. A block is a convolution of its own slab
with the padding that the array's true edges leave it. Gradients of weights and bias are sums over
the boxes of `lunette.boxes`, which know nothing of chunks: each box is a task.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise, product
from operator import add
from typing import Any

import dask.array as da
import numpy as np
from dask._task_spec import List, Task, TaskRef
from dask.base import tokenize

from lunette import boxes, dispatch
from lunette.adapters.graphs import (
    Operand,
    Whole,
    build,
    collection,
    gather,
    inputs_of,
    on_host,
    ranges_of,
)
from lunette.adapters.slabs import bounds_of, cut_outputs
from lunette.ops.convolution import Conv, Convolution
from lunette.ops.parts import Axis, image_axis, part_op, window_axis, with_zeros
from lunette.regions import Sliding

__all__ = ["forward", "jvp", "vjp"]

FAN_IN = 16
"""Partial sums that one task adds up: a power of two, so that they are a whole branch of the tree."""


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
        gradients.append(_bias_gradient(op, gradient, backend))
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


class _Blocks:
    """A convolution cut into blocks of its result, with its numbers or those of its adjoint."""

    def __init__(
        self, op: Convolution, transposed: bool, out_shape: Sequence[int], in_shape: Sequence[int]
    ) -> None:
        self.op, self.transposed = op, transposed
        self.out_lengths, self.in_lengths = out_shape[-op.rank :], in_shape[-op.rank :]

    def axes(self, chunks: Sequence[tuple[int, ...]]) -> list[list[Axis]]:
        """The axis of each chunk of the result, for each axis that windows slide over."""
        found = []
        lengths = zip(self.op.regions, self.in_lengths, self.out_lengths, chunks, strict=True)
        for region, n, m, c in lengths:
            if self.transposed:
                found.append([image_axis(region, m, n, lo, hi) for lo, hi in ranges_of(c)])
            else:
                found.append([window_axis(region, n, lo, hi) for lo, hi in ranges_of(c)])
        return found

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
        settings = verb, self.op, self.transposed, backend

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


def _cut_image(region: Sliding, chunks: tuple[int, ...], n: int) -> tuple[int, ...]:
    """Chunks of an image, one for each chunk of the windows that send to it."""
    before, _ = region.margins(n)
    stride = region.stride or 1
    cuts = {0, n} | {min(max(i * stride - before, 0), n) for i in bounds_of(chunks)[1:-1]}
    ordered = sorted(cuts)
    return tuple(b - a for a, b in pairwise(ordered))


# -- blocks --


def _block_task(settings: Any, axes: tuple[Axis, ...], readings: Any, *blocks: Any) -> Any:
    return on_host(_block, settings, axes, gather(readings, blocks))


def _block(settings: Any, axes: tuple[Axis, ...], operands: list[Any]) -> Any:
    verb, whole, transposed, backend = settings
    op = part_op(whole, transposed, axes)
    if verb == "forward":
        x, *parameters = operands
        return dispatch.forward(op, with_zeros(x, axes), *parameters, backend=backend)
    x, dx, *parameters = operands
    count = len(parameters) // 2
    primals = (with_zeros(x, axes), *parameters[:count])
    tangents = (with_zeros(dx, axes), *parameters[count:])
    return dispatch.jvp(op, primals, tangents, backend=backend)


# -- gradients of weights and bias --


def _weight_gradient(op: Convolution, image: Any, windows: Any, weight: Any, backend: Any) -> Any:
    """Every box of windows gives a part; half types are parts in float32, rounded at the end."""
    channel = windows.ndim - op.rank - 1
    ranges = boxes.of_windows(op, image.shape, windows.shape)
    lengths = zip(op.regions, image.shape[channel + 1 :], ranges[channel + 1 :], strict=True)
    axes = [[window_axis(region, n, *ends) for ends in along] for region, n, along in lengths]
    slabs = [*ranges[:channel], [(0, image.shape[channel])]]
    slabs += [[a.slab for a in axis] for axis in axes]

    def arguments(index: tuple[int, ...]) -> tuple[Any, ...]:
        return (tuple(a[i] for a, i in zip(axes, index[channel + 1 :], strict=True)),)

    operands: list[Operand | Whole] = [Operand(image, slabs), Operand(windows, ranges)]
    operands.append(Whole(weight))
    numblocks = [len(along) for along in ranges]
    return _added("weight", _weight_task, (op, backend), arguments, operands, numblocks, weight)


def _weight_task(settings: Any, axes: tuple[Axis, ...], readings: Any, *blocks: Any) -> Any:
    return on_host(_weight_part, settings, axes, gather(readings, blocks))


def _weight_part(settings: Any, axes: tuple[Axis, ...], operands: list[Any]) -> Any:
    op, backend = settings
    image, windows, weight = (_wide(a) for a in operands)
    numbers = (with_zeros(image, axes), weight)
    part = part_op(op, False, axes)
    return dispatch.vjp(part, numbers, windows, backend=backend, needs=(False, True))[1]


def _bias_gradient(op: Convolution, gradient: Any, backend: Any) -> Any:
    """Every box of the gradient gives its part, which does not depend on what the op is."""
    ranges = boxes.of_grad(op, gradient.shape)
    like = np.empty((gradient.shape[-op.rank - 1],), gradient.dtype)
    numblocks = [len(along) for along in ranges]
    operands = [Operand(gradient, ranges)]
    return _added(
        "bias", _bias_task, (op.rank, backend), lambda index: (), operands, numblocks, like
    )


def _bias_task(settings: Any, readings: Any, *blocks: Any) -> Any:
    return on_host(_bias_part, settings, gather(readings, blocks))


def _bias_part(settings: Any, operands: list[Any]) -> Any:
    rank, backend = settings
    grad = _wide(operands[0])
    channels = grad.shape[-rank - 1]
    # Any convolution with results of this shape will do: the smallest is 1 to `channels`, kernel 1.
    x = np.zeros((*grad.shape[: -rank - 1], 1, *grad.shape[-rank:]), grad.dtype)
    weight = np.zeros((channels, 1, *(1,) * rank), grad.dtype)
    numbers = (x, weight, np.zeros(channels, grad.dtype))
    op, needs = Conv((1,) * rank), (False, False, True)
    return dispatch.vjp(op, numbers, grad, backend=backend, needs=needs)[2]


def _added(
    name: str,
    task: Callable[..., Any],
    settings: Any,
    arguments: Callable[[tuple[int, ...]], tuple[Any, ...]],
    operands: Sequence[Operand | Whole],
    numblocks: Sequence[int],
    like: Any,
) -> Any:
    """One chunk: the parts of all boxes, added in their tree, some levels of it in each task."""
    arrays = [o.array for o in operands]
    name = f"lunette-{name}-{tokenize(repr(settings), [a.name for a in arrays])}"
    tasks, parts = {}, []
    for index in product(*map(range, numblocks)):
        readings, references = inputs_of(operands, index)
        key: tuple[Any, ...] = (f"{name}-part", *index)
        tasks[key] = Task(key, task, settings, *arguments(index), readings, *references)
        parts.append(key)
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
    with np.errstate(all="ignore"):
        return boxes.add_up(parts, add)


def _last_sum(parts: list[Any], dtype: Any, shape: Any) -> Any:
    return _sum(parts).astype(dtype) if parts else np.zeros(shape, dtype)


def _wide(array: Any) -> Any:
    """Half types as float32, so that a sum of parts is rounded once."""
    return array.astype(np.float32) if array.dtype.itemsize == 2 else array
