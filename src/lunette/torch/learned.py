"""Smooth max of plain CPU tensors with a beta that is told at the call.

Plans and kernels depend on the sign of beta alone; its value is one number in the table of a plan. So all steps of a training share
their plans: a call works on a copy of the table, with its own beta in it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lunette.kernels.cpu.layout.batch_interleave import BatchInterleave
from lunette.kernels.cpu.layout.split_axis import LONG
from lunette.kernels.cpu.memory.scratchpad import scratchpad
from lunette.kernels.cpu.program.calls import Call, LseGradient, NhwcLseGradient, TiledCall
from lunette.kernels.cpu.schedule.slots import BETA
from lunette.kernels.cpu.schedule.stages import STEP, TABLE
from lunette.kernels.cpu.select.argmax import tangent_call
from lunette.kernels.cpu.select.forward import forward_call
from lunette.kernels.cpu.select.vjp import gradient_call
from lunette.kernels.threads import limited
from lunette.ops.pooling import Pool, Pooling
from lunette.torch.memory import array_of, like, tensor_of
from lunette.torch.prepared import Prepared
from lunette.torch.thin import Bytes, address_of, quick

__all__ = ["Learned", "checked", "with_beta"]

SAFE = 1e-44, 3e38
"""Betas between these survive in every arithmetic."""


class Learned(Prepared):
    """The verbs of a smooth max on CPU tensors of one shape, strides and dtype, for every beta of one sign."""

    def __init__(self, op: Pooling, x: Tensor, beta_positive: bool) -> None:
        self.asked = op
        reduction: Any = replace(op.reduction, beta=1.0 if beta_positive else -1.0)  # type: ignore[type-var]
        super().__init__(Pool(op.regions, reduction, op.keepdims), x)
        # The bits are those of any layout: one that is unusual is put in order.
        self.serves = x.numel() > 0 and max(self.shape) <= LONG
        self.in_order = x.is_contiguous()
        contiguous = torch.empty(self.shape, device="meta").stride()
        self.ordered = tuple(s * self.size for s in contiguous)
        self.told: dict[str, tuple[Any, Any]] = {}

    def with_beta(self, beta: float) -> Pooling:
        """The op itself; an error where beta does not survive in the arithmetic."""
        reduction: Any = replace(self.asked.reduction, beta=beta)  # type: ignore[type-var]
        op = Pool(self.asked.regions, reduction, self.asked.keepdims)
        op.result_dtype(self.dtype)
        return op

    def pooled(self, x: Tensor, beta: float) -> Tensor:
        """The value of every window."""
        return self._run("forward", x, None, beta)

    def slope(self, x: Tensor, dx: Tensor, beta: float) -> Tensor:
        """The directional derivative of every window's value."""
        return self._run("jvp", x, dx, beta)

    def spread(self, x: Tensor, grad: Tensor, beta: float) -> Tensor:
        """The gradient of every cell."""
        return self._run("vjp", x, grad, beta)

    def _run(self, verb: str, x: Tensor, other: Tensor | None, beta: float) -> Tensor:
        if not SAFE[0] < abs(beta) < SAFE[1]:
            self.with_beta(beta)
        try:
            call, run = self.told[verb]
        except KeyError:
            call = self._choose(verb)
            run = _direct(call)
            self.told[verb] = call, run
        source = x.contiguous()
        second = None if other is None else other.contiguous()
        if (
            run is not None
            and self.last is None
            and self.small_in
            and _aligned(self.size, source, second)
        ):
            result = self.new_gradient() if verb == "vjp" else self.new()
            to = result.data_ptr()
            middle, last = (to, to) if second is None else (to, second.data_ptr())
            if verb == "vjp":
                middle, last = last, middle
            if run(source.data_ptr(), middle, last, beta):
                return result
        return self._in_full(verb, call, x, source, second, beta)

    def _in_full(
        self, verb: str, call: Any, x: Tensor, source: Tensor, second: Tensor | None, beta: float
    ) -> Tensor:
        own, shape = with_beta(call, beta), self.shape if verb == "vjp" else self.out
        array, made = array_of(source), own.new()
        other = made if second is None else array_of(second)
        if not array.flags.aligned or not other.flags.aligned:
            array, other = array.copy(), other.copy() if second is not None else made
        if verb == "vjp" and other.ndim < array.ndim:
            other = other.reshape(other.shape + (1,) * self.op.rank)
        with limited(torch.get_num_threads()):
            own.run(array, *((other, made) if verb == "vjp" else (made, other)))
        return like(x, tensor_of(made.reshape(shape)))

    def _choose(self, verb: str) -> Any:
        about = self.op, self.shape, self.ordered
        if verb == "forward":
            return forward_call(*about, self.dtype)
        if verb == "jvp":
            return tangent_call(*about, self.ordered, self.dtype)
        grad = torch.empty(self.out, device="meta").stride()
        return gradient_call(*about, self._bytes(grad), self.dtype)


