"""Convolution by our CPU kernels as torch operators: kernels, shapes without data, derivatives and batching, registered.

A convolution is linear in x and in weight. Its value, and the adjoints of both, are three operators, and each is the
derivative of the other two; so derivatives of any order follow, in every mode of torch. An operator is told what is by
our kernels, the value or the adjoints or both; the rest is torch's own convolution.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lunette import dispatch
from lunette.ops.convolution import Conv
from lunette.torch.autograd import register_derivatives
from lunette.torch.checking import refuse_layouts
from lunette.torch.derivatives import Rule
from lunette.torch.library import LIBRARY, TAGS, as_many_threads
from lunette.torch.memory import array_of, tensor_of
from lunette.torch.speed import GRADIENTS, VALUE

__all__ = ["conv", "conv_input", "conv_weight", "settings_of"]

SETTINGS = "int[] stride, int[] padding, int[] dilation, int groups, int ours"
LIBRARY.define(f"conv(Tensor x, Tensor weight, Tensor? bias, {SETTINGS}) -> Tensor", tags=TAGS)
LIBRARY.define(
    f"conv_input(Tensor grad, Tensor weight, SymInt[] shape, {SETTINGS}) -> Tensor", tags=TAGS
)
LIBRARY.define(
    f"conv_weight(Tensor x, Tensor grad, SymInt[] shape, {SETTINGS}) -> Tensor", tags=TAGS
)

conv = torch.ops.lunette.conv.default
conv_input = torch.ops.lunette.conv_input.default
conv_weight = torch.ops.lunette.conv_weight.default

Settings = tuple[Any, Any, Any, int, int]
THEIRS = torch.ops.aten.convolution.default
THEIR_GRADIENTS = torch.ops.aten.convolution_backward.default


def settings_of(op: Conv, lengths: Any, ours: int) -> Settings:
    """What an operator is told of an op on an image of these lengths: stride, padding as a flat list, dilation, groups,
    and what is by our kernels."""
    margins = [r.margins(n) for r, n in zip(op.regions, lengths, strict=True)]
    if any(before != after for before, after in margins):  # torch's own would need a padded image
        ours = VALUE + GRADIENTS
    padding = [n for pair in margins for n in pair]
    steps: Any = op.stride, op.dilation
    return list(steps[0]), padding, list(steps[1]), op.groups, ours


def _op(kernel: Any, settings: Any) -> Conv:
    stride, padding, dilation, groups, _ = settings
    return _known(tuple(map(int, kernel)), tuple(stride), tuple(padding), tuple(dilation), groups)


@lru_cache(maxsize=1024)
def _known(kernel: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Conv:
    if len(padding) != 2 * len(kernel):
        raise ValueError(
            f"padding={padding}: expected {2 * len(kernel)} numbers, two for each of {len(kernel)} axes"
        )
    pairs = tuple(zip(padding[::2], padding[1::2], strict=True))
    return Conv(kernel, stride, pairs, dilation, groups)


# -- kernels --


def _conv_cpu(x: Tensor, weight: Tensor, bias: Tensor | None, *settings: Any) -> Tensor:
    if not settings[-1] & VALUE:
        flat, back = _flat(x, weight.ndim - 1), x.shape[: x.ndim - weight.ndim + 1]
        y = THEIRS(flat, weight, bias, *_their_settings(weight.ndim - 2, settings))
        return y.reshape(*back, *y.shape[1:])
    operands = [array_of(t) for t in (x, weight, bias) if t is not None]
    return tensor_of(dispatch.forward(_op(weight.shape[2:], settings), *operands))


def _conv_input_cpu(grad: Tensor, weight: Tensor, shape: Any, *settings: Any) -> Tensor:
    if not settings[-1] & GRADIENTS:
        keeps = weight.ndim - 1
        items = grad.shape[: grad.ndim - keeps].numel()
        x = grad.new_zeros(()).expand(items, *shape[len(shape) - keeps :])
        return _their_gradients(grad, x, weight, settings, 0).reshape(tuple(shape))
    gy, w = array_of(grad), array_of(weight)
    operands = _unread(shape, gy.dtype), w
    op = _op(weight.shape[2:], settings)
    return tensor_of(dispatch.vjp(op, operands, gy, needs=(True, False))[0])


def _conv_weight_cpu(x: Tensor, grad: Tensor, shape: Any, *settings: Any) -> Tensor:
    if not settings[-1] & GRADIENTS:
        weight = x.new_zeros(()).expand(tuple(shape))
        return _their_gradients(grad, _flat(x, len(shape) - 1), weight, settings, 1)
    image, gy = array_of(x), array_of(grad)
    operands = image, _unread(shape, image.dtype)
    op = _op(shape[2:], settings)
    return tensor_of(dispatch.vjp(op, operands, gy, needs=(False, True))[1])


def _their_settings(rank: int, settings: Any) -> tuple[Any, ...]:
    stride, padding, dilation, groups, _ = settings
    return stride, padding[::2], dilation, False, [0] * rank, groups


def _their_gradients(grad: Tensor, x: Tensor, weight: Tensor, settings: Any, place: int) -> Any:
    mask = [place == 0, place == 1, False]
    some = _their_settings(weight.ndim - 2, settings)
    return THEIR_GRADIENTS(_flat(grad, weight.ndim - 1), x, weight, None, *some, mask)[place]


def _flat(x: Tensor, kept: int) -> Tensor:
    """One batch axis before the last `kept`."""
    return x.reshape(x.shape[: x.ndim - kept].numel(), *x.shape[x.ndim - kept :])


def _unread(shape: Any, dtype: Any) -> Any:
    """An operand that a linear map's adjoint knows by its shape alone."""
    return np.broadcast_to(np.zeros((), dtype), tuple(shape))


