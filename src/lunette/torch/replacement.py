"""A model's own torch pooling modules swapped for ours, where both mean the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

from lunette import ops
from lunette.reductions import Max, Mean
from lunette.regions import Adaptive, Region, Sliding
from lunette.torch.nn import AdaptiveAvgPool, AdaptiveMaxPool, AvgPool, MaxPool, Pool

__all__ = ["Change", "Replacement", "replace"]


@dataclass(frozen=True)
class Change:
    """One pooling module of a model: where it is, what it was, and what came of it."""

    name: str
    before: Any
    after: Any | None
    reason: str

    def __str__(self) -> str:
        name = self.name or "(the model itself)"
        if self.after is None:
            return f"left      {name}: {self.before!r}: {self.reason}"
        return f"replaced  {name}: {self.before!r} → {self.after.op!r}"


@dataclass(frozen=True)
class Replacement:
    """What `replace` did to a model; `str` of it is a line per module."""

    model: Any
    changes: tuple[Change, ...]

    @property
    def replaced(self) -> tuple[Change, ...]:
        """The modules that are ours now."""
        return tuple(c for c in self.changes if c.after is not None)

    @property
    def left(self) -> tuple[Change, ...]:
        """The pooling modules that stay torch's, each with the reason."""
        return tuple(c for c in self.changes if c.after is None)

    def __str__(self) -> str:
        lines = [str(c) for c in self.changes] or ["no pooling modules"]
        return "\n".join(lines)


class _Left(Exception):
    """Why a module stays as it is."""


def replace(model: Any) -> Replacement:
    """Swap the pooling modules of `model` in place; say which were swapped and which left, and why.

    Where the model itself is a pooling module, the new one is `.model` of the answer. Calls of
    `torch.nn.functional` inside a model's own `forward` are not modules and stay.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model is a {type(model).__name__}; expected a torch.nn.Module")
    changes, made = [], {}
    for name, module in list(model.named_modules(remove_duplicate=False)):
        if not isinstance(module, POOLING):
            continue
        if id(module) not in made:  # a module used in two places stays one module
            made[id(module)] = _successor(module)
        after, reason = made[id(module)]
        changes.append(Change(name, module, after, reason))
        if after is None:
            continue
        if name == "":
            model = after
        else:
            parent, _, attribute = name.rpartition(".")
            setattr(model.get_submodule(parent), attribute, after)
    return Replacement(model, tuple(changes))


def _successor(module: Any) -> tuple[Any | None, str]:
    convert = CONVERSIONS.get(type(module))
    if convert is None:
        return None, _reason(module)
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    if any(getattr(module, name, None) for name in hooks):
        return None, "it has hooks, which would be lost"
    try:
        after = convert(module)
    except _Left as left:
        return None, str(left)
    return after.train(module.training), ""


def _reason(module: Any) -> str:
    for kind, reason in OTHERS.items():
        if isinstance(module, kind):
            return reason
    return f"it is a {type(module).__name__}, a class of its own, which may mean something else"


# -- what each of torch's modules means --


def _max_pool(module: Any) -> Pool:
    ndim = _ndim(module)
    dilation, padding = _sizes(module.dilation, ndim), _sizes(module.padding, ndim)
    if any(d > 1 and p > 0 for d, p in zip(dilation, padding, strict=True)):
        raise _Left(
            "with dilation and padding a window may hold no cell on an axis shorter than the "
            "dilation; torch gives −inf there and Lunette 0"
        )
    return MaxPool(
        _sizes(module.kernel_size, ndim),
        _sizes(module.stride, ndim),
        padding,
        dilation,
        bool(module.ceil_mode),
        return_indices=bool(module.return_indices),
    )


def _avg_pool(module: Any) -> Pool:
    ndim = _ndim(module)
    return AvgPool(
        _sizes(module.kernel_size, ndim),
        _sizes(module.stride, ndim),
        _sizes(module.padding, ndim),
        ceil_mode=bool(module.ceil_mode),
        count_include_pad=bool(module.count_include_pad),
        divisor_override=getattr(module, "divisor_override", None),
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


def _bins(module: Any) -> tuple[Any, ...]:
    sizes = _sizes(module.output_size, _ndim(module))
    if any(m == 0 for m in sizes):
        raise _Left("output_size 0 gives an empty result, which Lunette refuses")
    return sizes


def _regions(sizes: tuple[Any, ...]) -> tuple[Region, ...]:
    """torch's None keeps an axis as it is: windows of one cell."""
    return tuple(Sliding(1) if m is None else Adaptive(m) for m in sizes)


def _sizes(value: Any, ndim: int) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, (tuple, list)) else (value,) * ndim


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
