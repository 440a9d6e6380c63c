"""A task as launches of Triton's kernels on described arrays: the verbs that torch's tensors have, without torch."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from math import prod
from typing import Any, NamedTuple

from lunette.jax.geometry import channels_first
from lunette.jax.verbs import Task
from lunette.ops.pooling import Pooling
from lunette.reductions import Max

__all__ = ["Program", "program", "refusal"]

VERBS = {
    "forward": "forward",
    "indices": "forward_with_indices",
    "offsets": "forward_with_offsets",
    "tangents": "jvp",
    "gradients": "vjp",
    "taken": "vjp_from_offsets",
    "gathered": "vjp_from_offsets",
    "spread": "vjp",
}
"""Verb of a task → the kernels' name of what they are asked."""


class Program(NamedTuple):
    """Described operands, described results, and the launches between."""

    operands: list[Any]
    results: list[Any]
    launches: list[Any]


@cache
def _kernels() -> Any:
    """Triton's verbs, and arrays to describe; an ImportError says what is to be installed."""
    verbs = import_module("lunette.kernels.triton")
    return verbs, import_module("lunette.kernels.triton.arrays")


def refusal(task: Task, operands: Any, results: Any) -> str | None:
    """None, or why Triton's kernels do not serve a task on arrays of these shapes and names of types."""
    shape, _ = results[0] if task.verb in ("gathered", "spread") else operands[task.verb == "taken"]
    first = channels_first(task.op, shape, task.channels_last)
    verbs, _ = _kernels()
    names = [name for _, name in operands if name != "uint8"] or ["uint8"]
    found: str | None = verbs.refuses(task.op, VERBS[task.verb], (first,), names)
    return found


def program(task: Task, operands: Any, results: Any, devices: tuple[str, ...]) -> Program:
    """The launches of a task; operands and results are shapes and names of types, `devices` names of GPUs."""
    verbs, arrays = _kernels()
    op, verb = task.op, task.verb
    whole = max(len(shape) for shape, _ in (*operands, *results))

    def given(shape: Any, name: str) -> Any:
        if (
            name not in ("float16", "bfloat16", "float32", "float64")
            and type(op.reduction) is not Max
        ):
            name = "float64"  # as whoever launches makes them
        return arrays.Described(
            _kept(op, shape, whole, task.channels_last), name, None, task.channels_last
        )

    described = [given(*each) for each in operands]
    x, *rest = described
    if verb in ("gathered", "spread"):
        unread = given(*results[0])
    call = {
        "forward": lambda: verbs.forward(op, (x,)),
        "indices": lambda: verbs.forward_with_indices(op, (x,)),
        "offsets": lambda: verbs.forward_with_offsets(op, (x,)),
        "tangents": lambda: verbs.jvp(op, (x,), (rest[0],)),
        "gradients": lambda: verbs.vjp(op, (x,), rest[0])[0],
        "taken": lambda: verbs.jvp_from_offsets(
            op, arrays.Described(x.shape, "uint8", None, x.last, x), rest[0]
        ),
        "gathered": lambda: verbs.vjp_from_offsets(
            op, unread.shape, arrays.Described(x.shape, "uint8", None, x.last, x), rest[0]
        ),
        "spread": lambda: verbs.vjp(op, (unread,), x)[0],
    }[verb]
    found, launches = arrays.launches_of(call, devices=devices)
    made = [found] if len(results) == 1 else list(found)
    assert all(a.numel() == prod(shape) for a, (shape, _) in zip(made, results, strict=True))
    return Program(described, [a.memory for a in made], launches)


def _kept(op: Pooling, shape: Any, whole: int, last: bool) -> Any:
    """A shape with its pooled axes last, of length one where it is without."""
    if len(shape) < whole:
        end = len(shape) - last
        shape = (*shape[:end], *(1,) * op.rank, *shape[end:])
    return channels_first(op, tuple(shape), last)
