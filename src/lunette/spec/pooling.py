"""What pooling means: for each output, in row-major order, a reduction of its window's cells.

A reduction is two functions of the window: its value, and its *shares*. The derivative of the
value along dx is `(Σ share·dx) / divisor`, and its adjoint adds `share·(gy / divisor)` to the
gradient of each cell. Sums start from zero and fold left to right: that order is the meaning.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from lunette.memory import check_room
from lunette.ops.pooling import Pooling
from lunette.positions import unravel
from lunette.reductions import Max, Mean, Min, Mode, Reduction, RoundedMean, SmoothMax
from lunette.spec.scalars import Scalars, filled, lift, lift_all, lower, of_array

__all__ = ["forward", "forward_with_indices", "jvp", "unpool", "vjp"]

Array = np.ndarray[Any, Any]
Index = tuple[int, ...]

BYTES = 48
"""Of a number in the specification's arrays: an object, its place, and that of its window."""


class Cells(NamedTuple):
    """One window of one image: the values read, where they were read, and all cells counted."""

    values: list[Any]
    positions: list[Index]
    counted: int

    def counted_cells(self, count_include_pad: bool) -> int:
        return self.counted if count_include_pad else len(self.values)


# -- the verbs --


def forward(op: Pooling, operands: tuple[Array, ...]) -> Array:
    """The value of every window."""
    (x,) = operands
    numbers = lift(x, exact_integers=not isinstance(op.reduction, (Mean, SmoothMax)))
    out, scalars = _out(op, x), of_array(numbers)
    with np.errstate(all="ignore"):
        for place, _, cells in _windows(op, numbers):
            out[place] = value(op.reduction, scalars, cells)
    return _finish(op, x, out)


def forward_with_indices(op: Pooling, operands: tuple[Array, ...]) -> tuple[Array, Array]:
    """The value of every window, and its first winner's flat position in the pooled axes, or −1."""
    (x,) = operands
    numbers, scalars = lift(x), of_array(x)
    _check_room(_keepdims_shape(op, x))
    indices = np.full(_keepdims_shape(op, x), -1, np.int64)
    pooled = x.shape[x.ndim - op.rank :]
    for place, _, cells in _windows(op, numbers):
        if cells.values:
            position = cells.positions[winner(op.reduction, scalars, cells.values)]
            indices[place] = np.ravel_multi_index(position, pooled)
    return forward(op, operands), indices.reshape(op.out_shape(x.shape))


def jvp(op: Pooling, operands: tuple[Array, ...], tangents: tuple[Array, ...]) -> Array:
    """The directional derivative of every window's value."""
    (x,), (dx,) = operands, tangents
    numbers, dx = lift_all({"x": x, "tangent of x": dx})
    out, scalars = _out(op, x), of_array(numbers)
    with np.errstate(all="ignore"):
        for place, batch, cells in _windows(op, numbers):
            total = scalars.from_int(0)
            terms, divisor = shares(op.reduction, scalars, cells)
            for cell, share in terms:
                total = total + share * dx[batch + cells.positions[cell]]
            out[place] = total / divisor
    return _finish(op, x, out)


def vjp(op: Pooling, operands: tuple[Array, ...], grad: Array) -> tuple[Array, ...]:
    """The gradient of every cell: the sum of what the windows that read it send back."""
    (x,) = operands
    numbers, grad = lift_all({"x": x, "gradient": grad})
    scalars, grad = of_array(numbers), grad.reshape(_keepdims_shape(op, x))
    _check_room(x.shape)
    out = filled(x.shape, scalars.from_int(0))
    with np.errstate(all="ignore"):
        for place, batch, cells in _windows(op, numbers):
            terms, divisor = shares(op.reduction, scalars, cells)
            for cell, share in terms:
                position = batch + cells.positions[cell]
                out[position] = out[position] + share * (grad[place] / divisor)
    return (lower(out, x.dtype),)


