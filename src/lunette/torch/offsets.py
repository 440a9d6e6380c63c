"""A max that keeps each winner's offset in its window, one byte, for its gradient.

`lunette::max_with_offsets` stands in for `lunette::pool` where a gradient will be asked for: the
gradient then reads a byte per output instead of x. `lunette::max_vjp_from_offsets` and
`lunette::max_jvp_from_offsets` are linear and each other's adjoint, so derivatives of any order
follow.
"""

from __future__ import annotations

import weakref
from functools import lru_cache
from importlib import import_module
from math import prod
from typing import Any

import torch
from torch import Tensor

from lunette import offsets as on_arrays
from lunette.encoding import decode
from lunette.kernels.cpu.schedule.nhwc import cheap_argmax
from lunette.kernels.cpu.schedule.windows import few_cells
from lunette.kernels.cpu.tuning import ARGMAX_DIRECT_MAX_TAPS
from lunette.offsets import NOWHERE
from lunette.reductions import Max
from lunette.regions import Sliding
from lunette.torch import library
from lunette.torch.autograd import register_derivatives
from lunette.torch.checking import check_kept, refuse_layouts
from lunette.torch.derivatives import Rule
from lunette.torch.memory import array_of, empty, format_of, tensor_of

__all__ = ["max_vjp_from_offsets", "max_with_offsets", "on_cpu", "serves"]

LARGE = 1 << 20
"""Cells of an axis that no window is longer than."""

library.LIBRARY.define("max_with_offsets(Tensor x, str op) -> (Tensor, Tensor)", tags=library.TAGS)
library.LIBRARY.define(
    "max_vjp_from_offsets(Tensor offsets, Tensor grad, SymInt[] shape, str op) -> Tensor",
    tags=library.TAGS,
)
library.LIBRARY.define(
    "max_jvp_from_offsets(Tensor offsets, Tensor dx, str op) -> Tensor", tags=library.TAGS
)
max_with_offsets = torch.ops.lunette.max_with_offsets.default
max_vjp_from_offsets = torch.ops.lunette.max_vjp_from_offsets.default
max_jvp_from_offsets = torch.ops.lunette.max_jvp_from_offsets.default


def serves(x: Tensor, op: str, backend: str | None) -> bool:
    """Whether a gradient in x will be asked for, and offsets can give it, and sooner."""
    if not (x.requires_grad and torch.is_grad_enabled()):
        return False
    if x.is_cuda:
        return backend in (None, "triton") and _taps(op) <= NOWHERE
    return x.device.type == "cpu" and backend in (None, "cpu") and on_cpu(x, op)


def on_cpu(x: Tensor, op: str) -> bool:
    """Whether offsets give the gradient of a CPU tensor, and sooner.

    Rows or channels must lie side by side, and windows be so small that kernels go cell by cell.
    """
    last = format_of(x) is not torch.contiguous_format
    in_order = (last or x.is_contiguous()) and x.is_floating_point()
    return in_order and _go_cell_by_cell(op, x.element_size(), last)


@lru_cache(maxsize=4096)
def _go_cell_by_cell(op: str, size: int, channels_last: bool) -> bool:
    """Whether kernels on the CPU look at each cell of a window of numbers of `size` bytes, on a large input."""
    if _taps(op) > ARGMAX_DIRECT_MAX_TAPS:
        return False
    pooling = decode(op)
    shape = (LARGE,) * pooling.rank
    return (
        cheap_argmax(pooling, shape) if channels_last else few_cells(pooling, shape, max(4, size))
    )


@lru_cache(maxsize=4096)
def _taps(op: str) -> int:
    """Taps of a window of a max with one winner; of other ops more than any byte can tell apart."""
    pooling = decode(op)
    kernels = [r.kernel for r in pooling.regions if isinstance(r, Sliding) and not r.far]
    sliding = len(kernels) == pooling.rank
    return prod(kernels) if pooling.reduction == Max("first") and sliding else NOWHERE + 1


