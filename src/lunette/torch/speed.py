"""Where a call of torch's own is faster than one of ours: a rule, and no timing, so that a model gives the same bits in every run."""

from __future__ import annotations

from math import prod
from typing import Any

import torch
from torch import Tensor

__all__ = ["FEW", "FEW_IN_ANOTHER_ORDER", "GRADIENTS", "VALUE", "is_ours", "is_slower"]

FEW = 1 << 12
"""Cells of a contiguous CPU tensor below which a recorded call of torch's costs less."""

FEW_IN_ANOTHER_ORDER = 1 << 19
"""The same for channels last and other orders: torch's kernels are vectorised there."""


def is_slower(x: Tensor) -> bool:
    """Whether torch's own pooling of x is the faster one. It says no on CUDA, where ours are level or faster."""
    cells = x.numel()
    if cells >= FEW_IN_ANOTHER_ORDER or not x.is_cpu:
        return False
    return cells < FEW or not x.is_contiguous()


# -- convolution --

VALUE, GRADIENTS = 1, 2
"""What of a convolution is by our kernels: a sum of these."""

MANY = 1 << 24
"""Products of a convolution whose time is far above what a call of ours costs."""

SOME = 1 << 20
"""The same for gradients of depthwise windows, at which torch is slower by more."""

SLOW_ROWS = 20480
"""Rows of a single volume up to which torch unfolds it, on one thread, instead of asking oneDNN."""

FEW_CHANNELS, LONG_WINDOW, LARGE_WINDOW = 8, 7, 25
"""Channels of volumes at whose gradients oneDNN is slow; taps of depthwise windows at which torch is, of one axis and of two."""


def is_ours(op: Any, x: Tensor, weight: Tensor, always: bool = False) -> int:
    """What of a convolution our kernels do, where they are the faster ones.

    A rule over shapes and dtypes alone: so it says the same in every mode, on any number of threads.
    """
    if x.device.type != "cpu" or torch.is_autocast_enabled("cpu"):
        return 0
    if x.dtype not in (torch.float32, torch.float64) or weight.dtype is not x.dtype:
        return 0
    if always or op.rank > 3:
        return VALUE + GRADIENTS
    if x.dtype is not torch.float32 or min(x.shape) == 0:
        return 0
    lengths = x.shape[-op.rank :]
    windows = prod(r.out_length(n) for r, n in zip(op.regions, lengths, strict=True))
    items, taps = prod(x.shape[: -op.rank - 1]), prod(op.kernel)
    products = items * weight.shape[0] * weight.shape[1] * windows * taps
    depthwise = op.groups > 1 and op.groups == x.shape[-op.rank - 1]
    if op.rank == 3 and not depthwise:
        return _of_volumes(op, x, items, taps, products)
    if not depthwise:
        return 0
    if op.rank == 1 and taps >= LONG_WINDOW:
        return VALUE + GRADIENTS if products >= SOME else 0
    return GRADIENTS if op.rank == 2 and taps >= LARGE_WINDOW and products >= SOME else 0


def _of_volumes(op: Any, x: Tensor, items: Any, taps: int, products: Any) -> int:
    channels = x.shape[-4]
    if taps == 1 or op.groups > 1 or products < MANY:
        return 0
    steps = (*op.stride, *op.dilation)
    if max(steps) == 1 and op.kernel[1:] == (1, 1):
        return VALUE + GRADIENTS
    if max(steps) == 1 and items == 1 and max(op.kernel[1:]) <= 3:
        rows = channels * x.shape[-3] * x.shape[-2]
        if rows <= SLOW_ROWS:
            return VALUE + GRADIENTS
    return GRADIENTS if channels <= FEW_CHANNELS else 0
