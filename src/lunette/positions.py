"""Flat positions of an array as indices on its axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

__all__ = ["unravel"]


def unravel(flat: Any, shape: Sequence[int]) -> tuple[Any, ...]:
    """Flat positions in an array of this shape, of any shape themselves, as one index for each axis; none for no axis.

    `np.unravel_index` refuses arrays where there is no axis. And it has been wrong for long arrays of positions that are
    not flat: NumPy 2.4.6 repeats places of an array of shape (n, 1) past 8192.
    """
    if np.ndim(flat) == 0:
        return tuple(map(int, np.unravel_index(flat, shape)))
    if not shape:
        return ()
    positions = np.asarray(flat)
    return tuple(p.reshape(positions.shape) for p in np.unravel_index(positions.ravel(), shape))