def _max_with_offsets_cuda(x: Tensor, op: str) -> tuple[Tensor, Tensor]:
    pooling = decode(op)
    kernels = library.triton_kernels(pooling, "forward_with_offsets", None, x)
    values, offsets = kernels.forward_with_offsets(pooling, (x,))
    return library.like(x, values), library.like(x, offsets)


def _max_vjp_from_offsets_cuda(offsets: Tensor, grad: Tensor, shape: Any, op: str) -> Tensor:
    pooling = decode(op)
    check_kept(pooling, offsets, grad, shape)
    kernels = import_module("lunette.kernels.triton")
    gradient = kernels.vjp_from_offsets(pooling, tuple(shape), offsets, grad)
    return gradient.contiguous(memory_format=format_of(offsets))


def _max_jvp_from_offsets_cuda(offsets: Tensor, dx: Tensor, op: str) -> Tensor:
    pooling = decode(op)
    check_kept(pooling, offsets, dx)
    kernels = import_module("lunette.kernels.triton")
    return library.like(dx, kernels.jvp_from_offsets(pooling, offsets, dx))


def _max_with_offsets_cpu(x: Tensor, op: str) -> tuple[Tensor, Tensor]:
    values, found = on_arrays.forward_with_offsets(decode(op), array_of(x))
    kept = like(x, found)
    _note(found, kept, op, tuple(x.shape))
    return like(x, values), kept


def _max_vjp_from_offsets_cpu(winners: Tensor, grad: Tensor, shape: Any, op: str) -> Tensor:
    arrays, lengths = (array_of(winners), array_of(grad)), tuple(shape)
    known = _given.get(winners.data_ptr(), (None,))[1:] == (op, lengths)
    return like(winners, on_arrays.vjp_from_offsets(decode(op), *arrays, lengths, known))


def _max_jvp_from_offsets_cpu(winners: Tensor, dx: Tensor, op: str) -> Tensor:
    return like(dx, on_arrays.jvp_from_offsets(decode(op), array_of(winners), array_of(dx)))


_given: dict[int, tuple[Any, ...]] = {}
"""Where offsets lie that were given and are still there, and of what: a gradient from these need not look at them first."""


def _note(found: Any, kept: Tensor, op: str, shape: tuple[int, ...]) -> None:
    """Remember offsets for as long as their memory is used, unless they were copied."""
    at = found.__array_interface__["data"][0]
    if found.size and kept.data_ptr() == at:
        _given[at] = weakref.ref(found, lambda _: _given.pop(at, None)), op, shape


def like(x: Tensor, result: Any) -> Tensor:
    """A CPU kernel's array as a tensor in the memory format of `x`."""
    return library.like(x, tensor_of(result))


def _fake_max_with_offsets(x: Tensor, op: str) -> tuple[Tensor, Tensor]:
    pooling = decode(op)
    pooling.check_indices()
    shape = library.out_shape(pooling, x)
    return empty(x, shape, x.dtype), empty(x, shape, torch.uint8)


def _fake_max_vjp_from_offsets(offsets: Tensor, grad: Tensor, shape: Any, op: str) -> Tensor:
    check_kept(decode(op), offsets, grad, shape)
    return empty(offsets, shape, grad.dtype)


def _fake_max_jvp_from_offsets(offsets: Tensor, dx: Tensor, op: str) -> Tensor:
    check_kept(decode(op), offsets, dx)
    return empty(dx, offsets.shape, dx.dtype)


def _batched_max(info: Any, in_dims: Any, x: Tensor, op: str) -> Any:
    return max_with_offsets(x.movedim(in_dims[0], 0), op), (0, 0)


def _batched_vjp(
    info: Any, in_dims: Any, offsets: Tensor, grad: Tensor, shape: Any, op: str
) -> Any:
    offsets, grad = _in_front(info, in_dims, offsets, grad)
    return max_vjp_from_offsets(offsets, grad, (info.batch_size, *shape), op), 0


