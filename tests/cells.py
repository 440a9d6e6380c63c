"""Pooling another way: cells by coordinates, in plain Python, without regions, ops or spec."""

from fractions import Fraction
from itertools import product

import flint
import numpy as np


def windows(shape, kernel, stride, padding):
    """(output index, the input position or None of each of its cells), both in row-major order."""
    axes = list(zip(shape, kernel, stride, padding, strict=True))
    for out in product(*(range(0, n + 2 * p - k + 1, s) for n, k, s, p in axes)):
        cells = []
        for win in product(*map(range, kernel)):
            place = tuple(o + w - p for o, w, p in zip(out, win, padding, strict=True))
            inside = all(0 <= i < n for i, n in zip(place, shape, strict=True))
            cells.append(place if inside else None)
        yield tuple(o // s for o, s in zip(out, stride, strict=True)), cells


def gather(value, shape, geometry):
    """The array of `value(cells)` over all outputs."""
    table = {out: value(cells) for out, cells in windows(shape, *geometry)}
    result = np.empty([i + 1 for i in max(table)], object)
    for out, v in table.items():
        result[out] = v
    return result


def scatter(weights, grad, shape, geometry):
    """The gradient that `weights(cells)`, a weight for each position, sends back."""
    result = np.full(shape, grad.flat[0] * 0, object)
    for out, cells in windows(shape, *geometry):
        for place, weight in weights(cells).items():
            result[place] = result[place] + weight * grad[out]
    return result


def real(cells):
    return [place for place in cells if place is not None]


def max_weights(x):
    """Python's max keeps the first of equals."""
    return lambda cells: {max(real(cells), key=x.__getitem__): 1} if real(cells) else {}


def avg_weights(cells):
    return {place: Fraction(1, len(cells)) for place in real(cells)}


def exponentials(x, beta, cells):
    return [(flint.arb(0) if c is None else x[c] * beta).exp() for c in cells]


def smooth_weights(x, beta):
    def weights(cells):
        terms = exponentials(x, beta, cells)
        total = sum(terms, flint.arb(0))
        return {c: e / total for c, e in zip(cells, terms, strict=True) if c is not None}

    return weights


def max_of(x, geometry):
    return gather(lambda c: max((x[p] for p in real(c)), default=Fraction(0)), x.shape, geometry)


def avg_of(x, geometry):
    return gather(lambda c: sum((x[p] for p in real(c)), Fraction(0)) / len(c), x.shape, geometry)


def smooth_of(x, beta, geometry):
    def value(cells):
        return sum(exponentials(x, beta, cells), flint.arb(0)).log() / beta

    return gather(value, x.shape, geometry)


def push(weights, dx, geometry):
    """The derivative along dx of a window's value with these weights."""
    zero = dx.flat[0] * 0
    return gather(
        lambda c: sum((w * dx[p] for p, w in weights(c).items()), zero), dx.shape, geometry
    )


def channels(f, *arrays):
    """`f` channel by channel."""
    return np.stack([f(*parts) for parts in zip(*arrays, strict=True)])


# -- samples: few values, so that there are ties; thirds, so that no float could do --


def sample(shape, seed):
    numbers = np.random.default_rng(seed).integers(-3, 4, shape)
    out = np.empty(shape, object)
    for i, v in np.ndenumerate(numbers):
        out[i] = Fraction(int(v), 3)
    return out


def balls(x):
    out = np.empty(x.shape, object)
    for i, v in np.ndenumerate(x):
        out[i] = flint.arb(flint.fmpq(v.numerator, v.denominator))
    return out


def fractions(values):
    """Nested lists of numbers as an object array of Fractions."""
    x = np.asarray(values, object)
    out = np.empty(x.shape, object)
    for i, v in np.ndenumerate(x):
        out[i] = Fraction(v)
    return out
