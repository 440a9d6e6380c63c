"""The one way in for arrays: a plain NumPy array in native byte order, or a TypeError.

What NumPy would drop without a word is refused here: masks, units, and the meaning of any subclass that
computes in a way of its own. NumPy's own subclasses (`memmap`, `matrix`, `recarray`) become plain arrays of
the same shape and memory.
"""

from __future__ import annotations

from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any

import numpy as np

from lunette.arguments import AXES, listed

if TYPE_CHECKING:
    from lunette.ops.base import Op

__all__ = ["array", "arrays", "check_plain", "names", "native", "result"]

Array = np.ndarray[Any, Any]

PLAIN = (bool, int, float, complex, str, bytes, np.ndarray, np.generic)
"""Types whose values carry nothing beside themselves; subclasses may."""


def arrays(op: Op, operands: tuple[Any, ...], role: str = "") -> tuple[Array, ...]:
    """The operands of an op as plain arrays; errors call each by its name."""
    if len(operands) == 1 and type(operands[0]) is np.ndarray and operands[0].dtype.isnative:
        return operands
    return tuple(
        array(x, f"{role}{name}") for x, name in zip(operands, names(op, operands), strict=True)
    )


def names(op: Op, operands: tuple[Any, ...]) -> list[str]:
    """What the op calls each of these operands."""
    return [
        op.operand_names[i] if i < len(op.operand_names) else f"operand {i}"
        for i in range(len(operands))
    ]


def array(x: Any, name: str) -> Array:
    """`x` as a plain array in native byte order; a view where its memory already is one."""
    if type(x) is np.ndarray:
        return native(x)
    check_plain(x, name)
    if isinstance(x, (list, tuple)):
        x = _nested(x)
    try:
        found = np.asanyarray(x)
    except MemoryError:
        raise
    except Exception as error:
        kind = ValueError if isinstance(error, ValueError) else TypeError
        raise kind(f"{name} of type {_type(x)} cannot be read as an array: {error}") from error
    if type(found) is not np.ndarray:
        check_plain(found, name)  # what x made of itself
        found = np.asarray(found)
    held = found.dtype.kind == "O" and not found.ndim and not isinstance(x, np.ndarray)
    if held and (hasattr(x, "__iter__") or hasattr(x, "shape")):  # a dict, a set, a sparse matrix
        raise TypeError(f"{name} is a {_type(x)}: expected an array, or lists of numbers")
    return native(found)


def result(x: Any, name: str) -> Array:
    """What another implementation gave, as it is but for the class: a mask or units are no plain result."""
    check_plain(x, name)
    found = np.asanyarray(x)
    check_plain(found, name)
    return np.asarray(found)


def native(x: Array) -> Array:
    """The array in the byte order of this machine."""
    return x if x.dtype.isnative else x.astype(x.dtype.newbyteorder("="))


def _nested(x: Any) -> list[Any]:
    """Lists of the same elements: a subclass may iterate in a way of its own, without an end."""
    return [_nested(part) if isinstance(part, (list, tuple)) else part for part in listed(x)]


def check_plain(x: Any, name: str, level: int = 1) -> None:
    """Refuse an array, or a list that holds one, whose mask or units NumPy would drop."""
    if type(x) in PLAIN:
        return
    if isinstance(x, (list, tuple)):
        for part in listed(x):
            if type(part) not in PLAIN:
                if level == AXES:
                    raise TypeError(f"{name} is nested in more than {AXES} lists")
                check_plain(part, name, level + 1)
        return
    within = {"dask": "_meta", "xarray": "data"}.get(_library(x))
    if within is not None:  # these hold arrays of any kind, and say of which
        check_plain(getattr(x, within, None), name)
        return
    if isinstance(x, np.ma.MaskedArray):
        raise TypeError(
            f"{name} is a masked array; fill the masked cells first, with x.filled(value)"
        )
    unit = _unit(x)
    if unit is not None:
        raise TypeError(
            f"{name} is a {_type(x)} with units {str(unit)!r}, which would be lost; "
            f"pass its numbers, {_numbers_of(x)}, and put the units back on the result"
        )
    if isinstance(x, np.ndarray) and _computes_its_own_way(type(x)):
        raise TypeError(
            f"{name} is a {_type(x)}, an array that computes in its own way; "
            f"pass its numbers, {_numbers_of(x)}"
        )


def _unit(x: Any) -> Any:
    """The units of an array: of astropy, unyt, pint and those that name them alike; None without."""
    if _library(x) == "numpy":
        return None
    for attribute in ("unit", "units"):
        # Of the class or the object itself: a column of a table may have any name.
        if hasattr(type(x), attribute) or attribute in getattr(x, "__dict__", ()):
            unit = getattr(x, attribute, None)
            if unit is not None and not isinstance(unit, (FunctionType, MethodType, type)):
                return unit
    return None


def _computes_its_own_way(kind: type) -> bool:
    """Whether a subclass of NumPy's arrays replaces NumPy's functions by its own."""
    return any(
        getattr(kind, hook) is not getattr(np.ndarray, hook)
        for hook in ("__array_ufunc__", "__array_function__")
    )


def _numbers_of(x: Any) -> str:
    for attribute in ("magnitude", "value"):
        if hasattr(x, attribute):
            return f"with .{attribute}"
    return "with numpy.array"


def _type(x: Any) -> str:
    name, library = type(x).__name__, _library(x)
    return name if library in ("builtins", "numpy") else f"{library}.{name}"


def _library(x: Any) -> str:
    return type(x).__module__.partition(".")[0]
