"""What happens to the cells of a window: max, min, mean, smooth max or mode. Frozen records, no arithmetic."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real
from typing import Any

from lunette.arguments import choice, flag, shown, size
from lunette.records import checked

__all__ = ["Max", "Mean", "Min", "Mode", "Reduction", "RoundedMean", "SmoothMax"]

TIES = ("first", "all", "split")
MODE_TIES = ("smallest", "first")


class Reduction:
    """The kind of value a window gives."""

    __slots__ = ()


@checked
@dataclass(frozen=True, slots=True)
class Max(Reduction):
    """The largest cell; padding is never seen.

    `ties` says who gets the derivative when several cells are largest: the `"first"` in row-major
    order, `"all"` of them wholly, or all in equal shares (`"split"`).

    Parameters
    ----------
    ties : {"first", "all", "split"}, default "first"
        Who gets the derivative when several cells are largest.

    Raises
    ------
    ValueError
        For another word.

    Examples
    --------
    >>> import lunette as ln
    >>> ln.Pool((ln.Sliding(2),), ln.Max("split")).vjp([1.0, 1.0], [1.0])
    array([0.5, 0.5])
    """

    ties: str = "first"

    def __post_init__(self) -> None:
        object.__setattr__(self, "ties", choice(self.ties, "ties", TIES))


@checked
@dataclass(frozen=True, slots=True)
class Min(Reduction):
    """The smallest cell: `−max(−x)`, with the padding, the NaN and the `ties` of `Max`.

    Parameters
    ----------
    ties : {"first", "all", "split"}, default "first"
        Who gets the derivative when several cells are smallest.

    Raises
    ------
    ValueError
        For another word.

    Examples
    --------
    >>> import lunette as ln
    >>> ln.Pool((ln.Global(),), ln.Min())([3.0, 1.0, 2.0])
    array([1.])
    """

    ties: str = "first"

    def __post_init__(self) -> None:
        object.__setattr__(self, "ties", choice(self.ties, "ties", TIES))


@checked
@dataclass(frozen=True, slots=True)
class Mode(Reduction):
    """The most frequent value of an integer array or of bools; padding is never seen.

    Of values that are equally frequent, `ties` takes the `"smallest"`, or the `"first"` in row-major
    order. If `sparse`, zeros have no vote unless the window holds nothing else. It has no derivative.

    Parameters
    ----------
    ties : {"smallest", "first"}, default "smallest"
        Which of equally frequent values is taken.
    sparse : bool, default False
        Let zeros have no vote.

    Raises
    ------
    ValueError, TypeError
        For another word, or a `sparse` that is no bool.

    Examples
    --------
    >>> import lunette as ln
    >>> ln.Pool((ln.Global(),), ln.Mode(sparse=True))([0, 0, 7])
    array([7])
    """

    ties: str = "smallest"
    sparse: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "ties", choice(self.ties, "ties", MODE_TIES))
        flag(self.sparse, "sparse")


@checked
@dataclass(frozen=True, slots=True)
class Mean(Reduction):
    """The sum of the cells over the number counted, or over `divisor_override`.

    Parameters
    ----------
    count_include_pad : bool, default True
        Count padding, as zeros.
    divisor_override : int, optional
        Divide by this in place of the number of cells counted.

    Raises
    ------
    ValueError, TypeError
        For a divisor below 1, or a `count_include_pad` that is no bool.

    Examples
    --------
    >>> import lunette as ln
    >>> ln.Pool((ln.Sliding(2, padding=1),), ln.Mean(count_include_pad=False))([2.0, 4.0])
    array([2., 4.])
    """

    count_include_pad: bool = True
    divisor_override: int | None = None

    def __post_init__(self) -> None:
        flag(self.count_include_pad, "count_include_pad")
        if self.divisor_override is not None:
            divisor = size(self.divisor_override, "divisor_override", 1)
            object.__setattr__(self, "divisor_override", divisor)


@checked
@dataclass(frozen=True, slots=True)
class RoundedMean(Reduction):
    """The mean in the dtype of the array: of integers exact, then rounded half to even.

    Parameters
    ----------
    count_include_pad : bool, default True
        Count padding, as zeros.

    Raises
    ------
    TypeError
        For a `count_include_pad` that is no bool.

    Examples
    --------
    >>> import numpy as np
    >>> import lunette as ln
    >>> ln.Pool((ln.Global(),), ln.RoundedMean())(np.array([1, 2], np.uint8))
    array([2], dtype=uint8)
    """

    count_include_pad: bool = True

    def __post_init__(self) -> None:
        flag(self.count_include_pad, "count_include_pad")


@checked
@dataclass(frozen=True, slots=True)
class SmoothMax(Reduction):
    """`(1/beta) log Σ exp(beta·x)`: above the max for beta > 0, below the min for beta < 0.

    Parameters
    ----------
    beta : float
        How sharp: finite and not zero; below zero it is a smooth min.
    count_include_pad : bool, default True
        Count padding, as zeros.

    Raises
    ------
    ValueError, TypeError
        For a beta that is zero, infinite or no number.

    Examples
    --------
    >>> import lunette as ln
    >>> ln.Pool((ln.Global(),), ln.SmoothMax(50.0))([1.0, 3.0]).round(6)
    array([3.])
    """

    beta: float
    count_include_pad: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "beta", _beta(self.beta))
        flag(self.count_include_pad, "count_include_pad")


def _beta(value: Any) -> float:
    """A finite non-zero real, as a float."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"beta={shown(value)}: expected a real number, got {type(value).__name__}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    except Exception as error:  # a foreign __float__ may raise anything
        raise TypeError(f"beta={shown(value)}: expected a real number") from error
    if not math.isfinite(number) or number == 0:
        raise ValueError(f"beta={shown(value)}: expected a finite number other than zero")
    return number
