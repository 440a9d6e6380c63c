"""Pooling of images `(H, W)` and of channels `(C, H, W)`, without padding."""

from __future__ import annotations

from typing import Any

from lunette.arguments import size
from lunette.ops import AdaptiveAvgPool, AdaptiveMaxPool, AvgPool, MaxPool, SmoothMaxPool
from lunette.regions import Adaptive, Window
from lunette.spec import forward, jvp, vjp
from lunette.torchlean.arrays import CHANNELS, IMAGE, array, mean_backward
from lunette.torchlean.records import (
    AdaptiveAvgPool2DSpec,
    AdaptiveMaxPool2DSpec,
    AvgPool2DSpec,
    MaxPool2DSpec,
    checked,
)

__all__ = [
    "adaptive_avg_pool2d_spec",
    "adaptive_end",
    "adaptive_max_pool2d_spec",
    "adaptive_start",
    "avg_pool2d_backward_spec",
    "avg_pool2d_multi_backward_spec",
    "avg_pool2d_multi_spec",
    "avg_pool2d_spec",
    "max_pool2d_backward_spec",
    "max_pool2d_jvp_spec",
    "max_pool2d_multi_backward_spec",
    "max_pool2d_multi_jvp_spec",
    "max_pool2d_multi_spec",
    "max_pool2d_spec",
    "pool2d_multi_out_shape",
    "pool2d_multi_out_shape_pad",
    "pool2d_out_shape",
    "pool2d_out_shape_pad",
    "smooth_max_pool2d_backward_spec",
    "smooth_max_pool2d_jvp_spec",
    "smooth_max_pool2d_multi_backward_spec",
    "smooth_max_pool2d_multi_jvp_spec",
    "smooth_max_pool2d_multi_spec",
    "smooth_max_pool2d_spec",
]

Shape = tuple[int, ...]


# -- the ops behind the records --


def max_op(layer: Any, padding: int = 0) -> MaxPool:
    """The op of a `MaxPool2DSpec`."""
    layer = checked(layer, MaxPool2DSpec)
    return MaxPool((layer.kH, layer.kW), layer.stride, size(padding, "padding", 0))


def avg_op(layer: Any, padding: int = 0) -> AvgPool:
    """The op of an `AvgPool2DSpec`."""
    layer = checked(layer, AvgPool2DSpec)
    return AvgPool((layer.kH, layer.kW), layer.stride, size(padding, "padding", 0))


def smooth_op(layer: Any, beta: Any) -> SmoothMaxPool:
    """The smooth op of a `MaxPool2DSpec`."""
    layer = checked(layer, MaxPool2DSpec)
    return SmoothMaxPool((layer.kH, layer.kW), beta, layer.stride)


# -- shapes --


def pool2d_out_shape(inH: int, inW: int, kH: int, kW: int, stride: int) -> Shape:
    """Shape of an image pooled without padding."""
    return pool2d_out_shape_pad(inH, inW, kH, kW, stride, 0)


def pool2d_multi_out_shape(inC: int, inH: int, inW: int, kH: int, kW: int, stride: int) -> Shape:
    """Shape of channels pooled without padding."""
    return pool2d_multi_out_shape_pad(inC, inH, inW, kH, kW, stride, 0)


def pool2d_out_shape_pad(inH: int, inW: int, kH: int, kW: int, stride: int, padding: int) -> Shape:
    """Shape of an image pooled with `padding` cells on every side."""
    return max_op(MaxPool2DSpec(kH, kW, stride), padding).out_shape((inH, inW))


def pool2d_multi_out_shape_pad(
    inC: int, inH: int, inW: int, kH: int, kW: int, stride: int, padding: int
) -> Shape:
    """Shape of channels pooled with `padding` cells on every side."""
    return max_op(MaxPool2DSpec(kH, kW, stride), padding).out_shape((inC, inH, inW))


# -- max: the first of equal cells in row-major order has the derivative --


def max_pool2d_spec(layer: Any, input: Any) -> Any:
    """Max of each window of an image."""
    return forward(max_op(layer), array(input, "input", IMAGE))


def max_pool2d_multi_spec(layer: Any, input: Any) -> Any:
    """Max of each window, channel by channel."""
    return forward(max_op(layer), array(input, "input", CHANNELS))


def max_pool2d_jvp_spec(layer: Any, input: Any, tangent: Any) -> Any:
    """The tangent at each window's first largest cell."""
    return jvp(max_op(layer), array(input, "input", IMAGE), tangent)


def max_pool2d_multi_jvp_spec(layer: Any, input: Any, tangent: Any) -> Any:
    """The tangent at each window's first largest cell, channel by channel."""
    return jvp(max_op(layer), array(input, "input", CHANNELS), tangent)


