"""What the kernels of a convolution are told: records of named integers, all of which follow from shapes but the addresses."""

from __future__ import annotations

from lunette.kernels.cpu.jit.record import Record

__all__ = ["BACKWARD_WEIGHTS", "CORRELATION", "DOTS", "INPUT_TILE", "PACKING", "SOURCE", "SPARSE"]

INPUT_TILE = Record(
    "InputTile",
    "rank *out_len *in_len *step tile_rows tile_columns height width *planes plane_count",
)
"""How outputs are cut into tiles of rows × columns, and where the planes of their inputs lie: axes, lengths of outputs and
inputs and steps on each; rows and columns of a tile and of a plane; the input position of each plane for output 0."""

SOURCE = Record("Source", "x *item channel *stride packed")
"""One image of a sum: its address, offsets of its batch items, strides in elements, and its packed weights."""

CORRELATION = Record(
    "Correlation",
    "tiles parts part_blocks channels taps tile_channels chunk near rows group_rows bias out *out_item out_channel "
    "*out_stride offsets sums_at starts_at panel_at index_at sources sources_at",
    INPUT_TILE,
)
"""Units are (group, part of the output channels, tile). `offsets` is the address of the places in an input tile of every
(channel, tap), or run of taps; `…_at` are places in scratch memory; then the sources."""

PACKING = Record(
    "Packing",
    "packed weight row_stride group_stride *offsets depth contiguous rows blocks block_rows",
)

BACKWARD_WEIGHTS = Record(
    "BackwardWeights",
    "tiles segments channels taps groups rows lanes *chunks chunk_count offsets offsets_stride chunk_rows grad "
    "*grad_item grad_channel *grad_stride sums out swapped turned_at index_at source_at",
    INPUT_TILE,
)
"""Units are (segment of the tiles, group, chunk of channels and taps), and then (group, chunk) where there are several
segments. A chunk is (first channel, last channel, first tap, rows, first plane, last plane), and a row of `offsets`."""

DOTS = Record(
    "Dots",
    "tiles channels rows offsets taps padded grad *grad_item grad_channel *grad_stride sums lines_at index_at source_at",
    INPUT_TILE,
)
"""Units are (group, channel)."""

SPARSE = Record(
    "Sparse",
    "cells rank sources terms sums *lines *line_heads *line_counts *a_base *a_terms *a_strides *b_base *b_terms "
    "*b_strides starts *out *out_stride",
)
"""Sums cell by cell: cells of a sum; axes, sources, terms and sums; the lines of the axes; both factors; starts, and results."""
