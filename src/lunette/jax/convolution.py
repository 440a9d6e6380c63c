"""Convolution of JAX arrays: XLA's own up to three axes, a sum of those beyond.

Axes before the last three are unrolled: for each of their kernel positions, a slice of x is convolved over the last three
axes, and the slices add up. All of it is JAX's own, so derivatives, batching, shardings and devices are JAX's too.
"""

from __future__ import annotations

from itertools import product
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from lunette import dispatch
from lunette.jax.geometry import channels_first, is_concrete
from lunette.ops.convolution import Convolution

__all__ = ["forward", "jvp", "vjp"]

HALVES = ("float16", "bfloat16")

FAR = (1 << 31) - 1
"""Positions of an axis with its padding, at most. A longer step leads from the first position past the last: so does this."""

LONG = 1 << 20
"""A length that stands for a symbol where shapes are checked."""


def forward(
    op: Convolution, operands: Any, backend: str | None = None, channels_last: bool = False
) -> Any:
    """The convolution of x with weight, plus the bias if there is one."""
    x, weight, *bias = operands
    shape = _check(op, operands, channels_last)
    if backend is not None:
        return _on_host(op, operands, backend, channels_last, shape)
    rank, last = op.rank, channels_last
    start = x.ndim - rank - 1  # of channels and spatial axes
    batch, inner = x.shape[:start], x.shape[start:]
    items = prod(batch)
    dtype, wide = x.dtype, rank > 3 and x.dtype.name in HALVES
    x = x.reshape(items, *inner)
    if wide:  # the sum over slices rounds once: halves are added up in float32
        x, weight, bias = (
            x.astype(np.float32),
            weight.astype(np.float32),
            [b.astype(np.float32) for b in bias],
        )
    y = (_transposed if op.transposed else _convolved)(op, x, weight, last)
    if bias:
        y = y + (bias[0] if last else bias[0].reshape(-1, *(1,) * rank))
    return y.astype(dtype).reshape(*batch, *y.shape[1:])


def jvp(op: Convolution, operands: Any, tangents: Any, backend: Any, channels_last: bool) -> Any:
    """The directional derivative: the convolution is linear in x, in weight and in bias."""
    if len(tangents) != len(operands):
        raise ValueError(f"{op!r}: {len(operands)} operands but {len(tangents)} tangents")
    for name, x, dx in zip(op.operand_names, operands, tangents, strict=False):
        if x.shape != dx.shape:
            raise ValueError(f"tangent of {name} has shape {dx.shape}; expected {x.shape}")
        if x.dtype != dx.dtype:
            raise TypeError(f"tangent of {name} has dtype {dx.dtype}; expected {x.dtype}")
    (x, weight, *_), (dx, dweight, *dbias) = operands, tangents
    along_x = forward(op, (dx, weight, *dbias), backend, channels_last)
    return along_x + forward(op, (x, dweight), backend, channels_last)


def vjp(op: Convolution, operands: Any, grad: Any, backend: Any, channels_last: bool) -> Any:
    """The gradient in each operand."""
    shape = _check(op, operands, channels_last)
    if grad.shape != shape:
        raise ValueError(f"gradient has shape {grad.shape}; expected the output's {shape}")
    if grad.dtype != operands[0].dtype:
        raise TypeError(
            f"gradient has dtype {grad.dtype}; expected the output's {operands[0].dtype}"
        )
    if backend is not None:
        return _gradients_on_host(op, operands, grad, backend, channels_last)
    _, back = jax.vjp(lambda *xs: forward(op, xs, None, channels_last), *operands)
    return back(grad)


