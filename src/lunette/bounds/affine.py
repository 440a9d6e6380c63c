"""Steps of a network that are affine in what goes in: sums of weights × cells, and a constant.

Each knows four things: its value, the same with magnitudes in place of numbers (`sizes`), how
coefficients of its result become coefficients of its operands (`pull`), and how many roundings
either can take. Arrays may have axes before those of the step: rows of coefficients, or points.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from lunette.bounds.box import Array
from lunette.dispatch import vjp
from lunette.ops.convolution import Convolution
from lunette.ops.pooling import Pooling
from lunette.reductions import Mean

__all__ = [
    "Affine",
    "Convolved",
    "Filled",
    "Joined",
    "Linear",
    "Matrix",
    "Moved",
    "Pooled",
    "Scaled",
    "Step",
    "Summed",
]

Shape = tuple[int, ...]


class Step:
    """One step of a network: what it reads, the shape of its result, and the tape's node."""

    title = "step"

    def __init__(self, parents: tuple[int, ...], shape: Shape, about: str) -> None:
        self.parents, self.shape, self.about = parents, tuple(shape), about

    @property
    def cells(self) -> int:
        """How many numbers the result has."""
        return math.prod(self.shape)

    def value(self, *inputs: Array) -> Array:
        """The result, in float64; any axes may stand before those of the step."""
        raise NotImplementedError


class Affine(Step):
    """A step with `Σ weight·cell + constant` for every number of its result."""

    exact = False
    """Whether it only moves numbers, with no arithmetic at all."""
    terms: Any = 1
    """The most products that one number of the result is a sum of."""
    readers = 1
    """The most numbers of the result that read one cell."""

    def spread(self, *inputs: Array) -> Array:
        """`Σ |weight|·cell`, of operands that are not negative."""
        raise NotImplementedError

    def sizes(self, *inputs: Array) -> Array:
        """`Σ |weight|·cell + |constant|`, of operands that are not negative."""
        result, constant = self.spread(*inputs), self.constant()
        return result if constant is None else result + np.abs(constant)

    def linear(self, *inputs: Array) -> Array:
        """The result without its constant."""
        raise NotImplementedError

    def constant(self) -> Array | None:
        """The constant, of a shape that stretches to the result's; None for zeros."""
        return None

    def pull(self, rows: Array) -> list[Array]:
        """Coefficients of each operand from coefficients `(rows, *shape)` of the result."""
        raise NotImplementedError

    def value(self, *inputs: Array) -> Array:
        result, constant = self.linear(*inputs), self.constant()
        return result if constant is None else result + constant


class Convolved(Affine):
    """A convolution or its transpose, by the op's own verbs."""

    title = "convolution"

    def __init__(
        self, parents: Any, shape: Shape, about: str, op: Convolution, x: Shape, weight: Array
    ) -> None:
        super().__init__(parents, shape, about)
        self.op, self.x, self.weight = op, x, weight
        self.bias: Array | None = None
        taps = math.prod(weight.shape[2:])
        own, other = weight.shape[1] * taps, weight.shape[0] // op.groups * taps
        self.terms, self.readers = (other, own) if op.transposed else (own, other)

    def linear(self, *inputs: Array) -> Array:
        return np.asarray(self.op(np.ascontiguousarray(inputs[0]), self.weight))

    def spread(self, *inputs: Array) -> Array:
        return np.asarray(self.op(np.ascontiguousarray(inputs[0]), np.abs(self.weight)))

    def constant(self) -> Array | None:
        return None if self.bias is None else self.bias.reshape(-1, *[1] * self.op.rank)

    def pull(self, rows: Array) -> list[Array]:
        x = np.zeros((len(rows), *self.x))
        grads = vjp(self.op, (x, self.weight), np.ascontiguousarray(rows), needs=(True, False))
        return [np.asarray(grads[0])]


