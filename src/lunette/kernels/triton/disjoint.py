"""Gradients of windows that tile their axes: every input has one reader, so it is loaded once."""

# Triton compiles these functions from their source: they have no Python types, tuples grow with
# `+`, and `x != x` asks for NaN.
# mypy: ignore-errors
# ruff: noqa: PLR0124, PLR1714, RUF005

from __future__ import annotations

import triton
import triton.language as tl

from lunette.kernels.triton.arithmetic import (
    assemble,
    divide_fixed,
    exponential,
    split_groups,
)
from lunette.kernels.triton.band import place

__all__ = ["disjoint"]


@triton.jit
def _row(
    x, out, b, oh, th, H, row_length, column, tap, live, reads, g, mark, beta,
    FORM: tl.constexpr, ACC: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr, GROUP: tl.constexpr,
    P: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """Write row `th` of the windows; `mark` is a code, a largest value or a pivot."""
    h = oh * KH + th
    target = (b * H + h) * row_length + column
    written = live & (th < KH) & (h < H) & (column < row_length)
    if FORM == "tied" or FORM == "smooth":
        own = (tl.load(x + target, written, 0.0),)
        if GROUP > 1:
            own = split_groups(own[0], P, C, GROUP)
    parts = ()
    for r in tl.static_range(GROUP):
        if FORM == "mean":
            sent = g
        elif FORM == "codes":
            sent = tl.where(mark == th * KW + tap + r, g, 0.0)
        elif FORM == "tied":
            cell = own[r].to(ACC)
            sent = tl.where((cell == mark) | ((cell != cell) & (mark != mark)), g, 0.0)
        else:
            term = exponential(own[r].to(ACC), mark, beta, ACC) * g
            sent = tl.where(reads, term, 0.0)
        parts = parts + (sent + 0.0,)
    tl.store(out + target, assemble(parts, P, C, GROUP).to(out.dtype.element_ty), written)


@triton.jit
def disjoint(
    grad, codes, x, value, out, items, bands, H, W_units, V, OH, OW, divisor, reciprocal,
    beta_bits,
    FORM: tl.constexpr, ACC: tl.constexpr, WIDE: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr,
    R: tl.constexpr, UNIT: tl.constexpr, GROUP: tl.constexpr, P: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """FORM as in `gather`. A program owns R rows of the windows of one row of outputs.

    A lane owns GROUP columns of one window; with V > 1 channels innermost, one channel of one.
    """
    STRIPS: tl.constexpr = (KH + R - 1) // R
    row_length = W_units * UNIT * V
    b, _, strip, live, first = place(items, bands, 1, tl.cdiv(row_length, GROUP), WIDE, P, C)
    oh = strip // STRIPS
    top = (strip - oh * STRIPS) * R
    start = (first + tl.arange(0, C)[None, :]) * GROUP
    column = first * GROUP + tl.arange(0, GROUP * C)[None, :]
    w = start // V
    ow = w // KW
    tap = w - ow * KW
    reads = live & (oh < OH) & (ow < OW)
    source = ((b * OH + oh) * OW + ow) * V + (start - w * V)
    g = tl.load(grad + source, reads, 0.0).to(ACC)
    if FORM == "mean":
        g = divide_fixed(g, divisor, reciprocal, ACC)
        mark = g
    elif FORM == "codes":
        mark = tl.load(codes + source, reads, 0).to(tl.int32)
    else:
        mark = tl.load(value + source, reads, 0.0).to(ACC)
    if FORM == "smooth":
        beta = tl.cast(beta_bits, tl.float64, bitcast=True)
    else:
        beta = 0.0
    for i in tl.static_range(R):
        _row(
            x, out, b, oh, top + i, H, row_length, column, tap, live, reads, g, mark, beta,
            FORM, ACC, KH, KW, GROUP, P, C,
        )  # fmt: skip
