"""The rules of a network: each entry is a shape, a value, and one jvp and one vjp per operand."""

from __future__ import annotations

import math
from itertools import accumulate
from typing import Any

from lunette.tape import functions as fn
from lunette.tape.rules import RULES, Each, Rule, broadcast_shapes, elementwise

__all__ = ["RULES"]

Shape = tuple[int, ...]


# -- arithmetic; g is a gradient of the result, t a tangent of the operand --

RULES["add"] = elementwise(
    lambda a, b: a + b,
    jvp=(lambda t, out, a, b: t, lambda t, out, a, b: t),
    vjp=(lambda g, out, a, b: g, lambda g, out, a, b: g),
)
RULES["sub"] = elementwise(
    lambda a, b: a - b,
    jvp=(lambda t, out, a, b: t, lambda t, out, a, b: -t),
    vjp=(lambda g, out, a, b: g, lambda g, out, a, b: -g),
)
RULES["mul"] = elementwise(
    lambda a, b: a * b,
    jvp=(lambda t, out, a, b: t * b, lambda t, out, a, b: a * t),
    vjp=(lambda g, out, a, b: g * b, lambda g, out, a, b: a * g),
)
RULES["div"] = elementwise(
    lambda a, b: a / b,
    jvp=(lambda t, out, a, b: t / b, lambda t, out, a, b: -(out * t) / b),
    vjp=(lambda g, out, a, b: g / b, lambda g, out, a, b: -(out * g) / b),
)
RULES["neg"] = elementwise(lambda x: -x, jvp=lambda t, out, x: -t, vjp=lambda g, out, x: -g)


# -- functions of one element; the derivatives use no constant, so every number system has them --

RULES["exp"] = elementwise(fn.exp, jvp=lambda t, out, x: t * out, vjp=lambda g, out, x: g * out)
RULES["log"] = elementwise(fn.log, jvp=lambda t, out, x: t / x, vjp=lambda g, out, x: g / x)
RULES["tanh"] = elementwise(
    fn.tanh,
    jvp=lambda t, out, x: t - t * out * out,
    vjp=lambda g, out, x: g - g * out * out,
)
RULES["sigmoid"] = elementwise(
    fn.sigmoid,
    jvp=lambda t, out, x: t * out - t * out * out,
    vjp=lambda g, out, x: g * out - g * out * out,
)
RULES["relu"] = elementwise(
    fn.relu,  # the derivative at 0 is 0
    jvp=lambda t, out, x: fn.select(fn.positive(x), t),
    vjp=lambda g, out, x: fn.select(fn.positive(x), g),
)


# -- matrices: a row for a first operand of one axis, a column for a second --


def matmul_shape(a: Shape, b: Shape) -> Shape:
    if not a or not b:
        raise ValueError("expected operands with at least one axis; mul takes numbers")
    rows, columns = _row(a), _column(b)
    if rows[-1] != columns[-2]:
        raise ValueError(
            f"the last axis of {a} meets the {'last but one' if len(b) > 1 else 'only'} "
            f"axis of {b}: {rows[-1]} is not {columns[-2]}"
        )
    return _drop((*broadcast_shapes(rows[:-2], columns[:-2]), rows[-2], columns[-1]), a, b)


def _row(shape: Shape) -> Shape:
    return (1, *shape) if len(shape) == 1 else shape


def _column(shape: Shape) -> Shape:
    return (*shape, 1) if len(shape) == 1 else shape


def _drop(full: Shape, a: Shape, b: Shape) -> Shape:
    """Without the axes that a row or a column added."""
    columns = full[-1:] if len(b) > 1 else ()
    return full[:-2] + (full[-2:-1] if len(a) > 1 else ()) + columns


def _matrices(g: Any, a: Any, b: Any) -> tuple[Any, Any, Any]:
    """The gradient and the operands, all as matrices."""
    rows, columns = _row(tuple(a.shape)), _column(tuple(b.shape))
    batch = broadcast_shapes(rows[:-2], columns[:-2])
    full = (*batch, rows[-2], columns[-1])
    return fn.reshape(g, full), fn.reshape(a, rows), fn.reshape(b, columns)


def _product(a: Any, b: Any) -> Any:
    left, right = fn.reshape(a, _row(tuple(a.shape))), fn.reshape(b, _column(tuple(b.shape)))
    return fn.reshape(fn.matmul(left, right), matmul_shape(tuple(a.shape), tuple(b.shape)))


def _left_gradient(g: Any, out: Any, a: Any, b: Any) -> Any:
    g, left, right = _matrices(g, a, b)
    return fn.reshape(fn.sum_to(fn.matmul(g, fn.swap_last(right)), left.shape), a.shape)


def _right_gradient(g: Any, out: Any, a: Any, b: Any) -> Any:
    g, left, right = _matrices(g, a, b)
    return fn.reshape(fn.sum_to(fn.matmul(fn.swap_last(left), g), right.shape), b.shape)