def _batched_jvp(info: Any, in_dims: Any, offsets: Tensor, dx: Tensor, op: str) -> Any:
    return max_jvp_from_offsets(*_in_front(info, in_dims, offsets, dx), op), 0


def _in_front(info: Any, in_dims: Any, *tensors: Tensor) -> list[Tensor]:
    """The tensors with the samples' axis first."""
    return [
        t.expand(info.batch_size, *t.shape) if axis is None else t.movedim(axis, 0)
        for t, axis in zip(tensors, in_dims, strict=False)
    ]


class _MaxWithOffsets(Rule):
    """(y, offsets) = max_with_offsets(x); the offsets are kept and have no derivative."""

    keeps_results = True

    def gradient(self, args: tuple[Any, ...], grads: tuple[Any, ...], needs: Any) -> Any:
        x, op, offsets = args
        return max_vjp_from_offsets(offsets, grads[0], x.shape, op), None

    def tangent(self, args: tuple[Any, ...], tangents: tuple[Any, ...]) -> Any:
        _, op, offsets = args
        return max_jvp_from_offsets(offsets, tangents[0], op), None


class _MaxVjpFromOffsets(Rule):
    """r = max_vjp_from_offsets(offsets, grad): linear in grad."""

    def gradient(self, args: tuple[Any, ...], grads: tuple[Any, ...], needs: Any) -> Any:
        offsets, _, _, op = args
        return None, max_jvp_from_offsets(offsets, grads[0], op), None, None

    def tangent(self, args: tuple[Any, ...], tangents: tuple[Any, ...]) -> Any:
        offsets, _, shape, op = args
        return max_vjp_from_offsets(offsets, tangents[1], shape, op)


class _MaxJvpFromOffsets(Rule):
    """t = max_jvp_from_offsets(offsets, dx): linear in dx."""

    def gradient(self, args: tuple[Any, ...], grads: tuple[Any, ...], needs: Any) -> Any:
        offsets, dx, op = args
        return None, max_vjp_from_offsets(offsets, grads[0], dx.shape, op), None

    def tangent(self, args: tuple[Any, ...], tangents: tuple[Any, ...]) -> Any:
        offsets, _, op = args
        return max_jvp_from_offsets(offsets, tangents[1], op)


KERNELS = {
    "max_with_offsets": _max_with_offsets_cuda,
    "max_vjp_from_offsets": _max_vjp_from_offsets_cuda,
    "max_jvp_from_offsets": _max_jvp_from_offsets_cuda,
}
"""What serves each operator on CUDA."""

CPU_KERNELS = {
    "max_with_offsets": _max_with_offsets_cpu,
    "max_vjp_from_offsets": _max_vjp_from_offsets_cpu,
    "max_jvp_from_offsets": _max_jvp_from_offsets_cpu,
}
"""What serves each operator on a CPU."""

for name, without_data, batched, derivative in (
    ("max_with_offsets", _fake_max_with_offsets, _batched_max, _MaxWithOffsets()),
    ("max_vjp_from_offsets", _fake_max_vjp_from_offsets, _batched_vjp, _MaxVjpFromOffsets()),
    ("max_jvp_from_offsets", _fake_max_jvp_from_offsets, _batched_jvp, _MaxJvpFromOffsets()),
):
    library.LIBRARY.impl(name, KERNELS[name], "CUDA")
    library.LIBRARY.impl(name, library.as_many_threads(CPU_KERNELS[name]), "CPU")
    refuse_layouts(library.LIBRARY, name)
    torch.library.register_fake(f"lunette::{name}", without_data, lib=library.LIBRARY)
    torch.library.register_vmap(f"lunette::{name}", batched, lib=library.LIBRARY)
    register_derivatives(library.LIBRARY, getattr(torch.ops.lunette, name).default, derivative)
