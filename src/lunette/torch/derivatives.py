"""The derivatives of pooling, and of its derivatives, in terms of `pool`, `jvp` and `vjp`.

Write `y(x)` for the value of a window, `s` for the shares of its cells, so `jvp = Σ s·dx` and
`vjp` spreads `s·g`. The shares of max and mean do not change with x. Those of smooth max, the
softmax of βx, do: `∂s_i/∂x_j = β s_i (δ_ij − s_j)` and `∂s_i/∂β = s_i (x_i − Σ s x)`. So

- along b, `jvp(x, a)` changes by `β (jvp(ab) − jvp(a)·jvp(b))`, its *curvature*;
- along b, `vjp(x, g)` changes by `β (b·vjp(g) − vjp(g·jvp(b)))`, its *bend*;
- with β, `y` changes by `(jvp(x) − y) / β`, and shares as along `b = x / β`.

All of these are again poolings of tensors, so derivatives of any order follow.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lunette.encoding import decode
from lunette.reductions import SmoothMax

__all__ = ["Rule", "in_beta", "pool", "pool_jvp", "pool_vjp", "pool_with_indices"]


class _At:
    """The verbs of one op at one x."""

    def __init__(self, x: Tensor, beta: Tensor | None, op: str, backend: str | None) -> None:
        from lunette.torch import library

        self.library, self.x, self.rest = library, x, (beta, op, backend)
        reduction = decode(op).reduction
        self.curved = isinstance(reduction, SmoothMax)
        self.beta: Any = beta if beta is not None or not self.curved else reduction.beta

    def value(self) -> Any:
        return self.library.pool(self.x, *self.rest)

    def jvp(self, dx: Tensor) -> Any:
        return self.library.pool_jvp(self.x, dx, *self.rest)

    def vjp(self, grad: Tensor) -> Any:
        return self.library.pool_vjp(self.x, grad, *self.rest)

    def curvature(self, a: Tensor, b: Tensor) -> Any:
        """How `jvp(a)` changes as x moves along b, over β."""
        return self.jvp(a * b) - self.jvp(a) * self.jvp(b)

    def bend(self, grad: Tensor, b: Tensor) -> Any:
        """How `vjp(grad)` changes as x moves along b, over β."""
        return b * self.vjp(grad) - self.vjp(grad * self.jvp(b))

    def value_with_beta(self) -> Any:
        """dy/dβ."""
        return _slope_in_beta(self.x, self.beta, self.jvp(self.cells()), self.value())

    def cells(self) -> Tensor:
        """x, with 0 for an infinite cell: its share is 0 or 1, and 0·∞ is no derivative."""
        return _finite(self.x)

    def scaled(self, amount: Any) -> Any:
        """`amount · β`, in the dtype of `amount`."""
        beta = self.beta
        return amount * (beta.to(amount.dtype) if isinstance(beta, Tensor) else beta)

    def as_beta(self, terms: Tensor) -> Any:
        return _as_beta(self.beta, terms)


def in_beta(x: Tensor, beta: Tensor, grad: Tensor, y: Tensor, jvp: Any) -> Tensor:
    """The gradient in β, where y is the value and `jvp` its derivative along a direction, at x."""
    return _as_beta(beta, grad * _slope_in_beta(x, beta, jvp(_finite(x)), y))


def _slope_in_beta(x: Tensor, beta: Tensor, along_x: Tensor, y: Tensor) -> Tensor:
    return (along_x - y) / beta.to(torch.promote_types(x.dtype, beta.dtype))


def _as_beta(beta: Tensor, terms: Tensor) -> Tensor:
    """A gradient in β: the sum of its terms, in β's shape, dtype and device."""
    wide = torch.promote_types(terms.dtype, beta.dtype)
    return terms.sum(dtype=wide).to(beta).reshape(beta.shape)


def _finite(x: Tensor) -> Tensor:
    return x.masked_fill(x.isinf(), 0)


class Rule:
    """What most rules share."""

    keeps_results = False

    def instead(self, args: tuple[Any, ...]) -> Any:
        return None


