"""The rows for values: which kernel pools, by op, shape, layout and dtype; selected once and remembered."""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any

from lunette.kernels.cpu.jit.cache import Kernels
from lunette.kernels.cpu.layout.batch_interleave import Operand, in_parts
from lunette.kernels.cpu.layout.split_axis import long_outputs
from lunette.kernels.cpu.program.calls import Call, QuickCall, TiledCall
from lunette.kernels.cpu.schedule.plan import Plan
from lunette.kernels.cpu.schedule.properties import (
    depth_outer,
    doubling,
    few_rows,
    folds,
    last_axis,
    log_step_cells,
    low_overlap,
    narrow,
    nhwc,
    one_window,
    single_rows,
    straight,
    way,
    worth_streaming,
)
from lunette.kernels.cpu.schedule.slots import MAX, MEAN, SMOOTH
from lunette.kernels.cpu.schedule.windows import reach
from lunette.kernels.cpu.select.lse_nhwc import beta_positive, value_nhwc
from lunette.kernels.cpu.select.lse_pairs import lse_by_pairs, pairs_call
from lunette.kernels.cpu.select.questions import (
    by_output_rows,
    kept_shape,
    real_dtype,
    result_steps,
    vector_bytes,
)
from lunette.kernels.cpu.select.table import FINITE, SMALL_ITEMS, Problem, Row, Verdict, select
from lunette.kernels.cpu.tuning import BAND_BYTES, DIRECT_SUM_MAX_TAPS, LINE, NARROW_SCRATCH_BYTES
from lunette.ops.pooling import Pooling
from lunette.regions import Adaptive

__all__ = ["ROWS", "forward_call"]

Shape = tuple[int, ...]

fold_depth_outer = Kernels("loops.fold_depth_outer")
fold_nchw = Kernels("loops.fold_nchw")
fold_nhwc = Kernels("loops.fold_nhwc")
lse_nchw = Kernels("loops.lse_nchw")
max_separable = Kernels("loops.max_separable")
mean_1d = Kernels("loops.mean_1d")
mean_narrow = Kernels("loops.mean_narrow")
reduce_window = Kernels("loops.reduce_window")
reference = Kernels("reference")
sum_separable = Kernels("loops.sum_separable")


@lru_cache(maxsize=1024)
def forward_call(
    op: Pooling,
    shape: Shape,
    strides: Shape,
    dtype: Any,
    speculative: bool = True,
    as_it_lies: bool = False,
) -> Any:
    """The program for values; None where there are too many outputs on an axis for one.

    Where it is not speculative, any NaN or infinity is served. Work on an array `as_it_lies` gives a result whose
    axes lie as those of the array do: nothing is interleaved, or collapsed into other axes.
    """
    if long_outputs(op, shape):
        return None
    problem = Problem("forward", op, shape, strides, strides, dtype, speculative, as_it_lies)
    return select(ROWS, problem)


def _again(p: Problem) -> Any:
    """What makes the program for items that a speculative one flags."""
    return partial(forward_call, p.op, p.shape, p.strides, p.dtype, False, p.as_it_lies)


def _pairs(p: Problem) -> Verdict:
    if not lse_by_pairs(p.op, p.shape, "values"):
        return p.not_a(SMOOTH) or "windows of at most 64 taps, dilated, or with an empty one"
    return pairs_call(p.op, "forward", p.shape, p.strides, p.strides, p.dtype)


def _interleaved(p: Problem) -> Verdict:
    if not p.speculative:
        return FINITE
    if p.as_it_lies:
        return "the result has to lie as the input does"
    operands = [
        Operand("r", p.shape, p.dtype, p.strides),
        Operand("w", p.out, p.op.result_dtype(p.dtype)),
    ]
    program = in_parts(
        p.op, p.shape, operands, "values", lambda *part: forward_call(p.op, *part, p.dtype)
    )
    if program is None:
        return SMALL_ITEMS
    program.again = lambda part, strides: forward_call(p.op, part, strides, p.dtype, False)
    return program


def _lse_nhwc(p: Problem) -> Verdict:
    if why := p.not_a(SMOOTH):
        return why
    if not p.lse_nhwc:
        return "channels are few or not contiguous, or windows irregular or large"
    return (
        value_nhwc(p.op, "forward", p.lse_nhwc, p.out, p.dtype, _again(p))
        if p.speculative
        else FINITE
    )


def _lse_nchw(p: Problem) -> Verdict:
    if why := p.not_a(SMOOTH):
        return why
    if p.lse_nhwc:
        return "channels are contiguous"
    if not p.speculative:
        return FINITE
    if p.tiling is None:
        return "windows irregular, large or far apart, or one is empty"
    kernel = lse_nchw.kernel(p.dtype.name, "forward", beta_positive(p.op))
    return TiledCall([(kernel, p.tiling)], p.out, p.op.result_dtype(p.dtype), _again(p))


