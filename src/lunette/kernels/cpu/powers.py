"""e^(beta·x) about zero: one exponential for each cell, which all windows that read it share.

A window may use them if every cell has `|x| ≤ limit`, with `limit = LIMIT / |beta|`: then they and their
sums are normal numbers, far from both ends of the range. Whether it may depends on the window
alone. `beta·x` is never rounded: `r = beta·x − n·ln 2` is one fused step from the product `n·ln 2`, which is exact.
So a power is within 1.5 units of the last place of e^(beta·x), for the beta of the arithmetic's type.
"""

# Numba types the kernels, not mypy.
# mypy: disable-error-code="no-untyped-def,no-untyped-call,no-any-return"

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from lunette.kernels.cpu.exponentials import DOUBLE, SINGLE, Vectors
from lunette.kernels.cpu.machine import compiled, fma, real

__all__ = ["Powers", "powers", "scalar_powers", "sound", "where_finite"]

LIMIT = {"f32": 40.0, "f64": 300.0}
"""The largest |beta·x|: e^40 is 2^58, and e^300 is 2^433."""

BETAS = {"f32": 2.0**100, "f64": 2.0**900}
"""|beta| and its reciprocal are at most this; beyond, no window uses powers."""

WEIGHTS = {"f32": (2.0**-126, 2.0**96), "f64": (2.0**-1022, 2.0**900)}
"""A gradient over a sum of powers must be a normal number, and many must have a sum."""

LOG2_E = 1.4426950408889634


class Powers(NamedTuple):
    """What one type needs, number by number.

    `scales(beta)` is `beta`, `beta·log2(e)`, `limit`, and `1/beta` with what its rounding left out.
    `power(x, beta, rate)` is e^(beta·x). `over(v, inverse, rest)` is v/beta, rounded once but for a trifle.
    `usable(gradient, weight)`: whether a weight `gradient / sum` has not left the range.
    """

    scales: Any
    power: Any
    over: Any
    usable: Any


@cache
def scalar_powers(work: Any) -> Powers:
    """The functions for a Numba type; integer types, which never call them, get float64's."""
    form = SINGLE if work == types.float32 else DOUBLE
    number, whole = (np.float32, np.int32) if form is SINGLE else (np.float64, np.int64)
    high, low = (number(v) for v in form.ln2)
    limit, largest, log2_e = LIMIT[form.suffix], BETAS[form.suffix], number(LOG2_E)
    smallest_weight, largest_weight = (number(v) for v in WEIGHTS[form.suffix])
    magic, one, zero = number(form.magic), number(1), number(0)
    bias, fraction = whole(1023 if form is DOUBLE else 127), whole(form.fraction)
    series = tuple(number(c) for c in (*form.series, 1.0, 1.0))

    @compiled
    def scales(beta):
        size = abs(beta)
        usual = (size <= largest) & (one / size <= largest)
        inverse = one / beta
        rest = fma(-inverse, beta, one) * inverse
        return beta, beta * log2_e, number(limit / size) if usual else -one, inverse, rest

    @compiled
    def power(x, beta, rate):
        n = fma(x, rate, magic) - magic
        r = fma(n, low, fma(x, beta, n * high))
        p = series[0]
        for i in range(1, len(series)):
            p = fma(p, r, series[i])
        return p * real(whole((whole(n) + bias) << fraction))

    @compiled
    def over(v, inverse, rest):
        return fma(v, inverse, v * rest)

    @compiled
    def usable(gradient, weight):
        size = abs(weight)
        return (gradient == zero) | ((size >= smallest_weight) & (size <= largest_weight))

    return Powers(scales, power, over, usable)


# -- on whole vectors --


def _powers(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    x, beta, rate, limit, other = arguments
    v = Vectors(builder, x.type)
    form = v.form
    shifted = v.fma(x, rate, v.number(form.magic))
    n = builder.fsub(shifted, v.number(form.magic))
    r = v.fma(n, v.number(form.ln2[1]), v.fma(x, beta, builder.fmul(n, v.number(form.ln2[0]))))
    p = v.polynomial(r, (*form.series, 1.0, 1.0))
    exponent = builder.shl(builder.bitcast(shifted, v.whole), v.integer(form.fraction))
    value = builder.bitcast(builder.add(builder.bitcast(p, v.whole), exponent), v.real)
    near = builder.fcmp_ordered("<=", v.magnitude(x), limit)
    return builder.select(near, value, other)


@intrinsic  # type: ignore[untyped-decorator]
def powers(context: Any, x: Any, beta: Any, rate: Any, limit: Any, other: Any) -> Any:
    """e^(beta·x) of each lane where |x| ≤ limit, and `other` elsewhere."""
    return x(x, beta, rate, limit, other), _powers


def _sound(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
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
def sound(context: Any, total: Any, gradient: Any, weight: Any) -> Any:
    """The total in lanes whose weight is usable, and infinity elsewhere."""
    return total(total, gradient, weight), _sound


def _where_finite(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    total, a, b = arguments
    v = Vectors(builder, total.type)
    finite = builder.fcmp_ordered("<", v.magnitude(total), v.number(float("inf")))
    return builder.select(finite, a, b)


@intrinsic  # type: ignore[untyped-decorator]
def where_finite(context: Any, total: Any, a: Any, b: Any) -> Any:
    """`a` in lanes where the total is finite, and `b` elsewhere."""
    return a(total, a, b), _where_finite


def _fused(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    return Vectors(builder, arguments[0].type).fma(*arguments)


@intrinsic  # type: ignore[untyped-decorator]
def fused(context: Any, a: Any, b: Any, c: Any) -> Any:
    """`a·b + c` of each lane, rounded once."""
    return a(a, b, c), _fused
