"""Forward with one output a lane: every tap is a load of its own, so any row length, plane and rank is served alike.

Outputs are numbered in the order of memory across rows, planes and images, and a program takes a block of them. Small
planes and odd rows leave no lane idle. Where channels are innermost, LANES of them side by side make a row of the block.
"""

# Triton compiles these functions from their source: they have no Python types.
# mypy: ignore-errors
# ruff: noqa: PLR1714

from __future__ import annotations

import triton
import triton.language as tl

from lunette.kernels.triton.arithmetic import (
    counted_cells,
    divide,
    divide_fixed,
    first_real,
    larger,
    larger_coded,
    masked,
    real_cells,
    within,
)

__all__ = ["divide_by", "flat", "number"]


@triton.jit
def divide_by(n, d, magic, shift, WIDE: tl.constexpr):
    """`n // d` for 0 ≤ n < 2³¹ by a product: `magic` is ⌈2^(31 + l) / d⌉ and `shift` l − 1, l = ⌈log₂ d⌉; both 0 for d = 1."""
    if WIDE:
        return n // d
    else:
        quotient = tl.umulhi(n.to(tl.uint32), magic.to(tl.uint32, bitcast=True))
        quotient = quotient >> shift.to(tl.uint32)
        return tl.where(magic == 0, n, quotient.to(tl.int32))


@triton.jit
def number(total, WIDE: tl.constexpr, P: tl.constexpr, LANES: tl.constexpr):
    """The numbers of the program's P positions, whether they exist, and the channels of each."""
    pid = tl.program_id(0)
    if WIDE:
        pid = pid.to(tl.int64)
    if LANES > 1:
        at = pid * P + tl.arange(0, P)[:, None]
        return at, at < total, tl.arange(0, LANES)[None, :]
    else:
        at = pid * P + tl.arange(0, P)
        return at, at < total, 0


@triton.jit
def _cells(
    x, base, h, w, H, W, V, live, th, tw, length_h, length_w,
    OTHER: tl.constexpr, ACC: tl.constexpr, TABLE_H: tl.constexpr, TABLE_W: tl.constexpr,
    PADDED_H: tl.constexpr, PADDED_W: tl.constexpr, DH: tl.constexpr, DW: tl.constexpr,
):  # fmt: skip
    """The cell at tap (th, tw) of every window; OTHER where there is none."""
    inside = live
    if TABLE_H:
        inside = inside & (th < length_h)
    elif PADDED_H:
        inside = inside & within(h + th * DH, H)
    if TABLE_W:
        inside = inside & (tw < length_w)
    elif PADDED_W:
        inside = inside & within(w + tw * DW, W)
    return masked(x + (base + (th * (DH * W) + tw * DW) * V), inside, OTHER).to(ACC)


@triton.jit
def _row(
    x, base, h, w, H, W, V, live, th, length_h, length_w,
    FORM: tl.constexpr, STATIC: tl.constexpr, OTHER: tl.constexpr, ACC: tl.constexpr,
    TABLE_H: tl.constexpr, TABLE_W: tl.constexpr, PADDED_H: tl.constexpr, PADDED_W: tl.constexpr,
    KW: tl.constexpr, DH: tl.constexpr, DW: tl.constexpr,
):  # fmt: skip
    """A row of every window: its max or sum, and the tap of the max."""
    m = _cells(
        x, base, h, w, H, W, V, live, th, 0, length_h, length_w,
        OTHER, ACC, TABLE_H, TABLE_W, PADDED_H, PADDED_W, DH, DW,
    )  # fmt: skip
    c = tl.zeros(m.shape, tl.int32)
    if STATIC:
        for tw in tl.static_range(1, KW):
            cell = _cells(
                x, base, h, w, H, W, V, live, th, tw, length_h, length_w,
                OTHER, ACC, TABLE_H, TABLE_W, PADDED_H, PADDED_W, DH, DW,
            )  # fmt: skip
            m, c = _join(m, c, cell, tl.full(m.shape, tw, tl.int32), FORM)
    else:
        for tw in tl.range(1, KW, loop_unroll_factor=4):
            cell = _cells(
                x, base, h, w, H, W, V, live, th, tw, length_h, length_w,
                OTHER, ACC, TABLE_H, TABLE_W, PADDED_H, PADDED_W, DH, DW,
            )  # fmt: skip
            m, c = _join(m, c, cell, tl.zeros(m.shape, tl.int32) + tw, FORM)
    return m, c


@triton.jit
def _join(m, c, other, code, FORM: tl.constexpr):
    """Two parts of a window, the earlier first: their sum, or the larger with its code."""
    if FORM == "mean":
        return m + other, c
    elif FORM == "codes":
        return larger_coded(m, c, other, code, m.dtype == tl.float32)
    else:
        return larger(m, other, m.dtype == tl.float32 or m.dtype == tl.float64), c


