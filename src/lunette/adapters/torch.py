"""The verbs over torch tensors: checks of what only torch has, then torch operators."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.fx import Proxy

from lunette import dispatch
from lunette.axes import Turn
from lunette.encoding import encode
from lunette.ops.base import Op
from lunette.ops.convolution import Convolution
from lunette.ops.pooling import Pooling
from lunette.reductions import Min, SmoothMax
from lunette.torch import convolution, eager, integers, library, lowering, unpooling
from lunette.torch.memory import array_of, dtype_of, tensor_of

__all__ = [
    "check_plain",
    "forward",
    "forward_with_beta",
    "forward_with_indices",
    "jvp",
    "moved",
    "pooled",
    "shapeless",
    "unpool",
    "vjp",
]


def forward(op: Op, operands: tuple[Any, ...], backend: str | None) -> Any:
    """The op's value, recorded for every mode of differentiation."""
    if integers.serves(op):
        _check_operands(op, operands)
        return integers.forward(op, operands[0], forward, backend)  # type: ignore[arg-type]
    if backend is None and len(operands) == 1 and isinstance(op, Pooling):
        return pooled(op, operands[0])
    _check_operands(op, operands)
    if isinstance(op, Pooling):
        return library.pool(operands[0], None, encode(op), backend)
    if backend is None:
        return convolution.forward(op, operands)  # type: ignore[arg-type]
    return _outside_torch(dispatch.forward, op, operands, backend)


def pooled(op: Pooling, x: Any, return_indices: bool = False) -> Any:
    """The value of a pooling op, with its winners if asked for: at once where no mode is on, else by registered operators.

    Where a program is written that is to do without ours, by torch's operators.
    """
    if op.axes is not None:
        return (dispatch.forward_with_indices if return_indices else dispatch.forward)(op, x)
    if eager.serves(x):
        verb = eager.forward_with_indices if return_indices else eager.forward
        found = verb(op, x)
        if found is not None:
            return found
    _check_operands(op, (x,))
    if lowering.wanted(x):
        write = lowering.forward_with_indices if return_indices else lowering.forward
        found = write(op, x)
        if found is not None:
            return found
    operator = library.pool_with_indices if return_indices else library.pool
    return operator(x, None, encode(op), None)


def forward_with_indices(op: Op, operands: tuple[Any, ...], backend: str | None) -> Any:
    """A max's or a min's value and the flat positions of its winners."""
    if integers.serves(op):
        _check_operands(op, operands)
        return integers.forward_with_indices(op, operands[0], forward_with_indices, backend)  # type: ignore[arg-type]
    if backend is None and len(operands) == 1 and isinstance(op, Pooling):
        return pooled(op, operands[0], True)
    _check_operands(op, operands)
    if not isinstance(op, Pooling):
        raise TypeError(f"{op!r}: only a max has indices")
    return library.pool_with_indices(operands[0], None, encode(op), backend)


def forward_with_beta(op: Pooling, x: Any, beta: Any) -> Any:
    """A smooth max whose beta is a tensor of one element, with a derivative in it too."""
    _check_operands(op, (x,))
    if op.axes is not None:
        turn = Turn(op, moved)
        if not shapeless((x,)):
            op.out_shape(tuple(x.shape))
        return turn.result(forward_with_beta(op.over_last, turn.there(x), beta))
    if not isinstance(op.reduction, SmoothMax):
        raise TypeError(f"{op!r}: only a smooth max has a beta")
    if isinstance(x, Proxy) or isinstance(beta, Proxy):
        return library.pool(x, beta, encode(op), None)
    if not isinstance(beta, Tensor) or beta.numel() != 1 or not beta.is_floating_point():
        raise TypeError(f"beta={beta!r}: expected a float tensor of one element")
    if not x.is_floating_point():
        raise TypeError(f"x has dtype {x.dtype}: a learned beta needs a float type")
    if eager.serves(x) and eager.serves(beta):
        found = eager.forward_with_beta(op, x, beta)
        if found is not None:
            return found
    if lowering.wanted(x):
        found = lowering.forward(op, x, beta)
        if found is not None:
            return found
    return library.pool(x, beta, encode(op), None)


def jvp(op: Op, operands: tuple[Any, ...], tangents: tuple[Any, ...], backend: str | None) -> Any:
    """The directional derivative, itself differentiable."""
    _check_operands(op, operands)
    if len(tangents) != len(operands):
        raise ValueError(f"{op!r}: {len(operands)} operands but {len(tangents)} tangents")
    for name, x, dx in zip(op.operand_names, operands, tangents, strict=False):
        _check_like(x, dx, f"tangent of {name}", name)
    if integers.serves(op):
        known, x = _known(op, operands[0])
        return jvp(known, (x,), tangents, backend)
    if isinstance(op, Pooling):
        return library.pool_jvp(*operands, *tangents, None, encode(op), backend)
    if backend is None:
        for name, x, dx in zip(op.operand_names, operands, tangents, strict=False):
            if x.shape != dx.shape:
                raise ValueError(
                    f"tangent of {name} has shape {tuple(dx.shape)}; expected {tuple(x.shape)}"
                )
        return convolution.jvp(op, operands, tangents)  # type: ignore[arg-type]
    return _outside_torch(dispatch.jvp, op, operands, backend, tangents)


