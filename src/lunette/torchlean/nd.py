"""Pooling on any number of axes: spatial tensors, and channels `(C, *spatial)`."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from itertools import product
from typing import Any, TypeVar

import numpy as np

from lunette import inputs
from lunette.arguments import shape_tuple, size, sizes
from lunette.ops.pooling import AvgPool, MaxPool, Pool, Pooling, SmoothMaxPool
from lunette.spec import forward, jvp, vjp
from lunette.torchlean.arrays import Array, array, mean_backward, spatial_axes, zeros
from lunette.torchlean.records import AvgPoolSpec, MaxPoolSpec, checked

__all__ = [
    "avg_pool_backward_spec",
    "avg_pool_spatial_backward_spec",
    "avg_pool_spatial_spec",
    "avg_pool_spec",
    "avg_pool_value",
    "foldl_indices",
    "get_padded_average_input_val",
    "get_padded_max_input_val",
    "max_pool_backward_spec",
    "max_pool_jvp_spec",
    "max_pool_jvp_value",
    "max_pool_spatial_backward_spec",
    "max_pool_spatial_jvp_spec",
    "max_pool_spatial_spec",
    "max_pool_spec",
    "max_pool_value",
    "padded_coords",
    "pool_multi_out_shape",
    "pool_multi_out_shape_pad",
    "pool_out_shape",
    "pool_out_shape_pad",
    "pool_out_spatial",
    "pool_out_spatial_pad",
    "smooth_max_pool_backward_spec",
    "smooth_max_pool_jvp_spec",
    "smooth_max_pool_jvp_value",
    "smooth_max_pool_spatial_backward_spec",
    "smooth_max_pool_spatial_jvp_spec",
    "smooth_max_pool_spatial_spec",
    "smooth_max_pool_spec",
    "smooth_max_pool_value",
    "tensor_of_dims",
    "unpad_coords",
]

Shape = tuple[int, ...]
Sizes = tuple[int, ...]
State = TypeVar("State")


# -- the ops behind the records --


def _max(layer: Any) -> MaxPool:
    layer = checked(layer, MaxPoolSpec)
    return MaxPool(layer.kernel, layer.stride, layer.padding)


def _avg(layer: Any) -> AvgPool:
    layer = checked(layer, AvgPoolSpec)
    return AvgPool(layer.kernel, layer.stride, layer.padding)


def _smooth(layer: Any, beta: Any) -> SmoothMaxPool:
    layer = checked(layer, MaxPoolSpec)
    return SmoothMaxPool(layer.kernel, beta, layer.stride, layer.padding)


def _spatial(op: Pooling, input: Any) -> Array:
    return array(input, "input", spatial_axes(op.rank))


def _channels(op: Pooling, input: Any) -> Array:
    return array(input, "input", ("C", *spatial_axes(op.rank)))


# -- shapes --


def pool_out_spatial(in_spatial: Sizes, kernel: Sizes, stride: Sizes) -> Shape:
    """Lengths of the pooled axes without padding."""
    return pool_out_spatial_pad(in_spatial, kernel, stride, 0)


def pool_out_spatial_pad(
    in_spatial: Sizes, kernel: Sizes, stride: Sizes, padding: Sizes | int
) -> Shape:
    """Lengths of the pooled axes, with `padding` cells on both sides of each."""
    op = _max(MaxPoolSpec(kernel, stride, padding))
    return op.out_shape(sizes(shape_tuple(in_spatial, "in_spatial"), op.rank, "in_spatial", 0))


def pool_out_shape(in_spatial: Sizes, kernel: Sizes, stride: Sizes) -> Shape:
    """Shape of a spatial tensor pooled without padding."""
    return pool_out_spatial(in_spatial, kernel, stride)


def pool_out_shape_pad(in_spatial: Sizes, kernel: Sizes, stride: Sizes, padding: Sizes) -> Shape:
    """Shape of a spatial tensor pooled with padding."""
    return pool_out_spatial_pad(in_spatial, kernel, stride, padding)


def pool_multi_out_shape(inC: int, in_spatial: Sizes, kernel: Sizes, stride: Sizes) -> Shape:
    """Shape of channels pooled without padding."""
    return (size(inC, "inC", 0), *pool_out_spatial(in_spatial, kernel, stride))


def pool_multi_out_shape_pad(
    inC: int, in_spatial: Sizes, kernel: Sizes, stride: Sizes, padding: Sizes
) -> Shape:
    """Shape of channels pooled with padding."""
    return (size(inC, "inC", 0), *pool_out_spatial_pad(in_spatial, kernel, stride, padding))


# -- walks and coordinates --


def tensor_of_dims(dims: Sizes, f: Callable[[Shape], Any]) -> Array:
    """The array of shape `dims` with `f(index)` at every index."""
    shape = shape_tuple(dims, "dims")
    values = [_scalar(f(index)) for index in product(*map(range, shape))]
    cells = inputs.array(values, "the numbers of f")
    if cells.shape != (len(values),):
        raise ValueError(f"f gave arrays of shape {cells.shape[1:]}; expected a number each time")
    return cells.reshape(shape)


def _scalar(value: Any) -> Any:
    """The element of an array without axes: NumPy would nest it, were it an object."""
    return value[()] if isinstance(value, np.ndarray) and value.ndim == 0 else value


def foldl_indices(dims: Sizes, init: State, f: Callable[[State, Shape], State]) -> State:
    """`f(… f(f(init, first), second) …, last)` over the indices of `dims` in row-major order."""
    return reduce(f, product(*map(range, shape_tuple(dims, "dims"))), init)


def padded_coords(out_idxs: Sizes, win_idxs: Sizes, stride: Sizes) -> Shape | None:
    """Where a window's cell lies in the padded input; None if the lengths differ."""
    outs, cells = shape_tuple(out_idxs, "out_idxs"), shape_tuple(win_idxs, "win_idxs")
    steps = sizes(shape_tuple(stride, "stride"), len(stride), "stride", 1)
    if not len(outs) == len(cells) == len(steps):
        return None
    return tuple(o * s + w for o, w, s in zip(outs, cells, steps, strict=True))


