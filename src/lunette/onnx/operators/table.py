"""The table of operators; each module of this folder adds its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["OPERATORS", "operator"]

OPERATORS: dict[str, Callable[..., Any]] = {}
"""Name → `(recorder, step, *values)`, None for an input that is left out; returns one value."""


def operator(*names: str) -> Callable[[Any], Any]:
    """Enter a function under these names."""

    def enter(function: Any) -> Any:
        for name in names:
            OPERATORS[name] = function
        return function

    return enter
