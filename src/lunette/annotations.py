"""The types of arguments, by name: what the functions and ops take for their sizes and words."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Literal, TypeAlias, TypeVar

import numpy as np

__all__ = [
    "Axes",
    "Bins",
    "Given",
    "Kernel",
    "NamedBins",
    "Numbers",
    "Padding",
    "Plain",
    "Sizes",
    "Ties",
    "Windows",
]

Given = TypeVar("Given")
"""An array of some library: what goes in comes out."""

Kernel: TypeAlias = tuple[int, ...] | list[int]
"""One length per pooled axis."""

Windows: TypeAlias = Kernel | Mapping[Hashable, int]
"""The same, or lengths by dimension of an xarray DataArray."""

Bins: TypeAlias = tuple[int | None, ...] | list[int] | list[int | None]
"""How many bins each axis is cut into, None to keep it."""

NamedBins: TypeAlias = Bins | Mapping[Hashable, int | None]
"""The same, or numbers by dimension of an xarray DataArray."""

Plain: TypeAlias = float | Sequence[Any] | np.ndarray[Any, Any]
"""What becomes an array of NumPy's."""

Numbers: TypeAlias = float | list[Any] | np.ndarray[Any, Any]
"""The same where a tuple is a tuple of operands."""

Sizes: TypeAlias = int | tuple[int, ...] | list[int]
"""A number for every pooled axis, or one per axis."""

Padding: TypeAlias = (
    Sizes
    | tuple[tuple[int, int], ...]
    | list[tuple[int, int]]
    | tuple[int | tuple[int, int], ...]
    | Literal["valid", "same"]
)
"""Cells around the input: a number, one per axis, a (before, after) pair per axis, or a word."""

Axes: TypeAlias = int | tuple[int, ...] | list[int] | None
"""Which axes are pooled; None for the last."""

Ties: TypeAlias = Literal["first", "all", "split"]
"""Which of equal cells gets the gradient."""