def unpad_coords(padded: Sizes, padding: Sizes) -> Shape | None:
    """The same place counted without the padding; None before the input, or if lengths differ."""
    places, margins = shape_tuple(padded, "padded"), shape_tuple(padding, "padding")
    if len(places) != len(margins) or any(x < p for x, p in zip(places, margins, strict=True)):
        return None
    return tuple(x - p for x, p in zip(places, margins, strict=True))


def get_padded_average_input_val(
    input: Any, out_idxs: Sizes, win_idxs: Sizes, stride: Sizes, padding: Sizes
) -> Any:
    """The cell that a mean or a smooth max reads there; 0 for padding."""
    x = inputs.array(input, "input")
    if {len(out_idxs), len(win_idxs), len(stride), len(padding)} != {x.ndim}:
        raise ValueError(
            f"out_idxs={out_idxs}, win_idxs={win_idxs}, stride={stride}, padding={padding}: "
            f"expected one of each for the {x.ndim} axes of input"
        )
    value = get_padded_max_input_val(x, out_idxs, win_idxs, stride, padding)
    return zeros((), x)[()] if value is None else value


def get_padded_max_input_val(
    input: Any, out_idxs: Sizes, win_idxs: Sizes, stride: Sizes, padding: Sizes
) -> Any:
    """The cell that a max reads there; None for padding, or if the lengths differ."""
    x, padded = inputs.array(input, "input"), padded_coords(out_idxs, win_idxs, stride)
    place = None if padded is None else unpad_coords(padded, padding)
    if place is None or len(place) != x.ndim:
        return None
    return x[place] if all(i < n for i, n in zip(place, x.shape, strict=True)) else None


# -- one window --


def max_pool_value(
    input: Any, out_idxs: Sizes, kernel: Sizes, stride: Sizes, padding: Sizes
) -> Any:
    """Max of the window of one output."""
    op = _max(MaxPoolSpec(kernel, stride, padding))
    return _value(op, input, out_idxs)


def max_pool_jvp_value(
    input: Any, tangent: Any, out_idxs: Sizes, kernel: Sizes, stride: Sizes, padding: Sizes
) -> Any:
    """The tangent at the first largest cell of one output's window."""
    op = _max(MaxPoolSpec(kernel, stride, padding))
    return _jvp_value(op, input, tangent, out_idxs)


def avg_pool_value(
    input: Any, out_idxs: Sizes, kernel: Sizes, stride: Sizes, padding: Sizes
) -> Any:
    """Mean of the window of one output; padding counts as zeros."""
    op = _avg(AvgPoolSpec(kernel, stride, padding))
    return _value(op, input, out_idxs)


def smooth_max_pool_value(
    beta: Any, input: Any, out_idxs: Sizes, kernel: Sizes, stride: Sizes, padding: Sizes
) -> Any:
    """`(1/beta) log Σ exp(beta·x)` of the window of one output; padding counts as zeros."""
    op = _smooth(MaxPoolSpec(kernel, stride, padding), beta)
    return _value(op, input, out_idxs)


def smooth_max_pool_jvp_value(
    beta: Any,
    input: Any,
    tangent: Any,
    out_idxs: Sizes,
    kernel: Sizes,
    stride: Sizes,
    padding: Sizes,
) -> Any:
    """`Σ softmax(beta·x)·dx` of the window of one output."""
    op = _smooth(MaxPoolSpec(kernel, stride, padding), beta)
    return _jvp_value(op, input, tangent, out_idxs)


def _value(op: Pooling, input: Any, out_idxs: Sizes) -> Any:
    x = _spatial(op, input)
    window, slab = _window(op, x.shape, out_idxs)
    return forward(window, x[slab]).flat[0]


