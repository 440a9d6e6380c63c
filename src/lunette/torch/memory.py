"""Torch tensors as NumPy arrays and back, without a copy, and the memory format of results."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor

__all__ = ["DTYPES", "array_of", "dtype_of", "empty", "extent", "format_of", "like", "tensor_of"]


def _bfloat16() -> np.dtype[Any]:
    import ml_dtypes

    dtype: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
    return dtype


DTYPES: dict[torch.dtype, np.dtype[Any]] = {
    torch.float16: np.dtype(np.float16),
    torch.bfloat16: _bfloat16(),
    torch.float32: np.dtype(np.float32),
    torch.float64: np.dtype(np.float64),
    torch.bool: np.dtype(np.bool_),
    torch.int8: np.dtype(np.int8),
    torch.int16: np.dtype(np.int16),
    torch.int32: np.dtype(np.int32),
    torch.int64: np.dtype(np.int64),
    torch.uint8: np.dtype(np.uint8),
    torch.uint16: np.dtype(np.uint16),
    torch.uint32: np.dtype(np.uint32),
    torch.uint64: np.dtype(np.uint64),
}
"""The dtypes that both sides have."""

LARGEST = 1 << 59
"""Elements of a tensor, of any dtype: their bytes are counted in int64."""

TENSOR_DTYPES = {dtype: name for name, dtype in DTYPES.items()}


def dtype_of(dtype: torch.dtype, name: str = "") -> np.dtype[Any]:
    """NumPy's name for a torch dtype; a TypeError where no op takes it."""
    found = DTYPES.get(dtype)
    if found is None:
        raise TypeError(
            f"{name and name + ' has '}dtype {dtype}: expected float16, bfloat16, float32, float64, an integer type or bool"
        )
    return found


def array_of(x: Tensor) -> np.ndarray[Any, Any]:
    """A NumPy view of a CPU tensor's memory; a TypeError for a dtype that no op takes."""
    dtype_of(x.dtype)
    x = x.detach()
    if not _has_memory(x):
        raise ValueError(
            f"a tensor of shape {tuple(x.shape)} has a storage of {x.untyped_storage().nbytes()} bytes, "
            "which does not hold it: the storage was freed or resized"
        )
    if x.dtype is torch.bfloat16:
        bits: np.ndarray[Any, Any] = x.view(torch.int16).numpy()
        return bits.view(DTYPES[torch.bfloat16])
    array: np.ndarray[Any, Any] = x.numpy()
    return array


def _has_memory(x: Tensor) -> bool:
    """Whether the storage holds every element: nobody else checks one that was resized."""
    needed = x.numel() and extent(x)
    return bool(needed + x.storage_offset() * x.element_size() <= x.untyped_storage().nbytes())


def extent(x: Tensor) -> int:
    """Bytes from the first element to the last."""
    last = x.numel()
    if not x.is_contiguous():
        last = 1 + sum((n - 1) * step for n, step in zip(x.shape, x.stride(), strict=True))
    return int(last * x.element_size())


def tensor_of(array: np.ndarray[Any, Any]) -> Tensor:
    """A CPU tensor over an array's memory."""
    if any(stride < 0 for stride in array.strides) or not array.flags.writeable:
        array = array.copy()  # torch has neither negative strides nor read-only memory
    if array.dtype == DTYPES[torch.bfloat16]:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def format_of(x: Tensor) -> Any:
    """The memory format that results made from `x` have: channels last where `x` has it."""
    if x.ndim not in (4, 5):
        return torch.contiguous_format
    last = torch.channels_last if x.ndim == 4 else torch.channels_last_3d
    channels_last = x.is_contiguous(memory_format=last) and not x.is_contiguous()
    return last if channels_last else torch.contiguous_format


def like(x: Tensor, result: Tensor) -> Tensor:
    """`result` in the memory format of `x`; a copy only where a kernel chose another."""
    return result.contiguous(memory_format=format_of(x)) if result.ndim == x.ndim else result


def empty(x: Tensor, shape: Any, dtype: torch.dtype) -> Tensor:
    """Unset memory for a result of `shape`, in the memory format of `x`."""
    if all(type(n) is int for n in shape) and prod(max(1, n) for n in shape) >= LARGEST:
        raise ValueError(
            f"the result of shape {tuple(shape)} has more elements than a tensor can have"
        )
    kind = format_of(x) if len(shape) == x.ndim else torch.contiguous_format
    return torch.empty(shape, dtype=dtype, device=x.device, memory_format=kind)
