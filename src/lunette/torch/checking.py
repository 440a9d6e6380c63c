"""What an operator asks of the tensors that reach it, whoever calls it: a saved program calls it directly."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lunette.offsets import check_offsets
from lunette.ops.pooling import Pooling
from lunette.reductions import SmoothMax
from lunette.torch.memory import dtype_of

__all__ = ["check_beta", "check_devices", "check_kept", "check_layouts", "refuse_layouts"]

LAYOUTS = ("SparseCPU", "SparseCUDA", "SparseMeta", "SparseCsrCPU", "SparseCsrCUDA", "SparseCsrMeta",
    "QuantizedCPU", "QuantizedCUDA", "NestedTensorCPU", "NestedTensorCUDA", "NestedTensorMeta", "MkldnnCPU",
)  # fmt: skip
"""Dispatch keys of tensors whose memory no kernel of ours knows."""


def refuse_layouts(library: Any, name: str) -> None:
    """Register, for tensors that are not dense, an error that names the remedy."""

    def refuse(*args: Any) -> Any:
        check_layouts(name, args)
        raise TypeError(f"lunette::{name}: expected dense tensors")

    for key in LAYOUTS:
        library.impl(name, refuse, key)


def check_layouts(name: str, args: tuple[Any, ...]) -> None:
    """A TypeError for the first tensor that is not dense."""
    for place, tensor in enumerate(args):
        if not isinstance(tensor, Tensor):
            continue
        if tensor.is_quantized:
            remedy = "is quantised; pass .dequantize() of it"
        elif tensor.is_nested:
            remedy = "is nested; pass .to_padded_tensor(value) of it"
        elif tensor.layout is not torch.strided:
            remedy = f"has layout {tensor.layout}; pass .to_dense() of it"
        else:
            continue
        raise TypeError(f"lunette::{name}: argument {place} {remedy}")


def check_devices(x: Tensor, **others: Tensor) -> None:
    """All tensors on the device of `x`: a tensor without data has none to give."""
    for name, tensor in others.items():
        if tensor.device != x.device:
            raise ValueError(
                f"{name} is on device {tensor.device} and x on {x.device}; expected one device: "
                f"move it with .to({str(x.device)!r})"
            )


def check_beta(op: Pooling, beta: Tensor | None, x: Tensor) -> None:
    """A beta is one number, for a smooth max; it may lie on another device, but must be there."""
    if beta is None:
        return
    if not isinstance(op.reduction, SmoothMax):
        raise TypeError(f"{op!r}: only a smooth max has a beta")
    if beta.numel() != 1:
        raise ValueError(f"beta has shape {tuple(beta.shape)}; expected one number")
    if beta.is_complex() or beta.dtype is torch.bool:
        raise TypeError(f"beta has dtype {beta.dtype}; expected a real number")
    if beta.is_meta and not x.is_meta:
        raise ValueError(f"beta is on device meta and x on {x.device}: expected a beta with data")


def check_kept(op: Pooling, offsets: Tensor, numbers: Tensor, shape: Any = None) -> None:
    """Offsets, and a gradient of outputs or, without a shape, a tangent of x, that fit each other."""
    check_devices(numbers, offsets=offsets)
    kind = dtype_of(numbers.dtype)
    pooled = tuple(numbers.shape if shape is None else shape)
    lengths = (*pooled, *offsets.shape, *numbers.shape)
    if not all(type(n) is int for n in lengths):  # a symbol is known when the program runs
        if offsets.dtype is not torch.uint8:
            raise TypeError(f"offsets have dtype {offsets.dtype}; expected torch.uint8")
        return
    check_offsets(op, tuple(offsets.shape), dtype_of(offsets.dtype), pooled)
    if shape is None:
        op.check_tangents((pooled,), (kind,), (pooled,), (kind,))
    else:
        op.check_gradient((pooled,), (kind,), tuple(numbers.shape), kind)
