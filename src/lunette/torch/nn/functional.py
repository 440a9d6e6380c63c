"""torch.nn.functional with Lunette's pooling: torch's names, arguments and shapes; all other names are torch's own.

Where Lunette's op means something else than torch's function, torch's own serves the call: means of integers or with a
negative divisor, an adaptive output size of 0, and a max with dilation and padding on an axis shorter than the dilation.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import inf, prod
from typing import Any

from torch import Tensor
from torch.nn import functional as theirs

from lunette.adapters import torch as adapter
from lunette.arguments import listed, shown, size
from lunette.ops.pooling import Pooling
from lunette.reductions import Max, Mean
from lunette.torch import eager, signatures

__all__ = [
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "adaptive_avg_pool3d",
    "adaptive_max_pool1d",
    "adaptive_max_pool1d_with_indices",
    "adaptive_max_pool2d",
    "adaptive_max_pool2d_with_indices",
    "adaptive_max_pool3d",
    "adaptive_max_pool3d_with_indices",
    "avg_pool1d",
    "avg_pool2d",
    "avg_pool3d",
    "lp_pool1d",
    "lp_pool2d",
    "lp_pool3d",
    "max_pool1d",
    "max_pool1d_with_indices",
    "max_pool2d",
    "max_pool2d_with_indices",
    "max_pool3d",
    "max_pool3d_with_indices",
    "max_unpool1d",
    "max_unpool2d",
    "max_unpool3d",
]

MOST = 4096
"""Ops of each kind that are kept."""


def __getattr__(name: str) -> Any:
    """What is not pooling, from torch."""
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(theirs, name)


# -- ops, made once for all calls with the same arguments --


def _kept(make: Callable[..., Any]) -> Callable[..., Any]:
    """An op keeps its prepared calls, so the same arguments find the same op."""
    kept = lru_cache(maxsize=MOST, typed=True)(make)

    def op(ndim: int, *arguments: Any) -> Any:
        if not eager.compiling():
            keys = [a if type(a) in KEYS else _key(a) for a in arguments]
            if NotImplemented not in keys:
                return kept(ndim, *keys)
        return make(ndim, *arguments)

    return op


KEYS = (int, bool, type(None))


def _key(value: Any) -> Any:
    """A tuple of integers. NotImplemented for all else: 2.0 and True are equal to integers, and would be found in their place."""
    if not isinstance(value, (tuple, list)):
        return NotImplemented
    items = tuple(listed(value))
    return items if all(type(v) is int or v is None for v in items) else NotImplemented


@_kept
def _max_op(ndim: int, *arguments: Any) -> Any:
    """The op, and on each axis the length from which every window has a cell; None for any length."""
    op = signatures.max_op(ndim, *arguments)
    shortest = signatures.shortest(op)
    return op, None if max(shortest) == 1 else shortest


@_kept
def _avg_op(ndim: int, *arguments: Any) -> Any:
    return signatures.avg_op(ndim, *arguments)


@_kept
def _adaptive_op(ndim: int, output_size: Any, mean: bool) -> Any:
    """The op, or None where torch is to be asked: an output size of 0, or None while torch compiles."""
    sizes = signatures.bins(output_size, ndim)
    if 0 in sizes or (None in sizes and eager.compiling()):
        return None
    return signatures.adaptive_op(ndim, output_size, Mean() if mean else Max("first"))


def _pooled(op: Pooling, x: Any, ndim: int, return_indices: bool = False) -> Any:
    if isinstance(x, Tensor) and not ndim < x.ndim <= ndim + 2:
        raise ValueError(
            f"input of shape {tuple(x.shape)} has {x.ndim} axes; expected {ndim + 1}, or "
            f"{ndim + 2} with a batch: {op!r} pools the last {ndim}, and called itself takes any number"
        )
    if not return_indices and eager.serves(x):
        found = eager.forward(op, x)
        if found is not None:
            return found
    return adapter.pooled(op, x, return_indices)


def _has_shorter(x: Any, shortest: tuple[int, ...]) -> bool:
    lengths = x.shape[-len(shortest) :] if isinstance(x, Tensor) else ()
    return any(n < m for n, m in zip(lengths, shortest, strict=False))


def _integers(x: Any) -> bool:
    """Whether torch's mean of x would be one of integers."""
    return isinstance(x, Tensor) and not (x.is_floating_point() or x.is_complex())


# -- the functions, for one to three axes --


def _named(functions: list[Any], name: str, doc: str) -> list[Any]:
    for ndim, function in enumerate(functions, 1):
        function.__name__ = function.__qualname__ = name.format(ndim)
        function.__doc__ = doc.format(f"{ndim} {'axis' if ndim == 1 else 'axes'}")
    return functions


