"""The ops as functions: one line each over the op objects."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Literal, TypeVar

import numpy as np

from lunette.annotations import Axes, Kernel, NamedBins, Padding, Sizes, Ties, Windows
from lunette.arguments import flag, shown, tuple_of_sizes
from lunette.axes import chosen, places, turned
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
    MinPool,
    ModePool,
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
    "min_pool",
    "mode_pool",
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
    kernel: Windows,
    stride: Sizes | None = None,
    padding: Padding = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
    ties: Ties = "first",
    return_indices: bool = False,
    backend: str | None = None,
    *,
    axes: Axes = None,
) -> Any:
    """The largest cell of each window; with its flat position in the pooled axes when asked.

    Parameters
    ----------
    x : array_like
        Numbers: a NumPy array, a torch tensor, a JAX, Dask or xarray array, nested lists, or an object array of exact
        numbers. Axes that are not pooled are batch.
    kernel : tuple of int
        Cells of a window, one length per pooled axis; for an xarray DataArray also a dict by dimension.
    stride : int or tuple of int, optional
        Positions between windows. Default: the kernel.
    padding : int, tuple, {"valid", "same"}, default 0
        Cells around the input: a number, one per axis, a (before, after) pair per axis, or a word.
    dilation : int or tuple of int, default 1
        Positions between the cells of a window.
    ceil_mode : bool, default False
        Keep a last window that the edge cuts short.
    ties : {"first", "all", "split"}, default "first"
        Which of equal cells wins, and so gets the gradient: the first in row-major order, each of them whole, or
        each an equal share.
    return_indices : bool, default False
        Give the winners' flat positions in the pooled axes, too.
    backend : {"cpu", "triton", "spec"}, optional
        Who computes; the fastest that serves the call by default. `"spec"` is the reference implementation.
    axes : int or tuple of int, optional
        Which axes are pooled, one per window axis. Default: the last.

    Returns
    -------
    array or tuple of arrays
        The result, of the library that x is of; with `return_indices` the int64 indices, too (−1: no cell).

    Raises
    ------
    ValueError, TypeError
        With the argument, its value, the axis and the remedy, before anything is computed.

    Examples
    --------
    >>> import lunette as ln
    >>> ln.max_pool([1.0, 5.0, 2.0, 3.0], (2,))
    array([5., 3.])
    """
    op = MaxPool(kernel, stride, padding, dilation, ceil_mode, ties, axes=axes)
    verb = forward_with_indices if flag(return_indices, "return_indices") else forward
    return verb(op, x, backend=backend)


@_by_name
def min_pool(
    x: Any,
    kernel: Windows,
    stride: Sizes | None = None,
    padding: Padding = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
    ties: Ties = "first",
    return_indices: bool = False,
    backend: str | None = None,
    *,
    axes: Axes = None,
) -> Any:
    """The smallest cell of each window; with its flat position in the pooled axes when asked.

    Parameters
    ----------
    x : array_like
        Numbers: a NumPy array, a torch tensor, a JAX, Dask or xarray array, nested lists, or an object array of exact
        numbers. Axes that are not pooled are batch.
    kernel : tuple of int
        Cells of a window, one length per pooled axis; for an xarray DataArray also a dict by dimension.
    stride : int or tuple of int, optional
        Positions between windows. Default: the kernel.
    padding : int, tuple, {"valid", "same"}, default 0
        Cells around the input: a number, one per axis, a (before, after) pair per axis, or a word.
    dilation : int or tuple of int, default 1
        Positions between the cells of a window.
    ceil_mode : bool, default False
        Keep a last window that the edge cuts short.
    ties : {"first", "all", "split"}, default "first"
        Which of equal cells wins, and so gets the gradient: the first in row-major order, each of them whole, or
        each an equal share.
    return_indices : bool, default False
        Give the winners' flat positions in the pooled axes, too.
    backend : {"cpu", "triton", "spec"}, optional
        Who computes; the fastest that serves the call by default. `"spec"` is the reference implementation.
    axes : int or tuple of int, optional
        Which axes are pooled, one per window axis. Default: the last.

    Returns
    -------
    array or tuple of arrays
        The result, of the library that x is of; with `return_indices` the int64 indices, too (−1: no cell).

    Raises
    ------
    ValueError, TypeError
        With the argument, its value, the axis and the remedy, before anything is computed.

    Examples
    --------
    >>> import lunette as ln
    >>> ln.min_pool([1.0, 5.0, 2.0, 3.0], (2,))
    array([1., 2.])
    """
    op = MinPool(kernel, stride, padding, dilation, ceil_mode, ties, axes=axes)
    verb = forward_with_indices if flag(return_indices, "return_indices") else forward
    return verb(op, x, backend=backend)


@_by_name
def mode_pool(
    x: Any,
    kernel: Windows,
    stride: Sizes | None = None,
    padding: Padding = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
    ties: Literal["smallest", "first"] = "smallest",
    sparse: bool = False,
    backend: str | None = None,
    *,
    axes: Axes = None,
) -> Any:
    """The most frequent value of each window, of integers or bools.

    Parameters
    ----------
    x : array_like
        Numbers: a NumPy array, a torch tensor, a JAX, Dask or xarray array, nested lists, or an object array of exact
        numbers. Axes that are not pooled are batch.
    kernel : tuple of int
        Cells of a window, one length per pooled axis; for an xarray DataArray also a dict by dimension.
    stride : int or tuple of int, optional
        Positions between windows. Default: the kernel.
    padding : int, tuple, {"valid", "same"}, default 0
        Cells around the input: a number, one per axis, a (before, after) pair per axis, or a word.
    dilation : int or tuple of int, default 1
        Positions between the cells of a window.
    ceil_mode : bool, default False
        Keep a last window that the edge cuts short.
    ties : {"smallest", "first"}, default "smallest"
        Which of equally frequent values is taken.
    sparse : bool, default False
        Let zeros have no vote where a window holds anything else.
    backend : {"cpu", "triton", "spec"}, optional
        Who computes; the fastest that serves the call by default. `"spec"` is the reference implementation.
    axes : int or tuple of int, optional
        Which axes are pooled, one per window axis. Default: the last.

    Returns
    -------
    array
        The result, of the library that x is of.

    Raises
    ------
    ValueError, TypeError
        With the argument, its value, the axis and the remedy, before anything is computed.

    Examples
    --------
    >>> import lunette as ln
    >>> ln.mode_pool([7, 7, 0, 0, 3, 0], (3,))
    array([7, 0])
    >>> ln.mode_pool([7, 7, 0, 0, 3, 0], (3,), sparse=True)
    array([7, 3])
    """
    op = ModePool(kernel, stride, padding, dilation, ceil_mode, ties, sparse, axes=axes)
    return forward(op, x, backend=backend)


@_by_name
def avg_pool(
    x: Any,
    kernel: Windows,
    stride: Sizes | None = None,
    padding: Padding = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
    dtype: Literal["same"] | None = None,
    backend: str | None = None,
    *,
    axes: Axes = None,
) -> Any:
    """The mean of each window; of integers in float64, or rounded to their own type.

    Parameters
    ----------
    x : array_like
        Numbers: a NumPy array, a torch tensor, a JAX, Dask or xarray array, nested lists, or an object array of exact
        numbers. Axes that are not pooled are batch.
    kernel : tuple of int
        Cells of a window, one length per pooled axis; for an xarray DataArray also a dict by dimension.
    stride : int or tuple of int, optional
        Positions between windows. Default: the kernel.
    padding : int, tuple, {"valid", "same"}, default 0
        Cells around the input: a number, one per axis, a (before, after) pair per axis, or a word.
    dilation : int or tuple of int, default 1
        Positions between the cells of a window.
    ceil_mode : bool, default False
        Keep a last window that the edge cuts short.
    count_include_pad : bool, default True
        Count padding as zeros.
    divisor_override : int, optional
        Divide by this instead of by the cells counted.
    dtype : {"same"}, optional
        Give the mean of integers in their own type, rounded half to even, instead of in float64.
    backend : {"cpu", "triton", "spec"}, optional
        Who computes; the fastest that serves the call by default. `"spec"` is the reference implementation.
    axes : int or tuple of int, optional
        Which axes are pooled, one per window axis. Default: the last.

    Returns
    -------
    array
        The result, of the library that x is of.

    Raises
    ------
    ValueError, TypeError
        With the argument, its value, the axis and the remedy, before anything is computed.

    Examples
    --------
    >>> import lunette as ln
    >>> ln.avg_pool([1.0, 5.0, 2.0, 3.0], (2,))
    array([3. , 2.5])
    """
    counting = count_include_pad, divisor_override, dtype
    op = AvgPool(kernel, stride, padding, dilation, ceil_mode, *counting, axes=axes)
    return forward(op, x, backend=backend)


@_by_name
def smooth_max_pool(
    x: Any,
    kernel: Windows,
    beta: float,
    stride: Sizes | None = None,
    padding: Padding = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    backend: str | None = None,
    *,
    axes: Axes = None,
) -> Any:
    """`(1/beta) log Σ exp(beta·x)` of each window: a max with a gradient for every cell.

    Parameters
    ----------
    x : array_like
        Numbers: a NumPy array, a torch tensor, a JAX, Dask or xarray array, nested lists, or an object array of exact
        numbers. Axes that are not pooled are batch.
    kernel : tuple of int
        Cells of a window, one length per pooled axis; for an xarray DataArray also a dict by dimension.
    beta : float
        Finite and not zero; the larger, the closer to the max. Negative: a smooth min.
    stride : int or tuple of int, optional
        Positions between windows. Default: the kernel.
    padding : int, tuple, {"valid", "same"}, default 0
        Cells around the input: a number, one per axis, a (before, after) pair per axis, or a word.
    dilation : int or tuple of int, default 1
        Positions between the cells of a window.
    ceil_mode : bool, default False
        Keep a last window that the edge cuts short.
    count_include_pad : bool, default True
        Count padding as zeros.
    backend : {"cpu", "triton", "spec"}, optional
        Who computes; the fastest that serves the call by default. `"spec"` is the reference implementation.
    axes : int or tuple of int, optional
        Which axes are pooled, one per window axis. Default: the last.

    Returns
    -------
    array
        The result, of the library that x is of.

    Raises
    ------
    ValueError, TypeError
        With the argument, its value, the axis and the remedy, before anything is computed.

    Examples
    --------
    >>> import lunette as ln
    >>> ln.smooth_max_pool([0.0, 0.0], (2,), beta=1.0).round(3)
    array([0.693])
    """
    op = SmoothMaxPool(
        kernel, beta, stride, padding, dilation, ceil_mode, count_include_pad, axes=axes
    )
    return forward(op, x, backend=backend)


@_by_name
def adaptive_avg_pool(
    x: Any, output_size: NamedBins, backend: str | None = None, *, axes: Axes = None
) -> Any:
    """The mean of each of `output_size` bins, which cover the axis.

    Parameters
    ----------
    x : array_like
        Numbers: a NumPy array, a torch tensor, a JAX, Dask or xarray array, nested lists, or an object array of exact
        numbers. Axes that are not pooled are batch.
    output_size : tuple of int or None
        NamedBins per pooled axis; None keeps an axis as it is.
    backend : {"cpu", "triton", "spec"}, optional
        Who computes; the fastest that serves the call by default. `"spec"` is the reference implementation.
    axes : int or tuple of int, optional
        Which axes are pooled, one per window axis. Default: the last.

    Returns
    -------
    array
        The result, of the library that x is of.

    Raises
    ------
    ValueError, TypeError
        With the argument, its value, the axis and the remedy, before anything is computed.

    Examples
    --------
    >>> import lunette as ln
    >>> ln.adaptive_avg_pool([1.0, 2.0, 3.0, 4.0, 5.0], (2,))
    array([2., 4.])
    """
    return forward(AdaptiveAvgPool(output_size, axes=axes), x, backend=backend)


@_by_name
def adaptive_max_pool(
    x: Any,
    output_size: NamedBins,
    ties: Ties = "first",
    return_indices: bool = False,
    backend: str | None = None,
    *,
    axes: Axes = None,
) -> Any:
    """The largest cell of each of `output_size` bins, which cover the axis.

    Parameters
    ----------
    x : array_like
        Numbers: a NumPy array, a torch tensor, a JAX, Dask or xarray array, nested lists, or an object array of exact
        numbers. Axes that are not pooled are batch.
    output_size : tuple of int or None
        NamedBins per pooled axis; None keeps an axis as it is.
    ties : {"first", "all", "split"}, default "first"
        Which of equal cells wins, and so gets the gradient: the first in row-major order, each of them whole, or
        each an equal share.
    return_indices : bool, default False
        Give the winners' flat positions in the pooled axes, too.
    backend : {"cpu", "triton", "spec"}, optional
        Who computes; the fastest that serves the call by default. `"spec"` is the reference implementation.
    axes : int or tuple of int, optional
        Which axes are pooled, one per window axis. Default: the last.

    Returns
    -------
    array or tuple of arrays
        The result, of the library that x is of; with `return_indices` the int64 indices, too (−1: no cell).

    Raises
    ------
    ValueError, TypeError
        With the argument, its value, the axis and the remedy, before anything is computed.

    Examples
    --------
    >>> import lunette as ln
    >>> ln.adaptive_max_pool([1.0, 2.0, 3.0, 4.0, 5.0], (2,))
    array([3., 5.])
    """
    verb = forward_with_indices if flag(return_indices, "return_indices") else forward
    return verb(AdaptiveMaxPool(output_size, ties, axes=axes), x, backend=backend)


def global_avg_pool(
    x: Any,
    ndim: int | None = None,
    keepdims: bool = True,
    backend: str | None = None,
    *,
    axes: Axes = None,
) -> Any:
    """The mean over the last `ndim` axes, or over `axes`.

    Parameters
    ----------
    x : array_like
        Numbers: a NumPy array, a torch tensor, a JAX, Dask or xarray array, nested lists, or an object array of exact
        numbers. Axes that are not pooled are batch.
    ndim : int, optional
        How many of the last axes are pooled; not needed with `axes`.
    keepdims : bool, default True
        Keep the pooled axes, with length one.
    backend : {"cpu", "triton", "spec"}, optional
        Who computes; the fastest that serves the call by default. `"spec"` is the reference implementation.
    axes : int or tuple of int, optional
        Which axes are pooled, one per window axis. Default: the last.

    Returns
    -------
    array
        The result, of the library that x is of.

    Raises
    ------
    ValueError, TypeError
        With the argument, its value, the axis and the remedy, before anything is computed.

    Examples
    --------
    >>> import lunette as ln
    >>> ln.global_avg_pool([[1.0, 5.0], [2.0, 3.0]], axes=0, keepdims=False)
    array([1.5, 4. ])
    """
    return forward(GlobalAvgPool(ndim, keepdims, axes=axes), x, backend=backend)


def global_max_pool(
    x: Any,
    ndim: int | None = None,
    keepdims: bool = True,
    ties: Ties = "all",
    backend: str | None = None,
    *,
    axes: Axes = None,
) -> Any:
    """The largest cell over the last `ndim` axes, or over `axes`.

    Parameters
    ----------
    x : array_like
        Numbers: a NumPy array, a torch tensor, a JAX, Dask or xarray array, nested lists, or an object array of exact
        numbers. Axes that are not pooled are batch.
    ndim : int, optional
        How many of the last axes are pooled; not needed with `axes`.
    keepdims : bool, default True
        Keep the pooled axes, with length one.
    ties : {"all", "first", "split"}, default "all"
        Which of equal cells wins, and so gets the gradient.
    backend : {"cpu", "triton", "spec"}, optional
        Who computes; the fastest that serves the call by default. `"spec"` is the reference implementation.
    axes : int or tuple of int, optional
        Which axes are pooled, one per window axis. Default: the last.

    Returns
    -------
    array
        The result, of the library that x is of.

    Raises
    ------
    ValueError, TypeError
        With the argument, its value, the axis and the remedy, before anything is computed.

    Examples
    --------
    >>> import lunette as ln
    >>> ln.global_max_pool([[1.0, 5.0], [2.0, 3.0]], 1)
    array([[5.],
           [3.]])
    """
    return forward(GlobalMaxPool(ndim, keepdims, ties, axes=axes), x, backend=backend)


def max_unpool(values: Any, indices: Any, output_size: Kernel, *, axes: Axes = None) -> Any:
    """Zeros of `output_size` on the last axes, or on `axes`, with each value put back at its index.

    Of values with one index, the last is kept.

    Parameters
    ----------
    values : array_like
        What `max_pool` gave.
    indices : array_like of int
        What `max_pool(..., return_indices=True)` gave beside it; −1 for a window without a cell.
    output_size : tuple of int
        Lengths of the pooled axes of the result; for DataArrays also a dict by dimension.
    axes : int or tuple of int, optional
        Which axes are pooled, one per window axis. Default: the last.

    Returns
    -------
    array
        The result, of the library that x is of.

    Raises
    ------
    ValueError, TypeError
        With the argument, its value, the axis and the remedy, before anything is computed.

    Examples
    --------
    >>> import lunette as ln
    >>> values, indices = ln.max_pool([1.0, 5.0, 2.0, 3.0], (2,), return_indices=True)
    >>> ln.max_unpool(values, indices, (4,))
    array([0., 5., 0., 3.])
    """
    adapter = adapter_of((values, indices))
    if isinstance(output_size, dict):
        if axes is not None:
            raise TypeError(
                f"axes={shown(axes)}: a dict of sizes names the dimensions already; give one of both"
            )
        from lunette.adapters.xarray import unpool_by_name

        return unpool_by_name(values, indices, output_size)
    pooled = tuple_of_sizes(output_size, "output_size")
    named = chosen(axes, len(pooled))
    if named is not None:
        if adapter is None:
            values, indices = array(values, "values"), array(indices, "indices")
        move = getattr(adapter, "moved", turned)
        last = tuple(range(-len(pooled), 0))
        for x in (values, indices):
            places(named, len(pooled), x.ndim)
        found = max_unpool(move(values, named, last), move(indices, named, last), pooled)
        return move(found, last, named)
    if adapter is not None:
        return adapter.unpool(values, indices, pooled)
    values, indices = checked(values, indices, pooled)
    check_fits(values.shape[: values.ndim - len(pooled)] + pooled, values.dtype)
    return pooling.unpool(values, indices, pooled)


def conv(
    x: Any,
    weight: Any,
    bias: Any = None,
    stride: Sizes = 1,
    padding: Padding = 0,
    dilation: Sizes = 1,
    groups: int = 1,
    backend: str | None = None,
    *,
    axes: Axes = None,
) -> Any:
    """The convolution of x with weights: a cross-correlation, zero-padded.

    Parameters
    ----------
    x : array_like
        The input, `(*batch, in, *spatial)`; with `axes` the channels lie on the last of the other axes.
    weight : array_like
        The weights, `(out, in/groups, *kernel)`.
    bias : array_like, optional
        A number per output channel.
    stride : int or tuple of int, default 1
        Positions between windows.
    padding : int, tuple, {"valid", "same"}, default 0
        Cells around the input: a number, one per axis, a (before, after) pair per axis, or a word.
    dilation : int or tuple of int, default 1
        Positions between the cells of a window.
    groups : int, default 1
        Groups of channels that do not see each other.
    backend : {"cpu", "triton", "spec"}, optional
        Who computes; the fastest that serves the call by default. `"spec"` is the reference implementation.
    axes : int or tuple of int, optional
        The spatial axes. Default: the last.

    Returns
    -------
    array
        The result, of the library that x is of.

    Raises
    ------
    ValueError, TypeError
        With the argument, its value, the axis and the remedy, before anything is computed.

    Examples
    --------
    >>> import numpy as np
    >>> import lunette as ln
    >>> ln.conv(np.array([[1.0, 2.0, 4.0]]), np.array([[[1.0, -1.0]]]))
    array([[-1., -2.]])
    """
    weight, kernel = _kernel(weight)
    op = Conv(kernel, stride, padding, dilation, groups, axes=axes)
    return forward(op, *_operands(x, weight, bias), backend=backend)


def conv_transpose(
    x: Any,
    weight: Any,
    bias: Any = None,
    stride: Sizes = 1,
    padding: Padding = 0,
    output_padding: Sizes = 0,
    dilation: Sizes = 1,
    groups: int = 1,
    backend: str | None = None,
    *,
    axes: Axes = None,
) -> Any:
    """The transposed convolution of x: the adjoint of `conv`.

    Parameters
    ----------
    x : array_like
        The input, `(*batch, in, *spatial)`; with `axes` the channels lie on the last of the other axes.
    weight : array_like
        The weights, `(in, out/groups, *kernel)`.
    bias : array_like, optional
        A number per output channel.
    stride : int or tuple of int, default 1
        Positions between windows.
    padding : int, tuple, {"valid", "same"}, default 0
        Cells around the input: a number, one per axis, a (before, after) pair per axis, or a word.
    output_padding : int or tuple of int, default 0
        Positions added at the end of each axis.
    dilation : int or tuple of int, default 1
        Positions between the cells of a window.
    groups : int, default 1
        Groups of channels that do not see each other.
    backend : {"cpu", "triton", "spec"}, optional
        Who computes; the fastest that serves the call by default. `"spec"` is the reference implementation.
    axes : int or tuple of int, optional
        The spatial axes. Default: the last.

    Returns
    -------
    array
        The result, of the library that x is of.

    Raises
    ------
    ValueError, TypeError
        With the argument, its value, the axis and the remedy, before anything is computed.

    Examples
    --------
    >>> import numpy as np
    >>> import lunette as ln
    >>> ln.conv_transpose(np.array([[1.0, 2.0]]), np.array([[[1.0, 1.0]]]))
    array([[1., 3., 2.]])
    """
    weight, kernel = _kernel(weight)
    op = ConvTranspose(kernel, stride, padding, output_padding, dilation, groups, axes=axes)
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
