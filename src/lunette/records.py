"""Frozen records that are checked however they are made: by a call, a copy or a pickle."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, TypeVar

__all__ = ["checked", "restore", "state"]

Record = TypeVar("Record")


def state(record: Any) -> dict[str, Any]:
    """The fields alone: what the checks made of them is made again."""
    return {field.name: getattr(record, field.name) for field in fields(record)}


def restore(record: Any, values: Any) -> None:
    """Set the fields of a record that is not made yet, and check them as its constructor does."""
    name, names = type(record).__name__, [field.name for field in fields(record)]
    if isinstance(values, list) and len(values) == len(names):  # as the standard library writes it
        values = dict(zip(names, values, strict=True))
    if not isinstance(values, dict) or not values.keys() >= set(names):
        raise ValueError(f"{name}: expected a state with the fields {', '.join(names)}")
    for field in names:
        object.__setattr__(record, field, values[field])
    if hasattr(record, "__post_init__"):
        record.__post_init__()


def checked(kind: type[Record]) -> type[Record]:
    """Have copies and pickles of a dataclass run its checks; the standard ones set fields unseen."""
    kind.__getstate__ = state  # type: ignore[method-assign, assignment]
    kind.__setstate__ = restore  # type: ignore[attr-defined]
    return kind
