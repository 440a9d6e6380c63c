"""How far the kernels' exp and log lie from the exact values, and how half types round."""

from __future__ import annotations

from functools import cache
from typing import Any

import flint
import numpy as np

import lunette as ln
from cases.agreement import differing_bits, run
from cases.workloads import dtype_named

__all__ = ["arguments", "half_rounding_disagreements", "worst_error"]

Array = np.ndarray[Any, Any]


@cache
def _loop(name: str) -> Any:
    """A compiled loop over one of the kernels' functions, as kernels call it."""
    import numba

    from lunette.kernels.cpu.simd import scalar_math

    if name in VECTORS:
        return _vector_loop(name)
    function = getattr(scalar_math, name)

    @numba.njit(error_model="numpy")  # type: ignore[untyped-decorator]
    def apply(x: Any, y: Any) -> None:
        for i in range(x.size):
            y[i] = function(x[i])

    return apply


VECTORS = {
    "exp_down_32": "exp_down",
    "exp_down_64": "exp_down",
    "log_up_32": "log_up",
    "log_up_64": "log_up",
    "exp_power_32": "exp_scaled",
    "exp_power_64": "exp_scaled",
}
"""Functions of whole vectors, by the name and the width of their numbers."""


def _vector_loop(name: str) -> Any:
    """A compiled loop over a function of vectors; arrays have room for a vector more."""
    import numba
    from numba import types

    from lunette.kernels.cpu.jit.intrinsics import pointer
    from lunette.kernels.cpu.micro.exp_scaled import exp_scaled, scales_of
    from lunette.kernels.cpu.simd import vec_math
    from lunette.kernels.cpu.simd.vec import vec

    number = types.float32 if name.endswith("32") else types.float64
    here, scales = vec(number, number, ""), scales_of(number)
    width, load, store, broadcast = here.width, here.load, here.store, here.broadcast
    function = getattr(vec_math, VECTORS[name], None)

    @numba.njit(error_model="numpy")  # type: ignore[untyped-decorator]
    def apply(x_at: Any, y_at: Any, size: Any) -> None:
        x, y = pointer(x_at, number), pointer(y_at, number)
        for i in range(0, size, width):
            store(y, i, function(load(x, i)))

    @numba.njit(error_model="numpy")  # type: ignore[untyped-decorator]
    def apply_power(x_at: Any, y_at: Any, size: Any) -> None:
        x, y = pointer(x_at, number), pointer(y_at, number)
        rate, rest, limit, _, _ = scales(number(1))
        none = broadcast(number(0))
        for i in range(0, size, width):
            value = exp_scaled(load(x, i), broadcast(rate), broadcast(rest), broadcast(limit), none)
            store(y, i, value)

    apply = apply_power if function is None else apply

    def padded(x: Any, y: Any) -> None:
        room = -(-x.size // width) * width
        source, target = np.ones(room, x.dtype), np.empty(room, x.dtype)
        source[: x.size] = x
        apply(source.ctypes.data, target.ctypes.data, x.size)
        y[...] = target[: x.size]

    return padded


def arguments(name: str, count: int, seed: int = 0) -> Array:
    """Arguments with normal results: spread over the whole range, and dense where kernels look."""
    rng = np.random.default_rng(seed)
    dtype = np.float32 if name.endswith("32") else np.float64
    info = np.finfo(dtype)
    if name.startswith("exp"):
        low, high = np.log(float(info.tiny)) + 1e-4, np.log(float(info.max)) - 1e-4
        high = 0.0 if name in VECTORS else high
        if "power" in name:  # as far as powers go
            low, high = (-40.0, 40.0) if name.endswith("32") else (-300.0, 300.0)
        spread, dense = rng.uniform(low, high, count), rng.uniform(-3, 0, count)
    else:
        exponents = rng.uniform(info.minexp, info.maxexp, count)
        spread, dense = np.exp2(exponents), rng.uniform(0.3, 12, count)
    near_one = 1 + rng.uniform(-1e-3, 1e-3, count)
    if name.startswith("exp_down"):
        near_one = 1 - near_one.clip(1)  # at most 0
    return np.concatenate([spread, dense, near_one]).astype(dtype)


def applied(name: str, x: Array) -> Array:
    """The kernels' function of every element."""
    y = np.empty_like(x)
    _loop(name)(x, y)
    return y


def worst_error(name: str, x: Array) -> tuple[float, float]:
    """The largest error over these arguments, in units of the last place of the exact result, and where."""
    y = applied(name, x)
    digits = 24 if x.dtype == np.float32 else 53
    worst, place = 0.0, 0.0
    with flint.ctx.workprec(160):
        for argument, value in zip(x.tolist(), y.tolist(), strict=True):
            exact = getattr(flint.arb(argument), name[:3])()
            size = abs(float(exact.mid()))
            last = 2.0 ** (np.frexp(size)[1] - digits) if size else 1.0
            error = float((flint.arb(value) - exact).abs_upper()) / last
            if not error <= worst:
                worst, place = error, argument
    return worst, place


def half_rounding_disagreements(dtype: str) -> list[str]:
    """Sums whose exact result lies at, or a little beside, the middle of two neighbours.

    Every number of the type meets its neighbour. The float32 arithmetic is exact here, so there is
    one right answer: the nearest, and of two the even.
    """
    target = dtype_named(dtype)
    patterns = np.arange(1 << 16, dtype=np.uint16)
    numbers = patterns.view(target)
    finite = numbers[np.isfinite(numbers.astype(np.float32))]
    neighbours = (finite.view(np.uint16) + np.uint16(1)).view(target)
    inside = np.isfinite(neighbours.astype(np.float32))
    a, b = finite[inside], neighbours[inside]
    found = []
    for first, second in ((1, 1), (3, 1), (1, 3)):
        x = np.concatenate([np.tile(a[:, None], first), np.tile(b[:, None], second)], axis=1)
        wide = x.astype(np.float32)
        total = np.zeros(len(x), np.float32)
        with np.errstate(over="ignore"):
            for column in wide.T:
                total = total + column
            expected = (total / np.float32(x.shape[1])).astype(target)[:, None]
        op = ln.AvgPool((x.shape[1],))
        for where, cells in (("rows", x), ("a row", x.reshape(1, -1))):  # one by one, side by side
            y = run(op, "forward", cells).reshape(-1, 1)
            difference = differing_bits(y, expected)
            if difference:
                found.append(
                    f"mean of {first} + {second} neighbours of {where} in {dtype}: {difference}"
                )
    with np.errstate(over="ignore"):
        wide = a.astype(np.float32)
        doubled = (np.float32(0) + wide + wide).astype(target)[:, None]  # −0 − 0 from 0 is 0
    sums = run(ln.AvgPool((2,), divisor_override=1), "forward", np.stack([a, a], axis=1))
    difference = differing_bits(sums, doubled)
    if difference:
        found.append(f"doubles in {dtype}: {difference}")
    return found
