"""Sizes by which plans are made and kernels chosen: of vectors and lines, of tiles and slabs, and where one way gets quicker than another.

Where nothing else is said, they were found by measurement.
"""

from __future__ import annotations

__all__ = [
    "ARGMAX_CODES",
    "ARGMAX_DIRECT_MAX_TAPS",
    "BAND_BYTES",
    "BAND_CELLS",
    "CELLS_NEAR",
    "DIRECT_MAX_TAPS",
    "DIRECT_SUM_MAX_TAPS",
    "FOLDED_OUTPUTS",
    "HORIZONTAL_MIN_TAPS",
    "LEVELS",
    "LINE",
    "LOOKUP_BATCH",
    "MAX_TILE_ROWS",
    "MIN_TILES",
    "MOST_ROWS",
    "NARROW_MAX_COLUMNS",
    "NARROW_SCRATCH_BYTES",
    "NEAR",
    "PAGE",
    "ROW_CELLS",
    "ROW_REUSE_MAX",
    "SERIAL_MAX_CELLS",
    "SLAB_CELLS",
    "SLACK",
    "SMALL",
    "SORTED_STEPS",
    "SPREAD_CELLS",
    "SPREAD_CHANNELS",
    "TILE_CELLS",
]

SLAB_CELLS, SPREAD_CELLS, SPREAD_CHANNELS = 1 << 16, 1 << 12, 1 << 15
"""Cells that a unit of a gradient owns, where the first pooled axis can be cut that fine: as a rule,
of a mean, and of a mean with channels last."""

DIRECT_MAX_TAPS = 8
"""Cells of a window along one axis that are folded one by one; more are folded by doubling."""

HORIZONTAL_MIN_TAPS = 4
"""Cells along a row of windows that are never worth a fold of their own, at most."""

DIRECT_SUM_MAX_TAPS = 16
"""Cells of overlapping windows that are added one by one; more are added by doubling."""

ARGMAX_DIRECT_MAX_TAPS = 64
"""Cells of a window up to which neighbouring windows go cell by cell, side by side; winners, below which."""

MOST_ROWS, ROW_REUSE_MAX = 1 << 12, 9
"""Rows of a window that are folded as they are listed, and how often each row may be read for that."""

SLACK = 128
"""Cells past a row that a vector may read: two vectors of bytes."""

SORTED_STEPS = (3, 4, 5, 7)
"""Steps of which a vector is sorted out in registers, from as many loads; others are gathered lane by lane."""

LINE, PAGE = 64, 4096
"""Bytes of a line of memory, and of a page."""

BAND_CELLS = 1 << 11
"""Cells of a row whose windows are folded together, at most, where windows share little."""

BAND_BYTES = 2 * 8 * (BAND_CELLS + SLACK)
"""Bytes of scratch memory for two such rows."""

NARROW_MAX_COLUMNS = 256
"""Columns of windows that are added up for several items at once, at most."""

NARROW_SCRATCH_BYTES = LINE * (NARROW_MAX_COLUMNS + 2 * LINE)
"""Bytes of scratch memory for that: a row of each of as many items as a vector has lanes, and a block of these."""

LOOKUP_BATCH = 16
"""Winners that are found before their tangents are looked up: these may be anywhere, and are asked for meanwhile."""

ARGMAX_CODES = 256
"""Marks that a byte can be."""

MAX_TILE_ROWS = 16
"""Rows of outputs that lie alike and are made together, at most."""

ROW_CELLS = 1 << 12
"""Cells of a row that a tile of a forward pass reads, where the row is all there is."""

MIN_TILES = 16
"""Units of a large call, at least, so that threads have something to share."""

FOLDED_OUTPUTS = 1 << 12
"""Outputs of a tile, about, where the rows of windows are folded as they are read."""

SERIAL_MAX_CELLS = 1 << 11
"""Cells that outputs made together read of a row, about, where channels are last."""

TILE_CELLS = 1 << 14
"""Cells that a tile of a forward pass keeps in scratch memory, where that is possible."""

CELLS_NEAR = 1 << 22
"""Cells of an input that may be found in a cache, at most; a larger one is asked for."""

SMALL = 1 << 17
"""Cells visited below which one thread does the call, in some 0.02 ms: there is nothing to share out."""

LEVELS, NEAR = 5, 1024
"""Of long sums: levels of doubling that are kept, and positions of a row that are summed at a time."""
