"""The verbs of pooling on NumPy arrays: find the prepared call, allocate, share the units out."""

from __future__ import annotations

import threading
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from lunette.kernels import threads
from lunette.kernels.cpu import (
    column_first,
    direct,
    gathered,
    offsets,
    row_first,
    smooth,
    spread,
    wide,
    winners,
)
from lunette.kernels.cpu.ladder import ladder_cells
from lunette.kernels.cpu.plan import FOLDED, Plan, lane_axis, memory_order
from lunette.kernels.cpu.results import new_array
from lunette.kernels.cpu.tiling import Tiling, lies_alike
from lunette.ops.base import is_float
from lunette.ops.pooling import Pooling
from lunette.reductions import Max, Mean, Reduction, SmoothMax
from lunette.regions import Part, Sliding

__all__ = ["forward", "forward_with_indices", "jvp", "refuses", "vjp"]

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]

SMALL = 1 << 16
"""Cells visited below which one thread does the call: waking another would cost more."""


def refuses(op: Pooling, verb: str, shapes: Any, dtypes: Any) -> str | None:
    """Why the kernels cannot serve this call, or None."""
    (dtype,) = dtypes
    if not is_float(dtype) and dtype.kind not in "iub":
        return f"has no kernel for dtype {dtype}"
    if verb == "forward_with_indices" and not isinstance(op.reduction, Max):
        return "has indices for max alone"
    if type(op.reduction) not in (Max, Mean, SmoothMax):
        return f"has no kernel for {op.reduction!r}"
    return None


def forward(op: Pooling, operands: tuple[Array, ...]) -> Array:
    """The value of every window."""
    x = _readable(operands[0])
    call = _forward(op, x.shape, x.strides, x.dtype)
    y = call.new()
    call.run(x, y, y)
    return y if op.keepdims else y.reshape(call.shape[: -op.rank])


def forward_with_indices(op: Pooling, operands: tuple[Array, ...]) -> tuple[Array, Array]:
    """The value of every window, and its first winner's flat position in the pooled axes, or −1."""
    x = _readable(operands[0])
    call = _indices(op, x.shape, x.strides, x.dtype)
    y = call.new()
    z = np.empty_like(y, np.int64)
    call.run(x, y, z)
    if op.keepdims:
        return y, z
    shape = call.shape[: -op.rank]
    return y.reshape(shape), z.reshape(shape)


def jvp(op: Pooling, operands: tuple[Array, ...], tangents: tuple[Array, ...]) -> Array:
    """The directional derivative of every window's value."""
    if isinstance(op.reduction, Mean):
        return forward(op, tangents)  # linear, so the tangent has the same bits by either name
    x, dx = _readable(operands[0]), _readable(tangents[0])
    call = _derivative(op, x.shape, x.strides, dx.strides, x.dtype)
    y = call.new()
    call.run(x, y, dx)
    return y if op.keepdims else y.reshape(call.shape[: -op.rank])


def vjp(op: Pooling, operands: tuple[Array, ...], grad: Array) -> tuple[Array, ...]:
    """The gradient of every cell."""
    x, gy = _readable(operands[0]), _readable(grad)
    if not op.keepdims:
        gy = gy.reshape(gy.shape + (1,) * op.rank)
    call = _gradient(op, x.shape, x.strides, gy.strides, x.dtype)
    gx = call.new()
    call.run(x, gy, gx)
    return (gx,)


# -- prepared calls --


