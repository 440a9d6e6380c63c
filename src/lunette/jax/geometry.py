"""Which axes of a call are batch and which are pooled, and the shapes that go with them; shapes may hold symbols.

An op pools the last axes. With `channels_last` one axis of batch, the channels, stands behind them instead of before.
"""

from __future__ import annotations

from typing import Any

from lunette.ops.convolution import Convolution
from lunette.ops.pooling import Pooling

__all__ = [
    "channels_first",
    "is_concrete",
    "out_shape",
    "pooled_axes",
    "pooled_lengths",
    "put_back",
]

Shape = tuple[Any, ...]


def is_concrete(shape: Shape) -> bool:
    """Whether a shape is of numbers alone: `jax.export` has shapes with symbols."""
    return all(type(n) is int for n in shape)


def pooled_axes(op: Pooling, ndim: int, channels_last: bool) -> range:
    """The pooled axes of an array that has them."""
    end = ndim - channels_last
    return range(end - op.rank, end)


def channels_first(op: Pooling | Convolution, shape: Shape, channels_last: bool) -> Shape:
    """The shape with the pooled axes last, as the op reads it."""
    if not channels_last:
        return tuple(shape)
    first = len(shape) - 1 - op.rank
    if first < 0:
        raise ValueError(
            f"{op!r} with channels_last=True pools the {op.rank} axes before the last; "
            f"x of shape {tuple(shape)} has {len(shape)}"
        )
    return (*shape[:first], shape[-1], *shape[first:-1])


def put_back(op: Pooling, shape: Shape, channels_last: bool, kept: bool = True) -> Shape:
    """A shape as the op reads or gives it, as the array has it; of a result, only if its pooled axes are `kept`."""
    if not channels_last or not kept:
        return tuple(shape)
    first = len(shape) - 1 - op.rank
    return (*shape[:first], *shape[first + 1 :], shape[first])


def pooled_lengths(op: Pooling, shape: Shape, channels_last: bool) -> Shape:
    """The lengths of the pooled axes of an input."""
    axes = pooled_axes(op, len(shape), channels_last)
    return tuple(shape[axes.start : axes.stop])


def out_shape(op: Pooling, shape: Shape, channels_last: bool) -> Shape:
    """The shape of the op's value for an input of this shape."""
    shape = channels_first(op, shape, channels_last)
    if is_concrete(shape):
        found: Shape = op.out_shape(shape)
    else:
        first = len(shape) - op.rank
        if first < 0:
            op.out_shape((1,) * len(shape))  # the error that says so
        lengths = tuple(r.out_length(n) for r, n in zip(op.regions, shape[first:], strict=True))
        found = (*shape[:first], *lengths) if op.keepdims else tuple(shape[:first])
    return put_back(op, found, channels_last, op.keepdims)
