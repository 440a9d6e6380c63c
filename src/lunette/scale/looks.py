"""Whether integers look like labels, whose mean would be the number of nothing."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from lunette.scale.axes import SPACE
from lunette.scale.errors import ScaleError
from lunette.scale.stores import Source

__all__ = ["looks_like_labels", "warning"]

CELLS = 1 << 20
"""Cells of a sample, about."""

FLAT = 0.7
"""Of neighbours that are no background, the share that has the same value, in areas of labels."""

SAMPLES = (0.5, 0.25, 0.75)
"""Where samples are taken, along every axis."""


def looks_like_labels(source: Source) -> bool:
    """What its metadata says; else whether a few values fill large areas that end in jumps."""
    if source.kept.labels:
        return True
    if np.dtype(source.dtype).kind not in "iu":
        return False
    for share in SAMPLES:
        try:
            verdict = _flat_areas(source.read(_corner(source, share)), source.axes)
        except ScaleError:  # a chunk that cannot be read is named when it is needed
            return False
        if verdict is not None:
            return verdict
    return False


def _corner(source: Source, share: float) -> tuple[tuple[int, int], ...]:
    """About as many cells as asked, around a place: all of space, and one of the rest."""
    spatial = [i for i, a in enumerate(source.axes) if a in SPACE]
    side = int(CELLS ** (1 / max(1, len(spatial))))
    ranges = []
    for i, n in enumerate(source.shape):
        length = min(n, side) if i in spatial else 1
        start = min(int(n * share), n - length)
        ranges.append((start, start + length))
    return tuple(ranges)


def _flat_areas(block: Any, letters: str) -> bool | None:
    """None where there is background alone."""
    spatial = [i for i, a in enumerate(letters) if a in SPACE and block.shape[i] > 1]
    if not spatial or prod(block.shape) < 64:
        return None
    values, counts = np.unique(block, return_counts=True)
    background = values[counts.argmax()]
    same = different = 0
    jumps = []
    for axis in spatial:
        a = np.moveaxis(block, axis, 0)
        a, b = a[:-1], a[1:]
        counted = (a != background) | (b != background)
        unequal = (a != b) & counted
        different += int(unequal.sum())
        same += int(counted.sum() - unequal.sum())
        jumps.append(np.maximum(a[unequal], b[unequal]) - np.minimum(a[unequal], b[unequal]))
    if same + different < 64:
        return None
    steps = np.concatenate(jumps)
    sharp = not steps.size or len(values) <= 2 or np.median(steps) > 1
    return same >= FLAT * (same + different) and bool(sharp)


def warning(place: str, operator: str) -> str:
    """What is said of a mean of labels that nobody asked for."""
    return (
        f"warning: the integers of {place} look like labels, and a {operator} mixes their numbers; "
        f"--op mode keeps them, --op {operator} says that this is meant"
    )
