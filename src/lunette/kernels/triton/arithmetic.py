"""What the kernels share: the order of max, exact division, counts of cells, and lane-wise loads."""

# Triton compiles these functions from their source: they have no Python types, tuples grow with
# `+`, and `x != x` asks for NaN.
# mypy: ignore-errors
# ruff: noqa: PLR0124, RUF005, SIM300

from __future__ import annotations

import triton
import triton.language as tl

INTERPRETED = tl.constexpr(bool(triton.knobs.runtime.interpret))

__all__ = [
    "add_exponential",
    "assemble",
    "counted_cells",
    "divide",
    "divide_fixed",
    "earlier",
    "exponential",
    "extreme",
    "extreme_of_three",
    "first_real",
    "larger",
    "larger_coded",
    "logarithm",
    "masked",
    "real_cells",
    "span",
    "split_groups",
    "within",
]


@triton.jit
def earlier(a, b):
    """Whether `a`, which comes first, wins over `b`: it is no smaller, or it is NaN."""
    return (a >= b) | (a != a)


# Steps that bands unroll by the hundred are one operation each (MERGED), which shortens compilation.
# Apart, the compiler sees that halves need no conversion to be compared.


@triton.jit
def larger(a, b, MERGED: tl.constexpr):
    """The larger; `a` of equals, a NaN before any number. `-0` and `+0` are equals."""
    if a.dtype.is_int():
        return tl.maximum(a, b)
    elif INTERPRETED or not MERGED:
        return tl.where(earlier(a, b), a, b)
    elif a.dtype == tl.float32:
        return tl.inline_asm_elementwise(
            "{.reg .pred p; setp.ge.f32 p, $1, $2; setp.nan.or.f32 p, $1, $1, p; "
            "selp.f32 $0, $1, $2, p;}",
            "=f,f,f", [a, b], tl.float32, True, 1,
        )  # fmt: skip
    else:
        return tl.inline_asm_elementwise(
            "{.reg .pred p; setp.ge.f64 p, $1, $2; setp.nan.or.f64 p, $1, $1, p; "
            "selp.f64 $0, $1, $2, p;}",
            "=d,d,d", [a, b], tl.float64, True, 1,
        )  # fmt: skip


@triton.jit
def larger_coded(a, code_a, b, code_b, MERGED: tl.constexpr):
    """The larger as in `larger`, and its code."""
    if MERGED and a.dtype == tl.float32 and not INTERPRETED:
        return tl.inline_asm_elementwise(
            "{.reg .pred p; setp.ge.f32 p, $2, $4; setp.nan.or.f32 p, $2, $2, p; "
            "selp.f32 $0, $2, $4, p; selp.s32 $1, $3, $5, p;}",
            "=f,=r,f,r,f,r", [a, code_a, b, code_b], (tl.float32, tl.int32), True, 1,
        )  # fmt: skip
    else:
        keep = earlier(a, b)
        return tl.where(keep, a, b), tl.where(keep, code_a, code_b)


@triton.jit
def divide(a, b, ACC: tl.constexpr):
    """`a / b`, rounded once: Triton's `/` on float32 may be off by two units in the last place."""
    if ACC == tl.float32:
        return tl.div_rn(a, b)
    else:
        return a / b


@triton.jit
def divide_fixed(a, divisor, reciprocal, ACC: tl.constexpr):
    """`a` over one integer for all: a product and a correction in place of a division."""
    d = tl.zeros_like(a) + divisor
    if ACC == tl.float32:
        quotient = a * reciprocal
        rest = tl.fma(-quotient, d, a)
        return tl.where(
            rest == rest, tl.fma(rest, tl.zeros_like(a) + reciprocal, quotient), quotient
        )
    else:
        return a / d