def max_pool2d_backward_spec(layer: Any, input: Any, grad_output: Any) -> Any:
    """Each output's gradient, added at its window's first largest cell."""
    return vjp(max_op(layer), array(input, "input", IMAGE), grad_output)


def max_pool2d_multi_backward_spec(layer: Any, input: Any, grad_output: Any) -> Any:
    """Each output's gradient at its first largest cell, channel by channel."""
    return vjp(max_op(layer), array(input, "input", CHANNELS), grad_output)


# -- mean --


def avg_pool2d_spec(layer: Any, input: Any) -> Any:
    """Mean of each window of an image."""
    return forward(avg_op(layer), array(input, "input", IMAGE))


def avg_pool2d_multi_spec(layer: Any, input: Any) -> Any:
    """Mean of each window, channel by channel."""
    return forward(avg_op(layer), array(input, "input", CHANNELS))


def avg_pool2d_backward_spec(layer: Any, grad_output: Any, *, input_shape: Shape) -> Any:
    """Each output's gradient in equal shares over its window."""
    return mean_backward(avg_op(layer), grad_output, input_shape, IMAGE)


def avg_pool2d_multi_backward_spec(layer: Any, grad_output: Any, *, input_shape: Shape) -> Any:
    """Each output's gradient in equal shares over its window, channel by channel."""
    return mean_backward(avg_op(layer), grad_output, input_shape, CHANNELS)


# -- smooth max --


def smooth_max_pool2d_spec(layer: Any, beta: Any, input: Any) -> Any:
    """`(1/beta) log Σ exp(beta·x)` of each window of an image."""
    return forward(smooth_op(layer, beta), array(input, "input", IMAGE))


def smooth_max_pool2d_multi_spec(layer: Any, beta: Any, input: Any) -> Any:
    """`(1/beta) log Σ exp(beta·x)` of each window, channel by channel."""
    return forward(smooth_op(layer, beta), array(input, "input", CHANNELS))


def smooth_max_pool2d_jvp_spec(layer: Any, beta: Any, input: Any, tangent: Any) -> Any:
    """`Σ softmax(beta·x)·dx` of each window of an image."""
    return jvp(smooth_op(layer, beta), array(input, "input", IMAGE), tangent)


def smooth_max_pool2d_multi_jvp_spec(layer: Any, beta: Any, input: Any, tangent: Any) -> Any:
    """`Σ softmax(beta·x)·dx` of each window, channel by channel."""
    return jvp(smooth_op(layer, beta), array(input, "input", CHANNELS), tangent)


def smooth_max_pool2d_backward_spec(layer: Any, beta: Any, input: Any, grad_output: Any) -> Any:
    """Each output's gradient, shared over its window as `softmax(beta·x)`."""
    return vjp(smooth_op(layer, beta), array(input, "input", IMAGE), grad_output)


def smooth_max_pool2d_multi_backward_spec(
    layer: Any, beta: Any, input: Any, grad_output: Any
) -> Any:
    """Each output's gradient, shared as `softmax(beta·x)`, channel by channel."""
    return vjp(smooth_op(layer, beta), array(input, "input", CHANNELS), grad_output)


# -- adaptive --


def adaptive_start(in_size: int, out_size: int, i: int) -> int:
    """First position of bin `i`: `floor(i·in/out)`."""
    return _bin(in_size, out_size, i).start


def adaptive_end(in_size: int, out_size: int, i: int) -> int:
    """One past the last position of bin `i`: `ceil((i+1)·in/out)`."""
    return _bin(in_size, out_size, i).stop


def adaptive_avg_pool2d_spec(layer: Any, input: Any) -> Any:
    """Mean of each of `outH × outW` bins, of channels or of one image."""
    layer = checked(layer, AdaptiveAvgPool2DSpec)
    op = AdaptiveAvgPool((layer.outH, layer.outW))
    return forward(op, array(input, "input", CHANNELS, IMAGE))


def adaptive_max_pool2d_spec(layer: Any, input: Any) -> Any:
    """Max of each of `outH × outW` bins, of channels or of one image."""
    layer = checked(layer, AdaptiveMaxPool2DSpec)
    op = AdaptiveMaxPool((layer.outH, layer.outW))
    return forward(op, array(input, "input", CHANNELS, IMAGE))


def _bin(in_size: int, out_size: int, i: int) -> Window:
    n, m, index = size(in_size, "in_size", 1), size(out_size, "out_size", 1), size(i, "i", 0)
    if index >= m:
        raise ValueError(f"i={index}: expected a bin's index, 0 … {m - 1} for out_size={m}")
    return Adaptive(m).window(n, index)