class Pooled(Affine):
    """A mean of windows, by the op's own verbs."""

    title = "mean"

    def __init__(self, parents: Any, shape: Shape, about: str, op: Pooling, x: Shape) -> None:
        super().__init__(parents, shape, about)
        self.op, self.x = op, x
        lengths = x[len(x) - op.rank :]
        self.terms, self.readers = 1, 1
        for region, n in zip(op.regions, lengths, strict=True):
            table = region.table(n, 0, region.out_length(n))
            steps = np.maximum(table[:, 2], 1)
            self.terms *= int((-((table[:, 0] - table[:, 1]) // steps)).max(initial=1))
            self.readers *= len(table)

    def linear(self, *inputs: Array) -> Array:
        return np.asarray(self.op(np.ascontiguousarray(inputs[0])))

    def spread(self, *inputs: Array) -> Array:
        return self.linear(*inputs)

    def sums(self, *inputs: Array) -> Array:
        """The sums of the windows before they are divided."""
        from lunette.ops.pooling import Pool

        whole = Pool(self.op.regions, Mean(divisor_override=1), self.op.keepdims)
        return np.asarray(whole(np.ascontiguousarray(inputs[0])))

    def pull(self, rows: Array) -> list[Array]:
        return [np.asarray(self.op.vjp(np.zeros((len(rows), *self.x)), np.ascontiguousarray(rows)))]


class Linear(Affine):
    """`x weightᵀ + bias` on the last axis."""

    title = "linear"

    def __init__(
        self, parents: Any, shape: Shape, about: str, weight: Array, bias: Array | None
    ) -> None:
        super().__init__(parents, shape, about)
        self.weight, self.bias = weight, bias
        self.readers, self.terms = weight.shape

    def linear(self, *inputs: Array) -> Array:
        return np.asarray(inputs[0] @ self.weight.T)

    def spread(self, *inputs: Array) -> Array:
        return np.asarray(inputs[0] @ np.abs(self.weight).T)

    def constant(self) -> Array | None:
        return self.bias

    def pull(self, rows: Array) -> list[Array]:
        return [np.asarray(rows @ self.weight)]


class Matrix(Affine):
    """The product with a constant matrix, on the left or on the right of the operand.

    `x` is the operand's shape as a matrix: a row or a column where it has one axis.
    """

    title = "matmul"

    def __init__(
        self, parents: Any, shape: Shape, about: str, matrix: Array, x: Shape, left: bool
    ) -> None:
        super().__init__(parents, shape, about)
        self.left, self.given = left, x
        if left:
            self.matrix = matrix[None] if matrix.ndim == 1 else matrix
            self.x = (*x, 1) if len(x) == 1 else x
            ends = (self.matrix.shape[-2], self.x[-1])
        else:
            self.matrix = matrix[:, None] if matrix.ndim == 1 else matrix
            self.x = (1, *x) if len(x) == 1 else x
            ends = (self.x[-2], self.matrix.shape[-1])
        batch = np.broadcast_shapes(self.matrix.shape[:-2], self.x[:-2])
        self.full = (*batch, *ends)
        self.terms = self.matrix.shape[-1] if left else self.matrix.shape[-2]
        self.readers = max(1, math.prod(self.full) // max(1, math.prod(self.x[:-2])))

    def _product(self, matrix: Array, x: Array) -> Array:
        lead = x.shape[: x.ndim - len(self.given)]
        extra = (1,) * (len(self.full) - len(self.x))
        x = x.reshape(*lead, *extra, *self.x)
        return np.asarray(matrix @ x if self.left else x @ matrix).reshape(*lead, *self.shape)

    def linear(self, *inputs: Array) -> Array:
        return self._product(self.matrix, inputs[0])

    def spread(self, *inputs: Array) -> Array:
        return self._product(np.abs(self.matrix), inputs[0])

    def pull(self, rows: Array) -> list[Array]:
        grad = rows.reshape(len(rows), *self.full)
        turned = np.swapaxes(self.matrix, -1, -2)
        grad = turned @ grad if self.left else grad @ turned
        return [_summed_to(grad, self.x).reshape(len(rows), *self.given)]


class Scaled(Affine):
    """`x·scale + shift`, element by element, x stretched to the shape of the result."""

    title = "scale"

    def __init__(
        self,
        parents: Any,
        shape: Shape,
        about: str,
        x: Shape,
        scale: Any = 1.0,
        shift: Any = None,
        *,
        divisor: Any = None,
    ) -> None:
        super().__init__(parents, shape, about)
        self.x, self.scale, self.shift = x, np.asarray(scale, np.float64), shift
        self.divisor = divisor  # the scale is its reciprocal, rounded
        self.readers = max(1, self.cells // max(1, math.prod(x)))

    def _stretched(self, x: Array) -> Array:
        lead = x.shape[: x.ndim - len(self.x)]
        x = x.reshape(*lead, *(1,) * (len(self.shape) - len(self.x)), *self.x)
        return np.broadcast_to(x, (*lead, *self.shape))

    def linear(self, *inputs: Array) -> Array:
        return np.asarray(self._stretched(inputs[0]) * self.scale)

    def spread(self, *inputs: Array) -> Array:
        return np.asarray(self._stretched(inputs[0]) * np.abs(self.scale))

    def constant(self) -> Array | None:
        return None if self.shift is None else np.asarray(self.shift)

    def pull(self, rows: Array) -> list[Array]:
        return [_summed_to(rows * self.scale, self.x)]


class Joined(Affine):
    """The sum or the difference of two results, stretched to one shape."""

    title = "add"
    terms = 2

    def __init__(
        self, parents: Any, shape: Shape, about: str, shapes: tuple[Shape, Shape], sign: float
    ) -> None:
        super().__init__(parents, shape, about)
        self.sign = sign
        self.sides = [
            Scaled((), shape, about, x, s) for x, s in zip(shapes, (1.0, sign), strict=True)
        ]
        self.readers = max(side.readers for side in self.sides)

    def linear(self, *inputs: Array) -> Array:
        first, second = (s.linear(x) for s, x in zip(self.sides, inputs, strict=True))
        return np.asarray(first + second)

    def spread(self, *inputs: Array) -> Array:
        first, second = (s.spread(x) for s, x in zip(self.sides, inputs, strict=True))
        return np.asarray(first + second)

    def pull(self, rows: Array) -> list[Array]:
        return [side.pull(rows)[0] for side in self.sides]


class Summed(Affine):
    """Sums over some axes, over a divisor."""

    title = "sum"

    def __init__(
        self, parents: Any, shape: Shape, about: str, x: Shape, axes: Shape, divisor: int
    ) -> None:
        super().__init__(parents, shape, about)
        self.x, self.axes, self.divisor = x, tuple(i - len(x) for i in axes), divisor
        self.terms = math.prod(x[i] for i in axes)

    def sums(self, *inputs: Array) -> Array:
        """The sums before they are divided."""
        total = np.sum(inputs[0], axis=self.axes) if self.axes else inputs[0]
        lead = inputs[0].shape[: inputs[0].ndim - len(self.x)]
        return np.asarray(total).reshape(*lead, *self.shape)

    def linear(self, *inputs: Array) -> Array:
        return np.asarray(self.sums(*inputs) / self.divisor)

    def spread(self, *inputs: Array) -> Array:
        return self.linear(*inputs)

    def pull(self, rows: Array) -> list[Array]:
        kept = tuple(1 if i - len(self.x) in self.axes else n for i, n in enumerate(self.x))
        spread = (rows / self.divisor).reshape(len(rows), *kept)
        return [np.ascontiguousarray(np.broadcast_to(spread, (len(rows), *self.x)))]


class Moved(Affine):
    """The same numbers elsewhere: cell i of the result is cell `index[i]` of the operands in a row."""

    title = "move"
    exact = True

    def __init__(
        self, parents: Any, shape: Shape, about: str, shapes: list[Shape], index: Array
    ) -> None:
        super().__init__(parents, shape, about)
        self.shapes, self.index = shapes, index
        used = index[index >= 0]
        self.readers = int(np.bincount(used).max(initial=1)) if len(used) else 1

    def linear(self, *inputs: Array) -> Array:
        lead = inputs[0].shape[: inputs[0].ndim - len(self.shapes[0])]
        flat = [x.reshape(*lead, math.prod(s)) for x, s in zip(inputs, self.shapes, strict=True)]
        joined = flat[0] if len(flat) == 1 else np.concatenate(flat, axis=-1)
        return joined[..., self.index].reshape(*lead, *self.shape)

    def spread(self, *inputs: Array) -> Array:
        return self.linear(*inputs)

    def pull(self, rows: Array) -> list[Array]:
        counts = [math.prod(shape) for shape in self.shapes]
        joined = np.zeros((len(rows), sum(counts)))
        flat, held = rows.reshape(len(rows), self.cells), self.index >= 0
        if self.readers == 1:
            joined[:, self.index[held]] = flat[:, held]
        else:
            np.add.at(joined.T, self.index[held], flat[:, held].T)
        parts = np.split(joined, np.cumsum(counts)[:-1], axis=1)
        return [p.reshape(len(rows), *s) for p, s in zip(parts, self.shapes, strict=True)]


class Filled(Moved):
    """The same, with constants where the index is −1."""

    title = "fill"
    exact = False

    def __init__(
        self,
        parents: Any,
        shape: Shape,
        about: str,
        shapes: list[Shape],
        index: Array,
        fixed: Array,
    ) -> None:
        super().__init__(parents, shape, about, shapes, index)
        self.fixed = fixed  # 0 where a cell of an operand is

    def linear(self, *inputs: Array) -> Array:
        moved = super().linear(*inputs)
        return np.asarray(np.where((self.index >= 0).reshape(self.shape), moved, 0.0))

    def constant(self) -> Array | None:
        return self.fixed


def _summed_to(rows: Array, shape: Shape) -> Array:
    """Sums over the axes, after the first, along which a shape was stretched."""
    extra = rows.ndim - 1 - len(shape)
    axes = tuple(range(1, 1 + extra)) + tuple(
        1 + extra + i for i, n in enumerate(shape) if n == 1 and rows.shape[1 + extra + i] != 1
    )
    total = rows.sum(axis=axes, keepdims=True) if axes else rows
    return np.asarray(total).reshape(len(rows), *shape)
