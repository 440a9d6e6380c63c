"""Pooling of plain tensors outside every mode: one `autograd.Function` over prepared calls.

What the registered operators do for every mode of torch takes longer than a small call. Where no mode is on, nothing of it
is needed: the same kernels give the same bits. A backward pass that is itself recorded, or meets a mode, goes by the
registered operators.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from torch import _C, Tensor
from torch.autograd import forward_ad
from torch.autograd.function import _SingleLevelFunction
from torch.nn import Parameter

from lunette.dispatch import BACKENDS
from lunette.encoding import encode
from lunette.ops.base import DIRECT
from lunette.ops.pooling import Pooling
from lunette.torch import cuda_calls, derivatives, library, offsets
from lunette.torch.learned import Learned, checked
from lunette.torch.prepared import MOST, Prepared, prepare

__all__ = ["direct", "forward", "forward_with_beta", "forward_with_indices", "serves"]


# Bound once: each is asked in every call.
compiling, grad_enabled, has_storage = (
    torch.compiler.is_compiling,
    torch.is_grad_enabled,
    _C._has_storage,
)
functorch, tracing = _C._are_functorch_transforms_active, _C._get_tracing_state
dispatch_modes, function_modes = _C._len_torch_dispatch_stack, _C._len_torch_function_stack


def serves(x: Any) -> bool:
    """Whether x is a plain tensor, on a CPU or on CUDA, and no mode of torch is on."""
    return (
        (type(x) is Tensor or type(x) is Parameter)
        and not compiling()
        and not functorch()
        and forward_ad._current_level < 0
        and not dispatch_modes()
        and not function_modes()
        and tracing() is None
        and (x.is_cpu or x.is_cuda)
        and has_storage(x)  # not sparse, batched, or otherwise made of other tensors
        and x.data_ptr()  # neither empty nor zeros that nobody has written
        and not x.is_neg()
        and not x.is_nested
    )


def forward(op: Pooling, x: Tensor) -> Any:
    """The op's value; None where the registered operators are to be asked."""
    if x.is_cuda:
        return None if op.axes is not None else cuda_calls.forward(op, x)
    try:
        call = op._prepared[x.shape, x.stride(), x.dtype, len(BACKENDS)]
    except (AttributeError, KeyError):
        call = _prepared(op, x)
    # A storage that was made smaller than its tensor is refused by the registered operators.
    if call is None or x.untyped_storage().nbytes() < call.extent + x.storage_offset() * call.size:
        return None
    if x.requires_grad and grad_enabled():
        return call.function.apply(x, call)
    return call.values(x)


def direct(op: Any, x: Tensor) -> Any:
    """What `op(x)` is where nothing but this serves it; NotImplemented elsewhere."""
    found = forward(op, x) if serves(x) and isinstance(op, Pooling) else None
    return NotImplemented if found is None else found


def forward_with_indices(op: Pooling, x: Tensor) -> Any:
    """A max's value and the flat positions of its winners; None where the registered operators are to be asked."""
    op.check_indices()
    call = None if x.is_cuda else _prepared(op, x)
    if call is None:
        return None
    if x.requires_grad and grad_enabled():
        return Indexed.apply(x, call)
    return call.values_and_indices(x)


def _prepared(op: Pooling, x: Tensor, rises: bool | None = None) -> Any:
    if op.axes is not None:
        return None
    # An op keeps its own calls: to look one up among those of all ops takes as long as a small call.
    try:
        calls = op._prepared
    except AttributeError:
        calls = _calls(op)
        object.__setattr__(op, "_prepared", calls)
    key: Any = (x.shape, x.stride(), x.dtype, len(BACKENDS))
    if rises is not None:  # a beta that is told at the call
        key = key, rises
    try:
        return calls[key]
    except KeyError:
        if len(calls) >= MOST:
            calls.clear()
        found = prepare(op, x)
        if found is not None and rises is not None:
            found = Learned(op, x, rises)
        elif found is not None:
            found.function = Kept if found.keeps else Pooled
        calls[key] = found
        return found


