"""Gradients of small sliding windows: a program writes a band of inputs from the outputs that read it.

A lane owns GROUP neighbouring input columns, of one channel where channels are innermost, and SH
input rows; which taps reach them is known when
the kernel is compiled, one case for each residue of the stride. Sums start at +0 and run over the
outputs in row-major order.
"""

# Triton compiles these functions from their source: they have no Python types, tuples grow with
# `+`, and `x != x` asks for NaN.
# mypy: ignore-errors
# ruff: noqa: PLR0124, PLR1714, RUF005

from __future__ import annotations

import triton
import triton.language as tl

from lunette.kernels.triton.arithmetic import (
    assemble,
    counted_cells,
    divide,
    divide_fixed,
    exponential,
    real_cells,
    span,
    within,
)
from lunette.kernels.triton.band import place

__all__ = ["band_gather"]


@triton.jit
def band_gather(
    grad, codes, x, value, out, readers, outer_real, outer_counted, items, bands, outer_out,
    outer_in, H, W_units, V, OH, OW_units, limit_h, limit_w, divisor, reciprocal, beta_bits,
    FORM: tl.constexpr, ACC: tl.constexpr, WIDE: tl.constexpr, LANED: tl.constexpr,
    OUTER: tl.constexpr, DIVISOR: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr,
    SH: tl.constexpr, SW: tl.constexpr, BH: tl.constexpr, BW: tl.constexpr, UNIT: tl.constexpr,
    OUT_UNIT: tl.constexpr, GROUP: tl.constexpr, R: tl.constexpr, P: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """FORM as in `gather`; here the axes have no dilation. LANED: V > 1 channels are innermost."""
    W = W_units * UNIT
    OW = OW_units * OUT_UNIT
    READERS: tl.constexpr = OUTER if OUTER > 0 else 1
    OUT: tl.constexpr = GROUP // SW
    # Outputs that reach a lane lie at these distances from its own first output.
    LOW_H: tl.constexpr = -((KH - 1 - BH) // SH)
    HIGH_H: tl.constexpr = (SH - 1 + BH) // SH
    LOW: tl.constexpr = -((KW - 1 - BW) // SW)
    HIGH: tl.constexpr = (GROUP - 1 + BW) // SW
    COUNT: tl.constexpr = HIGH - LOW + 1
    FETCHED: tl.constexpr = 1 if LANED else OUT  # neighbouring outputs, or inputs, in one load
    OWNED: tl.constexpr = 1 if LANED else GROUP
    BASE: tl.constexpr = LOW if FETCHED == 1 else (LOW // OUT) * OUT
    WIDTH: tl.constexpr = COUNT if FETCHED == 1 else (HIGH // OUT - LOW // OUT + 1) * OUT
    ROWS: tl.constexpr = R + HIGH_H - LOW_H

    b, p, strip, live, first = place(items, bands, outer_in, tl.cdiv(W, GROUP) * V, WIDE, P, C)
    group = first + tl.arange(0, C)[None, :]
    v = 0
    if LANED:
        cols = group
        group = cols // V
        v = cols - group * V
        lane = group * OUT
        column = group * GROUP
    else:
        lane = first * OUT + tl.arange(0, OUT * C)[None, :]
        column = first * GROUP + tl.arange(0, GROUP * C)[None, :]
    if FORM == "smooth":
        beta = tl.cast(beta_bits, tl.float64, bitcast=True)
    if FORM == "tied" or FORM == "smooth":
        own = ()
        for j in tl.static_range(R):
            for rh in tl.static_range(SH):
                h = (strip * R + j) * SH + rh
                cells = span(
                    x, ((b * outer_in + p) * H + h) * (W * V) + v, column, W, V,
                    live & (h < H), 0.0, ACC, 0, 1, GROUP, OWNED, P, C,
                )  # fmt: skip
                own = own + cells

    totals = ()
    for ro in tl.static_range(READERS):
        if OUTER > 0:
            o = tl.load(readers + (p * READERS + ro) * 2)
            ko = tl.load(readers + (p * READERS + ro) * 2 + 1) * (KH * KW)
            reading = live & (o >= 0)
        else:
            o = 0
            ko = 0
            reading = live
        grads = ()
        marks = ()
        for k in tl.static_range(ROWS):
            oh = strip * R + (k + LOW_H)
            inside = reading & within(oh, OH)
            row = ((b * outer_out + o) * OH + oh) * (OW * V) + v
            loaded = span(grad, row, lane, OW, V, inside, 0.0, ACC, LOW, 1, COUNT, FETCHED, P, C)
            if FORM == "mean":
                scaled = ()
                for q in tl.static_range(WIDTH):
                    if DIVISOR == "fixed":
                        share = divide_fixed(loaded[q], divisor, reciprocal, ACC)
                    else:
                        ow = group * OUT + (BASE + q)
                        if DIVISOR == "counted":
                            cells = counted_cells(oh, limit_h, KH, SH, BH, 1)
                            cells = cells * counted_cells(ow, limit_w, KW, SW, BW, 1)
                            if OUTER > 0:
                                cells = cells * tl.load(outer_counted + o, o >= 0, 1)
                        else:
                            cells = real_cells(oh, H, KH, SH, BH, 1)
                            cells = cells * real_cells(ow, W, KW, SW, BW, 1)
                            if OUTER > 0:
                                cells = cells * tl.load(outer_real + o, o >= 0, 1)
                        share = divide(loaded[q], tl.maximum(cells, 1).to(ACC), ACC)
                    scaled = scaled + (share,)
                loaded = scaled
            grads = grads + loaded
            if FORM == "codes":
                marks = marks + span(
                    codes, row, lane, OW, V, inside, 0, tl.int32, LOW, 1, COUNT, FETCHED, P, C
                )
            elif FORM != "mean":
                marks = marks + span(
                    value, row, lane, OW, V, inside, 0.0, ACC, LOW, 1, COUNT, FETCHED, P, C
                )
        news = ()
        for j in tl.static_range(R):
            for rh in tl.static_range(SH):
                for r in tl.static_range(GROUP):
                    if ro == 0:
                        total = tl.zeros((P, C), ACC)
                    else:
                        total = totals[((j * SH + rh) * GROUP + r)]
                    for e in tl.static_range(LOW_H, HIGH_H + 1):
                        if (rh + BH - e * SH) >= 0 and (rh + BH - e * SH) < KH:
                            for q in tl.static_range(LOW, HIGH + 1):
                                if (r + BW - q * SW) >= 0 and (r + BW - q * SW) < KW:
                                    g = grads[((j + e - LOW_H) * WIDTH + q - BASE)]
                                    if FORM == "codes":
                                        mine = marks[((j + e - LOW_H) * WIDTH + q - BASE)] == ko + (
                                            (rh + BH - e * SH) * KW + (r + BW - q * SW)
                                        )
                                        total += tl.where(mine, g, 0.0)
                                    elif FORM == "mean":
                                        total += g
                                    elif FORM == "tied":
                                        a = own[((j * SH + rh) * GROUP + r)]
                                        m = marks[((j + e - LOW_H) * WIDTH + q - BASE)]
                                        mine = (a == m) | ((a != a) & (m != m))
                                        total += tl.where(mine, g, 0.0)
                                    else:
                                        oh = strip * R + (j + e)
                                        ow = group * OUT + q
                                        reads = reading & within(oh, OH) & within(ow, OW)
                                        peak = marks[(j + e - LOW_H) * WIDTH + q - BASE]
                                        own_cell = own[(j * SH + rh) * GROUP + r]
                                        term = exponential(own_cell, peak, beta, ACC) * g
                                        total += tl.where(reads, term, 0.0)
                    news = news + (total,)
        totals = news
    for j in tl.static_range(R):
        for rh in tl.static_range(SH):
            h = (strip * R + j) * SH + rh
            parts = ()
            for r in tl.static_range(GROUP):
                parts = parts + (totals[(j * SH + rh) * GROUP + r],)
            target = ((b * outer_in + p) * H + h) * (W * V) + v
            written = live & (h < H)
            if LANED:
                for r in tl.static_range(GROUP):
                    stored = written & (column + r < W)
                    total = parts[r].to(out.dtype.element_ty)
                    tl.store(out + (target + (column + r) * V), total, stored)
            else:
                total = assemble(parts, P, C, GROUP).to(out.dtype.element_ty)
                tl.store(out + (target + column), total, written & (column < W))
