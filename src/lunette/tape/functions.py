"""The few array functions that rules are written with, for every kind of array.

NumPy's floats, object arrays of any number system, other libraries' arrays that use NumPy's names
(torch's tensors, for one), and each `DualArray` of those. Nothing here is chosen by a setting: the
array itself says which library computes.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from numbers import Real
from typing import Any

import numpy as np

from lunette.arguments import shown
from lunette.ops.base import is_float
from lunette.spec import scalars
from lunette.tape.duals import DualArray, pair, times

__all__ = [
    "array",
    "broadcast_to",
    "concatenate",
    "constant",
    "divide",
    "exp",
    "log",
    "log_sum_exp",
    "matmul",
    "one_hot",
    "pivot",
    "positive",
    "real",
    "relu",
    "reshape",
    "select",
    "sigmoid",
    "slice_of",
    "sum_axes",
    "sum_to",
    "tanh",
    "transpose",
    "zeros_like",
]

Shape = tuple[int, ...]


# -- what an array is --


def library(x: Any) -> Any:
    """The module with NumPy's names that serves this array."""
    if type(x) is np.ndarray:
        return np
    root = type(x).__module__.partition(".")[0]
    if root in ("jax", "jaxlib"):
        return import_module("jax.numpy")
    return np if root == "numpy" else sys.modules.get(root, np)


def is_object(x: Any) -> bool:
    """Whether the elements are Python objects: exact numbers, balls, intervals."""
    return isinstance(x, np.ndarray) and x.dtype.kind == "O"


@cache  # NumPy computes the name of a dtype anew each time, and every node asks
def is_differentiable(dtype: Any) -> bool:
    """Floats and objects have gradients; integers and bools have none."""
    if isinstance(dtype, np.dtype):
        return dtype.kind == "O" or is_float(dtype)
    return bool(getattr(dtype, "is_floating_point", False))


def real(x: Any) -> Any:
    """Integers and bools as floats, for what has no meaning among integers: NumPy's as float64."""
    if isinstance(x, DualArray):
        return x.map(real)
    if is_differentiable(x.dtype) or getattr(x.dtype, "is_complex", False):
        return x
    module = library(x)
    if hasattr(x, "is_floating_point"):  # torch
        return x.to(module.get_default_dtype())
    return x.astype(np.float64 if module is np else float)


def array(x: Any) -> Any:
    """The array itself; a bare number, as arithmetic of arrays without axes gives, as one."""
    if type(x) is np.ndarray or isinstance(x, DualArray):
        return x
    if isinstance(x, np.generic) or not hasattr(x, "shape"):
        return np.asarray(x) if isinstance(x, (np.generic, bool, int, float)) else _zero_d(x)
    return x


def _zero_d(element: Any) -> Any:
    out = np.empty((), object)
    out[()] = element
    return out


def constant(number: Any, like: Any) -> Any:
    """An array without axes that holds a number, in the number system and dtype of `like`."""
    like = primal_of(like)
    if is_object(like):
        system = scalars.of_array(like)
        if type(number) is int:
            return _zero_d(system.from_int(number))
        if isinstance(number, Real):
            return _zero_d(system.from_real(number))
        scalars.of_value(number)  # an element of the system itself; anything else is refused
        return _zero_d(number)
    if not isinstance(number, Real):
        raise TypeError(f"{shown(number)}: expected a real number")
    if not is_differentiable(like.dtype) and not isinstance(number, int):
        return np.asarray(number)
    if library(like) is np:
        return np.asarray(number, like.dtype)
    return library(like).full_like(reshape(like, (-1,))[:1], number).reshape(())


def zeros_like(x: Any) -> Any:
    """Zeros of the array's shape, dtype and number system."""
    return constant_like(x, 0)


def constant_like(x: Any, number: int) -> Any:
    """An array of x's shape, dtype and number system, filled with an integer."""
    if isinstance(x, DualArray):
        return DualArray(constant_like(x.primal, number))
    if is_object(x):
        return scalars.filled(x.shape, scalars.of_array(x).from_int(number))
    return library(x).full_like(x, number)


def conform(x: Any, like: Any) -> Any:
    """A gradient or tangent in the dtype of its value, and among objects in its number system."""
    if isinstance(x, DualArray):
        return x.map(lambda a: conform(a, primal_of(like)))
    x = array(x)
    if is_object(like):
        x = x if is_object(x) else x.astype(object)
        if any(type(v) is int for v in x.flat):  # empty sums give bare zeros
            system = scalars.of_array(like)
            out = np.empty(x.shape, object)
            for i, v in np.ndenumerate(x):
                out[i] = system.from_int(v) if type(v) is int else v
            return out
        return x
    if x.dtype == like.dtype:
        return x
    return x.astype(like.dtype) if hasattr(x, "astype") else x.to(like.dtype)


