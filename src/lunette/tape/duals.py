"""Arrays with a tangent: run a rule's `vjp` on them and its directional derivative comes out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["DualArray"]


class DualArray:
    """An array and its tangent of the same shape; `None` is a tangent of zeros.

    Unlike `lunette.spec.Dual`, a number in an array, this is a pair of arrays: each keeps its own
    dtype and library, so kernels serve both.

    Parameters
    ----------
    primal : array
        The value.
    tangent : array, optional
        How it moves. Default: not at all.

    Examples
    --------
    >>> import numpy as np
    >>> from lunette.tape import DualArray
    >>> x = DualArray(np.array([3.0]), np.array([1.0]))
    >>> x * x
    DualArray(array([9.]), array([6.]))
    """

    __slots__ = ("primal", "tangent")

    def __init__(self, primal: Any, tangent: Any = None) -> None:
        self.primal, self.tangent = primal, tangent

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.primal.shape)

    @property
    def ndim(self) -> int:
        return len(self.primal.shape)

    @property
    def dtype(self) -> Any:
        return self.primal.dtype

    def __repr__(self) -> str:
        return f"DualArray({self.primal!r}, {self.tangent!r})"

    def map(self, linear: Callable[[Any], Any]) -> DualArray:
        """A linear function of the primal and of the tangent."""
        return DualArray(
            linear(self.primal), None if self.tangent is None else linear(self.tangent)
        )

    def __neg__(self) -> DualArray:
        return self.map(lambda a: -a)

    def __add__(self, other: Any) -> DualArray:
        a, da, b, db = *parts(self), *parts(other)
        return pair(a + b, plus(da, db))

    def __sub__(self, other: Any) -> DualArray:
        a, da, b, db = *parts(self), *parts(other)
        return pair(a - b, plus(da, None if db is None else -db))

    def __mul__(self, other: Any) -> DualArray:
        a, da, b, db = *parts(self), *parts(other)
        return pair(a * b, plus(times(da, b), times(db, a)))

    def __truediv__(self, other: Any) -> DualArray:
        a, da, b, db = *parts(self), *parts(other)
        quotient = a / b
        change = plus(da, None if db is None else -(quotient * db))
        return pair(quotient, None if change is None else change / b)

    def __radd__(self, other: Any) -> DualArray:
        return DualArray(other).__add__(self)

    def __rsub__(self, other: Any) -> DualArray:
        return DualArray(other).__sub__(self)

    def __rmul__(self, other: Any) -> DualArray:
        return DualArray(other).__mul__(self)

    def __rtruediv__(self, other: Any) -> DualArray:
        return DualArray(other).__truediv__(self)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        """NumPy's arithmetic, and its functions that this package can differentiate."""
        from lunette.tape import functions

        name = _OPERATORS.get(ufunc.__name__)
        if method == "__call__" and not kwargs:
            if name is not None:
                first, *rest = inputs
                if not isinstance(first, DualArray):
                    first = DualArray(first)
                return getattr(first, name)(*rest)
            if ufunc.__name__ in ("exp", "log", "tanh"):
                return getattr(functions, ufunc.__name__)(inputs[0])
        raise TypeError(
            f"np.{ufunc.__name__}: its derivative is not known here, so this vjp has no "
            "Hessian-vector product; write the rule with operators and lunette.tape.functions"
        )


_OPERATORS = {
    "negative": "__neg__",
    "add": "__add__",
    "subtract": "__sub__",
    "multiply": "__mul__",
    "divide": "__truediv__",
}


def parts(x: Any) -> tuple[Any, Any]:
    """(primal, tangent) of anything."""
    return (x.primal, x.tangent) if isinstance(x, DualArray) else (x, None)


def pair(primal: Any, tangent: Any) -> DualArray:
    """A dual whose tangent is stretched to the primal's shape where broadcasting asks for it."""
    from lunette.tape.functions import array, broadcast_to

    primal = array(primal)
    return DualArray(primal, None if tangent is None else broadcast_to(tangent, primal.shape))


def plus(a: Any, b: Any) -> Any:
    """The sum of two tangents, either of which may be None."""
    if a is None:
        return b
    return a if b is None else a + b


def times(tangent: Any, factor: Any) -> Any:
    """A tangent, which may be None, times an array."""
    return None if tangent is None else tangent * factor
