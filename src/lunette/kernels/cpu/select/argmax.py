"""The rows for winners of a max, and for tangents: by op, shape, layout and dtype; selected once and remembered."""

from __future__ import annotations

from functools import lru_cache, partial
from math import prod
from typing import Any

import numpy as np

from lunette.kernels.cpu.jit.cache import Kernels
from lunette.kernels.cpu.layout.batch_interleave import Operand, in_parts, ties_count
from lunette.kernels.cpu.layout.split_axis import long_outputs
from lunette.kernels.cpu.program.calls import Call, TiledCall
from lunette.kernels.cpu.schedule.nhwc import NhwcPlan, nhwc_plan
from lunette.kernels.cpu.schedule.properties import is_global, low_overlap
from lunette.kernels.cpu.schedule.slots import MAX, SMOOTH
from lunette.kernels.cpu.schedule.tiling import MOST_CELLS, Tiling
from lunette.kernels.cpu.select.lse_nhwc import beta_positive, value_nhwc
from lunette.kernels.cpu.select.lse_pairs import lse_by_pairs, pairs_call
from lunette.kernels.cpu.select.questions import (
    by_items,
    by_output_rows,
    by_winners,
    in_elements,
    marks_are_offsets,
    result_steps,
    tiling_of,
)
from lunette.kernels.cpu.select.table import FINITE, SMALL_ITEMS, Problem, Row, Verdict, select
from lunette.kernels.cpu.select.tied_nhwc import tied_tangent
from lunette.kernels.cpu.tuning import ARGMAX_CODES, BAND_BYTES, LOOKUP_BATCH
from lunette.ops.pooling import Pooling

__all__ = [
    "INDEX_ROWS",
    "JVP_ROWS",
    "TAP_ROWS",
    "by_lanes",
    "indices_call",
    "not_searched",
    "offsets_call",
    "taken_call",
    "tangent_call",
]

Shape = tuple[int, ...]

MOST_PLACES = (1 << 31) - 1
"""Cells of the pooled axes that kernels can number beside a vector of values of four bytes, at most."""

MANY_CELLS = "an index does not fit in four bytes"
NOT_NHWC = "channels are few or not contiguous, or windows share many cells"
NOT_TILED = "windows irregular or of more than 255 taps"
TAPS = "taps are not counted from the first of the whole window"

argmax_nchw = Kernels("loops.argmax_nchw")
argmax_nhwc = Kernels("loops.argmax_nhwc")
lse_jvp_nchw = Kernels("loops.lse_jvp_nchw")
reduce_window = Kernels("loops.reduce_window")
reference = Kernels("reference")
take_at_argmax = Kernels("loops.take_at_argmax")


# -- indices --


@lru_cache(maxsize=1024)
def indices_call(
    op: Pooling, shape: Shape, strides: Shape, dtype: Any, speculative: bool = True
) -> Any:
    """The program for values and the flat positions of their winners; None where an axis has too many outputs."""
    if long_outputs(op, shape):
        return None
    problem = Problem("forward_with_indices", op, shape, strides, strides, dtype, speculative)
    return select(INDEX_ROWS, problem)


def _numbered(p: Problem) -> bool:
    return prod(p.shape[len(p.shape) - p.op.rank :]) <= MOST_PLACES


def _indices_interleaved(p: Problem) -> Verdict:
    if not p.speculative:
        return FINITE
    places = Operand("w", p.out, np.dtype(np.int64))
    operands = [Operand("r", p.shape, p.dtype, p.strides), Operand("w", p.out, p.dtype), places]
    program = in_parts(
        p.op, p.shape, operands, "winners", lambda *part: indices_call(p.op, *part, p.dtype)
    )
    return program or SMALL_ITEMS


def _indices_nhwc(p: Problem) -> Verdict:
    if not _numbered(p):
        return MANY_CELLS
    return by_lanes(*p.max_nhwc, "indices", p.out, p.dtype) if p.max_nhwc else NOT_NHWC


def _indices_nchw(p: Problem) -> Verdict:
    if not _numbered(p):
        return MANY_CELLS
    if why := p.not_small():
        return why
    if p.tiling is None:
        return NOT_TILED
    again = partial(indices_call, p.op, p.shape, p.strides, p.dtype, False)
    return TiledCall(
        [(argmax_nchw.kernel(p.dtype.name, "indices"), p.tiling)], p.out, p.dtype, again
    )


def not_searched(p: Problem, only_global: bool) -> str | None:
    """Why windows are not searched one by one for their winners, whole rows at a time."""
    if why := p.not_a(MAX):
        return why
    if not p.plan.has_winners:
        return "windows irregular, or one is empty"
    if only_global:
        return None if is_global(p.plan) else "more than one window to an item"
    return None if low_overlap(p.plan, searched=True) else "windows that are short or share cells"


def _indices_global(p: Problem) -> Verdict:
    return not_searched(p, True) or by_items(p.plan, "winners", "first", p.out, p.dtype)


def _indices_window(p: Problem) -> Verdict:
    if why := not_searched(p, False):
        return why
    kernel = reduce_window.kernel(p.dtype.name, "winners", "first")
    return by_output_rows(kernel, p.plan, p.out, p.dtype, BAND_BYTES)


