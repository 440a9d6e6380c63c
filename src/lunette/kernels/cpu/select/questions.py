"""What the choice of a kernel asks of an op, a shape and a dtype, whatever the verb; and calls that several verbs have."""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from lunette.kernels.cpu.jit.cache import Kernels
from lunette.kernels.cpu.program.calls import Call
from lunette.kernels.cpu.schedule.plan import Plan, memory_order
from lunette.kernels.cpu.schedule.slots import MAX, MEAN, MEMBERS, ROW_SIZE, SMOOTH, START, STEP
from lunette.kernels.cpu.schedule.tiling import MOST_CELLS, Tiling, is_affine
from lunette.kernels.cpu.schedule.windows import (
    affine,
    few_cells,
    reach_of_window,
    window_table,
)
from lunette.kernels.cpu.select.lse_nhwc import far_apart
from lunette.kernels.cpu.tuning import (
    ARGMAX_DIRECT_MAX_TAPS,
    DIRECT_MAX_TAPS,
    HORIZONTAL_MIN_TAPS,
    LINE,
    LOOKUP_BATCH,
    SLACK,
)
from lunette.ops.base import is_float
from lunette.ops.pooling import Pooling
from lunette.reductions import Max, Mean, Reduction
from lunette.regions import Region

__all__ = [
    "FEW",
    "by_items",
    "by_output_rows",
    "by_winners",
    "few_and_long",
    "in_bytes",
    "in_elements",
    "is_half",
    "kept_shape",
    "kind_of",
    "marks_are_offsets",
    "real_dtype",
    "result_steps",
    "small_argmax",
    "tiling_of",
    "vector_bytes",
]

Shape = tuple[int, ...]

FEW = 4
"""Outputs of a row that are too few to go side by side; twice as many are if their windows are long."""

whole_items = Kernels("loops.argmax_global")
winners = Kernels("loops.argmax_separable")


def tiling_of(
    op: Pooling, shape: Shape, steps: tuple[Shape, Shape, Shape], dtype: Any, **how: Any
) -> Tiling | None:
    """The tiles of a call whose windows are small and lie alike; None where they do not."""
    if (
        reach_of_window(op, shape) > ARGMAX_DIRECT_MAX_TAPS
        or not is_affine(op, shape)
        or 0 in shape
    ):
        return None
    if kind_of(op.reduction) == SMOOTH and far_apart(op.regions[-1], shape[-1]):
        return None
    size = 4 if is_half(dtype) else dtype.itemsize
    if not is_float(dtype) and not isinstance(op.reduction, Max):
        size = 8
    tiling = Tiling(op, shape, steps, size, **how)
    return None if tiling.empty or tiling.cells > MOST_CELLS else tiling


def small_argmax(op: Pooling, shape: Shape, dtype: Any) -> bool:
    """Whether the winners of windows are found cell by cell, neighbours side by side; always, if a max is smooth."""
    size = 4 if is_half(dtype) else dtype.itemsize
    return not isinstance(op.reduction, Max) or few_cells(op, shape, size)


def marks_are_offsets(op: Pooling, shape: Shape) -> bool:
    """Whether kernels number the cells of windows as `Region.boxes` does, from which offsets are defined.

    They do where windows lie alike. Otherwise they count from the first cell that is there, up to the most that a window
    has; so they do not where padding comes first, nor where no window has all taps.
    """
    return all(map(_numbered_as_boxes, op.regions, shape[len(shape) - op.rank :]))


@lru_cache(maxsize=1024)
def _numbered_as_boxes(region: Region, n: int) -> bool:
    starts, step, taps = region.boxes(n)
    _, origin, dilation, kernel = affine(region, n)
    if kernel:
        return (origin, dilation, kernel) == (starts[0], step, taps)
    windows = window_table(region, n, region.out_length(n))
    alike = (windows[:, MEMBERS] <= 1) | (windows[:, STEP] == step)
    return bool(
        (windows[:, START] == starts).all()
        and alike.all()
        and windows[:, MEMBERS].max(initial=0) == taps
    )


def few_and_long(op: Pooling, shape: Shape, most: int = FEW) -> bool:
    """Whether windows of a max along a row are few and long and share no cell, so that each is best folded by itself.

    Up to `most` of them may be shorter.
    """
    region, n = op.regions[-1], shape[-1]
    stride, _, dilation, kernel = affine(region, n)
    outputs = region.out_length(n)
    alone = dilation == 1 and (outputs == 1 or stride >= kernel)
    long = kernel > (HORIZONTAL_MIN_TAPS if outputs <= most else DIRECT_MAX_TAPS)
    return isinstance(op.reduction, Max) and outputs <= 2 * FEW and long and alone


def by_output_rows(kernel: Any, plan: Plan, shape: Shape, dtype: Any, scratch: int) -> Call:
    """The call of a kernel whose units are rows of outputs."""
    return Call(kernel, plan, shape, dtype, -1, plan.items * plan.output_rows, scratch)


def by_items(plan: Plan, verb: str, ties: str, shape: Shape, dtype: Any) -> Call:
    """The call of a verb of a max whose items have one window each."""
    kernel = whole_items.kernel(dtype.name, verb, ties)
    return Call(kernel, plan, shape, dtype, -1, plan.items, 8 * LOOKUP_BATCH)


def by_winners(plan: Plan, verb: str, shape: Shape, dtype: Any, units: int) -> Call:
    kernel = winners.kernel(dtype.name, verb)
    # Values, marks, and for a gradient the sums of a slab; `room` says where each begins.
    plan.room = plan.scratch_cells + int(plan.table[ROW_SIZE]) + SLACK
    return Call(kernel, plan, shape, dtype, -1, units, 16 * plan.room + 8 * plan.slab_cells + 1024)


def kind_of(reduction: Reduction) -> int:
    if isinstance(reduction, Max):
        return MAX
    return MEAN if isinstance(reduction, Mean) else SMOOTH


def kept_shape(op: Pooling, shape: Shape) -> Shape:
    """The shape of the result with every pooled axis kept."""
    out = op.out_shape(shape)
    return out if op.keepdims else out + (1,) * op.rank


def is_half(dtype: Any) -> bool:
    return dtype.name in ("float16", "bfloat16")


def vector_bytes(dtype: Any) -> int:
    """Bytes of memory that a vector of results has: half a line for half types."""
    return LINE // 2 if is_half(dtype) else LINE


def real_dtype(dtype: Any) -> Any:
    """The dtype of the arithmetic of means."""
    return np.dtype(np.float64 if dtype.itemsize == 8 or not is_float(dtype) else np.float32)


def in_bytes(steps: Shape, dtype: Any) -> Shape:
    return tuple(s * dtype.itemsize for s in steps)


def in_elements(strides: Shape, dtype: Any) -> Shape:
    return tuple(s // dtype.itemsize for s in strides)


def result_steps(shape: Shape, lane: int) -> Shape:
    """Strides of a result that is contiguous in its order of axes, in elements."""
    order = memory_order(len(shape), lane) or tuple(range(len(shape)))
    steps = [0] * len(shape)
    for place, axis in enumerate(order):
        steps[axis] = prod(shape[a] for a in order[place + 1 :])
    return tuple(steps)
