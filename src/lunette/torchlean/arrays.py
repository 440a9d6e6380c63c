"""Arrays as the vocabulary has them: a stated number of axes, and zeros of any number system."""

from __future__ import annotations

from typing import Any

import numpy as np

from lunette import inputs
from lunette.arguments import shape_tuple
from lunette.ops.pooling import Pooling
from lunette.spec import vjp
from lunette.spec.scalars import filled, of_array

__all__ = ["CHANNELS", "IMAGE", "Array", "array", "mean_backward", "spatial_axes", "zeros"]

Array = np.ndarray[Any, Any]
Axes = tuple[str, ...]

IMAGE: Axes = ("H", "W")
CHANNELS: Axes = ("C", "H", "W")


def spatial_axes(rank: int) -> Axes:
    """Names of `rank` spatial axes, for messages."""
    return tuple(f"n{axis}" for axis in range(rank))


def array(value: Any, name: str, *allowed: Axes) -> Array:
    """`value` as a NumPy array with as many axes as one of `allowed` names."""
    x = inputs.array(value, name)
    _check_rank(x.shape, name, allowed)
    return x


def zeros(shape: tuple[int, ...], like: Array) -> Array:
    """Zeros of the number system and dtype of `like`."""
    return filled(shape, of_array(like).from_int(0), like.dtype)


def mean_backward(op: Pooling, grad_output: Any, input_shape: Any, axes: Axes) -> Array:
    """The gradient of a mean. It depends on the input's shape alone: zeros stand for the input."""
    shape = shape_tuple(input_shape, "input_shape")
    grad = inputs.array(grad_output, "grad_output")
    _check_rank(shape, "input_shape", (axes,))
    op.check_gradient((shape,), (grad.dtype,), grad.shape, grad.dtype)
    gradient: Array = vjp(op, zeros(shape, grad), grad)
    return gradient


def _check_rank(shape: tuple[int, ...], name: str, allowed: tuple[Axes, ...]) -> None:
    if all(len(shape) != len(axes) for axes in allowed):
        expected = " or ".join(f"({', '.join(axes)})" for axes in allowed)
        raise ValueError(f"{name}: shape {shape} has {len(shape)} axes; expected {expected}")