class _Call:
    """A kernel, its plan and the result to allocate, for one op, shape, dtype and layout."""

    def __init__(
        self, kernel: Any, plan: Plan, shape: Shape, dtype: Any, lane: int, units: int, scratch: int
    ) -> None:
        self.kernel, self.plan, self.units, self.scratch = kernel, plan, units, scratch
        self.shape, self.dtype = shape, dtype
        self.order = memory_order(len(shape), lane)
        if self.order is not None:
            self.in_memory = tuple(shape[axis] for axis in self.order)
            self.back = tuple(map(self.order.index, range(len(shape))))
        self.small = plan.cells_visited <= SMALL

    def new(self) -> Array:
        """The array for the result."""
        if self.order is None:
            return new_array(self.shape, self.dtype)
        return new_array(self.in_memory, self.dtype).transpose(self.back)

    def run(self, a: Array, b: Array, c: Array) -> None:
        kernel, plan, scratch = self.kernel, self.plan, self.scratch
        at_a, at_b = a.__array_interface__["data"][0], b.__array_interface__["data"][0]
        at_c = at_b if c is b else c.__array_interface__["data"][0]
        if self.small:
            if self.units:
                kernel(at_a, at_b, at_c, _scratch.of(scratch), plan.at, plan.room, 0, self.units)
            return

        def task(first: int, last: int) -> None:
            kernel(at_a, at_b, at_c, _scratch.of(scratch), plan.at, plan.room, first, last)

        threads.run(task, self.units)

    def run_items(self, a: Array, b: Array, c: Array, items: Any) -> None:
        """The units of some batch items alone."""
        kernel, plan, scratch = self.kernel, self.plan, self.scratch
        at_a, at_b, at_c = (v.__array_interface__["data"][0] for v in (a, b, c))
        each = self.units // plan.items

        def task(first: int, last: int) -> None:
            for item in items[first:last]:
                start = int(item) * each
                kernel(
                    at_a, at_b, at_c, _scratch.of(scratch), plan.at, plan.room, start, start + each
                )

        threads.run(task, len(items))


class _Quick(_Call):
    """A call of a kernel that takes numbers on trust, and flags the items where it should not have."""

    again: Any  # gives the call that trusts nothing

    def run(self, a: Array, b: Array, c: Array) -> None:
        kernel, plan, scratch = self.kernel, self.plan, self.scratch
        at_a, at_b = a.__array_interface__["data"][0], b.__array_interface__["data"][0]
        at_c = at_b if c is b else c.__array_interface__["data"][0]
        flags = np.zeros(plan.items, np.uint8)
        at_flags = flags.__array_interface__["data"][0]
        if self.small:
            kernel(at_a, at_b, at_c, _scratch.of(scratch), plan.at, at_flags, 0, self.units)
        else:

            def task(first: int, last: int) -> None:
                kernel(at_a, at_b, at_c, _scratch.of(scratch), plan.at, at_flags, first, last)

            threads.run(task, self.units)
        if flags.any():
            self.again().run_items(a, b, c, np.flatnonzero(flags))


class _Tiled:
    """Kernels on tiles, one after the other, and the call that does flagged items again.

    Of a gradient there are two: the first leaves marks or weights for the second.
    """

    def __init__(
        self, steps: list[tuple[Any, Tiling]], shape: Shape, dtype: Any, again: Any
    ) -> None:
        self.steps, self.shape, self.dtype, self.again = steps, shape, dtype, again
        self.small = prod(shape) * steps[0][1].cells <= SMALL

    def new(self) -> Array:
        """The array for the result."""
        return new_array(self.shape, self.dtype)

    def run(self, a: Array, b: Array, c: Array) -> None:
        flags = np.zeros(self.steps[0][1].items, np.uint8)
        self.do(0, a, b, c, flags)
        if flags.any():
            self.again().run_items(a, b, c, np.flatnonzero(flags))

    def do(self, step: int, a: Array, b: Array, c: Array, flags: Array) -> None:
        kernel, tiling = self.steps[step]
        at_a, at_b, at_c, at_flags = (v.__array_interface__["data"][0] for v in (a, b, c, flags))

        def task(first: int, last: int) -> None:
            kernel(at_a, at_b, at_c, _scratch.of(tiling.scratch), tiling.at, at_flags, first, last)

        if self.small:
            task(0, tiling.units)
        else:
            threads.run(task, tiling.units)