def _jvp_value(op: Pooling, input: Any, tangent: Any, out_idxs: Sizes) -> Any:
    x, dx = _spatial(op, input), inputs.array(tangent, "tangent")
    op.check_tangents((x.shape,), (x.dtype,), (dx.shape,), (dx.dtype,))
    window, slab = _window(op, x.shape, out_idxs)
    return jvp(window, x[slab], dx[slab]).flat[0]


def _window(op: Pooling, shape: Shape, out_idxs: Sizes) -> tuple[Pool, tuple[slice, ...]]:
    """The op of one output alone, and the part of the input that it reads."""
    index = sizes(shape_tuple(out_idxs, "out_idxs"), op.rank, "out_idxs", 0)
    lengths = op.out_shape(shape)
    for axis, (i, length) in enumerate(zip(index, lengths, strict=True)):
        if i >= length:
            raise ValueError(
                f"out_idxs={index}: axis {axis} has {length} outputs, 0 … {length - 1}"
            )
    parts = [r.part(n, i, i + 1) for r, n, i in zip(op.regions, shape, index, strict=True)]
    return Pool(tuple(parts), op.reduction), tuple(slice(*part.slab_range) for part in parts)


# -- spatial tensors --


def max_pool_spatial_spec(layer: Any, input: Any) -> Any:
    """Max of each window."""
    op = _max(layer)
    return forward(op, _spatial(op, input))


def max_pool_spatial_jvp_spec(layer: Any, input: Any, tangent: Any) -> Any:
    """The tangent at each window's first largest cell."""
    op = _max(layer)
    return jvp(op, _spatial(op, input), tangent)


def max_pool_spatial_backward_spec(layer: Any, input: Any, grad_output: Any) -> Any:
    """Each output's gradient, added at its window's first largest cell."""
    op = _max(layer)
    return vjp(op, _spatial(op, input), grad_output)


def avg_pool_spatial_spec(layer: Any, input: Any) -> Any:
    """Mean of each window; padding counts as zeros."""
    op = _avg(layer)
    return forward(op, _spatial(op, input))


def avg_pool_spatial_backward_spec(layer: Any, grad_output: Any, *, input_shape: Shape) -> Any:
    """Each output's gradient in equal shares over its window; the padding's shares are dropped."""
    op = _avg(layer)
    return mean_backward(op, grad_output, input_shape, spatial_axes(op.rank))


def smooth_max_pool_spatial_spec(layer: Any, beta: Any, input: Any) -> Any:
    """`(1/beta) log Σ exp(beta·x)` of each window; padding counts as zeros."""
    op = _smooth(layer, beta)
    return forward(op, _spatial(op, input))


def smooth_max_pool_spatial_jvp_spec(layer: Any, beta: Any, input: Any, tangent: Any) -> Any:
    """`Σ softmax(beta·x)·dx` of each window."""
    op = _smooth(layer, beta)
    return jvp(op, _spatial(op, input), tangent)


def smooth_max_pool_spatial_backward_spec(
    layer: Any, beta: Any, input: Any, grad_output: Any
) -> Any:
    """Each output's gradient, shared over its window as `softmax(beta·x)`."""
    op = _smooth(layer, beta)
    return vjp(op, _spatial(op, input), grad_output)


# -- channels --


def max_pool_spec(layer: Any, input: Any) -> Any:
    """Max of each window, channel by channel."""
    op = _max(layer)
    return forward(op, _channels(op, input))


def max_pool_jvp_spec(layer: Any, input: Any, tangent: Any) -> Any:
    """The tangent at each window's first largest cell, channel by channel."""
    op = _max(layer)
    return jvp(op, _channels(op, input), tangent)


def max_pool_backward_spec(layer: Any, input: Any, grad_output: Any) -> Any:
    """Each output's gradient at its first largest cell, channel by channel."""
    op = _max(layer)
    return vjp(op, _channels(op, input), grad_output)


def avg_pool_spec(layer: Any, input: Any) -> Any:
    """Mean of each window, channel by channel."""
    op = _avg(layer)
    return forward(op, _channels(op, input))


def avg_pool_backward_spec(layer: Any, grad_output: Any, *, input_shape: Shape) -> Any:
    """Each output's gradient in equal shares over its window, channel by channel."""
    op = _avg(layer)
    return mean_backward(op, grad_output, input_shape, ("C", *spatial_axes(op.rank)))


def smooth_max_pool_spec(layer: Any, beta: Any, input: Any) -> Any:
    """`(1/beta) log Σ exp(beta·x)` of each window, channel by channel."""
    op = _smooth(layer, beta)
    return forward(op, _channels(op, input))


def smooth_max_pool_jvp_spec(layer: Any, beta: Any, input: Any, tangent: Any) -> Any:
    """`Σ softmax(beta·x)·dx` of each window, channel by channel."""
    op = _smooth(layer, beta)
    return jvp(op, _channels(op, input), tangent)


def smooth_max_pool_backward_spec(layer: Any, beta: Any, input: Any, grad_output: Any) -> Any:
    """Each output's gradient, shared as `softmax(beta·x)`, channel by channel."""
    op = _smooth(layer, beta)
    return vjp(op, _channels(op, input), grad_output)