def _check(op: Convolution, operands: Any, channels_last: bool) -> tuple[Any, ...]:
    """Refuse what the op cannot take; the shape of the result."""
    x, *rest = operands
    types = tuple(np.dtype(a.dtype) for a in operands)
    shapes = (channels_first(op, x.shape, channels_last), *(a.shape for a in rest))
    if not all(map(is_concrete, shapes)):
        op.result_dtype(*types)
        first, given = x.ndim - op.rank - 1, shapes[0]
        if not is_concrete(given[first : first + 1]):
            raise ValueError(f"{op!r}: x has shape {x.shape}; expected a number of channels")
        long = tuple(n if type(n) is int else LONG for n in given)
        try:
            out = op.out_shape(long, *shapes[1:])
        except ValueError as error:
            raise ValueError(str(error).replace(str(long), str(given))) from None
        lengths = (
            m if type(n) is int else op._out_length(axis, n)
            for axis, (n, m) in enumerate(zip(given[first + 1 :], out[first + 1 :], strict=True))
        )
        out = (*given[:first], out[first], *lengths)
    else:
        out = op.check_operands(shapes, types)
        dispatch.check_fits(out, types[0])
        _check_near(op, shapes[0], out)
    first = len(out) - op.rank - 1
    return (*out[:first], *out[first + 1 :], out[first]) if channels_last else tuple(out)


def _check_near(op: Convolution, x: tuple[int, ...], out: tuple[int, ...]) -> None:
    lengths, outputs = x[len(x) - op.rank :], out[len(out) - op.rank :]
    for axis, (n, m, region) in enumerate(zip(lengths, outputs, op.regions, strict=True)):
        padded = sum(region.margins(m if op.transposed else n)) + (m if op.transposed else n)
        if padded > FAR:
            raise ValueError(
                f"padding={op.padding!r}: axis {axis} has {padded} positions with it; XLA takes at most {FAR}"
            )


def _near(steps: Any) -> tuple[int, ...]:
    return tuple(min(step, FAR) for step in steps)


# -- one image axis after the batch: (batch, channels, *spatial), or (batch, *spatial, channels) --


def _numbers(rank: int, last: bool) -> Any:
    axes = "DHW"[3 - rank :]
    image = f"N{axes}C" if last else f"NC{axes}"
    return image, f"OI{axes}", image


def _convolve(
    op: Any, x: Any, weight: Any, last: bool, padding: Any, stride: Any, spread: Any, rank: int
) -> Any:
    """XLA's convolution over `rank` axes, the last of the op's."""
    return lax.conv_general_dilated(
        x,
        weight,
        window_strides=stride,
        padding=padding,
        lhs_dilation=spread,
        rhs_dilation=_near(op.dilation[op.rank - rank :]),
        dimension_numbers=_numbers(rank, last),
        feature_group_count=op.groups,
    )


def _convolved(op: Any, x: Any, weight: Any, last: bool) -> Any:
    first = 1 if last else 2
    lengths = x.shape[first : first + op.rank]
    margins = [_margins(op, axis, n) for axis, n in enumerate(lengths)]
    rank = min(op.rank, 3)
    unrolled = op.rank - rank
    inner, ones = slice(unrolled, None), (1,) * rank
    if not unrolled:
        return _convolve(op, x, weight, last, margins, _near(op.stride), ones, rank)
    widths = [(0, 0)] * x.ndim
    widths[first : first + unrolled] = margins[:unrolled]
    x = jnp.pad(x, widths)
    outputs = [r.out_length(n) for r, n in zip(op.regions, lengths, strict=True)][:unrolled]

    def slices(taps: Any) -> Any:
        part = x
        for axis, (tap, m) in enumerate(zip(taps, outputs, strict=True)):
            begin = tap * op.dilation[axis]
            end = begin + (m - 1) * op.stride[axis] + 1
            part = lax.slice_in_dim(part, begin, end, min(op.stride[axis], FAR), first + axis)
        return part

    def term(part: Any, weights: Any) -> Any:
        return _convolve(
            op, part, weights, last, margins[inner], _near(op.stride[inner]), ones, rank
        )

    return _summed(op, unrolled, last, weight, slices, term, lambda found, taps: found)


def _margins(op: Any, axis: int, n: Any) -> Any:
    """Cells added before and after an axis; of a symbolic length, as many as the padding says."""
    if type(n) is int:
        return op.regions[axis].margins(n)
    if not isinstance(op.regions[axis].padding, tuple):
        raise ValueError(
            f"{op!r}: axis {axis} has length {n}, and padding={op.regions[axis].padding!r} depends on it; give it in numbers"
        )
    return op.regions[axis].padding