class _MarkedGradient(_Tiled):
    """The gradient of a max: marks, then gathering by them."""

    def run(self, x: Array, gy: Array, gx: Array) -> None:
        tiling = self.steps[0][1]
        flags = np.zeros(tiling.items, np.uint8)
        marks = new_array((tiling.all_outputs,), np.dtype(np.uint8))
        self.do(0, x, marks, marks, flags)
        self.do(1, marks, gy, gx, flags)
        if flags.any():
            self.again().run_items(x, gy, gx, np.flatnonzero(flags))


class _WeightedGradient(_Tiled):
    """The gradient of a smooth max: pivots and weights, then gathering by shares."""

    def run(self, x: Array, gy: Array, gx: Array) -> None:
        tiling = self.steps[0][1]
        flags = np.zeros(tiling.items, np.uint8)
        work = np.dtype(np.float32 if tiling.size == 4 else np.float64)
        weights = new_array((2, tiling.all_outputs), work)
        self.do(0, x, gy, weights, flags)
        self.do(1, x, weights, gx, flags)
        if flags.any():
            self.again().run_items(x, gy, gx, np.flatnonzero(flags))


class _MeanGradient(_Tiled):
    """The gradient of a mean: it needs no input."""

    def run(self, x: Array, gy: Array, gx: Array) -> None:
        flags = np.zeros(1, np.uint8)
        self.do(0, x, gy, gx, flags)


SIDE_BY_SIDE = 64
"""Cells of a window up to which neighbouring windows go cell by cell, side by side."""


def _tiling(
    op: Pooling, shape: Shape, steps: tuple[Shape, Shape, Shape], dtype: Any, **how: Any
) -> Tiling | None:
    """The tiles of a call whose windows are small and lie alike; None where they do not."""
    cells = prod(
        min(_reach(region), n) for region, n in zip(op.regions, shape[-op.rank :], strict=True)
    )
    if cells > SIDE_BY_SIDE or not lies_alike(op, shape) or 0 in shape:
        return None
    size = 4 if dtype.name in ("float16", "bfloat16") else dtype.itemsize
    if not is_float(dtype) and not isinstance(op.reduction, Max):
        size = 8
    tiling = Tiling(op, shape, steps, size, **how)
    return None if tiling.empty or tiling.cells > 255 else tiling


@lru_cache(maxsize=1024)
def _forward(op: Pooling, shape: Shape, strides: Shape, dtype: Any, trusting: bool = True) -> _Call:
    kind, result = _kind(op.reduction), op.result_dtype(dtype)
    steps = _elements(strides, dtype)
    out = _kept_shape(op, shape)
    if kind != direct.SMOOTH:
        lane = lane_axis(shape, steps, op.rank)
        y_steps = _result_steps(out, lane)
        plan = Plan(op, shape, (steps, y_steps, y_steps), lane)
        units = plan.items * plan.tiles
        if kind == direct.MEAN:
            small = all(_reach(region) <= FOLDED for region in op.regions)
            kernel = (
                row_first.kernel(dtype.name, "add") if small else column_first.kernel(dtype.name)
            )
            # After the sums, the levels of long windows; `room` says where they begin.
            plan.room = plan.sum_cells
            scratch = 8 * (plan.sum_cells + ladder_cells(plan, op.rank))
            return _Call(kernel, plan, out, result, lane, units, scratch)
        if not plan.empty:
            if lane < 0 and wide.serves(plan, op.rank):
                units = plan.items * plan.output_rows
                return _Call(wide.kernel(dtype.name), plan, out, result, lane, units, 0)
            if trusting:
                kernel = row_first.kernel(dtype.name, "most")
                call = _Quick(kernel, plan, out, result, lane, units, 8 * plan.scratch_cells)
                call.again = lambda: _forward(op, shape, strides, dtype, False)
                return call
            kernel = row_first.kernel(dtype.name, "larger")
            return _Call(kernel, plan, out, result, lane, units, 8 * plan.scratch_cells)
    y_steps = _result_steps(out, -1)
    if kind == direct.SMOOTH and trusting:
        tiling = _tiling(op, shape, (steps, y_steps, y_steps), dtype, areas=1)
        if tiling is not None:
            kernel = smooth.kernel(dtype.name, "forward", op.reduction.beta > 0)
            again = lambda: _forward(op, shape, strides, dtype, False)  # noqa: E731
            return _Tiled([(kernel, tiling)], out, result, again)
    plan = Plan(op, shape, (steps, y_steps, y_steps))
    kernel = direct.value_kernel(dtype.name, kind, False)
    return _Call(kernel, plan, out, result, -1, plan.items * plan.output_rows, 24 * plan.room)


