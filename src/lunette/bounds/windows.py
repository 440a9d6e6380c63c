"""Steps that bend: max of windows (relu among them), smooth max, and curves of one number.

All of them read windows of cells through a table, and all are relaxed in one way: two linear
functions of the window's cells, one below the result and one above, wherever the cells lie in their
box. `Relaxation` holds them; the files beside this one choose them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from lunette.bounds.affine import Shape, Step
from lunette.bounds.box import Array
from lunette.cached import cached_property
from lunette.ops.pooling import Pooling

__all__ = [
    "Curve",
    "Jump",
    "Maximum",
    "Relaxation",
    "Smooth",
    "Softmax",
    "Windowed",
    "counted_padding",
    "table_of",
]


class Relaxation(NamedTuple):
    """`low_slope·cells + low_offset ≤ result ≤ high_slope·cells + high_offset`, window by window.

    Slopes are (windows, cells) and offsets (windows,); an axis of rows may stand before both.
    """

    low_slope: Array
    low_offset: Array
    high_slope: Array
    high_offset: Array


class Windowed(Step):
    """A function of windows. `table[i]` holds the flat cells of window i; −1 stands for none.

    `alone` says that window i is cell i and no other, as of relu.
    """

    def __init__(self, parents: Any, shape: Shape, about: str, x: Shape, table: Array) -> None:
        super().__init__(parents, shape, about)
        self.x, self.table = x, table
        self.present = table >= 0
        self.whole = bool(self.present.all())
        cells = math.prod(x)
        self.alone = table.shape == (cells, 1) and bool((table[:, 0] == np.arange(cells)).all())
        self.places = np.where(self.present, table, 0)

    @cached_property
    def readers(self) -> int:
        """The most windows that read one cell."""
        cells = self.table[self.present]
        return int(np.bincount(cells).max(initial=1)) if len(cells) else 1

    def gather(self, x: Array, missing: float) -> Array:
        """The cells of every window, `(…, windows, cells)`."""
        flat = x.reshape(*x.shape[: x.ndim - len(self.x)], math.prod(self.x))
        if self.alone:
            return flat[..., None]
        if not flat.shape[-1]:
            return np.full((*flat.shape[:-1], *self.table.shape), missing)
        cells = flat[..., self.places]
        return cells if self.whole else np.where(self.present, cells, missing)

    def ends(self, lo: Array, hi: Array) -> tuple[Array, Array]:
        """The least and the largest result over a box, but for rounding; most steps rise in each cell."""
        return self.value(lo), self.value(hi)

    def cut(self, parents: Any, shape: Shape, x: Shape, table: Array, windows: Array) -> Windowed:
        """The same function of some of the windows alone, whose table this is."""
        raise NotImplementedError

    def scatter(self, rows: Array) -> Array:
        """The adjoint of `gather`: `(rows, windows, cells)` added up at the cells."""
        if self.alone:
            return rows.reshape(len(rows), *self.x)
        out = np.zeros((len(rows), math.prod(self.x)))
        order, starts, cells = self._segments
        if len(cells) == len(order):  # nobody reads a cell twice
            out[:, self.table.reshape(-1)[order]] = rows.reshape(len(rows), self.table.size)[
                :, order
            ]
        else:
            entries = rows.reshape(len(rows), self.table.size)[:, order]
            out[:, cells] = np.add.reduceat(entries, starts, axis=1)
        return out.reshape(len(rows), *self.x)

    @cached_property
    def _segments(self) -> tuple[Array, Array, Array]:
        """Entries of the table in the order of their cells, and where each cell's begin."""
        flat = self.table.reshape(-1)
        order = np.argsort(flat, kind="stable")
        order = order[flat[order] >= 0]
        cells, starts = np.unique(flat[order], return_index=True)
        return order, starts, cells


