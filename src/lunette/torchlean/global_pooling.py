"""Pooling of whole channels `(C, H, W)`, to `(C, 1, 1)` or flat to `(C,)`."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce as fold
from typing import Any

from lunette.annotations import Ties
from lunette.arguments import size
from lunette.ops import GlobalAvgPool, GlobalMaxPool
from lunette.spec import forward, vjp
from lunette.torchlean.arrays import CHANNELS, IMAGE, Array, array, mean_backward
from lunette.torchlean.nd import tensor_of_dims
from lunette.torchlean.records import GlobalAvgPool2DSpec, GlobalMaxPool2DSpec, checked

__all__ = [
    "broadcast_scalar1x1",
    "channel_spatial_max",
    "global_avg_pool2d_backward_spec",
    "global_avg_pool2d_flat_backward_spec",
    "global_avg_pool2d_flat_spec",
    "global_avg_pool2d_spec",
    "global_channel_reduce",
    "global_max_pool2d_backward_distributed_spec",
    "global_max_pool2d_backward_spec",
    "global_max_pool2d_flat_backward_spec",
    "global_max_pool2d_flat_spec",
    "global_max_pool2d_spec",
    "global_pool2d1x1",
    "global_pool2d_flat",
    "global_pool2d_flat_out_shape",
    "global_pool2d_out_shape",
    "reduce_spatial",
]

Shape = tuple[int, ...]


def _avg(layer: Any, keepdims: bool) -> GlobalAvgPool:
    checked(layer, GlobalAvgPool2DSpec)
    return GlobalAvgPool(2, keepdims)


def _max(layer: Any, keepdims: bool, ties: Ties = "all") -> GlobalMaxPool:
    checked(layer, GlobalMaxPool2DSpec)
    return GlobalMaxPool(2, keepdims, ties)


# -- reductions of one channel --


def reduce_spatial(init: Any, f: Callable[[Any, Any], Any], channel_data: Any) -> Any:
    """`f(… f(f(init, first), second) …, last)` over an image's cells in row-major order."""
    return fold(f, array(channel_data, "channel_data", IMAGE).flat, init)


def channel_spatial_max(channel_data: Any) -> Any:
    """The largest cell of an image."""
    return forward(GlobalMaxPool(2), array(channel_data, "channel_data", IMAGE)).flat[0]


def global_channel_reduce(channel_data: Any, init: Any, f: Callable[[Any, Any], Any]) -> Any:
    """`reduce_spatial`, the image first."""
    return reduce_spatial(init, f, channel_data)


# -- from a number for each channel to a tensor --


def broadcast_scalar1x1(v: Any) -> Array:
    """The image `(1, 1)` that holds `v`."""
    return tensor_of_dims((1, 1), lambda _: v)


def global_pool2d_out_shape(inC: int) -> Shape:
    """Shape of channels pooled to one cell each."""
    return (size(inC, "inC", 0), 1, 1)


def global_pool2d_flat_out_shape(inC: int) -> Shape:
    """Shape of channels pooled to one number each."""
    return (size(inC, "inC", 0),)


def global_pool2d1x1(reduce: Callable[[Array], Any], input: Any) -> Array:
    """`reduce` of every channel, as `(C, 1, 1)`."""
    x = array(input, "input", CHANNELS)
    return tensor_of_dims(global_pool2d_out_shape(len(x)), lambda index: reduce(x[index[0]]))


def global_pool2d_flat(reduce: Callable[[Array], Any], input: Any) -> Array:
    """`reduce` of every channel, as `(C,)`."""
    x = array(input, "input", CHANNELS)
    return tensor_of_dims(global_pool2d_flat_out_shape(len(x)), lambda index: reduce(x[index[0]]))


# -- forward --


def global_avg_pool2d_spec(layer: Any, input: Any) -> Any:
    """Mean of every channel, as `(C, 1, 1)`."""
    return forward(_avg(layer, True), array(input, "input", CHANNELS))


def global_max_pool2d_spec(layer: Any, input: Any) -> Any:
    """Max of every channel, as `(C, 1, 1)`."""
    return forward(_max(layer, True), array(input, "input", CHANNELS))


def global_avg_pool2d_flat_spec(layer: Any, input: Any) -> Any:
    """Mean of every channel, as `(C,)`."""
    return forward(_avg(layer, False), array(input, "input", CHANNELS))


def global_max_pool2d_flat_spec(layer: Any, input: Any) -> Any:
    """Max of every channel, as `(C,)`."""
    return forward(_max(layer, False), array(input, "input", CHANNELS))


# -- backward --


def global_avg_pool2d_backward_spec(layer: Any, grad_output: Any, *, input_shape: Shape) -> Any:
    """The gradient `(C, 1, 1)` in equal shares over every channel."""
    return mean_backward(_avg(layer, True), grad_output, input_shape, CHANNELS)


def global_avg_pool2d_flat_backward_spec(
    layer: Any, grad_output: Any, *, input_shape: Shape
) -> Any:
    """The gradient `(C,)` in equal shares over every channel."""
    return mean_backward(_avg(layer, False), grad_output, input_shape, CHANNELS)


def global_max_pool2d_backward_spec(layer: Any, input: Any, grad_output: Any) -> Any:
    """The whole gradient `(C, 1, 1)` at every largest cell of its channel."""
    return vjp(_max(layer, True), array(input, "input", CHANNELS), grad_output)


def global_max_pool2d_flat_backward_spec(layer: Any, input: Any, grad_output: Any) -> Any:
    """The whole gradient `(C,)` at every largest cell of its channel."""
    return vjp(_max(layer, False), array(input, "input", CHANNELS), grad_output)


def global_max_pool2d_backward_distributed_spec(layer: Any, input: Any, grad_output: Any) -> Any:
    """The gradient `(C, 1, 1)` in equal shares over the largest cells of its channel."""
    return vjp(_max(layer, True, "split"), array(input, "input", CHANNELS), grad_output)
