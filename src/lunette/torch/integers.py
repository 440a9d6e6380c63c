"""Min, mode and rounded mean of tensors: a min is a max turned around, the others are done by NumPy's kernels."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from lunette import dispatch
from lunette.kernels.cpu.integers.verbs import without_cells
from lunette.ops.pooling import Pool, Pooling
from lunette.reductions import Max, Mean, Min, Mode, RoundedMean
from lunette.torch.memory import array_of, tensor_of

__all__ = ["as_known", "forward", "forward_with_indices", "serves", "turned"]


def serves(op: Any) -> bool:
    """Whether an op is one of these."""
    return isinstance(getattr(op, "reduction", None), (Min, Mode, RoundedMean))


def turned(x: Any) -> Any:
    """The same numbers in the other order."""
    return -x if x.is_floating_point() else ~x


def forward(op: Pooling, x: Any, pool: Any, backend: str | None) -> Any:
    """The op's value; `pool` is the forward verb of ops that torch knows."""
    if isinstance(op.reduction, Min):
        value = turned(pool(as_known(op), (turned(x),), backend))
        return without_cells(op, tuple(x.shape), value)
    if isinstance(op.reduction, RoundedMean) and x.is_floating_point():
        return pool(as_known(op), (x,), backend)
    if x.device.type != "cpu":
        raise TypeError(f"{op!r}: expected a tensor on the CPU, got {x.device}; pass x.cpu()")
    result: Tensor = tensor_of(
        dispatch.forward(op, array_of(x.detach().resolve_neg()), backend=backend)
    )
    return result


def forward_with_indices(op: Pooling, x: Any, pool: Any, backend: str | None) -> Any:
    """A min's value and the flat positions of its winners."""
    op.check_indices()
    value, indices = pool(as_known(op), (turned(x),), backend)
    return without_cells(op, tuple(x.shape), turned(value)), indices


def as_known(op: Pooling) -> Pool:
    """The op whose derivatives at `turned(x)`, or of a mean at x, are this one's; a mode has none."""
    if isinstance(op.reduction, Min):
        return Pool(op.regions, Max(op.reduction.ties), op.keepdims)
    if isinstance(op.reduction, RoundedMean):
        return Pool(op.regions, Mean(op.reduction.count_include_pad), op.keepdims)
    raise TypeError(f"{op!r}: a mode has no derivative")
