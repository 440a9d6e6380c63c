"""A prepared call of the CPU's kernels on memory that is told by its address.

A small call is one call of its kernel, in this thread. The others are the kernels' own business: they are given something
that says where its memory is, as arrays do, and use no more threads than torch.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
import torch

from lunette.kernels.cpu.jit.cache import PARAMETERS
from lunette.kernels.cpu.layout.batch_interleave import BatchInterleave
from lunette.kernels.cpu.memory.scratchpad import scratchpad
from lunette.kernels.cpu.program.calls import (
    ArgmaxGradient,
    Call,
    LseGradient,
    NhwcGradient,
    QuickCall,
    TiledCall,
)
from lunette.kernels.threads import limited
from lunette.torch.memory import array_of

__all__ = ["Bytes", "Thin", "address_of", "quick", "thin"]


class _Address:
    """A tensor's memory as kernels ask for it; the tensor lives as long as this does."""

    __slots__ = ("__array_interface__", "tensor")

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor
        self.__array_interface__ = {"data": (tensor.data_ptr(), False)}


class Bytes:
    """Memory of a small call, one at a time: flags, zero when they are taken, or what is between two kernels."""

    def __init__(self, size: int) -> None:
        self.size = max(1, size)
        self.spare: list[tuple[bytearray, int]] = []

    def take(self) -> tuple[bytearray, int]:
        """Memory that nobody has, and its address."""
        try:
            return self.spare.pop()
        except IndexError:
            memory = bytearray(self.size)
            return memory, address_of(np.frombuffer(memory, np.uint8))


def address_of(array: Any) -> int:
    """Where the memory of an array begins."""
    address: int = array.__array_interface__["data"][0]
    return address


class Thin:
    """How to run a call: `run(a, b, c)` at addresses, and where that says no, `in_full` on the tensors."""

    __slots__ = ("call", "flags_only", "run")

    def __init__(self, call: Any, run: Callable[[int, int, int], bool], flags_only: bool) -> None:
        self.call, self.run, self.flags_only = call, run, flags_only

    def in_full(self, a: Any, b: Any, c: Any) -> None:
        """The whole call, on the tensors, and again where a kernel should not have trusted their numbers."""
        # What does some items again takes them out of the arrays; other calls ask where these are.
        view = array_of if isinstance(self.call, BatchInterleave) else _Address
        at = view(b)
        arrays = view(a), at, at if c is b else view(c)
        with limited(torch.get_num_threads()):
            if self.flags_only:
                flags = np.zeros(self.call.steps[0][1].items, np.uint8)
                self.call.work(*arrays, flags)
            else:
                self.call.run(*arrays)


def thin(call: Any, order: tuple[int, ...] | None = None) -> Thin | None:
    """The call, if there is one and it lays its result out with the axes in this order; as they come, where there is none.

    With `flags_only`, a tiled call has no other that does flagged items again: its caller has to.
    """
    if call is None or getattr(call, "order", None) != order:
        return None
    flags_only = type(call) is TiledCall and call.again is None
    return Thin(call, _direct(call) or _never, flags_only)


def _never(a: int, b: int, c: int) -> bool:
    return False


def _direct(call: Any) -> Callable[[int, int, int], bool] | None:
    """Calls of kernels alone, for a small call that is no more than that; it says whether no item was flagged."""
    if type(call) in (Call, QuickCall) and call.small and call.units:
        plan = call.plan
        if type(call) is QuickCall:  # two flags for each item
            return _flagging(call.kernel, plan.at, call.scratch, call.units, 2 * plan.items)
        return _alone(call.kernel, plan.at, call.scratch, call.units, int(plan.room))
    if type(call) is NhwcGradient and all(
        type(c) is Call and c.small and c.units for c in call.calls
    ):
        find, gather = map(_direct, call.calls)
        if find is not None and gather is not None:
            marks = call.calls[0]
            return _by_marks(find, gather, Bytes(prod(marks.shape) * marks.dtype.itemsize))
    if isinstance(call, TiledCall) and all(tiling.small for _, tiling in call.steps):
        kernel, first = call.steps[0]
        if type(call) is TiledCall:
            return _flagging(kernel, first.at, first.scratch, first.units, first.items)
        kernels = [_on_all_units(k, t.at, t.scratch, t.units) for k, t in call.steps]
        if type(call) is ArgmaxGradient:
            return _with_flags(_marked(kernels, Bytes(first.all_outputs)), first.items)
        if type(call) is LseGradient:
            weights = Bytes(3 * first.all_outputs * first.size)
            return _with_flags(_weighted(kernels, weights), first.items)
    return None


