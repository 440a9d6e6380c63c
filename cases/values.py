"""Inputs worth trying: special values for each dtype, and the same values in odd memory layouts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from cases.workloads import dtype_named

__all__ = [
    "DTYPES",
    "FLOATS",
    "INTEGERS",
    "KINDS",
    "at_every_position",
    "broadcasts",
    "filled",
    "kinds_of",
    "layouts",
    "specials_of",
    "with_care",
]

Array = np.ndarray[Any, Any]

FLOATS = ("float32", "float64", "float16", "bfloat16")
INTEGERS = (
    "bool",
    "int8",
    "uint8",
    "int16",
    "uint16",
    "int32",
    "uint32",
    "int64",
    "uint64",
)
DTYPES = FLOATS + INTEGERS

FLOAT_KINDS = (
    "random",
    "ties",
    "equal",
    "negative",
    "zeros",
    "nans",
    "infinities",
    "denormal",
    "huge",
)
INTEGER_KINDS = ("random", "ties", "equal", "extremes")
KINDS = (*FLOAT_KINDS, "extremes")


def kinds_of(dtype: str) -> tuple[str, ...]:
    """The kinds of values that a dtype can hold."""
    return FLOAT_KINDS if dtype in FLOATS else INTEGER_KINDS


def _limits(dtype: np.dtype[Any]) -> tuple[Any, Any]:
    """The smallest positive number of any kind, and the largest finite one."""
    if dtype.name == "bfloat16":
        import ml_dtypes

        info: Any = ml_dtypes.finfo(dtype)
    else:
        info = np.finfo(dtype)
    return info.smallest_subnormal, info.max


def filled(kind: str, shape: tuple[int, ...], dtype: str, seed: int = 0) -> Array:
    """An array of one kind of values; the same arguments give the same array."""
    rng = np.random.default_rng([seed, KINDS.index(kind), DTYPES.index(dtype)])
    target = dtype_named(dtype)
    if dtype in INTEGERS:
        return _integers(kind, shape, target, rng)
    normal = rng.standard_normal(shape)
    if kind == "random":
        return normal.astype(target)
    if kind == "ties":
        return rng.integers(-1, 2, shape).astype(target)
    if kind == "equal":
        return np.full(shape, 0.7, target)
    if kind == "negative":
        return (-1 - np.abs(normal)).astype(target)
    smallest, largest = _limits(target)
    if kind == "denormal":
        return np.asarray(
            rng.integers(-3, 4, shape).astype(target) * np.asarray(smallest, target), target
        )
    if kind == "huge":
        scale = rng.choice(np.array([-1.0, -0.75, -0.5, 0.5, 0.75, 1.0]), shape)
        return (scale.astype(target) * np.asarray(largest, target)).astype(target)
    choices = {
        "zeros": [0.0, -0.0],
        "nans": [np.nan, -0.0, 0.0, 1.0, -1.0, -np.inf],
        "infinities": [np.inf, -np.inf, 0.0, 1.0, -2.0],
    }[kind]
    return rng.choice(np.array(choices), shape).astype(target)


def _integers(
    kind: str, shape: tuple[int, ...], dtype: np.dtype[Any], rng: np.random.Generator
) -> Array:
    if dtype.kind == "b":
        return np.ones(shape, bool) if kind == "equal" else rng.integers(0, 2, shape).astype(bool)
    info = np.iinfo(dtype)
    if kind == "random":
        return rng.integers(info.min, info.max, shape, dtype, endpoint=True)
    if kind == "ties":
        return (rng.integers(0, 3, shape) - (dtype.kind == "i")).astype(dtype)
    if kind == "equal":
        return np.full(shape, info.min, dtype)
    ends = np.array([info.min, info.min + 1, info.max - 1, info.max], dtype)
    return rng.choice(ends, shape)


def specials_of(dtype: str) -> tuple[Any, ...]:
    """Single values that deserve a turn at every position of a window and of a vector register."""
    if dtype in FLOATS:
        return (np.nan, -0.0, 0.0, -np.inf, np.inf, 1.0)
    if dtype == "bool":
        return (False, True)
    info = np.iinfo(dtype)
    return (info.min, info.max)


def at_every_position(background: Array, value: Any) -> Array:
    """A batch of copies of `background`, each with `value` at another position."""
    flat = np.repeat(background.reshape(1, -1), background.size, axis=0)
    flat[np.arange(background.size), np.arange(background.size)] = value
    return flat.reshape(background.size, *background.shape)


def layouts(x: Array) -> Iterator[tuple[str, Array]]:
    """Arrays equal to `x`, bit for bit, in other memory layouts."""
    yield "contiguous", np.ascontiguousarray(x)
    yield "column major", np.asfortranarray(x)
    if x.ndim > 1:
        # The axis before the last moves innermost: the order of channels-last memory.
        inner = np.ascontiguousarray(np.moveaxis(x, -2, -1))
        yield "transposed", np.moveaxis(inner, -1, -2)
        first = np.ascontiguousarray(np.moveaxis(x, 0, -1))
        yield "batch innermost", np.moveaxis(first, -1, 0)
    reversed_ = np.ascontiguousarray(x[..., ::-1])
    yield "negative last stride", reversed_[..., ::-1]
    everywhere = (slice(None, None, -1),) * x.ndim
    yield "negative strides", np.ascontiguousarray(x[everywhere])[everywhere]
    wide = np.repeat(x, 2, axis=-1)
    yield "every other element", wide[..., ::2]
    framed = np.zeros(tuple(n + 3 for n in x.shape), x.dtype)
    inside = tuple(slice(1, 1 + n) for n in x.shape)
    framed[inside] = x
    yield "inside a frame", framed[inside]
    raw = np.zeros(x.nbytes + 1, np.uint8)
    unaligned = raw[1:].view(x.dtype).reshape(x.shape) if x.size else x
    unaligned[...] = x
    yield "unaligned", unaligned
    frozen = x.copy()
    frozen.flags.writeable = False
    yield "read-only", frozen


def broadcasts(x: Array) -> Iterator[tuple[str, Array]]:
    """Views of `x` with strides of zero: a repeated batch, and each axis repeated from its first."""
    yield "repeated batch", np.broadcast_to(x, (3, *x.shape))
    for axis in range(x.ndim):
        first = np.take(x, [0], axis=axis)
        yield f"repeated axis {axis}", np.broadcast_to(first, x.shape)


def with_care(shape: tuple[int, ...], dtype: str) -> Iterator[tuple[str, Array]]:
    """Arrays of every kind; of floats one NaN among numbers, too, and zeros of both signs among them."""
    for kind in kinds_of(dtype):
        yield kind, filled(kind, shape, dtype)
    if dtype in FLOATS:
        x = filled("random", shape, dtype)
        x[0, -1].flat[-1] = np.nan
        yield "one NaN", x
        x = filled("zeros", shape, dtype)
        x[filled("ties", shape, dtype) < 0] = -1
        yield "some zeros", x
