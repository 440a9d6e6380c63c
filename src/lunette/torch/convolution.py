"""Convolution of torch tensors: by our CPU kernels where a rule says that they are faster, else by torch's own.

torch's own has up to three axes. Axes before the last three are unrolled: for each of their kernel positions, a slice
of x is convolved over the last three axes, and the slices add up. On a GPU the taps of one of these axes stand beside the channels, so
that products are fewer and larger. Whichever it is, it is made of operators, so
derivatives, batching and tracing are torch's.
"""

from __future__ import annotations

from functools import partial
from itertools import product
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from lunette.memory import check_room
from lunette.ops.convolution import Conv, Convolution
from lunette.torch import lowering
from lunette.torch.convolution_operators import conv, settings_of
from lunette.torch.memory import dtype_of
from lunette.torch.speed import is_ours

__all__ = ["check", "forward", "jvp", "vjp"]

CONVOLVE = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}
TRANSPOSE = {
    1: functional.conv_transpose1d,
    2: functional.conv_transpose2d,
    3: functional.conv_transpose3d,
}
HALVES = (torch.float16, torch.bfloat16)

FOLDED = 1 << 31
"""Bytes of copies of x that a convolution of four axes and more on a GPU may make."""


def forward(op: Convolution, operands: tuple[Tensor, ...], always: bool = False) -> Tensor:
    """The convolution of x with weight, plus the bias if there is one; with `always`, by our kernels where they serve."""
    x, weight, *rest = operands
    check(op, operands)
    bias = rest[0] if rest else None
    ours = 0 if lowering.wanted(x) else is_ours(op, x, weight, always)
    if isinstance(op, Conv) and ours:
        return conv(x, weight, bias, *settings_of(op, x.shape[-op.rank :], ours))
    channels = x.ndim - op.rank - 1
    batch = x.shape[:channels]
    if channels == 1:
        flat = x
    elif x.numel():
        flat = x.reshape(-1, *x.shape[channels:])
    else:
        flat = x.new_zeros(0, *x.shape[channels:])
    fold = _folds(op, x)
    convolve = _transposed if op.transposed else partial(_convolved, fold=fold)
    if op.rank > 3 and x.dtype in HALVES and not (op.rank == 4 and fold and bias is None):
        # The sum over slices rounds once: halves are added up in float32.
        wide = None if bias is None else bias.float()
        result = convolve(op, flat.float(), weight.float(), wide).to(x.dtype)
    else:
        result = convolve(op, flat, weight, bias)
    return result if channels == 1 else result.reshape(*batch, *result.shape[1:])


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


def _convolved(
    op: Any, x: Tensor, weight: Tensor, bias: Tensor | None, fold: bool = False
) -> Tensor:
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
    if fold:
        return _plus(_folded(op, x, weight, outputs), bias)
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


def _folds(op: Any, x: Tensor) -> bool:
    """Whether taps along the last unrolled axis become channels: a copy of x for each, and one large product for all."""
    if op.transposed or op.rank < 4 or not x.is_cuda:
        return False
    return bool(op.kernel[op.rank - 4] * x.numel() * x.element_size() <= FOLDED)


def _folded(op: Any, x: Tensor, weight: Tensor, outputs: list[int]) -> Tensor:
    """The sum over taps of the axes before the last unrolled one; x has its padding."""
    last, groups = len(outputs) - 1, op.groups
    axes = range(last + 1)

    def at(axis: int, tap: int) -> slice:
        first = tap * op.dilation[axis]
        return slice(first, first + (outputs[axis] - 1) * op.stride[axis] + 1, op.stride[axis])

    total: Any = None
    for taps in product(*map(range, op.kernel[:last])):
        outer = (slice(None), slice(None), *map(at, axes, taps))
        copies = [x[(*outer, at(last, tap))] for tap in range(op.kernel[last])]
        # (batch, groups, channels, taps, outputs …, three axes): the outputs become batch, the taps channels of their group
        windows = torch.stack(copies, 2).unflatten(1, (groups, -1))
        order = (0, *(4 + axis for axis in axes), 1, 3, 2, -3, -2, -1)
        images = windows.permute(order).reshape(-1, op.kernel[last] * x.shape[1], *x.shape[-3:])
        filters = weight[(slice(None), slice(None), *taps)].movedim(2, 1).flatten(1, 2)
        term = functional.conv3d(images, filters, None, op.stride[-3:], 0, op.dilation[-3:], groups)
        total = term if total is None else total + term
    result: Tensor = total.reshape(-1, *outputs, *total.shape[1:]).movedim(2 + last, 1)
    return result


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
