"""e^(beta·x) about zero: one exponential for each cell, which all windows that read it share.

A window may use them if every cell has `|x| ≤ limit`, with `limit = LIMIT / |beta|`: then they and their
sums are normal numbers, far from both ends of the range. Whether it may depends on the window alone.

`beta·x` is never rounded: with beta·log2(e) as a sum of two numbers, `f = x·beta·log2(e) − n` has the error of
a number of at most a half. So a power is within 1.5 units of the last place, and the log of a sum over
beta within `u·|log / beta| + 2u / |beta|`, u being half a unit of 1. Where the processor has no fused multiply-add, the product
with beta·log2(e) and that with ln(2)/beta are kept exactly as sums of two numbers; the other products are rounded: a
power is within 1.5 units all the same, and the log within 0.4u / |beta| more. Every function serves numbers and vectors alike.
"""

# Numba types the kernels, not mypy.
# mypy: disable-error-code="no-untyped-def,no-untyped-call,no-any-return"

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numba import types
from numba.extending import intrinsic

from lunette.kernels.cpu.jit.intrinsics import compiled
from lunette.kernels.cpu.simd.half import dtype_of
from lunette.kernels.cpu.simd.vec_math import DOUBLE, SINGLE, Vectors
from lunette.kernels.cpu.tuning import ARGMAX_DIRECT_MAX_TAPS

__all__ = [
    "exp_scaled",
    "fused",
    "if_finite",
    "is_finite",
    "log_over_beta",
    "scales_of",
    "shared_sums",
]

LIMIT = {"f32": 40.0, "f64": 300.0}
"""The largest |beta·x|: e^40 is 2^58, and e^300 is 2^433."""

BETAS = {"f32": 2.0**100, "f64": 2.0**900}
"""|beta| and its reciprocal are at most this; beyond, no window uses powers."""

WEIGHTS = {"f32": (2.0**-126, 2.0**96), "f64": (2.0**-1022, 2.0**900)}
"""A gradient over a sum of powers must be a normal number, and many must have a sum."""

LOG2_E = {
    "f32": (1.44269502162933349609375, 1.92596299112661746887e-8),
    "f64": (1.4426950408889633870046509401, 2.0355273740931033e-17),
}
LN_2 = {
    "f32": (0.693147182464599609375, -1.90465429995776763166e-9),
    "f64": (0.69314718055994528622676398299518, 2.3190468138462996e-17),
}
"""Each as a number and what its rounding left out."""

EXP2 = {
    "f32": (
        0.693147188,
        0.2402265076,
        0.05550357071,
        0.00961808252,
        0.001339088633,
        1.545318283e-4,
    ),
    "f64": (
        0.6931471805599453094,
        0.2402265069591009827,
        0.05550410866482159437,
        0.009618129107606853946,
        0.001333355814641691688,
        1.540353044179413737e-4,
        1.525273382986708058e-5,
        1.321544255252229148e-6,
        1.017806242697692342e-7,
        7.072593027878996569e-9,
        4.45496437126929679e-10,
    ),
}
"""(2^f − 1) / f for |f| ≤ ½, interpolated at Chebyshev's points: 0.09 u of 2^f for either type."""

LOG2 = {
    "f32": (
        1.442695004,
        -0.7213474682,
        0.4809107537,
        -0.360693269,
        0.2879032522,
        -0.2391698532,
        0.2160782888,
        -0.2058621352,
        0.1231098394,
    ),
    "f64": (
        1.442695040888963472,
        -0.7213475204444805974,
        0.4808983469628806922,
        -0.3606737602227255608,
        0.2885390082074693328,
        -0.240449173435686739,
        0.2060992883740527227,
        -0.1803368800649110327,
        0.1602996194832841616,
        -0.1442696887665307944,
        0.1311490417738182903,
        -0.1202147237138985683,
        0.1110606720634061551,
        -0.1032869854641399337,
        0.09546191443515500876,
        -0.08720988023305787912,
        0.08659575145848756781,
        -0.09800943215664698472,
        0.09016503137868907847,
        -0.03978843376662494035,
    ),
}
"""log2(1 + f) / f for √½ ≤ 1 + f ≤ √2, in the same way: f times its error is 0.25 u."""


@cache
def scales_of(work: Any) -> Any:
    """What powers of a beta need, as a function for a Numba type.

    It gives beta·log2(e) and what its rounding left out, the limit of |x|, and ln(2)/beta and what its
    rounding left out. Integer types, which never call it, get float64's.
    """
    form = SINGLE if work == types.float32 else DOUBLE
    number = np.float32 if form is SINGLE else np.float64
    limit, largest, one = LIMIT[form.suffix], BETAS[form.suffix], number(1)
    log2_e, log2_e_rest = (number(v) for v in LOG2_E[form.suffix])
    ln_2, ln_2_rest = (number(v) for v in LN_2[form.suffix])

    @compiled
    def scales(beta):
        size = abs(beta)
        usual = (size <= largest) & (one / size <= largest)
        rate, back = beta * log2_e, ln_2 / beta
        rate_rest = fma_near(beta, log2_e, -rate) + beta * log2_e_rest
        back_rest = (fma_near(-back, beta, ln_2) + ln_2_rest) / beta
        return rate, rate_rest, number(limit / size) if usual else -one, back, back_rest

    return scales


