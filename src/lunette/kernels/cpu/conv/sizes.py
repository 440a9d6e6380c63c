"""Sizes of the blocks of a convolution, by the processor alone: known before anything is compiled."""

from __future__ import annotations

from lunette.kernels.cpu.jit.processor import abilities, is_arm

__all__ = [
    "BLOCKS",
    "COLUMNS",
    "DOT_ROWS",
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


VECTOR_BYTES, FUSED = abilities().vector_bytes, abilities().fused
"""Bytes of a vector, and whether a·b + c is one instruction."""
SUMS = 24 if VECTOR_BYTES == 64 or is_arm() else 12
"""Sums that fit in the registers: AVX-512 and NEON have 32, others 16."""
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
DOT_ROWS = SUMS // (TAPS + 1)
"""Taps and output channels that `dots` sums at a time."""


def height(vectors: int) -> int:
    """Taps of the blocks of `outer` that do most of the work on so many vectors of channels."""
    return ROWS_4 if vectors >= 4 else ROWS_2 if vectors >= 2 else ROWS_1
