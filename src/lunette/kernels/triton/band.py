"""Forward for small sliding windows: a program takes a band of output rows and keeps rows in registers.

A lane owns GROUP neighbouring input columns, so OUT = GROUP / SW output columns. Every input row of
the band is loaded once and reduced along the row; the rows are then combined down the column.
Windows on axes before the last two come as a table of planes.
"""

# Triton compiles these functions from their source: they have no Python types, tuples grow with
# `+`, and `x != x` asks for NaN.
# mypy: ignore-errors
# ruff: noqa: RUF005

from __future__ import annotations

import triton
import triton.language as tl

from lunette.kernels.triton.arithmetic import (
    assemble,
    counted_cells,
    divide,
    divide_fixed,
    first_real,
    larger,
    larger_coded,
    real_cells,
    span,
    within,
)

__all__ = ["band", "columns", "outer_cells", "place", "plane_of"]


@triton.jit
def widen(
    values, COUNT: tl.constexpr, STEP: tl.constexpr, DOUBLINGS: tl.constexpr, MERGED: tl.constexpr
):
    """The max of 2^DOUBLINGS neighbours, STEP apart, from each of COUNT values that has them."""
    for i in tl.static_range(DOUBLINGS):
        wider = ()
        for j in tl.static_range(COUNT - STEP * (2 ** (i + 1) - 1)):
            wider = wider + (larger(values[j], values[j + STEP * 2**i], MERGED),)
        values = wider
    return values