def unpool(values: Array, indices: Array, pooled_shape: Index) -> Array:
    """Zeros of `pooled_shape` with each value at its index; −1 goes nowhere, the last of equals wins."""
    rank = len(pooled_shape)
    batch = values.shape[: values.ndim - rank]
    values = lift(values) if values.dtype.kind == "O" else values
    out = filled(batch + pooled_shape, of_array(values).from_int(0), values.dtype)
    for place in np.ndindex(values.shape):
        if indices[place] >= 0:
            out[place[: len(batch)] + unravel(indices[place], pooled_shape)] = values[place]
    return out


# -- the reductions: a value, and shares of the derivative --


def value(reduction: Reduction, scalars: Scalars, cells: Cells) -> Any:
    """What a window is worth; 0 where no cell counts."""
    zero = scalars.from_int(0)
    if isinstance(reduction, Max):
        if not cells.values:
            return zero
        best = cells.values[0]
        for v in cells.values[1:]:
            best = scalars.maximum(best, v)
        return best
    if isinstance(reduction, Min):
        return cells.values[winner(reduction, scalars, cells.values)] if cells.values else zero
    if isinstance(reduction, Mode):
        return mode(reduction, cells.values) if cells.values else zero
    assert isinstance(reduction, (Mean, RoundedMean, SmoothMax))
    count = cells.counted_cells(reduction.count_include_pad)
    if count == 0 or (isinstance(reduction, RoundedMean) and not cells.values):
        return zero  # of a rounded mean also however many cells of padding: its type may not hold their number
    if isinstance(reduction, RoundedMean):
        if isinstance(cells.values[0], np.integer):
            # Python rounds a Fraction half to even.
            return type(cells.values[0])(round(Fraction(sum(map(int, cells.values)), count)))
        reduction = Mean(reduction.count_include_pad)
    if isinstance(reduction, Mean):
        total = zero
        for v in cells.values:
            total = total + v
        return total / scalars.from_int(reduction.divisor_override or count)
    beta = scalars.from_real(reduction.beta)

    def smooth_max(values: list[Any]) -> Any:
        pivot, _, total = exponentials(reduction, scalars, cells._replace(values=values))
        return pivot + scalars.log(total) / beta

    return scalars.monotone(smooth_max, cells.values, [True] * len(cells.values))


def winner(reduction: Reduction, scalars: Scalars, values: list[Any]) -> int:
    """The first NaN, else the first of the largest; of a min, of the smallest."""
    if not isinstance(reduction, Min):
        return scalars.winner(values)
    best = 0
    for c, v in enumerate(values):
        if scalars.is_nan(values[best]):
            break
        if scalars.is_nan(v) or scalars.greater(values[best], v):
            best = c
    return best


def mode(reduction: Mode, values: list[Any]) -> Any:
    """The most frequent value: of several the smallest, or the first that was read."""
    votes = Counter(v for v in values if v != 0 or not reduction.sparse) or Counter(values)
    most = max(votes.values())
    tied = [v for v in votes if votes[v] == most]  # in the order in which they were first read
    return tied[0] if reduction.ties == "first" else min(tied)


def shares(reduction: Reduction, scalars: Scalars, cells: Cells) -> tuple[list[Any], Any]:
    """(cell, share) for each cell with a part in the derivative, and the divisor of them all."""
    one = scalars.from_int(1)
    if not cells.values:
        return [], one
    if isinstance(reduction, (Max, Min)):
        first = winner(reduction, scalars, cells.values)
        if reduction.ties == "first":
            return [(first, one)], one
        best = cells.values[first]
        tied = [c for c, v in enumerate(cells.values) if c == first or _equal(scalars, v, best)]
        divisor = scalars.from_int(len(tied)) if reduction.ties == "split" else one
        return [(c, one) for c in tied], divisor
    if isinstance(reduction, RoundedMean):
        reduction = Mean(reduction.count_include_pad)
    if isinstance(reduction, Mean):
        count = cells.counted_cells(reduction.count_include_pad)
        divisor = scalars.from_int(reduction.divisor_override or count)
        return [(c, one) for c in range(len(cells.values))], divisor
    assert isinstance(reduction, SmoothMax)
    if scalars.by_ends:
        return list(enumerate(softmax(reduction, scalars, cells))), one
    _, terms, total = exponentials(reduction, scalars, cells)
    return list(enumerate(terms)), total


