"""python-flint's numbers: exact rationals (`fmpq`) and balls of any precision (`arb`)."""

from __future__ import annotations

import math
import sys
from fractions import Fraction
from typing import Any

import flint

from lunette.spec.scalars import Enclosures, Rationals, Scalars, Undecided

__all__ = ["Balls", "enclosure", "of_flint"]


class Balls(Enclosures):
    """`arb`: a midpoint and a radius; every result contains the exact one. Precision: `flint.ctx`."""

    name = "arb"

    def from_int(self, n: int) -> Any:
        return flint.arb(n)

    def from_real(self, value: Any) -> Any:
        exact = Fraction(value)
        return flint.arb(flint.fmpq(exact.numerator, exact.denominator))

    def maximum(self, a: Any, b: Any) -> Any:
        return a.max(b)

    def greater(self, a: Any, b: Any) -> bool:
        if a > b:
            return True
        if a <= b:
            return False
        raise Undecided(
            f"which of {a} and {b} is greater? The balls overlap, so no cell is the winner"
        )

    def is_nan(self, a: Any) -> bool:
        return bool(a.is_nan())

    def sign(self, a: Any) -> Any:
        return a.sgn()

    def middle(self, a: Any) -> Any:
        return a.mid()

    def pivot(self, values: list[Any], largest: bool) -> Any:
        # Midpoints are exact, so their order is known, and a point adds no width.
        middles = [m for v in values if (m := v.mid()).is_finite()]
        return super().pivot(middles or [flint.arb(0)], largest)

    def exp(self, a: Any) -> Any:
        return a.exp()

    def log(self, a: Any) -> Any:
        return a.log()


def of_flint(kind: type) -> Scalars:
    """The number system of a python-flint type."""
    if kind is flint.arb:
        return Balls()
    if kind is flint.fmpq:
        return Rationals(flint.fmpq, "fmpq")
    raise TypeError(f"elements of type flint.{kind.__name__}: expected fmpq or arb")


def enclosure(function: str, value: float) -> tuple[float, float]:
    """The nearest floats that enclose exp or log of a float, by a ball of 128 bits."""
    if function == "exp" and abs(value) > 1000:  # past the floats, and maybe past the balls
        return (sys.float_info.max, math.inf) if value > 0 else (0.0, math.ulp(0.0))
    with flint.ctx.workprec(128):
        ball = getattr(flint.arb(value), function)()
        return _below(ball), -_below(-ball)


def around(value: Any) -> tuple[float, float] | Fraction:
    """The nearest floats that enclose a ball, NaN where it says nothing; an exact number as it is."""
    if not isinstance(value, flint.arb):
        exact = flint.fmpq(value)
        return Fraction(int(exact.p), int(exact.q))
    return (math.nan, math.nan) if value.is_nan() else (_below(value), -_below(-value))


def _below(ball: Any) -> float:
    """A float at or below every number of the ball."""
    bound = ball.lower()
    guess = float(bound)
    while not flint.arb(guess) <= bound:
        guess = math.nextafter(guess, -math.inf)
    return guess