def primal_of(x: Any) -> Any:
    """The array below a dual, or the array itself."""
    return x.primal if isinstance(x, DualArray) else x


def owned(arrays: list[Any], others: list[Any]) -> list[Any]:
    """The arrays, copied where one is a view, is there twice, or is one of the others."""
    seen, results = {id(x) for x in others}, []
    for x in arrays:
        view = not (x.flags.owndata and x.flags.writeable) if isinstance(x, np.ndarray) else True
        results.append(copy(x) if view or id(x) in seen else x)
        seen.add(id(x))
    return results


def copy(x: Any) -> Any:
    """The same elements in memory of their own."""
    return x.clone() if hasattr(x, "clone") else x.copy()


# -- shapes --


def reshape(x: Any, shape: Shape) -> Any:
    """The same elements in row-major order."""
    if isinstance(x, DualArray):
        return x.map(lambda a: reshape(a, shape))
    return array(x).reshape(shape)


def broadcast_to(x: Any, shape: Shape) -> Any:
    """The array stretched to a shape, as NumPy stretches operands."""
    if isinstance(x, DualArray):
        return x.map(lambda a: broadcast_to(a, shape))
    x = array(x)
    return x if tuple(x.shape) == tuple(shape) else library(x).broadcast_to(x, shape)


def sum_axes(x: Any, axis: Shape, keepdims: bool = False) -> Any:
    """The sum over some axes; over none, the array itself."""
    if isinstance(x, DualArray):
        return x.map(lambda a: sum_axes(a, axis, keepdims))
    x = array(x)
    if not axis:
        return x
    total = library(x).sum(x, axis=tuple(axis), keepdims=keepdims)
    return _objects(total, x) if is_object(x) else array(total)


def sum_to(x: Any, shape: Shape) -> Any:
    """The adjoint of `broadcast_to`: sums over the axes that were stretched."""
    if tuple(x.shape) == tuple(shape):
        return x
    extra = len(x.shape) - len(shape)
    axes = tuple(range(extra)) + tuple(
        extra + i for i, n in enumerate(shape) if n == 1 and x.shape[extra + i] != 1
    )
    return reshape(sum_axes(x, axes, keepdims=True), shape)


def transpose(x: Any, axes: Shape) -> Any:
    """The axes in another order."""
    if isinstance(x, DualArray):
        return x.map(lambda a: transpose(a, axes))
    module = library(x)
    return getattr(module, "permute", module.transpose)(x, tuple(axes))  # torch: permute


def swap_last(x: Any) -> Any:
    """Matrices transposed: the last two axes exchanged."""
    n = len(x.shape)
    return transpose(x, (*range(n - 2), n - 1, n - 2))


def concatenate(arrays: Sequence[Any], axis: int) -> Any:
    """Arrays end to end along an axis."""
    if any(isinstance(a, DualArray) for a in arrays):
        duals = [a if isinstance(a, DualArray) else DualArray(a) for a in arrays]
        primal = concatenate([a.primal for a in duals], axis)
        if all(a.tangent is None for a in duals):
            return DualArray(primal)
        tangents = [zeros_like(a.primal) if a.tangent is None else a.tangent for a in duals]
        return DualArray(primal, concatenate(tangents, axis))
    return library(arrays[0]).concatenate(list(arrays), axis=axis)


def slice_of(x: Any, axis: int, start: int, stop: int) -> Any:
    """Positions start … stop−1 of an axis."""
    if isinstance(x, DualArray):
        return x.map(lambda a: slice_of(a, axis, start, stop))
    return x[(slice(None),) * axis + (slice(start, stop),)]


# -- arithmetic --


def divide(x: Any, count: int) -> Any:
    """The array over a positive integer."""
    if isinstance(x, DualArray):
        return x.map(lambda a: divide(a, count))
    return array(x / constant(count, x)) if is_object(x) else array(x / count)


def matmul(a: Any, b: Any) -> Any:
    """The product of matrices on the last two axes; both have at least two."""
    if isinstance(a, DualArray) or isinstance(b, DualArray):
        a, b = (x if isinstance(x, DualArray) else DualArray(x) for x in (a, b))
        tangent = None if a.tangent is None else matmul(a.tangent, b.primal)
        if b.tangent is not None:
            other = matmul(a.primal, b.tangent)
            tangent = other if tangent is None else tangent + other
        return DualArray(matmul(a.primal, b.primal), tangent)
    product = library(a).matmul(a, b)
    return _objects(product, b if b.size else a) if is_object(a) else product


def exp(x: Any) -> Any:
    """e to the power x."""
    if isinstance(x, DualArray):
        power = exp(x.primal)
        return pair(power, times(x.tangent, power))
    return _each("exp", x) if is_object(x) else array(library(x).exp(real(x)))


