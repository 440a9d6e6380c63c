"""How XLA's partitioners may cut a task: along batch axes, each alike in all arrays; pooled axes are needed whole.

So a program that is sharded over batch or channels alone has no collective, and where pooled axes are sharded they are gathered
first.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
from jaxlib.mlir import ir

from lunette.jax.geometry import is_concrete, pooled_axes
from lunette.jax.verbs import Task

__all__ = ["attributes", "rule"]

LETTERS = "ijklmnopqrstuvwxyz"


def attributes(task: Task, operands: Any, results: Any) -> dict[str, Any] | None:
    """What a custom call says of itself to the partitioners; nothing where shapes have symbols."""
    shapes = [a.shape for a in (*operands, *results)]
    if not all(map(is_concrete, shapes)):
        return None
    ndim = max(map(len, shapes))
    batch = (
        ndim - task.op.rank - task.channels_last
    )  # the older partitioner knows leading axes alone
    found = {
        "mhlo.frontend_attributes": ir.DictAttr.get(
            {"num_batch_dims": ir.StringAttr.get(str(batch))}
        )
    }
    if getattr(jax.config, "jax_use_shardy_partitioner", True):
        text = rule(task, shapes[: len(operands)], shapes[len(operands) :])
        found["sdy.sharding_rule"] = ir.Attribute.parse(text)
    return found


def rule(task: Task, operands: list[Any], results: list[Any]) -> str:
    """The sharding rule, in the words of Shardy."""
    ndim = max(map(len, (*operands, *results)))
    numbers: dict[Any, int] = {}
    sizes: list[int] = []

    def factors(array: int, shape: Any) -> Iterator[str]:
        pooled = pooled_axes(task.op, ndim, task.channels_last) if len(shape) == ndim else ()
        behind = len(shape) - task.channels_last
        for axis, n in enumerate(shape):
            name: Any = ("batch", axis)
            if axis in pooled:
                name = "pooled", array, axis
            elif axis >= behind:
                name = "channels"
            if name not in numbers:
                numbers[name] = len(numbers)
                sizes.append(n)
            yield _letter(numbers[name])

    def mapped(shapes: list[Any], first: int) -> str:
        return ", ".join(
            f"[{', '.join(factors(array, shape))}]" for array, shape in enumerate(shapes, first)
        )

    inputs, outputs = mapped(operands, 0), mapped(results, len(operands))
    lengths = ", ".join(f"{_letter(k)}={n}" for k, n in enumerate(sizes))
    whole = ", ".join(_letter(k) for name, k in numbers.items() if name[0] == "pooled")
    return (
        f"#sdy.op_sharding_rule<({inputs})->({outputs}) {{{lengths}}} need_replication={{{whole}}}>"
    )


def _letter(number: int) -> str:
    return LETTERS[number] if number < len(LETTERS) else f"z_{number - len(LETTERS) + 1}"
