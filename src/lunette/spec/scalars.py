"""What a number system must supply, and the ones we know.

Elements carry `+ - * /` themselves; a `Scalars` object adds what Python has no operator for. An
operation that a system lacks raises `MissingOperation` by name; it never returns a made-up value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from lunette.ops.base import is_float

__all__ = [
    "MissingOperation",
    "Scalars",
    "Undecided",
    "filled",
    "is_int",
    "joined",
    "lift",
    "lift_all",
    "lower",
    "of_array",
    "of_elements",
    "of_value",
]

Array = np.ndarray[Any, Any]


class MissingOperation(TypeError):
    """This number system has no such operation.

    Examples
    --------
    >>> from fractions import Fraction
    >>> import numpy as np
    >>> import lunette as ln
    >>> ln.spec.forward(ln.SmoothMaxPool((2,), 1.0), np.array([Fraction(1), Fraction(2)]))
    Traceback (most recent call last):
    lunette.spec.scalars.MissingOperation: ...
    """


class Undecided(ValueError):
    """The order of these two values is not known: they overlap.

    Examples
    --------
    >>> import numpy as np
    >>> import lunette as ln
    >>> x = np.array([ln.spec.Interval(0, 2), ln.spec.Interval(1, 3)])
    >>> ln.spec.vjp(ln.MaxPool((2,)), x, np.array([ln.spec.Interval(1)]))
    Traceback (most recent call last):
    lunette.spec.scalars.Undecided: ...
    """


class Scalars:
    """A number system: conversions, order, exp and log."""

    name: str

    def from_int(self, n: int) -> Any:
        """The integer `n`, rounded at most once."""
        raise NotImplementedError

    def from_real(self, value: Any) -> Any:
        """A Python float or Fraction, rounded at most once."""
        raise self._missing("conversion from a real number")

    def element(self, value: Any) -> Any:
        """An element to compute with; integers, which every system has, join this one."""
        return self.from_int(int(value)) if is_int(type(value)) else value

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

    by_ends = False
    """Whether `monotone` looks at the ends of ranges, and so is worth more than the function alone."""

    def monotone(
        self,
        function: Callable[[list[Any]], Any],
        values: list[Any],
        rising: list[bool],
        within: tuple[int, int] | None = None,
    ) -> Any:
        """A function that rises with some of the values and falls with the others, within bounds."""
        return function(values)

    def exp(self, a: Any) -> Any:
        """e to the power `a`."""
        raise self._missing("exp")

    def log(self, a: Any) -> Any:
        """The natural logarithm of `a`."""
        raise self._missing("log")

    def _missing(self, operation: str) -> MissingOperation:
        return MissingOperation(
            f"{self.name} numbers have no {operation}: use floats, or balls "
            "(python-flint's arb, pip install 'lunette-ops[exact]')"
        )


class Floats(Scalars):
    """NumPy's float64 or float32: every operation rounds once, in that type."""

    def __init__(self, type_: Any) -> None:
        self.type, self.name = type_, np.dtype(type_).name

    def from_int(self, n: int) -> Any:
        return self.from_real(n)

    def from_real(self, value: Any) -> Any:
        try:
            nearest = float(value)
        except OverflowError:
            nearest = math.inf if value > 0 else -math.inf
        with np.errstate(over="ignore"):
            return self.type(nearest)

    def element(self, value: Any) -> Any:
        number = self.from_int(int(value)) if is_int(type(value)) else self.type(value)
        if np.isinf(number) and is_int(type(value)):
            raise ValueError(
                f"an integer of {value.bit_length()} bits among {self.name} numbers: none is as large"
            )
        return number

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


def is_int(kind: type) -> bool:
    """Whether this is a type of exact integers: Python's or NumPy's; a bool is no number."""
    return kind is int or issubclass(kind, np.integer)


def of_value(value: Any) -> Scalars:
    """The number system that a value belongs to."""
    kind = type(value)
    if kind in (float, np.float64):
        return FLOAT64
    if issubclass(kind, np.generic) and is_float(np.dtype(kind)):  # halves are computed in float32
        return FLOAT32
    if kind is Fraction or is_int(kind):
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


def of_array(x: Array) -> Scalars:
    """The number system of an array; of an object array, that of its elements."""
    if is_float(x.dtype):
        return FLOAT64 if x.dtype.name == "float64" else FLOAT32
    if x.dtype.kind != "O":
        return Integers(x.dtype.type)
    return of_elements({"an object array": x.flat})


def of_elements(groups: Mapping[str, Iterable[Any]]) -> Scalars:
    """The one number system of all elements of some named groups; integers belong to any."""
    from lunette.spec.duals import Dual, Duals

    found: dict[type, tuple[Any, str]] = {}
    parts: dict[str, list[Any]] = {}
    for name, values in groups.items():
        for v in values:
            kind = type(v)
            if kind is Dual:
                parts.setdefault(name, []).extend((v.primal, v.tangent))
            if kind not in found:
                found[kind] = v, name
    others = {k: v for k, v in found.items() if not is_int(k)}
    if set(others) == {Dual}:
        return Duals(of_elements(parts))
    systems = {of_value(v).name: of_value(v) for v, _ in others.values()}
    if len(systems) > 1:
        kinds = sorted((k.__name__, name) for k, (_, name) in others.items())
        if len(groups) == 1:
            held = (
                f"{kinds[0][1]} holds elements of several types: {', '.join(k for k, _ in kinds)}"
            )
        else:
            held = f"elements of several types: {', '.join(f'{k} in {n}' for k, n in kinds)}"
        raise TypeError(f"{held}; expected one number system, which integers may join")
    for system in systems.values():
        return system
    return Rationals(Fraction, "Fraction" if found else "")


def lift(x: Array, exact_integers: bool = True) -> Array:
    """The array to compute with: half types as float32, ints in object arrays as their neighbours.

    Integer arrays stay as they are, or become float64 where the reduction has to divide.
    """
    if x.dtype.kind == "O":
        return _elements(of_array(x), x)
    if is_float(x.dtype):
        return x.astype(np.float64 if x.dtype.name == "float64" else np.float32)
    return x if exact_integers else x.astype(np.float64)


def lift_all(groups: Mapping[str, Array]) -> list[Array]:
    """The arrays, by name, to compute with; object arrays are of one number system together."""
    arrays = list(groups.values())
    if not any(a.dtype.kind == "O" for a in arrays):
        return [lift(a) for a in arrays]
    system = of_elements({name: a.flat for name, a in groups.items()})
    return [_elements(system, a) for a in arrays]


def joined(integers: Array, exact: Array) -> Array:
    """Integers as elements of the number system of an object array."""
    return _elements(of_array(exact), integers) if exact.size else integers.astype(object)


def _elements(system: Scalars, x: Array) -> Array:
    out = np.empty(x.shape, object)
    for i, v in np.ndenumerate(x):
        out[i] = system.element(v)
    return out


def filled(shape: tuple[int, ...], value: Any, dtype: Any = object) -> Array:
    """An array of one value; among objects it keeps its type, which `numpy.full` would not."""
    out: Array = np.empty(shape, dtype)
    out.fill(value)
    return out


def lower(values: Array, dtype: np.dtype[Any]) -> Array:
    """Computed elements as an array of the result's dtype: the one rounding of the half types."""
    if dtype.kind == "O":
        return values
    with np.errstate(all="ignore"):  # a number too large for a half type is infinite
        return values.astype(dtype)
