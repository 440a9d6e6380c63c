"""What the commands do to a slab: mean, max, min, or plain subsampling, in the array's own dtype."""

from __future__ import annotations

from typing import Any

import numpy as np

from lunette import dispatch
from lunette.ops.base import is_float
from lunette.ops.pooling import Pool
from lunette.reductions import Max, Mean
from lunette.regions import Part, Sliding
from lunette.scale import halving

__all__ = ["OPERATORS", "apply", "check_dtype", "integer_mean"]

Array = np.ndarray[Any, Any]

OPERATORS = ("mean", "max", "min", "stride")


def check_dtype(operator: str, dtype: np.dtype[Any]) -> None:
    """Refuse a dtype that the operator does not offer."""
    if dtype.kind not in "iub" and not is_float(dtype):
        raise TypeError(
            f"dtype {dtype}: expected an integer type, bool, float16, float32 or float64"
        )
    if operator == "mean" and dtype.kind == "b":
        raise TypeError("dtype bool has no mean; use max, min or stride, or convert to uint8")


def apply(operator: str, slab: Array, parts: tuple[Part, ...]) -> Array:
    """The operator's outputs of these parts, one part per axis, over the slab that they read."""
    if operator == "stride":
        index = []
        for part, n in zip(parts, slab.shape, strict=True):
            starts = [part.window(n, i).start for i in range(part.out_length(n))]
            step = starts[1] - starts[0] if len(starts) > 1 else 1
            index.append(slice(starts[0], starts[-1] + 1, step))
        return np.ascontiguousarray(slab[tuple(index)])
    if operator == "max":
        return _value(Pool(parts, Max()), slab)
    if operator == "min":
        # Complement turns the order of integers around, and a change of sign that of floats.
        turned = -slab if is_float(slab.dtype) else ~slab
        largest = _value(Pool(parts, Max()), turned)
        return -largest if is_float(slab.dtype) else ~largest
    if is_float(slab.dtype):
        return _value(Pool(parts, Mean()), slab)
    factors = tuple(_factor(p) for p in parts)
    if None not in factors and halving.serves(slab.dtype, slab.shape, factors):  # type: ignore[arg-type]
        return halving.halve(slab, factors)  # type: ignore[arg-type]
    return integer_mean(slab, parts)


def _value(op: Pool, slab: Array) -> Array:
    result: Array = dispatch.forward(op, slab)
    return result


def _factor(part: Part) -> int | None:
    """2 where the part halves an axis from an even position, 1 where it leaves it; otherwise None."""
    region = part.region
    if not isinstance(region, Sliding) or region.kernel != region.stride or region.kernel > 2:
        return None
    plain = region.padding == (0, 0) and region.dilation == 1
    # A window that is cut by the end of the axis counts its real cells: `halve` means the same.
    return region.kernel if plain else None


def integer_mean(x: Array, parts: tuple[Part, ...]) -> Array:
    """The mean of each window, rounded half to even, in exact integer arithmetic.

    Sums are exact whatever their order, so they are taken axis by axis. Numbers of 64 bits are
    summed as halves: `x = high·2³² + low`.
    """
    counted = [
        np.array([p.window(n, i).counted for i in range(p.out_length(n))], np.int64)
        for p, n in zip(parts, x.shape, strict=True)
    ]
    count = np.ones((), np.int64)
    for axis, c in enumerate(counted):
        count = count * c.reshape((-1,) + (1,) * (x.ndim - axis - 1))
    count = np.maximum(count, 1)  # a window without a cell has the sum 0
    if x.dtype.itemsize < 8:
        quotient, rest = np.divmod(_sum(x.astype(np.int64), parts), count)
    else:
        wide = np.int64 if x.dtype.kind == "i" else np.uint64
        high = _sum((x >> np.asarray(32, x.dtype)).astype(np.int64), parts)
        low = _sum((x & np.asarray(0xFFFFFFFF, x.dtype)).astype(np.int64), parts)
        whole, over = np.divmod(high, count)
        part, rest = np.divmod((over << 32) + low, count)
        quotient = (whole.astype(wide) << wide(32)) + part.astype(wide)
    odd = (quotient & quotient.dtype.type(1)).astype(bool)
    up = (2 * rest > count) | ((2 * rest == count) & odd)
    result: Array = (quotient + up.astype(quotient.dtype)).astype(x.dtype)
    return result


def _sum(x: Array, parts: tuple[Part, ...]) -> Array:
    """The sum over each window, axis by axis."""
    for axis, part in enumerate(parts):
        n = x.shape[axis]
        windows = [part.window(n, i) for i in range(part.out_length(n))]
        starts = np.array([w.start for w in windows])
        reals = np.array([w.real for w in windows])
        steps = np.array([w.step for w in windows])
        if (
            (reals == 1).all()
            and (starts == np.arange(n)[: len(starts)]).all()
            and n == len(starts)
        ):
            continue
        shape = (-1,) + (1,) * (x.ndim - axis - 1)
        total = np.zeros((*x.shape[:axis], len(windows), *x.shape[axis + 1 :]), np.int64)
        for j in range(int(reals.max(initial=0))):
            inside = j < reals
            cells = np.take(x, np.where(inside, starts + j * steps, 0), axis=axis)
            total += cells if inside.all() else cells * inside.reshape(shape)
        x = total
    return x
