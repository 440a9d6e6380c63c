"""Any `lunette.Op` as a rule: its own verbs, and the derivative of its vjp from those same verbs."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from lunette.dispatch import vjp
from lunette.ops.base import Op
from lunette.ops.convolution import Convolution
from lunette.ops.pooling import Pooling
from lunette.reductions import SmoothMax
from lunette.tape import functions as fn
from lunette.tape.duals import DualArray, plus
from lunette.tape.rules import Rule

__all__ = ["CURVATURES", "OpRule", "rule_of"]


class OpRule(Rule):
    """The rule of one op. Tangents of all operands go through the op's `jvp` together."""

    __slots__ = ("op",)
    reads_result = False

    def __init__(self, op: Op) -> None:
        super().__init__(op.out_shape, op, (), ())
        self.op = op

    def push(self, tangents: list[Any], out: Any, inputs: list[Any], options: Any) -> Any:
        if all(t is None for t in tangents):
            return None
        return self.op.jvp(tuple(inputs), _filled(tangents, inputs))

    def pull(
        self, grad: Any, out: Any, inputs: list[Any], needs: list[bool], options: Any
    ) -> list[Any]:
        if isinstance(grad, DualArray):
            gradients: Any = self._pull_dual(grad, inputs)
        elif all(needs) or type(self.op).vjp is not Op.vjp:
            gradients = self.op.vjp(tuple(inputs), grad)
        else:
            gradients = vjp(self.op, tuple(inputs), grad, needs=tuple(needs))
        return [g if needed else None for g, needed in zip(gradients, needs, strict=True)]

    def _pull_dual(self, grad: DualArray, inputs: list[Any]) -> list[Any]:
        """d vjp(x, g) = vjp(x, dg) + the curvature, which moves x and holds g."""
        values = tuple(x.primal for x in inputs)
        moved: list[Any] = [None] * len(values)
        if grad.tangent is not None:
            moved = list(self.op.vjp(values, grad.tangent))
        if any(x.tangent is not None for x in inputs):
            tangents = _filled([x.tangent for x in inputs], values)
            bent = _curvature(self.op)(self.op, values, tangents, grad.primal)
            moved = [plus(a, b) for a, b in zip(moved, bent, strict=True)]
        return list(map(DualArray, self.op.vjp(values, grad.primal), moved))


@lru_cache(maxsize=1024)
def rule_of(op: Op) -> OpRule:
    """The op's rule; equal ops share one."""
    return OpRule(op)


def _filled(tangents: Any, inputs: Any) -> tuple[Any, ...]:
    return tuple(
        fn.zeros_like(x) if t is None else t for t, x in zip(tangents, inputs, strict=True)
    )


# -- curvature: how the vjp moves with the operands, in terms of the op's own verbs --


def pooling_curvature(op: Any, values: Any, tangents: Any, grad: Any) -> list[Any]:
    """Of smooth max, `β (dx · vjp(x, g) − vjp(x, g · jvp(x, dx)))`.

    A share s of a window moves by `β s (dx − Σ s dx)`. The shares of a mean never move; those of a
    max move only where the winner changes, and there the max has no derivative at all.
    """
    if not isinstance(op.reduction, SmoothMax):
        return [None]
    (x,), (dx,) = values, tangents
    beta = fn.constant(op.reduction.beta, x)
    (own,) = op.vjp((x,), grad)
    (shared,) = op.vjp((x,), fn.conform(grad * op.jvp((x,), (dx,)), grad))
    return [fn.conform(beta * (dx * own - shared), x)]


def convolution_curvature(op: Any, values: Any, tangents: Any, grad: Any) -> list[Any]:
    """The value is linear in x and in the weight: the gradient of each moves with the other."""
    x, weight, *_ = op.vjp((*tangents[:2], *values[2:]), grad)
    return [x, weight, None][: len(values)]


CURVATURES: dict[type[Op], Callable[..., list[Any]]] = {
    Pooling: pooling_curvature,
    Convolution: convolution_curvature,
}
"""Kind of op → `(op, operands, tangents, grad)`: the derivative of `vjp(x, g)` in x along the
tangents, one array per operand, None for zeros."""


def _curvature(op: Op) -> Callable[..., list[Any]]:
    for kind in type(op).__mro__:
        if kind in CURVATURES:
            return CURVATURES[kind]
    raise TypeError(
        f"{op!r} has no Hessian-vector product: the derivative of its vjp is not known; "
        f"add lunette.tape.CURVATURES[{type(op).__name__}]"
    )