RULES["matmul"] = Rule(
    matmul_shape,
    _product,
    jvp=(lambda t, out, a, b: _product(t, b), lambda t, out, a, b: _product(a, t)),
    vjp=(_left_gradient, _right_gradient),
)


def linear_shape(x: Shape, weight: Shape, bias: Shape | None = None) -> Shape:
    if len(weight) != 2:
        raise ValueError(f"weight of shape {weight}: expected (out, in)")
    if not x or x[-1] != weight[1]:
        raise ValueError(
            f"x of shape {x}: expected a last axis of {weight[1]}, as in weight {weight}"
        )
    if bias is not None and bias != weight[:1]:
        raise ValueError(f"bias of shape {bias}: expected {weight[:1]}, as in weight {weight}")
    return (*x[:-1], weight[0])


def _affine(x: Any, weight: Any, bias: Any = None) -> Any:
    y = _linear(x, weight)
    return y if bias is None else y + bias


def _linear(x: Any, weight: Any) -> Any:
    return fn.reshape(fn.matmul(_rows(x), fn.swap_last(weight)), (*x.shape[:-1], weight.shape[0]))


def _rows(x: Any) -> Any:
    """Every vector of the last axis as a row of one matrix."""
    return fn.reshape(x, (math.prod(x.shape[:-1]), x.shape[-1]))


RULES["linear"] = Rule(
    linear_shape,
    _affine,
    jvp=(
        lambda t, out, x, w, b=None: _linear(t, w),
        lambda t, out, x, w, b=None: _linear(x, t),
        lambda t, out, x, w, b=None: fn.broadcast_to(t, out.shape),
    ),
    vjp=(
        lambda g, out, x, w, b=None: fn.reshape(fn.matmul(_rows(g), w), x.shape),
        lambda g, out, x, w, b=None: fn.matmul(fn.swap_last(_rows(g)), _rows(x)),
        lambda g, out, x, w, b=None: fn.sum_axes(_rows(g), (0,)),
    ),
)


# -- sums; axis is a tuple of axes counted from 0, filled in by the tape's method --


def sum_shape(x: Shape, axis: Shape, keepdims: bool) -> Shape:
    if keepdims:
        return tuple(1 if i in axis else n for i, n in enumerate(x))
    return tuple(n for i, n in enumerate(x) if i not in axis)


def _spread(g: Any, out: Any, x: Any, axis: Shape, keepdims: bool) -> Any:
    """The adjoint of a sum: its gradient at every element."""
    return fn.broadcast_to(fn.reshape(g, sum_shape(x.shape, axis, True)), tuple(x.shape))


def _mean(x: Any, axis: Shape, keepdims: bool) -> Any:
    return fn.divide(fn.sum_axes(x, axis, keepdims), _count(x, axis))


def _count(x: Any, axis: Shape) -> int:
    """How many elements a mean takes; the mean of none is 0, as of a window with no cell."""
    return math.prod(x.shape[i] for i in axis) or 1


RULES["sum"] = Rule(
    sum_shape,
    fn.sum_axes,
    jvp=lambda t, out, x, axis, keepdims: fn.sum_axes(t, axis, keepdims),
    vjp=_spread,
)
RULES["mean"] = Rule(
    sum_shape,
    _mean,
    jvp=lambda t, out, x, axis, keepdims: _mean(t, axis, keepdims),
    vjp=lambda g, out, x, axis, keepdims: _spread(
        fn.divide(g, _count(x, axis)), out, x, axis, keepdims
    ),
)


# -- the same elements elsewhere --