# -- mean --


def _mean_narrow(p: Problem) -> Verdict:
    if why := p.not_a(MEAN):
        return why
    if p.lane >= 0 or p.plan.empty or not narrow(p.plan):
        return "more than one window to a row, wide ones, or columns that are not contiguous"
    plan, kernel = p.plan, mean_narrow.kernel(p.dtype.name)
    result = p.op.result_dtype(p.dtype)
    call = by_output_rows(kernel, plan, p.out, result, NARROW_SCRATCH_BYTES)
    plan.room = 1
    if single_rows(plan):  # a unit is as many items as a vector has lanes; `room` says how many
        plan.room = LINE // real_dtype(p.dtype).itemsize
        call.units = -(-plan.items // plan.room)
    return call


def _folds_sums(p: Problem) -> bool:
    """Whether the rows of windows are added as they are read, and then along the row."""
    op = p.same.op
    volume = op.rank == 3 and way(p.plan) != "" and not nhwc(p.plan)
    if not (few_rows(p.plan) and (op.rank == 2 or volume)):
        return False
    taps = map(reach, op.regions[:-1])
    if nhwc(p.plan) and all(type(r) is Adaptive for r in op.regions):
        taps = map(int, p.plan.longest[:-1])  # these are never summed by doubling
    return all(k <= DIRECT_SUM_MAX_TAPS for k in taps)


def _mean_fold(p: Problem, channels: bool) -> Verdict:
    if why := p.not_a(MEAN):
        return why
    if nhwc(p.plan) != channels:
        return "channels are not contiguous" if channels else "channels are contiguous"
    if not _folds_sums(p):
        return "one axis, or windows of many rows, or rows that many windows share"
    kernel, units = _folded(p.plan, p.dtype, "add"), p.plan.items * p.plan.folded_tiles
    return _mean(p, kernel, units, p.plan.folded_bytes, True)


def _mean_1d(p: Problem) -> Verdict:
    if why := p.not_a(MEAN):
        return why
    if not straight(p.plan):
        return "more than one axis, or windows that are dilated, irregular or not contiguous"
    return _summed(p, mean_1d.kernel(p.dtype.name, doubling(p.plan)))


def _mean_separable(p: Problem) -> Verdict:
    if why := p.not_a(MEAN):
        return why
    kernel = sum_separable.kernel(p.dtype.name, last_axis(p.plan), doubling(p.plan))
    return _summed(p, kernel)


def _summed(p: Problem, kernel: Any) -> Call:
    scratch = 8 * (p.plan.sum_cells + log_step_cells(p.plan))
    return _mean(p, kernel, p.plan.items * p.plan.tiles, scratch, False)


def _mean(p: Problem, kernel: Any, units: int, scratch: int, folded: bool) -> Call:
    """A program for means; after the sums in scratch memory, the levels of long windows, where `room` says."""
    plan, result = p.plan, p.op.result_dtype(p.dtype)
    plan.room = plan.sum_cells
    call = Call(kernel, plan, p.out, result, p.lane, units, scratch)
    if folded and worth_streaming(plan, p.out, result.itemsize, vector_bytes(p.dtype)):
        return call
    call.in_pieces(plan.folded_edges if folded else plan.tile_edges, 1)
    if call.pieces is None:
        worth_streaming(plan, p.out, result.itemsize, vector_bytes(p.dtype))
    return call


# -- max --


def _not_max(p: Problem) -> str | None:
    return p.not_a(MAX) or ("a window has no cell" if p.plan.empty else None)


def _max_window(p: Problem) -> Verdict:
    if why := _not_max(p):
        return why
    if p.lane >= 0 or not (low_overlap(p.plan) or one_window(p.plan)):
        return "windows that are short, or share more than half of their cells, or columns that are not contiguous"
    kernel = reduce_window.kernel(p.dtype.name, "forward", "")
    return by_output_rows(kernel, p.plan, p.out, p.dtype, BAND_BYTES)


def _not_folded(p: Problem) -> str | None:
    if why := _not_max(p):
        return why
    if not p.speculative:
        return FINITE
    return (
        None
        if few_rows(p.plan)
        else "one axis, windows of many taps, or rows that many windows share"
    )


def _max_depth_outer(p: Problem) -> Verdict:
    if why := _not_folded(p):
        return why
    if not depth_outer(p.plan, p.dtype.itemsize):
        return "not 2×2 windows over several small planes that no two share"
    return _quick(p, fold_depth_outer.kernel(p.dtype.name), True).in_pieces(p.plan.folded_edges, 1)


def _max_fold(p: Problem, channels: bool) -> Verdict:
    if why := _not_folded(p):
        return why
    if nhwc(p.plan) != channels:
        return "channels are not contiguous" if channels else "channels are contiguous"
    call = _quick(p, _folded(p.plan, p.dtype, "max_num"), True)
    # Halves are folded as integers: a vector of them is a line.
    streams = worth_streaming(p.plan, p.out, p.dtype.itemsize, LINE)
    return call if streams else call.in_pieces(p.plan.folded_edges, 1)


def _max_separable(p: Problem) -> Verdict:
    if why := _not_max(p):
        return why
    if not p.speculative:
        return FINITE
    return _quick(p, _separable(p, "max_num"), False).in_pieces(p.plan.tile_edges, 1)


def _max_nan(p: Problem) -> Verdict:
    return _not_max(p) or _by_tiles(p, _separable(p, "maximum"))


def _separable(p: Problem, operation: str) -> Any:
    return max_separable.kernel(p.dtype.name, operation, last_axis(p.plan), doubling(p.plan))


def _by_tiles(p: Problem, kernel: Any) -> Call:
    units, scratch = p.plan.items * p.plan.tiles, 8 * p.plan.scratch_cells
    return Call(kernel, p.plan, p.out, p.dtype, p.lane, units, scratch)


def _quick(p: Problem, kernel: Any, folds_rows: bool) -> QuickCall:
    """A speculative program: items with a NaN are done again, those with zeros of both signs in order."""
    units, scratch = p.plan.items * p.plan.tiles, 8 * p.plan.scratch_cells
    if folds_rows:
        units, scratch = p.plan.items * p.plan.folded_tiles, p.plan.folded_bytes
    call = QuickCall(kernel, p.plan, p.out, p.dtype, p.lane, units, scratch)
    call.again = _again(p)
    call.in_order = lambda: _by_tiles(p, _separable(p, "max_num"))
    return call


def _folded(plan: Plan, dtype: Any, operation: str) -> Any:
    """The kernel that folds the rows of a window first."""
    if nhwc(plan):
        return fold_nhwc.kernel(dtype.name, operation)
    return fold_nchw.kernel(dtype.name, operation, way(plan), folds(plan))


def _reference(p: Problem) -> Verdict:
    op, shape, *_ = p.same
    lane = p.lane if p.kind == SMOOTH else -1
    y_steps = result_steps(kept_shape(op, shape), lane)
    plan = Plan(op, shape, (p.steps, y_steps, y_steps))
    kernel, units = (
        reference.value_kernel(p.dtype.name, p.kind, False),
        plan.items * plan.output_rows,
    )
    return Call(kernel, plan, p.out, op.result_dtype(p.dtype), lane, units, 24 * plan.room)


ROWS = (
    Row(
        "lse-fwd-any-pairs",
        "log-sum-exp of windows of more than 64 taps, merged as pairs of maximum and sum by log steps",
        _pairs,
    ),
    Row(
        "any-fwd-interleave",
        "many small items, interleaved a batch at a time as if they were channels",
        _interleaved,
    ),
    Row(
        "lse-fwd-nhwc",
        "log-sum-exp of small affine windows, vectors over contiguous channels",
        _lse_nhwc,
    ),
    Row("lse-fwd-nchw", "log-sum-exp of small affine windows, tiles of rows", _lse_nchw),
    Row("mean-fwd-nchw-narrow", "one narrow window to a row: several items at once", _mean_narrow),
    Row(
        "mean-fwd-nhwc-fold",
        "small windows: rows added as they are read, vectors over contiguous channels",
        partial(_mean_fold, channels=True),
    ),
    Row(
        "mean-fwd-nchw-fold",
        "small windows: rows added as they are read, then along the row",
        partial(_mean_fold, channels=False),
    ),
    Row("mean-fwd-nchw-1d", "one axis, summed from the input where it lies", _mean_1d),
    Row(
        "mean-fwd-any-separable",
        "any windows: down the columns first, along rows last; long ones by log steps",
        _mean_separable,
    ),
    Row(
        "max-fwd-nchw-reduce-window",
        "long windows that share few cells: global, adaptive, stride as long as the window",
        _max_window,
    ),
    Row(
        "max-fwd-nchw-fold-depth-outer",
        "2×2 windows over several small planes, plane by plane",
        _max_depth_outer,
    ),
    Row(
        "max-fwd-nhwc-fold",
        "small windows, vectors over contiguous channels",
        partial(_max_fold, channels=True),
    ),
    Row(
        "max-fwd-nchw-fold",
        "small windows: rows reduced as they are read, then along the row (k2s2, k3s2, k3s1, any)",
        partial(_max_fold, channels=False),
    ),
    Row(
        "max-fwd-any-separable",
        "any windows without NaN: along rows first, then down; long ones by van Herk or log steps",
        _max_separable,
    ),
    Row("max-fwd-any-separable-nan", "the same, with NaN and zeros of both signs", _max_nan),
    Row("any-fwd-reference", "everything, cell by cell", _reference),
)
