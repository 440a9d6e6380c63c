"""Eager calls on CUDA tensors: one autograd function over recorded launches.

For plain tensors outside every mode of torch. What a call launches is recorded once for an op and a layout of x: its
shape, strides, dtype and device (`lunette.kernels.triton.replay`). Each further call replays it. What cannot be
replayed runs as the registered operators run it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from importlib import import_module
from typing import Any

import torch
from torch import _C, Tensor
from torch._C._functorch import is_legacy_batchedtensor as is_batched

from lunette.encoding import encode
from lunette.ops.pooling import Pooling
from lunette.reductions import Max, Mean
from lunette.torch import library, offsets
from lunette.torch.memory import DTYPES, extent, format_of

__all__ = ["Calls", "forward"]

MOST = 4096
"""Ops and layouts that are kept; past it all are forgotten, and recorded anew."""

Layout = tuple[Any, ...]
"""Shape, strides, dtype and device of a tensor."""

_known: dict[tuple[Any, ...], Calls] = {}


def forward(op: Pooling, x: Tensor) -> Any:
    """The op's value, with its gradient recorded where x asks for one; None for tensors that no kernel reads."""
    calls = _known.get((op, x.shape, x.stride(), x.dtype, x.device))
    if calls is None:
        if x.dtype not in DTYPES or x.layout is not torch.strided:
            return None
        calls = _new_calls(op, x)
    # A storage that was made smaller than its tensor is refused by the registered operators.
    if x.untyped_storage().nbytes() < calls.extent + x.storage_offset() * calls.size:
        return None
    if x.requires_grad and calls.differentiable and torch.is_grad_enabled():
        return _apply(x, calls)
    return calls.value(x)


def _new_calls(op: Pooling, x: Tensor) -> Calls:
    if len(_known) >= MOST:
        _known.clear()
    layout = x.shape, x.stride(), x.dtype, x.device
    calls = _known[(op, *layout)] = Calls(op, layout, format_of(x))
    calls.extent = extent(x)
    return calls


class Calls:
    """What an op launches for x of one layout: its value, what its gradient saves, its gradient."""

    __slots__ = (
        "differentiable", "extent", "format", "gradients", "layout", "op", "saves", "size", "text", "value",
    )  # fmt: skip

    def __init__(self, op: Pooling, layout: Layout, memory_format: Any) -> None:
        self.op, self.layout, self.text = op, layout, encode(op)
        self.extent, self.size = 0, layout[2].itemsize
        self.format = memory_format if op.keepdims else torch.contiguous_format
        self.differentiable, self.saves = layout[2].is_floating_point, _saves(op, layout[0])
        self.value = _Recorded(self._pool)
        self.gradients: dict[Any, Any] = {}
        if self.saves == "offsets" and self.differentiable:
            self.gradients["forward"] = _Recorded(self._max_with_offsets)

    # -- what is recorded --

    def _pool(self, x: Tensor) -> Any:
        return library._pool_cuda(x, None, self.text, None)

    def _max_with_offsets(self, x: Tensor) -> Any:
        return offsets._max_with_offsets_cuda(x, self.text)

    def _max_vjp_from_offsets(self, taps: Tensor, grad: Tensor) -> Any:
        return offsets._max_vjp_from_offsets_cuda(taps, grad, self.layout[0], self.text)

    def _vjp(self, x: Tensor, grad: Tensor) -> Any:
        return library._pool_vjp_cuda(x, grad, None, self.text, None)

    def _vjp_of_mean(self, grad: Tensor) -> Any:
        """The gradient of a mean asks for the layout of x and not for its cells."""
        shape, stride, dtype, device = self.layout
        unset = torch.empty_strided(shape, stride, dtype=dtype, device=device)
        return self._vjp(unset, grad)

    # -- reverse mode --

    def gradient(self, saved: tuple[Tensor, ...], grad: Tensor) -> Any:
        """The gradient of x, from what was saved."""
        grad = grad.contiguous(memory_format=self.format)  # as the value is laid out
        strides = (
            grad.stride(),
            *[t.stride() for t in saved],
        )  # hooks may lay out anew what was saved
        found = self.gradients.get(strides)
        if found is None:
            verbs: dict[str, Callable[..., Any]] = {
                "offsets": self._max_vjp_from_offsets,
                "x": self._vjp,
                "nothing": self._vjp_of_mean,
            }
            found = self.gradients[strides] = _Recorded(verbs[self.saves])
        return found(*saved, grad)

    def differentiable_gradient(self, saved: tuple[Tensor, ...], grad: Tensor) -> Any:
        """The same by registered operators, which have derivatives of their own."""
        if self.saves == "offsets":
            return offsets.max_vjp_from_offsets(*saved, grad, self.layout[0], self.text)
        if self.saves == "x":
            return library.pool_vjp(*saved, grad, None, self.text, None)
        shape, _, dtype, device = self.layout
        anything = torch.zeros((), dtype=dtype, device=device).expand(shape)  # no cell is read
        return library.pool_vjp(anything, grad, None, self.text, None)


@lru_cache(maxsize=4096)
def _saves(op: Pooling, shape: tuple[int, ...]) -> str:
    """What a gradient needs besides the layout of x: nothing, the argmax of every window, or x."""
    if isinstance(op.reduction, Mean):
        return "nothing"
    if op.reduction != Max("first"):
        return "x"
    refused = import_module("lunette.kernels.triton").refuses(
        op, "forward_with_offsets", (shape,), ("float32",)
    )
    return "offsets" if refused is None else "x"


class _Recorded:
    """A verb on tensors of one layout: recorded by its first call, replayed by the others."""

    __slots__ = ("replay", "tried", "verb")

    def __init__(self, verb: Callable[..., Any]) -> None:
        self.verb, self.tried = verb, False
        self.replay: Any = None

    def __call__(self, *inputs: Tensor) -> Any:
        if self.replay is not None:
            results = self.replay(*inputs)
            return self.verb(*inputs) if results is None else results
        return self.verb(*inputs) if self.tried else self._record(*inputs)

    def _record(self, *inputs: Tensor) -> Any:
        from lunette.kernels.triton import replay

        with torch.cuda.device(inputs[0].device):
            result, self.replay = replay.record(self.verb, *inputs)
        # At an address that is not aligned, or while a graph is captured, nothing is decided for other calls.
        self.tried = replay.aligned(inputs) and not torch.cuda.is_current_stream_capturing()
        return result


class lunette_pool(torch.autograd.Function):  # type: ignore[misc]
    """A pooling with its gradient; where that is itself recorded, the registered operators give it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, calls: Calls) -> Any:
        ctx.calls = calls
        if calls.saves == "offsets":
            y, taps = calls.gradients["forward"](x)
            ctx.save_for_backward(taps)
            return y
        if calls.saves == "x":
            ctx.save_for_backward(x)
        return calls.value(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        calls = ctx.calls
        saved = () if calls.saves == "nothing" else ctx.saved_tensors
        if torch.is_grad_enabled() or is_batched(grad) or _C._are_functorch_transforms_active():
            return calls.differentiable_gradient(saved, grad), None
        return calls.gradient(saved, grad), None


# `Function.apply` asks once more for transforms of torch.func, of which there are none here.
_apply: Any = _C._FunctionBase.__dict__["apply"].__get__(None, lunette_pool)
