"""Intervals of float64 with outward rounding: the result contains every exact result of its points."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np

from lunette.ops.base import is_float
from lunette.spec.scalars import Enclosures, MissingOperation, Scalars, Undecided

__all__ = ["Interval"]


class Interval:
    """`[lo, hi]`, both included; `Interval(v)` is the least interval around v: a point if a float holds it.

    Ends may be any real numbers and are rounded outward to floats. They may be infinite, never NaN.

    Parameters
    ----------
    lo : real number
        The lower end.
    hi : real number, optional
        The upper end. Default: the lower.

    Raises
    ------
    ValueError, TypeError
        For NaN, or ends in the wrong order.

    Examples
    --------
    >>> import lunette as ln
    >>> total = ln.spec.Interval(1, 2) + ln.spec.Interval(10)
    >>> total.lo <= 11 < 12 <= total.hi
    True
    """

    __slots__ = ("hi", "lo")
    scalars: Scalars
    lo: float
    hi: float

    def __init__(self, lo: Any, hi: Any = None) -> None:
        self.lo, above = _around(lo)
        self.hi = above if hi is None else _around(hi)[1]
        if not self.lo <= self.hi or (hi is not None and _greater(lo, hi)):
            raise ValueError(f"Interval({lo}, {hi}): expected lo ≤ hi and no NaN")

    def __contains__(self, value: Any) -> bool:
        if isinstance(value, Interval):
            return self.lo <= value.lo and value.hi <= self.hi
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
        if not _is_number(other):
            return NotImplemented
        other = _interval(other)
        return Interval(_sum(self.lo, other.lo)[0], _sum(self.hi, other.hi)[1])

    def __sub__(self, other: Any) -> Interval:
        return self.__add__(-_interval(other)) if _is_number(other) else NotImplemented

    def __mul__(self, other: Any) -> Interval:
        if not _is_number(other):
            return NotImplemented
        return _hull(_product, self, _interval(other))

    def __truediv__(self, other: Any) -> Interval:
        if not _is_number(other):
            return NotImplemented
        other = _interval(other)
        if other.lo <= 0 <= other.hi:
            raise ZeroDivisionError(f"{self!r} / {other!r}: the divisor contains zero")
        return _hull(_quotient, self, other)

    def __radd__(self, other: Any) -> Interval:
        return self.__add__(other)

    def __rmul__(self, other: Any) -> Interval:
        return self.__mul__(other)

    def __rsub__(self, other: Any) -> Interval:
        return (-self).__add__(other)

    def __rtruediv__(self, other: Any) -> Interval:
        return _interval(other).__truediv__(self) if _is_number(other) else NotImplemented


class Intervals(Enclosures):
    """An order where the intervals are apart; exp and log from balls, rounded outward."""

    name = "Interval"
    by_ends = True

    def from_int(self, n: int) -> Interval:
        return Interval(n)

    def from_real(self, value: Any) -> Interval:
        return Interval(value)

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

    def monotone(
        self,
        function: Callable[[list[Any]], Any],
        values: list[Any],
        rising: list[bool],
        within: tuple[int, int] | None = None,
    ) -> Interval:
        # At the ends alone: what a function adds and takes away again widens nothing there.
        low = [v.lo if up else v.hi for v, up in zip(values, rising, strict=True)]
        high = [v.hi if up else v.lo for v, up in zip(values, rising, strict=True)]
        if within is None:
            return Interval(function(_points(low)).lo, function(_points(high)).hi)
        least, most = within
        if all(map(math.isfinite, low)):
            least = max(least, function(_points(low)).lo)
        if all(map(math.isfinite, high)):
            most = min(most, function(_points(high)).hi)
        return Interval(least, most)

    def exp(self, a: Interval) -> Interval:
        return Interval(_transcendental("exp", a.lo)[0], _transcendental("exp", a.hi)[1])

    def log(self, a: Interval) -> Interval:
        return Interval(_transcendental("log", a.lo)[0], _transcendental("log", a.hi)[1])


Interval.scalars = Intervals()


def _points(ends: list[float]) -> list[Interval]:
    return list(map(Interval, ends))


# -- numbers as ends --


def _is_number(value: Any) -> bool:
    """Whether an interval can be made of it; arrays of such numbers take the operation over."""
    if isinstance(value, (Interval, Real, Decimal)):
        return True
    kind = type(value)
    if _is_flint(kind):
        return kind.__name__ in ("arb", "fmpq", "fmpz")
    return issubclass(kind, np.generic) and is_float(np.dtype(kind))


def _is_flint(kind: type) -> bool:
    return kind.__module__.partition(".")[0] == "flint"


def _interval(value: Any) -> Interval:
    return value if isinstance(value, Interval) else Interval(value)


def _around(value: Any) -> tuple[float, float]:
    """The floats below and above a real number; twice the number itself where it is a float."""
    if type(value) is float:
        return value, value
    if isinstance(value, Interval) or not _is_number(value):
        raise TypeError(
            f"end {value!r} of type {type(value).__name__}: expected a float, an int, a Fraction, a "
            "Decimal, or a python-flint fmpq or arb"
        )
    if _is_flint(type(value)):
        from lunette.spec.balls import around

        found = around(value)
        if isinstance(found, tuple):
            return found
        value = found
    try:
        near = float(value)
    except OverflowError:
        near = math.inf if value > 0 else -math.inf
    if math.isnan(near):
        return near, near
    below = near if near <= value else math.nextafter(near, -math.inf)
    return below, near if near >= value else math.nextafter(near, math.inf)


def _greater(lo: Any, hi: Any) -> bool:
    """Whether ends that round to one gap between floats are in the wrong order."""
    try:
        return bool(lo > hi)
    except TypeError:  # a Decimal and a Fraction, say
        return False


# -- arithmetic of ends: the exact result lies between the two floats --


def _outward(near: float, exact: bool) -> tuple[float, float]:
    """A correctly rounded result and its neighbours, where the exact one may lie."""
    if exact:
        return near, near
    return math.nextafter(near, -math.inf), math.nextafter(near, math.inf)


def _sum(a: float, b: float) -> tuple[float, float]:
    total = a + b
    if math.isnan(total):  # −inf + inf says nothing
        return -math.inf, math.inf
    return _outward(total, a == 0 or b == 0 or math.isinf(a) or math.isinf(b))


def _product(a: float, b: float) -> tuple[float, float]:
    if a == 0 or b == 0:
        return 0.0, 0.0
    exact = abs(a) == 1 or abs(b) == 1 or math.isinf(a) or math.isinf(b)
    return _outward(a * b, exact)


def _quotient(a: float, b: float) -> tuple[float, float]:
    if math.isinf(a) and math.isinf(b):
        return -math.inf, math.inf
    return _outward(a / b, a == 0 or abs(b) == 1 or math.isinf(a) or math.isinf(b))


def _hull(
    operation: Callable[[float, float], tuple[float, float]], x: Interval, y: Interval
) -> Interval:
    """What an operation that is monotone in each operand gives at the corners."""
    corners = [operation(a, b) for a in (x.lo, x.hi) for b in (y.lo, y.hi)]
    return Interval(min(lo for lo, _ in corners), max(hi for _, hi in corners))


def _transcendental(function: str, end: float) -> tuple[float, float]:
    """Floats below and above exp or log of a float, from a ball that holds the exact value."""
    if function == "log" and end < 0:
        raise ValueError(f"log of an interval that reaches {end!r}: expected positive numbers")
    if math.isinf(end):
        return (end, end) if end > 0 else (0.0, 0.0)
    if function == "log" and end == 0:
        return -math.inf, -math.inf
    try:
        from lunette.spec.balls import enclosure
    except ImportError:
        raise MissingOperation(
            f"{function} of an interval needs python-flint: pip install 'lunette-ops[exact]'"
        ) from None
    return enclosure(function, end)