def _indices_separable(p: Problem) -> Verdict:
    if not p.plan.has_winners:
        return "windows irregular, or one is empty"
    return by_winners(p.plan, "indices", p.out, p.dtype, p.plan.items * p.plan.tiles)


def _indices_reference(p: Problem) -> Verdict:
    plan, kernel = p.plan, reference.value_kernel(p.dtype.name, MAX, True)
    return Call(kernel, plan, p.out, p.dtype, -1, plan.items * plan.output_rows, 24 * plan.room)


INDEX_ROWS = (
    Row(
        "argmax-fwd-interleave",
        "many small items, interleaved a batch at a time",
        _indices_interleaved,
    ),
    Row(
        "argmax-fwd-nhwc",
        "windows that share few cells, vectors over contiguous channels",
        _indices_nhwc,
    ),
    Row("argmax-fwd-nchw", "small affine windows, tiles of rows", _indices_nchw),
    Row(
        "argmax-fwd-nchw-global",
        "one window to an item: a bit for each cell that wins",
        _indices_global,
    ),
    Row(
        "argmax-fwd-nchw-reduce-window",
        "long windows that share few cells, searched one by one",
        _indices_window,
    ),
    Row(
        "argmax-fwd-any-separable",
        "any affine windows, one axis at a time, an index beside each value",
        _indices_separable,
    ),
    Row("argmax-fwd-reference", "everything, cell by cell", _indices_reference),
)


# -- taps --


@lru_cache(maxsize=1024)
def offsets_call(op: Pooling, shape: Shape, strides: Shape, dtype: Any) -> Any:
    """The program for values and taps; None where there is none. Items with a NaN may be flagged, and left to the caller."""
    return select(TAP_ROWS, Problem("forward_with_offsets", op, shape, strides, strides, dtype))


def _taps_interleaved(p: Problem) -> Verdict:
    if not marks_are_offsets(p.op, p.shape):
        return TAPS
    kept = Operand("w", p.out, np.dtype(np.uint8))
    operands = [Operand("r", p.shape, p.dtype, p.strides), Operand("w", p.out, p.dtype), kept]
    program = in_parts(
        p.op, p.shape, operands, "winners", lambda *part: offsets_call(p.op, *part, p.dtype)
    )
    return program or SMALL_ITEMS


def _taps_nhwc(p: Problem) -> Verdict:
    if not marks_are_offsets(p.op, p.shape):
        return TAPS
    lanes = nhwc_plan(p.op, p.shape, p.strides, p.strides, p.dtype)
    if lanes and lanes[0].cells <= MOST_CELLS:
        return by_lanes(*lanes, "kept", p.out, p.dtype)
    return NOT_NHWC


def _tap_tiling(p: Problem) -> Tiling | None:
    y_steps = result_steps(p.out, -1)
    steps = in_elements(p.strides, p.dtype), y_steps, y_steps
    return tiling_of(p.op, p.shape, steps, p.dtype) if marks_are_offsets(p.op, p.shape) else None


def _taps_nchw(p: Problem) -> Verdict:
    tiling = _tap_tiling(p)
    if tiling is None:
        return NOT_TILED
    return TiledCall([(argmax_nchw.kernel(p.dtype.name, "kept"), tiling)], p.out, p.dtype, None)


TAP_ROWS = (
    Row(
        "argmax-taps-interleave",
        "many small items, interleaved a batch at a time",
        _taps_interleaved,
    ),
    Row(
        "argmax-taps-nhwc",
        "windows that share few cells, vectors over contiguous channels",
        _taps_nhwc,
    ),
    Row("argmax-taps-nchw", "small affine windows, tiles of rows", _taps_nchw),
)


@lru_cache(maxsize=1024)
def taken_call(op: Pooling, shape: Shape, strides: Shape, dtype: Any) -> TiledCall | None:
    """The program for tangents at taps that were kept; items with a tap of no cell are flagged, and left to the caller."""
    problem = Problem("jvp_from_offsets", op, shape, strides, strides, dtype)
    tiling = _tap_tiling(problem)
    if tiling is None:
        return None
    tiling.scratch += 16 * ARGMAX_CODES
    return TiledCall([(take_at_argmax.kernel(dtype.name), tiling)], problem.out, dtype, None)


# -- tangents --


@lru_cache(maxsize=1024)
def tangent_call(
    op: Pooling, shape: Shape, strides: Shape, tangent: Shape, dtype: Any, speculative: bool = True
) -> Any:
    """The program for directional derivatives of max and smooth max; None where an axis has too many outputs."""
    if long_outputs(op, shape):
        return None
    return select(JVP_ROWS, Problem("jvp", op, shape, strides, tangent, dtype, speculative))


def _again(p: Problem) -> Any:
    return partial(tangent_call, p.op, p.shape, p.strides, p.other, p.dtype, False)


def _jvp_pairs(p: Problem) -> Verdict:
    if not lse_by_pairs(p.op, p.shape, "tangents"):
        return p.not_a(SMOOTH) or "windows of at most 4 taps, dilated, or with an empty one"
    return pairs_call(p.op, "jvp", p.shape, p.strides, p.other, p.dtype)


