"""What the windows of a plan are like: the questions that the choice of a kernel asks."""

from __future__ import annotations

from math import prod

from lunette.kernels.cpu.schedule.plan import Plan
from lunette.kernels.cpu.schedule.slots import (
    BATCH,
    BATCH_RANK,
    CHANNELS,
    COUNT,
    DIRECT,
    EXTENT,
    LINE_BUFFER,
    STEP,
    STEP_X,
    STREAM,
    TABLE,
    WINDOW_WIDTH,
    entry_of,
    lie_of,
)
from lunette.kernels.cpu.schedule.staging import LARGE
from lunette.kernels.cpu.tuning import (
    ARGMAX_DIRECT_MAX_TAPS,
    DIRECT_MAX_TAPS,
    DIRECT_SUM_MAX_TAPS,
    HORIZONTAL_MIN_TAPS,
    LEVELS,
    LINE,
    MOST_ROWS,
    NARROW_MAX_COLUMNS,
    NEAR,
    ROW_REUSE_MAX,
    SLACK,
)

__all__ = [
    "depth_outer",
    "doubling",
    "few_rows",
    "folds",
    "last_axis",
    "log_step_cells",
    "low_overlap",
    "narrow",
    "nhwc",
    "one_window",
    "single_rows",
    "straight",
    "way",
    "worth_streaming",
]

Shape = tuple[int, ...]

SMALL_PLANE, WAITING = 1 << 14, 1 << 16
"""Bytes of planes that are quicker read one after the other than together, at most; and of results that wait meanwhile."""

FEW_POSITIONS = 3
"""Positions of windows that share none, at most, whose rows are folded together where channels lie side by side. More are
quicker in the order of memory, one axis after the other."""

NARROW = 32
"""Columns of a window that is narrow, whatever the others, at most."""


def worth_streaming(plan: Plan, shape: Shape, size: int, vector: int) -> int:
    """How a result of this shape, of `size` bytes a number, is to go past the caches; 0: not at all.

    `vector` is the bytes of a vector of results. One by one, rows of a line or two are not worth the trouble.
    """
    row = (int(plan.table[CHANNELS]) or shape[-1]) * size
    if prod(shape) * size >= LARGE:
        if vector == LINE and row % LINE == 0:
            plan.table[STREAM] = DIRECT
        elif plan.table[CHANNELS]:
            return 0
        elif way(plan) or (vector == LINE and row > 3 * LINE):
            plan.table[STREAM] = LINE_BUFFER
    return int(plan.table[STREAM])


def way(plan: Plan) -> str:
    """How windows lie along the last axis, if so that rows of them can be made together: see `rows_alike`."""
    stride, origin, dilation, kernel = lie_of(plan.table, len(plan.longest) - 1)
    if dilation != 1 or (stride, kernel) not in ((2, 2), (2, 3), (1, 3)):
        return ""
    if kernel == 2:
        return "pair"
    if stride == 1:
        return "one"
    return "back" if origin == -1 else "ahead"


def folds(plan: Plan) -> str:
    """How the rows of windows that can be made together are folded, where that is known: see `folded_rows`."""
    if not way(plan):
        return ""
    if len(plan.longest) == 2 and lie_of(plan.table, 0)[2:] == (1, 1) and plan.room == 1:
        return "one"
    return "across" if plan.summing and len(plan.longest) == 3 else ""


def doubling(plan: Plan) -> bool:
    """Whether the windows of an axis are folded by doubling; of a max, those along a row do not count."""
    all_axes = plan.summing or bool(plan.table[CHANNELS])
    lies = (lie_of(plan.table, axis) for axis in range(len(plan.longest) - (not all_axes)))
    return any(kernel > max(_few(plan), stride) for stride, _, _, kernel in lies)


def straight(plan: Plan) -> bool:
    """Whether the windows of one axis are summed from the input itself."""
    return len(plan.longest) == 1 and last_axis(plan) in ("near", "long") and _in_place(plan)


def last_axis(plan: Plan) -> str:
    """What windows along the last axis are like: see `row_first` and `column_first`."""
    stride, _, dilation, kernel = lie_of(plan.table, len(plan.longest) - 1)
    if plan.table[CHANNELS]:
        return "lanes"
    if dilation != 1 or kernel == 0 or not (plan.summing or _in_place(plan)):
        return "any"
    if kernel <= _few(plan):
        return "near" if stride == 1 or (stride == 2 and kernel > 1) else "any"
    return "any" if plan.summing and kernel <= stride else "long"


def log_step_cells(plan: Plan) -> int:
    """Cells of scratch memory that the levels of long sums along the last axis need."""
    *_, kernel = lie_of(plan.table, len(plan.longest) - 1)
    return LEVELS * (NEAR + 5 * kernel + 2 * SLACK)


def few_rows(plan: Plan) -> bool:
    """Whether a window is a few rows of small parts of rows, and few windows share a row."""
    stride, *_, kernel = lie_of(plan.table, len(plan.longest) - 1)
    if nhwc(plan) and stride >= kernel > FEW_POSITIONS:
        return False
    side_by_side = len(plan.longest) > 1 and (_in_place(plan) or nhwc(plan))
    cells = prod(_of_axes(plan, EXTENT)[:-1])
    shared = plan.output_rows * plan.room <= ROW_REUSE_MAX * cells
    return bool(
        side_by_side and 0 < kernel <= DIRECT_MAX_TAPS and shared and plan.room <= MOST_ROWS
    )