class Maximum(Windowed):
    """The largest cell of each window, and 0 where `zero` adds a cell that is always 0."""

    title = "max"

    def __init__(
        self, parents: Any, shape: Shape, about: str, x: Shape, table: Array, zero: Array
    ) -> None:
        super().__init__(parents, shape, about, x, table)
        self.zero = zero | ~self.present.any(axis=1)

    def cut(self, parents: Any, shape: Shape, x: Shape, table: Array, windows: Array) -> Windowed:
        return Maximum(parents, shape, self.about, x, table, self.zero[windows])

    def value(self, *inputs: Array) -> Array:
        x = inputs[0]
        best = self.gather(x, -np.inf).max(axis=-1, initial=-np.inf)
        best = np.where(self.zero, np.maximum(best, 0.0), best)
        return np.asarray(best.reshape(*x.shape[: x.ndim - len(self.x)], *self.shape))


class Smooth(Windowed):
    """`(1/β) log Σ exp(β x)` of each window; `zeros` counts its padding cells, which are 0."""

    title = "smooth max"

    def __init__(
        self,
        parents: Any,
        shape: Shape,
        about: str,
        x: Shape,
        table: Array,
        zeros: Array,
        beta: float,
    ) -> None:
        super().__init__(parents, shape, about, x, table)
        self.zeros, self.beta = zeros, beta

    def cut(self, parents: Any, shape: Shape, x: Shape, table: Array, windows: Array) -> Windowed:
        return Smooth(parents, shape, self.about, x, table, self.zeros[windows], self.beta)

    def value(self, *inputs: Array) -> Array:
        x = inputs[0]
        result = self.of_cells(self.gather(x, 0.0))
        return result.reshape(*x.shape[: x.ndim - len(self.x)], *self.shape)

    def of_cells(self, cells: Array) -> Array:
        """The value of windows whose cells these are; a window with no cell at all is 0."""
        sign = np.sign(self.beta)
        pivot, total = self.logs(sign * cells)
        return np.where(
            total > 0, sign * (pivot + np.log(np.maximum(total, 1e-300)) / abs(self.beta)), 0.0
        )

    def logs(self, cells: Array) -> tuple[Array, Array]:
        """A pivot p and `Σ exp(|β|(x − p))`, the padding's zeros among them."""
        scale = abs(self.beta)
        inside = np.where(self.present, cells, -np.inf)
        pivot = inside.max(axis=-1, initial=-np.inf)
        pivot = np.where(self.zeros > 0, np.maximum(pivot, 0.0), pivot)
        pivot = np.where(np.isfinite(pivot), pivot, 0.0)
        total = np.exp(scale * (inside - pivot[..., None])).sum(axis=-1)
        # Where zeros are counted, the pivot is not below them.
        return pivot, total + self.zeros * np.exp(-scale * np.maximum(pivot, 0.0))


class Curve(Windowed):
    """A rising function of one number whose slope rises, then falls: tanh, sigmoid."""

    def __init__(
        self,
        parents: Any,
        shape: Shape,
        about: str,
        title: str,
        function: Callable[[Array], Array],
        slope: Callable[[Array], Array],
    ) -> None:
        table = np.arange(math.prod(shape))[:, None]
        super().__init__(parents, shape, about, shape, table)
        self.title, self.function, self.slope = title, function, slope

    def cut(self, parents: Any, shape: Shape, x: Shape, table: Array, windows: Array) -> Windowed:
        part = Curve(parents, shape, self.about, self.title, self.function, self.slope)
        Windowed.__init__(part, parents, shape, self.about, x, table)
        return part

    def value(self, *inputs: Array) -> Array:
        lead = inputs[0].shape[: inputs[0].ndim - len(self.x)]
        return self.function(self.gather(inputs[0], 0.0)).reshape(*lead, *self.shape)


