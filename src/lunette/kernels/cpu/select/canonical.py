"""The same work on other axes: an op on a shape said anew, so that kernels find longer rows.

Only places in memory and which of them a window reads matter to a kernel, so the arrays stay as they are.
"""

from __future__ import annotations

from math import prod
from typing import NamedTuple

from lunette.kernels.cpu.schedule.plan import in_a_row
from lunette.kernels.cpu.schedule.windows import reach
from lunette.kernels.cpu.tuning import DIRECT_MAX_TAPS
from lunette.ops.pooling import Pool, Pooling
from lunette.reductions import Max
from lunette.regions import Global, Region, Sliding

__all__ = ["ANY_LENGTH", "SameWork", "canonical", "collapse_axes"]

Shape = tuple[int, ...]

MOST_ROWS = 1 << 12
"""Rows that are one item, at most."""

SHORT = 512
"""Cells of a row of one pooled axis up to which many rows are one item."""

ANY_LENGTH, WITH_READERS = (1 << 31) - 1, 1 << 16
"""Positions of an axis that stands for several, at most: as a rule, and where a table has the readers of each."""


class SameWork(NamedTuple):
    """An op on a shape, and the strides of arrays: those of the input's shape, then of the output's."""

    op: Pooling
    shape: Shape
    inputs: tuple[Shape, ...]
    outputs: tuple[Shape, ...]


def canonical(
    op: Pooling,
    shape: Shape,
    inputs: tuple[Shape, ...],
    outputs: tuple[Shape, ...],
    size: int,
    spreads: bool = False,
    values: bool = False,
) -> SameWork:
    """The same work where kernels are quicker at it, on cells of `size` bytes; `spreads`: it is the gradient of a mean;
    `values`: the value alone is wanted.

    That one goes by rows of two axes or more, and best where no two windows share a cell.
    """
    as_it_is = same = SameWork(op, shape, inputs, outputs)
    if spreads:
        same = collapse_axes(*same, size, WITH_READERS) or same
    elif isinstance(op.reduction, Max):  # a sum keeps its order, whatever the layout
        same = collapse_axes(*same, size, ANY_LENGTH) or same
    region, n = same.op.regions[-1], same.shape[-1]
    few_cells = reach(region) <= DIRECT_MAX_TAPS and n <= SHORT
    if values and isinstance(op.reduction, Max) and same.op.rank == 1 and _is_one_run(region, n):
        return same  # a kernel takes several items with one window at once
    disjoint = type(region) is Global or (
        type(region) is Sliding and region.extent <= int(region.stride or 1)
    )
    if few_cells or (spreads and disjoint):
        return split_rows(*same) or as_it_is
    if spreads:
        return as_it_is
    return same if isinstance(op.reduction, Max) else single_rows(*same) or same


def single_rows(
    op: Pooling, shape: Shape, inputs: tuple[Shape, ...], outputs: tuple[Shape, ...]
) -> SameWork | None:
    """Pooling of one axis to one output as that of two, the first of one position: a kernel adds up several such items at once."""
    if op.rank > 1 or op.regions[0].out_length(shape[-1]) != 1:
        return None

    def with_axis(strides: Shape) -> Shape:
        return (*strides[:-1], shape[-1] * strides[-1], strides[-1])

    return SameWork(
        Pool((Global(), *op.regions), op.reduction),
        (*shape[:-1], 1, shape[-1]),
        tuple(map(with_axis, inputs)),
        tuple(map(with_axis, outputs)),
    )


def collapse_axes(
    op: Pooling,
    shape: Shape,
    inputs: tuple[Shape, ...],
    outputs: tuple[Shape, ...],
    size: int,
    longest: int,
) -> SameWork | None:
    """Windows that are all of axes whose cells, of `size` bytes, lie side by side, as one of one axis; so are those of a max that are
    a part of the first axis, where no two of them share a cell.

    None where they are not that, or have more than `longest` cells.
    """
    first = len(shape) - op.rank
    length = prod(shape[first:])
    if (
        op.rank == 1
        or length > longest
        or not all(map(_is_whole, op.regions[1:], shape[first + 1 :]))
    ):
        return None
    region: Region | None = Global()
    if not _is_whole(op.regions[0], shape[first]):
        region = _of_whole_rows(op, shape[first], length // max(1, shape[first]))
    if region is None:
        return None
    if any(not in_a_row(shape[first:], strides[first:], size) for strides in inputs):
        return None
    return SameWork(
        Pool((region,), op.reduction),
        (*shape[:first], length),
        tuple((*strides[:first], size) for strides in inputs),
        tuple(strides[: first + 1] for strides in outputs),
    )


def _of_whole_rows(op: Pooling, n: int, cells: int) -> Region | None:
    """Windows of a max over some of `n` rows, of so many cells each, as windows of cells."""
    region = op.regions[0]
    if type(region) is not Sliding or not isinstance(op.reduction, Max) or region.far:
        return None
    stride, outputs = int(region.stride or 1), region.out_length(n)
    inside = region.dilation == 1 and region.margins(n) == (0, 0) and not region.ceil_mode
    if not inside or (outputs > 1 and stride < region.kernel):
        return None
    found = Sliding(region.kernel * cells, stride * cells)
    return found if found.out_length(n * cells) == outputs else None


def _is_one_run(region: Region, n: int) -> bool:
    """Whether there is one window, of cells one after the other without padding."""
    return (
        type(region) is Sliding
        and region.out_length(n) == 1
        and region.dilation == 1
        and region.margins(n) == (0, 0)
    )


def _is_whole(region: Region, n: int) -> bool:
    """Whether there is one window, of all cells of an axis of length `n` and no padding."""
    return region.out_length(n) == 1 and region.window(n, 0) == Global().window(n, 0)


def split_rows(
    op: Pooling, shape: Shape, inputs: tuple[Shape, ...], outputs: tuple[Shape, ...] = ()
) -> SameWork | None:
    """Pooling along one axis, with one of the batch before it whose windows have one cell; else None.

    Rows that lie alike are then made together. It is the last axis that has more than one position, where that
    is the slower one in memory; or part of it, where it is long.
    """
    batch = shape[:-1]
    while batch and batch[-1] == 1:
        batch = batch[:-1]
    if op.rank > 1 or not batch:
        return None
    if any(abs(s[len(batch) - 1]) < shape[-1] * abs(s[-1]) for s in inputs):
        return None
    rows = next((r for r in range(MOST_ROWS, 1, -1) if batch[-1] % r == 0), 0)
    if not rows:
        return None

    def applied(strides: Shape) -> Shape:
        *others, step = strides[: len(batch)]
        return (*others, step * rows, step, strides[-1])

    return SameWork(
        Pool((Sliding(1), op.regions[0]), op.reduction),
        (*batch[:-1], batch[-1] // rows, rows, shape[-1]),
        tuple(map(applied, inputs)),
        tuple(map(applied, outputs)),
    )
