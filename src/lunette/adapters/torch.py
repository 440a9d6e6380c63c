"""The verbs over torch tensors: checks of what only torch has, then torch operators."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lunette.ops.base import Op
from lunette.ops.pooling import Pooling
from lunette.torch import library
from lunette.torch.encoding import encode

__all__ = ["forward", "forward_with_indices", "jvp", "vjp"]


def forward(op: Op, operands: tuple[Any, ...], backend: str | None) -> Any:
    """The op's value, recorded for every mode of differentiation."""
    x = _operand(op, operands)
    return library.pool(x, None, encode(op), backend)


def forward_with_indices(op: Op, operands: tuple[Any, ...], backend: str | None) -> Any:
    """A max's value and the flat positions of its winners."""
    x = _operand(op, operands)
    return library.pool_with_indices(x, None, encode(op), backend)


def jvp(
    op: Op, operands: tuple[Any, ...], tangents: tuple[Any, ...], backend: str | None
) -> Any:
    """The directional derivative, itself differentiable."""
    x = _operand(op, operands)
    if len(tangents) != 1:
        raise ValueError(f"{op!r}: 1 operand but {len(tangents)} tangents")
    _check_together(x, tangents[0], "tangent of x")
    return library.pool_jvp(x, tangents[0], None, encode(op), backend)


def vjp(op: Op, operands: tuple[Any, ...], grad: Any, backend: str | None) -> tuple[Any, ...]:
    """The gradient in each operand, itself differentiable."""
    x = _operand(op, operands)
    _check_together(x, grad, "gradient")
    return (library.pool_vjp(x, grad, None, encode(op), backend),)


# -- what only torch has --


def _operand(op: Op, operands: tuple[Any, ...]) -> Tensor:
    if not isinstance(op, Pooling):
        raise TypeError(f"{op!r}: no such op on torch tensors")
    if len(operands) != 1:
        raise TypeError(f"{op!r} takes one operand, got {len(operands)}")
    _check_tensor(operands[0], "x")
    return operands[0]


def _check_tensor(x: Any, name: str) -> None:
    if not isinstance(x, Tensor):
        raise TypeError(f"{name} is a {type(x).__name__}; expected a torch tensor, as the others are")
    if x.is_quantized:
        raise TypeError(f"{name} is quantised; pool {name}.dequantize() instead")
    if x.layout is not torch.strided:
        raise TypeError(f"{name} has layout {x.layout}; pool {name}.to_dense() instead")
    if x.device.type not in ("cpu", "cuda", "meta"):
        raise TypeError(
            f"{name} is on device {x.device}; expected cpu or cuda: move it with {name}.cpu()"
        )


def _check_together(x: Tensor, other: Any, name: str) -> None:
    _check_tensor(other, name)
    if other.device != x.device:
        raise ValueError(
            f"{name} is on device {other.device} and x on {x.device}; "
            f"expected one device: move it with .to({str(x.device)!r})"
        )
