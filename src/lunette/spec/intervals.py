"""Intervals of float64 with outward rounding: the result contains every exact result of its points."""

from __future__ import annotations

import math
from typing import Any

from lunette.spec.scalars import Enclosures, MissingOperation, Scalars, Undecided

__all__ = ["Interval"]


class Interval:
    """`[lo, hi]`, both included; `Interval(v)` is the point v. Ends may be infinite, never NaN."""

    __slots__ = ("hi", "lo")
    scalars: Scalars

    def __init__(self, lo: float, hi: float | None = None) -> None:
        lo, hi = float(lo), float(lo if hi is None else hi)
        if not lo <= hi:
            raise ValueError(f"Interval({lo}, {hi}): expected lo ≤ hi and no NaN")
        self.lo, self.hi = lo, hi

    def __contains__(self, value: Any) -> bool:
        return bool(self.lo <= value <= self.hi)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Interval) and (self.lo, self.hi) == (other.lo, other.hi)

    def __hash__(self) -> int:
        return hash((self.lo, self.hi))

    def __repr__(self) -> str:
        return f"Interval({self.lo!r}, {self.hi!r})"

    def __neg__(self) -> Interval:
        return Interval(-self.hi, -self.lo)

    def __add__(self, other: Any) -> Interval:
        other = _interval(other)
        return _outward([_sum(self.lo, other.lo, -1)], [_sum(self.hi, other.hi, +1)])

    def __sub__(self, other: Any) -> Interval:
        return self.__add__(-_interval(other))

    def __mul__(self, other: Any) -> Interval:
        other = _interval(other)
        corners = [_product(a, b) for a in (self.lo, self.hi) for b in (other.lo, other.hi)]
        return _outward(corners, corners)

    def __truediv__(self, other: Any) -> Interval:
        other = _interval(other)
        if other.lo <= 0 <= other.hi:
            raise ZeroDivisionError(f"{self!r} / {other!r}: the divisor contains zero")
        corners = [_quotient(a, b) for a in (self.lo, self.hi) for b in (other.lo, other.hi)]
        return _outward(corners, corners)

    def __radd__(self, other: Any) -> Interval:
        return self.__add__(other)

    def __rmul__(self, other: Any) -> Interval:
        return self.__mul__(other)

    def __rsub__(self, other: Any) -> Interval:
        return (-self).__add__(other)

    def __rtruediv__(self, other: Any) -> Interval:
        return _interval(other).__truediv__(self)


class Intervals(Enclosures):
    """An order where the intervals are apart; exp and log from balls, rounded outward."""

    name = "Interval"

    def from_int(self, n: int) -> Interval:
        return _enclose(n)

    def from_real(self, value: Any) -> Interval:
        return _enclose(value)

    def maximum(self, a: Interval, b: Interval) -> Interval:
        return Interval(max(a.lo, b.lo), max(a.hi, b.hi))

    def greater(self, a: Interval, b: Interval) -> bool:
        if a.lo > b.hi:
            return True
        if a.hi <= b.lo:
            return False
        raise Undecided(
            f"which of {a!r} and {b!r} is greater? They overlap, so no cell is the winner"
        )

    def sign(self, a: Interval) -> Interval:
        return Interval((a.lo > 0) - (a.lo < 0), (a.hi > 0) - (a.hi < 0))

    def middle(self, a: Interval) -> float:
        return a.lo

    def pivot(self, values: list[Interval], largest: bool) -> Interval:
        # Any point serves: the value does not depend on it, and a point adds no width.
        ends = [end for v in values for end in (v.lo, v.hi) if math.isfinite(end)]
        return Interval((max if largest else min)(ends, default=0.0))

    def exp(self, a: Interval) -> Interval:
        return Interval(_transcendental("exp", a.lo)[0], _transcendental("exp", a.hi)[1])

    def log(self, a: Interval) -> Interval:
        return Interval(_transcendental("log", a.lo)[0], _transcendental("log", a.hi)[1])


Interval.scalars = Intervals()


def _interval(value: Any) -> Interval:
    return value if isinstance(value, Interval) else _enclose(value)


def _enclose(value: Any) -> Interval:
    """The point, or the two floats around a number that no float holds."""
    try:
        near = float(value)
    except OverflowError:
        near = math.copysign(math.inf, value)
    if math.isinf(near) and value != near:  # an integer or rational past the floats
        largest = math.nextafter(near, 0)
        return Interval(min(near, largest), max(near, largest))
    lo = near if near <= value else math.nextafter(near, -math.inf)
    return Interval(lo, near if near >= value else math.nextafter(near, math.inf))


def _sum(a: float, b: float, toward: int) -> float:
    """A sum of ends; −inf + inf, which says nothing, becomes the end that promises nothing."""
    total = a + b
    return toward * math.inf if math.isnan(total) else total


def _product(a: float, b: float) -> float:
    return 0.0 if a == 0 or b == 0 else a * b


def _quotient(a: float, b: float) -> float:
    if math.isinf(a) and math.isinf(b):
        return math.nan
    return a / b


def _outward(lows: list[float], highs: list[float]) -> Interval:
    """The hull of rounded results, one float wider on each side, where the exact ones may lie."""
    lo = -math.inf if any(map(math.isnan, lows)) else min(lows)
    hi = math.inf if any(map(math.isnan, highs)) else max(highs)
    return Interval(math.nextafter(lo, -math.inf), math.nextafter(hi, math.inf))


def _transcendental(function: str, end: float) -> tuple[float, float]:
    """Floats below and above exp or log of a float, from a ball that holds the exact value."""
    if math.isinf(end):
        low_limit = 0.0 if function == "exp" else math.nan
        return (end, end) if end > 0 else (low_limit, low_limit)
    if function == "log" and end <= 0:
        if end < 0:
            raise ValueError(f"log of an interval that reaches {end!r}: expected positive numbers")
        return -math.inf, -math.inf
    try:
        from lunette.spec.balls import enclosure
    except ImportError:
        raise MissingOperation(
            f"{function} of an interval needs python-flint: pip install 'lunette[exact]'"
        ) from None
    return enclosure(function, end)
