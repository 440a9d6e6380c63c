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
    """The op's value.

    Parameters
    ----------
    op : Op
        What to compute.
    *operands : array_like
        Floats, integers, or object arrays of exact numbers, intervals, balls or dual numbers.

    Returns
    -------
    numpy.ndarray
        The value, in the numbers of the operands.

    Raises
    ------
    ValueError, TypeError
        With the argument, its value, the axis and the remedy.
    MissingOperation
        Where the numbers lack what the op needs: Fractions have no `exp`.

    Examples
    --------
    >>> from fractions import Fraction
    >>> import numpy as np
    >>> import lunette as ln
    >>> ln.spec.forward(ln.AvgPool((2,)), np.array([Fraction(1, 3), Fraction(1, 6)]))
    array([Fraction(1, 4)], dtype=object)
    """
    check_is_op(op)
    arrays = arrays_of(op, operands)
    op.check_operands(*_signature(arrays))
    if op.axes is not None:
        turn = Turn(op)
        return turn.result(forward(op.over_last, *turn.operands(arrays)))
    return meaning(op).forward(op, arrays)


def forward_with_indices(op: Op, *operands: Any) -> Any:
    """A max's value, and the flat position in the pooled axes of each window's winner (−1: none).

    Parameters
    ----------
    op : Op
        A max or a min.
    *operands : array_like
        x.

    Returns
    -------
    tuple of numpy.ndarray
        The value, and the indices (int64).

    Raises
    ------
    ValueError, TypeError
        Also for an op that has no winners.

    Examples
    --------
    >>> import lunette as ln
    >>> ln.spec.forward_with_indices(ln.MaxPool((2,)), [1.0, 5.0, 3.0, 2.0])
    (array([5., 3.]), array([1, 2]))
    """
    check_is_op(op)
    arrays = arrays_of(op, operands)
    op.check_indices()
    op.check_operands(*_signature(arrays))
    if op.axes is not None:
        turn = Turn(op)
        return turn.result(forward_with_indices(op.over_last, *turn.operands(arrays)))
    return meaning(op).forward_with_indices(op, arrays)


def jvp(op: Op, operands: Any, tangents: Any) -> Any:
    """The directional derivative; a bare array stands for a single operand.

    Parameters
    ----------
    op : Op
        What to differentiate.
    operands : array_like or tuple of array_like
        Where.
    tangents : array_like or tuple of array_like
        A direction of the shape and dtype of each operand.

    Returns
    -------
    numpy.ndarray
        The change of the result.

    Raises
    ------
    ValueError, TypeError
        With the argument, its value, the axis and the remedy.

    Examples
    --------
    >>> import lunette as ln
    >>> ln.spec.jvp(ln.AvgPool((2,)), [1.0, 5.0], [1.0, 0.0])
    array([0.5])
    """
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
    """The gradient in each operand; bare for a bare operand, a tuple otherwise.

    Parameters
    ----------
    op : Op
        What to differentiate.
    operands : array_like or tuple of array_like
        Where.
    grad : array_like
        The gradient of the result, of its shape and dtype.

    Returns
    -------
    numpy.ndarray or tuple of numpy.ndarray
        A gradient for each operand.

    Raises
    ------
    ValueError, TypeError
        With the argument, its value, the axis and the remedy.

    Examples
    --------
    >>> import lunette as ln
    >>> ln.spec.vjp(ln.AvgPool((2,)), [1.0, 5.0], [1.0])
    array([0.5, 0.5])
    """
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
    """Zeros of `pooled_shape` on the last axes with each value at its index; −1 goes nowhere.

    Parameters
    ----------
    values : array_like
        What to write.
    indices : array_like of int
        Where, of the shape of the values: flat positions in the pooled axes.
    pooled_shape : tuple of int
        The lengths of the last axes of the result.

    Returns
    -------
    numpy.ndarray
        Of values with one index, the last is kept.

    Raises
    ------
    ValueError, TypeError
        For an index that is out of range.

    Examples
    --------
    >>> import lunette as ln
    >>> ln.spec.unpool([5.0, 3.0], [1, 2], (4,))
    array([0., 5., 3., 0.])
    """
    pooled = tuple_of_sizes(pooled_shape, "pooled_shape")
    return pooling.unpool(*checked(values, indices, pooled), pooled)


def meaning(op: Op) -> Any:
    """The module that says what this op means: the verbs over tuples of checked arrays.

    Parameters
    ----------
    op : Op
        A pooling or a convolution.

    Returns
    -------
    module
        `lunette.spec.pooling` or `lunette.spec.convolution`.

    Raises
    ------
    TypeError
        For another op.

    Examples
    --------
    >>> import lunette as ln
    >>> ln.spec.meaning(ln.MaxPool((2,))).__name__
    'lunette.spec.pooling'
    """
    if isinstance(op, Pooling):
        return pooling
    if isinstance(op, Convolution):
        return convolution
    raise TypeError(f"{op!r}: the specification knows no such op")


def _tuple(operands: Any) -> tuple[Any, ...]:
    return operands if isinstance(operands, tuple) else (operands,)


def _signature(arrays: tuple[np.ndarray[Any, Any], ...]) -> tuple[Any, Any]:
    return tuple(a.shape for a in arrays), tuple(a.dtype for a in arrays)
