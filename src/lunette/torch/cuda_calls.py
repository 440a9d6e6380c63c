"""Eager calls on CUDA tensors: one autograd function over recorded launches.

For plain tensors outside every mode of torch. What a call launches is recorded once for an op, a shape, strides,
a dtype and a device (`lunette.kernels.triton.replay`); each further call replays it. What cannot be replayed runs
as the registered operators run it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from lunette.ops.pooling import Pooling
from lunette.reductions import Max, Mean
from lunette.torch import library, offsets
from lunette.torch.encoding import encode

__all__ = ["forward"]

MOST = 4096
"""Recorded calls that are kept; past it all are forgotten, and recorded anew."""

ALIGNED = 15
"""Bits of an address that are zero where a recorded call may read."""

_calls: dict[tuple[Any, ...], Any] = {}


def forward(op: Pooling, x: Tensor) -> Tensor:
    """The op's value, with its gradient recorded where x asks for one."""
    if x.requires_grad and torch.is_grad_enabled() and x.is_floating_point():
        return _apply(x, op)  # type: ignore[no-any-return]
    return _run(_pool, op, (x.shape, x.stride(), x.dtype, x.device), x)  # type: ignore[no-any-return]


def _run(verb: Callable[..., Any], op: Pooling, layout: Any, *inputs: Tensor) -> Any:
    """`verb(op, layout, *inputs)`, by replay if it was recorded for tensors laid out like these."""
    key = verb, op, layout
    replay = _calls.get(key, False)
    if not replay:
        return verb(op, layout, *inputs) if replay is None else _record(key, *inputs)
    addresses = 0
    for tensor in inputs:
        addresses |= tensor.data_ptr()
    if addresses & ALIGNED or not _is_current(inputs[0]):
        return verb(op, layout, *inputs)
    return replay(*inputs)


def _record(key: Any, *inputs: Tensor) -> Any:
    """Run the verb, and remember how to replay it, or that it cannot be replayed."""
    from lunette.kernels.triton.replay import record

    verb, op, layout = key
    with torch.cuda.device(inputs[0].device):
        result, replay = record(lambda *tensors: verb(op, layout, *tensors), *inputs)
    if len(_calls) >= MOST:
        _calls.clear()
    addresses = [tensor.data_ptr() for tensor in inputs]
    if replay is not None or not any(a & ALIGNED for a in addresses):
        _calls[key] = replay
    return result


def _is_current(x: Tensor) -> bool:
    """Whether x lies on the current device, where launches go."""
    return _devices() == 1 or x.get_device() == torch.cuda.current_device()


@lru_cache(maxsize=1)
def _devices() -> int:
    return torch.cuda.device_count()


# -- what is recorded --


def _pool(op: Pooling, layout: Any, x: Tensor) -> Any:
    return library._pool_cuda(x, None, encode(op), None)


def _max_with_offsets(op: Pooling, layout: Any, x: Tensor) -> Any:
    return offsets._max_with_offsets_cuda(x, encode(op))


def _max_vjp_from_offsets(op: Pooling, layout: Any, taps: Tensor, grad: Tensor) -> Any:
    return offsets._max_vjp_from_offsets_cuda(taps, grad, layout[0], encode(op))


def _vjp(op: Pooling, layout: Any, x: Tensor, grad: Tensor) -> Any:
    return library._pool_vjp_cuda(x, grad, None, encode(op), None)


def _vjp_of_linear(op: Pooling, layout: Any, grad: Tensor) -> Any:
    """The gradient of a mean, which asks for the layout of x and not for its cells."""
    shape, stride, dtype, device = layout[:4]
    unset = torch.empty_strided(shape, stride, dtype=dtype, device=device)
    return library._pool_vjp_cuda(unset, grad, None, encode(op), None)


# -- reverse mode --


@lru_cache(maxsize=4096)
def _saves(op: Pooling) -> str:
    """What a gradient needs besides the layout of x: nothing, the argmax of every window, or x."""
    if isinstance(op.reduction, Mean):
        return "nothing"
    single = op.reduction == Max("first")
    return "offsets" if single and offsets._taps(encode(op)) <= offsets.NOWHERE else "x"


class _Pool(torch.autograd.Function):  # type: ignore[misc]
    """A pooling whose gradient is replayed; where the gradient is itself recorded, the registered operators serve."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, op: Pooling) -> Tensor:
        layout = x.shape, x.stride(), x.dtype, x.device
        ctx.op, ctx.layout, saves = op, layout, _saves(op)
        if saves == "offsets":
            y, ctx.taps = _run(_max_with_offsets, op, layout, x)
            return y  # type: ignore[no-any-return]
        if saves == "x":
            ctx.save_for_backward(x)
        return _run(_pool, op, layout, x)  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        op, layout, saves = ctx.op, ctx.layout, _saves(ctx.op)
        if torch.is_grad_enabled():
            return _differentiable(ctx, grad), None
        if not grad.is_contiguous():
            grad = grad.contiguous(memory_format=library.format_of(grad))
        layout = (*layout, grad.stride())
        if saves == "offsets":
            return _run(_max_vjp_from_offsets, op, layout, ctx.taps, grad), None
        if saves == "x":
            return _run(_vjp, op, layout, *ctx.saved_tensors, grad), None
        return _run(_vjp_of_linear, op, layout, grad), None


def _differentiable(ctx: Any, grad: Tensor) -> Any:
    """The gradient by registered operators, which have derivatives of their own."""
    text, saves = encode(ctx.op), _saves(ctx.op)
    if saves == "offsets":
        return offsets.max_vjp_from_offsets(ctx.taps, grad, ctx.layout[0], text)
    if saves == "x":
        return library.pool_vjp(*ctx.saved_tensors, grad, None, text, None)
    shape, _, dtype, device = ctx.layout
    anything = torch.zeros((), dtype=dtype, device=device).expand(shape)  # a mean reads no cell of x
    return library.pool_vjp(anything, grad, None, text, None)


# `Function.apply` asks once more for functorch levels, of which there are none here.
_apply: Any = torch._C._FunctionBase.__dict__["apply"].__get__(None, _Pool)
