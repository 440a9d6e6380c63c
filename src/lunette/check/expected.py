"""What a call must give: the specification run over the dtype itself, or over exact numbers."""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from lunette import spec
from lunette.check.calls import Array, Call
from lunette.check.exact import Exact, arithmetic, number_type
from lunette.ops.base import is_float
from lunette.ops.pooling import Pooling
from lunette.reductions import Max

__all__ = ["Outcome", "expected", "result_dtype"]

_NAMES = {"forward": "y", "indices": "indices", "jvp": "dy", "vjp": "gx"}
HALVES = ("float16", "bfloat16")


@dataclass(frozen=True)
class Outcome:
    """One array that a call must give.

    `values` in the result's dtype, the nearest to the exact ones. Where `slack` is None they must
    match bit for bit; elsewhere the result may differ from `values + rest` by `slack`, and where
    `loose` a sum may overflow on the way, so that any NaN or infinity is right too.
    """

    name: str
    values: Array
    rest: Array | None = None
    slack: Array | None = None
    loose: Array | None = None

    def differs(self, actual: Array) -> Array:
        """Where an array of the same shape is not what it must be."""
        if self.slack is None or self.rest is None or self.loose is None:
            return ~_same(actual, self.values)
        with np.errstate(all="ignore"):
            center = self.values.astype(np.float64)
            gap = np.abs((actual.astype(np.float64) - center) - self.rest)
            close = (gap <= self.slack * (1 + 1e-12)) | (actual.astype(np.float64) == center)
        close |= np.isnan(actual) & np.isnan(center)
        close &= np.isnan(actual) == np.isnan(center)
        right: Array = close | (self.loose & ~np.isfinite(actual))
        return ~right


def _same(a: Array, b: Array) -> Array:
    """Bit for bit, all NaNs alike; −0 is not +0."""
    if not is_float(a.dtype):
        return np.asarray(a == b)
    nan = np.isnan(a) & np.isnan(b)
    return np.asarray(((a == b) & (np.signbit(a) == np.signbit(b))) | nan)


_CACHE: OrderedDict[Any, list[Outcome]] = OrderedDict()
_CACHE_SIZE = 20_000


def expected(call: Call, ties: str = "", accumulate: str = "") -> list[Outcome]:
    """What the call must give, one outcome per array; a ValueError or TypeError for a bad call.

    `ties` is that of `number_type`; `accumulate` names the float type of sums.
    """
    key = (call.key, ties, accumulate)
    if key in _CACHE:
        _CACHE.move_to_end(key)
        return _CACHE[key]
    outcomes = _compute(call, ties, accumulate)
    _CACHE[key] = outcomes
    if len(_CACHE) > _CACHE_SIZE:
        _CACHE.popitem(last=False)
    return outcomes


def result_dtype(call: Call) -> np.dtype[Any]:
    """dtype of what the call gives."""
    if call.verb == "indices":
        return np.dtype(np.int64)
    if call.op == "unpool" or call.verb == "vjp":
        dtype: np.dtype[Any] = call.x.dtype
        return dtype
    return call.lunette_op.result_dtype(*(a.dtype for a in call.operands))


def _compute(call: Call, ties: str, accumulate: str) -> list[Outcome]:
    if call.op == "unpool":
        import lunette

        values, indices = call.operands
        return [Outcome("y", lunette.max_unpool(values, indices, **call.arguments))]
    op = call.lunette_op
    if isinstance(op, Pooling) and 0 in call.x.shape:  # nothing to compute, however long an axis
        shape = call.x.shape if call.verb == "vjp" else op.out_shape(call.x.shape)
        return [Outcome(_NAMES[call.verb], np.empty(shape, result_dtype(call)))]
    selects = isinstance(op, Pooling) and isinstance(op.reduction, Max)
    if call.verb == "indices":
        x = _lift(call.x, number_type("float64", ties)) if ties else call.x
        return [Outcome("indices", spec.forward_with_indices(op, x)[1])]
    if call.verb == "forward" and selects:
        return [Outcome("y", spec.forward(op, call.x))]
    dtype = result_dtype(call)
    computing = accumulate or ("float32" if dtype.name in HALVES else dtype.name)
    system = number_type(computing, ties)
    operands = tuple(_lift(a, system) for a in call.operands)
    if call.verb == "forward":
        results = [("y", spec.forward(op, *operands))]
    elif call.verb == "jvp":
        results = [("dy", spec.jvp(op, operands, tuple(_lift(a, system) for a in call.tangents)))]
    else:
        assert call.gradient is not None
        gradients = spec.vjp(op, operands, _lift(call.gradient, system))
        names = op.operand_names
        results = [(f"g{n}", g) for n, g in zip(names, gradients, strict=False)]
    return [_outcome(name, np.asarray(r, object), dtype, computing) for name, r in results]


def _lift(a: Array, system: Any) -> Array:
    out = np.empty(a.shape, object)
    numbers = a.astype(np.float64) if is_float(a.dtype) else a.astype(object)
    for i, v in zip(np.ndindex(a.shape), numbers.ravel().tolist(), strict=True):
        out[i] = system.from_number(v)
    return out


def _outcome(name: str, numbers: Array, dtype: np.dtype[Any], computing: str) -> Outcome:
    """Split exact numbers into the nearest float64, what is left of them, and their slack."""
    center, rest, slack = (np.zeros(numbers.shape) for _ in range(3))
    loose = np.zeros(numbers.shape, bool)
    final, inner = arithmetic(dtype.name), arithmetic(computing)
    for i, found in np.ndenumerate(numbers):
        assert isinstance(found, Exact)
        number = found.settled()
        if number.special:
            center[i] = number.value
            loose[i] = number.peak >= inner.largest
            continue
        error = number.error
        if error and final is not inner:  # the one rounding of the half types
            error += final.unit * (abs(_near(number.value)) + error) + final.tiny
        near = _near(number.value)
        loose[i] = number.peak >= inner.largest or abs(near) + error >= final.largest
        center[i] = near
        if math.isfinite(near):
            rest[i] = _near(number.value - Fraction(near))
        slack[i] = error
    with np.errstate(all="ignore"):
        values = center.astype(dtype)
        # What rounding to the dtype has moved goes into the rest, exactly: the two are close.
        moved = center - values.astype(np.float64)
    rest = np.where(np.isfinite(moved), moved + rest, rest)
    return Outcome(name, values, rest, slack, loose)


def _near(value: Fraction) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def alternative(call: Call, **arguments: Any) -> list[Outcome]:
    """What the call would give with other arguments."""
    return expected(replace(call, arguments={**call.arguments, **arguments}))