# -- shapes without data --


def _fake_conv(x: Tensor, weight: Tensor, bias: Tensor | None, *settings: Any) -> Tensor:
    return x.new_empty(_out_shape(x, weight, settings))


def _out_shape(x: Tensor, weight: Tensor, settings: Any) -> tuple[Any, ...]:
    op = _op(weight.shape[2:], settings)
    lengths = [r.out_length(n) for r, n in zip(op.regions, x.shape[-op.rank :], strict=True)]
    return (*x.shape[: -op.rank - 1], weight.shape[0], *lengths)


def _fake_input(grad: Tensor, weight: Tensor, shape: Any, *settings: Any) -> Tensor:
    return grad.new_empty(tuple(shape))


def _fake_weight(x: Tensor, grad: Tensor, shape: Any, *settings: Any) -> Tensor:
    return x.new_empty(tuple(shape))


# -- batching: every axis before the channels is batch already --


def _each(operator: Any, info: Any, in_dims: Any, args: Any) -> tuple[Tensor, int]:
    """One sample after the other."""
    parts = [
        a.unbind(d) if isinstance(a, Tensor) and d is not None else (a,) * info.batch_size
        for a, d in zip(args, in_dims, strict=True)
    ]
    return torch.stack([operator(*sample) for sample in zip(*parts, strict=True)]), 0


def _batched_conv(
    info: Any, in_dims: Any, x: Tensor, weight: Any, bias: Any, *settings: Any
) -> Any:
    dims = list(in_dims)[:3]
    if dims[1] is None and dims[2] is None:
        return conv(x.movedim(dims[0], 0), weight, bias, *settings), 0
    return _each(conv, info, (*dims, *(None,) * 5), (x, weight, bias, *settings))


def _batched_input(
    info: Any, in_dims: Any, grad: Tensor, weight: Tensor, shape: Any, *settings: Any
) -> Any:
    dims = list(in_dims)[:2]
    if dims[1] is None:
        whole = (info.batch_size, *shape)
        return conv_input(grad.movedim(dims[0], 0), weight, whole, *settings), 0
    return _each(conv_input, info, (*dims, *(None,) * 6), (grad, weight, shape, *settings))


def _batched_weight(
    info: Any, in_dims: Any, x: Tensor, grad: Tensor, shape: Any, *settings: Any
) -> Any:
    dims = list(in_dims)[:2]
    return _each(conv_weight, info, (*dims, *(None,) * 6), (x, grad, shape, *settings))