def _reach(region: Any) -> int:
    """Cells of a sliding window along its axis; of other regions more than any."""
    if isinstance(region, Part):
        return _reach(region.region)
    return int(region.kernel) if isinstance(region, Sliding) else 1 << 62


@lru_cache(maxsize=1024)
def _indices(op: Pooling, shape: Shape, strides: Shape, dtype: Any, trusting: bool = True) -> Any:
    out = _kept_shape(op, shape)
    y_steps = _result_steps(out, -1)
    if trusting:
        steps = (_elements(strides, dtype), y_steps, y_steps)
        tiling = _tiling(op, shape, steps, dtype)
        if tiling is not None:
            again = lambda: _indices(op, shape, strides, dtype, False)  # noqa: E731
            return _Tiled([(offsets.kernel(dtype.name, "indices"), tiling)], out, dtype, again)
    plan = Plan(op, shape, (_elements(strides, dtype), y_steps, y_steps))
    if plan.has_winners:
        return _winners(plan, "indices", out, dtype, plan.items * plan.tiles)
    kernel = direct.value_kernel(dtype.name, direct.MAX, True)
    return _Call(kernel, plan, out, dtype, -1, plan.items * plan.output_rows, 24 * plan.room)


@lru_cache(maxsize=1024)
def _derivative(
    op: Pooling, shape: Shape, strides: Shape, tangent: Shape, dtype: Any, trusting: bool = True
) -> Any:
    kind, ties = _kind(op.reduction), getattr(op.reduction, "ties", "")
    out = _kept_shape(op, shape)
    all_steps = (_elements(strides, dtype), _result_steps(out, -1), _elements(tangent, dtype))
    if trusting and is_float(dtype) and ties in ("first", ""):
        tiling = _tiling(op, shape, all_steps, dtype)
        if tiling is not None:
            kernel = offsets.kernel(dtype.name, "jvp")
            if kind == direct.SMOOTH:
                kernel = smooth.kernel(dtype.name, "jvp", op.reduction.beta > 0)
            again = lambda: _derivative(op, shape, strides, tangent, dtype, False)  # noqa: E731
            return _Tiled([(kernel, tiling)], out, dtype, again)
    plan = Plan(op, shape, all_steps)
    if ties == "first" and plan.has_winners:
        return _winners(plan, "jvp", out, dtype, plan.items * plan.tiles)
    kernel = direct.derivative_kernel(dtype.name, kind, ties)
    return _Call(kernel, plan, out, dtype, -1, plan.items * plan.output_rows, 24 * plan.room)


