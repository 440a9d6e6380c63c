"""Values to try: plain ones, and those that break implementations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lunette.check.calls import Array

__all__ = ["FILLS", "LAYOUTS", "dtype_of", "fill", "fills_for", "in_layout"]

LAYOUTS = ("contiguous", "strided", "offset", "transposed", "channels last", "negative")
"""How x lies in memory: row-major; every second cell; from the second cell on; the axes in the
opposite order; the second axis innermost; the last axis backwards."""


def dtype_of(name: str) -> np.dtype[Any]:
    """The dtype of this name, bfloat16 among them."""
    if name == "bfloat16":
        import ml_dtypes

        name = ml_dtypes.bfloat16
    found: np.dtype[Any] = np.dtype(name)
    return found


def _random(shape: Any, dtype: np.dtype[Any], rng: np.random.Generator) -> Any:
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)
    if dtype.kind == "b":
        return rng.random(shape) < 0.3
    return rng.standard_normal(shape).astype(dtype)


def _ties(shape: Any, dtype: np.dtype[Any], rng: np.random.Generator) -> Any:
    return rng.integers(0, 2 if dtype.kind == "b" else 3, shape).astype(dtype)


def _equal(shape: Any, dtype: np.dtype[Any], rng: np.random.Generator) -> Any:
    return np.full(shape, rng.integers(0, 4), dtype)


def _negative(shape: Any, dtype: np.dtype[Any], rng: np.random.Generator) -> Any:
    if dtype.kind in "ub":
        return np.zeros(shape, dtype)
    return -rng.integers(1, 90, shape).astype(dtype)


def _place(shape: Any, x: Array, rng: np.random.Generator, rank: int, value: float) -> Array:
    """Put `value` at one place of each image, another in every image."""
    rows = x.reshape(-1, max(1, int(np.prod(shape[len(shape) - rank :], dtype=object))))
    if x.size:
        start = int(rng.integers(rows.shape[1]))
        for r in range(rows.shape[0]):
            rows[r, (start + r) % rows.shape[1]] = value
    return rows.reshape(shape)


def _some(x: Array, values: Any, rng: np.random.Generator, share: float) -> Array:
    chosen = np.asarray(rng.random(x.shape) < share)
    x[chosen] = rng.choice(np.asarray(values, np.float64), int(chosen.sum())).astype(x.dtype)
    return x


def _infinite(shape: Any, dtype: np.dtype[Any], rng: np.random.Generator) -> Any:
    share = float(rng.choice([0.2, 0.6, 1.0]))
    signs = [[-np.inf], [np.inf, -np.inf], [-np.inf]][int(rng.integers(3))]
    return _some(_random(shape, dtype, rng), signs, rng, share)


def _zeros(shape: Any, dtype: np.dtype[Any], rng: np.random.Generator) -> Any:
    return rng.choice([0.0, -0.0], shape).astype(dtype)


def _denormal(shape: Any, dtype: np.dtype[Any], rng: np.random.Generator) -> Any:
    tiny = {"float16": 2.0**-24, "bfloat16": 2.0**-133, "float32": 2.0**-149}
    return (rng.integers(-9, 10, shape) * tiny.get(dtype.name, 2.0**-1074)).astype(dtype)


def _huge(shape: Any, dtype: np.dtype[Any], rng: np.random.Generator) -> Any:
    import ml_dtypes

    largest = float(ml_dtypes.finfo(dtype).max)
    return (rng.choice([-1.0, -0.5, 0.25, 0.75, 1.0], shape) * largest).astype(dtype)


def _extremes(shape: Any, dtype: np.dtype[Any], rng: np.random.Generator) -> Any:
    if dtype.kind == "b":
        return _random(shape, dtype, rng)
    limits = np.iinfo(dtype)
    return rng.choice(np.array([limits.min, limits.max, 0, limits.max - 1], dtype), shape)


def _ramp(shape: Any, dtype: np.dtype[Any], rng: np.random.Generator) -> Any:
    """Ones and large even numbers: a sum in too short a type drops the ones."""
    return rng.choice([1.0, 2048.0 if dtype.name == "float16" else 256.0, 3.0], shape).astype(dtype)


Fill = Callable[[Any, np.dtype[Any], np.random.Generator], Any]

FILLS: dict[str, tuple[str, Fill]] = {
    "random": ("", _random),
    "ties": ("ties", _ties),
    "equal": ("ties", _equal),
    "negative": ("", _negative),
    "uneven": ("", _ramp),
    "NaN": ("NaN", _random),
    "all NaN": ("NaN", lambda s, d, r: np.full(s, np.nan, d)),
    "infinite": ("infinity", _infinite),
    "signed zeros": ("signed zeros", _zeros),
    "denormal": ("extremes", _denormal),
    "huge": ("extremes", _huge),
    "integer extremes": ("extremes", _extremes),
}
"""Name → the property it tests, and how to make it."""


def fill(
    name: str, shape: tuple[int, ...], dtype: np.dtype[Any], rng: np.random.Generator, rank: int
) -> Array:
    """An array of this shape, filled in this way; `rank` axes make an image."""
    x: Array = FILLS[name][1](shape, dtype, rng)
    return _place(shape, x, rng, rank, np.nan) if name == "NaN" else x


def fills_for(op: str, verb: str, dtype: np.dtype[Any]) -> list[tuple[str, float]]:
    """(name, weight) of the fills that say something for this call."""
    if dtype.kind in "iub":
        return [("random", 0.3), ("ties", 0.3), ("integer extremes", 0.25), ("negative", 0.15)]
    if op.startswith("conv"):
        plain = [("random", 0.6), ("ties", 0.2), ("uneven", 0.1)]
        # The weight's gradient of a transposed convolution multiplies x with padding: 0 · NaN.
        return plain if (op, verb) == ("conv-transpose", "vjp") else [*plain, ("NaN", 0.1)]
    plain = [("random", 0.22), ("ties", 0.17), ("equal", 0.06), ("negative", 0.1), ("NaN", 0.15)]
    if "smooth" in op:
        # Derivatives at infinities and overflows are limits that the specification leaves open.
        rare = [("signed zeros", 0.03), ("denormal", 0.03)]
        return [*plain, *rare, ("infinite", 0.1)] if verb == "forward" else [*plain[:4], *rare]
    rare = [("infinite", 0.1), ("signed zeros", 0.06), ("denormal", 0.05), ("huge", 0.05)]
    return [*plain, *rare, ("all NaN", 0.04), ("uneven", 0.08 if "mean" in op else 0.0)]


def in_layout(x: Array, layout: str) -> Array:
    """The same values, laid out in memory in this way."""
    if x.ndim == 0 or x.size == 0:
        return x
    if layout == "contiguous":
        return np.ascontiguousarray(x)
    if layout == "strided":
        base = np.zeros((*x.shape[:-1], 2 * x.shape[-1]), x.dtype)
        base[..., ::2] = x
        return base[..., ::2]
    if layout == "offset":
        base = np.zeros(x.size + 1, x.dtype)
        base[1:] = x.ravel()
        return base[1:].reshape(x.shape)
    if layout == "transposed":
        return np.ascontiguousarray(x.T).T
    if layout == "channels last":
        second = min(1, x.ndim - 1)
        return np.moveaxis(np.ascontiguousarray(np.moveaxis(x, second, -1)), -1, second)
    if layout == "negative":
        return np.ascontiguousarray(x[..., ::-1])[..., ::-1]
    raise ValueError(f"layout={layout!r}: expected one of {', '.join(LAYOUTS)}")
