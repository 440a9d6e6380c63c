"""Runs the sums of a weight's gradient over all threads."""

from __future__ import annotations

from math import prod

import numpy as np

from lunette.kernels import threads
from lunette.kernels.cpu import weights
from lunette.kernels.cpu.correlation import FORMS, Array, Place, place, share
from lunette.kernels.cpu.geometry import Phase, window_phase
from lunette.kernels.cpu.vectors import VECTOR_BYTES
from lunette.kernels.cpu.weight_geometry import WeightPlan, weight_plan
from lunette.ops.convolution import Convolution

__all__ = ["weight_sums"]

BLOCK = 192
"""Positions of the windows that a thread transposes at a time."""
TURNED = 1 << 20
"""Bytes of transposed windows at a time: they stay in the second-level cache."""


def weight_sums(op: Convolution, image: Array, windows: Array, out: Array) -> None:
    """out = Σ over positions of image cell × window, for each weight."""
    form, rank, groups = FORMS[out.dtype], op.rank, op.groups
    phase = window_phase(op, image.shape[-rank:], windows.shape[-rank:])
    if groups == 1 and out.shape[0] > out.shape[1] and _is_matrix(phase):
        turned = np.empty((out.shape[1], out.shape[0], *out.shape[2:]), out.dtype)
        weight_sums(op, windows, image, turned)
        out[...] = turned.swapaxes(0, 1)
        return
    source, grads = place(image, rank), place(windows, rank)
    rows, channels, items = out.shape[0] // groups, out.shape[1], len(source.offsets)
    strides = (source.strides, grads.strides)
    vector = VECTOR_BYTES // form.size
    lanes = -(-rows // vector) * vector
    few = rows * 4 <= vector
    positions = 1 << 12 if few else 128
    height = weights.height(lanes // vector)
    units = 2 * threads.get_num_threads()
    cut = weight_plan(phase, strides, items, groups, channels, form.size, positions, height, units)
    if few:
        _weight_of_few(op, cut, source, grads, out)
        return
    sums = np.zeros((groups * len(cut.chunks), cut.rows, lanes), form.work)
    per_block = int(np.prod(cut.slab.blocks))
    units = cut.slab.units if image.size else 0
    at_a_time = max(1, TURNED // (groups * lanes * form.size * per_block))
    room = np.empty(min(at_a_time, units) * per_block * groups * lanes + vector, form.work)
    turned_at = -(-room.ctypes.data // VECTOR_BYTES) * VECTOR_BYTES
    for start in range(0, units, at_a_time):
        stop = min(units, start + at_a_time)
        begin, end = _first_position(cut, start), _first_position(cut, stop)
        share(
            weights.transpose, -(-(end - begin) // BLOCK),
            (begin, end, BLOCK, cut.window_counts, grads.address, grads.offsets, grads.channel,
             cut.window_strides, groups, rows, lanes, turned_at, form.zero,
             form.size, vector),
        )  # fmt: skip
        share(
            weights.outer, len(sums),
            (start, stop, begin, cut.counts, cut.lengths, cut.steps, cut.slab.blocks,
             cut.slab.shape, cut.slab.planes, cut.table, cut.chunks, source.address,
             source.offsets, source.channel, cut.strides[0], groups, channels,
             turned_at, lanes, sums.ctypes.data, cut.rows, form.zero,
             form.size, vector),
        )  # fmt: skip
    result = out.reshape(groups, rows, channels, -1)
    for unit, values in enumerate(sums):
        group, number = divmod(unit, len(cut.chunks))
        (c, last, depth), (t, stop) = cut.chunks[number, :3], cut.taps[number]
        whole = values[:depth, :rows].reshape(last - c, stop - t, rows)
        result[group, :, c:last, t:stop] = whole.transpose(2, 0, 1)


def _is_matrix(phase: Phase) -> bool:
    """Whether every window reads its own cell alone; then image and windows may change places."""
    return phase.lengths == phase.counts and set(phase.steps) == {1} and not np.any(phase.taps)


def _weight_of_few(
    op: Convolution, cut: WeightPlan, source: Place, grads: Place, out: Array
) -> None:
    """The same for groups of a few rows, by dot products along the positions."""
    form, groups = FORMS[out.dtype], op.groups
    taps = prod(op.kernel)
    table = np.zeros(-(-taps // weights.TAPS) * weights.TAPS, np.int64)
    table[:taps] = cut.cells
    sums = np.zeros((groups, out.shape[0] // groups, out.shape[1], len(table)), form.work)
    if source.array.size:
        share(
            weights.dots, groups,
            (cut.slab.units, cut.counts, cut.lengths, cut.steps, cut.slab.blocks, cut.slab.shape,
             cut.slab.planes, table, source.address, source.offsets, source.channel,
             cut.strides[0], out.shape[1], grads.address, grads.offsets, grads.channel,
             cut.strides[1], sums.shape[1], sums, form.zero, form.size),
        )  # fmt: skip
    out[...] = sums[..., :taps].reshape(out.shape)


def _first_position(cut: WeightPlan, unit: int) -> int:
    """The number of the first position of a block, row-major over the batch and the axes."""
    high, wide = (int(n) for n in cut.counts[-2:])
    rows, columns = (int(n) for n in cut.slab.blocks)
    unit, column = divmod(unit, -(-wide // columns))
    outside, row = divmod(unit, -(-high // rows))
    return (outside * high + row * rows) * wide + column * columns
