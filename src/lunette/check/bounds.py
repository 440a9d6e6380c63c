"""How far mean, smooth max and convolution may lie from the exact value: the bounds that kernels promise.

Notation: `u` is the unit roundoff of the arithmetic (2⁻⁵³ for float64, 2⁻²⁴ for everything
narrower), `γ_n = n·u / (1 − n·u)`, `n` the counted cells of a window, `r` the windows that read a
cell, `d` the divisor of a mean, `η` the smallest positive number of the arithmetic.

| verb | bound on abs(computed − exact) |
|---|---|
| mean forward, jvp | `γ_n·Σ|x|/d + η` |
| mean vjp | `γ_(r+1)·Σ|g/d| + r·η` |
| smooth max forward | `(γ_(n+1) + E + (u + L)·ln n)/|β| + 2u·|y| + η`, E below |
| smooth max jvp | `(2γ_(n+2) + 2E)·max|dx| + n·η` |
| smooth max vjp | `(γ_(n+r+3) + 2E)·Σ|g| + r·η` |
| convolution, each sum of n products and maybe a bias b | `γ_(n+1)·(Σ|x||w| + |b|) + 2(n + 1)·η` |

A product below the smallest number is lost whole, so a sum of products has an absolute term too.

`E = K·e + 3u·ln n` is what the exponentials contribute: `e` is the relative error of one `exp`,
`K` the number of them that a cell's weight is a product of, and `3u` the rounding of beta, of
`x − pivot` and of their product. A weighted mean of the exponents is at most `ln n`, because the
entropy of n weights is. `L` is the relative error of `log`.

The half types compute in float32 and round once more: `+ h·|y| + η_h`, with `h` their own unit
roundoff. An integer that has to be rounded to float64 first adds one to `n`. Nothing is promised
where an intermediate sum is too large for the arithmetic: `Σ|x|` of a mean, `n·max|dx|` of a
smooth max's tangent.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from lunette.axes import Turn
from lunette.ops.pooling import Pool, Pooling
from lunette.reductions import Max, Mean, SmoothMax
from lunette.spec import pooling as meaning

__all__ = [
    "EXPONENTIALS",
    "EXP_ERROR",
    "LOG_ERROR",
    "Arithmetic",
    "arithmetic_of",
    "bound",
    "cell_counts",
    "gamma",
    "of_products",
    "reader_counts",
]

Array = np.ndarray[Any, Any]

EXP_ERROR = 3.0
"""Relative error of a kernel's exp, in units of `u`: 1.5 units of the last place."""

LOG_ERROR = 3.0
"""Relative error of a kernel's log, in units of `u`: 1.5 units of the last place."""

EXPONENTIALS = 4
"""The most exponentials that one cell's weight is a product of."""

_SLACK = 1 + 2.0**-20  # second-order terms, and the rounding of the bounds themselves


class Arithmetic(NamedTuple):
    """The numbers that a dtype's verbs are computed with, and those that the result is stored in."""

    unit: float
    smallest: float
    largest: float
    stored_unit: float
    stored_smallest: float
    stored_largest: float


def arithmetic_of(dtype: np.dtype[Any]) -> Arithmetic:
    """float64 for float64 and integers, float32 for the rest."""
    wide = dtype.name == "float64" or dtype.kind in "iub"
    computed = np.finfo(np.float64 if wide else np.float32)
    values = (float(computed.eps) / 2, float(computed.smallest_subnormal), float(computed.max))
    if dtype.name not in ("float16", "bfloat16"):
        return Arithmetic(*values, 0.0, 0.0, values[2])
    if dtype.name == "float16":
        return Arithmetic(*values, 2.0**-11, 2.0**-24, 65504.0)
    return Arithmetic(*values, 2.0**-8, 2.0**-133, float((2 - 2.0**-7) * 2.0**127))


def gamma(n: Any, unit: float) -> Any:
    """`n·u / (1 − n·u)`: the relative error that n roundings can add up to."""
    return n * unit / (1 - n * unit)


def cell_counts(op: Pooling, shape: tuple[int, ...], counted: bool) -> Array:
    """Cells of each window: those counted, or those read. Shaped like the pooled axes of the result."""
    out: Array = np.ones((), np.int64)
    for region, n in zip(op.regions, shape[len(shape) - op.rank :], strict=True):
        windows = [region.window(n, i) for i in range(region.out_length(n))]
        out = np.multiply.outer(out, [w.counted if counted else w.real for w in windows])
    return out if op.keepdims else out.reshape(())


def reader_counts(op: Pooling, shape: tuple[int, ...]) -> Array:
    """Windows that read each cell, shaped like the pooled axes of the input."""
    out: Array = np.ones((), np.int64)
    for region, n in zip(op.regions, shape[len(shape) - op.rank :], strict=True):
        out = np.multiply.outer(out, [len(region.readers(n, p, p + 1)) for p in range(n)])
    return out


