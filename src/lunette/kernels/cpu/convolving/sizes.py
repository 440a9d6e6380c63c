"""Sizes of the blocks of a convolution, by the processor alone: known before anything is compiled."""

from __future__ import annotations

from functools import cache

import llvmlite.binding

__all__ = [
    "BLOCKS",
    "COLUMNS",
    "FUSED",
    "POSITIONS",
    "ROWS",
    "ROWS_1",
    "ROWS_2",
    "ROWS_4",
    "ROWS_MOST",
    "SUMS",
    "TAPS",
    "VECTOR_BYTES",
    "height",
]


@cache
def _processor() -> tuple[int, int, bool]:
    """Bytes of a vector, sums that fit in the registers, and whether a·b + c is one instruction."""
    features = llvmlite.binding.get_host_cpu_features()
    if features.get("avx512f"):
        return 64, 24, True
    if features.get("avx"):
        return 32, 12, bool(features.get("fma"))
    if features.get("neon"):
        return 16, 24, True
    return 16, 12, False


VECTOR_BYTES, SUMS, FUSED = _processor()

COLUMNS = 3
ROWS = SUMS // COLUMNS
"""A block of `copied`: ROWS output channels × COLUMNS vectors of positions."""
BLOCKS = ((ROWS, COLUMNS), (ROWS // 2, 2 * COLUMNS), (1, 12))
"""Blocks of `in_place`: the fewer the channels, the longer."""
POSITIONS = 128
"""Positions of the rows that `sliding` sums while a chunk of the weights is in the first-level cache."""
ROWS_4, ROWS_2, ROWS_1 = SUMS // 4, SUMS // 2, min(12, SUMS)
"""Taps of a block of `outer`, by its vectors of channels."""
ROWS_MOST = max(ROWS_4, ROWS_2, ROWS_1)
TAPS = 5
"""Taps that `dots` sums at a time."""


def height(vectors: int) -> int:
    """Taps of the blocks of `outer` that do most of the work on so many vectors of channels."""
    return ROWS_4 if vectors >= 4 else ROWS_2 if vectors >= 2 else ROWS_1
