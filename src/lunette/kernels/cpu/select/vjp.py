"""The rows for gradients: by op, shape, layout and dtype; selected once and remembered."""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any

import numpy as np

from lunette.kernels.cpu.jit.cache import Kernels
from lunette.kernels.cpu.layout.batch_interleave import Operand, in_parts, ties_count
from lunette.kernels.cpu.program.calls import (
    ArgmaxGradient,
    Call,
    LseGradient,
    NhwcGradient,
    ScatteredGradient,
    TiledCall,
)
from lunette.kernels.cpu.schedule.nhwc import NhwcPlan, nhwc_plan
from lunette.kernels.cpu.schedule.plan import Plan, channel_axis
from lunette.kernels.cpu.schedule.properties import worth_streaming
from lunette.kernels.cpu.schedule.slots import DIRECT, MAX, MEAN, SMOOTH
from lunette.kernels.cpu.schedule.tiling import MOST_CELLS
from lunette.kernels.cpu.schedule.windows import affine
from lunette.kernels.cpu.select.argmax import by_lanes, not_searched
from lunette.kernels.cpu.select.lse_nhwc import beta_positive, gradient_nhwc
from lunette.kernels.cpu.select.lse_pairs import lse_by_pairs, pairs_call
from lunette.kernels.cpu.select.questions import (
    FEW,
    by_items,
    by_output_rows,
    by_winners,
    in_bytes,
    in_elements,
    kept_shape,
    marks_are_offsets,
    real_dtype,
    result_steps,
    tiling_of,
    vector_bytes,
)
from lunette.kernels.cpu.select.table import FINITE, SMALL_ITEMS, Problem, Row, Verdict, select
from lunette.kernels.cpu.select.tied_nhwc import tied_gradient
from lunette.kernels.cpu.tuning import ARGMAX_DIRECT_MAX_TAPS, BAND_BYTES, LINE
from lunette.ops.pooling import Pooling

__all__ = ["ROWS", "gather_call", "gradient_call"]

Shape = tuple[int, ...]

FEW_READERS, ENOUGH_LINES = 9, 3
"""Where shares of a mean's gradient are added up at once and not axis by axis: outputs that read a position, at most,
and lines of channels, at least."""

NOT_NHWC = "channels are few or not contiguous, or windows share many cells"
ALL_WINNERS = "all winners count, not the first alone"

argmax_nchw = Kernels("loops.argmax_nchw")
lse_gather_nchw = Kernels("loops.lse_gather_nchw")
lse_nchw = Kernels("loops.lse_nchw")
max_gather_nchw = Kernels("loops.max_gather_nchw")
max_gather_nhwc = Kernels("loops.max_gather_nhwc")
max_scatter = Kernels("loops.max_scatter")
max_scatter_nhwc = Kernels("loops.max_scatter_nhwc")
mean_gather_nhwc = Kernels("loops.mean_gather_nhwc")
mean_upsample = Kernels("loops.mean_upsample")
mean_vjp = Kernels("loops.mean_vjp")
reduce_window = Kernels("loops.reduce_window")
reference = Kernels("reference")


@lru_cache(maxsize=1024)
def gradient_call(
    op: Pooling, shape: Shape, strides: Shape, grad: Shape, dtype: Any, speculative: bool = True
) -> Any:
    """The program for gradients of cells."""
    return select(ROWS, Problem("vjp", op, shape, strides, grad, dtype, speculative))


def _again(p: Problem) -> Any:
    return partial(gradient_call, p.op, p.shape, p.strides, p.other, p.dtype, False)


def _pairs(p: Problem) -> Verdict:
    if not lse_by_pairs(p.op, p.shape, "gradients"):
        return p.not_a(SMOOTH) or "windows of at most 64 taps, dilated, or with an empty one"
    return pairs_call(p.op, "vjp", p.shape, p.strides, p.other, p.dtype)


def _interleaved(p: Problem) -> Verdict:
    if not p.speculative:
        return FINITE
    operands = [
        Operand("-" if p.kind == MEAN else "r", p.shape, p.dtype, p.strides),
        Operand("r", p.out, p.dtype, p.other),
        Operand("w", p.shape, p.dtype),
    ]
    sure = not ties_count(p.op, "gradients")
    program = in_parts(
        p.op,
        p.shape,
        operands,
        "gradients",
        lambda *part: gradient_call(p.op, *part, p.dtype, sure),
    )
    if program is None:
        return SMALL_ITEMS
    program.again = lambda part, *read: gradient_call(p.op, part, *read, p.dtype, False)
    return program


