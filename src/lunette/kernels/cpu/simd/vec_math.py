"""exp and log on whole vectors, for smooth max: the polynomials of `elementary`, with fewer cases.

`exp_down(a)` is for a ≤ 0: within 1.5 units of the last place, subnormal results within one step more.
`exp_beside_one(a)` is the same but 0 where the result is below 2⁻¹²⁵ (2⁻¹⁰²¹ for float64), for sums that are at
least 1. `log_up(a)` is for finite normal a > 0: within 1.5 units.
"""

# Numba types the kernels, not mypy.
# mypy: disable-error-code="no-untyped-def,no-untyped-call,no-any-return"

from __future__ import annotations

from typing import Any, NamedTuple

from llvmlite import ir
from numba.core import cgutils
from numba.extending import intrinsic

from lunette.kernels.cpu.jit.processor import abilities

__all__ = ["Vectors", "exp_beside_one", "exp_down", "log_up"]


class Form(NamedTuple):
    """What a floating type needs: names, widths, and the constants of the two functions."""

    suffix: str
    integer: ir.IntType
    fraction: int
    magic: float
    lowest: float  # the least argument with a normal result
    nothing: float  # an argument whose result rounds to 0
    raised: int
    ln2: tuple[float, float]
    series: tuple[float, ...]
    root_half: int
    artanh: tuple[float, ...]


SINGLE = Form(
    "f32",
    ir.IntType(32),
    23,
    12582912.0,  # 1.5·2²³: adding it rounds to an integer, whose bits are then the lowest
    -86.6,
    -110.0,
    64,
    (-0.693145751953125, -1.4286068203094172e-06),
    (
        1.9875691500e-4,
        1.3981999507e-3,
        8.3334519073e-3,
        4.1665795894e-2,
        1.6666665459e-1,
        5.0000001201e-1,
    ),
    0x3F3504F3,
    (0.22222222, 0.28571429, 0.4, 0.66666667),
)
DOUBLE = Form(
    "f64",
    ir.IntType(64),
    52,
    6755399441055744.0,
    -707.7,
    -760.0,
    128,
    (-0.693147180369123816490, -1.90821492927058770002e-10),
    (
        1.6059043836821613e-10,
        2.08767569878681e-09,
        2.505210838544172e-08,
        2.755731922398589e-07,
        2.7557319223985893e-06,
        2.48015873015873e-05,
        0.0001984126984126984,
        0.001388888888888889,
        0.008333333333333333,
        0.041666666666666664,
        0.16666666666666666,
        0.5,
    ),
    0x3FE6A09E667F3BCD,
    (2 / 21, 2 / 19, 2 / 17, 2 / 15, 2 / 13, 2 / 11, 2 / 9, 2 / 7, 2 / 5, 2 / 3),
)
SPLIT_LN2 = {
    "f32": (0.693359375, -2.12194440e-4),
    "f64": (6.93147180369123816490e-01, 1.90821492927058770002e-10),
}
"""ln 2 as a short number, whose products with exponents are exact, and the rest."""


class Vectors:
    """Arithmetic on vectors of one type, or on its numbers, by the names of formulas."""

    def __init__(self, builder: Any, kind: Any) -> None:
        self.builder, self.real, self.fused = builder, kind, abilities().fused
        self.count = kind.count if isinstance(kind, ir.VectorType) else 0
        element = kind.element if self.count else kind
        self.form = SINGLE if isinstance(element, ir.FloatType) else DOUBLE
        integer = self.form.integer
        self.whole = ir.VectorType(integer, self.count) if self.count else integer

    def _constant(self, kind: Any, value: Any) -> Any:
        return ir.Constant(kind, [value] * self.count if self.count else value)

    def number(self, value: float) -> Any:
        return self._constant(self.real, value)

    def integer(self, value: int) -> Any:
        return self._constant(self.whole, value)

    def fma(self, a: Any, b: Any, c: Any) -> Any:
        """`a·b + c`, rounded once where the processor can, else after the product too."""
        if not self.fused:
            return self.builder.fadd(self.builder.fmul(a, b), c)
        name = f"llvm.fma.{f'v{self.count}' if self.count else ''}{self.form.suffix}"
        kind = ir.FunctionType(self.real, [self.real] * 3)
        function = cgutils.get_or_insert_function(self.builder.module, kind, name)
        return self.builder.call(function, [a, b, c])

    def product(self, a: Any, b: Any) -> tuple[Any, Any]:
        """`a·b` rounded, and exactly what that left out, from the products of halves (Dekker 1971).

        NaN where a half overflows: beyond 2¹¹⁵ in float32, 2⁹⁹⁶ in float64.
        """
        builder, rounded = self.builder, self.builder.fmul(a, b)
        (a_high, a_low), (b_high, b_low) = self._halves(a), self._halves(b)
        rest = builder.fsub(builder.fmul(a_high, b_high), rounded)
        for x, y in ((a_high, b_low), (a_low, b_high), (a_low, b_low)):
            rest = builder.fadd(rest, builder.fmul(x, y))
        return rounded, rest

    def _halves(self, a: Any) -> tuple[Any, Any]:
        """A number as the sum of two of half its digits (Veltkamp)."""
        builder, digits = self.builder, (self.form.fraction + 2) // 2
        scaled = builder.fmul(a, self.number(2.0**digits + 1))
        high = builder.fsub(scaled, builder.fsub(scaled, a))
        return high, builder.fsub(a, high)

    def fma_near(self, a: Any, b: Any, c: Any) -> Any:
        """`a·b + c`, rounded once, where c is so near −a·b that rounded products differ from it exactly."""
        if self.fused:
            return self.fma(a, b, c)
        rounded, rest = self.product(a, b)
        return self.builder.fadd(self.builder.fadd(rounded, c), rest)

    def magnitude(self, a: Any) -> Any:
        """|a|, of every lane."""
        below_sign = self.integer((1 << (self.form.integer.width - 1)) - 1)
        bits = self.builder.and_(self.builder.bitcast(a, self.whole), below_sign)
        return self.builder.bitcast(bits, self.real)

    def polynomial(self, x: Any, coefficients: tuple[float, ...]) -> Any:
        """By Horner's rule, the highest power first."""
        value = self.number(coefficients[0])
        for coefficient in coefficients[1:]:
            value = self.fma(value, x, self.number(coefficient))
        return value

    def lse_by_pairs(self, x: Any, coefficients: tuple[float, ...]) -> Any:
        """The lowest power first: neighbours in pairs, the pairs by Horner's rule in x². A short chain."""
        pairs = [
            self.fma(x, self.number(pair[1]), self.number(pair[0]))
            if pair[1:]
            else self.number(pair[0])
            for pair in (coefficients[i : i + 2] for i in range(0, len(coefficients), 2))
        ]
        square, value = self.builder.fmul(x, x), pairs[-1]
        for pair in reversed(pairs[:-1]):
            value = self.fma(value, square, pair)
        return value


