"""Runs the sums of a weight's gradient over all threads."""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

import numpy as np

from lunette.kernels import threads
from lunette.kernels.cpu.convolving import weights
from lunette.kernels.cpu.convolving.correlation import FORMS, Array, Form, Place, place, share
from lunette.kernels.cpu.convolving.geometry import Phase, window_phase
from lunette.kernels.cpu.convolving.vectors import VECTOR_BYTES
from lunette.kernels.cpu.convolving.weight_geometry import WeightPlan, fits, weight_plan
from lunette.ops.convolution import Convolution

__all__ = ["Sums", "weight_sums"]

BLOCK = 192
"""Positions of the windows that a thread transposes at a time."""
TURNED = 1 << 20
"""Bytes of transposed windows at a time: they stay in the second-level cache."""


class Sums(NamedTuple):
    """Sums for each weight in the order in which they were made: chunk by chunk of a plan.

    `cut` is None where that is the weight's own order; `turned` is the weight of image and windows
    in each other's places.
    """

    values: Array
    shape: tuple[int, ...]
    groups: int = 1
    cut: WeightPlan | None = None
    turned: bool = False

    def add(self, other: Sums) -> Sums:
        """Both together, in the memory of the first if their orders are the same."""
        with np.errstate(all="ignore"):
            if self._order() == other._order():
                np.add(self.values, other.values, out=self.values)
                return self
            total = self.whole() + other.whole()
        return Sums(total, total.shape)

    def _order(self) -> Any:
        return self.turned, self.cut and (self.cut.chunks[:, :3].tolist(), self.cut.taps)

    def whole(self) -> Array:
        """The sums in the order of the weight."""
        if self.turned:
            return np.ascontiguousarray(self._replace(turned=False).whole().swapaxes(0, 1))
        if self.cut is None:
            return self.values.reshape(self.shape)
        rows = self.shape[0] // self.groups
        out = np.empty(self.shape, self.values.dtype)
        result = out.reshape(self.groups, rows, self.shape[1], -1)
        for unit, values in enumerate(self.values):
            group, number = divmod(unit, len(self.cut.chunks))
            (c, last, depth), (t, stop) = self.cut.chunks[number, :3], self.cut.taps[number]
            whole = values[:depth, :rows].reshape(last - c, stop - t, rows)
            result[group, :, c:last, t:stop] = whole.transpose(2, 0, 1)
        return out


def weight_sums(
    op: Convolution, image: Array, windows: Array, shape: tuple[int, ...], work: Any
) -> Sums:
    """The sum over positions of image cell × window, for each weight of an array of this shape."""
    form, rank, groups = FORMS[np.dtype(work)], op.rank, op.groups
    phase = window_phase(op, image.shape[-rank:], windows.shape[-rank:])
    if groups == 1 and shape[0] > shape[1] and _is_matrix(phase):
        turned = (shape[1], shape[0], *shape[2:])
        return weight_sums(op, windows, image, turned, work)._replace(turned=True)
    source, grads = place(image, rank), place(windows, rank)
    rows, channels, items = shape[0] // groups, shape[1], len(source.offsets)
    strides = (source.strides, grads.strides)
    if not fits(phase, strides):
        image, windows = np.array(image, order="C"), np.array(windows, order="C")
        source, grads = place(image, rank), place(windows, rank)
        strides = (source.strides, grads.strides)
    vector = VECTOR_BYTES // form.size
    lanes = -(-rows // vector) * vector
    few = rows * 4 <= vector
    positions = 1 << 12 if few else 128
    height = weights.height(lanes // vector)
    units = 2 * threads.get_num_threads()
    cut = weight_plan(phase, strides, items, groups, channels, form.size, positions, height, units)
    if few:
        return Sums(_sums_of_few(op, cut, source, grads, shape, form), shape)
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
             form.size, vector), cut.outer_rooms,
        )  # fmt: skip
    return Sums(sums, shape, groups, cut)


def _is_matrix(phase: Phase) -> bool:
    """Whether every window reads its own cell alone; then image and windows may change places."""
    return phase.lengths == phase.counts and set(phase.steps) == {1} and not np.any(phase.taps)


def _sums_of_few(
    op: Convolution,
    cut: WeightPlan,
    source: Place,
    grads: Place,
    shape: tuple[int, ...],
    form: Form,
) -> Array:
    """The same for groups of a few rows, by dot products along the positions."""
    groups, taps = op.groups, prod(op.kernel)
    table = np.zeros(-(-taps // weights.TAPS) * weights.TAPS, np.int64)
    table[:taps] = cut.cells
    sums = np.zeros((groups, shape[0] // groups, shape[1], len(table)), form.work)
    if source.array.size:
        share(
            weights.dots, groups,
            (cut.slab.units, cut.counts, cut.lengths, cut.steps, cut.slab.blocks, cut.slab.shape,
             cut.slab.planes, table, source.address, source.offsets, source.channel,
             cut.strides[0], shape[1], grads.address, grads.offsets, grads.channel,
             cut.strides[1], sums.shape[1], sums, form.zero, form.size),
            cut.dots_rooms,
        )  # fmt: skip
    return sums[..., :taps].reshape(shape)


def _first_position(cut: WeightPlan, unit: int) -> int:
    """The number of the first position of a block, row-major over the batch and the axes."""
    high, wide = (int(n) for n in cut.counts[-2:])
    rows, columns = (int(n) for n in cut.slab.blocks)
    unit, column = divmod(unit, -(-wide // columns))
    outside, row = divmod(unit, -(-high // rows))
    return (outside * high + row * rows) * wide + column * columns