@lru_cache(maxsize=1024)
def _gradient(
    op: Pooling, shape: Shape, strides: Shape, grad: Shape, dtype: Any, trusting: bool = True
) -> Any:
    kind, ties = _kind(op.reduction), getattr(op.reduction, "ties", "")
    steps, grad_steps = _elements(strides, dtype), _elements(grad, dtype)
    if (
        trusting
        and is_float(dtype)
        and ties in ("first", "")
        and lane_axis(shape, steps, op.rank) < 0
    ):
        arrays = (steps, grad_steps, _result_steps(shape, -1))
        back = _tiling(
            op, shape, arrays, dtype, backward=True, areas=1 if kind == direct.MEAN else 2
        )
        if back is not None and max(back.readers) <= 64:
            again = lambda: _gradient(op, shape, strides, grad, dtype, False)  # noqa: E731
            if kind == direct.MEAN:
                return _MeanGradient(
                    [(gathered.kernel(dtype.name, "mean"), back)], shape, dtype, None
                )
            ahead = _tiling(op, shape, arrays, dtype, areas=1)
            if kind == direct.MAX:
                marks, gather = (
                    offsets.kernel(dtype.name, "offsets"),
                    gathered.kernel(dtype.name, "max"),
                )
                return _MarkedGradient([(marks, ahead), (gather, back)], shape, dtype, again)
            rising = op.reduction.beta > 0
            weights = smooth.kernel(dtype.name, "weights", rising)
            gather = gathered.kernel(dtype.name, "rising" if rising else "falling")
            return _WeightedGradient([(weights, ahead), (gather, back)], shape, dtype, again)
    if kind == direct.MEAN:
        lane = lane_axis(shape, steps, op.rank)
        plan = Plan(op, shape, (steps, grad_steps, _result_steps(shape, lane)), lane)
        if plan.has_readers:
            kernel = spread.kernel(dtype.name)
            units, scratch = plan.items * plan.slabs, 8 * plan.spread_cells
            return _Call(kernel, plan, shape, dtype, lane, units, scratch)
    plan = Plan(op, shape, (steps, grad_steps, _result_steps(shape, -1)))
    if ties == "first" and plan.has_winners:
        return _winners(plan, "vjp", shape, dtype, plan.items * plan.slabs)
    kernel = direct.gradient_kernel(dtype.name, kind, ties)
    scratch = 24 * plan.room + 8 * plan.slab_cells
    return _Call(kernel, plan, shape, dtype, -1, plan.items * plan.slabs, scratch)


def _winners(plan: Plan, verb: str, shape: Shape, dtype: Any, units: int) -> _Call:
    kernel = winners.kernel(dtype.name, verb)
    # Values, marks, and for a gradient the sums of a slab; `room` says where each begins.
    plan.room = plan.scratch_cells
    return _Call(kernel, plan, shape, dtype, -1, units, 16 * plan.room + 8 * plan.slab_cells + 1024)


def _kind(reduction: Reduction) -> int:
    if isinstance(reduction, Max):
        return direct.MAX
    return direct.MEAN if isinstance(reduction, Mean) else direct.SMOOTH


def _kept_shape(op: Pooling, shape: Shape) -> Shape:
    """The shape of the result with every pooled axis kept."""
    out = op.out_shape(shape)
    return out if op.keepdims else out + (1,) * op.rank


def _elements(strides: Shape, dtype: Any) -> Shape:
    return tuple(s // dtype.itemsize for s in strides)


def _result_steps(shape: Shape, lane: int) -> Shape:
    """Strides of a result that is contiguous in its order of axes, in elements."""
    order = memory_order(len(shape), lane) or tuple(range(len(shape)))
    steps = [0] * len(shape)
    for place, axis in enumerate(order):
        steps[axis] = prod(shape[a] for a in order[place + 1 :])
    return tuple(steps)


# -- arrays and memory --


def _readable(x: Array) -> Array:
    """The array itself where its elements can be addressed in place; otherwise a copy.

    Elements that are not aligned, or strides that are not whole elements, leave no choice.
    """
    flags = x.flags
    if flags.aligned and (flags.c_contiguous or all(s % x.dtype.itemsize == 0 for s in x.strides)):
        return x
    return x.copy()


class _Scratch(threading.local):
    """Memory of one thread that kernels use and nobody keeps."""

    def __init__(self) -> None:
        self.memory = np.empty(0, np.uint8)
        self.size = self.at = 0

    def of(self, size: int) -> int:
        """The address of at least `size` bytes."""
        if self.size < size:
            self.memory = np.empty(size + 64, np.uint8)
            address = self.memory.__array_interface__["data"][0]
            self.size, self.at = size, -(-address // 64) * 64
        return self.at


_scratch = _Scratch()
