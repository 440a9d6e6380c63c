"""Derivative rules for a torch operator in reverse and forward mode, at every level of nesting.

`torch.library.register_autograd` knows reverse mode alone. A kernel at the Autograd key that
runs a `_SingleLevelFunction` serves both modes, plainly and inside `torch.func`, because each
level of `torch.func` dispatches to that key on its own.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import torch
from torch import _C, Tensor
from torch._functorch.utils import enable_single_level_autograd_function
from torch.autograd import forward_ad
from torch.autograd.function import _SingleLevelFunction

from lunette.torch.checking import check_layouts

__all__ = ["Derivative", "register_derivatives"]


class Derivative(Protocol):
    """The two rules of an operator, over its arguments as they were passed.

    With `keeps_results`, its results after the first follow the arguments.
    """

    keeps_results: bool

    def instead(self, args: tuple[Any, ...]) -> Any:
        """The results by another operator that a derivative is better taken of, or None."""
        ...

    def gradient(self, args: tuple[Any, ...], grads: tuple[Any, ...], needs: Any) -> Any:
        """One gradient per argument, or None where `needs` is false or nothing depends on it."""
        ...

    def tangent(self, args: tuple[Any, ...], tangents: tuple[Any, ...]) -> Any:
        """The tangent of each result, given one per argument or None."""
        ...


class _Call(NamedTuple):
    """The state in which the dispatcher reached the kernel."""

    keyset: Any
    grad_enabled: bool
    forward_grad_enabled: bool


def register_derivatives(library: Any, operator: Any, derivative: Derivative) -> None:
    """Make `operator` differentiable by these rules."""

    class Function(_SingleLevelFunction):  # type: ignore[misc]
        @staticmethod
        def forward(call: _Call, *args: Any) -> Any:
            # torch switches both modes off in here; a lower level of torch.func needs them back.
            with (
                torch.set_grad_enabled(call.grad_enabled),
                forward_ad._set_fwd_grad_enabled(call.forward_grad_enabled),
            ):
                return below(call.keyset, args)

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
            kept = output[1:] if derivative.keeps_results else ()
            tensors = [a for a in (*inputs, *kept) if isinstance(a, Tensor)]
            ctx.save_for_backward(*tensors)
            ctx.save_for_forward(*tensors)
            args = (*inputs[1:], *kept)
            ctx.arguments = tuple(None if isinstance(a, Tensor) else a for a in args)
            ctx.places = tuple(i for i, a in enumerate(args) if isinstance(a, Tensor))
            ctx.set_materialize_grads(False)
            if isinstance(output, tuple):
                ctx.mark_non_differentiable(*output[1:])
                if not output[0].is_floating_point():
                    ctx.mark_non_differentiable(*output)

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            needs = ctx.needs_input_grad[1:]
            if grads[0] is None:
                return (None,) * (1 + len(needs))
            args = arguments(ctx, ctx.saved_tensors)
            return None, *derivative.gradient(args, grads, needs)

        @staticmethod
        def jvp(ctx: Any, _: Any, *tangents: Any) -> Any:
            # Saved tensors still carry this level's tangents; other levels must see their own.
            with forward_ad._set_fwd_grad_enabled(True):
                primals = [forward_ad.unpack_dual(t, level=0).primal for t in ctx.saved_tensors]
                return derivative.tangent(arguments(ctx, primals), tangents)

    def arguments(ctx: Any, tensors: Any) -> tuple[Any, ...]:
        args = list(ctx.arguments)
        for place, tensor in zip(ctx.places, tensors, strict=True):
            args[place] = tensor
        return tuple(args)

    def below(keyset: Any, args: tuple[Any, ...]) -> Any:
        with _C._AutoDispatchBelowAutograd():
            try:
                return operator.redispatch(keyset & _C._after_autograd_keyset, *args)
            except NotImplementedError:  # the dispatcher's, which names keys and no argument
                check_layouts(operator._schema.name.partition("::")[2], args)
                raise

    def kernel(keyset: Any, *args: Any) -> Any:
        if _nothing_to_record(args):
            return below(keyset, args)
        other = derivative.instead(args)
        if other is not None:
            return other
        call = _Call(keyset, torch.is_grad_enabled(), _C._is_fwd_grad_enabled())
        with enable_single_level_autograd_function():
            return named.apply(call, *args)

    # A result's grad_fn is named after the class: `lunette_poolBackward`.
    named: Any = type(operator._schema.name.replace("::", "_"), (Function,), {})
    library.impl(operator, kernel, "Autograd", with_keyset=True)


def _nothing_to_record(args: tuple[Any, ...]) -> bool:
    """Whether these are plain tensors outside every mode of differentiation."""
    if _C._are_functorch_transforms_active() or forward_ad._current_level >= 0:
        return False
    tensors = [a for a in args if isinstance(a, Tensor)]
    if not all(type(t) in (Tensor, torch.nn.Parameter) for t in tensors):
        return False
    return not (torch.is_grad_enabled() and any(t.requires_grad for t in tensors))
