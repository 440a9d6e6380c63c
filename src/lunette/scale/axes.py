"""Which axis is which: names of a file as letters, and what a pyramid does with each.

A letter is t, c, z, y or x, or a digit for an axis that is none of them: it keeps its length.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from lunette.scale.errors import ScaleError

__all__ = ["SPACE", "asked", "by_number", "check_names", "letters_of", "ngff_order", "sentence"]

SPACE = "zyx"
KNOWN = {
    "t": ("t", "time"),
    "c": ("c", "channel", "channels", "band", "bands"),
    "z": ("z",),
    "y": ("y", "lat", "latitude", "northing"),
    "x": ("x", "lon", "longitude", "easting"),
}
LETTERS = {name: letter for letter, names in KNOWN.items() for name in names}

BY_NUMBER = {1: "x", 2: "yx", 3: "zyx", 4: "czyx", 5: "tczyx"}

LONGEST = 80
"""Characters of a name."""

Names = tuple[str, ...]


def by_number(rank: int) -> str:
    """The letters of axes that have no names."""
    return BY_NUMBER.get(rank, "")


def check_names(found: Any, rank: int, where: str) -> tuple[str | None, ...]:
    """Names as a file has them; None for those that it, or a library that made some up, left out."""
    good = isinstance(found, (list, tuple)) and len(found) == rank
    if not good or not all(
        n is None or (isinstance(n, str) and 0 < len(n) <= LONGEST and n.isprintable())
        for n in found
    ):
        raise ScaleError(
            f"{where} {str(found)[:LONGEST]!r}: expected {rank} names, one for each axis; --axes "
            "overrides"
        )
    return tuple(None if n is None or re.fullmatch(r"dim_\d+", n) else n for n in found)


def letters_of(names: Sequence[str | None], types: Sequence[str | None] = ()) -> str:
    """A letter for each name. Where the file says a type, it decides what is space."""
    types = [*types, *(None,) * (len(names) - len(types))]
    letters: list[str] = []
    for name, kind in zip(names, types, strict=True):
        letter = LETTERS.get((name or "").casefold(), "")
        if (kind == "space" and letter not in SPACE) or (
            kind not in (None, "space") and letter in SPACE
        ):
            letter = ""
        if kind in ("time", "channel") and not letter:
            letter = kind[0].replace("h", "c")
        letters.append("" if letter in letters else letter)
    free = [a for a in "xyz" if a not in letters]
    for i in reversed(range(len(letters))):  # space by other names: the last is x
        if not letters[i] and types[i] == "space" and free:
            letters[i] = free.pop(0)
    return "".join(letter or str(i % 10) for i, letter in enumerate(letters))


def asked(text: str, shape: tuple[int, ...]) -> tuple[str, Names]:
    """Letters and names of `--axes`: letters in a row, or names with commas."""
    rank = len(shape)
    names = tuple(n.strip() for n in text.split(",")) if "," in text else tuple(text)
    plain = "," in text or set(text) <= set("tczyx")
    if len(names) != rank or len(set(names)) != rank or not all(names) or not plain:
        raise ScaleError(
            f"--axes {text!r}: expected {rank} different letters of t, c, z, y, x, one for each "
            f"axis of {shape}, or as many names with commas"
        )
    return letters_of(names), names


def ngff_order(letters: str) -> str:
    """The order that OME-NGFF wants: time, then channels or another kind of axis, then space."""
    return "".join(sorted(letters, key=lambda a: "t1zyx".find(a if a in "tzyx" else "1")))


def sentence(letters: str, names: Names, factors: Sequence[int], told: str) -> str:
    """What was taken for what, and what is done with it."""
    parts = []
    for letter, name, factor in zip(letters, names, factors, strict=True):
        taken = name if name == letter or letter.isdigit() else f"{name} as {letter}"
        parts.append(f"{taken} ÷{factor}" if factor > 1 else f"{taken} kept")
    return f"axes: {', '.join(parts)} ({told}; --axes overrides)"