def forward_with_beta(op: Pooling, x: Tensor, beta: Tensor) -> Any:
    """A smooth max whose beta is a tensor of one number; None where the registered operators are to be asked."""
    if x.is_cuda:
        return None
    rises = checked(beta.item()) > 0
    call = _prepared(op, x, rises)
    if call is None or not call.serves:
        return None
    if grad_enabled() and (x.requires_grad or beta.requires_grad):
        return Taught.apply(x, beta, call)
    return call.pooled(x, beta.item())


@lru_cache(maxsize=1024)
def _calls(op: Pooling) -> dict[Any, Any]:
    """The calls of all ops that are equal: a function makes a new one each time."""
    return {}


# -- derivatives: as the registered operators have them --


def _gradient(call: Prepared, x: Tensor | None, grad: Tensor) -> Tensor:
    if grad_enabled() or not serves(grad) or not (x is None or call.is_input(x)):
        if x is None:  # a mean is linear: any x will do
            x = torch.empty_strided(call.shape, call.strides, dtype=call.tensor_dtype)
        return library.pool_vjp(x, grad, None, encode(call.op), None)
    return call.gradient(x, grad)


class _Function(_SingleLevelFunction):  # type: ignore[misc]
    """Applied without the ways of functorch: no such level is active here."""


class _Pooled(_Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, call: Prepared) -> Any:
        ctx.call = call
        if call.reads_x:
            ctx.save_for_backward(x)
        return call.values(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        call = ctx.call
        if call.reads_x:
            return _gradient(call, ctx.saved_tensors[0], grad), None
        if grad_enabled() or not serves(grad):
            return _gradient(call, None, grad), None
        return call.gradient(None, grad), None


class _Indexed(_Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, call: Prepared) -> Any:
        ctx.call = call
        ctx.save_for_backward(x)
        ctx.set_materialize_grads(False)
        y, places = call.values_and_indices(x)
        ctx.mark_non_differentiable(places)
        return y, places

    @staticmethod
    def backward(ctx: Any, grad: Any, _: Any) -> Any:
        (x,) = ctx.saved_tensors
        return None if grad is None else _gradient(ctx.call, x, grad), None


class BlockCache(_Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, call: Prepared) -> Any:
        ctx.call = call
        y, marks = call.values_and_offsets(x)
        ctx.save_for_backward(marks)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        call: Prepared = ctx.call
        (marks,) = ctx.saved_tensors
        if grad_enabled() or not serves(grad) or not call.is_marks(marks):
            text = encode(call.op)
            return offsets.max_vjp_from_offsets(marks, grad, call.shape, text), None
        return call.gradient_from_offsets(marks, grad), None


class _Taught(_Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, beta: Tensor, call: Learned) -> Any:
        ctx.call = call
        y = call.pooled(x, beta.item())
        ctx.save_for_backward(x, beta, y)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        call: Learned = ctx.call
        x, beta, y = ctx.saved_tensors
        needs = ctx.needs_input_grad
        at_once = not grad_enabled() and serves(grad) and serves(beta) and call.is_input(x)
        if not at_once:
            args = x, beta, encode(call.asked), None
            return *derivatives.pool.gradient(args, (grad,), needs)[:2], None
        number = beta.item()
        for_x = call.spread(x, grad, number) if needs[0] else None
        for_beta = None
        if needs[1]:
            for_beta = derivatives.in_beta(x, beta, grad, y, lambda dx: call.slope(x, dx, number))
        return for_x, for_beta, None


# A result's grad_fn is named after the class, and as the operator is that a mode would see.
Pooled: Any = type("lunette_pool", (_Pooled,), {})
Indexed: Any = type("lunette_pool_with_indices", (_Indexed,), {})
Kept: Any = type("lunette_max_with_offsets", (BlockCache,), {})
Taught: Any = type("lunette_pool_with_beta", (_Taught,), {})

DIRECT[Tensor] = DIRECT[Parameter] = direct
