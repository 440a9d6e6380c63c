"""The derivative and the transpose of each task, which are tasks again: so derivatives of any order follow.

A mean is linear. A max keeps the offset of each winner, a byte, where a byte is enough, and x otherwise. The shares of a smooth
max, `s = softmax(βx)`, change with x: `∂s_i/∂x_j = β s_i (δ_ij − s_j)`. So along b

- `jvp(x, a) = Σ s·a` changes by `β (jvp(a·b) − jvp(a)·jvp(b))`, its *curvature*;
- `vjp(x, g)`, which spreads `s·g`, changes by `β (b·vjp(g) − vjp(g·jvp(b)))`, its *bend*.
"""

from __future__ import annotations

from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.interpreters import ad

from lunette.jax.cpu.kernels import offsets_are_quick
from lunette.jax.geometry import pooled_lengths
from lunette.jax.primitive import bind, primitive
from lunette.jax.verbs import ADJOINT, OF_VALUES, Task
from lunette.offsets import NOWHERE
from lunette.ops.base import is_float
from lunette.reductions import Max, Mean, Mode, RoundedMean, SmoothMax
from lunette.regions import Sliding

__all__: list[str] = []


def _is_zero(tangent: Any) -> bool:
    return type(tangent) is ad.Zero


def _zeros(values: Any) -> list[Any]:
    return [ad.Zero(jax.typeof(v).to_tangent_aval()) for v in values]


def _jvp(primals: Any, tangents: Any, *, task: Task) -> Any:
    if task.verb in OF_VALUES:
        return _jvp_of_values(primals[0], tangents[0], task)
    # Linear in the last operand; a smooth max's shares change with x, too.
    (value,) = bind(task, *primals)
    parts = []
    if not _is_zero(tangents[-1]):
        parts += bind(task, *primals[:-1], tangents[-1])
    curved = isinstance(task.op.reduction, SmoothMax) and len(primals) == 2
    if curved and not _is_zero(tangents[0]):
        x, last = primals
        change = _curvature if task.verb == "tangents" else _bend
        parts.append(_beta(task, last.dtype) * change(task, x, last, tangents[0]))
    if not parts:
        return [value], _zeros([value])
    return [value], [parts[0] if len(parts) == 1 else parts[0] + parts[1]]


def _jvp_of_values(x: Any, dx: Any, task: Task) -> Any:
    if _is_zero(dx):
        found = bind(task, x)
        return found, _zeros(found)
    op = task.op
    if isinstance(op.reduction, Mode):
        op.check_tangents((x.shape,), (x.dtype,), (x.shape,), (x.dtype,))  # it has none
    if task.verb == "forward" and isinstance(op.reduction, (Mean, RoundedMean)):
        return bind(task, x), bind(task, dx)
    if _keeps_offsets(task, np.dtype(x.dtype)):
        y, offsets = bind(task.instead("offsets"), x)
        found = [y]
        if task.verb == "offsets":
            found = [y, offsets]
        elif task.verb == "indices":
            found = bind(task, x)
        (dy,) = bind(task.instead("taken"), offsets, dx)
    else:
        found = bind(task, x)
        (dy,) = bind(task.instead("tangents"), x, dx)
    return found, [dy, *_zeros(found[1:])]


def _keeps_offsets(task: Task, dtype: np.dtype[Any]) -> bool:
    """Whether a max keeps its winners' offsets: there is one for each window, a byte tells the cells apart, and they are quicker than x."""
    op = task.op
    if op.reduction != Max("first") or task.backend not in (None, "cpu") or not is_float(dtype):
        return False
    kernels = [r.kernel for r in op.regions if isinstance(r, Sliding) and not r.far]
    if len(kernels) < op.rank or prod(kernels) > NOWHERE:
        return False
    return offsets_are_quick(op, dtype.itemsize, task.channels_last)


def _curvature(task: Task, x: Any, a: Any, b: Any) -> Any:
    """How `jvp(x, a)` changes as x moves along b, over β."""

    def along(direction: Any) -> Any:
        return bind(task.instead("tangents"), x, direction)[0]

    return along(a * b) - along(a) * along(b)


def _bend(task: Task, x: Any, grad: Any, b: Any) -> Any:
    """How `vjp(x, grad)` changes as x moves along b, over β."""

    def spread(grad: Any) -> Any:
        return bind(task.instead("gradients"), x, grad)[0]

    (along,) = bind(task.instead("tangents"), x, b)
    return b * spread(grad) - spread(grad * along)


def _beta(task: Task, dtype: Any) -> Any:
    reduction: Any = task.op.reduction
    return jnp.asarray(reduction.beta, dtype)


def _transpose(cotangents: Any, *operands: Any, task: Task) -> list[Any]:
    last, nothing = operands[-1], [None] * (len(operands) - 1)
    if _is_zero(cotangents[0]):
        return [*nothing, ad.Zero(last.aval)]
    verb = ADJOINT[task.verb]
    pooled = None
    if verb in ("gathered", "spread"):
        pooled = pooled_lengths(task.op, last.aval.shape, task.channels_last)
    return [*nothing, *bind(task.instead(verb, pooled), *operands[:-1], cotangents[0])]


ad.primitive_jvps[primitive] = _jvp
ad.primitive_transposes[primitive] = _transpose
