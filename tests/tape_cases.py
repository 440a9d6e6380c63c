"""Small programs, one for every rule and op of a tape: shared by the tests of the laws."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

import lunette as ln


def exact(*numbers):
    """An array of Fractions."""
    return np.array([Fraction(n) for n in numbers], object)


class Case(NamedTuple):
    """A program `program(tape, *ids)` over leaves of these shapes."""

    name: str
    program: Any
    shapes: tuple[tuple[int, ...], ...]
    rational: bool = True
    positive: bool = False


LABELS = np.array([2, 0, 1, 2])

CASES = [
    Case("add", lambda t, a, b: t.add(a, b), ((2, 3), (2, 3))),
    Case("add, stretched", lambda t, a, b: a + b, ((2, 1, 3), (4, 1))),
    Case("add, twice the same", lambda t, a: a + a, ((3,),)),
    Case("sub", lambda t, a, b: t.sub(a, b), ((2, 3), (3,))),
    Case("mul", lambda t, a, b: t.mul(a, b), ((2, 3), (2, 1))),
    Case("mul, twice the same", lambda t, a: a * a * a, ((3,),)),
    Case("mul, by a scalar", lambda t, a, b: a * b, ((2, 3), ())),
    Case("div", lambda t, a, b: t.div(a, b), ((2, 3), (3,)), positive=True),
    Case("neg", lambda t, a: t.neg(a) * a, ((2, 3),)),
    Case("numbers", lambda t, a: (2 * a - 0.5) / 4 + (1 - a) * a, ((4,),)),
    Case("matmul", lambda t, a, b: t.matmul(a, b), ((2, 3), (3, 4))),
    Case("matmul, batches stretched", lambda t, a, b: a @ b, ((5, 1, 2, 3), (4, 3, 2))),
    Case("matmul, row by matrix", lambda t, a, b: a @ b, ((3,), (2, 3, 2))),
    Case("matmul, matrix by column", lambda t, a, b: a @ b, ((2, 2, 3), (3,))),
    Case("matmul, inner product", lambda t, a, b: a @ b, ((3,), (3,))),
    Case("linear", lambda t, x, w, b: t.linear(x, w, b), ((2, 2, 3), (4, 3), (4,))),
    Case("linear, no bias", lambda t, x, w: t.linear(x, w), ((3,), (4, 3))),
    Case("relu", lambda t, a: t.relu(a) * a, ((3, 4),)),
    Case("tanh", lambda t, a: t.tanh(a), ((3, 2),), rational=False),
    Case("sigmoid", lambda t, a: t.sigmoid(a), ((3, 2),), rational=False),
    Case("exp", lambda t, a: t.exp(a), ((3, 2),), rational=False),
    Case("log", lambda t, a: t.log(a), ((3, 2),), rational=False, positive=True),
    Case("sign", lambda t, a: t.sign(a) * a, ((3, 4),)),
    Case("maximum", lambda t, a, b: t.maximum(a, b) * a, ((3, 4), (3, 4))),
    Case("maximum, stretched", lambda t, a, b: t.maximum(a, b) * b, ((2, 1, 3), (4, 1))),
    Case("softmax", lambda t, a: t.softmax(a), ((2, 3),), rational=False),
    Case("take", lambda t, a: t.take(a * a, [[5, 0, 0], [3, 5, 1]]), ((2, 3),)),
    Case("sum", lambda t, a: t.sum(a * a), ((2, 3),)),
    Case("sum, axes", lambda t, a: t.sum(a * a, axis=(0, -1)), ((2, 3, 2),)),
    Case("sum, kept", lambda t, a: t.sum(a * a, axis=1, keepdims=True) * a, ((2, 3),)),
    Case("mean", lambda t, a: t.mean(a * a, axis=1), ((2, 3),)),
    Case("mean, all", lambda t, a: t.mean(a * a), ((2, 3),)),
    Case("reshape", lambda t, a: t.reshape(a, (3, -1)) * t.reshape(a, (3, 4)), ((2, 6),)),
    Case("flatten", lambda t, a: t.flatten(a) * 2, ((2, 3, 2),)),
    Case("transpose", lambda t, a: t.transpose(a, (1, 2, 0)) * 3, ((2, 3, 4),)),
    Case("transpose, all", lambda t, a: t.transpose(a) @ a, ((2, 3),)),
    Case(
        "concatenate",
        lambda t, a, b: t.concatenate([a, b, a * a], axis=-1),
        ((2, 1), (2, 3)),
    ),
    Case("mse", lambda t, a, b: t.mse(a, b), ((2, 3), (2, 3))),
    Case(
        "softmax_cross_entropy, labels",
        lambda t, z: t.softmax_cross_entropy(z, LABELS),
        ((4, 3),),
        rational=False,
    ),
    Case(
        "softmax_cross_entropy, probabilities",
        lambda t, z, p: t.softmax_cross_entropy(z, p),
        ((2, 3), (2, 3)),
        rational=False,
        positive=True,
    ),
    Case(
        "conv", lambda t, k, b, x: t.conv(k, b, x, stride=2, padding=1), ((2, 2, 3), (2,), (2, 5))
    ),
    Case(
        "conv, groups and dilation",
        lambda t, k, x: t.conv(k, None, x, dilation=2, groups=2),
        ((2, 1, 2, 2), (2, 2, 3, 4)),
    ),
    Case(
        "conv2d",
        lambda t, k, b, x: t.conv2d(k, b, x, stride=1, padding=1),
        ((2, 1, 2, 2), (2,), (1, 3, 3)),
    ),
    Case(
        "conv_transpose",
        lambda t, k, b, x: t.conv_transpose(k, b, x, stride=2, padding=1),
        ((2, 1, 3), (1,), (2, 2, 3)),
    ),
    Case(
        "conv_transpose2d",
        lambda t, k, b, x: t.conv_transpose2d(k, b, x, stride=2, padding=0),
        ((1, 2, 2, 2), (2,), (1, 2, 2)),
    ),
    Case(
        "max_pool",
        lambda t, x: t.max_pool(x * x, kernel=(2, 2), stride=1, padding=1),
        ((2, 3, 3),),
    ),
    Case(
        "avg_pool",
        lambda t, x: t.avg_pool(x * x, kernel=(3,), stride=2, padding=1),
        ((2, 5),),
    ),
    Case(
        "smooth_max_pool",
        lambda t, x: t.smooth_max_pool(x * x, -2.0, kernel=(2, 2), stride=1, padding=1),
        ((2, 3, 3),),
        rational=False,
    ),
    Case("max_pool2d", lambda t, x: t.max_pool2d(x * x, kernel=(2, 2), stride=2), ((1, 4, 4),)),
    Case(
        "max_pool2d_pad",
        lambda t, x: t.max_pool2d_pad(x * x, kernel=(3, 3), stride=2, padding=1),
        ((1, 4, 4),),
    ),
    Case(
        "smooth_max_pool2d",
        lambda t, x: t.smooth_max_pool2d(x, 3.0, kernel=(2, 2), stride=1),
        ((1, 3, 3),),
        rational=False,
    ),
    Case("avg_pool2d", lambda t, x: t.avg_pool2d(x * x, kernel=(2, 2), stride=2), ((1, 4, 4),)),
    Case(
        "avg_pool2d_pad",
        lambda t, x: t.avg_pool2d_pad(x * x, kernel=(2, 2), stride=1, padding=1),
        ((1, 3, 3),),
    ),
    Case("apply", lambda t, x: t.apply(ln.GlobalAvgPool(2), x * x), ((2, 2, 3),)),
    Case(
        "a network",
        lambda t, x, k, b, w, c, target: t.mse(
            t.linear(
                t.flatten(
                    t.max_pool(t.relu(t.conv(k, b, x, padding=1)), kernel=(2, 2), stride=2),
                ),
                w,
                c,
            ),
            target,
        ),
        ((2, 1, 4, 4), (2, 1, 3, 3), (2,), (2, 8), (2,), (2, 2)),
    ),
]


def fractions(shape: tuple[int, ...], generator: Any, positive: bool = False) -> Any:
    """Distinct rationals in random order, apart from zero, so that no max ties."""
    size = int(np.prod(shape))
    numbers = generator.permutation(size) + 1
    signs = np.ones(size, int) if positive else generator.choice([-1, 1], size)
    out = np.empty(shape, object)
    for i, (n, s) in enumerate(zip(numbers, signs, strict=True)):
        out[np.unravel_index(i, shape)] = Fraction(int(s) * (3 * int(n) + 1), 2 * size + 3)
    return out


def values(case: Case, seed: int = 0) -> list[Any]:
    """Fractions for every leaf of a case."""
    generator = np.random.default_rng(seed)
    return [fractions(shape, generator, case.positive) for shape in case.shapes]


def converted(array: Any, convert: Any) -> Any:
    """An object array with a function of every element."""
    out = np.empty(array.shape, object)
    for i, v in np.ndenumerate(array):
        out[i] = convert(v)
    return out
