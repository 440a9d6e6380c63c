"""Convolution of torch tensors: torch's own up to three axes, a sum of those beyond.

Axes before the last three are unrolled: for each of their kernel positions, a slice of x is
convolved over the last three axes, and the slices add up. All of it is torch's own operators, so
derivatives, batching and tracing are torch's too.
"""

from __future__ import annotations

from itertools import product
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from lunette.memory import check_room
from lunette.ops.convolution import Convolution
from lunette.torch.memory import dtype_of

__all__ = ["check", "forward", "jvp", "vjp"]

CONVOLVE = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}
TRANSPOSE = {
    1: functional.conv_transpose1d,
    2: functional.conv_transpose2d,
    3: functional.conv_transpose3d,
}
HALVES = (torch.float16, torch.bfloat16)


def forward(op: Convolution, operands: tuple[Tensor, ...]) -> Tensor:
    """The convolution of x with weight, plus the bias if there is one."""
    x, weight, *rest = operands
    check(op, operands)
    channels = x.ndim - op.rank - 1
    batch = x.shape[:channels]
    flat = x.reshape(-1, *x.shape[channels:]) if x.numel() else x.new_zeros(0, *x.shape[channels:])
    bias = rest[0] if rest else None
    convolve = _transposed if op.transposed else _convolved
    if op.rank > 3 and x.dtype in HALVES:
        # The sum over slices rounds once: halves are added up in float32.
        wide = None if bias is None else bias.float()
        result = convolve(op, flat.float(), weight.float(), wide).to(x.dtype)
    else:
        result = convolve(op, flat, weight, bias)
    return result.reshape(*batch, *result.shape[1:])


def jvp(op: Convolution, operands: tuple[Tensor, ...], tangents: tuple[Tensor, ...]) -> Tensor:
    """The directional derivative: the convolution is linear in x, in weight and in bias."""
    (x, weight, *_), (dx, dweight, *dbias) = operands, tangents
    return forward(op, (dx, weight, *dbias)) + forward(op, (x, dweight))


def vjp(op: Convolution, operands: tuple[Tensor, ...], grad: Tensor) -> tuple[Tensor, ...]:
    """The gradient in each operand."""
    _, backward = torch.func.vjp(lambda *tensors: forward(op, tensors), *operands)
    gradients: tuple[Tensor, ...] = backward(grad)
    return gradients


def check(op: Convolution, operands: tuple[Tensor, ...]) -> None:
    """Refuse what the op cannot take; symbols in a shape are left to torch."""
    shapes = tuple(tuple(t.shape) for t in operands)
    if all(type(n) is int for shape in shapes for n in shape):
        out = op.out_shape(*shapes)
        if operands[0].device.type == "cpu" and not torch.compiler.is_compiling():
            _check_memory(op, shapes, out, operands[0].element_size())
    if not torch.is_autocast_enabled(operands[0].device.type):
        op.result_dtype(*(dtype_of(t.dtype) for t in operands))


def _check_memory(op: Any, shapes: Any, out: tuple[int, ...], size: int) -> None:
    """Refuse a result, or an image with its padding, that does not fit into memory or into torch's integers."""
    image = out if op.transposed else shapes[0]
    margins = [r.margins(n) for r, n in zip(op.regions, image[-op.rank :], strict=True)]
    padded = prod(n + sum(pair) for n, pair in zip(image[-op.rank :], margins, strict=True))
    padded *= prod(image[: -op.rank])
    what = f"{op!r} of x of shape {shapes[0]}: the result of shape {out}"
    check_room(what, prod(out) * size, padded * size if padded else 0)
    for name in ("stride", "dilation"):
        for axis, n in enumerate(getattr(op, name)):
            if n >= 1 << 62:
                raise ValueError(f"{name}={n} on axis {axis}: expected less than 2**62 for tensors")


# -- one image axis after the batch: (batch, channels, *spatial) --


