"""A box of numbers, and how the bounds' own float64 arithmetic is kept sound.

Nothing here rounds outward operation by operation. Bounds are computed in plain float64, and each
result is moved by a bound on all the rounding that went into it: `γ_n·Σ|terms|` for n roundings,
whatever their order. `gamma` gives that factor; `SLACK` covers the rounding of the charge itself.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lunette.inputs import array

__all__ = ["LARGEST", "SLACK", "TINY", "UNIT", "Array", "Box", "gamma", "magnitude"]

Array = np.ndarray[Any, Any]

UNIT = 2.0**-53
"""The unit roundoff of the bounds' own arithmetic."""

SLACK = 1 + 2.0**-20
"""More than the rounding of a sum of less than 2³⁰ terms of one sign."""

LARGEST = 2.0**400
"""The largest size of a number that is taken. Products of such numbers do not overflow."""

TINY = 2.0**-400
"""More than all that products of float64 numbers below their normal range can lose in a step."""


def gamma(n: Any, unit: float = UNIT) -> Any:
    """`n·u / (1 − n·u)`: the relative error that n roundings can add up to."""
    return n * unit / (1 - n * unit)


class Box:
    """A lower and an upper end for every cell, both included.

    `lo` and `hi` are finite float64 arrays of one shape. Numbers are taken for arrays without axes,
    and one end is stretched to the shape of the other.

    Parameters
    ----------
    lo : array_like or number
        The lower ends.
    hi : array_like or number
        The upper ends.

    Raises
    ------
    ValueError, TypeError
        For ends that are not finite, or in the wrong order.

    Examples
    --------
    >>> import lunette as ln
    >>> box = ln.Box([0.0, 1.0], 2.0)
    >>> box.lo, box.hi
    (array([0., 1.]), array([2., 2.]))
    """

    __slots__ = ("hi", "lo")

    def __init__(self, lo: Any, hi: Any) -> None:
        lower, upper = _numbers(lo, "lo"), _numbers(hi, "hi")
        try:
            lower, upper = np.broadcast_arrays(lower, upper)
        except ValueError:
            raise ValueError(
                f"lo of shape {lower.shape} and hi of shape {upper.shape}: expected one shape"
            ) from None
        wrong = np.argwhere(lower > upper)
        if len(wrong):
            place = tuple(map(int, wrong[0]))
            raise ValueError(
                f"lo={lower[place]!r} is above hi={upper[place]!r} at {place}: the box is empty; "
                "exchange the ends"
            )
        self.lo: Array = lower.copy()
        self.hi: Array = upper.copy()

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of both ends."""
        return tuple(self.lo.shape)

    @property
    def width(self) -> Array:
        """The distance between the ends, cell by cell."""
        return np.asarray(self.hi - self.lo)

    def contains(self, x: Any) -> bool:
        """Whether every cell of an array lies between the ends; an array with a NaN does not."""
        x = array(x, "x")
        if x.dtype.kind in "iu":
            x = x.astype(object)  # floats would round those past 2**53
        return bool(np.all((self.lo <= x) & (x <= self.hi)))

    def __repr__(self) -> str:
        if self.lo.size <= 8:
            return f"Box({self.lo.tolist()}, {self.hi.tolist()})"
        return f"<Box of shape {self.shape}, widest {self.width.max()}>"


def magnitude(lo: Array, hi: Array) -> Array:
    """The largest size of a number between the ends."""
    return np.maximum(np.abs(lo), np.abs(hi))


def _numbers(value: Any, name: str) -> Array:
    """A float64 array of finite numbers that holds the given ones exactly."""
    found = array(value, name)
    if found.dtype.kind not in "fiu" and found.dtype.name != "bfloat16":
        raise TypeError(f"{name} has dtype {found.dtype}: expected real numbers")
    exact = np.asarray(found, np.float64)
    if not np.isfinite(exact).all():
        place = tuple(map(int, np.argwhere(~np.isfinite(exact))[0]))
        raise ValueError(f"{name}={exact[place]!r} at {place}: expected finite numbers")
    if found.dtype.kind in "iu" and (np.abs(exact) > 2.0**53).any():
        raise ValueError(f"{name} holds integers past 2**53, which float64 rounds; give floats")
    if found.dtype.name == "longdouble" or found.dtype.itemsize > 8:
        raise TypeError(f"{name} has dtype {found.dtype}: expected float64 or narrower")
    if exact.size and np.abs(exact).max() > LARGEST:
        raise ValueError(f"{name} holds numbers past 2**400; expected smaller ones")
    return exact
