"""Checks of plain arguments: every message names the argument, its value, the axis and the remedy."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

__all__ = ["choice", "flag", "shape_tuple", "size", "sizes", "tuple_of_sizes"]


def size(value: Any, name: str, minimum: int, axis: int | None = None) -> int:
    """`value` as a Python int of at least `minimum`; bools and floats are not sizes."""
    where = "" if axis is None else f" on axis {axis}"
    if isinstance(value, bool) or type(value).__name__ in ("bool_", "bool"):
        raise TypeError(f"{name}={value!r}{where}: expected an integer, not a bool")
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(
            f"{name}={value!r}{where}: expected an integer, got {type(value).__name__}"
        ) from None
    if number < minimum:
        raise ValueError(f"{name}={number}{where}: expected an integer of at least {minimum}")
    return number


def tuple_of_sizes(value: Any, name: str, minimum: int = 1) -> tuple[int, ...]:
    """A tuple with one size per pooled axis; its length says how many axes are pooled."""
    if not isinstance(value, (tuple, list)):
        if isinstance(value, int) and not isinstance(value, bool):
            raise TypeError(
                f"{name}={value!r}: expected a tuple, one size per pooled axis; "
                f"write {name}=({value},) for one axis or {name}=({value}, {value}) for two"
            )
        raise TypeError(f"{name}={value!r}: expected a tuple of integers, one per pooled axis")
    if not value:
        raise ValueError(f"{name}=(): expected at least one pooled axis")
    return tuple(size(v, name, minimum, axis) for axis, v in enumerate(value))


def sizes(value: Any, ndim: int, name: str, minimum: int) -> tuple[int, ...]:
    """An int for every axis, or one per axis."""
    if isinstance(value, (tuple, list)):
        if len(value) != ndim:
            raise ValueError(
                f"{name}={value!r}: expected an integer or {ndim} of them, "
                f"one per pooled axis, got {len(value)}"
            )
        return tuple(size(v, name, minimum, axis) for axis, v in enumerate(value))
    return (size(value, name, minimum),) * ndim


def flag(value: Any, name: str) -> bool:
    """A bool and nothing that merely looks like one."""
    if not isinstance(value, bool):
        raise TypeError(f"{name}={value!r}: expected True or False")
    return value


def choice(value: Any, name: str, allowed: Sequence[str]) -> str:
    """One of a few words."""
    if not isinstance(value, str) or value not in allowed:
        raise ValueError(f"{name}={value!r}: expected one of {', '.join(map(repr, allowed))}")
    return value


def shape_tuple(value: Any, name: str = "shape") -> tuple[int, ...]:
    """An array's shape: a tuple of non-negative sizes."""
    if not isinstance(value, (tuple, list)):
        raise TypeError(f"{name}={value!r}: expected a tuple of integers")
    return tuple(size(v, name, 0, axis) for axis, v in enumerate(value))
