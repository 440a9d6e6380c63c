"""The verbs over JAX arrays: every refusal of the ops first, while a program is traced, then the primitive."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lunette import dispatch
from lunette.arguments import flag
from lunette.axes import Turn, gradient_fits, shapes_fit
from lunette.inputs import array, names
from lunette.jax import convolution
from lunette.jax import derivatives as _derivatives  # noqa: F401  its rules are registered
from lunette.jax import lowering as _lowering  # noqa: F401
from lunette.jax.geometry import channels_first, is_concrete, out_shape
from lunette.jax.primitive import bind
from lunette.jax.verbs import Task
from lunette.ops.base import Op, kind_of
from lunette.ops.convolution import Convolution
from lunette.ops.pooling import Pooling

__all__ = ["forward", "forward_with_indices", "jvp", "vjp"]

VERBS = {
    "forward": "forward",
    "indices": "forward_with_indices",
    "tangents": "jvp",
    "gradients": "vjp",
}
"""Verb of a task → the dispatcher's name of it."""


def forward(op: Op, operands: Any, backend: str | None = None, channels_last: bool = False) -> Any:
    """The op's value."""
    arrays = _arrays(op, operands)
    if op.axes is not None:
        op, turn, channels_last = _over_last(op, arrays, channels_last)
        found = forward(op, turn.operands(arrays) if turn else arrays, backend, channels_last)
        return turn.result(found) if turn else found
    if isinstance(op, Convolution):
        return convolution.forward(op, arrays, backend, channels_last)
    task = _task("forward", op, arrays, backend, channels_last)
    return bind(task, *arrays)[0]


def forward_with_indices(
    op: Op, operands: Any, backend: str | None = None, channels_last: bool = False
) -> Any:
    """A max's or a min's value and the flat positions of its winners in the pooled axes."""
    arrays = _arrays(op, operands)
    if not isinstance(op, Pooling):
        raise TypeError(f"{op!r}: only a max has indices")
    if op.axes is not None:
        over, turn, channels_last = _over_last(op, arrays, channels_last)
        arrays = turn.operands(arrays) if turn else arrays
        found = forward_with_indices(over, arrays, backend, channels_last)
        return turn.result(found) if turn else found
    task = _task("indices", op, arrays, backend, channels_last)
    value, indices = bind(task, *arrays)
    return value, indices


def jvp(
    op: Op, operands: Any, tangents: Any, backend: str | None = None, channels_last: bool = False
) -> Any:
    """The directional derivative, itself differentiable."""
    arrays, directions = _arrays(op, operands), _arrays(op, tangents, "tangent of ")
    if op.axes is not None:
        over, turn, channels_last = _over_last(op, arrays, channels_last)
        shapes_fit(op, *(tuple(a.shape for a in some) for some in (arrays, directions)))
        op = over
        if turn:
            arrays, directions = turn.operands(arrays), turn.operands(directions)
        found = jvp(op, arrays, directions, backend, channels_last)
        return turn.result(found) if turn else found
    if isinstance(op, Convolution):
        return convolution.jvp(op, arrays, directions, backend, channels_last)
    task = _task("tangents", op, arrays, backend, channels_last)
    if len(arrays) != len(directions):
        raise ValueError(f"{op!r}: {len(arrays)} operands but {len(directions)} tangents")
    _check_tangents(task, arrays[0], directions[0])
    return bind(task, *arrays, *directions)[0]


def vjp(
    op: Op, operands: Any, grad: Any, backend: str | None = None, channels_last: bool = False
) -> tuple[Any, ...]:
    """The gradient in each operand, itself differentiable."""
    arrays, (gradient,) = _arrays(op, operands), (_array(grad, "gradient"),)
    if op.axes is not None:
        if all(is_concrete(a.shape) for a in (*arrays, gradient)):
            gradient_fits(op, tuple(a.shape for a in arrays), gradient.shape)
        op, turn, channels_last = _over_last(op, arrays, channels_last)
        if turn:
            arrays, gradient = turn.operands(arrays), turn.gradient(gradient)
        back = vjp(op, arrays, gradient, backend, channels_last)
        return turn.operands_back(back) if turn else back
    if isinstance(op, Convolution):
        gradients: tuple[Any, ...] = convolution.vjp(op, arrays, gradient, backend, channels_last)
        return gradients
    task = _task("gradients", op, arrays, backend, channels_last)
    _check_gradient(task, arrays[0], gradient)
    return (bind(task, *arrays, gradient)[0],)


