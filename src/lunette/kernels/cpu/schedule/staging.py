"""Which piece of a result each unit of a call makes, for results that go past the caches."""

from __future__ import annotations

import ctypes
from math import prod
from typing import Any

import numpy as np

__all__ = ["Pieces"]

# A job: the kernel's address, its three arrays, its table and flags; units and elements of an item,
# where a unit's elements begin, units that share the stage, which array is the result, and the bytes
# of its elements.
KERNEL, ARRAYS, TABLE, FLAGS = 0, 1, 4, 5
UNITS, ITEM, EDGES, BATCH, RESULT, SIZE = range(6, 12)

LARGE = 8 << 20
"""Bytes of a result from which it goes past the caches; found by measurement."""

STAGE, MOST_STAGE = 16 << 10, 256 << 10
"""Bytes of results that units leave before they are poured out, where a unit has no more itself: as
a rule, and where a kernel prepares long rows at each call."""

SPARE = 128
"""Bytes of the stage past the results: for their place in a line, and for the last vector that is read there."""


class Pieces:
    """The pieces of a result, in the order of units, which follow each other in memory.

    `edges` has the first element of each unit of an item, and the end. The result is array 1 or 2
    of the kernel, with elements of `size` bytes. `stage` is the bytes to fill.
    """

    def __init__(self, edges: Any, array: int, size: int, stage: int) -> None:
        self.edges = np.ascontiguousarray(edges, np.int64)
        most = int(np.diff(self.edges).max(initial=1)) * size
        batch = max(1, stage // most)
        self.stage = batch * most + SPARE
        at = self.edges.__array_interface__["data"][0]
        self.known = (len(self.edges) - 1, int(self.edges[-1]), at, batch, array, size)

    @classmethod
    def of(
        cls, edges: Any, shape: tuple[int, ...], array: int, size: int, prepared: int
    ) -> Pieces | None:
        """The pieces of a result of this shape; None where it is not large.

        `prepared` is the cells that a kernel prepares at each call, which is now one of many.
        """
        stage = max(STAGE, 4 * prepared * size)
        if prod(shape) * size < LARGE or stage > MOST_STAGE:
            return None
        return cls(edges, array, size, stage)

    def job(self, kernel: Any, arrays: tuple[int, int, int], table: int, flags: int) -> Any:
        """What the streaming kernel reads: an array of int64."""
        at = ctypes.cast(kernel, ctypes.c_void_p).value
        return np.array((at, *arrays, table, flags, *self.known), np.int64)
