"""Pooling of channels `(C, H, W)` with the same padding on every side."""

from __future__ import annotations

from typing import Any

from lunette.arguments import size
from lunette.spec import forward, jvp, vjp
from lunette.torchlean.arrays import CHANNELS, IMAGE, Array, array, mean_backward
from lunette.torchlean.two_d import avg_op, max_op

__all__ = [
    "avg_pool2d_multi_backward_spec_pad",
    "avg_pool2d_multi_spec_pad",
    "max_pool2d_multi_backward_spec_pad",
    "max_pool2d_multi_jvp_spec_pad",
    "max_pool2d_multi_spec_pad",
    "unpad_image",
    "unpad_multi_channel",
]


def unpad_image(img: Any, padding: int) -> Array:
    """An image without its `padding` outermost cells on every side."""
    return _unpad(array(img, "img", IMAGE), padding)


def unpad_multi_channel(img: Any, padding: int) -> Array:
    """Channels without their `padding` outermost cells on every side."""
    return _unpad(array(img, "img", CHANNELS), padding)


def max_pool2d_multi_spec_pad(layer: Any, input: Any, *, padding: int) -> Any:
    """Max of each window's own cells; padding is never seen, and alone it gives 0."""
    return forward(max_op(layer, padding), array(input, "input", CHANNELS))


def max_pool2d_multi_jvp_spec_pad(layer: Any, input: Any, tangent: Any, *, padding: int) -> Any:
    """The tangent at each window's first largest cell; 0 where there is padding alone."""
    return jvp(max_op(layer, padding), array(input, "input", CHANNELS), tangent)


def max_pool2d_multi_backward_spec_pad(
    layer: Any, input: Any, grad_output: Any, *, padding: int
) -> Any:
    """Each output's gradient, added at its window's first largest cell."""
    return vjp(max_op(layer, padding), array(input, "input", CHANNELS), grad_output)


def avg_pool2d_multi_spec_pad(layer: Any, input: Any, *, padding: int) -> Any:
    """Mean of each window; padding counts as zeros."""
    return forward(avg_op(layer, padding), array(input, "input", CHANNELS))


def avg_pool2d_multi_backward_spec_pad(
    layer: Any, grad_output: Any, *, padding: int, input_shape: tuple[int, ...]
) -> Any:
    """Each output's gradient in equal shares over its window; the padding's shares are dropped."""
    return mean_backward(avg_op(layer, padding), grad_output, input_shape, CHANNELS)


def _unpad(x: Array, padding: int) -> Array:
    p = size(padding, "padding", 0)
    height, width = x.shape[-2:]
    if min(height, width) < 2 * p:
        raise ValueError(f"img: shape {x.shape} is too small for padding={p} on every side")
    return x[..., p : height - p, p : width - p].copy()