def depth_outer(plan: Plan, size: int) -> bool:
    """Whether `plane_after_plane` serves windows of a max, and gains; a cell has `size` bytes.

    A window has several planes, which are small; no other reads them. Its results may wait in a near cache.
    """
    if len(plan.longest) < 3 or nhwc(plan) or way(plan) != "pair":
        return False
    *before, _, (_, origin, _, _) = (lie_of(plan.table, axis) for axis in range(len(plan.longest)))
    apart = all(dilation * (kernel - 1) < stride for stride, _, dilation, kernel in before)
    several, of_two_rows = prod(plan.longest[:-2]) > 1, plan.longest[-2] <= 2
    plane = prod(_of_axes(plan, EXTENT)[-2:]) * size
    results = prod(_of_axes(plan, COUNT)[1:]) * size
    small = plane <= SMALL_PLANE and results <= WAITING
    return apart and several and of_two_rows and origin == 0 and small


def nhwc(plan: Plan) -> bool:
    """Whether each position is some lanes side by side, and the next position follows them."""
    lanes = int(plan.table[CHANNELS])
    return 0 < lanes == _of_axes(plan, STEP_X)[-1]


def low_overlap(plan: Plan, searched: bool = False) -> bool:
    """Whether windows are long, go by rows that lie side by side, and hold no cell more than twice.

    Shorter ones are long where they do not lie alike, and where their winners are searched for; not there, if they lie alike, several to a row, and have few cells.
    """
    *_, alike = lie_of(plan.table, len(plan.longest) - 1)
    if plan.longest[-1] <= (
        HORIZONTAL_MIN_TAPS if searched or not alike else DIRECT_MAX_TAPS
    ) or not _side_by_side(plan):
        return False
    several = _of_axes(plan, COUNT)[-1] > 1
    if searched and alike and several and prod(plan.longest) < ARGMAX_DIRECT_MAX_TAPS:
        return False
    return _visited(plan) <= 2 * prod(_of_axes(plan, EXTENT))


def is_global(plan: Plan) -> bool:
    """Whether items have one pooled axis, whose cells lie side by side, and one window of all of these."""
    return one_window(plan) and plan.longest == _of_axes(plan, EXTENT)


def one_window(plan: Plan) -> bool:
    """Whether items have one pooled axis, whose cells lie side by side, and one window of some of these, one after the other."""
    return len(plan.longest) == 1 and _of_axes(plan, COUNT) == [1] and _side_by_side(plan)


def single_rows(plan: Plan) -> bool:
    """Whether each item is a row with one window, and items follow each other in the result: a vector of them is added up at once."""
    side_by_side = plan.table[BATCH_RANK] == 1 and plan.table[BATCH + 2] == 1
    return plan.output_rows == 1 and side_by_side and _of_axes(plan, EXTENT)[0] == 1


def narrow(plan: Plan) -> bool:
    """Whether `narrow_means` serves windows of two axes, one to a row, that share few cells, and gains.

    They have few columns; or not many, and there is one window to an item. Windows that are summed by doubling are
    so whatever the layout, and wherever they are: there may be one to a row because a part has no more.
    """
    if (
        doubling(plan)
        or len(plan.longest) != 2
        or _of_axes(plan, COUNT)[-1] != 1
        or not _side_by_side(plan)
    ):
        return False
    side_by_side = plan.table[BATCH_RANK] == 1 and plan.table[BATCH + 2] == 1
    one_each = plan.output_rows == 1 and side_by_side
    few = plan.longest[-1] <= (NARROW_MAX_COLUMNS if one_each else NARROW) or single_rows(plan)
    return few and _visited(plan) <= 2 * prod(_of_axes(plan, EXTENT))


def _few(plan: Plan) -> int:
    """Cells of windows that are folded one after the other, at most."""
    return DIRECT_SUM_MAX_TAPS if plan.summing else DIRECT_MAX_TAPS


def _side_by_side(plan: Plan) -> bool:
    """Whether the cells of a window on the last axis lie side by side."""
    (*_, outputs), (*_, table) = _of_axes(plan, COUNT), _of_axes(plan, TABLE)
    windows = plan.table[table:][: outputs * WINDOW_WIDTH].reshape(-1, WINDOW_WIDTH)
    return _in_place(plan) and bool((windows[:, STEP] == 1).all())


def _visited(plan: Plan) -> int:
    """Cells of all windows, about."""
    outputs = _of_axes(plan, COUNT)
    return prod(m * k for m, k in zip(outputs, plan.longest, strict=True))


def _of_axes(plan: Plan, what: int) -> list[int]:
    """A number of the entry of each pooled axis."""
    return [int(entry_of(plan.table, axis)[what]) for axis in range(len(plan.longest))]


def _in_place(plan: Plan) -> bool:
    """Whether the cells of a row lie side by side in memory, of one lane."""
    return _of_axes(plan, STEP_X)[-1] == 1 and plan.table[CHANNELS] == 0
