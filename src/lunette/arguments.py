"""Checks of plain arguments: every message names the argument, its value, the axis and the remedy."""

from __future__ import annotations

import operator
import reprlib
from collections.abc import Sequence
from typing import Any

__all__ = [
    "AXES",
    "LARGEST",
    "choice",
    "flag",
    "listed",
    "shape_tuple",
    "shown",
    "size",
    "sizes",
    "tuple_of_sizes",
]

AXES = 64
"""Axes that an array has at most: NumPy's own bound."""

LARGEST = 1 << 100
"""Sizes are at most this: past any memory, and an op and its messages stay short."""


class _Short(reprlib.Repr):
    """Values as they are printed, but in few characters, and whatever their own printing does."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel, self.maxtuple, self.maxlist, self.maxstring, self.maxother = 3, 8, 8, 60, 60

    def repr_int(self, x: int, level: int) -> str:
        if x.bit_length() > 1 << 13:  # the digits of larger ones take long
            return f"{'−' * (x < 0)}2**{x.bit_length() - 1}…"
        text = int.__repr__(x)
        return text if len(text) <= 40 else f"{text[:20]}…({len(text)} digits)"

    def repr_instance(self, x: Any, level: int) -> str:
        try:
            text = " ".join(repr(x).split())
        except Exception:  # whatever a foreign __repr__ raises
            return f"<{type(x).__name__}>"
        return text if len(text) <= self.maxother else text[: self.maxother - 1] + "…"


_short = _Short()


def shown(value: Any) -> str:
    """A value for a message: its `repr`, shortened where that is long."""
    try:
        return _short.repr(value)
    except Exception:  # containers of hostile things
        return f"<{type(value).__name__}>"


def listed(value: tuple[Any, ...] | list[Any]) -> Sequence[Any]:
    """The items of a tuple or list; of a subclass those that it holds, whatever its methods say."""
    if type(value) is tuple or type(value) is list:
        return value
    base: Any = tuple if isinstance(value, tuple) else list
    items: Sequence[Any] = base.__getitem__(value, slice(None))
    return items


def size(value: Any, name: str, minimum: int, axis: int | None = None) -> int:
    """`value` as a Python int of at least `minimum`; bools and floats are not sizes."""
    if type(value) is int:
        number = value
    elif isinstance(value, bool) or type(value).__name__ in ("bool_", "bool"):
        raise TypeError(f"{name}={shown(value)}{_on(axis)}: expected an integer, not a bool")
    else:
        try:
            number = int(operator.index(value))
        except Exception as error:  # a foreign __index__ may raise anything
            raise TypeError(
                f"{name}={shown(value)}{_on(axis)}: expected an integer, got {type(value).__name__}"
            ) from (None if type(error) is TypeError else error)
    if number < minimum:
        raise ValueError(
            f"{name}={shown(number)}{_on(axis)}: expected an integer of at least {minimum}"
        )
    if number > LARGEST:
        raise ValueError(
            f"{name}={shown(number)}{_on(axis)}: expected an integer of at most 2**100"
        )
    return number


def _on(axis: int | None) -> str:
    return "" if axis is None else f" on axis {axis}"


def tuple_of_sizes(value: Any, name: str, minimum: int = 1) -> tuple[int, ...]:
    """A tuple with one size per pooled axis; its length says how many axes are pooled."""
    if not isinstance(value, (tuple, list)):
        if isinstance(value, int) and not isinstance(value, bool):
            text = shown(value)
            raise TypeError(
                f"{name}={text}: expected a tuple, one size per pooled axis; "
                f"write {name}=({text},) for one axis or {name}=({text}, {text}) for two"
            )
        raise TypeError(f"{name}={shown(value)}: expected a tuple of integers, one per pooled axis")
    items = listed(value)
    if not items:
        raise ValueError(f"{name}=(): expected at least one pooled axis")
    _check_axes(items, name)
    return tuple(size(v, name, minimum, axis) for axis, v in enumerate(items))


def _check_axes(items: Sequence[Any], name: str) -> None:
    if len(items) > AXES:
        raise ValueError(
            f"{name}={shown(items)}: expected at most {AXES} of them, for arrays have "
            f"at most {AXES} axes; got {len(items)}"
        )


def sizes(value: Any, ndim: int, name: str, minimum: int) -> tuple[int, ...]:
    """An int for every axis, or one per axis."""
    if isinstance(value, (tuple, list)):
        items = listed(value)
        if len(items) != ndim:
            raise ValueError(
                f"{name}={shown(items)}: expected an integer or {ndim} of them, "
                f"one per pooled axis, got {len(items)}"
            )
        return tuple(size(v, name, minimum, axis) for axis, v in enumerate(items))
    return (size(value, name, minimum),) * ndim


def flag(value: Any, name: str) -> bool:
    """A bool and nothing that merely looks like one."""
    if not isinstance(value, bool):
        raise TypeError(f"{name}={shown(value)}: expected True or False")
    return value


def choice(value: Any, name: str, allowed: Sequence[str]) -> str:
    """One of a few words."""
    word = str.__str__(value) if isinstance(value, str) else None
    if word is None or word not in allowed:
        raise ValueError(f"{name}={shown(value)}: expected one of {', '.join(map(repr, allowed))}")
    return word


def shape_tuple(value: Any, name: str = "shape") -> tuple[int, ...]:
    """An array's shape: a tuple of non-negative sizes."""
    if not isinstance(value, (tuple, list)):
        raise TypeError(f"{name}={shown(value)}: expected a tuple of integers")
    items = listed(value)
    _check_axes(items, name)
    return tuple(size(v, name, 0, axis) for axis, v in enumerate(items))
