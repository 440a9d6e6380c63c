"""Gradients of windows that are a whole row: one program a row, which it reads once if it can."""

from __future__ import annotations

import triton
import triton.language as tl

from lunette.kernels.triton.arithmetic import (
    divide,
    divide_fixed,
    earlier,
    exponential,
    extreme,
)
from lunette.kernels.triton.band_smooth import soften
from lunette.kernels.triton.window import _first_largest, _largest, _smallest

__all__ = ["whole_gradient"]


@triton.jit
def whole_gradient(
    x,
    grad,
    out,
    length,
    divisor,
    reciprocal,
    beta_bits,
    FORM: tl.constexpr,
    ACC: tl.constexpr,
    RISING: tl.constexpr,
    WIDE: tl.constexpr,
    STEPS: tl.constexpr,
    K: tl.constexpr,
):
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
        steps = tl.zeros((1, K), tl.int32)
        for step in tl.range(0, STEPS, loop_unroll_factor=2):
            at = step * K + lanes
            cells = tl.load(x + (base + at), at < length, lowest).to(ACC)
            if STEPS == 1:
                best = cells
            elif FORM == "smooth":
                best = extreme(best, cells, RISING)
            else:
                keep = earlier(best, cells)
                best = tl.where(keep, best, cells)
                steps = tl.where(keep, steps, step)
    if FORM == "smooth":
        if RISING:
            pivot = tl.reduce(best, 1, _largest)[:, None]
        else:
            pivot = tl.reduce(best, 1, _smallest)[:, None]
        pivot = soften(pivot, 0, RISING)
        if STEPS == 1:
            totals = exponential(best - pivot, beta, ACC)
        else:
            totals = tl.zeros((1, K), ACC)
            for step in tl.range(0, STEPS, loop_unroll_factor=2):
                at = step * K + lanes
                cells = tl.load(x + (base + at), at < length, lowest).to(ACC)
                totals += exponential(cells - pivot, beta, ACC)
        share = divide(share, tl.sum(totals, 1)[:, None], ACC)
    elif FORM != "mean":
        peak, winner = tl.reduce((best, steps * K + lanes), 1, _first_largest)
        peak = peak[:, None]
        # A row of lowest values alone never beat the identity: its first cell wins.
        winner = tl.where(peak == lowest, 0, winner[:, None])
    if FORM == "split":
        counts = tl.zeros((1, K), tl.int32)
        for step in tl.range(0, STEPS, loop_unroll_factor=2):
            at = step * K + lanes
            if STEPS == 1:
                cells = best
            else:
                cells = tl.load(x + (base + at), at < length, 0.0).to(ACC)
            tied = (cells == peak) | ((cells != cells) & (peak != peak))
            counts += (tied & (at < length)).to(tl.int32)
        share = divide(share, tl.sum(counts, 1)[:, None].to(ACC), ACC)
    for step in tl.range(0, STEPS, loop_unroll_factor=2):
        at = step * K + lanes
        if FORM == "first":
            sent = tl.where(at == winner, share, 0.0)
        elif FORM == "mean":
            sent = share + tl.zeros((1, K), ACC)
        else:
            if STEPS == 1:
                cells = best
            else:
                cells = tl.load(x + (base + at), at < length, 0.0).to(ACC)
            if FORM == "smooth":
                sent = exponential(cells - pivot, beta, ACC) * share
            else:
                tied = (cells == peak) | ((cells != cells) & (peak != peak))
                sent = tl.where(tied, share, 0.0)
        tl.store(out + (base + at), (sent + 0.0).to(out.dtype.element_ty), at < length)
