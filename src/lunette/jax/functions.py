"""What only JAX has: ops on arrays whose channels are last."""

from __future__ import annotations

from typing import Any

from lunette.jax import calls
from lunette.ops.base import Op

__all__ = ["apply", "apply_with_indices"]


def apply(op: Op, *operands: Any, channels_last: bool = False, backend: str | None = None) -> Any:
    """The op's value. With `channels_last`, x is `(*batch, *pooled, channels)`, and so is the result.

    No array is transposed: the kernels go by channels. Flat positions are those in the pooled axes, as ever.
    """
    return calls.forward(op, operands, backend, channels_last)


def apply_with_indices(
    op: Op, x: Any, channels_last: bool = False, backend: str | None = None
) -> tuple[Any, Any]:
    """A max's or a min's value and the flat positions of its winners in the pooled axes, likewise."""
    value, indices = calls.forward_with_indices(op, (x,), backend, channels_last)
    return value, indices
