"""What a call needs to know before it touches a cell: strides, window tables, slabs; made once and kept.

A plan's table is one array of int64 that kernels read through its address: a header, an entry per
batch axis, an entry per pooled axis, the windows of each pooled axis, and the slabs that units of
a gradient own. Array 0 is the input; array 1 has the shape of the output; array 2 is the third
array of the verb. Strides count elements.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from lunette.ops.pooling import Pooling
from lunette.reductions import Max, Mean, SmoothMax

__all__ = ["Plan", "plan"]

Strides = tuple[int, ...]

# The header.
BATCH_RANK, RANK, OUTPUT_ROWS, COUNT_PADDING, DIVISOR, BETA, SLABS, SLABS_AT = range(8)
AXES = 16
"""Entries of pooled axes: length, outputs, stride in arrays 0, 1 and 2, windows, flat stride."""
AXIS_WIDTH = 7
BATCH = AXES + 64 * AXIS_WIDTH
"""Entries of batch axes: length, stride in arrays 0, 1 and 2. NumPy has at most 64 axes."""
BATCH_WIDTH = 4
WINDOWS = BATCH + 64 * BATCH_WIDTH
"""Windows: start, stop, step, counted. Slabs: low, high, first and last output that reads it."""

SLAB_CELLS = 1 << 16
"""Cells that a unit of a gradient owns, where the first pooled axis can be cut that fine."""


class Plan:
    """The table of one op on one shape, dtype and layout."""

    def __init__(
        self, op: Pooling, shape: tuple[int, ...], strides: tuple[Strides, Strides, Strides]
    ) -> None:
        rank = op.rank
        batch = shape[: len(shape) - rank]
        pooled = shape[len(shape) - rank :]
        outputs = [r.out_length(n) for r, n in zip(op.regions, pooled, strict=True)]
        windows = [
            np.array([r.window(n, i) for i in range(m)], np.int64).reshape(m, 4)
            for r, n, m in zip(op.regions, pooled, outputs, strict=True)
        ]
        axes = _fold(batch, strides)
        header = np.zeros(WINDOWS, np.int64)
        header[BATCH_RANK], header[RANK] = len(axes), rank
        for i, entry in enumerate(axes):
            header[BATCH + i * BATCH_WIDTH :][: len(entry)] = entry
        place = WINDOWS
        for i in range(rank):
            axis = len(batch) + i
            flat = prod(pooled[i + 1 :])
            steps = (s[axis] for s in strides)
            entry = (pooled[i], outputs[i], *steps, place, flat)
            header[AXES + i * AXIS_WIDTH :][:AXIS_WIDTH] = entry
            place += 4 * outputs[i]
        slabs = self._slabs(op, pooled, outputs)
        header[SLABS], header[SLABS_AT] = len(slabs), place
        header[OUTPUT_ROWS] = prod(outputs[:-1])
        reduction = op.reduction
        if isinstance(reduction, (Mean, SmoothMax)):
            header[COUNT_PADDING] = reduction.count_include_pad
        if isinstance(reduction, Mean):
            # A divisor past int64 is the same float as one near it only if rounded here: see DIVISOR.
            header[DIVISOR] = reduction.divisor_override or 0
        if isinstance(reduction, SmoothMax):
            header[BETA : BETA + 1].view(np.float64)[0] = reduction.beta
        self.table = np.concatenate([header, *(w.ravel() for w in windows), slabs.ravel()])
        self.at = self.table.__array_interface__["data"][0]
        self.items = prod(batch)
        self.output_rows = prod(outputs[:-1])
        self.slabs = len(slabs)
        self.cells = prod(pooled)
        lengths = [int(max((w.real for w in _windows(t)), default=0)) for t in windows[:-1]]
        self.room = max(1, prod(max(1, length) for length in lengths))
        self.slab_cells = int(max((slabs[:, 1] - slabs[:, 0]).max(), 1)) * prod(pooled[1:])
        self.work = prod(shape) * max(1, self.room)

    @staticmethod
    def _slabs(op: Pooling, pooled: tuple[int, ...], outputs: list[int]) -> Any:
        """Cut the first pooled axis; of each slab, the outputs from its first to its last reader."""
        n = pooled[0]
        thick = min(n, max(1, SLAB_CELLS // prod(pooled[1:])))
        slabs = []
        for low in range(0, n, thick):
            high = min(n, low + thick)
            readers = op.regions[0].readers(n, low, high)
            span = (readers[0], readers[-1] + 1) if len(readers) else (0, 0)
            slabs.append((low, high, *span))
        return np.array(slabs, np.int64).reshape(-1, 4)


def _windows(table: Any) -> Any:
    from lunette.regions import Window

    return (Window(*row) for row in table.tolist())


def _fold(batch: tuple[int, ...], strides: tuple[Strides, ...]) -> list[tuple[int, ...]]:
    """Batch axes with neighbours joined where every array steps through them as through one."""
    axes: list[tuple[int, ...]] = []
    for axis, length in enumerate(batch):
        entry = (length, *(s[axis] for s in strides))
        if length == 1:
            continue
        if axes and all(
            outer == inner * length for outer, inner in zip(axes[-1][1:], entry[1:], strict=True)
        ):
            axes[-1] = (axes[-1][0] * length, *entry[1:])
        else:
            axes.append(entry)
    return axes


@lru_cache(maxsize=1024)
def plan(op: Pooling, shape: tuple[int, ...], *strides: Strides) -> Plan:
    """The plan of this op on this shape, for arrays of these strides."""
    return Plan(op, shape, (strides[0], strides[1], strides[2]))


def is_max(op: Pooling) -> bool:
    """Whether the op's reduction is a max."""
    return isinstance(op.reduction, Max)
