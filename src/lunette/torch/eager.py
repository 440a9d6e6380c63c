"""The direct way for plain tensors in eager mode: no dispatcher, no text of the op, no second look at what was checked.

A tensor is plain where none of torch's modes would see the call: no transform of `torch.func`, no forward mode, no
tracing, no mode of `torch.overrides` or of the dispatcher, no hooks on saved tensors. Everywhere else the registered operators serve;
both give the same bits.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import _C, Tensor
from torch.autograd import forward_ad

from lunette.ops.base import DIRECT
from lunette.ops.pooling import Pooling
from lunette.torch import cuda_calls

__all__ = ["forward", "is_plain"]

_is_compiling = torch.compiler.is_compiling
_functorch = _C._are_functorch_transforms_active
_dispatch_modes = _C._len_torch_dispatch_stack
_function_modes = _C._len_torch_function_stack
_saved_hooks = _C._autograd._top_saved_tensors_default_hooks


def is_plain() -> bool:
    """Whether no mode of torch would see a call made now."""
    return not (
        _is_compiling()
        or _functorch()
        or forward_ad._current_level >= 0
        or _dispatch_modes()
        or _function_modes()
        or _saved_hooks(True) is not None
    )


def forward(op: Any, x: Tensor) -> Any:
    """The op's value, or NotImplemented where the registered operators serve."""
    if x.is_cuda and x.layout is torch.strided and is_plain() and isinstance(op, Pooling):
        return cuda_calls.forward(op, x)
    return NotImplemented


DIRECT[Tensor] = DIRECT[torch.nn.Parameter] = forward
