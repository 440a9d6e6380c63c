"""Forward for any window: adaptive bins, whole axes, kernels too large for a band.

A program holds K columns of P × C windows at a time, walks the windows' rows and planes, and
reduces the K columns at the end.
"""

# Triton compiles these functions from their source: they have no Python types, tuples grow with
# `+`, and `x != x` asks for NaN.
# mypy: ignore-errors
# ruff: noqa: PLR0124, PLR1714

from __future__ import annotations

import triton
import triton.language as tl

from lunette.kernels.triton.arithmetic import (
    counted_cells,
    divide,
    divide_fixed,
    earlier,
    exponential,
    extreme,
    first_real,
    logarithm,
    masked,
    real_cells,
)
from lunette.kernels.triton.band import place
from lunette.kernels.triton.band_smooth import soften

__all__ = ["window"]


@triton.jit
def _first_largest(a, code_a, b, code_b):
    """The larger of two cells, NaN first; of equals the one with the smaller code."""
    nan_a = a != a
    nan_b = b != b
    tied = (a == b) | (nan_a & nan_b)
    wins = tl.where(tied, code_a < code_b, (a > b) | (nan_a & (b == b)))
    return tl.where(wins, a, b), tl.where(wins, code_a, code_b)


@triton.jit
def _largest(a, b):
    return extreme(a, b, True)


@triton.jit
def _smallest(a, b):
    return extreme(a, b, False)


