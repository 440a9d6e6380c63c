"""exp and log of float32 and float64, by polynomials that the compiler vectorises.

Written bounds, in units of the last place of the result, over every finite argument whose result
is a normal number: `exp` 1.5, `log` 1.5. Subnormal results of `exp` are off by at most one
subnormal step more. exp(−inf) = 0, exp(inf) = inf, log(0) = −inf, log(inf) = inf, NaN stays.
"""

# Numba types the kernels, not mypy; `v != v` is how a NaN is known.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"
# ruff: noqa: PLR0124

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import types

from lunette.kernels.cpu.jit.intrinsics import bits, compiled, fma, real

__all__ = ["Elementary", "elementary"]


class Elementary(NamedTuple):
    """The functions for one type."""

    exp: Any
    log: Any


def elementary(work: Any) -> Elementary:
    """exp and log for a Numba type; integer types, which never call them, get float64's."""
    return FLOAT32 if work == types.float32 else FLOAT64


@compiled
def exp32(a):
    """e^a = 2^n · e^r with n the nearest integer to a/ln 2, |r| ≤ ln(2)/2, by a polynomial in r."""
    clamped = min(max(a, np.float32(-110)), np.float32(110))
    magic = np.float32(12582912.0)  # 1.5·2²³: adding it rounds to an integer
    n = fma(clamped, np.float32(1.4426950408889634), magic) - magic
    r = fma(n, np.float32(-0.693145751953125), clamped)
    r = fma(n, np.float32(-1.4286068203094172e-06), r)
    p = fma(np.float32(1.9875691500e-4), r, np.float32(1.3981999507e-3))
    p = fma(p, r, np.float32(8.3334519073e-3))
    p = fma(p, r, np.float32(4.1665795894e-2))
    p = fma(p, r, np.float32(1.6666665459e-1))
    p = fma(p, r, np.float32(5.0000001201e-1))
    p = fma(p, r * r, r) + np.float32(1)
    # 2^n in two factors: n reaches past the exponents of a float on both sides.
    k = np.int32(n)
    half = k >> np.int32(1)
    low = real(np.int32((half + np.int32(127)) << np.int32(23)))
    high = real(np.int32((k - half + np.int32(127)) << np.int32(23)))
    value = p * low * high
    return a if a != a else value


@compiled
def log32(a):
    """a = m·2^e with m in [√½, √2); log m = 2 artanh((m−1)/(m+1)) by its series."""
    tiny = a < np.float32(1.1754944e-38)
    b = bits(a * np.float32(16777216.0) if tiny else a)
    shift = np.int32(24) if tiny else np.int32(0)
    e = (b - np.int32(0x3F3504F3)) >> np.int32(23)  # the exponent, counted from √½
    m = real(np.int32(b - (e << np.int32(23))))
    k = np.float32(e - shift)
    f = m - np.float32(1)
    s = f / (m + np.float32(1))
    z = s * s
    p = fma(np.float32(0.22222222), z, np.float32(0.28571429))
    p = fma(p, z, np.float32(0.4))
    p = fma(p, z, np.float32(0.66666667))
    # log m = f − s·(f − z·p), the form that keeps f exact.
    rest = s * (f - z * p) - k * np.float32(-2.12194440e-4)
    value = k * np.float32(0.693359375) + (f - rest)
    value = np.float32(-np.inf) if a == np.float32(0) else value
    return a if (a != a) | (a == np.float32(np.inf)) else value


@compiled
def exp64(a):
    """As exp32, with a longer polynomial: the Taylor series to r¹³."""
    clamped = min(max(a, -760.0), 760.0)
    magic = 6755399441055744.0  # 1.5·2⁵²
    n = fma(clamped, 1.4426950408889634, magic) - magic
    r = fma(n, -0.693147180369123816490, clamped)
    r = fma(n, -1.90821492927058770002e-10, r)
    p = fma(1.6059043836821613e-10, r, 2.08767569878681e-09)
    p = fma(p, r, 2.505210838544172e-08)
    p = fma(p, r, 2.755731922398589e-07)
    p = fma(p, r, 2.7557319223985893e-06)
    p = fma(p, r, 2.48015873015873e-05)
    p = fma(p, r, 0.0001984126984126984)
    p = fma(p, r, 0.001388888888888889)
    p = fma(p, r, 0.008333333333333333)
    p = fma(p, r, 0.041666666666666664)
    p = fma(p, r, 0.16666666666666666)
    p = fma(p, r, 0.5)
    p = fma(p, r * r, r) + 1.0
    k = np.int64(n)
    half = k >> np.int64(1)
    low = real(np.int64((half + np.int64(1023)) << np.int64(52)))
    high = real(np.int64((k - half + np.int64(1023)) << np.int64(52)))
    value = p * low * high
    return a if a != a else value


@compiled
def log64(a):
    """As log32, with eleven terms of the series."""
    tiny = a < 2.2250738585072014e-308
    b = bits(a * 18014398509481984.0 if tiny else a)
    shift = np.int64(54) if tiny else np.int64(0)
    e = (b - np.int64(0x3FE6A09E667F3BCD)) >> np.int64(52)
    m = real(np.int64(b - (e << np.int64(52))))
    k = np.float64(e - shift)
    f = m - 1.0
    s = f / (m + 1.0)
    z = s * s
    p = fma(2.0 / 21.0, z, 2.0 / 19.0)
    p = fma(p, z, 2.0 / 17.0)
    p = fma(p, z, 2.0 / 15.0)
    p = fma(p, z, 2.0 / 13.0)
    p = fma(p, z, 2.0 / 11.0)
    p = fma(p, z, 2.0 / 9.0)
    p = fma(p, z, 2.0 / 7.0)
    p = fma(p, z, 2.0 / 5.0)
    p = fma(p, z, 2.0 / 3.0)
    rest = s * (f - z * p) - k * 1.90821492927058770002e-10
    value = k * 6.93147180369123816490e-01 + (f - rest)
    value = -np.inf if a == 0.0 else value
    return a if (a != a) | (a == np.inf) else value


FLOAT32 = Elementary(exp32, log32)
FLOAT64 = Elementary(exp64, log64)
