"""The ops as functions: one line each over the op objects."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import numpy as np

from lunette.arguments import flag, shown, tuple_of_sizes
from lunette.dispatch import adapter_of, check_fits, forward, forward_with_indices
from lunette.inputs import array
from lunette.ops import (
    AdaptiveAvgPool,
    AdaptiveMaxPool,
    AvgPool,
    Conv,
    ConvTranspose,
    GlobalAvgPool,
    GlobalMaxPool,
    MaxPool,
    SmoothMaxPool,
)
from lunette.spec import pooling
from lunette.unpooling import checked

__all__ = [
    "adaptive_avg_pool",
    "adaptive_max_pool",
    "avg_pool",
    "conv",
    "conv_transpose",
    "global_avg_pool",
    "global_max_pool",
    "max_pool",
    "max_unpool",
    "smooth_max_pool",
]

Function = TypeVar("Function", bound=Callable[..., Any])


def _by_name(function: Function) -> Function:
    """Let the sizes be a dict by dimension: an xarray DataArray is then pooled by name."""

    names = function.__code__.co_varnames

    @wraps(function)
    def named(*arguments: Any, **options: Any) -> Any:
        sizes = arguments[1] if len(arguments) > 1 else options.get(names[1])
        if not isinstance(sizes, dict):
            return function(*arguments, **options)
        given = dict(zip(names, arguments, strict=False)) | options
        x = given.pop("x", None)
        if not any(kind.__module__.startswith("xarray.") for kind in type(x).__mro__):
            raise TypeError(
                f"{names[1]}={shown(sizes)}: a dict of sizes names dimensions; expected x to be an "
                f"xarray DataArray, got {type(x).__name__}"
            )
        from lunette.adapters.xarray import by_name

        return by_name(function, x, given.pop(names[1]), given)

    return named  # type: ignore[return-value]


@_by_name
def max_pool(
    x: Any,
    kernel: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    ties: str = "first",
    return_indices: bool = False,
    backend: str | None = None,
) -> Any:
    """The largest cell of each window; with its flat position in the pooled axes when asked."""
    op = MaxPool(kernel, stride, padding, dilation, ceil_mode, ties)
    verb = forward_with_indices if flag(return_indices, "return_indices") else forward
    return verb(op, x, backend=backend)


@_by_name
def avg_pool(
    x: Any,
    kernel: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
    backend: str | None = None,
) -> Any:
    """The mean of each window."""
    op = AvgPool(kernel, stride, padding, dilation, ceil_mode, count_include_pad, divisor_override)
    return forward(op, x, backend=backend)


@_by_name
def smooth_max_pool(
    x: Any,
    kernel: Any,
    beta: float,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    backend: str | None = None,
) -> Any:
    """`(1/beta) log Σ exp(beta·x)` of each window."""
    op = SmoothMaxPool(kernel, beta, stride, padding, dilation, ceil_mode, count_include_pad)
    return forward(op, x, backend=backend)


@_by_name
def adaptive_avg_pool(x: Any, output_size: Any, backend: str | None = None) -> Any:
    """The mean of each of `output_size` bins."""
    return forward(AdaptiveAvgPool(output_size), x, backend=backend)


@_by_name
def adaptive_max_pool(
    x: Any,
    output_size: Any,
    ties: str = "first",
    return_indices: bool = False,
    backend: str | None = None,
) -> Any:
    """The largest cell of each of `output_size` bins."""
    verb = forward_with_indices if flag(return_indices, "return_indices") else forward
    return verb(AdaptiveMaxPool(output_size, ties), x, backend=backend)


def global_avg_pool(x: Any, ndim: int, keepdims: bool = True, backend: str | None = None) -> Any:
    """The mean over the last `ndim` axes."""
    return forward(GlobalAvgPool(ndim, keepdims), x, backend=backend)


def global_max_pool(
    x: Any, ndim: int, keepdims: bool = True, ties: str = "all", backend: str | None = None
) -> Any:
    """The largest cell over the last `ndim` axes."""
    return forward(GlobalMaxPool(ndim, keepdims, ties), x, backend=backend)


def max_unpool(values: Any, indices: Any, output_size: Any) -> Any:
    """Zeros of `output_size` on the last axes, with each value put back at its index.

    `indices` are those of `max_pool(..., return_indices=True)`: positions in the flattened pooled axes, of
    any integer type, −1 for a window without a cell. Of values with one index, the last is kept. A dict
    of sizes names the dimensions of xarray's DataArrays.
    """
    adapter = adapter_of((values, indices))
    if isinstance(output_size, dict):
        from lunette.adapters.xarray import unpool_by_name

        return unpool_by_name(values, indices, output_size)
    pooled = tuple_of_sizes(output_size, "output_size")
    if adapter is not None:
        return adapter.unpool(values, indices, pooled)
    values, indices = checked(values, indices, pooled)
    check_fits(values.shape[: values.ndim - len(pooled)] + pooled, values.dtype)
    return pooling.unpool(values, indices, pooled)


def conv(
    x: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    backend: str | None = None,
) -> Any:
    """The convolution of x, `(*batch, in, *spatial)`, with weight, `(out, in/groups, *kernel)`."""
    weight, kernel = _kernel(weight)
    op = Conv(kernel, stride, padding, dilation, groups)
    return forward(op, *_operands(x, weight, bias), backend=backend)


def conv_transpose(
    x: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    backend: str | None = None,
) -> Any:
    """The transposed convolution of x, `(*batch, in, *spatial)`; weight `(in, out/groups, *kernel)`."""
    weight, kernel = _kernel(weight)
    op = ConvTranspose(kernel, stride, padding, output_padding, dilation, groups)
    return forward(op, *_operands(x, weight, bias), backend=backend)


def _kernel(weight: Any) -> tuple[Any, tuple[int, ...]]:
    """The weight as an array, and the lengths of its kernel."""
    if type(weight) is not np.ndarray:
        adapter = adapter_of((weight,))
        if adapter is None:
            weight = array(weight, "weight")
        elif hasattr(adapter, "check_plain"):
            adapter.check_plain(weight, "weight")
    shape = tuple(weight.shape)
    if len(shape) < 3:
        raise ValueError(
            f"weight has shape {shape}; expected two axes of channels and then the kernel's axes"
        )
    return weight, shape[2:]


def _operands(x: Any, weight: Any, bias: Any) -> tuple[Any, ...]:
    return (x, weight) if bias is None else (x, weight, bias)
