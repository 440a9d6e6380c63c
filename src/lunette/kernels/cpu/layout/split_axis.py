"""Axes of very many positions, cut into parts: the tables of a call stay small, and parts are alike.

A call's tables have a row for each output and position of an axis, which for a million is enough.
The parts of a longer axis whose windows all lie within it are one and the same smaller op, as if they were the
first such windows; only the first part and the last know where they are. Each is a part of the whole axis, so what
decides on the order of a sum decides as it would there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from lunette.kernels.cpu.memory.block_cache import new_array
from lunette.ops.pooling import Pool, Pooling
from lunette.regions import Part, Region, Sliding

__all__ = ["LONG", "LongAxis", "long_axis", "long_outputs"]

Array = np.ndarray[Any, Any]

LONG = 1 << 20
"""Positions of an axis past which it is cut."""


def long_axis(op: Pooling, shape: tuple[int, ...]) -> LongAxis | None:
    """The first pooled axis that must be cut; None where no axis is that long, or windows are."""
    for axis, (region, n) in enumerate(zip(op.regions, shape[-op.rank :], strict=True)):
        if n > LONG and type(region) is Sliding and 4 * _reach(region) <= LONG:
            return LongAxis(op, axis, shape)
    return None


def long_outputs(op: Pooling, shape: tuple[int, ...]) -> LongAxis | None:
    """The first pooled axis that has very many outputs, of whatever it reads; None where none has."""
    for axis, (region, n) in enumerate(zip(op.regions, shape[-op.rank :], strict=True)):
        if region.out_length(n) > LONG and not isinstance(region, Part):
            return LongAxis(op, axis, shape)
    return None


def _reach(region: Sliding) -> int:
    return max(region.extent, int(region.stride or 1))


class LongAxis:
    """One axis of an op on one shape: its parts, and the verbs part by part.

    A verb is given as a function of a smaller op and of what that reads.
    """

    def __init__(self, op: Pooling, axis: int, shape: tuple[int, ...]) -> None:
        self.op, self.axis, self.shape, self.region = op, axis, shape, op.regions[axis]
        self.n = shape[len(shape) - op.rank + axis]
        self.outputs, self.stride, self.extent = self.region.out_length(self.n), 1, 1
        if isinstance(self.region, Sliding):
            self.stride, self.extent = int(self.region.stride or 1), self.region.extent

    def forward(self, forward: Any, *arrays: Array) -> Array:
        """Values, or derivatives, of arrays of one shape."""
        y = self._result(arrays[0])
        for first, last, same in self._output_ranges():
            part, lo, hi = self._part(first, first + 1 if same else last)
            y[self._at(first, last)] = forward(part, *(a[self._at(lo, hi)] for a in arrays))
        return y

    def forward_with_indices(self, forward: Any, x: Array) -> tuple[Array, Array]:
        """Values and positions, which count in the whole array."""
        y = self._result(x)
        z = new_array(y.shape, np.dtype(np.int64))
        inside = int(np.prod(self.shape[len(self.shape) - self.op.rank + self.axis + 1 :]))
        for first, last, same in self._output_ranges():
            part, lo, hi = self._part(first, first + 1 if same else last)
            y[self._at(first, last)], places = forward(part, x[self._at(lo, hi)])
            line, rest = np.divmod(places, inside)
            lead, position = np.divmod(line, hi - lo)
            whole = (lead * self.n + position + lo) * inside + rest
            z[self._at(first, last)] = np.where(places < 0, places, whole)
        return y, z

    def vjp(self, vjp: Any, x: Array, gy: Array) -> Array:
        """Gradients: each range of positions gathers from all outputs that read it."""
        gx = new_array(x.shape, x.dtype)
        step = max(1, LONG // 2 // self.stride) * self.stride
        for begin in range(0, self.n, step):
            end = min(self.n, begin + step)
            readers = self.region.readers(self.n, begin, end)
            gx[self._at(begin, end)] = 0
            if not len(readers):
                continue
            first, last = readers[0], readers[-1] + 1
            part, lo, hi = self._part(first, last)
            found = vjp(part, x[self._at(lo, hi)], gy[self._at(first, last)])
            low, high = max(begin, lo), min(end, hi)
            if low < high:
                gx[self._at(low, high)] = found[self._at(low - lo, high - lo)]
        return gx

    # -- parts --

    def _output_ranges(self) -> Iterator[tuple[int, int, bool]]:
        """Ranges of outputs, and whether they have one and the same window: a single one then stands for all."""
        if self.n > LONG and isinstance(self.region, Sliding) and 4 * _reach(self.region) <= LONG:
            step = max(1, (LONG - self.extent) // self.stride)
            for first in range(0, self.outputs, step):
                yield first, min(self.outputs, first + step), False
            return
        for begin, end, same in self.region.runs(self.n):
            step = max(1, end - begin) if same else max(1, LONG // 4)
            for first in range(begin, end, step):
                yield first, min(end, first + step), same

    def _part(self, first: int, last: int) -> tuple[Pooling, int, int]:
        """The op of some outputs, and the positions that they read."""
        part = self.region.part(self.n, first, last)
        regions: list[Region] = [*self.op.regions]
        regions[self.axis] = part
        region = self.region
        if isinstance(region, Sliding) and region.whole(self.n, first, last) == (first, last):
            # As anywhere within the axis.
            begin, _ = region.whole(self.n, 0, self.outputs)
            regions[self.axis] = region.part(self.n, begin, begin + last - first)
        lo, hi = part.slab_range
        return Pool(tuple(regions), self.op.reduction), lo, hi

    def _at(self, low: int, high: int) -> tuple[Any, ...]:
        """An index of positions low … high of the axis."""
        return (..., slice(low, high), *[slice(None)] * (self.op.rank - 1 - self.axis))

    def _result(self, x: Array) -> Array:
        return new_array(self.op.out_shape(x.shape), self.op.result_dtype(x.dtype))
