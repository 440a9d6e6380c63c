"""What each of torch's pooling modules means, as a module of ours; or why ours would mean something else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from lunette import ops
from lunette.arguments import size
from lunette.reductions import Max, Mean
from lunette.regions import Adaptive, Region, Sliding
from lunette.torch.nn import AdaptiveAvgPool, AdaptiveMaxPool, AvgPool, MaxPool, Pool

__all__ = ["Left", "converted", "is_pooling"]


class Left(Exception):
    """Why a module stays as it is."""


def is_pooling(module: Any) -> bool:
    """Whether this is one of torch's pooling modules, of a class made from one, or one that was scripted."""
    return isinstance(module, POOLING) or _scripted(module)


def converted(module: Any) -> Pool:
    """Our module for torch's; `Left` where there is none that means the same."""
    if _scripted(module):
        raise Left("it is scripted; replace before torch.jit.script or torch.jit.trace")
    convert = CONVERSIONS.get(type(module))
    if convert is None:
        raise Left(_other(module))
    try:
        return convert(module)
    except Left:
        raise
    except Exception as error:  # whatever a strange value raises: torch's module keeps the say
        raise Left(f"Lunette does not take its arguments: {error}") from error


def _scripted(module: Any) -> bool:
    name = (
        getattr(module, "original_name", "") if isinstance(module, torch.jit.ScriptModule) else ""
    )
    return name in {kind.__name__ for kind in POOLING}


def _other(module: Any) -> str:
    for kinds, reason in OTHERS.items():
        if isinstance(module, kinds):
            return reason
    if nn.utils.parametrize.is_parametrized(module):
        return "it is parametrised, which would be lost"
    return f"it is a {type(module).__name__}, a class of its own, which may mean something else"


# -- torch's modules --


def _max_pool(module: Any) -> Pool:
    kernel, stride, padding = _windows(module)
    dilation = _sizes(module, "dilation")
    if any(d > 1 and p > 0 for d, p in zip(dilation, padding, strict=True)):
        raise Left(
            "with dilation and padding a window may hold no cell on an axis shorter than the "
            "dilation; torch gives −inf there and Lunette 0"
        )
    _check_half(kernel, padding)
    return MaxPool(
        kernel,
        stride,
        padding,
        dilation,
        module.ceil_mode,
        return_indices=bool(module.return_indices),
    )


def _avg_pool(module: Any) -> Pool:
    kernel, stride, padding = _windows(module)
    _check_half(kernel, padding)
    return AvgPool(
        kernel,
        stride,
        padding,
        ceil_mode=module.ceil_mode,
        count_include_pad=module.count_include_pad,
        divisor_override=None if _ndim(module) == 1 else module.divisor_override,
    )


def _adaptive_avg_pool(module: Any) -> Pool:
    sizes = _bins(module)
    if None not in sizes:
        return AdaptiveAvgPool(sizes)
    return Pool(ops.Pool(_regions(sizes), Mean()))


def _adaptive_max_pool(module: Any) -> Pool:
    sizes, return_indices = _bins(module), bool(module.return_indices)
    if None not in sizes:
        return AdaptiveMaxPool(sizes, return_indices=return_indices)
    return Pool(ops.Pool(_regions(sizes), Max("first")), return_indices)


# -- their arguments --


def _windows(module: Any) -> tuple[Any, Any, Any]:
    """kernel, stride and padding; no stride at all is the kernel."""
    kernel, stride = _sizes(module, "kernel_size"), module.stride
    none = stride is None or (isinstance(stride, (tuple, list)) and not stride)
    return kernel, kernel if none else _sizes(module, "stride"), _sizes(module, "padding")


def _sizes(module: Any, name: str) -> tuple[int, ...]:
    """One size per axis: torch takes an integer, or a sequence of one, for every axis."""
    value, ndim = getattr(module, name), _ndim(module)
    values = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    if len(values) not in (1, ndim):
        raise Left(f"{name}={value!r} is for {len(values)} axes, and it pools {ndim}")
    if any(isinstance(v, torch.Tensor) and v.ndim for v in values):
        raise Left(f"{name}={value!r} is a tensor with axes, which torch refuses")
    checked = tuple(size(v, name, 0) for v in values)
    return checked * ndim if len(checked) == 1 else checked


def _check_half(kernel: tuple[int, ...], padding: tuple[int, ...]) -> None:
    for k, p in zip(kernel, padding, strict=True):
        if 2 * p > k:
            raise Left(f"padding {p} is more than half of kernel {k}, which torch refuses")


def _bins(module: Any) -> tuple[Any, ...]:
    """One output size per axis, or None; torch takes an integer for all axes, but no sequence of one."""
    value, ndim = module.output_size, _ndim(module)
    if isinstance(value, (tuple, list)):
        sizes = tuple(value)
    else:
        sizes = (value,) * ndim if isinstance(value, int) else ()
    if len(sizes) != ndim or (ndim == 1 and None in sizes):
        raise Left(f"output_size={value!r} is not one size per axis, and torch refuses it")
    if any(m is not None and m == 0 for m in sizes):
        raise Left("output_size 0 gives an empty result, which Lunette refuses")
    return sizes


def _regions(sizes: tuple[Any, ...]) -> tuple[Region, ...]:
    """torch's None keeps an axis as it is: windows of one cell."""
    return tuple(Sliding(1) if m is None else Adaptive(m) for m in sizes)


def _ndim(module: Any) -> int:
    return int(type(module).__name__[-2])


CONVERSIONS: dict[type, Callable[[Any], Pool]] = {
    **dict.fromkeys((nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d), _max_pool),
    **dict.fromkeys((nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d), _avg_pool),
    **dict.fromkeys(
        (nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d), _adaptive_avg_pool
    ),
    **dict.fromkeys(
        (nn.AdaptiveMaxPool1d, nn.AdaptiveMaxPool2d, nn.AdaptiveMaxPool3d), _adaptive_max_pool
    ),
}

OTHERS: dict[tuple[type, ...], str] = {
    (nn.LPPool1d, nn.LPPool2d, getattr(nn, "LPPool3d", nn.LPPool2d)): (
        "a p-norm, which Lunette does not offer"
    ),
    (nn.FractionalMaxPool2d, nn.FractionalMaxPool3d): "its windows are random",
    (
        nn.MaxUnpool1d,
        nn.MaxUnpool2d,
        nn.MaxUnpool3d,
    ): "it unpools; lunette.max_unpool is a function",
}

POOLING = (*CONVERSIONS, *(kind for kinds in OTHERS for kind in kinds))
