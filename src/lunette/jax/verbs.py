"""What each verb of the primitive takes and gives, and how NumPy's interpreters do it.

| verb | operands | results |
|---|---|---|
| `forward` | x | y |
| `indices` | x | y, flat positions of the winners |
| `offsets` | x | y, offsets of the winners in their windows: a byte each |
| `tangents` | x, dx | dy |
| `gradients` | x, gy | gx |
| `taken` | offsets, dx | dy: the cells of dx at the winners |
| `gathered` | offsets, gy | gx, of an input whose pooled axes have the lengths `pooled` |
| `spread` | gy | gx of a mean, likewise |

All but the first three are linear in the last operand.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from lunette import dispatch
from lunette import offsets as kept
from lunette.jax.geometry import Shape, out_shape, pooled_axes
from lunette.ops.pooling import Pooling

__all__ = ["ADJOINT", "OF_VALUES", "Task", "compute", "results"]

Array = np.ndarray[Any, Any]

OF_VALUES = ("forward", "indices", "offsets")
"""Verbs whose first result is the op's value."""

ADJOINT = {
    "forward": "spread",  # of a mean
    "spread": "forward",
    "taken": "gathered",
    "gathered": "taken",
    "tangents": "gradients",
    "gradients": "tangents",
}
"""The verb that is the transpose of one in its last operand."""


class Task(NamedTuple):
    """What the primitive is to do, but for its arrays.

    Parameters
    ----------
    verb : str
        What to compute: "forward", "indices", "tangents", "gradients", …
    op : Pooling
        Of which op.
    pooled : tuple of int, optional
        Lengths of the pooled axes of the input, where no operand has them.
    channels_last : bool, default False
        Whether the channels are the last axis.
    backend : str, optional
        Who computes.

    Examples
    --------
    >>> import lunette as ln
    >>> ln.jax.Task("forward", ln.MaxPool((2,)))
    Task('forward', MaxPool((2,)))
    """

    verb: str
    op: Pooling
    pooled: Shape | None = None
    """Lengths of the pooled axes of the input, where no operand has them."""
    channels_last: bool = False
    backend: str | None = None

    def __repr__(self) -> str:
        options = {
            "pooled": self.pooled,
            "channels_last": self.channels_last,
            "backend": self.backend,
        }
        named = [f"{name}={value!r}" for name, value in options.items() if value]
        return f"Task({', '.join([repr(self.verb), repr(self.op), *named])})"

    def instead(self, verb: str, pooled: Shape | None = None) -> Task:
        """Another verb of the same op."""
        return self._replace(verb=verb, pooled=pooled)


def results(task: Task, shapes: Any, dtypes: Any, index: Any) -> list[tuple[Shape, Any]]:
    """Shape and dtype of each result; `index` is the dtype of indices, and dtypes are those of NumPy."""
    verb, op, last = task.verb, task.op, task.channels_last
    if verb in ("gathered", "spread"):
        assert task.pooled is not None
        return [(input_shape(task, shapes[-1]), dtypes[-1])]
    if verb == "gradients":
        return [(tuple(shapes[0]), dtypes[0])]
    shape = out_shape(op, shapes[-1], last)
    if verb == "forward":
        return [(shape, op.result_dtype(dtypes[0]))]
    if verb in ("tangents", "taken"):
        return [(shape, dtypes[-1])]
    places = np.dtype(np.uint8) if verb == "offsets" else index
    return [(shape, dtypes[0]), (shape, places)]


def input_shape(task: Task, out: Shape) -> Shape:
    """The shape of the input whose value has the shape `out`."""
    assert task.pooled is not None
    if not task.op.keepdims:
        end = len(out) - task.channels_last
        return (*out[:end], *task.pooled, *out[end:])
    axes = pooled_axes(task.op, len(out), task.channels_last)
    return (*out[: axes.start], *task.pooled, *out[axes.stop :])


def compute(task: Task, operands: list[Array], found: list[Array]) -> None:
    """Do a task in NumPy, into arrays for its results."""
    verb, op, backend = task.verb, task.op, task.backend
    if task.channels_last:
        ndim = max(a.ndim for a in (*operands, *found))  # a value may be without the pooled axes
        operands = [_first(op, a) if a.ndim == ndim else a for a in operands]
        found = [_first(op, a) if a.ndim == ndim else a for a in found]
    x = operands[0]
    if verb == "forward":
        made: tuple[Array, ...] = (dispatch.forward(op, x, backend=backend),)
    elif verb == "indices":
        made = dispatch.forward_with_indices(op, x, backend=backend)
    elif verb == "offsets":
        made = kept.forward_with_offsets(op, x)
    elif verb == "tangents":
        made = (dispatch.jvp(op, x, operands[1], backend=backend),)
    elif verb == "gradients":
        made = (dispatch.vjp(op, x, operands[1], backend=backend),)
    elif verb == "taken":
        made = (kept.jvp_from_offsets(op, x, operands[1]),)
    elif verb == "gathered":
        # These are offsets that the op itself gave, unless a program was made by hand.
        made = (kept.vjp_from_offsets(op, x, operands[1], found[0].shape),)
    else:
        nothing = np.broadcast_to(np.zeros((), x.dtype), found[0].shape)
        made = (dispatch.vjp(op, nothing, x, backend=backend),)
    for target, source in zip(found, made, strict=True):
        np.copyto(target, source, casting="unsafe")  # narrower where JAX is not in 64-bit mode


def _first(op: Pooling, a: Array) -> Array:
    """An array with its channels before the pooled axes; a view."""
    return np.moveaxis(a, -1, a.ndim - 1 - op.rank)