def log(x: Any) -> Any:
    """The natural logarithm."""
    if isinstance(x, DualArray):
        return pair(log(x.primal), None if x.tangent is None else x.tangent / x.primal)
    return _each("log", x) if is_object(x) else array(library(x).log(real(x)))


def tanh(x: Any) -> Any:
    """The hyperbolic tangent; over number systems with no tanh, `1 − 2/(e²ˣ + 1)`."""
    if isinstance(x, DualArray):
        y = tanh(x.primal)
        return pair(y, None if x.tangent is None else x.tangent - x.tangent * y * y)
    if is_object(x):  # x stands once, so intervals and balls grow no wider than they must
        one, two = constant(1, x), constant(2, x)
        return array(one - two / (exp(array(x + x)) + one))
    return array(library(x).tanh(real(x)))


def sigmoid(x: Any) -> Any:
    """`1/(1 + e⁻ˣ)`, from `e^−|x|` for floats, so that nothing overflows."""
    if isinstance(x, DualArray):
        y = sigmoid(x.primal)
        return pair(y, None if x.tangent is None else x.tangent * y - x.tangent * y * y)
    if is_object(x):
        one = constant(1, x)
        return array(one / (one + exp(array(-x))))
    x = real(x)
    small = exp(-abs(x))
    return array(library(x).where(x >= 0, constant_like(small, 1), small) / (1 + small))


def positive(x: Any) -> Any:
    """Where x > 0, as bools. Numbers that may be either raise `Undecided`."""
    if isinstance(x, DualArray):
        return positive(x.primal)
    if is_object(x):
        system, zero = scalars.of_array(x), scalars.of_array(x).from_int(0)
        return np.array([system.greater(v, zero) for v in x.flat], bool).reshape(x.shape)
    return x > 0


def select(mask: Any, x: Any) -> Any:
    """x where the mask holds, zero elsewhere; an infinite x leaves no NaN behind."""
    if isinstance(x, DualArray):
        return x.map(lambda a: select(mask, a))
    if is_object(x):
        return np.where(mask, x, constant(0, x))
    return array(library(x).where(mask, x, 0))


def relu(x: Any) -> Any:
    """x where positive, else 0; NaN stays NaN, and an interval about 0 becomes its positive part."""
    if is_object(x):
        system = scalars.of_array(x)
        zero, out = system.from_int(0), np.empty(x.shape, object)
        for i, v in np.ndenumerate(x):
            out[i] = system.maximum(zero, v)
        return out
    module = library(x)
    return array(np.maximum(x, 0) if module is np else module.clip(x, 0, None))


def log_sum_exp(x: Any) -> Any:
    """`log Σ exp(x)` over the last axis, kept with length one, about a pivot: no overflow."""
    last = (len(x.shape) - 1,)
    if is_object(x) and (system := scalars.of_array(x)).by_ends:
        return _log_sum_exp_by_ends(system, x)
    x = real(x)
    middle = pivot(primal_of(x))
    return log(sum_axes(exp(x - middle), last, keepdims=True)) + middle


def _log_sum_exp_by_ends(system: Any, x: Any) -> Any:
    """It rises with every number, so that the ends of ranges give the ends of the result."""

    def value(row: list[Any]) -> Any:
        middle, total = system.pivot(row, largest=True), system.from_int(0)
        for v in row:
            total = total + system.exp(v - middle)
        return system.log(total) + middle

    out = np.empty((*x.shape[:-1], 1), object)
    for i in np.ndindex(x.shape[:-1]):
        out[(*i, 0)] = system.monotone(value, list(x[i]), [True] * x.shape[-1])
    return out


def pivot(x: Any) -> Any:
    """A finite number near the largest of the last axis, kept with length one."""
    if is_object(x):
        system, out = scalars.of_array(x), np.empty((*x.shape[:-1], 1), object)
        for i in np.ndindex(x.shape[:-1]):
            out[(*i, 0)] = system.pivot(list(x[i]), largest=True)
        return out
    module = library(x)
    best = module.amax(x, axis=-1, keepdims=True)
    return module.where(module.isfinite(best), best, 0)


def one_hot(labels: Any, classes: int) -> Any:
    """A last axis of bools, true at the label."""
    module = library(labels)
    places = module.arange(classes, device=labels.device)
    return labels[..., None] == places


def _objects(sums: Any, like: Any) -> Any:
    """An object array of sums; the sum of nothing, a bare 0, joins the number system of `like`."""
    return conform(sums if isinstance(sums, np.ndarray) else _zero_d(sums), like)


def _each(function: str, x: Any) -> Any:
    """A function of the elements' own number system; one it lacks raises by name."""
    out = np.empty(x.shape, object)
    apply = getattr(scalars.of_array(x), function)
    for i, v in np.ndenumerate(x):
        out[i] = apply(v)
    return out
