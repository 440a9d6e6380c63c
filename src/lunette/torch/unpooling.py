"""Max unpooling of tensors, differentiable in its values at every order.

Where each value goes is told by `lunette::unpool_targets`, an operator, because only there are the indices
at hand that have to be checked: `torch.func.vmap` and `torch.compile` show none.
"""

from __future__ import annotations

from math import prod
from typing import Any

import torch
from torch import Tensor

from lunette.torch.library import LIBRARY, TAGS
from lunette.torch.memory import dtype_of
from lunette.unpooling import check_indices, check_operands

__all__ = ["unpool"]

LIBRARY.define(
    "unpool_targets(Tensor indices, SymInt[] pooled) -> Tensor",
    tags=(*TAGS, torch.Tag.cudagraph_unsafe),  # the check waits for the device
)
unpool_targets = torch.ops.lunette.unpool_targets.default


def unpool(values: Tensor, indices: Tensor, pooled: tuple[int, ...]) -> Tensor:
    """Zeros of `pooled` with each value at its index, the last of equals."""
    check_operands(
        (tuple(values.shape), dtype_of(values.dtype)),
        (tuple(indices.shape), dtype_of(indices.dtype)),
        pooled,
    )
    batch, cells = values.shape[: values.ndim - len(pooled)], prod(pooled)
    flat = values.reshape(*batch, prod(values.shape[values.ndim - len(pooled) :]))
    targets = unpool_targets(indices, pooled).reshape(flat.shape)
    if not flat.numel():
        return values.new_zeros(*batch, *pooled)
    sources = torch.arange(flat.shape[-1], device=values.device).expand_as(flat)
    nobody = torch.full((*batch, cells + 1), -1, device=values.device)  # one more, for index −1
    last = nobody.scatter_reduce(-1, targets, sources, "amax")[..., :cells]
    found = flat.gather(-1, last.clamp(min=0)).masked_fill(last < 0, 0)
    return found.reshape(*batch, *pooled)


def _targets(indices: Tensor, pooled: Any) -> Tensor:
    """Each index as int64; one past the last cell for −1, which goes nowhere."""
    cells = prod(pooled)
    wide = indices.to(torch.int64)
    if indices.dtype is torch.uint64 and (wide < 0).any():
        raise ValueError(
            f"indices contain {2**64 + int(wide.min())}; expected 0 … {cells - 1}, "
            f"positions in {tuple(pooled)}"
        )
    check_indices(wide, tuple(pooled))
    return wide.masked_fill(wide < 0, cells)


def _fake_targets(indices: Tensor, pooled: Any) -> Tensor:
    return torch.empty_like(indices, dtype=torch.int64)


def _batched(info: Any, in_dims: Any, indices: Tensor, pooled: Any) -> Any:
    return unpool_targets(indices, pooled), in_dims[0]


for device in ("CPU", "CUDA"):
    LIBRARY.impl("unpool_targets", _targets, device)
torch.library.register_fake("lunette::unpool_targets", _fake_targets, lib=LIBRARY)
torch.library.register_vmap("lunette::unpool_targets", _batched, lib=LIBRARY)
