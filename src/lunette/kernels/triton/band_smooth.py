"""Smooth max of small sliding windows, by bands: values, tangents, and what the gradient needs."""

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
    divide,
    exponential,
    extreme,
    extreme_of_three,
    logarithm,
    real_cells,
    span,
    split_groups,
    within,
)
from lunette.kernels.triton.band import columns, outer_cells, place, plane_of

__all__ = ["band_smooth", "soften"]


@triton.jit
def soften(pivot, padding, RISING: tl.constexpr):
    """The pivot with the padding's zeros, if they count; 0 in place of an infinity."""
    pivot = tl.where(padding > 0, extreme(pivot, tl.zeros_like(pivot), RISING), pivot)
    return tl.where(tl.abs(pivot) == float("inf"), 0.0, pivot)


@triton.jit
def band_smooth(
    x, other, y, scaled, outer, outer_real, outer_counted, items, bands, outer_out, outer_in, H,
    W_units, V, OH, OW_units, limit_h, limit_w, beta_bits,
    FORM: tl.constexpr, ACC: tl.constexpr, RISING: tl.constexpr, WIDE: tl.constexpr,
    OUTER: tl.constexpr, PADDED: tl.constexpr, COUNT_PADDING: tl.constexpr, KH: tl.constexpr,
    KW: tl.constexpr, SH: tl.constexpr, SW: tl.constexpr, BH: tl.constexpr, BW: tl.constexpr,
    DH: tl.constexpr, DW: tl.constexpr, UNIT: tl.constexpr, OUT_UNIT: tl.constexpr,
    GROUP: tl.constexpr, R: tl.constexpr, P: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """FORM "value": y; "jvp": y from x and its tangent `other`; "stats": y is the pivot, and
    `scaled` the gradient `other` of the output over the sum of exponentials."""
    W = W_units * UNIT
    OW = OW_units * OUT_UNIT
    OUT: tl.constexpr = 1 if GROUP == 1 else GROUP // SW
    ROWS: tl.constexpr = (R - 1) * SH + (KH - 1) * DH + 1
    START: tl.constexpr = -BW
    STEP: tl.constexpr = DW if GROUP == 1 else 1
    COUNT: tl.constexpr = KW if GROUP == 1 else (OUT - 1) * SW + KW
    BASE: tl.constexpr = 0 if GROUP == 1 else START - (START // GROUP) * GROUP
    HIGH: tl.constexpr = START + COUNT - 1
    WIDTH: tl.constexpr = COUNT if GROUP == 1 else (HIGH // GROUP - START // GROUP + 1) * GROUP
    PLANES: tl.constexpr = OUTER if OUTER > 0 else 1
    OTHER: tl.constexpr = float("-inf") if RISING else float("inf")

    beta = tl.cast(beta_bits, tl.float64, bitcast=True)
    inverse = divide(tl.full((1, 1), 1.0, ACC), tl.zeros((1, 1), ACC) + beta.to(ACC), ACC)
    lanes = OW * V if GROUP == 1 else tl.cdiv(OW, OUT)
    b, o, strip, live, first = place(items, bands, outer_out, lanes, WIDE, P, C)
    lane, v, ow, stored_at = columns(first, V, SW, OUT, GROUP, C)
    h0 = strip * (R * SH) - BH

    cells = ()
    tangents = ()
    for ko in tl.static_range(PLANES):
        plane, reading = plane_of(outer, b, o, ko, outer_in, live, OUTER)
        offset = (plane * H + h0) * (W * V) + v
        for j in tl.static_range(ROWS):
            h = h0 + j
            inside = reading & within(h, H)
            row = offset + j * (W * V)
            cells = cells + span(
                x, row, lane, W, V, inside, OTHER, ACC, START, STEP, COUNT, GROUP, P, C
            )
            if FORM == "jvp":
                tangents = tangents + span(
                    other, row, lane, W, V, inside, 0.0, ACC, START, STEP, COUNT, GROUP, P, C
                )
    real_o, counted_o = outer_cells(outer_real, outer_counted, o, OUTER)
    for r in tl.static_range(R):
        oh = strip * R + r
        target = ((b * outer_out + o) * OH + oh) * (OW * V) + stored_at
        stored = live & (oh < OH) & (stored_at < OW * V)
        if FORM == "stats":
            grads = (tl.load(other + target, stored, 0.0).to(ACC),)
            if OUT > 1:
                grads = split_groups(grads[0], P, C, OUT)
        parts = ()
        quotients = ()
        for f in tl.static_range(OUT):
            at = ow + f
            mine = ()
            turned = ()
            for ko in tl.static_range(PLANES):
                for t in tl.static_range(KH):
                    for i in tl.static_range(KW):
                        mine = mine + (
                            cells[(ko * ROWS + r * SH + t * DH) * WIDTH + BASE + f * SW + i],
                        )
                        if FORM == "jvp":
                            turned = turned + (
                                tangents[(ko * ROWS + r * SH + t * DH) * WIDTH + BASE + f * SW + i],
                            )
            pivot = mine[0]
            for i in tl.static_range(1, PLANES * KH * KW - 1, 2):
                pivot = extreme_of_three(pivot, mine[i], mine[i + 1], RISING)
            if PLANES * KH * KW % 2 == 0:
                pivot = extreme(pivot, mine[PLANES * KH * KW - 1], RISING)
            if PADDED:
                real = real_cells(oh, H, KH, SH, BH, DH) * real_o
                real = real * real_cells(at, W, KW, SW, BW, DW)
                count = real
                if COUNT_PADDING:
                    count = counted_cells(oh, limit_h, KH, SH, BH, DH) * counted_o
                    count = count * counted_cells(at, limit_w, KW, SW, BW, DW)
                pivot = soften(pivot, count - real, RISING)
            else:
                pivot = soften(pivot, 0, RISING)
            total = tl.zeros((P, C), ACC)
            along = tl.zeros((P, C), ACC)
            for i in tl.static_range(PLANES * KH * KW):
                term, total = add_exponential(total, mine[i], pivot, beta, ACC, FORM == "jvp")
                if FORM == "jvp":
                    along = along + term * turned[i]
            if PADDED:
                extra = (count - real).to(ACC) * exponential(tl.zeros_like(pivot), pivot, beta, ACC)
                total = tl.where(count > real, total + extra, total)
            if FORM == "value":
                m = pivot + logarithm(total, ACC) * inverse
                if PADDED:
                    m = tl.where(count > 0, m, 0.0)
            elif FORM == "jvp":
                m = along / total
                if PADDED:
                    m = tl.where(real > 0, m, 0.0)
            else:
                m = pivot
                quotients = quotients + (grads[f] / total,)
            parts = parts + (m,)
        tl.store(y + target, assemble(parts, P, C, OUT).to(y.dtype.element_ty), stored)
        if FORM == "stats":
            tl.store(scaled + target, assemble(quotients, P, C, OUT), stored)
