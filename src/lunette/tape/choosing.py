"""Rules that choose: elements by position, the larger of two, the sign, and softmax."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from lunette.arguments import shown
from lunette.spec import scalars
from lunette.tape import functions as fn
from lunette.tape.duals import DualArray
from lunette.tape.rules import RULES, Rule, elementwise

__all__ = ["maximum", "put_sum", "sign", "take"]

Shape = tuple[int, ...]


# -- elements by position --


def take_shape(x: Shape, index: Any) -> Shape:
    if not isinstance(index, np.ndarray) or index.dtype != np.int64:
        raise TypeError(f"index={shown(index)}: expected a NumPy array of int64")
    count = math.prod(x)
    if index.size and not (index.min() >= 0 and index.max() < count):
        raise ValueError(
            f"index holds positions {index.min()} … {index.max()}; expected 0 … {count - 1}, "
            f"for the {count} elements of {x}"
        )
    return tuple(index.shape)


def take(x: Any, index: Any) -> Any:
    """The elements at these positions of row-major order, in the shape of `index`."""
    if isinstance(x, DualArray):
        return x.map(lambda a: take(a, index))
    flat = fn.reshape(x, (-1,))
    return fn.array(flat[index] if fn.library(x) is np else flat[index.reshape(-1)]).reshape(
        index.shape
    )


def put_sum(g: Any, index: Any, shape: Shape) -> Any:
    """The adjoint of `take`: each element added at its position of an array of zeros."""
    if isinstance(g, DualArray):
        return g.map(lambda a: put_sum(a, index, shape))
    module, flat = fn.library(g), fn.reshape(g, (-1,))
    places, count = index.reshape(-1), math.prod(shape)
    if module is np:
        if fn.is_object(g):
            out = np.full(count, fn.constant(0, g)[()] if g.size else 0, object)
        else:
            out = np.zeros(count, g.dtype)
        np.add.at(out, places, flat)
        return out.reshape(shape)
    zeros = module.zeros(count, dtype=g.dtype, device=g.device)
    if hasattr(zeros, "index_put"):  # torch
        return zeros.index_put((module.asarray(places, device=g.device),), flat, True).reshape(
            shape
        )
    return zeros.at[places].add(flat).reshape(shape)


RULES["take"] = Rule(
    take_shape,
    take,
    jvp=lambda t, out, x, index: take(t, index),
    vjp=lambda g, out, x, index: put_sum(g, index, tuple(x.shape)),
)


# -- the larger of two; the first of equals wins, and a NaN before any number --


def maximum(a: Any, b: Any) -> Any:
    """The larger, element by element; an interval holds every maximum of its points."""
    if fn.is_object(a) or fn.is_object(b):
        a, b = np.broadcast_arrays(a, b)
        if not a.size:
            return a.copy()
        system, out = scalars.of_array(a), np.empty(a.shape, object)
        for i, v in np.ndenumerate(a):
            out[i] = system.maximum(v, b[i])
        return out
    return fn.array(fn.library(a).maximum(a, b))


def _second(a: Any, b: Any) -> Any:
    """Where the second operand is the larger, as bools. Overlapping numbers raise `Undecided`."""
    a, b = fn.primal_of(a), fn.primal_of(b)
    if fn.is_object(a) or fn.is_object(b):
        a, b = np.broadcast_arrays(a, b)
        system = scalars.of_array(a) if a.size else None
        wins = [system.greater(v, u) for u, v in zip(a.flat, b.flat, strict=True)] if system else []
        return np.array(wins, bool).reshape(a.shape)
    nan = fn.library(a).isnan
    return (b > a) | (nan(b) & ~nan(a))


RULES["maximum"] = elementwise(
    maximum,
    jvp=(
        lambda t, out, a, b: fn.select(~_second(a, b), t),
        lambda t, out, a, b: fn.select(_second(a, b), t),
    ),
    vjp=(
        lambda g, out, a, b: fn.select(~_second(a, b), g),
        lambda g, out, a, b: fn.select(_second(a, b), g),
    ),
)


# -- the sign: −1, 0 or 1. It is constant but at 0, and its derivative there is taken as 0 too --


def sign(x: Any) -> Any:
    """−1, 0 or 1; NaN stays NaN, and an interval about 0 becomes all signs of its points."""
    if fn.is_object(x):
        system, out = scalars.of_array(x), np.empty(x.shape, object)
        for i, v in np.ndenumerate(x):
            out[i] = system.sign(v)
        return out
    module, above = fn.library(x), x > 0
    if getattr(x.dtype, "kind", "") in ("u", "b"):  # which hold no −1
        return fn.array(module.where(above, fn.constant_like(x, 1), fn.constant_like(x, 0)))
    signs = module.where(
        above, fn.constant_like(x, 1), module.where(x < 0, fn.constant_like(x, -1), x)
    )
    return fn.array(signs + fn.constant_like(x, 0))  # −0 + 0 is 0


RULES["sign"] = elementwise(
    sign,
    jvp=lambda t, out, x: fn.zeros_like(t),
    vjp=lambda g, out, x: fn.zeros_like(g),
)


# -- softmax of the last axis --


def softmax_shape(x: Shape) -> Shape:
    if not x or x[-1] == 0:
        raise ValueError(f"x of shape {x}: expected a last axis of at least one element")
    return x


def _softmax(x: Any) -> Any:
    x = fn.real(x)
    powers = fn.exp(fn.array(x - fn.pivot(x)))
    return fn.array(powers / _total(powers))


def _total(x: Any) -> Any:
    return fn.sum_axes(x, (len(x.shape) - 1,), keepdims=True)


RULES["softmax"] = Rule(
    softmax_shape,
    _softmax,
    jvp=lambda t, out, x: out * t - out * _total(out * t),
    vjp=lambda g, out, x: out * g - out * _total(out * g),
)
