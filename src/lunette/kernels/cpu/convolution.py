"""Convolution on the CPU: parts of the image multiplied with the weights while they are in the cache.

Three sums make every verb. Those of windows and of image cells are the same loop, a correlation: an
image cell is a sum over the windows that read it, and cells of one residue modulo the stride share
their taps. Each is a fold that starts from the bias and takes channels, then taps, in order, with
fused multiply-adds where the processor has them; so its bits depend on nothing but the numbers.
Those of weights and bias go over positions, box by box. Scratch memory is a few hundred kilobytes
per thread, some megabytes of weights or gradients in another order, and a box of half types in float32.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lunette.boxes import NUMBERS
from lunette.kernels.cpu.conv.arrays import FORMS, Array
from lunette.kernels.cpu.conv.correlate import SCRATCH, image_sums, window_sums
from lunette.kernels.cpu.conv.position_sums import bias_gradient, weight_gradient, widened
from lunette.kernels.cpu.memory.block_cache import new_array
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
    constants = [widened(a) for a in operands[1:]]
    moves = [widened(a) for a in tangents[1:]] if tangents else []
    for part in _parts(op, operands[0], out):
        x, result = widened(operands[0][part]), out[part]
        wide = result if out.dtype in FORMS else np.empty(result.shape, x.dtype)
        sources, bias = [(x, constants[0])], constants[1:]
        if tangents:
            sources, bias = [(widened(tangents[0][part]), constants[0]), (x, moves[0])], moves[1:]
        _value(op, sources, bias, wide)
        if wide is not result:
            _narrow(wide, result)
    return out


def vjp(op: Convolution, operands: tuple[Array, ...], grad: Array) -> tuple[Array, ...]:
    """The gradients of x, of the weight and of the bias, if there is one."""
    return vjp_of(op, operands, grad, (True,) * len(operands))


def vjp_of(
    op: Convolution, operands: tuple[Array, ...], grad: Array, needs: tuple[bool, ...]
) -> tuple[Any, ...]:
    """The gradients that are needed; None for the others."""
    x, weight, gy = operands[0], widened(operands[1]), grad
    if x.size + gy.size <= NUMBERS:  # a box at the most: half types are widened once for all sums
        x, gy = widened(x), widened(gy)
    found: list[Any] = [None] * len(operands)
    if needs[0]:
        found[0] = _image_gradient(op, x, weight, gy, grad.dtype)
    if needs[1]:
        image, windows = (gy, x) if op.transposed else (x, gy)
        found[1] = weight_gradient(op, image, windows, weight.shape, weight.dtype)
    if len(operands) == 3 and needs[2]:
        found[2] = bias_gradient(op, gy, weight.dtype)
    with np.errstate(all="ignore"):
        return tuple(None if g is None else g.astype(grad.dtype, copy=False) for g in found)


def _image_gradient(op: Convolution, x: Array, weight: Array, grad: Array, dtype: Any) -> Array:
    """The gradient of x, of this dtype: the adjoint of the value."""
    gx = new_array(x.shape, dtype)
    for part in _parts(op, x, grad):
        gy, result = widened(grad[part]), gx[part]
        wide = result if gx.dtype in FORMS else np.empty(result.shape, gy.dtype)
        (window_sums if op.transposed else image_sums)(op, [(gy, weight)], [], wide)
        if wide is not result:
            _narrow(wide, result)
    return gx


def _narrow(wide: Array, result: Array) -> None:
    """Round to a half type, in which a large number is infinite: no reason to warn."""
    with np.errstate(all="ignore"):
        result[...] = wide


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
