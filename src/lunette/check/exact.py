"""A number system that carries, beside the exact value, how far any right computation may stray.

The specification runs over these numbers as it runs over floats, so a judgement has no second
meaning of its own. A number is an exact rational (or NaN, or an infinity) with a bound on the error
of any evaluation in the target's arithmetic: every operation may round once, sums may be taken in
any order (`γ_(n−1) Σ|terms|`), a division may be done as a product with the reciprocal.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np

from lunette.spec.scalars import Scalars

__all__ = ["Arithmetic", "Exact", "arithmetic", "number_type"]

PRECISION = Context(prec=60, Emin=-(10**9), Emax=10**9)
EXP_ERROR, LOG_ERROR = 16.0, 4.0
"""Roundings allowed to one exp or log. A library's stay within four; a sum that rescales as it meets
larger cells makes a weight of up to four exponentials."""


@dataclass(frozen=True)
class Arithmetic:
    """A float type: unit roundoff, smallest subnormal, largest finite number."""

    name: str
    unit: float
    tiny: float
    largest: float


ARITHMETICS = {
    "float16": Arithmetic("float16", 2.0**-11, 2.0**-24, 65504.0),
    "bfloat16": Arithmetic("bfloat16", 2.0**-8, 2.0**-133, 2.0**127 * (2 - 2.0**-7)),
    "float32": Arithmetic("float32", 2.0**-24, 2.0**-149, 2.0**127 * (2 - 2.0**-23)),
    "float64": Arithmetic("float64", 2.0**-53, 2.0**-1074, np.finfo(np.float64).max.item()),
}


def arithmetic(name: str) -> Arithmetic:
    """The float type of this name."""
    return ARITHMETICS[name]


class Exact:
    """An exact value or a sum of `terms` of them, with what may be lost on the way.

    `error` is what the terms have lost already, `size` the sum of their magnitudes, `peak` the
    largest magnitude met on the way: past the largest float, an overflow is no fault.
    """

    __slots__ = ("error", "peak", "size", "terms", "value")
    scalars: System

    def __init__(
        self, value: Any, error: float = 0.0, size: float = 0.0, terms: int = 1, peak: float = 0.0
    ) -> None:
        self.value, self.error, self.size, self.terms, self.peak = value, error, size, terms, peak

    # -- reading --

    @property
    def special(self) -> bool:
        """Whether the value is NaN or an infinity."""
        return type(self.value) is float

    def slack(self) -> float:
        """The bound on the error, sums taken in any order."""
        if self.terms < 2:
            return self.error
        steps = (self.terms - 1) * self.scalars.unit
        return self.error + steps / (1 - steps) * self.size

    def settled(self) -> Exact:
        """This number as one term: a sum that has been taken."""
        if self.terms < 2:
            return self
        slack = self.slack()
        return self._leaf(self.value, slack, max(self.peak, self.size))

    def _leaf(self, value: Any, error: float, peak: float) -> Exact:
        if type(value) is float:
            return type(self)(value, 0.0, 0.0, 1, peak)
        size = magnitude(value) + error
        return type(self)(value, error, size, 1, max(peak, size))

    # -- arithmetic --

    def __add__(self, other: Exact) -> Exact:
        if not self.terms:
            return other
        if not other.terms:
            return self
        value = self.value + other.value if not (self.special or other.special) else None
        if value is None:
            value = float(_float(self.value) + _float(other.value))
        return type(self)(
            value,
            self.error + other.error,
            self.size + other.size,
            self.terms + other.terms,
            max(self.peak, other.peak, self.size + other.size),
        )

    def __iadd__(self, other: Exact) -> Exact:
        return self + other

    def __neg__(self) -> Exact:
        return type(self)(-self.value, self.error, self.size, self.terms, self.peak)

    def __sub__(self, other: Exact) -> Exact:
        a, b = self.settled(), other.settled()
        if a.special or b.special:
            return self._leaf(float(_float(a.value) - _float(b.value)), 0.0, 0.0)
        value = a.value - b.value
        rounding = self.scalars.unit * (magnitude(value) + a.error + b.error)
        return self._leaf(value, a.error + b.error + rounding, max(a.peak, b.peak))

    def __mul__(self, other: Exact) -> Exact:
        if self.value == 1 and not self.error:
            return other
        if other.value == 1 and not other.error:
            return self
        a, b = self.settled(), other.settled()
        if a.special or b.special:
            with np.errstate(all="ignore"):
                return self._leaf(float(_sign(a.value) * _sign(b.value)), 0.0, 0.0)
        value = a.value * b.value
        lost = magnitude(a.value) * b.error + a.error * (magnitude(b.value) + b.error)
        return self._leaf(value, self._rounded(value, lost, 1), max(a.peak, b.peak))

    def __truediv__(self, other: Exact) -> Exact:
        if other.value == 1 and not other.error:
            return self
        a, b = self.settled(), other.settled()
        if a.special or b.special or b.value == 0:
            with np.errstate(all="ignore"):
                quotient = np.float64(_float(a.value)) / np.float64(_float(b.value))
            return self._leaf(_exact(float(quotient)), 0.0, 0.0)
        value = a.value / b.value
        below = max(magnitude(b.value) - b.error, 0.0)
        lost = (a.error + magnitude(value) * b.error) / below if below else math.inf
        if math.isnan(lost):
            lost = math.inf
        return self._leaf(value, self._rounded(value, lost, 2), max(a.peak, b.peak))

    def _rounded(self, value: Any, lost: float, roundings: int) -> float:
        system = self.scalars
        return lost + roundings * (system.unit * (magnitude(value) + lost) + system.tiny)

    def __repr__(self) -> str:
        return f"{_float(self.value)!r} ± {self.slack():.3g}"


class System(Scalars):
    """The number system of `Exact`: order with NaN and infinities, exp and log to sixty digits."""

    name = "exact, with a bound"

    def __init__(self, of: Arithmetic, ties: str = "") -> None:
        self.unit, self.tiny, self.largest = of.unit, of.tiny, of.largest
        self.ties = ties
        self.type = type("Exact", (Exact,), {"__slots__": (), "scalars": self})

    def from_int(self, n: int) -> Any:
        return self.type(Fraction(n), 0.0, float(abs(n)), 1 if n else 0)

    def from_real(self, value: Any) -> Any:
        exact = Fraction(value)
        near = 0.0 if self.unit == 2.0**-53 or float(np.float32(value)) == exact else self.unit
        return self.type(exact, near * magnitude(exact), magnitude(exact))

    def from_number(self, value: Any) -> Any:
        """A cell of an array: a Python float, int or bool; integers too long for float64 round."""
        if isinstance(value, float):
            exact = _exact(value)
            return self.type(exact, 0.0, 0.0 if type(exact) is float else abs(value))
        exact = Fraction(int(value))
        error = 0.0 if float(exact) == exact else self.unit * magnitude(exact)
        return self.type(exact, error, magnitude(exact) + error)

    def is_nan(self, a: Any) -> bool:
        return type(a.value) is float and a.value != a.value

    def greater(self, a: Any, b: Any) -> bool:
        if self.ties == "last":
            return bool(a.value >= b.value)
        return bool(a.value > b.value)

    def winner(self, values: list[Any]) -> int:
        if self.ties == "last NaN" and any(map(self.is_nan, values)):
            return max(c for c, v in enumerate(values) if self.is_nan(v))
        return super().winner(values)

    def pivot(self, values: list[Any], largest: bool) -> Any:
        best = super().pivot(values, largest)
        return self.from_int(0) if best.special else best

    def exp(self, a: Any) -> Any:
        a = a.settled()
        if a.special:
            limit = {math.inf: math.inf, -math.inf: 0.0}.get(a.value, math.nan)
            return a._leaf(_exact(limit), 0.0, 0.0)
        if a.value < -2000:
            return a._leaf(Fraction(0), self.tiny, 0.0)
        if a.value > 2000:
            return a._leaf(math.inf, 0.0, 0.0)
        value = Fraction(PRECISION.exp(_decimal(a.value)))
        near = magnitude(value)
        lost = near * math.expm1(min(a.error, 700.0)) + EXP_ERROR * self.unit * near + self.tiny
        return a._leaf(value, lost, 0.0)

    def log(self, a: Any) -> Any:
        a = a.settled()
        if a.special or a.value <= 0:
            with np.errstate(all="ignore"):
                return a._leaf(_exact(float(np.log(_float(a.value)))), 0.0, 0.0)
        value = Fraction(PRECISION.ln(_decimal(a.value)))
        below = magnitude(a.value) - a.error
        lost = a.error / below if below > 0 else math.inf
        lost += LOG_ERROR * self.unit * magnitude(value) + self.tiny
        return a._leaf(value, lost, 0.0)


@cache
def number_type(name: str, ties: str = "") -> System:
    """The number system for computations in this float type.

    `ties` may let the `"last"` of equal cells win, or the `"last NaN"` of several.
    """
    return System(arithmetic(name), ties)


def magnitude(value: Any) -> float:
    """|value| as a float; infinite past the largest."""
    try:
        return abs(float(value))
    except OverflowError:
        return math.inf


def _exact(value: float) -> Any:
    return Fraction(value) if math.isfinite(value) else value


def _float(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _sign(value: Any) -> float:
    """A stand-in with the sign of `value`, for products with an infinity or NaN."""
    return float(value) if type(value) is float else float((value > 0) - (value < 0))


def _decimal(value: Fraction) -> Decimal:
    return PRECISION.divide(Decimal(value.numerator), Decimal(value.denominator))