def bound(op: Pooling, verb: str, x: Array, direction: Array | None = None) -> Array:
    """The bound of every element of `verb` at `x`; infinite where nothing is promised.

    `direction` is the tangent of a `jvp` or the gradient of a `vjp`. The inputs are finite.
    """
    rules = {
        (Mean, "forward"): _mean_forward,
        (Mean, "jvp"): _mean_forward,
        (Mean, "vjp"): _mean_vjp,
        (SmoothMax, "forward"): _smooth_forward,
        (SmoothMax, "jvp"): _smooth_jvp,
        (SmoothMax, "vjp"): _smooth_vjp,
    }
    rule = rules.get((type(op.reduction), verb))
    if rule is None:
        raise ValueError(f"{op!r}, {verb}: only mean and smooth max have bounds; max is exact")
    if op.axes is not None:
        turn = Turn(op)
        if direction is not None:
            direction = turn.gradient(direction) if verb == "vjp" else turn.there(direction)
        found = bound(op.over_last, verb, turn.there(x), direction)
        return np.asarray(turn.back(found) if verb == "vjp" else turn.result(found))
    numbers = arithmetic_of(x.dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        computed, size = rule(op, numbers, x, x if direction is None else direction)
        total = computed * _SLACK
        stored = total + numbers.stored_unit * (size + total) + numbers.stored_smallest
        return np.asarray(np.where(np.isfinite(computed), stored, np.inf))


def of_products(count: Any, size: Any, dtype: np.dtype[Any]) -> Any:
    """The bound of sums of `count` products, and maybe a constant, whose magnitudes sum to `size`.

    In any order, with or without fused multiply-adds.
    """
    numbers = arithmetic_of(dtype)
    computed = gamma(count + 1, numbers.unit) * size + 2 * (count + 1) * numbers.smallest
    total = computed * _SLACK
    stored = total + numbers.stored_unit * (size + total) + numbers.stored_smallest
    return np.where(np.asarray(size) * _SLACK < numbers.largest, stored, np.inf)


# -- each rule: the bound of the arithmetic, and a bound of the exact result's size --


def _mean_forward(op: Pooling, numbers: Arithmetic, x: Array, terms: Array) -> tuple[Array, Array]:
    rounded_first = x.dtype.kind in "iu" and x.dtype.itemsize == 8
    cells = cell_counts(op, x.shape, counted=False) + rounded_first
    size = _of_magnitudes(op, terms)
    sums = _of_magnitudes(_with(op, Mean(divisor_override=1)), terms)
    error = gamma(cells, numbers.unit) * size + numbers.smallest
    return np.where(sums * _SLACK < numbers.largest, error, np.inf), size


def _mean_vjp(op: Pooling, numbers: Arithmetic, x: Array, grad: Array) -> tuple[Array, Array]:
    readers = reader_counts(op, x.shape)
    size = _gathered(op, x, grad)
    error = gamma(readers + 1, numbers.unit) * size + readers * numbers.smallest
    return np.where(size * _SLACK < numbers.largest, error, np.inf), size


def _exponentials(cells: Array, numbers: Arithmetic) -> tuple[Array, Array]:
    """The error `E` of exponentials, and `ln n`."""
    logarithm = np.log(np.maximum(cells, 1))
    return numbers.unit * (EXPONENTIALS * EXP_ERROR + 3 * logarithm), logarithm


def _smooth_forward(op: Pooling, numbers: Arithmetic, x: Array, _: Array) -> tuple[Array, Array]:
    assert isinstance(op.reduction, SmoothMax)
    cells = cell_counts(op, x.shape, counted=True)
    error, logarithm = _exponentials(cells, numbers)
    of_log = (1 + LOG_ERROR) * numbers.unit * logarithm
    of_sum = gamma(cells + 1, numbers.unit) + error + of_log
    size = np.abs(meaning.forward(op, (x.astype(np.float64),)))
    return of_sum / abs(op.reduction.beta) + 2 * numbers.unit * size + numbers.smallest, size


def _smooth_jvp(op: Pooling, numbers: Arithmetic, x: Array, tangent: Array) -> tuple[Array, Array]:
    cells = cell_counts(op, x.shape, counted=True)
    error, _ = _exponentials(cells, numbers)
    size = meaning.forward(_with(op, Max()), (np.abs(tangent).astype(np.float64),))
    total = (2 * gamma(cells + 2, numbers.unit) + 2 * error) * size + cells * numbers.smallest
    return np.where(cells * size * _SLACK < numbers.largest, total, np.inf), size


def _smooth_vjp(op: Pooling, numbers: Arithmetic, x: Array, grad: Array) -> tuple[Array, Array]:
    readers = reader_counts(op, x.shape)
    cells = np.max(cell_counts(op, x.shape, counted=True))
    error, _ = _exponentials(cells, numbers)
    size = _gathered(_with(op, Mean(divisor_override=1)), x, grad)
    total = (gamma(cells + readers + 3, numbers.unit) + 2 * error) * size
    total = total + readers * numbers.smallest
    return np.where(size * _SLACK < numbers.largest, total, np.inf), size


def _with(op: Pooling, reduction: Any) -> Pool:
    """The same regions with another reduction."""
    return Pool(op.regions, reduction, op.keepdims)


def _of_magnitudes(op: Pooling, terms: Array) -> Array:
    return meaning.forward(op, (np.abs(terms.astype(np.float64)),))


def _gathered(op: Pooling, x: Array, grad: Array) -> Array:
    """The adjoint of `op` on the magnitudes of the gradient."""
    magnitudes = np.abs(grad.astype(np.float64))
    return meaning.vjp(op, (np.zeros(x.shape),), magnitudes)[0]