@triton.jit
def _read(
    pointer, outer, o, plane_base, H, W, V, step, origin_h, length_h, origin_w, length_w, v, live,
    OTHER: tl.constexpr, ACC: tl.constexpr, OUTER: tl.constexpr, KH: tl.constexpr,
    CHUNKS: tl.constexpr, DH: tl.constexpr, DW: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    """The cells of one step — a plane, a row and a chunk of columns — and which of them are real."""
    chunk = step % CHUNKS
    row = step // CHUNKS
    if OUTER > 0:
        th = row % KH
        plane = tl.load(outer + o * OUTER + row // KH)[:, :, None]
        real = live & (plane >= 0)
        base = plane_base + plane
    else:
        th = row
        real = live
        base = plane_base
    tw = chunk * K + tl.arange(0, K)[None, None, :]
    h = origin_h + th * DH
    w = origin_w + tw * DW
    real = real & (th < length_h) & (h >= 0) & (h < H)
    real = real & (tw < length_w) & (w >= 0) & (w < W)
    cells = masked(pointer + ((base * H + h) * (W * V) + w * V + v), real, OTHER)
    return cells.to(ACC), real


@triton.jit
def window(
    x, other, value, y, second, outer, outer_real, outer_counted, start_h, lengths_h, start_w,
    lengths_w, items, outer_out, outer_in, H, W_units, V, OH, OW, limit_h, limit_w, divisor, reciprocal,
    beta_bits,
    FORM: tl.constexpr, ACC: tl.constexpr, OTHER: tl.constexpr, EMPTY: tl.constexpr,
    RISING: tl.constexpr, WIDE: tl.constexpr, OUTER: tl.constexpr, TABLE_H: tl.constexpr,
    TABLE_W: tl.constexpr, DIVISOR: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr,
    SH: tl.constexpr, SW: tl.constexpr, BH: tl.constexpr, BW: tl.constexpr, DH: tl.constexpr,
    DW: tl.constexpr, UNIT: tl.constexpr, P: tl.constexpr, C: tl.constexpr, K: tl.constexpr,
    UNROLL: tl.constexpr,
):  # fmt: skip
    """What FORM asks of every window, written to `y`, and to `second` where there are two results.

    "max": the value; "codes": value and winner's tap; "mean"; "smooth": the value;
    "smooth_jvp": the tangent, of `other`; "stats": pivot, and gradient `other` over the sum;
    "tied_jvp": the sum of `other` at cells equal to `value`, "split_jvp": their mean;
    "split": the gradient `other` over the number of such cells.
    """
    W = W_units * UNIT  # so that the compiler knows which loads can be wide
    CHUNKS: tl.constexpr = (KW + K - 1) // K
    STEPS: tl.constexpr = (OUTER if OUTER > 0 else 1) * KH * CHUNKS
    b, o, oh, live, first = place(items, OH, outer_out, OW * V, WIDE, P, C)
    cols = first + tl.arange(0, C)[None, :]
    ow = cols // V
    v = (cols - ow * V)[:, :, None]
    live = live & (cols < OW * V)
    if TABLE_H:
        origin_h = tl.load(start_h + oh)
        length_h = tl.load(lengths_h + oh)
        real_h = length_h
        counted_h = length_h
        first_h = 0
    else:
        origin_h = oh * SH - BH
        length_h = KH
        real_h = real_cells(oh, H, KH, SH, BH, DH)
        counted_h = counted_cells(oh, limit_h, KH, SH, BH, DH)
        first_h = first_real(oh, SH, BH, DH)
    if TABLE_W:
        origin_w = tl.load(start_w + ow, cols < OW * V, 0)
        length_w = tl.load(lengths_w + ow, cols < OW * V, 0)
        real_w = length_w
        counted_w = length_w
        first_w = 0
        tap_end = length_w[:, :, None]
    else:
        origin_w = ow * SW - BW
        real_w = real_cells(ow, W, KW, SW, BW, DW)
        counted_w = counted_cells(ow, limit_w, KW, SW, BW, DW)
        first_w = first_real(ow, SW, BW, DW)
        tap_end = KW
    start_code = first_h * KW + first_w
    if OUTER > 0:
        real = tl.load(outer_real + o) * real_h * real_w
        counted = tl.load(outer_counted + o) * counted_h * counted_w
        start_code = start_code + tl.load(outer + outer_out * OUTER + o) * (KH * KW)
    else:
        real = real_h * real_w
        counted = counted_h * counted_w
    if TABLE_H:
        row_end = length_h[:, :, None]
    else:
        row_end = length_h
    at_h = origin_h[:, :, None]
    at_w = origin_w[:, :, None]
    base = (b * outer_in)[:, :, None]
    alive = live[:, :, None]
    target = ((b * outer_out + o) * OH + oh) * (OW * V) + cols

    if FORM == "max" or FORM == "codes":
        best = tl.full((P, C, K), OTHER, ACC)
        steps = tl.zeros((P, C, K), tl.int32)
        for step in tl.range(0, STEPS, loop_unroll_factor=UNROLL):
            cells, _ = _read(
                x, outer, o, base, H, W, V, step, at_h, row_end, at_w, tap_end, v, alive,
                OTHER, ACC, OUTER, KH, CHUNKS, DH, DW, K,
            )  # fmt: skip
            keep = earlier(best, cells)
            best = tl.where(keep, best, cells)
            if FORM == "codes" or K > 1:
                steps = tl.where(keep, steps, step)
        taps = (steps % CHUNKS) * K + tl.arange(0, K)[None, None, :]
        found = (steps // CHUNKS) * KW + taps
        if K == 1:
            m, code = tl.reshape(best, (P, C)), tl.reshape(found, (P, C))
        else:
            m, code = tl.reduce((best, found), 2, _first_largest)
        m = tl.where(real > 0, m, tl.zeros((P, C), ACC))
        tl.store(y + target, m.to(y.dtype.element_ty), live)
        if FORM == "codes":
            # A window of lowest values alone never beat the identity: its first cell wins.
            code = tl.where(m == OTHER, start_code, code)
            code = tl.where(real > 0, code, EMPTY)
            tl.store(second + target, code.to(second.dtype.element_ty), live)
    elif FORM == "mean":
        sums = tl.zeros((P, C, K), ACC)
        for step in tl.range(0, STEPS, loop_unroll_factor=UNROLL):
            cells, _ = _read(
                x, outer, o, base, H, W, V, step, at_h, row_end, at_w, tap_end, v, alive,
                0, ACC, OUTER, KH, CHUNKS, DH, DW, K,
            )  # fmt: skip
            sums += cells
        m = tl.sum(sums, 2)
        if DIVISOR == "fixed":
            m = divide_fixed(m, divisor, reciprocal, ACC)
        elif DIVISOR == "counted":
            m = divide(m, tl.zeros((P, C), ACC) + counted.to(ACC), ACC)
        else:
            cells_real = tl.zeros((P, C), ACC) + tl.maximum(real, 1).to(ACC)
            m = tl.where(real > 0, divide(m, cells_real, ACC), 0.0)
        tl.store(y + target, m.to(y.dtype.element_ty), live)
    elif FORM == "smooth" or FORM == "smooth_jvp" or FORM == "stats":
        beta = tl.cast(beta_bits, tl.float64, bitcast=True)
        pivots = tl.full((P, C, K), OTHER, ACC)
        for step in tl.range(0, STEPS, loop_unroll_factor=UNROLL):
            cells, _ = _read(
                x, outer, o, base, H, W, V, step, at_h, row_end, at_w, tap_end, v, alive,
                OTHER, ACC, OUTER, KH, CHUNKS, DH, DW, K,
            )  # fmt: skip
            pivots = extreme(pivots, cells, RISING)
        if RISING:
            pivot = tl.reduce(pivots, 2, _largest)
        else:
            pivot = tl.reduce(pivots, 2, _smallest)
        count = counted if DIVISOR == "counted" else real
        pivot = soften(pivot, count - real, RISING)
        totals = tl.zeros((P, C, K), ACC)
        sums = tl.zeros((P, C, K), ACC)
        for step in tl.range(0, STEPS, loop_unroll_factor=UNROLL):
            cells, _ = _read(
                x, outer, o, base, H, W, V, step, at_h, row_end, at_w, tap_end, v, alive,
                OTHER, ACC, OUTER, KH, CHUNKS, DH, DW, K,
            )  # fmt: skip
            terms = exponential(cells, pivot[:, :, None], beta, ACC)
            totals += terms
            if FORM == "smooth_jvp":
                tangents, _ = _read(
                    other, outer, o, base, H, W, V, step, at_h, row_end, at_w, tap_end, v, alive,
                    0, ACC, OUTER, KH, CHUNKS, DH, DW, K,
                )  # fmt: skip
                sums += terms * tangents
        total = tl.sum(totals, 2)
        extra = (count - real).to(ACC) * exponential(tl.zeros_like(pivot), pivot, beta, ACC)
        total = tl.where(count > real, total + extra, total)
        if FORM == "smooth":
            m = pivot + divide(logarithm(total, ACC), tl.zeros((P, C), ACC) + beta.to(ACC), ACC)
            m = tl.where(count > 0, m, 0.0)
        elif FORM == "smooth_jvp":
            m = tl.where(real > 0, divide(tl.sum(sums, 2), total, ACC), 0.0)
        else:
            m = pivot
            grad = tl.load(other + target, live, 0.0).to(ACC)
            tl.store(second + target, divide(grad, total, ACC), live)
        tl.store(y + target, m.to(y.dtype.element_ty), live)
    else:
        largest = tl.load(value + target, live, 0.0).to(ACC)[:, :, None]
        sums = tl.zeros((P, C, K), ACC)
        counts = tl.zeros((P, C, K), tl.int32)
        for step in tl.range(0, STEPS, loop_unroll_factor=UNROLL):
            cells, is_real = _read(
                x, outer, o, base, H, W, V, step, at_h, row_end, at_w, tap_end, v, alive,
                0, ACC, OUTER, KH, CHUNKS, DH, DW, K,
            )  # fmt: skip
            tied = is_real & ((cells == largest) | ((cells != cells) & (largest != largest)))
            counts += tied.to(tl.int32)
            if FORM != "split":
                tangents, _ = _read(
                    other, outer, o, base, H, W, V, step, at_h, row_end, at_w, tap_end, v, alive,
                    0, ACC, OUTER, KH, CHUNKS, DH, DW, K,
                )  # fmt: skip
                sums += tl.where(tied, tangents, 0.0)
        ties = tl.maximum(tl.sum(counts, 2), 1).to(ACC)
        if FORM == "split":
            m = divide(tl.load(other + target, live, 0.0).to(ACC), ties, ACC)
        else:
            m = tl.sum(sums, 2)
            if FORM == "split_jvp":
                m = divide(m, ties, ACC)
        tl.store(y + target, m.to(y.dtype.element_ty), live)