class Jump(Windowed):
    """The sign of one number: −1, 0 or 1."""

    title = "sign"

    def __init__(self, parents: Any, shape: Shape, about: str) -> None:
        super().__init__(parents, shape, about, shape, np.arange(math.prod(shape))[:, None])

    def cut(self, parents: Any, shape: Shape, x: Shape, table: Array, windows: Array) -> Windowed:
        part = Jump(parents, shape, self.about)
        Windowed.__init__(part, parents, shape, self.about, x, table)
        return part

    def value(self, *inputs: Array) -> Array:
        lead = inputs[0].shape[: inputs[0].ndim - len(self.x)]
        return np.sign(self.gather(inputs[0], 0.0)).reshape(*lead, *self.shape)


class Softmax(Windowed):
    """`exp(x_i) / Σ exp(x_j)` along the last axis; a window's own cell is the first of it."""

    title = "softmax"

    def __init__(self, parents: Any, shape: Shape, about: str) -> None:
        n = shape[-1]
        turn = (np.arange(n)[:, None] + np.arange(n)) % n
        rows = np.arange(math.prod(shape[:-1]))[:, None, None] * n
        super().__init__(parents, shape, about, shape, (rows + turn).reshape(-1, n))

    def cut(self, parents: Any, shape: Shape, x: Shape, table: Array, windows: Array) -> Windowed:
        part = Softmax(parents, (1, 1), self.about)
        Windowed.__init__(part, parents, shape, self.about, x, table)
        return part

    def value(self, *inputs: Array) -> Array:
        cells = self.gather(inputs[0], 0.0)
        return self._shares(inputs[0], cells[..., :1], cells[..., 1:])

    def ends(self, lo: Array, hi: Array) -> tuple[Array, Array]:
        low, high = self.gather(lo, 0.0), self.gather(hi, 0.0)
        return (
            self._shares(lo, low[..., :1], high[..., 1:]),
            self._shares(lo, high[..., :1], low[..., 1:]),
        )

    def _shares(self, x: Array, own: Array, others: Array) -> Array:
        with np.errstate(over="ignore"):
            total = 1 + np.exp(others - own).sum(axis=-1)
        return np.asarray((1 / total).reshape(*x.shape[: x.ndim - len(self.x)], *self.shape))


def table_of(op: Pooling, shape: Shape) -> Array:
    """The flat cells that each output of a pooling reads, `(windows, cells)`, −1 where none is."""
    lengths = shape[len(shape) - op.rank :]
    table = np.zeros((1, 1), np.int64)
    for region, n in zip(op.regions, lengths, strict=True):
        rows = region.table(n, 0, region.out_length(n))
        start, stop, step = rows[:, 0], rows[:, 1], np.maximum(rows[:, 2], 1)
        taps = np.arange(int((-((start - stop) // step)).max(initial=1)))
        axis = start[:, None] + taps * step[:, None]
        axis = np.where(axis < stop[:, None], axis, -1)
        whole = table[:, None, :, None] * n + axis[None, :, None, :]
        missing = (table[:, None, :, None] < 0) | (axis[None, :, None, :] < 0)
        table = np.where(missing, -1, whole).reshape(len(table) * len(axis), -1)
    items, cells = math.prod(shape[: len(shape) - op.rank]), math.prod(lengths)
    offsets = np.arange(items)[:, None, None] * cells
    return np.where(table >= 0, table + offsets, -1).reshape(items * len(table), table.shape[1])


def counted_padding(op: Pooling, shape: Shape) -> Array:
    """How many cells of each window are padding that counts."""
    counted, real = np.ones(1, np.int64), np.ones(1, np.int64)
    for region, n in zip(op.regions, shape[len(shape) - op.rank :], strict=True):
        windows = [region.window(n, i) for i in range(region.out_length(n))]
        counted = np.multiply.outer(counted, [w.counted for w in windows]).reshape(-1)
        real = np.multiply.outer(real, [w.real for w in windows]).reshape(-1)
    return np.tile(counted - real, math.prod(shape[: len(shape) - op.rank]))
