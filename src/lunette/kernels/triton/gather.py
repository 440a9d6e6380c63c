"""Gradients for any window: every input adds up what its readers send, in row-major output order.

No atomics: one lane writes one input, and its sum starts at +0. Then the step from a winner's tap
to its position, for indices and for tangents of a max.
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
    exponential,
    real_cells,
)
from lunette.kernels.triton.band import place

__all__ = ["gather", "locate"]


@triton.jit
def first_reader(
    firsts, at, n, m, TABLE: tl.constexpr, S: tl.constexpr, B: tl.constexpr, R: tl.constexpr
):
    """The first window on an axis that may read position `at`, and one past the last."""
    if TABLE:
        return tl.load(firsts + at, at < n, 0), tl.load(firsts + n + at, at < n, 0)
    else:
        return tl.maximum(at + B, 0) // S - (R - 1), m


@triton.jit
def read_by(
    starts, lengths, i, at, n, limit, candidates,
    TABLE: tl.constexpr, K: tl.constexpr, S: tl.constexpr, B: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    """Whether window `i` reads position `at`, by which tap, and its real and counted cells."""
    if TABLE:
        size = tl.load(lengths + i, candidates, 0)
        return candidates, at - tl.load(starts + i, candidates, 0), size, size
    else:
        distance = at + B - i * S
        tap = distance // D
        reads = candidates & (distance >= 0) & (tap < K) & (tap * D == distance)
        return reads, tap, real_cells(i, n, K, S, B, D), counted_cells(i, limit, K, S, B, D)


@triton.jit
def gather(
    grad, codes, x, value, out, readers, outer_real, outer_counted, start_h, lengths_h, first_h,
    start_w, lengths_w, first_w, items, outer_out, outer_in, H, W, V, OH, OW, limit_h, limit_w,
    divisor, reciprocal, beta_bits,
    FORM: tl.constexpr, ACC: tl.constexpr, WIDE: tl.constexpr, OUTER: tl.constexpr,
    TABLE_H: tl.constexpr, TABLE_W: tl.constexpr, DIVISOR: tl.constexpr, KH: tl.constexpr,
    KW: tl.constexpr, SH: tl.constexpr, SW: tl.constexpr, BH: tl.constexpr, BW: tl.constexpr,
    DH: tl.constexpr, DW: tl.constexpr, RH: tl.constexpr, RW: tl.constexpr, P: tl.constexpr,
    C: tl.constexpr,
):  # fmt: skip
    """FORM "codes": a window's gradient goes to the cell its code names; "mean": a share to all;
    "tied": to every cell equal to `value`; "smooth": times exp(β(x − `value`)), the pivot."""
    READERS: tl.constexpr = OUTER if OUTER > 0 else 1
    b, p, h, live, first = place(items, H, outer_in, W * V, WIDE, P, C)
    cols = first + tl.arange(0, C)[None, :]
    w = cols // V
    v = cols - w * V
    live = live & (cols < W * V)
    target = ((b * outer_in + p) * H + h) * (W * V) + cols
    if FORM == "tied" or FORM == "smooth":
        own = tl.load(x + target, live, 0.0).to(ACC)
    if FORM == "smooth":
        beta = tl.cast(beta_bits, tl.float64, bitcast=True)
    total = tl.zeros((P, C), ACC)
    begin_h, end_h = first_reader(first_h, h, H, OH, TABLE_H, SH, BH, RH)
    begin_w, end_w = first_reader(first_w, w, W, OW, TABLE_W, SW, BW, RW)
    for ro in tl.range(0, READERS):
        if OUTER > 0:
            o = tl.load(readers + (p * READERS + ro) * 2)
            ko = tl.load(readers + (p * READERS + ro) * 2 + 1)
            reads_o = live & (o >= 0)
        else:
            o = 0
            ko = 0
            reads_o = live
        for rh in tl.range(0, RH):
            oh = begin_h + rh
            reads_h, th, real_h, counted_h = read_by(
                start_h, lengths_h, oh, h, H, limit_h, reads_o & (oh >= 0) & (oh < end_h),
                TABLE_H, KH, SH, BH, DH,
            )  # fmt: skip
            for rw in tl.range(0, RW):
                ow = begin_w + rw
                reads, tw, real_w, counted_w = read_by(
                    start_w, lengths_w, ow, w, W, limit_w, reads_h & (ow >= 0) & (ow < end_w),
                    TABLE_W, KW, SW, BW, DW,
                )  # fmt: skip
                source = ((b * outer_out + o) * OH + oh) * (OW * V) + ow * V + v
                g = tl.load(grad + source, reads, 0.0).to(ACC)
                if FORM == "codes":
                    code = tl.load(codes + source, reads, 0).to(tl.int32)
                    mine = reads & (code == (ko * KH + th) * KW + tw)
                    total += tl.where(mine, g, 0.0)
                elif FORM == "mean":
                    if DIVISOR == "fixed":
                        g = divide_fixed(g, divisor, reciprocal, ACC)
                    else:
                        if DIVISOR == "counted":
                            cells = counted_h * counted_w
                            if OUTER > 0:
                                cells = cells * tl.load(outer_counted + o, o >= 0, 1)
                        else:
                            cells = real_h * real_w
                            if OUTER > 0:
                                cells = cells * tl.load(outer_real + o, o >= 0, 1)
                        cells = tl.zeros((P, C), ACC) + tl.maximum(cells, 1).to(ACC)
                        g = divide(g, cells, ACC)
                    total += tl.where(reads, g, 0.0)
                else:
                    peak = tl.load(value + source, reads, 0.0).to(ACC)
                    if FORM == "tied":
                        mine = reads & ((own == peak) | ((own != own) & (peak != peak)))
                        total += tl.where(mine, g, 0.0)
                    else:
                        total += tl.where(reads, exponential(own, peak, beta, ACC) * g, 0.0)
    tl.store(out + target, total.to(out.dtype.element_ty), live)


@triton.jit
def locate(
    codes, tangent, out, outer, start_h, lengths_h, start_w, lengths_w, count, outer_out, outer_in,
    H, W, V, OH, OW, leading, trailing, channels,
    FORM: tl.constexpr, EMPTY: tl.constexpr, ACC: tl.constexpr, WIDE: tl.constexpr,
    OUTER: tl.constexpr, TABLE_H: tl.constexpr, TABLE_W: tl.constexpr, LANES_IN_ROW: tl.constexpr,
    KH: tl.constexpr, KW: tl.constexpr, SH: tl.constexpr, SW: tl.constexpr, BH: tl.constexpr,
    BW: tl.constexpr, DH: tl.constexpr, DW: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """Each winner's flat position in the pooled axes ("indices"), or its tangent ("jvp").

    `leading` and `trailing` are the lengths of pooled axes inside batch and lanes. A code that is no cell of its
    window is as one of none: nothing is read.
    """
    pid = tl.program_id(0)
    if WIDE:
        pid = pid.to(tl.int64)
    at = pid * C + tl.arange(0, C)
    live = at < count
    code = tl.load(codes + at, live, EMPTY).to(tl.int32)
    TAPS: tl.constexpr = KH * KW * OUTER if OUTER > 0 else KH * KW
    found = live & (code != EMPTY) & (code >= 0) & (code < TAPS)
    code = tl.where(found, code, 0)
    v = at % V
    ow = at // V % OW
    oh = at // V // OW % OH
    plane = at // V // OW // OH
    o = plane % outer_out
    b = plane // outer_out
    if TABLE_H:
        h = tl.load(start_h + oh, live, 0)
    else:
        h = oh * SH - BH
    if TABLE_W:
        w = tl.load(start_w + ow, live, 0)
    else:
        w = ow * SW - BW
    tap_h = code // KW % KH
    tap_w = code % KW
    h = h + tap_h * DH
    w = w + tap_w * DW
    found = found & (h >= 0) & (h < H) & (w >= 0) & (w < W)
    if TABLE_H:
        found = found & (tap_h < tl.load(lengths_h + oh, live, 0))
    if TABLE_W:
        found = found & (tap_w < tl.load(lengths_w + ow, live, 0))
    if OUTER > 0:
        depth = tl.load(outer + o * OUTER + code // (KH * KW), live, 0)
        found = found & (depth >= 0)
    else:
        depth = 0
    if FORM == "indices":
        lead = (b % leading).to(tl.int64) * outer_in + depth
        if LANES_IN_ROW:
            position = (lead * H + h) * trailing + w // channels
        else:
            position = ((lead * H + h) * W + w) * trailing + v // channels
        tl.store(out + at, tl.where(found, position, -1), live)
    else:
        found = found & (depth >= 0) & (h >= 0) & (h < H) & (w >= 0) & (w < W)
        source = (((b * outer_in + depth) * H + h) * W + w) * V + v
        d = tl.load(tangent + source, found, 0.0).to(ACC)
        tl.store(out + at, (d + 0.0).to(out.dtype.element_ty), live)
