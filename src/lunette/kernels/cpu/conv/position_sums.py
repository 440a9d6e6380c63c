"""Sums over all positions, box by box: the gradients of a convolution's weight and bias."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from lunette.boxes import Box, add_up, boxes, of_grad, of_windows
from lunette.kernels import threads
from lunette.kernels.cpu.conv.arrays import FORMS, Array
from lunette.kernels.cpu.conv.backward_weights import weight_sums
from lunette.ops.convolution import Convolution
from lunette.ops.parts import part_op, window_axis, with_zeros

__all__ = ["bias_gradient", "weight_gradient", "widened"]


def widened(array: Array) -> Array:
    """Half types as float32; they are rounded once, at the end."""
    if array.dtype in FORMS:
        return array
    wide = np.empty(array.shape, np.float32)
    axis = int(np.argmax(array.shape))

    def convert(first: int, last: int) -> None:
        part = (slice(None),) * axis + (slice(first, last),)
        wide[part] = array[part]

    threads.run(convert, array.shape[axis], 0 if array.size >= 1 << 15 else 1)
    return wide


def weight_gradient(
    op: Convolution, image: Array, windows: Array, shape: tuple[int, ...], work: Any
) -> Array:
    """The sum of image cell × window for each weight.

    A box is a convolution of its own slab, so it is summed as it would be if it were all there is.
    """
    rank = op.rank

    def part(box: Box) -> Array:
        lengths = zip(op.regions, image.shape[-rank:], box[-rank:], strict=True)
        axes = tuple(window_axis(region, n, *ends) for region, n, ends in lengths)
        slab = image[(*_slices(box[: -rank - 1]), slice(None), *_slices(a.slab for a in axes))]
        cells, senders = widened(with_zeros(slab, axes)), widened(windows[_slices(box)])
        return weight_sums(part_op(op, False, axes), cells, senders, shape, work)

    with np.errstate(all="ignore"):
        total = add_up(map(part, boxes(of_windows(op, image.shape, windows.shape))), np.add)
    return np.zeros(shape, work) if total is None else total


def bias_gradient(op: Convolution, grad: Array, work: Any) -> Array:
    """The sum of each channel: in a box pairwise over those of a batch item, then over the items."""
    channel = grad.ndim - op.rank - 1

    def part(box: Box) -> Array:
        cells = grad[_slices(box)]
        items, channels = cells.shape[:channel], cells.shape[channel]
        sums = np.zeros((prod(items), channels), work)
        for number, item in enumerate(np.ndindex(items)):
            sums[number] = np.ascontiguousarray(cells[item], work).reshape(channels, -1).sum(1)
        total: Array = sums.sum(0)
        return total

    with np.errstate(all="ignore"):
        total = add_up(map(part, boxes(of_grad(op, grad.shape))), np.add)
    return np.zeros(grad.shape[channel], work) if total is None else total


def _slices(ranges: Any) -> tuple[slice, ...]:
    return tuple(slice(first, last) for first, last in ranges)