# -- axes that are not the last --


def _over_last(op: Op, arrays: Any, channels_last: bool) -> tuple[Op, Turn | None, bool]:
    """The op over the last axes, how to move arrays there, and whether it is enough to say that channels are last."""
    x, *_ = arrays
    if channels_last:
        raise ValueError(f"{op!r} names its axes; expected channels_last=False")
    if all(is_concrete(a.shape) for a in arrays):
        op.out_shape(*(a.shape for a in arrays))
    before_last = tuple(range(x.ndim - 1 - op.rank, x.ndim - 1))
    if op.places(x.ndim) == before_last:
        return op.over_last, None, True
    return op.over_last, Turn(op, moved), False


def moved(x: Any, source: Any, destination: Any) -> Any:
    """The array with some axes moved; its shape may have symbols."""
    return jnp.moveaxis(x, source, destination)


# -- what an op asks of its operands --


def _arrays(op: Op, operands: Any, role: str = "") -> tuple[Any, ...]:
    return tuple(
        _array(x, f"{role}{name}") for x, name in zip(operands, names(op, operands), strict=True)
    )


def _array(x: Any, name: str) -> Any:
    """An operand as JAX's: NumPy's arrays may meet them, in the types of JAX's mode."""
    if not isinstance(x, jax.Array):
        x = array(x, name)
        kind_of(x.dtype, name)
        if x.dtype.kind == "O":
            raise TypeError(f"{name} has dtype object: exact numbers are for NumPy arrays alone")
        return jnp.asarray(x)
    if not isinstance(x.dtype, np.dtype):  # keys of random numbers
        raise TypeError(
            f"{name} has dtype {x.dtype}: expected float16, bfloat16, float32, float64, an integer type or bool"
        )
    kind_of(x.dtype, name)
    return x


def _task(
    verb: str, op: Op, arrays: tuple[Any, ...], backend: str | None, channels_last: bool
) -> Task:
    """The task, after every check of the op's."""
    flag(channels_last, "channels_last")
    if not isinstance(op, Pooling):
        raise TypeError(f"{op!r}: no such op on JAX arrays")
    shapes = tuple(channels_first(op, a.shape, channels_last) for a in arrays)
    types = tuple(np.dtype(a.dtype) for a in arrays)
    if all(map(is_concrete, shapes)):
        dispatch.choose(op, VERBS[verb], shapes, types, backend)
    else:
        dispatch.check_backend(backend)
        if verb == "indices":
            op.check_indices()
        op.result_dtype(*types)
        out_shape(op, arrays[0].shape, channels_last)
    return Task(verb, op, None, channels_last, backend)


def _check_tangents(task: Task, x: Any, dx: Any) -> None:
    op, last = task.op, task.channels_last
    if x.shape != dx.shape or is_concrete(x.shape):
        shape, other = (channels_first(op, a.shape, last) for a in (x, dx))
    else:
        shape = other = ()
    op.check_tangents((shape,), (np.dtype(x.dtype),), (other,), (np.dtype(dx.dtype),))


def _check_gradient(task: Task, x: Any, grad: Any) -> None:
    op, last = task.op, task.channels_last
    types = np.dtype(x.dtype), np.dtype(grad.dtype)
    if is_concrete(x.shape) and is_concrete(grad.shape):
        given = channels_first(op, grad.shape, last) if op.keepdims else grad.shape
        op.check_gradient((channels_first(op, x.shape, last),), types[:1], given, types[1])
        return
    op.check_tangents(((),), types[:1], ((),), types[:1])
    expected = out_shape(op, x.shape, last)
    if grad.shape != expected:
        raise ValueError(f"gradient has shape {grad.shape}; expected the output's {expected}")