def _transposed(op: Any, x: Any, weight: Any, last: bool) -> Any:
    """XLA's convolution of x with zeros between its cells, and with the kernel turned round."""
    rank = min(op.rank, 3)
    unrolled = op.rank - rank
    axes = range(unrolled, op.rank)
    weight = jnp.flip(_regrouped(op, weight), tuple(range(2 + unrolled, 2 + op.rank)))
    reach = [(k - 1) * d for k, d in zip(op.kernel, op.dilation, strict=True)]
    padding = [
        (reach[a] - op.padding[a][0], reach[a] - op.padding[a][1] + op.output_padding[a])
        for a in axes
    ]
    spread = _near(op.stride[unrolled:])

    def term(part: Any, weights: Any) -> Any:
        return _convolve(op, part, weights, last, padding, (1,) * rank, spread, rank)

    if not unrolled:
        return term(x, weight)
    first = 1 if last else 2

    def placed(found: Any, taps: Any) -> Any:
        """A term where its taps put it, with zeros around it."""
        widths = [(0, 0, 0)] * found.ndim
        for axis, tap in enumerate(taps):
            begin = tap * op.dilation[axis] - op.padding[axis][0]
            end = reach[axis] - tap * op.dilation[axis] - op.padding[axis][1]
            widths[first + axis] = (
                begin,
                end + op.output_padding[axis],
                min(op.stride[axis], FAR) - 1,
            )
        return lax.pad(found, jnp.zeros((), found.dtype), widths)

    return _summed(op, unrolled, last, weight, lambda taps: x, term, placed)


def _regrouped(op: Any, weight: Any) -> Any:
    """Weights (in, out/groups, ...) as XLA wants them: (out, in/groups, ...)."""
    groups = op.groups
    apart = weight.reshape(groups, weight.shape[0] // groups, *weight.shape[1:])
    return jnp.swapaxes(apart, 1, 2).reshape(
        groups * weight.shape[1], weight.shape[0] // groups, *weight.shape[2:]
    )


def _summed(
    op: Any, unrolled: int, last: bool, weight: Any, part: Any, term: Any, placed: Any
) -> Any:
    """The sum of a term for each kernel position of the unrolled axes, which are batch to each term."""
    total: Any = None
    for taps in product(*map(range, op.kernel[:unrolled])):
        found = part(taps)
        if not last:
            found = jnp.moveaxis(found, 1, 1 + unrolled)
        outside = found.shape[: 1 + unrolled]
        found = term(
            found.reshape(-1, *found.shape[1 + unrolled :]),
            weight[(slice(None), slice(None), *taps)],
        )
        found = found.reshape(*outside, *found.shape[1:])
        found = placed(found if last else jnp.moveaxis(found, 1 + unrolled, 1), taps)
        total = found if total is None else total + found
    return total


# -- by a backend for NumPy arrays --


def _on_host(op: Any, operands: Any, backend: str, last: bool, shape: Any) -> Any:
    def host(x: Any, *rest: Any) -> Any:
        x = _turned(op, np.asarray(x), last)
        y = dispatch.forward(op, x, *map(np.asarray, rest), backend=backend)
        return _turned_back(op, y, last)

    return jax.pure_callback(host, jax.ShapeDtypeStruct(shape, operands[0].dtype), *operands)


def _gradients_on_host(op: Any, operands: Any, grad: Any, backend: str, last: bool) -> Any:
    def host(grad: Any, x: Any, *rest: Any) -> Any:
        x, grad = (_turned(op, np.asarray(a), last) for a in (x, grad))
        gx, *others = dispatch.vjp(op, (x, *map(np.asarray, rest)), grad, backend=backend)
        return (_turned_back(op, gx, last), *others)

    shapes = tuple(jax.ShapeDtypeStruct(a.shape, a.dtype) for a in operands)
    return jax.pure_callback(host, shapes, grad, *operands)


def _turned(op: Any, a: Any, last: bool) -> Any:
    return np.moveaxis(a, -1, a.ndim - 1 - op.rank) if last else a


def _turned_back(op: Any, a: Any, last: bool) -> Any:
    return np.ascontiguousarray(np.moveaxis(a, a.ndim - 1 - op.rank, -1)) if last else a
