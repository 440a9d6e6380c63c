"""How levels are cut: by what factor each axis of each level, and how many levels there are."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from lunette.arguments import listed, shown
from lunette.regions import Sliding
from lunette.scale.axes import SPACE
from lunette.scale.errors import ScaleError
from lunette.scale.plan import Step
from lunette.scale.stores import Source

__all__ = ["factors_of", "parse_factors", "steps_of"]

ALIKE = 2**0.5
"""Sizes of cells whose ratio is less are as near to each other as halving can bring them."""

MOST_LEVELS = 62

Factors = tuple[tuple[int, ...], ...]


def parse_factors(given: Any) -> list[dict[str, int] | int]:
    """`z=1,y=2,x=2`, one number for all axes of space, a dict, or several of them for level after level."""
    if isinstance(given, str):
        return [_parsed(part) for part in given.split(";")]
    if isinstance(given, (list, tuple)):
        found = [_checked(g) for g in listed(given)]
        if not found:
            raise ScaleError("--factors (): expected one for each level, or one for all")
        return found
    return [_checked(given)]


def _parsed(text: str) -> dict[str, int] | int:
    text = text.strip()
    if text.isdecimal():
        return _checked(int(text))
    found = {}
    for part in text.split(","):
        match = re.fullmatch(r"\s*([^=\s]+)\s*=\s*(\d+)\s*", part)
        if not match or match.group(1) in found:
            raise ScaleError(
                f"--factors {text!r}: expected a factor for each axis, such as z=1,y=2,x=2"
            )
        found[match.group(1)] = int(match.group(2))
    return _checked(found)


def _checked(given: Any) -> dict[str, int] | int:
    values = list(given.values()) if isinstance(given, Mapping) else [given]
    if not all(isinstance(v, int) and not isinstance(v, bool) and v >= 1 for v in values):
        raise ScaleError(
            f"--factors {shown(given)}: expected integers of at least 1, such as z=1,y=2,x=2"
        )
    return dict(given) if isinstance(given, Mapping) else given


def factors_of(
    source: Source, levels: int | None, given: Any, chunks: Sequence[int], letters: str = SPACE
) -> Factors:
    """The factor of every axis, for every level. `letters` are the axes that the output may shrink.

    Where none are given, axes of space are halved; where the input knows the size of its cells, those
    that are smallest, until cells are about cubes. Where `levels` is None, until the longest axis that
    is cut fits into a chunk.
    """
    asked = None if given is None else parse_factors(given)
    if isinstance(given, (list, tuple, str)) and asked is not None and len(asked) > 1:
        levels = levels or len(asked)
    shape, sizes = list(source.shape), list(source.scale)
    found: list[tuple[int, ...]] = []
    while levels is None or len(found) < levels:
        if asked is None:
            factors = _halving(source, shape, sizes, letters)
        else:
            factors = _asked(source, asked[min(len(found), len(asked) - 1)], shape, letters)
        cut = [i for i, f in enumerate(factors) if f > 1]
        if not cut:
            if levels is None and found:
                break
            what = f"--levels {shown(levels)}: " if levels else ""
            named = ",".join(source.names)
            raise ScaleError(
                f"{what}level {len(found) + 1} would be empty, for nothing of {tuple(shape)}, axes "
                f"{named}, is left to halve; expected at most {len(found)}, or other --factors or --axes"
            )
        found.append(factors)
        shape = [-(-n // f) for n, f in zip(shape, factors, strict=True)]
        sizes = [s * f for s, f in zip(sizes, factors, strict=True)]
        fits = all(shape[i] <= chunks[i] for i, a in enumerate(source.axes) if a in letters)
        if levels is None and (fits or len(found) == MOST_LEVELS):
            break
    return tuple(found)


def _halving(source: Source, shape: list[int], sizes: list[float], letters: str) -> tuple[int, ...]:
    """Two where cells are smallest, or everywhere if sizes are not known."""
    free = [i for i, a in enumerate(source.axes) if a in letters and shape[i] > 1]
    known = free and all(source.units[i] == source.units[free[0]] for i in free)
    least = min((abs(sizes[i]) for i in free), default=1.0)
    chosen = [i for i in free if not known or abs(sizes[i]) < ALIKE * least]
    return tuple(2 if i in chosen else 1 for i in range(len(shape)))


def _asked(
    source: Source, factors: dict[str, int] | int, shape: list[int], letters: str
) -> tuple[int, ...]:
    """Factors by letter or name; an axis that is shorter than its factor is left alone at length 1."""
    if isinstance(factors, int):
        factors = {a: factors for a in source.axes if a in letters}
    found = []
    left = dict(factors)
    for letter, name, n in zip(source.axes, source.names, shape, strict=True):
        factor = left.pop(name, None)
        factor = left.pop(letter, 1) if factor is None else factor
        if factor > 1 and letter in SPACE and letter not in letters:
            raise ScaleError(
                f"--factors {name}={shown(factor)}: sub-images of a TIFF keep every plane; expected 1"
            )
        if n > 1 and factor > n:
            raise ScaleError(
                f"--factors {name}={shown(factor)}: axis {name} has {n} positions left of {source.shape}"
            )
        found.append(factor if n > 1 else 1)
    if left:
        raise ScaleError(
            f"--factors {','.join(left)}: IN has axes {','.join(source.names)}; expected some of them"
        )
    return tuple(found)


def steps_of(factors: Factors, shape: tuple[int, ...], operator: str) -> tuple[Step, ...]:
    """The pooling of every level; the last window of an axis may be cut short by the edge."""
    steps = []
    for row in factors:
        regions = tuple(Sliding(1 if operator == "stride" else f, f, ceil_mode=True) for f in row)
        steps.append(Step(regions, shape))
        shape = steps[-1].out_shape
    return tuple(steps)
