"""What each of torch's pooling and convolution modules means, as a module of ours; or why ours would mean something else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from lunette.reductions import Max, Mean
from lunette.torch.nn import AdaptiveAvgPool, AdaptiveMaxPool, AvgPool, Conv, MaxPool, Pool
from lunette.torch.nn.named import Named
from lunette.torch.signatures import adaptive_op, avg_op, bins, max_op, shortest

__all__ = ["Left", "converted", "is_convolution", "is_pooling"]


class Left(Exception):
    """Why a module stays as it is."""


def is_pooling(module: Any) -> bool:
    """Whether this is one of torch's pooling modules, of a class made from one, or one that was scripted."""
    return (isinstance(module, POOLING) and not isinstance(module, Named)) or _scripted(module)


def is_convolution(module: Any) -> bool:
    """Whether this is one of torch's convolution modules, transposed ones aside, or of a class made from one."""
    return isinstance(module, tuple(CONVOLUTIONS)) or _scripted(module, CONVOLUTIONS)


def converted(module: Any) -> Any:
    """Our module for torch's; `Left` where there is none that means the same."""
    if _scripted(module) or _scripted(module, CONVOLUTIONS):
        raise Left("it is scripted; replace before torch.jit.script or torch.jit.trace")
    convert = CONVERSIONS.get(type(module)) or CONVOLUTIONS.get(type(module))
    if convert is None:
        raise Left(_other(module))
    try:
        return convert(module)
    except Left:
        raise
    except Exception as error:  # whatever a strange value raises: torch's module keeps the say
        cause = f" ({error.__cause__})" if error.__cause__ else ""
        raise Left(f"Lunette does not take its arguments: {error}{cause}") from error


def _scripted(module: Any, kinds: Any = None) -> bool:
    name = (
        getattr(module, "original_name", "") if isinstance(module, torch.jit.ScriptModule) else ""
    )
    return name in {kind.__name__ for kind in kinds or POOLING}


def _other(module: Any) -> str:
    for kinds, reason in OTHERS.items():
        if isinstance(module, kinds):
            return reason
    if nn.utils.parametrize.is_parametrized(module):
        return "it is parametrised, which would be lost"
    return f"it is a {type(module).__name__}, a class of its own, which may mean something else"


# -- torch's modules --


def _max_pool(module: Any) -> Pool:
    op = max_op(
        _ndim(module),
        module.kernel_size,
        module.stride,
        module.padding,
        module.dilation,
        module.ceil_mode,
    )
    if max(shortest(op)) > 1:
        raise Left(
            "with dilation and padding a window may hold no cell on an axis shorter than the "
            "dilation; torch gives −inf there and Lunette 0"
        )
    return MaxPool(
        op.kernel,
        op.stride,
        op.padding,
        op.dilation,
        op.ceil_mode,
        return_indices=bool(module.return_indices),
    )


def _avg_pool(module: Any) -> Pool:
    op = avg_op(
        _ndim(module),
        module.kernel_size,
        module.stride,
        module.padding,
        module.ceil_mode,
        module.count_include_pad,
        None if _ndim(module) == 1 else module.divisor_override,
    )
    return AvgPool(
        op.kernel,
        op.stride,
        op.padding,
        ceil_mode=op.ceil_mode,
        count_include_pad=op.count_include_pad,
        divisor_override=op.divisor_override,
    )


def _adaptive_avg_pool(module: Any) -> Pool:
    sizes = _bins(module)
    if None not in sizes:
        return AdaptiveAvgPool(sizes)
    return Pool(adaptive_op(len(sizes), sizes, Mean()))


def _adaptive_max_pool(module: Any) -> Pool:
    sizes, return_indices = _bins(module), bool(module.return_indices)
    if None not in sizes:
        return AdaptiveMaxPool(sizes, return_indices=return_indices)
    return Pool(adaptive_op(len(sizes), sizes, Max("first")), return_indices)


def _bins(module: Any) -> tuple[Any, ...]:
    sizes = bins(module.output_size, _ndim(module))
    if 0 in sizes:
        raise Left("output_size 0 gives an empty result, which Lunette refuses")
    return sizes


def _ndim(module: Any) -> int:
    return int(type(module).__name__[-2])


def _conv(module: Any) -> Conv:
    if module.padding_mode != "zeros":
        raise Left(f"its padding_mode is {module.padding_mode!r}; Lunette pads with zeros alone")
    padding = module.padding
    if isinstance(padding, str):
        pairs = module._reversed_padding_repeated_twice[::-1]
        padding = tuple((pairs[i + 1], pairs[i]) for i in range(0, len(pairs), 2))
    with torch.device("meta"):  # its parameters are torch's, taken over
        return Conv(
            module.in_channels,
            module.out_channels,
            module.kernel_size,
            module.stride,
            padding,
            module.dilation,
            module.groups,
            bias=module.bias is not None,
        )


CONVOLUTIONS: dict[type, Callable[[Any], Conv]] = dict.fromkeys(
    (nn.Conv1d, nn.Conv2d, nn.Conv3d), _conv
)

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
        "a p-norm, which is no op of Lunette's own; lunette.torch.nn has it by the same name"
    ),
    (nn.FractionalMaxPool2d, nn.FractionalMaxPool3d): "its windows are random",
    (
        nn.MaxUnpool1d,
        nn.MaxUnpool2d,
        nn.MaxUnpool3d,
    ): "it unpools; lunette.torch.nn has it by the same name",
}

POOLING = (*CONVERSIONS, *(kind for kinds in OTHERS for kind in kinds))