# -- derivatives --


def _total(parts: list[Any]) -> Any:
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def _over_bias(grad: Tensor, rank: int) -> Tensor:
    """The sum of each channel."""
    axes = [a for a in range(grad.ndim) if a != grad.ndim - rank - 1]
    return grad.sum(axes) if axes else grad


class _Conv(Rule):
    """y = conv(x, weight, bias)."""

    def gradient(self, args: tuple[Any, ...], grads: tuple[Any, ...], needs: Any) -> Any:
        x, weight, bias, *settings = args
        (grad,) = grads
        for_x = conv_input(grad, weight, x.shape, *settings) if needs[0] else None
        for_weight = conv_weight(x, grad, weight.shape, *settings) if needs[1] else None
        for_bias = _over_bias(grad, weight.ndim - 2) if bias is not None and needs[2] else None
        return for_x, for_weight, for_bias, *(None,) * 5

    def tangent(self, args: tuple[Any, ...], tangents: tuple[Any, ...]) -> Any:
        x, weight, _, *settings = args
        dx, dweight, dbias, *_ = tangents
        parts = []
        if dx is not None:
            parts.append(conv(dx, weight, None, *settings))
        if dweight is not None:
            parts.append(conv(x, dweight, None, *settings))
        if dbias is not None:
            along = dbias.reshape(-1, *(1,) * (weight.ndim - 2))
            parts.append(along if parts else along.expand(_out_shape(x, weight, settings)))
        return _total(parts)


class _ConvInput(Rule):
    """r = conv_input(grad, weight): linear in both."""

    def gradient(self, args: tuple[Any, ...], grads: tuple[Any, ...], needs: Any) -> Any:
        grad, weight, _, *settings = args
        (along,) = grads
        for_grad = conv(along, weight, None, *settings) if needs[0] else None
        for_weight = conv_weight(along, grad, weight.shape, *settings) if needs[1] else None
        return for_grad, for_weight, *(None,) * 6

    def tangent(self, args: tuple[Any, ...], tangents: tuple[Any, ...]) -> Any:
        grad, weight, *rest = args
        dgrad, dweight, *_ = tangents
        parts = []
        if dgrad is not None:
            parts.append(conv_input(dgrad, weight, *rest))
        if dweight is not None:
            parts.append(conv_input(grad, dweight, *rest))
        return _total(parts)


class _ConvWeight(Rule):
    """r = conv_weight(x, grad): linear in both."""

    def gradient(self, args: tuple[Any, ...], grads: tuple[Any, ...], needs: Any) -> Any:
        x, grad, _, *settings = args
        (along,) = grads
        for_x = conv_input(grad, along, x.shape, *settings) if needs[0] else None
        for_grad = conv(x, along, None, *settings) if needs[1] else None
        return for_x, for_grad, *(None,) * 6

    def tangent(self, args: tuple[Any, ...], tangents: tuple[Any, ...]) -> Any:
        x, grad, *rest = args
        dx, dgrad, *_ = tangents
        parts = []
        if dx is not None:
            parts.append(conv_weight(dx, grad, *rest))
        if dgrad is not None:
            parts.append(conv_weight(x, dgrad, *rest))
        return _total(parts)


for name, operator, on_cpu, without_data, batched, derivative in (
    ("conv", conv, _conv_cpu, _fake_conv, _batched_conv, _Conv()),
    ("conv_input", conv_input, _conv_input_cpu, _fake_input, _batched_input, _ConvInput()),
    ("conv_weight", conv_weight, _conv_weight_cpu, _fake_weight, _batched_weight, _ConvWeight()),
):
    LIBRARY.impl(name, as_many_threads(on_cpu), "CPU")
    refuse_layouts(LIBRARY, name)
    torch.library.register_fake(f"lunette::{name}", without_data, lib=LIBRARY)
    torch.library.register_vmap(f"lunette::{name}", batched, lib=LIBRARY)
    register_derivatives(LIBRARY, operator, derivative)