class _Pool(Rule):
    """y = pool(x, β)."""

    def instead(self, args: tuple[Any, ...]) -> Any:
        from lunette.torch import offsets

        x, beta, op, backend = args
        if beta is not None or not offsets.serves(x, op, backend):
            return None
        return offsets.max_with_offsets(x, op)[0]

    def gradient(self, args: tuple[Any, ...], grads: tuple[Any, ...], needs: Any) -> Any:
        x, beta, op, backend = args
        at, (grad, *_) = _At(x, beta, op, backend), grads
        for_x = at.vjp(grad) if needs[0] else None
        for_beta = at.as_beta(grad * at.value_with_beta()) if needs[1] else None
        return for_x, for_beta, None, None

    def tangent(self, args: tuple[Any, ...], tangents: tuple[Any, ...]) -> Any:
        at, (dx, dbeta, *_) = _At(*args), tangents
        parts = []
        if dx is not None:
            parts.append(at.jvp(dx))
        if dbeta is not None:
            parts.append(dbeta * at.value_with_beta())
        return _total(parts, args[0].dtype)


class _PoolWithIndices(_Pool):
    """(y, indices) = pool_with_indices(x); the indices have no derivative."""

    def instead(self, args: tuple[Any, ...]) -> Any:
        return None

    def tangent(self, args: tuple[Any, ...], tangents: tuple[Any, ...]) -> Any:
        return super().tangent(args, tangents), None


class _PoolJvp(Rule):
    """t = jvp(x, dx, β)."""

    def gradient(self, args: tuple[Any, ...], grads: tuple[Any, ...], needs: Any) -> Any:
        x, dx, beta, op, backend = args
        at, (grad,) = _At(x, beta, op, backend), grads
        for_x = at.scaled(at.bend(grad, dx)) if needs[0] and at.curved else None
        for_dx = at.vjp(grad) if needs[1] else None
        for_beta = at.as_beta(grad * at.curvature(dx, at.cells())) if needs[2] else None
        return for_x, for_dx, for_beta, None, None

    def tangent(self, args: tuple[Any, ...], tangents: tuple[Any, ...]) -> Any:
        x, dx, beta, op, backend = args
        at, (along_x, along_dx, along_beta, *_) = _At(x, beta, op, backend), tangents
        parts = []
        if along_x is not None and at.curved:
            parts.append(at.scaled(at.curvature(dx, along_x)))
        if along_dx is not None:
            parts.append(at.jvp(along_dx))
        if along_beta is not None:
            parts.append(along_beta * at.curvature(dx, at.cells()))
        if not parts:  # torch takes zeros for the tangent of a constant, not None
            return torch.zeros_like(at.jvp(dx))
        return _total(parts, x.dtype)


class _PoolVjp(Rule):
    """r = vjp(x, grad, β)."""

    def gradient(self, args: tuple[Any, ...], grads: tuple[Any, ...], needs: Any) -> Any:
        x, grad, beta, op, backend = args
        at, (direction,) = _At(x, beta, op, backend), grads
        for_x = at.scaled(at.bend(grad, direction)) if needs[0] and at.curved else None
        for_grad = at.jvp(direction) if needs[1] else None
        for_beta = at.as_beta(grad * at.curvature(direction, at.cells())) if needs[2] else None
        return for_x, for_grad, for_beta, None, None

    def tangent(self, args: tuple[Any, ...], tangents: tuple[Any, ...]) -> Any:
        x, grad, beta, op, backend = args
        at, (along_x, along_grad, along_beta, *_) = _At(x, beta, op, backend), tangents
        parts = []
        if along_x is not None and at.curved:
            parts.append(at.scaled(at.bend(grad, along_x)))
        if along_grad is not None:
            parts.append(at.vjp(along_grad))
        if along_beta is not None:
            parts.append(along_beta * at.bend(grad, at.cells()))
        if not parts:
            return torch.zeros_like(x)
        return _total(parts, x.dtype)


def _total(parts: list[Any], dtype: torch.dtype) -> Any:
    """The sum of the parts of a tangent."""
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total.to(dtype)


pool, pool_with_indices = _Pool(), _PoolWithIndices()
pool_jvp, pool_vjp = _PoolJvp(), _PoolVjp()