def _max(ndim: int, indices: bool) -> Any:
    other = getattr(theirs, f"max_pool{ndim}d{'_with_indices' if indices else ''}")

    def function(
        input: Tensor,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Any:
        op, shortest = _max_op(ndim, kernel_size, stride, padding, dilation, ceil_mode)
        if shortest is not None and _has_shorter(input, shortest):
            return other(input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)
        return _pooled(op, input, ndim, indices or bool(return_indices))

    return function


def _avg(ndim: int) -> Any:
    other = getattr(theirs, f"avg_pool{ndim}d")

    def function(
        input: Tensor,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Any:
        rest = ceil_mode, count_include_pad, divisor_override
        negative = isinstance(divisor_override, int) and divisor_override < 0
        if negative or _integers(input):
            some = rest if ndim > 1 else rest[:2]
            return other(input, kernel_size, () if stride is None else stride, padding, *some)
        return _pooled(_avg_op(ndim, kernel_size, stride, padding, *rest), input, ndim)

    def of_one_axis(
        input: Tensor,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> Any:
        return function(input, kernel_size, stride, padding, ceil_mode, count_include_pad)

    return of_one_axis if ndim == 1 else function


def _adaptive_avg(ndim: int) -> Any:
    other = getattr(theirs, f"adaptive_avg_pool{ndim}d")

    def function(input: Tensor, output_size: Any) -> Any:
        op = _adaptive_op(ndim, output_size, True)
        if op is None or _integers(input):
            return other(input, output_size)
        return _pooled(op, input, ndim)

    return function


def _adaptive_max(ndim: int, indices: bool) -> Any:
    other = getattr(theirs, f"adaptive_max_pool{ndim}d{'_with_indices' if indices else ''}")

    def function(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
        op = _adaptive_op(ndim, output_size, False)
        if op is None:
            return other(input, output_size, return_indices)
        return _pooled(op, input, ndim, indices or bool(return_indices))

    return function


def _unpool(ndim: int) -> Any:
    def function(
        input: Tensor,
        indices: Tensor,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        output_size: Any = None,
    ) -> Any:
        kernel, steps, pads = signatures.windows(ndim, kernel_size, stride, padding)
        if not isinstance(input, Tensor) or not ndim < input.ndim <= ndim + 2:
            shape = tuple(getattr(input, "shape", ()))
            raise ValueError(
                f"input of shape {shape}: expected a tensor of {ndim + 1} axes, or {ndim + 2} with a batch"
            )
        plain = tuple(
            (n - 1) * s + k - 2 * p
            for n, k, s, p in zip(input.shape[-ndim:], kernel, steps, pads, strict=True)
        )
        return adapter.unpool(input, indices, _unpooled_size(output_size, plain, steps))

    return function


def _unpooled_size(asked: Any, plain: tuple[int, ...], stride: tuple[int, ...]) -> tuple[int, ...]:
    """The size that was asked for, less than a stride from the plain one."""
    ndim, found = len(plain), plain
    if asked is not None:
        items = tuple(listed(asked)) if isinstance(asked, (tuple, list)) else ()
        items = items[2:] if len(items) == ndim + 2 else items
        if len(items) != ndim:
            raise ValueError(
                f"output_size={shown(asked)}: expected a tuple of {ndim} sizes, or of {ndim + 2} with batch and channels"
            )
        found = tuple(size(n, "output_size", 0, axis) for axis, n in enumerate(items))
    for axis, (n, middle, step) in enumerate(zip(found, plain, stride, strict=True)):
        if n < 1 or not middle - step < n < middle + step:
            raise ValueError(
                f"output_size={n} on axis {axis}: expected {max(middle - step + 1, 1)} … "
                f"{middle + step - 1}, sizes that pooling takes to that of input"
            )
    return found


def _lp(ndim: int) -> Any:
    largest, mean = _max(ndim, False), _avg(ndim)

    def function(
        input: Tensor,
        norm_type: float,
        kernel_size: Any,
        stride: Any = None,
        ceil_mode: bool = False,
    ) -> Any:
        if isinstance(norm_type, (int, float)) and abs(norm_type) == inf:
            if norm_type > 0:
                return largest(input.abs(), kernel_size, stride, 0, 1, ceil_mode)
            return -largest(-input.abs(), kernel_size, stride, 0, 1, ceil_mode)
        cells = prod(signatures.axes(kernel_size, ndim, "kernel_size"))
        out = mean(input.pow(norm_type), kernel_size, stride, 0, ceil_mode)
        # sign · relu(abs) is out itself, but for a gradient of 0 at 0, where the root has none.
        return (out.sign() * out.abs().relu()).mul(cells).pow(1.0 / norm_type)

    return function


RANKS = (1, 2, 3)

max_pool1d, max_pool2d, max_pool3d = _named(
    [_max(n, False) for n in RANKS], "max_pool{}d", "The largest cell of each window of {}."
)
max_pool1d_with_indices, max_pool2d_with_indices, max_pool3d_with_indices = _named(
    [_max(n, True) for n in RANKS],
    "max_pool{}d_with_indices",
    "The largest cell of each window of {}, and its flat position in them.",
)
avg_pool1d, avg_pool2d, avg_pool3d = _named(
    [_avg(n) for n in RANKS], "avg_pool{}d", "The mean of each window of {}."
)
adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d = _named(
    [_adaptive_avg(n) for n in RANKS], "adaptive_avg_pool{}d", "The mean of each bin of {}."
)
adaptive_max_pool1d, adaptive_max_pool2d, adaptive_max_pool3d = _named(
    [_adaptive_max(n, False) for n in RANKS],
    "adaptive_max_pool{}d",
    "The largest cell of each bin of {}.",
)
(
    adaptive_max_pool1d_with_indices,
    adaptive_max_pool2d_with_indices,
    adaptive_max_pool3d_with_indices,
) = _named(
    [_adaptive_max(n, True) for n in RANKS],
    "adaptive_max_pool{}d_with_indices",
    "The largest cell of each bin of {}, and its flat position in them.",
)
max_unpool1d, max_unpool2d, max_unpool3d = _named(
    [_unpool(n) for n in RANKS],
    "max_unpool{}d",
    "Zeros, with each value of a max over {} put back at its index; of equal indices the last.",
)
lp_pool1d, lp_pool2d, lp_pool3d = _named(
    [_lp(n) for n in RANKS], "lp_pool{}d", "The p-norm of each window of {}: the root of Σ xᵖ."
)
