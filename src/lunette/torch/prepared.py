"""Prepared calls on plain CPU tensors: what depends on op, shape, strides and dtype alone is decided once.

A tensor's memory is given to a CPU kernel by its address. Where a result is large, or memory lies in an unusual order,
the kernels' own functions of NumPy arrays are asked instead: the bits are the same.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lunette import dispatch
from lunette import offsets as on_arrays
from lunette.cached import cached_property
from lunette.kernels.cpu import pooling as kernels
from lunette.kernels.cpu.layout.split_axis import LONG
from lunette.kernels.cpu.schedule.nhwc import NhwcPlan
from lunette.kernels.cpu.schedule.plan import memory_order
from lunette.kernels.cpu.select.argmax import indices_call, offsets_call
from lunette.kernels.cpu.select.forward import forward_call
from lunette.kernels.cpu.select.vjp import gather_call, gradient_call
from lunette.kernels.threads import limited
from lunette.ops.pooling import Pooling
from lunette.reductions import Max, Mean, SmoothMax
from lunette.torch import integers
from lunette.torch.memory import (
    DTYPES,
    TENSOR_DTYPES,
    array_of,
    dtype_of,
    extent,
    format_of,
    like,
    tensor_of,
)
from lunette.torch.thin import Thin, thin

__all__ = ["MOST", "Prepared", "prepare"]

LARGE = 1 << 20
"""Bytes from which the kernels allocate a result: their blocks are used again."""

MOST = 4096
"""Calls that an op keeps, at most; an op on ever new shapes begins anew."""


def _new(shape: tuple[int, ...], dtype: np.dtype[Any], last: Any) -> Callable[[], Tensor]:
    """Makes small results; NumPy's allocator and torch's view of it are the quickest pair. `last` is a format with channels last."""
    empty, view = np.empty, torch.from_numpy
    if last is not None:
        kind, make = TENSOR_DTYPES[dtype], torch.empty
        return lambda: make(shape, dtype=kind, memory_format=last)
    if TENSOR_DTYPES[dtype] is torch.bfloat16:
        return lambda: torch.empty(shape, dtype=torch.bfloat16)
    return lambda: view(empty(shape, dtype))


class Prepared:
    """The verbs of one op on CPU tensors of one shape, strides and dtype."""

    function: Any
    """The `autograd.Function` that records it."""

    def __init__(self, op: Pooling, x: Tensor) -> None:
        self.op, self.shape, self.strides = op, tuple(x.shape), x.stride()
        self.tensor_dtype, self.dtype = x.dtype, dtype_of(x.dtype)
        self.size, result = self.dtype.itemsize, op.result_dtype(self.dtype)
        self.extent = extent(x)
        self.out = op.out_shape(self.shape)
        kind = format_of(x) if len(self.out) == x.ndim else torch.contiguous_format
        self.last = None if kind is torch.contiguous_format else kind
        """Where channels are: in the memory format that results have, too."""
        self.order = None if self.last is None else memory_order(x.ndim, 1)
        self.new = _new(self.out, result, self.last)
        self.new_gradient = _new(self.shape, self.dtype, self.last)
        self.new_marks = _new(self.out, np.dtype(np.uint8), self.last)
        self.new_places = _new(self.out, np.dtype(np.int64), self.last)
        self.items = prod(self.shape[: len(self.shape) - op.rank])
        simple = self.lies_so(x) and x.numel() > 0 and max(self.shape) <= LONG
        self.small_out = simple and prod(self.out) * max(8, result.itemsize) < LARGE
        self.small_in = self.small_out and prod(self.shape) * self.size < LARGE
        self.reads_x = not isinstance(op.reduction, Mean)
        self.keeps = isinstance(op.reduction, Max) and _keeps(op, x)
        self.calls: dict[Any, Thin | None] = {}

    def _call(self, choose: Any) -> Thin | None:
        """The call of a verb on x alone; None where the kernels' own functions are to be asked."""
        try:
            return self.calls[choose]
        except KeyError:
            call = None
            if self.small_out:
                found = choose(self.op, self.shape, self._bytes(self.strides), self.dtype)
                call = self._thin(found, choose is not forward_call)
            return self.calls.setdefault(choose, call)

    def _thin(self, call: Any, searched: bool) -> Thin | None:
        """The call as it is; where channels are last, one that kernels would have, too, which turn some arrays first."""
        if self.last is not None:
            first = getattr(call, "calls", (call,))[0]
            smooth = isinstance(self.op.reduction, SmoothMax)
            if smooth or (
                searched and self.reads_x and not isinstance(getattr(first, "plan", None), NhwcPlan)
            ):
                return None
        return thin(call, self.order)

    def lies_so(self, x: Any) -> bool:
        """Whether a tensor lies as results do."""
        if self.last is None:
            return bool(x.is_contiguous())
        return bool(x.is_contiguous(memory_format=self.last))

    def _bytes(self, strides: Any) -> tuple[int, ...]:
        # An op that drops its axes has windows on them all the same.
        kept = (*strides, *(1,) * (len(self.shape) - len(strides)))
        return tuple(s * self.size for s in kept)

    # -- values --

    @cached_property
    def values(self) -> Callable[[Tensor], Tensor]:
        """Gives the value of every window."""
        call, new, size = self._call(forward_call), self.new, self.size

        def general(x: Tensor) -> Tensor:
            return self._general(x, lambda a: (kernels.forward(self.op, (a,)),))[0]

        def values(x: Tensor) -> Tensor:
            at = x.data_ptr()
            if at % size:
                return general(x)
            y = new()
            to = y.data_ptr()
            if not run(at, to, to):
                in_full(x, y, y)
            return y

        if call is None:
            return general
        run, in_full = call.run, call.in_full
        return values

    def values_and_offsets(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The value of every window and the offset of its winner."""
        call, at = self._call(offsets_call), x.data_ptr()
        if call is not None and not at % self.size:
            y, z = self.new(), self.new_marks()
            if call.run(at, y.data_ptr(), z.data_ptr()):
                return y, z
            if not call.flags_only:
                call.in_full(x, y, z)
                return y, z
        y, z = self._general(x, lambda a: on_arrays.forward_with_offsets(self.op, a))
        return y, z

    def values_and_indices(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The value of every window and its winner's flat position."""
        call, at = self._call(indices_call), x.data_ptr()
        if call is None or at % self.size:
            y, z = self._general(x, lambda a: kernels.forward_with_indices(self.op, (a,)))
            return y, z
        y, z = self.new(), self.new_places()
        if not call.run(at, y.data_ptr(), z.data_ptr()):
            call.in_full(x, y, z)
        return y, z

    def _general(self, x: Tensor, verb: Any) -> tuple[Tensor, ...]:
        with limited(torch.get_num_threads()):
            return tuple(like(x, tensor_of(a)) for a in verb(array_of(x)))

    # -- gradients --

    @cached_property
    def gradient(self) -> Callable[[Tensor | None, Tensor], Tensor]:
        """Gives the gradient of every cell; a mean needs no x."""

        def general(x: Tensor | None, grad: Tensor) -> Tensor:
            if x is None:
                x = torch.empty_strided(self.shape, self.strides, dtype=self.tensor_dtype)
            with limited(torch.get_num_threads()):
                (gx,) = kernels.vjp(self.op, (array_of(x),), array_of(grad))
                return like(x, tensor_of(gx))

        return self._back(gradient_call, general)

    @cached_property
    def gradient_from_offsets(self) -> Callable[[Tensor | None, Tensor], Tensor]:
        """Gives the gradient of every cell, by the winners that were kept."""

        def general(offsets: Any, grad: Tensor) -> Tensor:
            with limited(torch.get_num_threads()):
                arrays = array_of(offsets), array_of(grad)
                found = None
                if grad.numel():
                    found = kernels.vjp_from_offsets(self.op, self.shape, *arrays)
                if found is None:
                    found = on_arrays.vjp_from_offsets(self.op, *arrays, self.shape)
                return like(offsets, tensor_of(found))

        return self._back(gather_call, general)

    def _back(self, choose: Any, general: Any) -> Callable[[Tensor | None, Tensor], Tensor]:
        """The way back for gradients that lie in order; others, and those of large results, go the general way."""
        if not self.small_in:
            return general  # type: ignore[no-any-return]
        kind = torch.contiguous_format if self.last is None else self.last
        in_order = self._bytes(torch.empty(self.out, device="meta", memory_format=kind).stride())
        layouts = [in_order] if choose is gather_call else [self._bytes(self.strides), in_order]
        call = self._thin(choose(self.op, self.shape, *layouts, self.dtype), True)
        if call is None:
            return general  # type: ignore[no-any-return]
        run, in_full, new, lies = call.run, call.in_full, self.new_gradient, self.lies_so
        size, saved = self.size, 1 if choose is gather_call else self.size

        def back(kept: Tensor | None, grad: Tensor) -> Tensor:
            at = grad.data_ptr()
            if at % size or not lies(grad):
                return general(kept, grad)
            result = new()
            if kept is None:  # a mean does not read x; in its place is memory of the same size
                kept = result
            source = kept.data_ptr()
            if source % saved:
                return general(kept, grad)
            if not run(source, at, result.data_ptr()):
                in_full(kept, grad, result)
            return result

        return back

    # -- what was saved, and may have gone through hooks --

    def is_input(self, x: Any) -> bool:
        """Whether this is the x that was saved, but for its values."""
        own = self.shape, self.strides, self.tensor_dtype
        return bool((x.shape, x.stride(), x.dtype) == own and x.is_cpu and type(x) in PLAIN)

    def is_marks(self, offsets: Any) -> bool:
        """Whether these are the offsets that were saved, but for their values."""
        own = self.out, torch.uint8
        right = (offsets.shape, offsets.dtype) == own and offsets.is_cpu and type(offsets) is Tensor
        return bool(right and (not self.small_out or self.lies_so(offsets)))


PLAIN = (Tensor, torch.nn.Parameter)


def _keeps(op: Pooling, x: Tensor) -> bool:
    """Whether offsets give the gradient sooner than x does."""
    from lunette.encoding import encode
    from lunette.torch import offsets

    return offsets.on_cpu(x, encode(op))


def prepare(op: Pooling, x: Tensor) -> Prepared | None:
    """Every check of a call, and its prepared form; None where the CPU's kernels do not serve it."""
    if x.is_quantized or x.dtype not in DTYPES or integers.serves(op):
        return None
    choice = dispatch.choose(op, "forward", (tuple(x.shape),), (dtype_of(x.dtype),), None)
    if choice.name != "cpu" or choice.why_slow:
        return None
    return Prepared(op, x)
