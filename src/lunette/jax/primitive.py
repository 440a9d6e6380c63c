"""The one primitive: a task on arrays. What it gives, how it batches, and what to do where nothing is traced.

It is a primitive, not a function with a derivative of its own, for only so has it every transformation of JAX, in any order.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import dtypes
from jax.extend.core import Primitive
from jax.interpreters import batching
from jax.sharding import PartitionSpec

from lunette.jax.geometry import pooled_axes
from lunette.jax.verbs import Task, results
from lunette.jax.versions import varying_alike

__all__ = ["bind", "primitive"]

primitive = Primitive("lunette")
primitive.multiple_results = True


def bind(task: Task, *operands: Any) -> list[Any]:
    """Do a task, or record that it is to be done."""
    found: list[Any] = primitive.bind(*varying_alike(operands), task=task)
    return found


@primitive.def_abstract_eval  # type: ignore[untyped-decorator]
def _abstract(*operands: Any, task: Task) -> list[Any]:
    shapes, types = [a.shape for a in operands], [np.dtype(a.dtype) for a in operands]
    index = dtypes.canonicalize_dtype(np.int64)
    _check_sharding(task, operands)
    return [
        operands[-1].update(
            shape=shape,
            dtype=dtypes.canonicalize_dtype(dtype),
            weak_type=False,
            sharding=_sharding(task, operands[-1], len(shape)),
        )
        for shape, dtype in results(task, shapes, types, index)
    ]


@primitive.def_impl  # type: ignore[untyped-decorator]
def _at_once(*operands: Any, task: Task) -> Any:
    return _compiled(task)(*operands)


@lru_cache(maxsize=4096)
def _compiled(task: Task) -> Any:
    return jax.jit(lambda *operands: primitive.bind(*operands, task=task))


def _batched(operands: Any, axes: Any, *, task: Task) -> Any:
    """Axes before the pooled ones are batch, however many."""
    n = next(x.shape[axis] for x, axis in zip(operands, axes, strict=True) if axis is not None)
    in_front = [
        jnp.broadcast_to(x, (n, *x.shape)) if axis is None else jnp.moveaxis(x, axis, 0)
        for x, axis in zip(operands, axes, strict=True)
    ]
    found = bind(task, *in_front)
    return found, [0] * len(found)


batching.primitive_batchers[primitive] = _batched


# -- shardings that are part of an array's type --


def _axes_of(task: Task, array: Any, most: int) -> range:
    """The pooled axes of an array, if it has them: others have as many axes less."""
    if array.ndim < most:
        return range(0)
    return pooled_axes(task.op, array.ndim, task.channels_last)


def _check_sharding(task: Task, operands: Any) -> None:
    """Pooled axes are needed whole; JAX gathers them by itself unless shardings are explicit."""
    if all(getattr(a.sharding, "mesh", None) is None or a.sharding.mesh.empty for a in operands):
        return
    most = max(a.ndim for a in operands)
    if task.verb == "spread" and not task.op.keepdims:
        return
    for array in operands:
        for axis in _axes_of(task, array, most):
            if array.sharding.spec[axis] is not None:
                raise ValueError(
                    f"{task.op!r}: axis {axis} of shape {array.shape} is pooled, and sharded over "
                    f"{array.sharding.spec[axis]!r}; expected it whole: gather it first, with jax.sharding.reshard"
                )


def _sharding(task: Task, like: Any, ndim: int) -> Any:
    """The sharding of a result: batch axes as in an operand, pooled axes whole."""
    sharding, op, last = like.sharding, task.op, task.channels_last
    if sharding.mesh.empty:
        return None if ndim != like.ndim else sharding
    spec = tuple(sharding.spec)
    if ndim != like.ndim:
        end, cut = len(spec) - last, () if ndim < like.ndim else (None,) * op.rank
        start = end - op.rank if ndim < like.ndim else end
        spec = (*spec[:start], *cut, *spec[end:])
    return sharding.update(spec=PartitionSpec(*spec))