def _jvp_interleaved(p: Problem) -> Verdict:
    if not p.speculative:
        return FINITE
    operands = [
        Operand("r", p.shape, p.dtype, p.strides),
        Operand("w", p.out, p.dtype),
        Operand("r", p.shape, p.dtype, p.other),
    ]
    sure = not ties_count(p.op, "tangents")
    program = in_parts(
        p.op, p.shape, operands, "tangents", lambda *part: tangent_call(p.op, *part, p.dtype, sure)
    )
    if program is None:
        return SMALL_ITEMS
    program.again = lambda part, *read: tangent_call(p.op, part, *read, p.dtype, False)
    return program


def _max_jvp_nhwc(p: Problem) -> Verdict:
    if p.ties != "first":
        return p.not_a(MAX) or "all winners count, not the first alone"
    return by_lanes(*p.max_nhwc, "jvp", p.out, p.dtype) if p.max_nhwc else NOT_NHWC


def _tied_jvp_nhwc(p: Problem) -> Verdict:
    program = tied_tangent(p.op, p.shape, p.strides, p.other, p.dtype, p.out, p.speculative)
    return program or "the first winner alone counts, or channels are not contiguous"


def _lse_jvp_nhwc(p: Problem) -> Verdict:
    if not p.lse_nhwc:
        return p.not_a(SMOOTH) or NOT_NHWC
    return (
        value_nhwc(p.op, "jvp", p.lse_nhwc, p.out, p.dtype, _again(p)) if p.speculative else FINITE
    )


def _jvp_nchw(p: Problem, kind: int) -> Verdict:
    if why := p.not_a(kind) or p.not_small():
        return why
    if p.tiling is None:
        return NOT_TILED
    kernel = (
        lse_jvp_nchw.kernel(p.dtype.name, beta_positive(p.op))
        if kind == SMOOTH
        else argmax_nchw.kernel(p.dtype.name, "jvp")
    )
    return TiledCall([(kernel, p.tiling)], p.out, p.dtype, _again(p))


def _jvp_global(p: Problem) -> Verdict:
    return not_searched(p, True) or by_items(p.plan, "jvp", p.ties, p.out, p.dtype)


def _jvp_window(p: Problem) -> Verdict:
    if why := not_searched(p, False):
        return why
    kernel = reduce_window.kernel(p.dtype.name, "jvp", p.ties)
    return by_output_rows(kernel, p.plan, p.out, p.dtype, BAND_BYTES + 8 * LOOKUP_BATCH)


def _jvp_separable(p: Problem) -> Verdict:
    if p.ties != "first":
        return p.not_a(MAX) or "all winners count, not the first alone"
    if not p.plan.has_winners:
        return "windows irregular, or one is empty"
    return by_winners(p.plan, "jvp", p.out, p.dtype, p.plan.items * p.plan.tiles)


def _jvp_reference(p: Problem) -> Verdict:
    plan, kernel = p.plan, reference.derivative_kernel(p.dtype.name, p.kind, p.ties)
    units = plan.items * plan.output_rows
    return Call(kernel, plan, p.out, p.dtype, p.lane, units, 24 * plan.room)


JVP_ROWS = (
    Row(
        "lse-jvp-any-pairs",
        "log-sum-exp of windows of more than 4 taps, merged as pairs by log steps",
        _jvp_pairs,
    ),
    Row("any-jvp-interleave", "many small items, interleaved a batch at a time", _jvp_interleaved),
    Row(
        "max-jvp-nhwc",
        "windows that share few cells, vectors over contiguous channels",
        _max_jvp_nhwc,
    ),
    Row(
        "tied-jvp-nhwc", "all winners count: sums over cells that equal the maximum", _tied_jvp_nhwc
    ),
    Row(
        "lse-jvp-nhwc",
        "log-sum-exp of small affine windows, vectors over contiguous channels",
        _lse_jvp_nhwc,
    ),
    Row(
        "lse-jvp-nchw",
        "log-sum-exp of small affine windows, tiles of rows",
        partial(_jvp_nchw, kind=SMOOTH),
    ),
    Row(
        "max-jvp-nchw",
        "small affine windows: the tangent goes along with the winner",
        partial(_jvp_nchw, kind=MAX),
    ),
    Row("max-jvp-nchw-global", "one window to an item", _jvp_global),
    Row(
        "max-jvp-nchw-reduce-window",
        "long windows that share few cells, searched one by one",
        _jvp_window,
    ),
    Row(
        "max-jvp-any-separable",
        "any affine windows, one axis at a time, an index beside each value",
        _jvp_separable,
    ),
    Row("any-jvp-reference", "everything, cell by cell", _jvp_reference),
)


def by_lanes(
    plan: NhwcPlan, lane: int, verb: str, shape: Shape, dtype: Any, result: Any = None
) -> Call:
    kernel, units = argmax_nhwc.kernel(dtype.name, verb), plan.items * plan.output_rows
    return Call(kernel, plan, shape, result or dtype, lane, units, plan.listed)
