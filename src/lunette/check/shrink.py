"""From a failing call to the smallest one, with the simplest values, that still fails the same way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from lunette.check.calls import Array, Call
from lunette.check.inputs import dtype_of
from lunette.ops.base import is_float

__all__ = ["shrink"]


def shrink(call: Call, fails: Callable[[Call], bool], attempts: int) -> Call:
    """Take every step that keeps the failure, until none does or `attempts` are used up."""
    left = attempts
    progress = True
    while progress and left > 0:
        progress = False
        for candidate in _smaller(call):
            if left <= 0:
                break
            left -= 1
            if fails(candidate):
                call, progress = candidate, True
                break
    return replace(call, tags=frozenset())


def _smaller(call: Call) -> Iterator[Call]:
    """Simpler calls, the boldest first; some may be no calls at all, which is for `fails` to see."""
    if call.bad:
        return
    steps = (_memory, _batch, _axes, _lengths, _channels, _arguments, _values, _dtype)
    for step in steps:
        for candidate in step(call):
            fitted = _fit_gradient(candidate)
            if fitted is not None:
                yield fitted


def _fit_gradient(call: Call) -> Call | None:
    """The call with a gradient of the output's shape; None where the op refuses it."""
    if call.op == "unpool":
        return call
    try:
        shape = call.lunette_op.out_shape(*(a.shape for a in call.operands))
    except (ValueError, TypeError):
        return None
    if call.verb != "vjp" or (call.gradient is not None and call.gradient.shape == shape):
        return call
    cells = int(np.prod(shape))
    gradient = (np.arange(1, cells + 1) % 50).reshape(shape).astype(call.x.dtype)
    return replace(call, gradient=gradient)


def _memory(call: Call) -> Iterator[Call]:
    if call.layout != "contiguous":
        yield replace(call, layout="contiguous")


def _take(call: Call, axis: int, index: Any) -> Call:
    """The call on part of one axis of x, its tangent and, to unpool, its indices."""
    names = ("values", "indices") if call.op == "unpool" else ("x", "dx")
    arrays = call.arrays()
    slices = (slice(None),) * axis + (index,)
    return call.with_arrays({n: a[slices].copy() if n in names else a for n, a in arrays.items()})


def _batch(call: Call) -> Iterator[Call]:
    for axis, n in enumerate(call.batch):
        for i in range(min(n, 4)) if n > 1 else ():
            yield _take(call, axis, slice(i, i + 1))
    for axis, n in enumerate(call.batch):
        if n == 1:
            yield _take(call, axis, 0)


