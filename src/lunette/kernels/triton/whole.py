"""Gradients of windows that are a whole row: one program a row, which it reads once if it can."""

# Triton compiles these functions from their source: they have no Python types, tuples grow with
# `+`, and `x != x` asks for NaN.
# mypy: ignore-errors
# ruff: noqa: PLR0124

from __future__ import annotations

import triton
import triton.language as tl

from lunette.kernels.triton.arithmetic import (
    divide,
    divide_fixed,
    exponential,
    extreme,
)
from lunette.kernels.triton.band_smooth import soften
from lunette.kernels.triton.window import _largest, _smallest

__all__ = ["whole_gradient"]


@triton.jit
def _tied(x, at, base, length, kept, peak, ACC: tl.constexpr, STEPS: tl.constexpr):
    """Which cells of a step equal the peak; with one step its cells are `kept`."""
    if STEPS == 1:
        cells = kept
    else:
        cells = tl.load(x + (base + at), at < length, 0.0).to(ACC)
    return ((cells == peak) | ((cells != cells) & (peak != peak))) & (at < length)


@triton.jit
def whole_gradient(
    x, grad, out, length, divisor, reciprocal, beta_bits,
    FORM: tl.constexpr, ACC: tl.constexpr, RISING: tl.constexpr, WIDE: tl.constexpr,
    STEPS: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    """FORM "first", "all" or "split": who gets the gradient of a max; "smooth": all, by softmax;
    "mean": all, the same. With STEPS = 1 the row stays in registers."""
    row = tl.program_id(0)
    if WIDE:
        row = row.to(tl.int64)
    lanes = tl.arange(0, K)[None, :]
    base = row * length
    share = tl.load(grad + row + tl.zeros((1, 1), tl.int32)).to(ACC)
    lowest = float("-inf") if RISING else float("inf")
    beta = tl.cast(beta_bits, tl.float64, bitcast=True)
    if FORM == "mean":
        share = divide_fixed(share, divisor, reciprocal, ACC)
    else:
        best = tl.full((1, K), lowest, ACC)
        for step in tl.range(0, STEPS, loop_unroll_factor=2):
            at = step * K + lanes
            cells = tl.load(x + (base + at), at < length, lowest).to(ACC)
            if STEPS == 1:
                best = cells
            else:
                best = extreme(best, cells, RISING)
        if RISING:
            peak = tl.reduce(best, 1, _largest)[:, None]
        else:
            peak = tl.reduce(best, 1, _smallest)[:, None]
    if FORM == "smooth":
        peak = soften(peak, 0, RISING)
        if STEPS == 1:
            totals = exponential(best, peak, beta, ACC)
        else:
            totals = tl.zeros((1, K), ACC)
            for step in tl.range(0, STEPS, loop_unroll_factor=2):
                at = step * K + lanes
                cells = tl.load(x + (base + at), at < length, lowest).to(ACC)
                totals += exponential(cells, peak, beta, ACC)
        share = divide(share, tl.sum(totals, 1)[:, None], ACC)
    if FORM == "first":
        winners = tl.full((1, K), 0x7FFFFFFF, tl.int32)
        for step in tl.range(0, STEPS, loop_unroll_factor=2):
            at = step * K + lanes
            tied = _tied(x, at, base, length, best, peak, ACC, STEPS)
            winners = tl.minimum(winners, tl.where(tied, at, 0x7FFFFFFF))
        winner = tl.min(winners, 1)[:, None]
    if FORM == "split":
        counts = tl.zeros((1, K), tl.int32)
        for step in tl.range(0, STEPS, loop_unroll_factor=2):
            at = step * K + lanes
            tied = _tied(x, at, base, length, best, peak, ACC, STEPS)
            counts += tied.to(tl.int32)
        share = divide(share, tl.sum(counts, 1)[:, None].to(ACC), ACC)
    for step in tl.range(0, STEPS, loop_unroll_factor=2):
        at = step * K + lanes
        if FORM == "first":
            sent = tl.where(at == winner, share, 0.0)
        elif FORM == "mean":
            sent = share + tl.zeros((1, K), ACC)
        elif FORM == "smooth":
            if STEPS == 1:
                cells = best
            else:
                cells = tl.load(x + (base + at), at < length, 0.0).to(ACC)
            sent = exponential(cells, peak, beta, ACC) * share
        else:
            sent = tl.where(_tied(x, at, base, length, best, peak, ACC, STEPS), share, 0.0)
        tl.store(out + (base + at), (sent + 0.0).to(out.dtype.element_ty), at < length)