# Each of these is the whole of a small call, and as short as it can be: a function within another takes its time.


def _alone(
    kernel: Any, table: int, scratch: int, units: int, room: int
) -> Callable[[int, int, int], bool]:
    """A kernel on all its units."""
    kernel, units = quick(kernel), int(units)

    def run(a: int, b: int, c: int) -> bool:
        memory = scratchpad()
        kernel(a, b, c, memory.scratch(scratch), table, room, 0, units)
        return True

    return run


def _flagging(
    kernel: Any, table: int, scratch: int, units: int, items: int
) -> Callable[[int, int, int], bool]:
    """A kernel on all its units, which flags items."""
    kernel, units, flags = quick(kernel), int(units), Bytes(items)
    take, give = flags.take, flags.spare.append

    def run(a: int, b: int, c: int) -> bool:
        taken, memory = take(), scratchpad()
        kernel(a, b, c, memory.scratch(scratch), table, taken[1], 0, units)
        if 1 in taken[0]:
            return False
        give(taken)
        return True

    return run


def _by_marks(
    find: Callable[[int, int, int], bool], gather: Callable[[int, int, int], bool], between: Bytes
) -> Callable[[int, int, int], bool]:
    """The gradient of a max with channels last: marks, then gathering by them."""

    def run(x: int, gy: int, gx: int) -> bool:
        taken = _, at = between.take()
        find(x, at, at)
        gather(at, gy, gx)
        between.spare.append(taken)
        return True

    return run


Kernel = Callable[[int, int, int, int], None]
"""What is done at three addresses, with flags at a fourth."""


def _on_all_units(kernel: Any, table: int, scratch: int, units: int) -> Kernel:
    """A kernel on all its units, one of several."""
    kernel, units = quick(kernel), int(units)

    def run(a: int, b: int, c: int, flags: int) -> None:
        memory = scratchpad()
        kernel(a, b, c, memory.scratch(scratch), table, flags, 0, units)

    return run


def quick(kernel: Any) -> Any:
    """The same kernel for Python's own integers: ctypes takes them for addresses in half the time."""
    address = ctypes.cast(kernel, ctypes.c_void_p).value
    signature = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * PARAMETERS)
    made: Any = signature(address or 0)
    made.kernel = kernel  # its code lives as long as this
    return made


def _with_flags(kernels: Kernel, items: int) -> Callable[[int, int, int], bool]:
    """Several kernels that flag items."""
    flags = Bytes(items)

    def run(a: int, b: int, c: int) -> bool:
        taken = memory, at = flags.take()
        kernels(a, b, c, at)
        if 1 in memory:
            return False
        flags.spare.append(taken)
        return True

    return run


def _marked(kernels: list[Kernel], between: Bytes) -> Kernel:
    """The gradient of a max: marks, then gathering by them."""
    marks, gather = kernels

    def run(x: int, gy: int, gx: int, flags: int) -> None:
        taken = _, at = between.take()
        marks(x, at, at, flags)
        gather(at, gy, gx, flags)
        between.spare.append(taken)

    return run


def _weighted(kernels: list[Kernel], between: Bytes) -> Kernel:
    """The gradient of a smooth max: weights, then gathering by shares."""
    weights, gather = kernels

    def run(x: int, gy: int, gx: int, flags: int) -> None:
        taken = _, at = between.take()
        weights(x, gy, at, flags)
        gather(x, at, gx, flags)
        between.spare.append(taken)

    return run