@triton.jit(
    do_not_specialize=[
        "total", "outer_out", "outer_in", "H", "W", "V_units", "OH", "OW", "limit_h", "limit_w",
        "divisor", "magic_v", "shift_v", "magic_w", "shift_w", "magic_h", "shift_h", "magic_o", "shift_o",
    ]
)  # fmt: skip
def flat(
    x, y, codes, outer, outer_real, outer_counted, start_h, lengths_h, start_w, lengths_w,
    total, outer_out, outer_in, H, W, V_units, OH, OW, limit_h, limit_w, divisor, reciprocal,
    magic_v, shift_v, magic_w, shift_w, magic_h, shift_h, magic_o, shift_o,
    FORM: tl.constexpr, ACC: tl.constexpr, OTHER: tl.constexpr, EMPTY: tl.constexpr,
    WIDE: tl.constexpr, OUTER: tl.constexpr, LANED: tl.constexpr, TABLE_H: tl.constexpr,
    TABLE_W: tl.constexpr, PADDED_H: tl.constexpr, PADDED_W: tl.constexpr,
    MAY_BE_EMPTY: tl.constexpr, DIVISOR: tl.constexpr, STATIC: tl.constexpr, KH: tl.constexpr,
    KW: tl.constexpr, SH: tl.constexpr, SW: tl.constexpr, BH: tl.constexpr, BW: tl.constexpr,
    DH: tl.constexpr, DW: tl.constexpr, P: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """FORM "max", "codes" and "mean" as in `band`, with the same order of additions."""
    at, live, v = number(total, WIDE, P, LANES)
    V = V_units * LANES
    rest = at
    if LANED:
        rest = divide_by(at, V_units, magic_v, shift_v, WIDE)
        v = v + (at - rest * V_units) * LANES
    row = divide_by(rest, OW, magic_w, shift_w, WIDE)
    ow = rest - row * OW
    plane = divide_by(row, OH, magic_h, shift_h, WIDE)
    oh = row - plane * OH
    b = plane
    o = 0
    if OUTER > 0:
        b = divide_by(plane, outer_out, magic_o, shift_o, WIDE)
        o = plane - b * outer_out

    length_h = KH
    length_w = KW
    if TABLE_H:
        h = tl.load(start_h + oh, live, 0)
        length_h = tl.load(lengths_h + oh, live, 0)
    else:
        h = oh * SH - BH
    if TABLE_W:
        w = tl.load(start_w + ow, live, 0)
        length_w = tl.load(lengths_w + ow, live, 0)
    else:
        w = ow * SW - BW
    base = (b * outer_in * H + h) * W + w

    for ko in tl.static_range(OUTER if OUTER > 0 else 1):
        reading = live
        offset = base
        if OUTER > 0:
            depth = tl.load(outer + o * OUTER + ko, live, -1)
            reading = live & (depth >= 0)
            offset = base + depth * (H * W)
        offset = offset * V + v
        if STATIC:
            for th in tl.static_range(KH):
                m, c = _row(
                    x, offset, h, w, H, W, V, reading, th, length_h, length_w,
                    FORM, True, OTHER, ACC, TABLE_H, TABLE_W, PADDED_H, PADDED_W, KW, DH, DW,
                )  # fmt: skip
                if ko == 0 and th == 0:
                    best = m
                    where = c
                else:
                    best, where = _join(best, where, m, c + (ko * KH + th) * KW, FORM)
        else:
            m, c = _row(
                x, offset, h, w, H, W, V, reading, 0, length_h, length_w,
                FORM, False, OTHER, ACC, TABLE_H, TABLE_W, PADDED_H, PADDED_W, KW, DH, DW,
            )  # fmt: skip
            if ko == 0:
                best = m
                where = c
            else:
                best, where = _join(best, where, m, c + ko * (KH * KW), FORM)
            for th in tl.range(1, KH):
                m, c = _row(
                    x, offset, h, w, H, W, V, reading, th, length_h, length_w,
                    FORM, False, OTHER, ACC, TABLE_H, TABLE_W, PADDED_H, PADDED_W, KW, DH, DW,
                )  # fmt: skip
                best, where = _join(best, where, m, c + (ko * KH + th) * KW, FORM)

    if MAY_BE_EMPTY or (FORM == "mean" and DIVISOR == "real"):
        real_h = length_h if TABLE_H else real_cells(oh, H, KH, SH, BH, DH)
        real_w = length_w if TABLE_W else real_cells(ow, W, KW, SW, BW, DW)
        real = real_h * real_w
        if OUTER > 0:
            real = real * tl.load(outer_real + o, live, 0)
    if FORM == "mean":
        if DIVISOR == "fixed":
            best = divide_fixed(best, divisor, reciprocal, ACC)
        elif DIVISOR == "counted":
            counted_h = length_h if TABLE_H else counted_cells(oh, limit_h, KH, SH, BH, DH)
            counted_w = length_w if TABLE_W else counted_cells(ow, limit_w, KW, SW, BW, DW)
            counted = counted_h * counted_w
            if OUTER > 0:
                counted = counted * tl.load(outer_counted + o, live, 1)
            counted = tl.where(live, counted, 1)
            best = divide(best, tl.zeros(best.shape, ACC) + counted.to(ACC), ACC)
        else:
            divided = divide(best, tl.zeros(best.shape, ACC) + tl.maximum(real, 1).to(ACC), ACC)
            best = tl.where(real > 0, divided, 0.0)
    elif MAY_BE_EMPTY:
        best = tl.where(real > 0, best, tl.zeros(best.shape, ACC))
    target = at * LANES + tl.arange(0, LANES)[None, :] if LANES > 1 else at
    tl.store(y + target, best.to(y.dtype.element_ty), live)
    if FORM == "codes":
        # A window of lowest values alone never beat the identity: its first cell wins.
        first_h = 0 if TABLE_H else first_real(oh, SH, BH, DH)
        first_w = 0 if TABLE_W else first_real(ow, SW, BW, DW)
        start = first_h * KW + first_w
        if OUTER > 0:
            start = start + tl.load(outer + outer_out * OUTER + o, live, 0) * (KH * KW)
        where = tl.where(best == OTHER, start, where)
        if MAY_BE_EMPTY:
            where = tl.where(real > 0, where, EMPTY)
        tl.store(codes + target, where.to(codes.dtype.element_ty), live)