def _exp_parts(v: Vectors, a: Any) -> tuple[Any, Any]:
    """e^a = 2^n · e^r with n the nearest integer to a/ln 2: the bits of e^r, and n as an exponent."""
    builder, form = v.builder, v.form
    shifted = v.fma(a, v.number(1.4426950408889634), v.number(form.magic))
    exponent = builder.shl(builder.bitcast(shifted, v.whole), v.integer(form.fraction))
    n = builder.fsub(shifted, v.number(form.magic))
    r = v.fma(n, v.number(form.ln2[1]), v.fma(n, v.number(form.ln2[0]), a))
    p = v.polynomial(r, form.series)
    p = builder.fadd(v.fma(p, builder.fmul(r, r), r), v.number(1.0))
    return builder.bitcast(p, v.whole), exponent


def _exp_beside_one(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    (a,) = arguments
    v = Vectors(builder, a.type)
    bits, exponent = _exp_parts(v, a)
    value = builder.bitcast(builder.add(bits, exponent), v.real)
    normal = builder.fcmp_ordered(">", a, v.number(v.form.lowest))
    return builder.select(normal, value, v.number(0.0))


def _exp_down(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    """Where the result may be subnormal, a power of two larger first, then one rounding.

    Where it is 0 the factor is 0: processors take their time for a product that underflows.
    """
    (a,) = arguments
    v = Vectors(builder, a.type)
    form = v.form
    least = v.number(form.nothing)
    something = builder.fcmp_ordered(">", a, least)
    a = builder.select(something, a, least)
    bits, exponent = _exp_parts(v, a)
    normal = builder.fcmp_ordered(">", a, v.number(form.lowest))
    raised = builder.add(exponent, v.integer(form.raised << form.fraction))
    exponent = builder.select(normal, exponent, raised)
    value = builder.bitcast(builder.add(bits, exponent), v.real)
    small = builder.select(something, v.number(2.0**-form.raised), v.number(0.0))
    factor = builder.select(normal, v.number(1.0), small)
    return builder.fmul(value, factor)


def _log(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    """a = m·2^e with m in [√½, √2); log m = 2 artanh((m−1)/(m+1)) by its series."""
    (a,) = arguments
    v = Vectors(builder, a.type)
    form = v.form
    bits, fraction = builder.bitcast(a, v.whole), v.integer(form.fraction)
    e = builder.ashr(builder.sub(bits, v.integer(form.root_half)), fraction)
    m = builder.bitcast(builder.sub(bits, builder.shl(e, fraction)), v.real)
    k = builder.sitofp(e, v.real)
    f = builder.fsub(m, v.number(1.0))
    s = builder.fdiv(f, builder.fadd(m, v.number(1.0)))
    z = builder.fmul(s, s)
    p = v.polynomial(z, form.artanh)
    short, rest_of_ln2 = SPLIT_LN2[form.suffix]
    # log m = f − s·(f − z·p), the form that keeps f exact.
    rest = builder.fmul(s, builder.fsub(f, builder.fmul(z, p)))
    rest = builder.fsub(rest, builder.fmul(k, v.number(rest_of_ln2)))
    return builder.fadd(builder.fmul(k, v.number(short)), builder.fsub(f, rest))


@intrinsic  # type: ignore[untyped-decorator]
def exp_down(context: Any, a: Any) -> Any:
    """e^a of each lane, for a ≤ 0."""
    return a(a), _exp_down


@intrinsic  # type: ignore[untyped-decorator]
def exp_beside_one(context: Any, a: Any) -> Any:
    """e^a of each lane, for a ≤ 0, to be added to what is at least 1."""
    return a(a), _exp_beside_one


@intrinsic  # type: ignore[untyped-decorator]
def log_up(context: Any, a: Any) -> Any:
    """The natural logarithm of each lane, for finite normal a > 0."""
    return a(a), _log
