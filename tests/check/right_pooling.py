"""The right implementation's pooling: windows gathered into rows, then reduced."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import numpy as np

from lunette.check import Call
from tests.check.right_regions import Axis, axes_of

LOWEST = {
    "float16": -65504.0,
    "float32": -3.4028234663852886e38,
    "float64": -1.797693134862315708e308,
}


def gather(x: Any, axes: list[Axis], fill: Any) -> tuple[Any, Any, Any]:
    """Windows as (batch, outputs, cells), the flat position of each cell, and the real ones."""
    rank = len(axes)
    outs, cells = [len(a.positions) for a in axes], [a.positions.shape[1] for a in axes]
    flat, real = np.zeros((1, 1), np.int64), np.ones((1, 1), bool)
    for axis in axes:
        safe = np.where(axis.real, axis.positions, 0)
        flat = (flat[:, None, :, None] * axis.n + safe[None, :, None, :]).reshape(
            flat.shape[0] * safe.shape[0], -1
        )
        real = (real[:, None, :, None] & axis.real[None, :, None, :]).reshape(flat.shape)
    batch = x.shape[: x.ndim - rank]
    lines = x.reshape(math.prod(batch), math.prod(x.shape[x.ndim - rank :]))
    assert flat.shape == (math.prod(outs), math.prod(cells))
    windows = np.where(real, lines[:, flat], np.asarray(fill, x.dtype))
    return windows, flat, real


def counted_of(axes: list[Axis]) -> Any:
    counted = np.ones(1, np.int64)
    for axis in axes:
        counted = (counted[:, None] * axis.counted[None, :]).ravel()
    return counted


def pool(call: Call, x: Any, wrong: str) -> Any:
    if 0 in call.batch or 0 in x.shape:
        shape = call.lunette_op.out_shape(x.shape)
        if wrong == "empty batch loses axes":
            shape = (0,)
        if wrong == "sizes in int32":
            shape = tuple(abs(int(np.int64(n).astype(np.int32))) for n in shape)
        if call.verb == "vjp":
            return np.zeros(x.shape, x.dtype)
        dtype = np.int64 if call.verb == "indices" else call.lunette_op.result_dtype(x.dtype)
        return np.zeros(shape, dtype)
    axes = axes_of(call, wrong)
    shape = [*call.batch, *(len(a.positions) for a in axes)]
    if not call.arguments.get("keepdims", True) and wrong != "keepdims ignored":
        shape = list(call.batch)
    kind = "smooth" if "smooth" in call.op else "mean" if "mean" in call.op else "max"
    with np.errstate(all="ignore"):
        result = {"max": maximum, "mean": mean, "smooth": smooth}[kind](call, x, axes, wrong)
    if call.verb == "vjp":
        result = result.reshape(x.shape)
        if wrong == "gradient transposed" and x.ndim > 1 and x.shape[-1] == x.shape[-2]:
            result = result.swapaxes(-1, -2)
        return result.astype(np.float32) if wrong == "gradient in float32" else result
    result = result.reshape(shape)
    outs = shape[-1] if shape else 0
    if (
        wrong == "last output of seventeen"
        and outs % 16 == 1
        and outs > 1
        and call.verb == "forward"
    ):
        result = result.copy()
        result[..., -1] = result[..., -2]
    return result


def maximum(call: Call, x: Any, axes: list[Axis], wrong: str) -> Any:
    floating = x.dtype.name in ("float16", "bfloat16", "float32", "float64")
    compared = x
    if wrong == "integers compared as floats" and x.dtype.kind in "iu":
        compared = x.astype(np.float64)
    if wrong == "unsigned compared as signed" and x.dtype.kind == "u":
        compared = x.astype(f"i{x.dtype.itemsize}")
    if wrong == "denormals flushed" and x.dtype.name in ("float32", "float64"):
        compared = np.where(np.abs(x) < np.finfo(x.dtype).tiny, np.zeros((), x.dtype), x)
    windows, flat, real = gather(compared, axes, 0)
    order = windows.astype(np.float64) if floating else windows
    nan = np.isnan(order) & real if floating else np.zeros(windows.shape, bool)
    if wrong == "NaN loses":
        ranked = np.where(nan, -np.inf, order)
        nan = np.zeros(nan.shape, bool)
    else:
        ranked = order
    valid = np.broadcast_to(real, windows.shape)
    if wrong == "padding is zero":
        valid = np.ones(windows.shape, bool)
        ranked = np.where(real, ranked, 0)
    if ranked.dtype.kind == "b":
        ranked = ranked.astype(np.int8)
    top = np.where(valid, ranked, _low(ranked)).max(-1, keepdims=True)
    tied = valid & (ranked == top)
    if floating:
        some = nan.any(-1, keepdims=True)
        tied = np.where(some, nan, tied)
    if wrong == "any cell of a tie":
        best = tied.shape[-1] - 1 - tied[..., ::-1].argmax(-1)
    elif wrong == "last NaN wins" and floating:
        last = tied.shape[-1] - 1 - tied[..., ::-1].argmax(-1)
        best = np.where(nan.any(-1), last, tied.argmax(-1))
    else:
        best = tied.argmax(-1)
    empty = ~tied.any(-1)
    ties = call.arguments.get("ties", "all" if call.op == "global-max" else "first")
    if wrong == "all ties as the first" and ties == "all":
        ties = "first"
    if call.verb == "forward":
        cells = gather(compared.astype(x.dtype), axes, 0)[0]
        value = np.take_along_axis(cells, best[..., None], -1)[..., 0]
        if wrong == "padding is the lowest number" and x.dtype.name in LOWEST:
            beside = (~real).any(-1)
            value = np.where(
                beside & (value == -np.inf), np.array(LOWEST[x.dtype.name], x.dtype), value
            )
        if wrong == "plus zero for minus zero" and floating:
            value = value + np.zeros((), x.dtype)
        hole = -np.inf if wrong == "an empty window is −inf" and floating else 0
        return np.where(empty, np.array(hole, x.dtype), value).astype(x.dtype)
    if call.verb == "indices":
        position = np.take_along_axis(np.broadcast_to(flat, tied.shape), best[..., None], -1)[
            ..., 0
        ]
        if wrong == "indices within the row":
            position = position % axes[-1].n
        if wrong.startswith("indices in "):
            position = position.astype(wrong.rsplit(maxsplit=1)[-1]).astype(np.int64)
        if wrong == "indices through float32":
            position = position.astype(np.float32).astype(np.int64)
        return np.where(empty, -1, position).astype(np.int64)
    weights = np.zeros(windows.shape)
    if ties == "first":
        np.put_along_axis(weights, best[..., None], 1.0, -1)
    else:
        weights = tied.astype(np.float64)
        if ties == "split" and wrong != "split not divided":
            weights /= np.maximum(tied.sum(-1, keepdims=True), 1)
    weights = np.where(empty[..., None], 0, weights) * real
    if wrong == "tangent is the largest tangent" and call.verb == "jvp":
        return gather(call.tangents[0], axes, 0)[0].max(-1)
    return derivative(call, x, axes, weights, wrong)


def _low(ranked: Any) -> Any:
    return -np.inf if ranked.dtype.kind == "f" else np.iinfo(ranked.dtype).min


def working(call: Call, x: Any, wrong: str) -> Any:
    """The dtype of sums."""
    if wrong == "sums in half precision" and x.dtype.name in ("float16", "bfloat16"):
        return x.dtype
    if wrong == "sums in float32":
        return np.dtype(np.float32)
    if x.dtype.name in ("float16", "bfloat16"):
        return np.dtype(np.float32)
    return np.dtype(np.float64) if x.dtype.kind in "iub" else x.dtype


def add(terms: Any, dtype: Any) -> Any:
    """A sum along the last axis, one after another in this dtype."""
    total = np.zeros(terms.shape[:-1], dtype)
    for j in range(terms.shape[-1]):
        total = (total + terms[..., j].astype(dtype)).astype(dtype)
    return total


def divisors(call: Call, axes: list[Axis], real: Any, wrong: str) -> Any:
    counted = counted_of(axes)
    include = call.arguments.get("count_include_pad", True)
    if wrong == "padding always counted":
        include = True
    if wrong == "padding never counted":
        include = False
    count = counted if include else real.sum(-1)
    override = call.arguments.get("divisor_override")
    if override is not None and wrong != "divisor_override ignored":
        count = np.where(count > 0, override, 0)
    return count


def mean(call: Call, x: Any, axes: list[Axis], wrong: str) -> Any:
    dtype = working(call, x, wrong)
    windows, _, real = gather(x.astype(dtype), axes, 0)
    count = divisors(call, axes, real, wrong)
    if call.verb == "forward":
        value = add(windows, dtype) / np.maximum(count, 1).astype(dtype)
        value = np.where(count > 0, value, 0)
        if wrong == "a mean of integers truncates" and x.dtype.kind in "iu":
            value = np.trunc(value)
        return value.astype(call.lunette_op.result_dtype(x.dtype))
    if wrong == "tangent divided by the kernel" and call.verb == "jvp":
        count = np.full(count.shape, windows.shape[-1])
    weights = np.where(real, 1.0, 0.0) / np.maximum(count, 1)[:, None]
    return derivative(call, x, axes, np.broadcast_to(weights, windows.shape), wrong)


def smooth(call: Call, x: Any, axes: list[Axis], wrong: str) -> Any:
    dtype, beta = np.dtype(np.float64), call.arguments["beta"]
    if wrong == "beta without its sign":
        beta = abs(beta)
    windows, _, real = gather(x.astype(dtype), axes, 0)
    count = divisors(call, axes, real, wrong)
    pads = count - real.sum(-1)
    signed = np.where(real, windows * beta, -np.inf)
    pivot = np.where(pads > 0, np.maximum(signed.max(-1), 0), signed.max(-1))
    pivot = np.where(np.isfinite(pivot) | np.isnan(pivot), pivot, 0)
    if wrong == "no pivot":
        pivot = np.zeros(pivot.shape)
        signed = signed.astype(np.float32)
    terms = np.exp(signed - pivot[..., None].astype(signed.dtype))
    if wrong == "padding not in the smooth sum":
        pads = np.zeros(pads.shape)
    total = terms.sum(-1) + np.where(pads > 0, pads * np.exp(-pivot), 0)
    if call.verb == "forward":
        value = np.where(count > 0, (pivot + np.log(total)) / beta, 0)
        return value.astype(call.lunette_op.result_dtype(x.dtype))
    weights = terms / (1 if wrong == "weights not normalised" else total[..., None])
    return derivative(call, x, axes, np.where(real, weights, 0), wrong)


def derivative(call: Call, x: Any, axes: list[Axis], weights: Any, wrong: str) -> Any:
    """Weights of the cells of each window, applied forwards or backwards."""
    dtype = working(call, x, wrong)
    if call.verb == "jvp":
        windows, _, _ = gather(call.tangents[0].astype(np.float64), axes, 0)
        terms = np.where(weights == 0, 0, weights * windows)
        if wrong == "tangent negated":
            terms = -terms
        return add(terms, dtype).astype(x.dtype)
    assert call.gradient is not None
    _, flat, _ = gather(x, axes, 0)
    images = weights.shape[0]
    gradient = call.gradient.astype(np.float64).reshape(images, -1, 1)
    if wrong == "gradient of the first output only":
        gradient = np.broadcast_to(gradient[:, :1], gradient.shape)
    sent = np.where(weights == 0, 0, weights * gradient)
    out = np.zeros((images, math.prod(call.pooled)), dtype)
    for o, c in product(range(flat.shape[0]), range(flat.shape[1])):
        at = flat[o, c]
        some = weights[:, o, c] != 0
        piece = sent[:, o, c].astype(dtype)
        if wrong == "gradient overwritten":
            out[some, at] = piece[some]
        else:
            out[some, at] = (out[some, at] + piece[some]).astype(dtype)
    return out.astype(x.dtype)
