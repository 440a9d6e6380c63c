"""Gradient of a smooth max over small windows, in one launch.

A program walks down the rows of windows that reach its band of inputs, computes their softmax and
adds up its own cells' shares; rows of inputs that the next windows share are carried along.
Windows on the band's border are computed twice. Nothing is stored between.
"""

# Triton compiles these functions from their source: they have no Python types, tuples grow with
# `+`, and `x != x` asks for NaN.
# mypy: ignore-errors
# ruff: noqa: RUF005

from __future__ import annotations

import triton
import triton.language as tl

from lunette.kernels.triton.arithmetic import (
    add_exponential,
    assemble,
    counted_cells,
    exponential,
    extreme,
    extreme_of_three,
    real_cells,
    span,
    within,
)
from lunette.kernels.triton.band import place
from lunette.kernels.triton.band_smooth import soften

__all__ = ["band_smooth_gradient"]


@triton.jit
def band_smooth_gradient(
    x, grad, out, items, bands, H, W_units, OH, OW_units, limit_h, limit_w, beta_bits,
    ACC: tl.constexpr, RISING: tl.constexpr, WIDE: tl.constexpr, PADDED: tl.constexpr,
    COUNT_PADDING: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr, SH: tl.constexpr,
    SW: tl.constexpr, BH: tl.constexpr, BW: tl.constexpr, UNIT: tl.constexpr,
    OUT_UNIT: tl.constexpr, GROUP: tl.constexpr, R: tl.constexpr, P: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """The gradient of x, gathered over its windows in row-major order from +0."""
    W = W_units * UNIT
    OW = OW_units * OUT_UNIT
    OUT: tl.constexpr = GROUP // SW
    # Outputs that reach a lane lie at these distances from its own first output.
    LOW_H: tl.constexpr = -((KH - 1 - BH) // SH)
    HIGH_H: tl.constexpr = (SH - 1 + BH) // SH
    LOW: tl.constexpr = -((KW - 1 - BW) // SW)
    HIGH: tl.constexpr = (GROUP - 1 + BW) // SW
    COUNT: tl.constexpr = HIGH - LOW + 1
    BASE: tl.constexpr = LOW if OUT == 1 else (LOW // OUT) * OUT
    # Where strides leave gaps, the rows above the first window are written with it.
    FIRST: tl.constexpr = LOW_H if KH >= SH else min(LOW_H, BH // SH)
    CARRIED: tl.constexpr = KH - SH if KH > SH else 0
    REACH: tl.constexpr = KH if KH > SH else SH
    # Their cells, relative to the lane's own first cell.
    START: tl.constexpr = LOW * SW - BW
    CELLS: tl.constexpr = (HIGH - LOW) * SW + KW
    X_BASE: tl.constexpr = START - (START // GROUP) * GROUP
    X_WIDTH: tl.constexpr = ((START + CELLS - 1) // GROUP - START // GROUP + 1) * GROUP
    OTHER: tl.constexpr = float("-inf") if RISING else float("inf")

    beta = tl.cast(beta_bits, tl.float64, bitcast=True)
    b, _, strip, live, first = place(items, bands, 1, tl.cdiv(W, GROUP), WIDE, P, C)
    lane = first * OUT + tl.arange(0, OUT * C)[None, :]
    column = first * GROUP + tl.arange(0, GROUP * C)[None, :]
    in_row = ()
    counted_w = ()
    real_w = ()
    for q in tl.static_range(LOW, HIGH + 1):
        ow = (first + tl.arange(0, C)[None, :]) * OUT + q
        in_row = in_row + (within(ow, OW),)
        if PADDED and COUNT_PADDING:
            counted_w = counted_w + (counted_cells(ow, limit_w, KW, SW, BW, 1),)
            real_w = real_w + (real_cells(ow, W, KW, SW, BW, 1),)
    carried = ()
    for _ in tl.static_range(CARRIED * GROUP):
        carried = carried + (tl.zeros((P, C), ACC),)
    for k in tl.range(FIRST, R + HIGH_H):
        oh = strip * R + k
        top = oh * SH - BH
        inside = live & within(oh, OH)
        cells = ()
        for t in tl.static_range(KH):
            there = live & within(top + t, H)
            row = (b * H + top + t) * W
            cells = cells + span(
                x, row, column, W, 1, there, OTHER, ACC, START, 1, CELLS, GROUP, P, C
            )
        grads = span(
            grad, (b * OH + oh) * OW, lane, OW, 1, inside, 0.0, ACC, LOW, 1, COUNT, OUT, P, C
        )
        if PADDED and COUNT_PADDING:
            counted_h = counted_cells(oh, limit_h, KH, SH, BH, 1)
            real_h = real_cells(oh, H, KH, SH, BH, 1)
        terms = ()
        shares = ()
        for q in tl.static_range(LOW, HIGH + 1):
            mine = ()
            for t in tl.static_range(KH):
                for i in tl.static_range(KW):
                    mine = mine + (cells[t * X_WIDTH + X_BASE + (q - LOW) * SW + i],)
            pivot = mine[0]
            for i in tl.static_range(1, KH * KW - 1, 2):
                pivot = extreme_of_three(pivot, mine[i], mine[i + 1], RISING)
            if KH * KW % 2 == 0:
                pivot = extreme(pivot, mine[KH * KW - 1], RISING)
            padding = 0
            if PADDED and COUNT_PADDING:
                padding = counted_h * counted_w[q - LOW] - real_h * real_w[q - LOW]
            pivot = soften(pivot, padding, RISING)
            total = tl.zeros((P, C), ACC)
            for i in tl.static_range(KH * KW):
                term, total = add_exponential(total, mine[i], pivot, beta, ACC, True)
                terms = terms + (term,)
            if PADDED and COUNT_PADDING:
                extra = padding.to(ACC) * exponential(tl.zeros_like(pivot), pivot, beta, ACC)
                total = tl.where(padding > 0, total + extra, total)
            shares = shares + (grads[q - BASE] / total,)
        totals = ()
        for t in tl.static_range(REACH):
            for r in tl.static_range(GROUP):
                if t < CARRIED:
                    total = carried[t * GROUP + r]
                else:
                    total = tl.zeros((P, C), ACC)
                for q in tl.static_range(LOW, HIGH + 1):
                    if t < KH and r + BW - q * SW >= 0 and r + BW - q * SW < KW:
                        sent = (
                            terms[((q - LOW) * KH + t) * KW + (r + BW - q * SW)] * shares[q - LOW]
                        )
                        total += tl.where(inside & in_row[q - LOW], sent, 0.0)
                totals = totals + (total,)
        for t in tl.static_range(SH):
            h = top + t
            owned = live & (h >= strip * (R * SH)) & (h < (strip + 1) * (R * SH)) & (h < H)
            written = assemble(totals[t * GROUP : (t + 1) * GROUP], P, C, GROUP)
            target = (b * H + h) * W + column
            tl.store(out + target, written.to(out.dtype.element_ty), owned & (column < W))
        if CARRIED > 0:
            carried = totals[SH * GROUP :]