def reshape_shape(x: Shape, shape: Shape) -> Shape:
    known = math.prod(n for n in shape if n != -1)
    holes = shape.count(-1)
    if any(n < -1 for n in shape) or holes > 1:
        raise ValueError(f"shape={shape}: expected sizes, and at most one -1")
    if (holes and (known == 0 or math.prod(x) % known)) or (not holes and known != math.prod(x)):
        raise ValueError(f"shape={shape}: does not hold the {math.prod(x)} elements of {x}")
    return tuple(math.prod(x) // known if n == -1 else n for n in shape)


def transpose_shape(x: Shape, axes: Shape) -> Shape:
    return tuple(x[i] for i in axes)


def concatenate_shape(*shapes: Shape, axis: int) -> Shape:
    first = shapes[0]
    for shape in shapes[1:]:
        if len(shape) != len(first) or any(
            a != b for i, (a, b) in enumerate(zip(shape, first, strict=True)) if i != axis
        ):
            raise ValueError(
                f"shapes {first} and {shape}: expected equal lengths on every axis but {axis}"
            )
    return (*first[:axis], sum(shape[axis] for shape in shapes), *first[axis + 1 :])


def _piece(i: int, g: Any, out: Any, *inputs: Any, axis: int) -> Any:
    ends = list(accumulate(x.shape[axis] for x in inputs))
    return fn.slice_of(g, axis, ends[i] - inputs[i].shape[axis], ends[i])


def _placed(i: int, t: Any, out: Any, *inputs: Any, axis: int) -> Any:
    parts = [t if j == i else fn.zeros_like(x) for j, x in enumerate(inputs)]
    return fn.concatenate(parts, axis)


RULES["reshape"] = Rule(
    reshape_shape,
    lambda x, shape: fn.reshape(x, reshape_shape(tuple(x.shape), shape)),
    jvp=lambda t, out, x, shape: fn.reshape(t, out.shape),
    vjp=lambda g, out, x, shape: fn.reshape(g, x.shape),
)
RULES["transpose"] = Rule(
    transpose_shape,
    fn.transpose,
    jvp=lambda t, out, x, axes: fn.transpose(t, axes),
    vjp=lambda g, out, x, axes: fn.transpose(g, tuple(axes.index(i) for i in range(len(axes)))),
)
RULES["concatenate"] = Rule(
    concatenate_shape,
    lambda *inputs, axis: fn.concatenate(inputs, axis),
    jvp=Each(_placed),
    vjp=Each(_piece),
)


# -- losses: means over the batch, and 0 for an empty one --


def mse_shape(prediction: Shape, target: Shape) -> Shape:
    if prediction != target:
        raise ValueError(f"expected one shape for both, got {prediction} and {target}")
    return ()


def _mse(prediction: Any, target: Any) -> Any:
    difference = fn.real(prediction) - fn.real(target)
    axes = tuple(range(len(prediction.shape)))
    return _mean(fn.array(difference * difference), axes, False)


def _slope(prediction: Any, target: Any) -> Any:
    """The derivative of mse in the prediction."""
    difference = fn.array(prediction - target)
    return fn.divide(difference + difference, math.prod(difference.shape) or 1)


def _total(x: Any) -> Any:
    return fn.sum_axes(x, tuple(range(len(x.shape))))


RULES["mse"] = Rule(
    mse_shape,
    _mse,
    jvp=(
        lambda t, out, p, target: _total(t * _slope(p, target)),
        lambda t, out, p, target: -_total(t * _slope(p, target)),
    ),
    vjp=(
        lambda g, out, p, target: g * _slope(p, target),
        lambda g, out, p, target: -(g * _slope(p, target)),
    ),
)


def cross_entropy_shape(logits: Shape, target: Shape) -> Shape:
    if not logits or logits[-1] == 0:
        raise ValueError(f"logits of shape {logits}: expected a last axis of at least one class")
    if target not in (logits[:-1], logits):
        raise ValueError(
            f"target of shape {target}: expected labels of shape {logits[:-1]}, or a probability "
            f"for every class, of shape {logits}"
        )
    return ()


def _is_labels(logits: Any, target: Any) -> bool:
    return len(target.shape) < len(logits.shape)


def _check_labels(logits: Any, target: Any) -> None:
    classes = logits.shape[-1]
    if fn.is_differentiable(target.dtype):
        raise TypeError(
            f"target has dtype {target.dtype}: labels are integers, 0 … {classes - 1}; "
            f"probabilities have the shape of logits, {tuple(logits.shape)}"
        )
    if math.prod(target.shape) and not (int(target.min()) >= 0 and int(target.max()) < classes):
        raise ValueError(
            f"target holds labels {int(target.min())} … {int(target.max())}; "
            f"expected 0 … {classes - 1}, for {classes} classes"
        )


def _cross_entropy(logits: Any, target: Any) -> Any:
    surprise = fn.log_sum_exp(logits) - fn.real(logits)
    if _is_labels(logits, target):
        _check_labels(logits, target)
        terms = fn.select(fn.one_hot(target, logits.shape[-1]), surprise)
    else:
        terms = target * surprise
    return fn.divide(_total(terms), _rows_of(logits))


def _rows_of(logits: Any) -> int:
    return math.prod(logits.shape[:-1]) or 1


def _logits_slope(logits: Any, target: Any) -> Any:
    """The derivative of the loss in the logits: softmax × the target's sum, less the target."""
    softmax = fn.exp(logits - fn.log_sum_exp(logits))
    if _is_labels(logits, target):
        hot = fn.one_hot(fn.primal_of(target), logits.shape[-1])
        slope = softmax - fn.select(hot, fn.constant_like(softmax, 1))
    else:
        whole = fn.sum_axes(target, (len(logits.shape) - 1,), keepdims=True)
        slope = softmax * whole - target
    return fn.divide(slope, _rows_of(logits))


def _target_slope(logits: Any, target: Any) -> Any:
    return fn.divide(fn.log_sum_exp(logits) - fn.real(logits), _rows_of(logits))


RULES["softmax_cross_entropy"] = Rule(
    cross_entropy_shape,
    _cross_entropy,
    jvp=(
        lambda t, out, z, target: _total(t * _logits_slope(z, target)),
        lambda t, out, z, target: _total(t * _target_slope(z, target)),
    ),
    vjp=(
        lambda g, out, z, target: g * _logits_slope(z, target),
        lambda g, out, z, target: g * _target_slope(z, target),
    ),
    labels=_is_labels,
)