def exponentials(
    reduction: SmoothMax, scalars: Scalars, cells: Cells
) -> tuple[Any, list[Any], Any]:
    """A pivot p, `exp(β(x − p))` of each cell, and their sum with the padding cells, which are 0."""
    beta, zero = scalars.from_real(reduction.beta), scalars.from_int(0)
    padding = cells.counted_cells(reduction.count_include_pad) - len(cells.values)
    pivot = scalars.pivot(cells.values + [zero] * bool(padding), largest=reduction.beta > 0)
    terms = [scalars.exp(beta * (v - pivot)) for v in cells.values]
    total = zero
    for t in terms:
        total = total + t
    if padding:
        total = total + scalars.from_int(padding) * scalars.exp(beta * (zero - pivot))
    return pivot, terms, total


def softmax(reduction: SmoothMax, scalars: Scalars, cells: Cells) -> list[Any]:
    """The share of each cell, from the ends that make it least and largest.

    While β > 0 a share rises with its own cell and falls with every other; while β < 0 the other way.
    """

    def share(values: list[Any], cell: int) -> Any:
        _, terms, total = exponentials(reduction, scalars, cells._replace(values=values))
        return terms[cell] / total

    found = []
    for cell in range(len(cells.values)):
        rising = [(c == cell) == (reduction.beta > 0) for c in range(len(cells.values))]
        found.append(
            scalars.monotone(partial(share, cell=cell), cells.values, rising, within=(0, 1))
        )
    return found


def _equal(scalars: Scalars, a: Any, b: Any) -> bool:
    """A tie: NaN with NaN, −0 with +0, and neither of two numbers greater."""
    if scalars.is_nan(a) or scalars.is_nan(b):
        return scalars.is_nan(a) and scalars.is_nan(b)
    return not scalars.greater(a, b) and not scalars.greater(b, a)


# -- the walk over windows --


def _windows(op: Pooling, x: Array) -> Iterator[tuple[Index, Index, Cells]]:
    """(place in the output, batch index, cells) of every window, in row-major order."""
    batch_shape, pooled = x.shape[: x.ndim - op.rank], x.shape[x.ndim - op.rank :]
    if 0 in batch_shape:  # an axis may be longer than any list, where there is nothing to pool
        return
    axes = [
        [region.window(n, i) for i in range(region.out_length(n))]
        for region, n in zip(op.regions, pooled, strict=True)
    ]
    for batch in np.ndindex(batch_shape):
        for index in np.ndindex(*map(len, axes)):
            windows = [axis[i] for axis, i in zip(axes, index, strict=True)]
            positions = list(product(*(w.positions for w in windows)))
            values = [x[batch + p] for p in positions]
            yield (
                batch + index,
                batch,
                Cells(values, positions, math.prod(w.counted for w in windows)),
            )


def _keepdims_shape(op: Pooling, x: Array) -> Index:
    shape = op.out_shape(x.shape)
    return shape if op.keepdims else shape + (1,) * op.rank


def _out(op: Pooling, x: Array) -> Array:
    shape = _keepdims_shape(op, x)
    _check_room(shape)
    return np.empty(shape, object)


def _check_room(shape: Index) -> None:
    check_room(f"the result of shape {shape} in the specification", BYTES * math.prod(shape))


def _finish(op: Pooling, x: Array, out: Array) -> Array:
    return lower(out.reshape(op.out_shape(x.shape)), op.result_dtype(x.dtype))
