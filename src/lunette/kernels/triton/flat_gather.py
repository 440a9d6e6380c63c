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


@triton.jit(
    do_not_specialize=[
        "total", "outer_out", "outer_in", "H", "W", "V_units", "OH", "OW", "limit_h", "limit_w",
        "divisor", "magic_v", "shift_v", "magic_w", "shift_w", "magic_h", "shift_h", "magic_o", "shift_o",
    ]
)  # fmt: skip
def flat_gather(
    grad, codes, out, readers, outer_real, outer_counted, total, outer_out, outer_in, H, W,
    V_units, OH, OW, limit_h, limit_w, divisor, reciprocal,
    magic_v, shift_v, magic_w, shift_w, magic_h, shift_h, magic_o, shift_o,
    FORM: tl.constexpr, ACC: tl.constexpr, WIDE: tl.constexpr, OUTER: tl.constexpr,
    LANED: tl.constexpr, DIVISOR: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr,
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
    from_w = rest - row * W + BW
    plane = divide_by(row, H, magic_h, shift_h, WIDE)
    from_h = row - plane * H + BH
    b = plane
    p = 0
    if OUTER > 0:
        b = divide_by(plane, outer_in, magic_o, shift_o, WIDE)
        p = plane - b * outer_in
    # The last window that starts at or before this row, and this column; a negative padding leaves some without any.
    last_h = tl.maximum(from_h, 0) // SH
    last_w = tl.maximum(from_w, 0) // SW
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
            oh = last_h - (RH - 1 - rh)
            far_h = from_h - oh * SH
            in_h = reading & within(oh, OH) & (far_h < (KH - 1) * DH + 1)
            if BH < 0:
                in_h = in_h & (far_h >= 0)
            if DH > 1:
                in_h = in_h & (far_h % DH == 0)
            for rw in tl.static_range(RW):
                ow = last_w - (RW - 1 - rw)
                far_w = from_w - ow * SW
                reads = in_h & within(ow, OW) & (far_w < (KW - 1) * DW + 1)
                if BW < 0:
                    reads = reads & (far_w >= 0)
                if DW > 1:
                    reads = reads & (far_w % DW == 0)
                source = (((b * outer_out + o) * OH + oh) * OW + ow) * V + v
                g = tl.load(grad + source, reads, 0.0).to(ACC)
                if FORM == "codes":
                    code = tl.load(codes + source, reads, 0).to(tl.int32)
                    tap = (ko * KH + far_h // DH) * KW + far_w // DW
                    total_of += tl.where(reads & (code == tap), g, 0.0)
                else:
                    if DIVISOR == "fixed":
                        g = divide_fixed(g, divisor, reciprocal, ACC)
                    else:
                        if DIVISOR == "counted":
                            cells = counted_cells(oh, limit_h, KH, SH, BH, DH)
                            cells = cells * counted_cells(ow, limit_w, KW, SW, BW, DW)
                            if OUTER > 0:
                                cells = cells * tl.load(outer_counted + o, reading, 1)
                        else:
                            cells = real_cells(oh, H, KH, SH, BH, DH)
                            cells = cells * real_cells(ow, W, KW, SW, BW, DW)
                            if OUTER > 0:
                                cells = cells * tl.load(outer_real + o, reading, 1)
                        cells = tl.zeros(g.shape, ACC) + tl.maximum(cells, 1).to(ACC)
                        g = divide(g, cells, ACC)
                    total_of += tl.where(reads, g, 0.0)
    target = at * LANES + tl.arange(0, LANES)[None, :] if LANES > 1 else at
    tl.store(out + target, total_of.to(out.dtype.element_ty), live)
