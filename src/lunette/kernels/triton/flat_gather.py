"""Gradients with one input a lane: it adds up what its readers send, in row-major order of outputs.

As `flat`, for any row length, plane and rank: the readers of an input are few, and known when the kernel is compiled up to
which of them exist.
"""

# Triton compiles these functions from their source: they have no Python types.
# mypy: ignore-errors

from __future__ import annotations

import triton
import triton.language as tl

from lunette.kernels.triton.arithmetic import (
    counted_cells,
    divide,
    divide_fixed,
    real_cells,
    within,
)
from lunette.kernels.triton.flat import divide_by, number

__all__ = ["flat_gather"]


@triton.jit
def _first_reader(
    firsts, at, live, TABLE: tl.constexpr, S: tl.constexpr, B: tl.constexpr, R: tl.constexpr
):
    """The first window on an axis that may read position `at`."""
    if TABLE:
        return tl.load(firsts + at, live, 0)
    else:  # R windows up to the last that starts at or before it
        return tl.maximum(at + B, 0) // S - (R - 1)


@triton.jit
def _read_by(
    starts, lengths, i, at, n, m, limit, candidates,
    TABLE: tl.constexpr, K: tl.constexpr, S: tl.constexpr, B: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    """Whether window `i` reads position `at`, by which tap, and its real and counted cells."""
    inside = candidates & within(i, m)
    if TABLE:
        size = tl.load(lengths + i, inside, 0)
        tap = at - tl.load(starts + i, inside, 0)
        return inside & within(tap, size), tap, size, size
    else:
        distance = at + B - i * S
        inside = inside & (distance < (K - 1) * D + 1)
        if B < 0:  # then a window may start past the position
            inside = inside & (distance >= 0)
        if D > 1:
            inside = inside & (distance % D == 0)
        return (
            inside,
            distance // D,
            real_cells(i, n, K, S, B, D),
            counted_cells(i, limit, K, S, B, D),
        )


@triton.jit(
    do_not_specialize=[
        "total", "outer_out", "outer_in", "H", "W", "V_units", "OH", "OW", "limit_h", "limit_w",
        "divisor", "magic_v", "shift_v", "magic_w", "shift_w", "magic_h", "shift_h", "magic_o", "shift_o",
    ]
)  # fmt: skip
def flat_gather(
    grad, codes, out, readers, outer_real, outer_counted, start_h, lengths_h, first_h, start_w,
    lengths_w, first_w, total, outer_out, outer_in, H, W,
    V_units, OH, OW, limit_h, limit_w, divisor, reciprocal,
    magic_v, shift_v, magic_w, shift_w, magic_h, shift_h, magic_o, shift_o,
    FORM: tl.constexpr, ACC: tl.constexpr, WIDE: tl.constexpr, OUTER: tl.constexpr,
    LANED: tl.constexpr, TABLE_H: tl.constexpr, TABLE_W: tl.constexpr, DIVISOR: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr,
    SH: tl.constexpr, SW: tl.constexpr, BH: tl.constexpr, BW: tl.constexpr, DH: tl.constexpr,
    DW: tl.constexpr, RH: tl.constexpr, RW: tl.constexpr, P: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """FORM "codes" and "mean" as in `gather`."""
    at, live, v = number(total, WIDE, P, LANES)
    V = V_units * LANES
    rest = at
    if LANED:
        rest = divide_by(at, V_units, magic_v, shift_v, WIDE)
        v = v + (at - rest * V_units) * LANES
    row = divide_by(rest, W, magic_w, shift_w, WIDE)
    w = rest - row * W
    plane = divide_by(row, H, magic_h, shift_h, WIDE)
    h = row - plane * H
    b = plane
    p = 0
    if OUTER > 0:
        b = divide_by(plane, outer_in, magic_o, shift_o, WIDE)
        p = plane - b * outer_in
    begin_h = _first_reader(first_h, h, live, TABLE_H, SH, BH, RH)
    begin_w = _first_reader(first_w, w, live, TABLE_W, SW, BW, RW)
    if LANES > 1:
        total_of = tl.zeros((P, LANES), ACC)
    else:
        total_of = tl.zeros((P,), ACC)
    for ro in tl.static_range(OUTER if OUTER > 0 else 1):
        o = 0
        ko = 0
        reading = live
        if OUTER > 0:
            o = tl.load(readers + (p * OUTER + ro) * 2, live, -1)
            ko = tl.load(readers + (p * OUTER + ro) * 2 + 1, live, 0)
            reading = live & (o >= 0)
        for rh in tl.static_range(RH):
            oh = begin_h + rh
            in_h, th, real_h, counted_h = _read_by(
                start_h, lengths_h, oh, h, H, OH, limit_h, reading, TABLE_H, KH, SH, BH, DH
            )
            for rw in tl.static_range(RW):
                ow = begin_w + rw
                reads, tw, real_w, counted_w = _read_by(
                    start_w, lengths_w, ow, w, W, OW, limit_w, in_h, TABLE_W, KW, SW, BW, DW
                )
                source = (((b * outer_out + o) * OH + oh) * OW + ow) * V + v
                g = tl.load(grad + source, reads, 0.0).to(ACC)
                if FORM == "codes":
                    code = tl.load(codes + source, reads, 0).to(tl.int32)
                    total_of += tl.where(reads & (code == (ko * KH + th) * KW + tw), g, 0.0)
                else:
                    if DIVISOR == "fixed":
                        g = divide_fixed(g, divisor, reciprocal, ACC)
                    else:
                        if DIVISOR == "counted":
                            cells = counted_h * counted_w
                            if OUTER > 0:
                                cells = cells * tl.load(outer_counted + o, reading, 1)
                        else:
                            cells = real_h * real_w
                            if OUTER > 0:
                                cells = cells * tl.load(outer_real + o, reading, 1)
                        cells = tl.zeros(g.shape, ACC) + tl.maximum(cells, 1).to(ACC)
                        g = divide(g, cells, ACC)
                    total_of += tl.where(reads, g, 0.0)
    target = at * LANES + tl.arange(0, LANES)[None, :] if LANES > 1 else at
    tl.store(out + target, total_of.to(out.dtype.element_ty), live)
