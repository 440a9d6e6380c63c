"""Dual numbers a + b·ε over any number system: run `forward` on them and `jvp` comes out."""

from __future__ import annotations

from typing import Any

from lunette.spec.scalars import Scalars, of_elements

__all__ = ["Dual"]


class Dual:
    """A primal and its tangent, both of one number system.

    Parameters
    ----------
    primal : number
        A float, a Fraction, an interval, …
    tangent : number
        How it moves.

    Examples
    --------
    >>> import numpy as np
    >>> import lunette as ln
    >>> x = np.array([ln.spec.Dual(1, 10), ln.spec.Dual(5, 20)])
    >>> y = ln.spec.forward(ln.MaxPool((2,)), x)[0]
    >>> y.primal, y.tangent
    (Fraction(5, 1), Fraction(20, 1))
    """

    __slots__ = ("primal", "tangent")

    def __init__(self, primal: Any, tangent: Any) -> None:
        self.primal, self.tangent = primal, tangent

    @property
    def scalars(self) -> Scalars:
        """Dual numbers over the system of the two."""
        return Duals(of_elements({"a dual": (self.primal, self.tangent)}))

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Dual)
            and bool(self.primal == other.primal)
            and bool(self.tangent == other.tangent)
        )

    def __hash__(self) -> int:
        return hash((self.primal, self.tangent))

    def __repr__(self) -> str:
        return f"Dual({self.primal!r}, {self.tangent!r})"

    def __neg__(self) -> Dual:
        return Dual(-self.primal, -self.tangent)

    def __add__(self, other: Dual) -> Dual:
        return Dual(self.primal + other.primal, self.tangent + other.tangent)

    def __sub__(self, other: Dual) -> Dual:
        return Dual(self.primal - other.primal, self.tangent - other.tangent)

    def __mul__(self, other: Dual) -> Dual:
        tangent = self.tangent * other.primal + self.primal * other.tangent
        return Dual(self.primal * other.primal, tangent)

    def __truediv__(self, other: Dual) -> Dual:
        quotient = self.primal / other.primal
        return Dual(quotient, (self.tangent - quotient * other.tangent) / other.primal)


class Duals(Scalars):
    """Order and functions of the primal; tangents by the chain rule; the first of equals wins."""

    def __init__(self, base: Scalars) -> None:
        self.base, self.name = base, f"Dual over {base.name}"

    def _constant(self, value: Any) -> Dual:
        return Dual(value, self.base.from_int(0))

    def from_int(self, n: int) -> Dual:
        return self._constant(self.base.from_int(n))

    def from_real(self, value: Any) -> Dual:
        return self._constant(self.base.from_real(value))

    def element(self, value: Any) -> Any:
        if not isinstance(value, Dual):
            return super().element(value)
        return Dual(self.base.element(value.primal), self.base.element(value.tangent))

    def greater(self, a: Dual, b: Dual) -> bool:
        return self.base.greater(a.primal, b.primal)

    def is_nan(self, a: Dual) -> bool:
        return self.base.is_nan(a.primal)

    def sign(self, a: Dual) -> Dual:
        return self._constant(self.base.sign(a.primal))

    def winner(self, values: list[Dual]) -> int:
        return self.base.winner([v.primal for v in values])

    def pivot(self, values: list[Dual], largest: bool) -> Dual:
        return self._constant(self.base.pivot([v.primal for v in values], largest))

    def exp(self, a: Dual) -> Dual:
        power = self.base.exp(a.primal)
        return Dual(power, power * a.tangent)

    def log(self, a: Dual) -> Dual:
        return Dual(self.base.log(a.primal), a.tangent / a.primal)