@triton.jit
def place(
    items, bands, outer_out, lanes,
    WIDE: tl.constexpr, P: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """(batch, outer output, band, live) of the program's P items, and its first lane."""
    pid = tl.program_id(0)
    if WIDE:
        pid = pid.to(tl.int64)
    blocks = tl.cdiv(lanes, C)
    first = (pid % blocks) * C
    if WIDE == 1:  # 2: a single row is so long that even its lanes need 64 bits
        first = first.to(tl.int32)
    item = (pid // blocks) * P + tl.arange(0, P)[:, None]
    rest = item // bands
    return rest // outer_out, rest % outer_out, item % bands, item < items, first


@triton.jit
def columns(
    first,
    V,
    SW: tl.constexpr,
    OUT: tl.constexpr,
    GROUP: tl.constexpr,
    C: tl.constexpr,
):
    """Of every lane: input column, channel, first output column, and where the outputs are stored."""
    place_in_row = first + tl.arange(0, C)[None, :]
    if GROUP == 1:
        ow = place_in_row // V
        return ow * SW, place_in_row - ow * V, ow, place_in_row
    else:
        lane = first * GROUP + tl.arange(0, GROUP * C)[None, :]
        return lane, 0, place_in_row * OUT, first * OUT + tl.arange(0, OUT * C)[None, :]


@triton.jit
def plane_of(outer, b, o, ko, outer_in, live, OUTER: tl.constexpr):
    """The plane at tap `ko` of outer output `o`, and whether it is there to be read."""
    if OUTER > 0:
        plane = tl.load(outer + o * OUTER + ko)
        return b * outer_in + plane, live & (plane >= 0)
    else:
        return b, live


@triton.jit
def outer_cells(outer_real, outer_counted, o, OUTER: tl.constexpr):
    """Real and counted cells of outer output `o`."""
    if OUTER > 0:
        return tl.load(outer_real + o), tl.load(outer_counted + o)
    else:
        return 1, 1


@triton.jit
def band(
    x, y, codes, outer, outer_real, outer_counted, items, bands, outer_out, outer_in, H, W_units,
    V, OH, OW_units, limit_h, limit_w, divisor, reciprocal,
    FORM: tl.constexpr, ACC: tl.constexpr, OTHER: tl.constexpr, EMPTY: tl.constexpr,
    WIDE: tl.constexpr, OUTER: tl.constexpr, MAY_BE_EMPTY: tl.constexpr, DIVISOR: tl.constexpr,
    KH: tl.constexpr, KW: tl.constexpr, SH: tl.constexpr, SW: tl.constexpr, BH: tl.constexpr,
    BW: tl.constexpr, DH: tl.constexpr, DW: tl.constexpr, UNIT: tl.constexpr,
    OUT_UNIT: tl.constexpr, GROUP: tl.constexpr, R: tl.constexpr, P: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """FORM "max": values; "codes": values and the winner's tap; "mean": values.

    DIVISOR of a mean: "fixed" is `divisor`, "counted" the cells counted, "real" those in the input.
    """
    W = W_units * UNIT
    OW = OW_units * OUT_UNIT
    OUT: tl.constexpr = 1 if GROUP == 1 else GROUP // SW
    ROWS: tl.constexpr = (R - 1) * SH + (KH - 1) * DH + 1
    START: tl.constexpr = -BW
    STEP: tl.constexpr = DW if GROUP == 1 else 1
    COUNT: tl.constexpr = KW if GROUP == 1 else (OUT - 1) * SW + KW
    BASE: tl.constexpr = 0 if GROUP == 1 else START - (START // GROUP) * GROUP
    DOUBLE: tl.constexpr = FORM == "max" and KW >= 5 and SW == 1 and GROUP > 1
    DOUBLINGS: tl.constexpr = 0 if KW < 2 else 1 if KW < 4 else 2 if KW < 8 else 3 if KW < 16 else 4
    MERGED: tl.constexpr = GROUP > 1
    DOUBLE_H: tl.constexpr = FORM == "max" and KH >= 5 and SH == 1
    DOUBLINGS_H: tl.constexpr = (
        0 if KH < 2 else 1 if KH < 4 else 2 if KH < 8 else 3 if KH < 16 else 4
    )

    lanes = OW * V if GROUP == 1 else tl.cdiv(OW, OUT)
    b, o, strip, live, first = place(items, bands, outer_out, lanes, WIDE, P, C)
    lane, v, ow, stored_at = columns(first, V, SW, OUT, GROUP, C)
    h0 = strip * (R * SH) - BH

    best = ()
    where = ()
    for ko in tl.static_range(OUTER if OUTER > 0 else 1):
        plane, reading = plane_of(outer, b, o, ko, outer_in, live, OUTER)
        offset = (plane * H + h0) * (W * V) + v
        rows = ()
        taps = ()
        for j in tl.static_range(ROWS):
            h = h0 + j
            inside = reading & within(h, H)
            values = span(
                x,
                offset + j * (W * V),
                lane,
                W,
                V,
                inside,
                OTHER,
                ACC,
                START,
                STEP,
                COUNT,
                GROUP,
                P,
                C,
            )
            if DOUBLE:
                values = values[BASE:]
                wide = widen(values, COUNT, 1, DOUBLINGS, MERGED)
            for f in tl.static_range(OUT):
                if DOUBLE:
                    m = larger(wide[f], wide[f + KW - 2**DOUBLINGS], MERGED)
                    rows = rows + (m,)
                elif FORM == "codes":
                    m = values[(BASE + f * SW)]
                    c = tl.zeros((P, C), tl.int32)
                    for t in tl.static_range(1, KW):
                        m, c = larger_coded(
                            m,
                            c,
                            values[(BASE + f * SW) + t],
                            tl.full((P, C), t, tl.int32),
                            MERGED,
                        )
                    rows = rows + (m,)
                    taps = taps + (c,)
                else:
                    m = values[(BASE + f * SW)]
                    for t in tl.static_range(1, KW):
                        if FORM == "mean":
                            m = m + values[(BASE + f * SW) + t]
                        else:
                            m = larger(m, values[(BASE + f * SW) + t], MERGED)
                    rows = rows + (m,)
        if DOUBLE_H:
            rows = widen(rows, ROWS * OUT, DH * OUT, DOUBLINGS_H, MERGED)
        news = ()
        new_where = ()
        for r in tl.static_range(R):
            for f in tl.static_range(OUT):
                if FORM == "codes":
                    if ko == 0:
                        m = rows[(r * SH * OUT + f)]
                        c = taps[(r * SH * OUT + f)]
                    else:
                        m, c = larger_coded(
                            best[r * OUT + f],
                            where[r * OUT + f],
                            rows[(r * SH * OUT + f)],
                            ko * (KH * KW) + taps[(r * SH * OUT + f)],
                            MERGED,
                        )
                    for t in tl.static_range(1, KH):
                        m, c = larger_coded(
                            m,
                            c,
                            rows[(r * SH * OUT + f) + t * DH * OUT],
                            taps[(r * SH * OUT + f) + t * DH * OUT] + (ko * KH + t) * KW,
                            MERGED,
                        )
                    new_where = new_where + (c,)
                elif DOUBLE_H:
                    m = larger(
                        rows[(r * SH * OUT + f)],
                        rows[(r * SH * OUT + f) + (KH - 2**DOUBLINGS_H) * DH * OUT],
                        MERGED,
                    )
                    if ko > 0:
                        m = larger(best[r * OUT + f], m, MERGED)
                else:
                    m = rows[(r * SH * OUT + f)]
                    if ko > 0:
                        m = (
                            best[r * OUT + f] + m
                            if FORM == "mean"
                            else larger(best[r * OUT + f], m, MERGED)
                        )
                    for t in tl.static_range(1, KH):
                        if FORM == "mean":
                            m = m + rows[(r * SH * OUT + f) + t * DH * OUT]
                        else:
                            m = larger(m, rows[(r * SH * OUT + f) + t * DH * OUT], MERGED)
                news = news + (m,)
        best = news
        where = new_where

    real_o, counted_o = outer_cells(outer_real, outer_counted, o, OUTER)
    for r in tl.static_range(R):
        oh = strip * R + r
        parts = ()
        part_codes = ()
        for f in tl.static_range(OUT):
            m = best[r * OUT + f]
            at = ow + f
            if FORM == "mean":
                if DIVISOR == "fixed":
                    m = divide_fixed(m, divisor, reciprocal, ACC)
                elif DIVISOR == "counted":
                    cells = counted_cells(oh, limit_h, KH, SH, BH, DH) * counted_o
                    cells = cells * counted_cells(at, limit_w, KW, SW, BW, DW)
                    m = divide(m, cells.to(ACC), ACC)
                else:
                    cells = real_cells(oh, H, KH, SH, BH, DH) * real_o
                    cells = cells * real_cells(at, W, KW, SW, BW, DW)
                    m = tl.where(cells > 0, divide(m, tl.maximum(cells, 1).to(ACC), ACC), 0.0)
            elif MAY_BE_EMPTY:
                cells = real_cells(oh, H, KH, SH, BH, DH) * real_o
                cells = cells * real_cells(at, W, KW, SW, BW, DW)
                m = tl.where(cells > 0, m, tl.zeros((P, C), ACC))
            parts = parts + (m,)
            if FORM == "codes":
                # A window of lowest values alone never beat the identity: its first cell wins.
                c = where[r * OUT + f]
                start = first_real(oh, SH, BH, DH) * KW + first_real(at, SW, BW, DW)
                if OUTER > 0:
                    start = start + tl.load(outer + outer_out * OUTER + o) * (KH * KW)
                c = tl.where(m == OTHER, start, c)
                if MAY_BE_EMPTY:
                    c = tl.where(cells > 0, c, EMPTY)
                part_codes = part_codes + (c,)
        target = ((b * outer_out + o) * OH + oh) * (OW * V) + stored_at
        stored = live & (oh < OH) & (stored_at < OW * V)
        tl.store(y + target, assemble(parts, P, C, OUT).to(y.dtype.element_ty), stored)
        if FORM == "codes":
            packed = assemble(part_codes, P, C, OUT)
            tl.store(codes + target, packed.to(codes.dtype.element_ty), stored)