@triton.jit
def extreme(a, b, RISING: tl.constexpr):
    """The larger for beta > 0, the smaller for beta < 0; NaN if either is."""
    if RISING:
        return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)
    else:
        return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def extreme_of_three(a, b, c, RISING: tl.constexpr):
    """As `extreme`, of three."""
    if a.dtype == tl.float32 and not INTERPRETED:
        if RISING:
            steps: tl.constexpr = "{.reg .f32 t; max.NaN.f32 t, $1, $2; max.NaN.f32 $0, t, $3;}"
        else:
            steps: tl.constexpr = "{.reg .f32 t; min.NaN.f32 t, $1, $2; min.NaN.f32 $0, t, $3;}"
        return tl.inline_asm_elementwise(steps, "=f,f,f,f", [a, b, c], tl.float32, True, 1)
    else:
        return extreme(extreme(a, b, RISING), c, RISING)


@triton.jit
def exponential(x, pivot, beta, ACC: tl.constexpr):
    """exp(beta·(x − pivot)), with beta in float64; subnormal results are kept, for they are gradients."""
    if ACC == tl.float32 and not INTERPRETED:
        scale = (beta * 1.4426950408889634).to(tl.float32)
        return tl.inline_asm_elementwise(
            "{.reg .f32 t; sub.f32 t, $1, $2; mul.f32 t, t, $3; ex2.approx.f32 $0, t;}",
            "=f,f,f,f", [x, pivot, scale], tl.float32, True, 1,
        )  # fmt: skip
    else:
        return tl.exp(beta.to(ACC) * (x - pivot))


@triton.jit
def add_exponential(total, x, pivot, beta, ACC: tl.constexpr, SUBNORMAL: tl.constexpr):
    """`exponential` and the total with it. A total is at least 1: for it alone, no result is subnormal."""
    if ACC == tl.float32 and not INTERPRETED:
        scale = (beta * 1.4426950408889634).to(tl.float32)
        if SUBNORMAL:
            steps: tl.constexpr = (
                "{.reg .f32 t; sub.f32 t, $2, $3; mul.f32 t, t, $4; ex2.approx.f32 t, t; "
                "add.f32 $1, $5, t; mov.f32 $0, t;}"
            )
        else:
            steps: tl.constexpr = (
                "{.reg .f32 t; sub.f32 t, $2, $3; mul.f32 t, t, $4; ex2.approx.ftz.f32 t, t; "
                "add.f32 $1, $5, t; mov.f32 $0, t;}"
            )
        return tl.inline_asm_elementwise(
            steps, "=f,=f,f,f,f,f", [x, pivot, scale, total], (tl.float32, tl.float32), True, 1
        )
    else:
        term = exponential(x, pivot, beta, ACC)
        return term, total + term


@triton.jit
def logarithm(t, ACC: tl.constexpr):
    """log of a sum of exponentials about its pivot: `t` is 0, or at least 1, or infinite, or NaN.

    The hardware's float32 logarithm is poor near 1, so the mantissa's goes through a polynomial
    (coefficients of Cephes' logf).
    """
    if ACC == tl.float32:
        bits = t.to(tl.int32, bitcast=True) - 0x3F3504F3
        exponent = (bits >> 23).to(tl.float32)
        f = ((bits & 0x7FFFFF) + 0x3F3504F3).to(tl.float32, bitcast=True) - 1.0
        z = f * f
        p = 7.0376836292e-2 * f - 1.1514610310e-1
        p = p * f + 1.1676998740e-1
        p = p * f - 1.2420140846e-1
        p = p * f + 1.4249322787e-1
        p = p * f - 1.6668057665e-1
        p = p * f + 2.0000714765e-1
        p = p * f - 2.4999993993e-1
        p = p * f + 3.3333331174e-1
        y = p * f * z - 2.12194440e-4 * exponent - 0.5 * z
        value = f + y + 0.693359375 * exponent
        value = tl.where(t == 0.0, float("-inf"), value)
        return tl.where((t != t) | (t == float("inf")), t, value)
    else:
        return tl.log(t)


@triton.jit
def within(i, n):
    """Whether 0 ≤ i < n, by one unsigned comparison."""
    if i.dtype.primitive_bitwidth == 64:
        return i.to(tl.uint64) < n
    else:
        return i.to(tl.uint32) < n


