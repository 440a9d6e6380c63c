"""Where a call of torch's own is faster than one of ours: a rule, and no timing, so that a model gives the same bits in every run."""

from __future__ import annotations

from torch import Tensor

__all__ = ["FEW", "FEW_IN_ANOTHER_ORDER", "is_slower"]

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
