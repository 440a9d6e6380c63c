"""What kernels are told: a table of int64, whose head and entries they read by name.

Array x is the input; array y has the shape of the output; array z is the third array of the verb. Strides count
elements. A `PLAN` is of whole rows, a `TILING` of tiles of a few columns; both have their axes alike.
"""

from __future__ import annotations

from lunette.kernels.cpu.jit.record import Entry, Table

__all__ = [
    "AXES",
    "AXIS",
    "BATCH",
    "BATCH_AXIS",
    "LISTED_AXIS",
    "NHWC_PLAN",
    "PLAN",
    "SLAB",
    "TILING",
    "WINDOW",
    "WINDOWS",
]

MAX_AXES = 64
"""Axes of an array of NumPy, at most."""

X, Y, Z, FLAT = range(4)
"""What the strides of an axis are of: the arrays, and the positions of the pooled axes one after the other."""

INPUTS, OUTPUTS = range(2)
"""What the lengths of an axis are of."""

WINDOW = Entry("Window", "start stop step counted in_bounds")
"""The first cell of a window, its end and its step; the cells that count, as the bits of a float64, and those that are there."""

AXIS = Entry(
    "Axis",
    "in_len out_len x_stride y_stride z_stride flat_stride windows stride origin dilation taps readers box",
    lists={"windows": WINDOW, "readers": WINDOW},
    runs={"lengths": "in_len", "strides": "x_stride"},
)
"""A pooled axis: its cells and outputs, and the strides between them; its windows; stride, origin, dilation and taps of affine windows (0 taps: they are not); the outputs that read each cell, as
windows on the outputs; and the taps of the box that every window is a part of."""

LISTED_AXIS = Entry(
    "ListedAxis",
    "in_len out_len x_stride y_stride z_stride flat_stride windows stride origin dilation taps readers_at box",
    lists={"windows": WINDOW},
    runs={"lengths": "in_len", "strides": "x_stride"},
)
"""The same, but where lists of readers begin: (first, last) output of each cell or, of the axis before the last, where those
of a row begin, then pairs of output and tap."""

BATCH_AXIS = Entry("BatchAxis", "length x_stride y_stride z_stride", runs={"strides": "x_stride"})

SLAB = Entry("Slab", "low high first last")
"""Inputs low … high of the first pooled axis, and the outputs from their first to their last reader."""

AXES = 37
"""Where pooled axes begin."""

BATCH = AXES + MAX_AXES * len(AXIS.fields)
"""Where batch axes begin."""

WINDOWS = BATCH + MAX_AXES * len(BATCH_AXIS.fields)
"""Where windows begin, then readers, slabs and lists."""

HEAD = (
    "batch_rank rank output_rows count_padding divisor beta slab_count slabs channels tile tiles second_area row "
    "row_size left _ result third_area padded divisors spread_second spread_row spread_left spread_end channel_stride "
    "folded_left folded_row lists list_size row_bytes items stream stage folded_tile folded_tiles beside out_of_cache"
)

PLAN = Table(
    "Plan",
    HEAD,
    parts={"axes": (AXES, AXIS), "batch": (BATCH, BATCH_AXIS)},
    lists={"slabs": SLAB},
)
"""The head of a plan, for kernels of whole rows.

- `output_rows`, `items`, `channels`, `channel_stride`: rows of outputs of an item, items, and contiguous channels (0: none);
- `count_padding`, `divisor`, `beta`: what the reduction says; the last two are the bits of a float64;
- `tile`, `tiles`: positions of the first axis in a tile, and tiles of an item; `folded_…` where rows need no scratch memory;
- `slab_count`, `slabs`: slabs of the first axis, for gradients;
- `second_area`, `row`, `row_size`, `left`, `result`, `third_area`, `padded`: cells of scratch memory before the second area of
  rows, a row with its padding, a row of results and so on; of a row, its cells and those before position 0;
- `spread_…`: the same for the gradient of a mean: a second area, a row, its padding, the end;
- `folded_left`, `folded_row`, `lists`, `list_size`, `stage`: the same for folded rows: padding, cells of a row; bytes before lists
  of rows, entries of each list, bytes before what is staged; `beside`: outputs of a row made together with channels last;
- `divisors`: the address of the divisors along a row; `row_bytes`: cells read for each row of outputs, 0 where they do not lie so;
- `stream`: whether and how the result goes past the caches; `out_of_cache`: the input does not fit them.
"""

NHWC_PLAN = Table(
    "NhwcPlan",
    HEAD,
    parts={"axes": (AXES, LISTED_AXIS), "batch": (BATCH, BATCH_AXIS)},
    lists={"slabs": SLAB},
)
"""The head of a plan whose axes have lists of readers."""

TILING = Table(
    "Tiling",
    "batch_rank rank all_outputs count_padding max_readers beta columns column_tiles rows row_tiles leads row_stride "
    "phase_stride phases tile_rows max_leads taps_at counted_at cells_at first_taps_at outputs block reach area "
    "hulls_at stream row_bytes row_kinds_at starts_at lone",
    parts={"axes": (AXES, LISTED_AXIS), "batch": (BATCH, BATCH_AXIS)},
)
"""The head of a tiling, for kernels of tiles of rows and columns.

- `all_outputs`, `outputs`: outputs of all items, and of one; `count_padding`, `beta`: what the reduction says;
- `columns`, `column_tiles`, `rows`, `row_tiles`, `leads`: columns of a tile and tiles along the last axis; the same on the axis
  before; places of the axes before that;
- `row_stride`, `phase_stride`, `phases`, `tile_rows`: scratch cells of a row, and of one phase of it; phases; rows of a tile;
- `max_leads`, `max_readers`: cells (readers, for a gradient) on the leading axes; readers of a row, the leading axes' included;
- `taps_at`, `counted_at`, `cells_at`, `first_taps_at`: where in the table the taps, the counted cells, the cells and the first
  taps of each output are; `hulls_at`: where the hull of each tile of rows is; `row_kinds_at`: the kinds of rows of inputs;
  `starts_at`: where rows of inputs are taken in turn, the first that each row of outputs or a later one reads;
- `block`, `reach`: output c begins `block` blocks from its own and reaches `reach` blocks further;
- `area`: bytes of scratch memory before rows; `stream`: whether the result goes past the caches; `row_bytes`: cells read for
  each row that is made, 0 where they do not lie so; `lone`: some window has one cell that counts.
"""