def _convolved(op: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    lengths = x.shape[2:]
    margins = [r.margins(n) for r, n in zip(op.regions, lengths, strict=True)]
    unrolled = max(op.rank - 3, 0)
    inner = slice(unrolled, None)
    padding: Any = 0
    if unrolled or any(before != after for before, after in margins):
        x = functional.pad(x, [p for pair in reversed(margins) for p in pair])
    else:
        padding = tuple(before for before, _ in margins)
    stride, dilation = op.stride[inner], op.dilation[inner]
    convolve = CONVOLVE[op.rank - unrolled]
    if not unrolled:
        return convolve(x, weight, bias, stride, padding, dilation, op.groups)
    outputs = [r.out_length(n) for r, n in zip(op.regions, lengths, strict=True)][:unrolled]
    x = x.movedim(1, 1 + unrolled)
    total: Any = None
    for taps in product(*map(range, op.kernel[:unrolled])):
        part = x[
            (
                slice(None),
                *(
                    slice(tap * d, tap * d + (m - 1) * s + 1, s)
                    for tap, d, s, m in zip(taps, op.dilation, op.stride, outputs, strict=False)
                ),
            )
        ]
        folded = part.reshape(-1, *part.shape[1 + unrolled :])
        term = convolve(
            folded, weight[(slice(None), slice(None), *taps)], None, stride, 0, dilation, op.groups
        )
        total = term if total is None else total + term
    result = total.reshape(-1, *outputs, *total.shape[1:]).movedim(1 + unrolled, 1)
    return _plus(result, bias)


def _transposed(op: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    unrolled = max(op.rank - 3, 0)
    inner = slice(unrolled, None)
    outputs = [op._out_length(axis, n) for axis, n in enumerate(x.shape[2:])]
    symmetric = not unrolled and all(before == after for before, after in op.padding)
    padding = tuple(before for before, _ in op.padding) if symmetric else 0
    transpose = TRANSPOSE[op.rank - unrolled]
    settings = (
        op.stride[inner],
        padding,
        op.output_padding[inner],
        op.groups,
        op.dilation[inner],
    )
    if symmetric:
        return transpose(x, weight, bias, *settings)
    if not unrolled:
        full = transpose(x, weight, None, *settings)
    else:
        full = _scattered(op, x, weight, unrolled, lambda a, b: transpose(a, b, None, *settings))
    for axis, ((before, _), length) in enumerate(zip(op.padding, outputs, strict=True), 2):
        full = full.narrow(axis, before, length)
    return _plus(full, bias)


def _scattered(op: Any, x: Tensor, weight: Tensor, unrolled: int, transpose: Any) -> Tensor:
    """The uncropped result: each kernel position's term, spread by the stride and shifted."""
    x = x.movedim(1, 1 + unrolled)
    lengths = x.shape[1 : 1 + unrolled]
    folded = x.reshape(-1, *x.shape[1 + unrolled :])
    total: Any = None
    for taps in product(*map(range, op.kernel[:unrolled])):
        term = transpose(folded, weight[(slice(None), slice(None), *taps)])
        term = term.reshape(-1, *lengths, *term.shape[1:]).movedim(1 + unrolled, 1)
        for axis, tap in enumerate(taps):
            term = _spread(
                term,
                axis + 2,
                op.stride[axis],
                tap * op.dilation[axis],
                (op.kernel[axis] - 1 - tap) * op.dilation[axis] + op.output_padding[axis],
            )
        total = term if total is None else total + term
    return total


def _spread(x: Tensor, axis: int, stride: int, before: int, after: int) -> Tensor:
    """`x` with `stride − 1` zeros between neighbours on an axis, and zeros at its ends."""
    x = x.movedim(axis, -1)
    n = x.shape[-1]
    if stride > 1:
        apart = functional.pad(x.unsqueeze(-1), (0, stride - 1))
        x = apart.reshape(*x.shape[:-1], n * stride).narrow(-1, 0, (n - 1) * stride + 1)
    return functional.pad(x, (before, after)).movedim(-1, axis)


def _plus(result: Tensor, bias: Tensor | None) -> Tensor:
    return result if bias is None else result + bias.reshape(-1, *(1,) * (result.ndim - 2))