# -- cells of a window of K taps, D apart, that starts at i·S − B, on an axis of length n --


@triton.jit
def real_cells(i, n, K: tl.constexpr, S: tl.constexpr, B: tl.constexpr, D: tl.constexpr):
    """How many taps of window `i` lie in the input."""
    origin = i * S - B
    skipped = (tl.maximum(-origin, 0) + (D - 1)) // D
    room = n - 1 - origin
    last = tl.where(room < 0, -1, tl.minimum(tl.maximum(room, 0) // D, K - 1))
    return tl.maximum(last - skipped + 1, 0)


@triton.jit
def counted_cells(i, limit, K: tl.constexpr, S: tl.constexpr, B: tl.constexpr, D: tl.constexpr):
    """How many taps of window `i` lie before `limit`, the end of the padded input."""
    room = limit - 1 - (i * S - B)
    return tl.minimum(tl.maximum(room, 0) // D + 1, K)


@triton.jit
def first_real(i, S: tl.constexpr, B: tl.constexpr, D: tl.constexpr):
    """The first tap of window `i` at or after position 0."""
    return (tl.maximum(B - i * S, 0) + (D - 1)) // D


# -- loads: a lane owns GROUP neighbouring positions, so that halves travel two or four at a time --


@triton.jit
def split_groups(values, P: tl.constexpr, C: tl.constexpr, GROUP: tl.constexpr):
    """A (P, GROUP·C) tile as GROUP tiles (P, C): the g-th element of each lane's group."""
    if GROUP == 2:
        a, b = tl.split(tl.reshape(values, (P, C, 2)))
        return (a, b)
    else:
        even, odd = tl.split(tl.reshape(values, (P, C, 2, 2)))
        a, c = tl.split(even)
        b, d = tl.split(odd)
        return (a, b, c, d)


@triton.jit
def assemble(parts, P: tl.constexpr, C: tl.constexpr, GROUP: tl.constexpr):
    """The inverse of `split_groups`."""
    if GROUP == 1:
        return parts[0]
    elif GROUP == 2:
        return tl.reshape(tl.join(parts[0], parts[1]), (P, 2 * C))
    else:
        even = tl.join(parts[0], parts[2])
        odd = tl.join(parts[1], parts[3])
        return tl.reshape(tl.join(even, odd), (P, 4 * C))


@triton.jit
def masked(pointer, mask, OTHER: tl.constexpr):
    """The values at `pointer`, OTHER where masked.

    Triton 3.6 widens a negative `other` of small integers over its neighbours in a vector load,
    so integers get theirs after the load.
    """
    if pointer.dtype.element_ty.is_int() and OTHER != 0:
        loaded = tl.load(pointer, mask, 0)
        return tl.where(mask, loaded, tl.full(loaded.shape, OTHER, loaded.dtype))
    else:
        return tl.load(pointer, mask, OTHER)


@triton.jit
def span(
    pointer, offset, lane, length, stride, live,
    OTHER: tl.constexpr, ACC: tl.constexpr, START: tl.constexpr, STEP: tl.constexpr,
    COUNT: tl.constexpr, GROUP: tl.constexpr, P: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """Values at the static distances START, START + STEP, … from each lane's position.

    With GROUP > 1 (then STEP and `stride` are 1) a lane's position is a multiple of GROUP, `lane`
    lists the positions of all groups, and the tuple starts at START rounded down to a multiple.
    """
    values = ()
    if GROUP == 1:
        for i in tl.static_range(COUNT):
            w = lane + (START + i * STEP)
            mask = live & within(w, length)
            loaded = masked(pointer + (offset + w * stride), mask, OTHER)
            values = values + (loaded.to(ACC),)
    else:
        for e in tl.static_range(START // GROUP, (START + COUNT - 1) // GROUP + 1):
            w = lane + e * GROUP
            mask = live & within(w, length)
            loaded = masked(pointer + (offset + w), mask, OTHER)
            parts = split_groups(loaded, P, C, GROUP)
            for g in tl.static_range(GROUP):
                values = values + (parts[g].to(ACC),)
    return values