def _axes(call: Call) -> Iterator[Call]:
    """Fewer pooled axes."""
    if call.rank == 1 or call.op == "unpool" or call.op.startswith("conv"):
        return
    first = call.x.ndim - call.rank
    for axis in range(call.rank):
        if "ndim" in call.arguments:
            arguments = {**call.arguments, "ndim": call.arguments["ndim"] - 1}
        else:
            arguments = {
                k: v[:axis] + v[axis + 1 :] if isinstance(v, tuple) else v
                for k, v in call.arguments.items()
            }
        n = call.x.shape[first + axis]
        for i in sorted({0, n // 2, n - 1}):
            yield _again(replace(_take(call, first + axis, i), arguments=arguments))


def _lengths(call: Call) -> Iterator[Call]:
    first = call.x.ndim - call.rank
    if call.op == "unpool":
        return
    for axis in range(first, call.x.ndim):
        n = call.x.shape[axis]
        for part in (slice(n // 2, None), slice(None, n // 2), slice(1, None), slice(None, -1)):
            if n > 1:
                yield _take(call, axis, part)


def _channels(call: Call) -> Iterator[Call]:
    if not call.op.startswith("conv") or call.arguments["groups"] != 1:
        return
    arrays, axis = call.arrays(), call.x.ndim - call.rank - 1
    ins, outs = (0, 1) if call.op == "conv-transpose" else (1, 0)
    if len(call.operands) == 3:
        yield call.with_arrays({n: a for n, a in arrays.items() if not n.endswith("bias")})

    def cut(a: Array, axis: int) -> Array:
        return np.take(a, [0], axis)

    if call.x.shape[axis] > 1:
        changed = {n: cut(a, axis) for n, a in arrays.items() if n in ("x", "dx")}
        changed |= {n: cut(a, ins) for n, a in arrays.items() if n.endswith("weight")}
        yield call.with_arrays({**arrays, **changed})
    if call.operands[1].shape[outs] > 1:
        changed = {n: cut(a, outs) for n, a in arrays.items() if n.endswith("weight")}
        changed |= {n: cut(a, 0) for n, a in arrays.items() if n.endswith("bias")}
        yield call.with_arrays({**arrays, **changed})


SIMPLEST = {"ceil_mode": False, "ties": "first", "count_include_pad": True, "beta": 1.0}


def _arguments(call: Call) -> Iterator[Call]:
    arguments = call.arguments

    def changed(name: str, value: Any) -> Call:
        return _again(replace(call, arguments={**arguments, name: value}))

    for name, value in SIMPLEST.items():
        if name in arguments and arguments[name] != value:
            yield changed(name, value)
    if arguments.get("divisor_override") is not None:
        yield changed("divisor_override", None)
    if arguments.get("padding") == "same":
        yield changed("padding", ((0, 0),) * call.rank)
    for name, least in (("kernel", 1), ("stride", 1), ("dilation", 1), ("output_size", 1)):
        if name == "kernel" and call.op.startswith("conv"):
            continue
        for axis, v in enumerate(arguments.get(name, ())):
            for smaller in sorted({least, v // 2, v - 1}):
                if least <= smaller < v:
                    yield changed(name, _put(arguments[name], axis, smaller))
    if "padding" in arguments and arguments["padding"] != "same":
        for axis, (before, after) in enumerate(arguments["padding"]):
            pairs = {(0, 0), (0, after), (before, 0), (before - 1, after - 1)}
            for pair in sorted(pairs):
                if min(pair) >= 0 and pair != (before, after):
                    yield changed("padding", _put(arguments["padding"], axis, pair))


def _put(values: tuple[Any, ...], axis: int, value: Any) -> tuple[Any, ...]:
    return (*values[:axis], value, *values[axis + 1 :])


def _values(call: Call) -> Iterator[Call]:
    arrays = call.arrays()
    for name, a in arrays.items():
        if name == "indices" or a.size == 0:
            continue
        for simple in _simpler(a):
            yield call.with_arrays({**arrays, name: simple})


def _simpler(a: Array) -> Iterator[Array]:
    """Simpler arrays of the same shape, in a strict order so that steps cannot go round."""
    finite = np.isfinite(a) if is_float(a.dtype) else np.ones(a.shape, bool)
    zero, one = np.zeros((), a.dtype), np.ones((), a.dtype)
    for value in (zero, one):
        filled = np.where(finite, value, a)
        if _cost(filled) < _cost(a):
            yield filled
    if is_float(a.dtype):
        with np.errstate(all="ignore"):
            whole = np.where(finite, np.rint(np.clip(a.astype(np.float64), -9, 9)), a).astype(
                a.dtype
            )
        if _cost(whole) < _cost(a):
            yield whole
    if a.size <= 48:
        for i in np.ndindex(a.shape):
            for value in (zero, one):
                single = a.copy()
                single[i] = value
                if _cost(single) < _cost(a):
                    yield single


def _cost(a: Array) -> float:
    """How hard an array is to read: 0 is easier than 1, than other digits, than anything else."""
    numbers = a.astype(np.float64)
    cost = np.full(a.shape, 9.0)
    finite = np.isfinite(numbers)
    whole = finite & (numbers == np.rint(np.where(finite, numbers, 0.5)))
    cost[whole & (np.abs(numbers) < 10)] = 2.0
    cost[numbers == 1] = 1.0
    cost[(numbers == 0) & ~np.signbit(numbers)] = 0.5
    return float(cost.sum())


def _dtype(call: Call) -> Iterator[Call]:
    if call.dtype == "float32" or call.op == "unpool":
        return
    with np.errstate(all="ignore"):
        arrays = {n: a.astype(dtype_of("float32")) for n, a in call.arrays().items()}
    yield call.with_arrays(arrays)


def _again(call: Call) -> Call:
    """A copy without what was cached for the old arguments."""
    return replace(call)