def _max_nhwc(p: Problem, by_tap: bool) -> Verdict:
    """Taps and gathering, or where a byte does not tell the cells of a window apart, places and scattering."""
    if p.ties != "first":
        return p.not_a(MAX) or ALL_WINNERS
    if not p.max_nhwc:
        return NOT_NHWC
    plan, lane = p.max_nhwc
    if by_tap != (plan.cells <= MOST_CELLS):
        return "windows of more than 255 taps" if by_tap else "windows of at most 255 taps"
    if by_tap:
        found = by_lanes(plan, lane, "offsets", p.out, p.dtype, np.dtype(np.uint8))
        return NhwcGradient(found, _gather_nhwc(plan, lane, p.shape, p.dtype))
    found = by_lanes(plan, lane, "places", p.out, p.dtype, np.dtype(np.int64))
    kernel, units = max_scatter_nhwc.kernel(p.dtype.name), plan.items * plan.slabs
    scatter = Call(kernel, plan, p.shape, p.dtype, lane, units, 8 * plan.slab_cells)
    return NhwcGradient(found, scatter)


def _tied_nhwc(p: Problem) -> Verdict:
    program = tied_gradient(p.op, p.shape, p.strides, p.other, p.dtype, p.out, p.speculative)
    return program or "the first winner alone counts, or channels are not contiguous"


def _lse_nhwc(p: Problem) -> Verdict:
    if not p.lse_nhwc:
        return p.not_a(SMOOTH) or NOT_NHWC
    if not p.speculative:
        return FINITE
    return gradient_nhwc(p.op, p.lse_nhwc, p.shape, p.out, p.dtype, _again(p))


# -- mean --


def _mean(p: Problem, kernels: Kernels) -> Verdict:
    """Shares of a mean, by the kernels that are quickest for its windows; readers of a cell are at equal steps."""
    if why := p.not_a(MEAN):
        return why
    (plan, lane), shape = p.mean_gradient, p.same.shape
    if not plan.has_readers:
        return "readers of a cell are not at equal steps"
    best = _spreading(plan, real_dtype(p.dtype).itemsize, shape[lane] if lane >= 0 else 0)
    if best is not kernels:
        return (
            "windows share cells"
            if kernels is mean_upsample
            else "many readers of a cell, few channels, or not two axes"
        )
    plan.divide_as(real_dtype(p.dtype))
    units, scratch = plan.items * plan.slabs, 8 * plan.spread_cells
    call = Call(kernels.kernel(p.dtype.name), plan, p.shape, p.dtype, lane, units, scratch)
    whole = worth_streaming(plan, shape, p.dtype.itemsize, vector_bytes(p.dtype)) == DIRECT
    return call if kernels is not mean_vjp and whole else call.in_pieces(plan.slab_edges, 2)


def _spreading(plan: Plan, size: int, channels: int) -> Kernels:
    """Which kernels spread the gradient of a mean, on numbers of `size` bytes; where there are channels, these are last."""
    if plan.disjoint:
        return mean_upsample
    few = plan.most_readers <= FEW_READERS and channels * size >= ENOUGH_LINES * LINE
    return mean_gather_nhwc if few and len(plan.longest) == 2 else mean_vjp


# -- max and log-sum-exp by rows --


def _tiled(p: Problem, kind: int) -> Verdict:
    """Gradients of small windows by tiles: taps or weights, then gathering."""
    if why := p.not_a(kind) or p.not_small(2 * FEW):
        return why
    op, shape, *_ = p.same
    smoothly, stride = kind == SMOOTH, affine(op.regions[-1], shape[-1])[0]
    rows = {"areas": 1 + stride, "spare": 2} if smoothly else {"areas": 2}
    back = tiling_of(op, shape, p.arrays, p.dtype, backward=True, **rows)
    if back is None or max(back.readers) > ARGMAX_DIRECT_MAX_TAPS:
        return "windows irregular, or many windows read a cell"
    # It is there if `back` is.
    ahead = tiling_of(op, shape, p.arrays, p.dtype, areas=1, spare=1, in_turn=smoothly) or back
    if not smoothly:
        taps, gather = (
            argmax_nchw.kernel(p.dtype.name, "offsets"),
            max_gather_nchw.kernel(p.dtype.name),
        )
        return ArgmaxGradient([(taps, ahead), (gather, back)], p.shape, p.dtype, _again(p))
    weights = lse_nchw.kernel(p.dtype.name, "weights", beta_positive(op))
    gather = lse_gather_nchw.kernel(p.dtype.name, beta_positive(op))
    return LseGradient([(weights, ahead), (gather, back)], p.shape, p.dtype, _again(p))


def _global(p: Problem) -> Verdict:
    if why := not_searched(p, True):
        return why
    if p.plan.slabs != 1:
        return "items so long that several units share one"
    return by_items(p.plan, "vjp", p.ties, p.shape, p.dtype).in_pieces(p.plan.slab_edges, 2)


def _scatter(p: Problem) -> Verdict:
    """Over long windows that share few cells, from the winners."""
    if why := not_searched(p, False):
        return why
    op, shape, *_ = p.same
    plan = p.plan
    units, scratch = plan.items * plan.slabs, BAND_BYTES + 8 * plan.slab_cells
    plan.room = 0
    kernel = max_scatter.kernel(p.dtype.name, p.ties)
    scatter = Call(kernel, plan, p.shape, p.dtype, -1, units, scratch).in_pieces(plan.slab_edges, 2)
    if plan.slabs == 1:
        return scatter
    out = kept_shape(op, shape)
    y_steps = result_steps(out, -1)
    ahead = Plan(op, shape, (p.steps, y_steps, y_steps))
    kernel = reduce_window.kernel(p.dtype.name, "winners", p.ties)
    return ScatteredGradient(by_output_rows(kernel, ahead, out, p.dtype, BAND_BYTES), scatter)


