"""The meaning of every op: plain loops, any rank, any number system.

`forward`, `jvp` and `vjp` here are what every kernel must agree with. They take arrays of floats
or integers, and object arrays of anything in `lunette.spec.scalars`: Fractions, python-flint's
rationals and balls, intervals, dual numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lunette.arguments import tuple_of_sizes
from lunette.axes import Turn
from lunette.inputs import array
from lunette.inputs import arrays as arrays_of
from lunette.ops.base import Op, check_is_op
from lunette.ops.convolution import Convolution
from lunette.ops.pooling import Pooling
from lunette.spec import convolution, pooling, scalars
from lunette.spec.duals import Dual
from lunette.spec.intervals import Interval
from lunette.spec.scalars import MissingOperation, Undecided
from lunette.unpooling import checked

__all__ = [
    "Dual",
    "Interval",
    "MissingOperation",
    "Undecided",
    "convolution",
    "forward",
    "forward_with_indices",
    "jvp",
    "meaning",
    "pooling",
    "scalars",
    "unpool",
    "vjp",
]


def forward(op: Op, *operands: Any) -> Any:
    """The op's value."""
    check_is_op(op)
    arrays = arrays_of(op, operands)
    op.check_operands(*_signature(arrays))
    if op.axes is not None:
        turn = Turn(op)
        return turn.result(forward(op.over_last, *turn.operands(arrays)))
    return meaning(op).forward(op, arrays)


def forward_with_indices(op: Op, *operands: Any) -> Any:
    """A max's value, and the flat position in the pooled axes of each window's winner (−1: none)."""
    check_is_op(op)
    arrays = arrays_of(op, operands)
    op.check_indices()
    op.check_operands(*_signature(arrays))
    if op.axes is not None:
        turn = Turn(op)
        return turn.result(forward_with_indices(op.over_last, *turn.operands(arrays)))
    return meaning(op).forward_with_indices(op, arrays)


def jvp(op: Op, operands: Any, tangents: Any) -> Any:
    """The directional derivative; a bare array stands for a single operand."""
    check_is_op(op)
    arrays = arrays_of(op, _tuple(operands))
    directions = arrays_of(op, _tuple(tangents), "tangent of ")
    op.check_operands(*_signature(arrays))
    op.check_tangents(*_signature(arrays), *_signature(directions))
    if op.axes is not None:
        turn = Turn(op)
        moved = turn.operands(arrays), turn.operands(directions)
        return turn.result(jvp(op.over_last, *moved))
    return meaning(op).jvp(op, arrays, directions)


def vjp(op: Op, operands: Any, grad: Any) -> Any:
    """The gradient in each operand; bare for a bare operand, a tuple otherwise."""
    check_is_op(op)
    arrays, gradient = arrays_of(op, _tuple(operands)), array(grad, "gradient")
    op.check_operands(*_signature(arrays))
    op.check_gradient(*_signature(arrays), gradient.shape, gradient.dtype)
    if op.axes is not None:
        turn = Turn(op)
        moved = turn.operands(arrays), turn.gradient(gradient)
        gradients = turn.operands_back(vjp(op.over_last, *moved))
    else:
        gradients = meaning(op).vjp(op, arrays, gradient)
    return gradients if isinstance(operands, tuple) else gradients[0]


def unpool(values: Any, indices: Any, pooled_shape: tuple[int, ...]) -> Any:
    """Zeros of `pooled_shape` on the last axes with each value at its index; −1 goes nowhere."""
    pooled = tuple_of_sizes(pooled_shape, "pooled_shape")
    return pooling.unpool(*checked(values, indices, pooled), pooled)


def meaning(op: Op) -> Any:
    """The module that says what this op means: the verbs over tuples of checked arrays."""
    if isinstance(op, Pooling):
        return pooling
    if isinstance(op, Convolution):
        return convolution
    raise TypeError(f"{op!r}: the specification knows no such op")


def _tuple(operands: Any) -> tuple[Any, ...]:
    return operands if isinstance(operands, tuple) else (operands,)


def _signature(arrays: tuple[np.ndarray[Any, Any], ...]) -> tuple[Any, Any]:
    return tuple(a.shape for a in arrays), tuple(a.dtype for a in arrays)
