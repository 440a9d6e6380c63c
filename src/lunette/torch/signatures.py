"""The ops that torch's arguments mean: a size is an integer for every axis, a sequence of one, or one per axis."""

from __future__ import annotations

from typing import Any

import torch

from lunette import ops
from lunette.arguments import listed, shown, size
from lunette.ops.pooling import Pooling
from lunette.reductions import Max, Mean
from lunette.regions import Adaptive, Region, Sliding

__all__ = ["adaptive_op", "avg_op", "axes", "bins", "max_op", "shortest", "windows"]


def max_op(
    ndim: int, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: Any
) -> ops.MaxPool:
    """What `max_pool{ndim}d` means."""
    kernel, steps, pads = windows(ndim, kernel_size, stride, padding)
    _check_half(kernel, pads)
    return ops.MaxPool(kernel, steps, pads, axes(dilation, ndim, "dilation"), ceil_mode)


def avg_op(
    ndim: int,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    ceil_mode: Any,
    count_include_pad: Any,
    divisor_override: Any = None,
) -> ops.AvgPool:
    """What `avg_pool{ndim}d` means."""
    kernel, steps, pads = windows(ndim, kernel_size, stride, padding)
    _check_half(kernel, pads)
    return ops.AvgPool(
        kernel,
        steps,
        pads,
        ceil_mode=ceil_mode,
        count_include_pad=count_include_pad,
        divisor_override=divisor_override,
    )


def adaptive_op(ndim: int, output_size: Any, reduction: Max | Mean) -> Pooling:
    """What `adaptive_*_pool{ndim}d` means: None keeps an axis as it is, windows of one cell."""
    sizes = bins(output_size, ndim)
    if None not in sizes:
        kind = ops.AdaptiveAvgPool if isinstance(reduction, Mean) else ops.AdaptiveMaxPool
        return kind(sizes)
    regions: tuple[Region, ...] = tuple(Sliding(1) if m is None else Adaptive(m) for m in sizes)
    return ops.Pool(regions, reduction)


def shortest(op: ops.MaxPool) -> tuple[int, ...]:
    """On each axis the length from which every window has a cell, of an op that torch has too."""
    return tuple(
        r.dilation
        if isinstance(r, Sliding) and r.dilation > 1 and r.padding not in (0, (0, 0))
        else 1
        for r in op.regions
    )


def windows(
    ndim: int, kernel_size: Any, stride: Any, padding: Any
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """kernel, stride and padding; no stride at all is the kernel."""
    kernel = axes(kernel_size, ndim, "kernel_size")
    none = stride is None or (isinstance(stride, (tuple, list)) and not listed(stride))
    return kernel, kernel if none else axes(stride, ndim, "stride"), axes(padding, ndim, "padding")


def axes(value: Any, ndim: int, name: str) -> tuple[int, ...]:
    """One size per axis."""
    values = tuple(listed(value)) if isinstance(value, (tuple, list)) else (value,)
    if len(values) not in (1, ndim):
        raise ValueError(
            f"{name}={shown(value)} is for {len(values)} axes; expected an integer or one for "
            f"each of the {ndim} pooled axes"
        )
    if any(isinstance(v, torch.Tensor) and v.ndim for v in values):
        raise TypeError(
            f"{name}={shown(value)} is a tensor with axes; pass integers, such as .tolist() gives"
        )
    checked = tuple(size(v, name, 0) for v in values)
    return checked * ndim if len(checked) == 1 else checked


def bins(value: Any, ndim: int) -> tuple[Any, ...]:
    """One output size per axis, or None; an integer is for all axes, a sequence of one for one axis alone."""
    if isinstance(value, (tuple, list)):
        sizes = tuple(listed(value))
    else:
        sizes = (value,) * ndim if isinstance(value, int) else ()
    if len(sizes) != ndim or (ndim == 1 and None in sizes):
        raise ValueError(
            f"output_size={shown(value)}: expected an integer, or one for each of the {ndim} "
            f"pooled axes{' (None keeps an axis)' if ndim > 1 else ''}"
        )
    return tuple(None if m is None else size(m, "output_size", 0) for m in sizes)


def _check_half(kernel: tuple[int, ...], padding: tuple[int, ...]) -> None:
    for axis, (k, p) in enumerate(zip(kernel, padding, strict=True)):
        if 2 * p > k:
            raise ValueError(
                f"padding={p} on axis {axis}: it is more than half of kernel {k}, which torch "
                "refuses; the ops of lunette itself take it"
            )