def _fma_near(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    return Vectors(builder, arguments[0].type).fma_near(*arguments)


@intrinsic  # type: ignore[untyped-decorator]
def fma_near(context: Any, a: Any, b: Any, c: Any) -> Any:
    """`a·b + c`, rounded once, where c is near −a·b."""
    return a(a, a, a), _fma_near


def _exp_scaled(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    x, rate, rest, limit, other = arguments
    v = Vectors(builder, x.type)
    form = v.form
    shifted = v.fma(x, rate, v.number(form.magic))
    n = builder.fsub(shifted, v.number(form.magic))
    f = v.fma(x, rest, v.fma_near(x, rate, builder.fneg(n)))
    p = v.fma(v.lse_by_pairs(f, EXP2[form.suffix]), f, v.number(1.0))
    exponent = builder.shl(builder.bitcast(shifted, v.whole), v.integer(form.fraction))
    value = builder.bitcast(builder.add(builder.bitcast(p, v.whole), exponent), v.real)
    near = builder.fcmp_ordered("<=", v.magnitude(x), limit)
    return builder.select(near, value, other)


@intrinsic  # type: ignore[untyped-decorator]
def exp_scaled(context: Any, x: Any, rate: Any, rest: Any, limit: Any, other: Any) -> Any:
    """e^(beta·x) where |x| ≤ limit, and `other` elsewhere; `rate + rest` is beta·log2(e)."""
    return x(x, x, x, x, x), _exp_scaled


def _logarithm(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    """a = (1 + f)·2^k with 1 + f in [√½, √2): k·back last, so that all but its end is rounded small."""
    a, back, rest = arguments
    v = Vectors(builder, a.type)
    bits, fraction = builder.bitcast(a, v.whole), v.integer(v.form.fraction)
    e = builder.ashr(builder.sub(bits, v.integer(v.form.root_half)), fraction)
    m = builder.bitcast(builder.sub(bits, builder.shl(e, fraction)), v.real)
    f, k = builder.fsub(m, v.number(1.0)), builder.sitofp(e, v.real)
    small = builder.fmul(builder.fmul(v.lse_by_pairs(f, LOG2[v.form.suffix]), f), back)
    small = v.fma(k, rest, small)
    if v.fused:
        return v.fma(k, back, small)
    rounded, left = v.product(k, back)
    return builder.fadd(rounded, builder.fadd(left, small))


@intrinsic  # type: ignore[untyped-decorator]
def log_over_beta(context: Any, a: Any, back: Any, rest: Any) -> Any:
    """log(a) / beta, for finite normal a > 0; `back + rest` is ln(2) / beta."""
    return a(a, a, a), _logarithm


def _is_finite(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    total, gradient, weight = arguments
    v = Vectors(builder, total.type)
    smallest, largest = WEIGHTS[v.form.suffix]
    size = v.magnitude(weight)
    within = builder.and_(
        builder.fcmp_ordered(">=", size, v.number(smallest)),
        builder.fcmp_ordered("<=", size, v.number(largest)),
    )
    within = builder.or_(within, builder.fcmp_ordered("==", gradient, v.number(0.0)))
    return builder.select(within, total, v.number(float("inf")))


@intrinsic  # type: ignore[untyped-decorator]
def is_finite(context: Any, total: Any, gradient: Any, weight: Any) -> Any:
    """The total where the weight `gradient / total` has not left the range, and infinity elsewhere."""
    return total(total, total, total), _is_finite


def _if_finite(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    total, a, b = arguments
    v = Vectors(builder, total.type)
    finite = builder.fcmp_ordered("<", v.magnitude(total), v.number(float("inf")))
    return builder.select(finite, a, b)


@intrinsic  # type: ignore[untyped-decorator]
def if_finite(context: Any, total: Any, a: Any, b: Any) -> Any:
    """`a` where the total is finite, and `b` elsewhere."""
    return a(total, total, total), _if_finite


def _fused(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    return Vectors(builder, arguments[0].type).fma(*arguments)


@intrinsic  # type: ignore[untyped-decorator]
def fused(context: Any, a: Any, b: Any, c: Any) -> Any:
    """`a·b + c`, rounded once where the processor can."""
    return a(a, a, a), _fused


@cache
def shared_sums(dtype: str) -> Any:
    """The sum of powers of one window of up to `ARGMAX_DIRECT_MAX_TAPS` cells; 0 where they do not allow it.

    Down the rows, then along them, and the padding last: as windows side by side are summed.
    """
    _, work, _, load, _, _ = dtype_of(dtype, True)
    zero = work(0)

    @compiled
    def shared_sum(x, base, rows, count, start, stop, step, step_x, length, cells, scales):
        rate, rest, limit, _, _ = scales
        total, real_cells = zero, count * length
        if (real_cells == 0) | (real_cells > ARGMAX_DIRECT_MAX_TAPS):
            return zero
        if cells == 1.0:  # such a window is its cell
            return zero
        for p in range(start, stop, step):
            column = zero
            for r in range(count):
                v = load(x[base + rows[r] + p * step_x])
                if not abs(v) <= limit:
                    return zero
                column += exp_scaled(v, rate, rest, limit, zero)
            total += column
        if cells > real_cells:
            total += work(cells - real_cells)
        return total if total - total == zero else zero

    return shared_sum