def _aligned(size: int, source: Tensor, second: Tensor | None) -> bool:
    return not source.data_ptr() % size and (second is None or not second.data_ptr() % size)


# -- a call with its own beta --


def with_beta(call: Any, beta: float) -> Any:
    """The same call of another beta, of the same sign."""
    told = copy(call)
    again = getattr(call, "again", None)
    if again is not None:
        told.again = lambda *about: with_beta(again(*about), beta)
    if isinstance(call, TiledCall):
        told.steps = [(kernel, _told(tiling, beta)) for kernel, tiling in call.steps]
    elif isinstance(call, NhwcLseGradient):
        told.calls = tuple(with_beta(part, beta) for part in call.calls)
    elif isinstance(call, BatchInterleave):
        inner = call.inner
        parts = [inner] if isinstance(inner, Call) else list(inner.calls)
        plans = {part.plan.at: _told(part.plan, beta) for part in parts}
        told.inner, told.table = plans, call.table.copy()  # the plans live as long as the call
        for number, step in enumerate(call.steps):
            if step.table in plans:
                told.table[1 + number * STEP + TABLE] = plans[step.table].at
    elif isinstance(call, Call):
        told.plan = _told(call.plan, beta)
    else:
        raise TypeError(f"{type(call).__name__}: not a call of a smooth max")
    return told


def _told(plan: Any, beta: float) -> Any:
    """The plan, or tiling, with another beta in its table."""
    other = copy(plan)
    other.table = plan.table.copy()
    other.table[BETA : BETA + 1].view(np.float64)[0] = beta
    other.at = address_of(other.table)
    return other


# -- small calls --


class _Tables:
    """Copies of a table, one for each call at a time, and where beta is in them."""

    def __init__(self, table: Any) -> None:
        self.table = table
        self.spare: list[tuple[Any, int, Any]] = []

    def take(self) -> tuple[Any, int, Any]:
        """Beta's place, the address of the table, and the table."""
        try:
            return self.spare.pop()
        except IndexError:
            table = self.table.copy()
            return table[BETA : BETA + 1].view(np.float64), address_of(table), table


Told = Callable[[int, int, int, int, float], None]


def _direct(call: Any) -> Callable[[int, int, int, float], bool] | None:
    """Calls of kernels alone, for a small call by tiles; it says whether no item was flagged."""
    if type(call) not in (TiledCall, LseGradient):
        return None
    if not all(tiling.small for _, tiling in call.steps):
        return None
    kernels = [_on_all_units(kernel, tiling) for kernel, tiling in call.steps]
    first = call.steps[0][1]
    flags, between = Bytes(first.items), Bytes(3 * first.all_outputs * first.size)

    def run(a: int, b: int, c: int, beta: float) -> bool:
        taken = memory, at = flags.take()
        if len(kernels) == 1:
            kernels[0](a, b, c, at, beta)
        else:
            kept = _, weights = between.take()
            kernels[0](a, b, weights, at, beta)
            kernels[1](a, weights, c, at, beta)
            between.spare.append(kept)
        if 1 in memory:
            return False
        flags.spare.append(taken)
        return True

    return run


def _on_all_units(kernel: Any, tiling: Any) -> Told:
    tables, scratch, units = _Tables(tiling.table), tiling.scratch, int(tiling.units)
    kernel = quick(kernel)

    def run(a: int, b: int, c: int, flags: int, beta: float) -> None:
        taken = entry, table, _ = tables.take()
        entry[0] = beta
        memory = scratchpad()
        kernel(a, b, c, memory.scratch(scratch), table, flags, 0, units)
        tables.spare.append(taken)

    return run


def checked(beta: float) -> float:
    """A beta that has a meaning; smooth max has none at zero, nor at an infinity."""
    if beta == 0 or not math.isfinite(beta):
        raise ValueError(f"beta={beta!r}: expected a finite number other than zero")
    return beta
