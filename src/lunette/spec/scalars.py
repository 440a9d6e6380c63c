"""What a number system must supply, and the ones we know.

Elements carry `+ - * /` themselves; a `Scalars` object adds what Python has no operator for. An
operation that a system lacks raises `MissingOperation` by name; it never returns a made-up value.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

from lunette.ops.base import is_float

__all__ = ["MissingOperation", "Scalars", "Undecided", "lift", "lower", "of_array", "of_value"]


class MissingOperation(TypeError):
    """This number system has no such operation."""


class Undecided(ValueError):
    """The order of these two values is not known: they overlap."""


class Scalars:
    """A number system: conversions, order, exp and log."""

    name: str

    def from_int(self, n: int) -> Any:
        """The integer `n`, rounded at most once."""
        raise NotImplementedError

    def from_real(self, value: Any) -> Any:
        """A Python float or Fraction, rounded at most once."""
        raise self._missing("conversion from a real number")

    def maximum(self, a: Any, b: Any) -> Any:
        """The larger; `a` of equals, and a NaN before any number."""
        return b if (self.is_nan(b) and not self.is_nan(a)) or self.greater(b, a) else a

    def greater(self, a: Any, b: Any) -> bool:
        """Whether `a > b`; `Undecided` where that is not known."""
        return bool(a > b)

    def is_nan(self, a: Any) -> bool:
        """Whether `a` is no number."""
        return False

    def sign(self, a: Any) -> Any:
        """−1, 0 or 1; a NaN is its own sign."""
        zero = self.from_int(0)
        if self.is_nan(a):
            return a
        return self.from_int(int(self.greater(a, zero)) - int(self.greater(zero, a)))

    def winner(self, values: list[Any]) -> int:
        """The first NaN, else the first of the largest."""
        best = 0
        for c, v in enumerate(values):
            if self.is_nan(values[best]):
                break
            if self.is_nan(v) or self.greater(v, values[best]):
                best = c
        return best

    def pivot(self, values: list[Any], largest: bool) -> Any:
        """A finite constant near the largest (or smallest) value, to compute exponentials about."""
        best = values[0]
        for v in values[1:]:
            best = self.maximum(best, v) if largest else -self.maximum(-best, -v)
        return best

    def exp(self, a: Any) -> Any:
        """e to the power `a`."""
        raise self._missing("exp")

    def log(self, a: Any) -> Any:
        """The natural logarithm of `a`."""
        raise self._missing("log")

    def _missing(self, operation: str) -> MissingOperation:
        return MissingOperation(
            f"{self.name} numbers have no {operation}: use floats, or balls "
            "(python-flint's arb, pip install 'lunette[exact]')"
        )


class Floats(Scalars):
    """NumPy's float64 or float32: every operation rounds once, in that type."""

    def __init__(self, type_: Any) -> None:
        self.type, self.name = type_, np.dtype(type_).name

    def from_int(self, n: int) -> Any:
        try:
            return self.type(float(n))
        except OverflowError:
            return self.type(math.inf if n > 0 else -math.inf)

    def from_real(self, value: Any) -> Any:
        return self.type(float(value))

    def is_nan(self, a: Any) -> bool:
        return bool(np.isnan(a))

    def pivot(self, values: list[Any], largest: bool) -> Any:
        best = super().pivot(values, largest)
        # About an infinite pivot every difference would be NaN; about 0 the limits come out right.
        return self.type(0) if np.isinf(best) else best

    def exp(self, a: Any) -> Any:
        try:
            return self.type(math.exp(a))
        except OverflowError:
            return self.type(math.inf)

    def log(self, a: Any) -> Any:
        return self.type(-math.inf if a == 0 else math.log(a) if a > 0 else math.nan)


class Integers(Scalars):
    """NumPy's integers and bool: an order and nothing else."""

    def __init__(self, type_: Any) -> None:
        self.type, self.name = type_, np.dtype(type_).name

    def from_int(self, n: int) -> Any:
        return self.type(n)


class Rationals(Scalars):
    """Fractions, or python-flint's `fmpq`: exact, with neither exp nor log."""

    def __init__(self, type_: Any, name: str) -> None:
        self.type, self.name = type_, name

    def from_int(self, n: int) -> Any:
        return self.type(n)

    def from_real(self, value: Any) -> Any:
        exact = Fraction(value)
        return self.type(exact.numerator, exact.denominator)


class Enclosures(Scalars):
    """Numbers known to lie in a range: their order is known only where the ranges are apart."""

    def middle(self, a: Any) -> Any:
        """An exact point of the range."""
        raise NotImplementedError

    def winner(self, values: list[Any]) -> int:
        """The cell that is surely first of the largest; `Undecided` where none is."""
        middles = [self.middle(v) for v in values]
        best = middles.index(max(middles))
        for c, v in enumerate(values):
            if c != best:
                self.greater(values[best], v) if c < best else self.greater(v, values[best])
        return best


FLOAT64, FLOAT32 = Floats(np.float64), Floats(np.float32)


def of_value(value: Any) -> Scalars:
    """The number system that a value belongs to."""
    kind = type(value)
    if kind in (float, np.float64):
        return FLOAT64
    if kind is np.float32 or is_float(np.dtype(kind)):  # halves are computed in float32
        return FLOAT32
    if kind in (Fraction, int):
        return Rationals(Fraction, "Fraction")
    if kind.__module__.partition(".")[0] == "flint":
        from lunette.spec.balls import of_flint

        return of_flint(kind)
    system = getattr(value, "scalars", None)
    if isinstance(system, Scalars):
        return system
    raise TypeError(
        f"element {value!r} of type {kind.__name__}: expected a float, an int, a Fraction, "
        "a python-flint fmpq or arb, a lunette.spec.Interval or a lunette.spec.Dual"
    )


def of_array(x: np.ndarray[Any, Any]) -> Scalars:
    """The number system of an array; of an object array, that of its elements."""
    if is_float(x.dtype):
        return FLOAT64 if x.dtype == np.float64 else FLOAT32
    if x.dtype.kind != "O":
        return Integers(x.dtype.type)
    kinds: dict[type, Any] = {}
    for v in x.flat:
        kinds.setdefault(type(v), v)
    others = {k: v for k, v in kinds.items() if k is not int}
    if len(others) > 1:
        names = ", ".join(sorted(k.__name__ for k in others))
        raise TypeError(f"an object array holds elements of several types: {names}")
    return of_value(next(iter((others or kinds).values()))) if kinds else Rationals(Fraction, "")


def lift(x: np.ndarray[Any, Any], exact_integers: bool = True) -> np.ndarray[Any, Any]:
    """The array to compute with: half types as float32, ints in object arrays as their neighbours.

    Integer arrays stay as they are, or become float64 where the reduction has to divide.
    """
    if x.dtype.kind == "O":
        system = of_array(x)
        out = np.empty(x.shape, object)
        for i, v in np.ndenumerate(x):
            out[i] = system.from_int(v) if type(v) is int else v
        return out
    if is_float(x.dtype):
        return x.astype(np.float64 if x.dtype == np.float64 else np.float32)
    return x if exact_integers else x.astype(np.float64)


def lower(values: np.ndarray[Any, Any], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Computed elements as an array of the result's dtype: the one rounding of the half types."""
    return values if dtype.kind == "O" else values.astype(dtype)
