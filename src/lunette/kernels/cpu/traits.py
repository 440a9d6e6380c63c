"""What the windows of a plan are like: the questions that the choice of a kernel asks."""

from __future__ import annotations

from math import prod

from lunette.kernels.cpu.pieces import LARGE
from lunette.kernels.cpu.plan import (
    AXES,
    AXIS_WIDTH,
    BY_LINES,
    DIRECT,
    FOLDED,
    FOLDED_SUM,
    LANES,
    LEVELS,
    LINE,
    MOST_ROWS,
    NEAR,
    PAST,
    SHARED,
    SLACK,
    WINDOW_WIDTH,
    Plan,
    doubles,
)

__all__ = [
    "doubling",
    "few_rows",
    "ladder_cells",
    "near",
    "past_caches",
    "shares_little",
    "straight",
    "way",
]

Shape = tuple[int, ...]


def past_caches(plan: Plan, shape: Shape, size: int, vector: int) -> int:
    """How a result of this shape, of `size` bytes a number, is to go past the caches; 0: not at all.

    `vector` is the bytes of a vector of results. One by one, rows of a line or two are not worth the trouble.
    """
    row = shape[-1] * size
    if prod(shape) * size >= LARGE:
        if vector == LINE and row % LINE == 0:
            plan.table[PAST] = DIRECT
        elif way(plan) or (vector == LINE and row > 3 * LINE):
            plan.table[PAST] = BY_LINES
    return int(plan.table[PAST])


def way(plan: Plan) -> str:
    """How windows lie along the last axis, if so that rows of them can be made together: see `rows_alike`."""
    stride, origin, dilation, kernel = plan.table[AXES + (len(plan.longest) - 1) * AXIS_WIDTH :][
        7:11
    ]
    if dilation != 1 or (stride, kernel) not in ((2, 2), (2, 3), (1, 3)):
        return ""
    if stride == 1:
        return "one"
    return "back" if kernel == 3 and origin == -1 else "ahead"


def doubling(plan: Plan) -> bool:
    """Whether the windows of an axis are summed by doubling."""
    rank = len(plan.longest)
    entries = plan.table[AXES : AXES + rank * AXIS_WIDTH].reshape(rank, AXIS_WIDTH)
    return any(doubles(*entry[[7, 10]].tolist()) for entry in entries)


def straight(plan: Plan) -> bool:
    """Whether the windows of one axis are summed from the input itself."""
    _, _, step, _, _, _, _, stride, _, dilation, kernel, *_ = plan.table[AXES:].tolist()[
        :AXIS_WIDTH
    ]
    near = kernel <= FOLDED_SUM and (stride == 1 or (stride == 2 and kernel > 1))
    alike = len(plan.longest) == 1 and kernel > 0 and dilation == 1
    return bool(alike and (near or doubling(plan)) and step == 1 and plan.table[LANES] == 0)


def ladder_cells(plan: Plan) -> int:
    """Cells of scratch memory that the levels of long sums along the last axis need."""
    kernel = int(plan.table[AXES + (len(plan.longest) - 1) * AXIS_WIDTH + 10])
    return LEVELS * (NEAR + 5 * kernel + 2 * SLACK)


def few_rows(plan: Plan) -> bool:
    """Whether a window is a few rows of small parts of rows, and few windows share a row."""
    rank = len(plan.longest)
    entries = plan.table[AXES : AXES + rank * AXIS_WIDTH].reshape(rank, AXIS_WIDTH)
    cells, step, kernel = prod(entries[:-1, 0].tolist()), entries[-1, 2], entries[-1, 10]
    side_by_side = rank > 1 and step == 1 and plan.table[LANES] == 0
    shared = plan.output_rows * plan.room <= SHARED * cells
    return bool(side_by_side and 0 < kernel <= FOLDED and shared and plan.room <= MOST_ROWS)


def near(plan: Plan) -> bool:
    """Whether windows are short on every axis, or share no cell, and rows can be read in place."""
    rank = len(plan.longest)
    *others, last = plan.table[AXES : AXES + rank * AXIS_WIDTH].reshape(rank, AXIS_WIDTH)
    _, _, step, _, _, _, _, stride, _, dilation, kernel, *_ = last.tolist()
    in_place = step == dilation == 1 and 0 < kernel <= FOLDED and plan.table[LANES] == 0
    in_place = in_place and (stride == 1 or (stride == 2 and kernel > 1))
    return in_place and all(axis[10] <= FOLDED or axis[7] >= axis[10] for axis in others)


def shares_little(plan: Plan) -> bool:
    """Whether windows are long, go by rows that lie side by side, and hold no cell more than twice."""
    rank = len(plan.longest)
    entries = plan.table[AXES : AXES + rank * AXIS_WIDTH].reshape(rank, AXIS_WIDTH)
    cells, outputs, steps, table = (entries[:, i].tolist() for i in (0, 1, 2, 5))
    last = plan.table[table[-1] :][: outputs[-1] * WINDOW_WIDTH].reshape(-1, WINDOW_WIDTH)
    if steps[-1] != 1 or plan.longest[-1] <= FOLDED or (last[:, 2] != 1).any():
        return False
    visited = prod(m * k for m, k in zip(outputs, plan.longest, strict=True))
    return bool(visited <= 2 * prod(cells))
