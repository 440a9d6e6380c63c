"""Which piece of a result each unit of a call makes, for results that go past the caches."""

from __future__ import annotations

import ctypes
from math import prod
from typing import Any

import numpy as np

__all__ = ["Pieces"]

# A job: the kernel's address, its three arrays, its table and flags; units and elements of an item,
# where a unit's elements begin, units that share the stage, bytes of an element of arrays 1 and 2
# (0: no result), and the stage's bytes for each of the two.
KERNEL, OPERANDS, TABLE, FLAGS = 0, 1, 4, 5
UNITS, ITEM, EDGES, BATCH, SIZES, ROOM = 6, 7, 8, 9, 10, 12
JOB = 13

LARGE = 8 << 20
"""Bytes of a result from which it goes past the caches: it would not stay there anyway."""

STAGE, MOST_STAGE = 16 << 10, 256 << 10
"""Bytes of results that units leave before they are poured out, where a unit has no more itself: as
a rule, and where a kernel prepares long rows at each call."""

SPARE = 256
"""Bytes of the stage past each of its two results: for their place in a line, and the last vector."""


class Pieces:
    """The pieces of a result, in the order of units, which follow each other in memory.

    `edges` has the first element of each unit of an item, and the end. `sizes` are the bytes of an
    element of arrays 1 and 2, 0 for one that is no result. `stage` is the bytes to fill.
    """

    def __init__(self, edges: Any, sizes: tuple[int, int], stage: int) -> None:
        self.edges = np.ascontiguousarray(edges, np.int64)
        most = int(np.diff(self.edges).max(initial=1)) * max(sizes)
        batch = max(1, stage // most)
        self.room = -(-(batch * most + SPARE) // 64) * 64
        at = self.edges.__array_interface__["data"][0]
        self.known = (len(self.edges) - 1, int(self.edges[-1]), at, batch, *sizes, self.room)

    @classmethod
    def of(
        cls, edges: Any, shape: tuple[int, ...], sizes: tuple[int, int], prepared: int
    ) -> Pieces | None:
        """The pieces of a result of this shape; None where it is small, or units interleave.

        `prepared` is the cells that a kernel prepares at each call, which is now one of many.
        """
        stage = max(STAGE, 4 * prepared * max(sizes))
        if edges is None or prod(shape) * max(sizes) < LARGE or stage > MOST_STAGE:
            return None
        return cls(edges, sizes, stage)

    @property
    def stage(self) -> int:
        """Bytes of memory near the processor that the pieces need."""
        return 2 * self.room

    def job(self, kernel: Any, operands: tuple[int, int, int], table: int, flags: int) -> Any:
        """What the streaming kernel reads: an array of int64."""
        at = ctypes.cast(kernel, ctypes.c_void_p).value
        return np.array((at, *operands, table, flags, *self.known), np.int64)
