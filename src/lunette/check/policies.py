"""Named choices by which right implementations differ, and whether one of them explains a difference.

A policy here excuses nothing by itself: a target must name it and say where it is documented.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from lunette.check.calls import Array, Call
from lunette.check.exact import arithmetic
from lunette.check.expected import HALVES, Outcome, expected, result_dtype
from lunette.ops.base import is_float
from lunette.ops.pooling import Pooling

__all__ = ["POLICIES", "explained", "has_cells"]

Arrays = list[Array]
Masks = list[Array]


def explained(policy: str, call: Call, actual: Arrays, outcomes: list[Outcome]) -> Masks:
    """Where the policy explains what was given: True for each cell that it allows."""
    nothing = [np.zeros(a.shape, bool) for a in actual]
    if policy not in POLICIES:
        return nothing
    try:
        with np.errstate(all="ignore"):
            return POLICIES[policy][1](call, actual, outcomes) or nothing
    except (ValueError, TypeError):  # the alternative meaning has no such call
        return nothing


def has_cells(call: Call) -> Array:
    """For each output of a pooling op: whether its window reads any cell of the input."""
    op = call.lunette_op
    assert isinstance(op, Pooling)
    axes = [
        [bool(region.window(n, i).real) for i in range(region.out_length(n))]
        for region, n in zip(op.regions, call.pooled, strict=True)
    ]
    cells = np.array([all(p) for p in product(*axes)], bool).reshape([len(a) for a in axes])
    shape = op.out_shape(call.x.shape)
    if not op.keepdims:
        return np.broadcast_to(cells.reshape(()), shape)
    return np.broadcast_to(cells, shape)


def _right(outcomes: list[Outcome], actual: Arrays) -> Masks:
    if [o.values.shape for o in outcomes] != [a.shape for a in actual]:
        return []
    return [~o.differs(a) for o, a in zip(outcomes, actual, strict=True)]


def _sign_of_zero(call: Call, actual: Arrays, outcomes: list[Outcome]) -> Masks:
    return [(a == 0) & (o.values == 0) for a, o in zip(actual, outcomes, strict=True)]


def _empty_window(call: Call, actual: Arrays, outcomes: list[Outcome]) -> Masks:
    if call.verb == "vjp" or not isinstance(call.lunette_op, Pooling):
        return []
    return [~has_cells(call)]


def _ties(call: Call, actual: Arrays, outcomes: list[Outcome]) -> Masks:
    """Another of the equal cells: the last, all of them, equal shares, or in indices any."""
    if "max" not in call.op or "smooth" in call.op or call.verb == "forward":
        return []
    if call.verb == "indices":
        values = expected(replace(call, verb="forward"))[0].values
        flat = call.x.reshape(*call.batch, -1)
        inside = (actual[0] >= 0) & (actual[0] < flat.shape[-1])
        at = np.where(inside, actual[0], 0)
        lines = np.broadcast_to(values, actual[0].shape).reshape(*call.batch, -1)
        chosen = np.take_along_axis(flat, at.reshape(*call.batch, -1), -1)
        tied = (chosen == lines) | (_nans(chosen) & _nans(lines))
        return [tied.reshape(actual[0].shape) & inside]
    for ties in ("first", "all", "split"):
        other = replace(call, arguments={**call.arguments, "ties": ties})
        masks = _right(expected(other), actual)
        if masks and all(m.all() for m in masks):
            return masks
    last = replace(call, arguments={**call.arguments, "ties": "first"})
    return _right(expected(last, ties="last"), actual)


def _nans(a: Array) -> Array:
    return np.isnan(a) if is_float(a.dtype) else np.zeros(a.shape, bool)


def _nan_ignored(call: Call, actual: Arrays, outcomes: list[Outcome]) -> Masks:
    """As if NaN were smaller than every number."""
    if not is_float(call.x.dtype) or "max" not in call.op or "smooth" in call.op:
        return []
    lowest = np.where(np.isnan(call.x), np.array(-np.inf, call.x.dtype), call.x)
    masks = _right(expected(call.with_arrays({**call.arrays(), "x": lowest})), actual)
    if masks and call.verb == "forward":
        masks[0] = masks[0] | (np.isnan(actual[0]) & np.isnan(outcomes[0].values))
    return masks


def _nan_anything(call: Call, actual: Arrays, outcomes: list[Outcome]) -> Masks:
    """Whatever comes of a window with a NaN in it."""
    if not _has_nan(call) or "max" not in call.op:
        return []
    if call.verb == "vjp":
        return [np.ones(a.shape, bool) for a in actual]
    marked = np.where(np.isnan(call.x), 1.0, 0.0)
    arguments = {k: v for k, v in call.arguments.items() if k not in ("beta", "ties")}
    name = {"smooth-max": "max", "mean": "max"}.get(call.op, call.op).replace("mean", "max")
    arguments = {k: v for k, v in arguments.items() if "divisor" not in k and "count" not in k}
    touched = Call(name, arguments, "forward", (marked,))
    return [expected(touched)[0].values > 0]


def _which_nan(call: Call, actual: Arrays, outcomes: list[Outcome]) -> Masks:
    if call.verb == "forward" or "max" not in call.op or not _has_nan(call):
        return []
    return _right(expected(call, ties="last NaN"), actual)


def _nan_derivative(call: Call, actual: Arrays, outcomes: list[Outcome]) -> Masks:
    """Anything as the derivative of a max that is NaN."""
    return _nan_anything(call, actual, outcomes) if call.verb in ("jvp", "vjp") else []


def _has_nan(call: Call) -> bool:
    return is_float(call.x.dtype) and bool(np.isnan(call.x).any())


def _half_accumulation(call: Call, actual: Arrays, outcomes: list[Outcome]) -> Masks:
    """Sums taken in the half type itself."""
    name = result_dtype(call).name
    return _right(expected(call, accumulate=name), actual) if name in HALVES else []


def _default_padding(call: Call, actual: Arrays, outcomes: list[Outcome]) -> Masks:
    if call.op != "mean" or "count_include_pad" in call.arguments:
        return []
    arguments = {**call.arguments, "count_include_pad": False}
    return _right(expected(replace(call, arguments=arguments)), actual)


def _denormals(call: Call, actual: Arrays, outcomes: list[Outcome]) -> Masks:
    """Subnormal numbers taken as zero, on the way in or out."""
    dtype = result_dtype(call)
    if not is_float(dtype):
        return []
    of = arithmetic(dtype.name)
    normal = of.tiny / (2 * of.unit)
    cells = max(1, call.x.size)
    near = []
    for a, o in zip(actual, outcomes, strict=True):
        gap = np.abs(a.astype(np.float64) - o.values.astype(np.float64))
        near.append(gap <= 2 * normal * cells)
    return near


def _running_sums(call: Call, actual: Arrays, outcomes: list[Outcome]) -> Masks:
    """A sum that slides along the axis: rounding, infinities and NaN stay in it from there on."""
    if "mean" not in call.op or call.verb != "forward":
        return []
    finite = call.x[np.isfinite(call.x)] if is_float(call.x.dtype) else call.x
    top = float(np.abs(finite.astype(np.float64)).max(initial=0))
    of = arithmetic(result_dtype(call).name)
    unit, steps = of.unit, sum(call.pooled) + math.prod(call.arguments.get("kernel", (1,)))
    special = finite.size < call.x.size or top * steps >= of.largest
    near = []
    for a, o in zip(actual, outcomes, strict=True):
        gap = np.abs(a.astype(np.float64) - o.values.astype(np.float64))
        near.append((gap <= 4 * steps * unit * top) | (special & ~np.isfinite(a)))
    return near


def _lowest_padding(call: Call, actual: Arrays, outcomes: list[Outcome]) -> Masks:
    """A max of −inf beside padding that is the lowest finite number."""
    if call.verb != "forward" or not is_float(call.x.dtype):
        return []
    lowest = -arithmetic(call.dtype).largest
    return [(o.values == -np.inf) & (a == lowest) for a, o in zip(actual, outcomes, strict=True)]


def _ceil_keeps(call: Call, actual: Arrays, outcomes: list[Outcome]) -> Masks:
    """More outputs under ceil_mode: windows that start past the input are kept. See `judge`."""
    return []


POLICIES: dict[str, tuple[str, Callable[[Call, Any, Any], Masks]]] = {
    "sign of zero": ("−0 and +0 are equal, and either may be given", _sign_of_zero),
    "empty window": ("a window of padding alone has another value than 0", _empty_window),
    "ties": ("another of the equal cells wins", _ties),
    "which NaN": ("the last of several NaNs wins", _which_nan),
    "NaN derivative": ("a max that is NaN has another derivative, or none", _nan_derivative),
    "NaN ignored": ("NaN loses against every number", _nan_ignored),
    "NaN undefined": ("a window with NaN gives something else than NaN", _nan_anything),
    "half accumulation": ("sums of half types are taken in the half type", _half_accumulation),
    "default padding": ("padding does not count unless asked for", _default_padding),
    "denormals": ("subnormal numbers are flushed to zero", _denormals),
    "running sums": ("sums slide along an axis and keep what they lost", _running_sums),
    "lowest padding": ("padding is the lowest finite number", _lowest_padding),
    "ceil windows": ("ceil_mode keeps windows that start in the end padding", _ceil_keeps),
}
"""Name → what the choice is, and where it explains a difference."""