def vjp(op: Op, operands: tuple[Any, ...], grad: Any, backend: str | None) -> tuple[Any, ...]:
    """The gradient in each operand, itself differentiable."""
    _check_operands(op, operands)
    _check_like(operands[0], grad, "gradient", "x")
    if integers.serves(op):
        known, x = _known(op, operands[0])
        return vjp(known, (x,), grad, backend)
    if isinstance(op, Pooling):
        return (library.pool_vjp(operands[0], grad, None, encode(op), backend),)
    if backend is None:
        return convolution.vjp(op, operands, grad)  # type: ignore[arg-type]
    gradients: tuple[Any, ...] = _outside_torch(dispatch.vjp, op, operands, backend, (grad,))
    return gradients


def unpool(values: Tensor, indices: Tensor, pooled: tuple[int, ...]) -> Tensor:
    """Zeros of `pooled` with each value at its index, the last of equals; differentiable in values."""
    _check_like(values, values, "values", "values")
    _check_like(values, indices, "indices", "values")
    return unpooling.unpool(values, indices, pooled)


# -- axes that are not the last --


def moved(x: Any, source: tuple[int, ...], destination: tuple[int, ...]) -> Any:
    """A view of a tensor with some axes moved."""
    return torch.movedim(x, source, destination)


def shapeless(operands: tuple[Any, ...]) -> bool:
    """Whether a program is recorded: it stands for tensors of many shapes."""
    return torch.compiler.is_compiling() or any(isinstance(x, Proxy) for x in operands)


# -- what only torch has --


def _check_operands(op: Op, operands: tuple[Any, ...]) -> None:
    if isinstance(op, Pooling) and len(operands) != 1:
        raise TypeError(f"{op!r} takes one operand, got {len(operands)}")
    if not isinstance(op, (Pooling, Convolution)):
        raise TypeError(f"{op!r}: no such op on torch tensors")
    for i, x in enumerate(operands):
        name = op.operand_names[i] if i < len(op.operand_names) else f"operand {i}"
        _check_like(operands[0], x, name, op.operand_names[0])


def _known(op: Any, x: Any) -> tuple[Op, Any]:
    """An op of torch's that has this one's derivative, and where."""
    known = integers.as_known(op)
    return known, integers.turned(x) if isinstance(op.reduction, Min) else x


def _check_like(x: Any, other: Any, name: str, of: str) -> None:
    """`other` is a tensor that our kernels can read, where `x` is; or stands for one while torch.fx records."""
    if isinstance(other, Proxy) or isinstance(x, Proxy):
        return
    check_plain(other, name)
    if other.device != x.device:
        raise ValueError(
            f"{name} is on device {other.device} and {of} on {x.device}; "
            f"expected one device: move it with .to({str(x.device)!r})"
        )


def check_plain(other: Any, name: str) -> None:
    """Refuse what is no tensor of numbers in memory that our kernels can read."""
    if not isinstance(other, Tensor):
        raise TypeError(f"{name} is a {type(other).__name__}; expected a torch tensor")
    if type(other).__name__ == "MaskedTensor":
        raise TypeError(f"{name} is a masked tensor; fill it first, with {name}.to_tensor(number)")
    if other.is_nested:
        raise TypeError(
            f"{name} is a nested tensor; pass {name}.to_padded_tensor(number), or its parts"
        )
    if other.is_quantized:
        raise TypeError(f"{name} is quantised; pass {name}.dequantize() instead")
    if other.layout is not torch.strided:
        raise TypeError(f"{name} has layout {other.layout}; pass {name}.to_dense() instead")
    if other.device.type not in ("cpu", "cuda", "meta"):
        raise TypeError(
            f"{name} is on device {other.device}; expected cpu or cuda: move it with .cpu()"
        )
    dtype_of(other.dtype, name)


def _outside_torch(
    verb: Any,
    op: Op,
    operands: tuple[Any, ...],
    backend: str,
    others: tuple[Any, ...] | None = None,
) -> Any:
    """A verb of a backend for NumPy arrays; nothing is recorded, so nothing may ask for it."""
    device = operands[0].device
    tensors = (*operands, *(others or ()))
    if torch.is_grad_enabled() and any(t.requires_grad for t in tensors):
        raise ValueError(
            f"backend={backend!r}: a convolution records its derivative with backend=None alone; "
            "pass tensors that need no gradient (.detach()), or use op.vjp"
        )
    arrays = tuple(array_of(t.cpu()) for t in operands)
    if others is None:
        result = verb(op, *arrays, backend=backend)
    else:
        more = tuple(array_of(t.cpu()) for t in others)
        result = verb(op, arrays, more if verb is dispatch.jvp else more[0], backend=backend)
    if isinstance(result, tuple):
        return tuple(tensor_of(r).to(device) for r in result)
    return tensor_of(result).to(device)