def _separable(p: Problem) -> Verdict:
    if p.ties != "first":
        return p.not_a(MAX) or ALL_WINNERS
    if not p.plan.has_winners:
        return "windows irregular, or one is empty"
    return by_winners(p.plan, "vjp", p.shape, p.dtype, p.plan.items * p.plan.slabs)


def _reference(p: Problem) -> Verdict:
    plan, kernel = p.plan, reference.gradient_kernel(p.dtype.name, p.kind, p.ties)
    widest = max(plan.slab_cells, p.same.shape[-1])
    scratch = 24 * plan.room + 8 * (2 * plan.slab_cells + widest)
    return Call(kernel, plan, p.shape, p.dtype, p.lane, plan.items * plan.slabs, scratch)


ROWS = (
    Row(
        "lse-vjp-any-pairs",
        "log-sum-exp of windows of more than 64 taps, merged as pairs by log steps",
        _pairs,
    ),
    Row("any-vjp-interleave", "many small items, interleaved a batch at a time", _interleaved),
    Row(
        "max-vjp-nhwc-gather",
        "windows of up to 255 taps that share few cells: taps, then each input gathers from its readers",
        partial(_max_nhwc, by_tap=True),
    ),
    Row(
        "max-vjp-nhwc-scatter",
        "larger ones: places, then scatter-add",
        partial(_max_nhwc, by_tap=False),
    ),
    Row(
        "tied-vjp-nhwc-gather",
        "all winners count: each input gathers where it equals the maximum",
        _tied_nhwc,
    ),
    Row(
        "lse-vjp-nhwc-gather",
        "log-sum-exp of small affine windows: softmax weights, then gather",
        _lse_nhwc,
    ),
    Row(
        "mean-vjp-any-upsample",
        "disjoint windows: each gradient written to all cells of its window",
        partial(_mean, kernels=mean_upsample),
    ),
    Row(
        "mean-vjp-nhwc-gather",
        "two axes, few readers of a cell, lines of contiguous channels",
        partial(_mean, kernels=mean_gather_nhwc),
    ),
    Row(
        "mean-vjp-any-separable",
        "any windows, axis by axis: the transposed box filter",
        partial(_mean, kernels=mean_vjp),
    ),
    Row(
        "max-vjp-nchw-gather",
        "small affine windows, tiles of rows: taps, then gather",
        partial(_tiled, kind=MAX),
    ),
    Row(
        "lse-vjp-nchw-gather",
        "log-sum-exp of small affine windows, tiles of rows: softmax weights, then gather",
        partial(_tiled, kind=SMOOTH),
    ),
    Row("max-vjp-nchw-global", "one window to an item", _global),
    Row(
        "max-vjp-nchw-scatter",
        "long windows that share few cells: winners, then scatter-add",
        _scatter,
    ),
    Row(
        "max-vjp-any-separable",
        "any affine windows: indices one axis at a time, then scatter-add",
        _separable,
    ),
    Row("any-vjp-reference", "everything, cell by cell", _reference),
)


# -- from taps that were kept --


@lru_cache(maxsize=1024)
def gather_call(
    op: Pooling, shape: Shape, grad: Shape, dtype: Any, side_by_side: bool = False
) -> Any:
    """The call for gradients of cells from offsets; items may lie side by side already."""
    if not marks_are_offsets(op, shape):
        return None
    out = kept_shape(op, shape)
    operands = [
        Operand("r", out, np.dtype(np.uint8)),
        Operand("r", out, dtype, grad),
        Operand("w", shape, dtype),
    ]
    small = None
    if not side_by_side:
        small = in_parts(
            op,
            shape,
            operands,
            "gradients",
            lambda part, _, grad: gather_call(op, part, grad, dtype, True),
        )
    if small:
        return small
    lane = channel_axis(kept_shape(op, shape), in_elements(grad, dtype), op.rank)
    steps = in_bytes(result_steps(shape, lane), dtype)
    lanes = nhwc_plan(op, shape, steps, grad, dtype)
    if lanes and lanes[0].cells <= MOST_CELLS:
        return _gather_nhwc(*lanes, shape, dtype)
    steps = result_steps(shape, -1)
    back = tiling_of(op, shape, (steps, in_elements(grad, dtype), steps), dtype, backward=True)
    if back is None or max(back.readers) > ARGMAX_DIRECT_MAX_TAPS:
        return None
    return TiledCall([(max_gather_nchw.kernel(dtype.name), back)], shape, dtype, None)


def _gather_nhwc(plan: NhwcPlan, lane: int, shape: Shape, dtype: Any) -> Call:
    worth_streaming(plan, shape, dtype.itemsize, vector_bytes(dtype))
    units = plan.items * plan.input_rows
    return Call(max_gather_nhwc.kernel(dtype.name), plan, shape, dtype, lane, units, plan.listed)
