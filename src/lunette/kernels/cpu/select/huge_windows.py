"""Which windows of a max are taken whole axes at a time."""

from __future__ import annotations

from functools import lru_cache
from math import prod

from lunette.kernels.cpu.schedule.windows import affine, longest
from lunette.kernels.cpu.select.lse_pairs import whole_axis
from lunette.ops.pooling import Pooling
from lunette.reductions import Max
from lunette.regions import Adaptive, Global, Region, Sliding

__all__ = ["huge_max"]

Shape = tuple[int, ...]

MUCH = 1 << 12
"""Visits of a cell past which cell by cell takes too long."""


@lru_cache(maxsize=1024)
def huge_max(op: Pooling, shape: Shape, verb: str) -> bool:
    """Whether windows of a max hold each cell so often that only whole axes at a time take time in proportion to cells.

    There are quick kernels where no window is empty, windows lie alike and only the first winner counts. For a part that is as for the whole, so the bits of sums are.
    """
    if not isinstance(op.reduction, Max) or 0 in shape:
        return False
    axes = [*map(whole_axis, op.regions, shape[len(shape) - op.rank :])]
    reads = [longest(region, n) for region, n in axes]
    outputs = [region.out_length(n) for region, n in axes]
    cells = prod(n for _, n in axes) + prod(outputs)
    if prod(reads) * prod(outputs) // cells <= MUCH:
        return False
    if not all(type(region) in (Sliding, Adaptive, Global) for region, _ in axes):
        return False  # readers of another may lie anyhow
    counting = verb in ("tangents", "gradients") and op.reduction.ties != "first"
    return counting or not all(_quick(region, n) for region, n in axes)


def _quick(region: Region, n: int) -> bool:
    """Whether windows of an axis lie alike, or are few, and none is empty: if the first and the last are not, no other is."""
    outputs = region.out_length(n)
    alike = affine(region, n)[3] > 0 or longest(region, n) * outputs <= 4 * (n + outputs)
    return alike and all(region.window(n, i).real > 0 for i in (0, outputs - 1))
