"""Convolution on the CPU: parts of the image multiplied with the weights while they are in the cache.

Three sums make every verb. Those of windows and of image cells are the same loop, a correlation: an
image cell is a sum over the windows that read it, and cells of one residue modulo the stride share
their taps. Each is a fold that starts from the bias and takes channels, then taps, in order, with
fused multiply-adds where the processor has them; so its bits depend on nothing but the numbers.
That of the weights goes over positions, block by block. Scratch memory is a few hundred kilobytes
per thread and some megabytes of weights or gradients in another order.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from lunette.kernels.cpu.correlation import FORMS, SCRATCH, Array, image_sums, window_sums
from lunette.kernels.cpu.results import new_array
from lunette.kernels.cpu.weight_sums import weight_sums
from lunette.ops.base import is_float
from lunette.ops.convolution import Convolution

__all__ = ["forward", "forward_with_indices", "jvp", "refuses", "vjp", "vjp_of"]


def refuses(op: Convolution, verb: str, shapes: Any, dtypes: Any) -> str | None:
    """None, or why these kernels cannot serve the call."""
    if not is_float(dtypes[0]):
        return f"has no convolution of dtype {dtypes[0]}"
    return None


# -- the verbs --


def forward(op: Convolution, operands: tuple[Array, ...]) -> Array:
    """The value of the convolution."""
    return _sum(op, operands, None)


def forward_with_indices(op: Convolution, operands: tuple[Array, ...]) -> tuple[Array, Array]:
    """Only a max has indices."""
    raise TypeError(f"{op!r}: only a max has indices")


def jvp(op: Convolution, operands: tuple[Array, ...], tangents: tuple[Array, ...]) -> Array:
    """The directional derivative: the terms of both operands are one sum."""
    return _sum(op, operands, tangents)


def _sum(op: Convolution, operands: tuple[Array, ...], tangents: tuple[Array, ...] | None) -> Array:
    """The sum of the terms of one source, x and weight, or of both, one of them a tangent."""
    out = new_array(op.out_shape(*(a.shape for a in operands)), operands[0].dtype)
    constants = [_widened(a) for a in operands[1:]]
    moves = [_widened(a) for a in tangents[1:]] if tangents else []
    for part in _parts(op, operands[0], out):
        x, result = _widened(operands[0][part]), out[part]
        wide = result if out.dtype in FORMS else np.empty(result.shape, x.dtype)
        sources, bias = [(x, constants[0])], constants[1:]
        if tangents:
            sources, bias = [(_widened(tangents[0][part]), constants[0]), (x, moves[0])], moves[1:]
        _value(op, sources, bias, wide)
        if wide is not result:
            result[...] = wide
    return out


def vjp(op: Convolution, operands: tuple[Array, ...], grad: Array) -> tuple[Array, ...]:
    """The gradients of x, of the weight and of the bias, if there is one."""
    return vjp_of(op, operands, grad, (True,) * len(operands))


def vjp_of(
    op: Convolution, operands: tuple[Array, ...], grad: Array, needs: tuple[bool, ...]
) -> tuple[Any, ...]:
    """The gradients that are needed; None for the others."""
    weight = _widened(operands[1])
    gx = new_array(operands[0].shape if needs[0] else (0,), grad.dtype)
    gweight = np.zeros(weight.shape if needs[1] else 0, weight.dtype)
    gbias = np.zeros(grad.shape[-op.rank - 1], weight.dtype)
    for number, part in enumerate(_parts(op, operands[0], grad)):
        x, gy = _widened(operands[0][part]), _widened(grad[part])
        if needs[0]:
            result = gx[part]
            wide = result if gx.dtype in FORMS else np.empty(result.shape, x.dtype)
            (window_sums if op.transposed else image_sums)(op, [(gy, weight)], [], wide)
            if wide is not result:
                result[...] = wide
        if needs[1]:
            more = np.empty_like(gweight) if number else gweight
            weight_sums(op, *((gy, x) if op.transposed else (x, gy)), more)
            if number:
                with np.errstate(all="ignore"):
                    gweight += more
        if len(operands) == 3 and needs[2]:
            with np.errstate(all="ignore"):
                gbias += _channel_sums(op, gy)
    found = zip((gx, gweight, gbias), operands, needs, strict=False)
    return tuple(g.astype(grad.dtype, copy=False) if need else None for g, _, need in found)


def _widened(array: Array) -> Array:
    """Half types as float32; they are rounded once, at the end."""
    return array if array.dtype in FORMS else array.astype(np.float32)


def _parts(op: Convolution, x: Array, y: Array) -> list[Any]:
    """Slices of the first batch axis: all of it, or what half types may be widened of at a time."""
    if x.dtype in FORMS or x.ndim == op.rank + 1:
        return [...]
    bytes_per_item = 4 * (x.size + y.size) // (len(x) or 1)
    step = max(1, SCRATCH // (bytes_per_item or 1))
    return [slice(i, i + step) for i in range(0, len(x), step)]


def _value(op: Convolution, sources: list[Any], bias: list[Array], out: Array) -> None:
    if op.transposed:
        image_sums(op, sources, bias, out)
    else:
        window_sums(op, sources, bias, out)


def _channel_sums(op: Convolution, grad: Array) -> Array:
    """The sum of each channel: pairwise over a channel of a batch item, then over the items."""
    channels, items = grad.shape[-op.rank - 1], grad.shape[: -op.rank - 1]
    sums = np.zeros((prod(items), channels), grad.dtype)
    with np.errstate(all="ignore"):
        for number, item in enumerate(np.ndindex(items)):
            sums[number] = np.ascontiguousarray(grad[item]).reshape(channels, -1).sum(1)
        total: Array = sums.sum(0)
    return total
