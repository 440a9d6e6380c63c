"""Prepared calls: kernels with their plans, the memory that they work in, and the sharing out of units."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from lunette.kernels import threads
from lunette.kernels.cpu.jit.cache import Kernels
from lunette.kernels.cpu.memory.block_cache import new_array
from lunette.kernels.cpu.memory.scratchpad import exact, scratchpad
from lunette.kernels.cpu.schedule.plan import Plan, memory_order
from lunette.kernels.cpu.schedule.staging import Pieces
from lunette.kernels.cpu.schedule.tiling import Tiling
from lunette.kernels.cpu.threadpool.pool import share_out
from lunette.kernels.cpu.tuning import SMALL

__all__ = [
    "ArgmaxGradient",
    "Call",
    "LseGradient",
    "NhwcGradient",
    "NhwcLseGradient",
    "QuickCall",
    "QuickNhwc",
    "ScatteredGradient",
    "TiedGradient",
    "TiedTangent",
    "TiledCall",
    "laid_alike",
]

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]


streams = Kernels("program.stream_out")


class _Flags:
    """Flags for small calls, one at a time: a byte for each item, zero before and after a call."""

    def __init__(self) -> None:
        self.memory: Any = bytearray()
        self.at = 0

    def of(self, items: int) -> int:
        """The address of at least `items` flags."""
        if len(self.memory) < items or not self.at:
            self.memory = np.zeros(items, np.uint8).data if exact() else bytearray(items + 64)
            at: int = np.frombuffer(self.memory, np.uint8).__array_interface__["data"][0]
            self.at = 0 if exact() else at  # then the next call gets others
            return at
        return self.at

    def taken(self, items: int) -> Array:
        """The flags of items; none is flagged afterwards."""
        flags = np.frombuffer(self.memory, np.uint8)
        found = flags[:items].copy()
        flags[:] = 0
        return found


_spare: list[_Flags] = []
"""Flags that no call has. One that is interrupted does not give its own back, for they may not be zero."""


def laid_alike(*calls: Any) -> None:
    """That calls which write, or read, one array lay it out in the same order of axes.

    A kernel knows places in memory, not the array that it is given: nothing else would notice.
    """
    first, *others = (call.order for call in calls)
    if any(order != first for order in others):
        raise RuntimeError(f"calls on one array lay it out as {first} and as {others}")


class Call:
    """A kernel, its plan and the result to allocate, for one op, shape, dtype and layout."""

    pieces: Pieces | None = None
    """Of a large result."""

    kept: Any = None
    """What must not be gone before the call: the kernel reads it by its address."""

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

    def in_pieces(self, edges: Any, array: int) -> Self:
        """This call, with a result past the caches where that is large; see `Pieces`."""
        size, prepared = self.dtype.itemsize, self.plan.prepared
        self.pieces = Pieces.of(edges, self.shape, array, size, prepared)
        return self

    def new(self, dtype: Any = None) -> Array:
        """The array for the result, or for one of another dtype beside it."""
        dtype = dtype or self.dtype
        if self.order is None:
            return new_array(self.shape, dtype)
        return new_array(self.in_memory, dtype).transpose(self.back)

    def run(self, a: Array, b: Array, c: Array) -> None:
        if self.small:
            if self.units:
                self.run_alone(a, b, c, self.plan.room)
        else:
            self.share_out(a, b, c, self.plan.room)

    def run_alone(self, a: Array, b: Array, c: Array, flags: int) -> None:
        """All units, in this thread."""
        at_a, at_b = a.__array_interface__["data"][0], b.__array_interface__["data"][0]
        at_c = at_b if c is b else c.__array_interface__["data"][0]
        memory = scratchpad()
        scratch = memory.scratch(self.scratch)
        self.kernel(at_a, at_b, at_c, scratch, self.plan.at, flags, 0, self.units)

    def share_out(self, a: Array, b: Array, c: Array, flags: int) -> None:
        """All units, by several threads; a result that comes in pieces goes past the caches."""
        table, scratch, pieces = self.plan.at, self.scratch, self.pieces
        at_a, at_b, at_c = (v.__array_interface__["data"][0] for v in (a, b, c))
        if pieces is None:
            share_out(
                self.kernel,
                lambda memory: (at_a, at_b, at_c, memory.scratch(scratch), table, flags),
                self.units,
                self.plan.cells_visited,
            )
            return
        job, stage = pieces.job(self.kernel, (at_a, at_b, at_c), table, flags), pieces.stage
        at_job = job.__array_interface__["data"][0]
        share_out(
            streams.kernel(),
            lambda memory: (at_job, memory.scratch(scratch), memory.stage(stage), 0, 0, 0),
            self.units,
            self.plan.cells_visited,
        )

    def run_items(self, a: Array, b: Array, c: Array, items: Any, flags: Any = None) -> None:
        """The units of some batch items alone."""
        kernel, plan, scratch = self.kernel, self.plan, self.scratch
        room = plan.room if flags is None else flags.__array_interface__["data"][0]
        at_a, at_b, at_c = (v.__array_interface__["data"][0] for v in (a, b, c))
        each = self.units // plan.items

        def task(first: int, last: int) -> None:
            some = items[first:last]
            for run in np.split(some, np.flatnonzero(np.diff(some) != 1) + 1):  # neighbours
                start, end = int(run[0]) * each, (int(run[-1]) + 1) * each
                memory = scratchpad()
                kernel(at_a, at_b, at_c, memory.scratch(scratch), plan.at, room, start, end)

        threads.run(task, len(items), held=(a, b, c, flags, self))


class QuickCall(Call):
    """A call of a kernel that takes numbers on trust, and flags the items where it should not have."""

    again: Any  # gives the call that trusts nothing
    in_order: Any = None  # gives the call that trusts numbers, and takes cells in their order

    def run(self, a: Array, b: Array, c: Array) -> None:
        # Two flags for each item: it has a NaN; it has zeros whose order matters.
        size = 2 * self.plan.items
        if self.small:
            try:
                own = _spare.pop()
            except IndexError:
                own = _Flags()
            self.run_alone(a, b, c, own.of(size))
            if 1 in own.memory:
                self.mend(a, b, c, own.taken(size))
            _spare.append(own)
            return
        flags = np.zeros(size, np.uint8)
        self.share_out(a, b, c, flags.__array_interface__["data"][0])
        if flags.any():
            self.mend(a, b, c, flags)

    def mend(self, a: Array, b: Array, c: Array, flags: Array) -> None:
        """Do flagged items again."""
        nonfinite, isnan_bits = flags.reshape(2, -1)
        isnan_bits = np.flatnonzero(isnan_bits > nonfinite)
        if len(isnan_bits):
            in_order = self.in_order()
            laid_alike(self, in_order)
            in_order.run_items(a, b, c, isnan_bits, flags)
        nonfinite = np.flatnonzero(nonfinite)
        if len(nonfinite):
            again = self.again()
            laid_alike(self, again)
            again.run_items(a, b, c, nonfinite)


class QuickNhwc(QuickCall):
    """A quick call by vectors of channels, whose flagged items are done again one channel at a time."""

    plan: Any

    def mend(self, a: Array, b: Array, c: Array, flags: Array) -> None:
        """Do flagged items again."""
        items, again = (
            self.plan.each_channel(np.flatnonzero(flags[: self.plan.items])),
            self.again(),
        )
        laid_alike(self, again)
        again.run_items(a, b, c, items)


class ScatteredGradient:
    """The gradient of a max over long windows that several slabs ask for: winners, then a sum for each cell."""

    def __init__(self, winners: Call, scatter: Call) -> None:
        self.winners, self.scatter, self.new = winners, scatter, scatter.new
        self.order = scatter.order

    def run(self, x: Array, gy: Array, gx: Array) -> None:
        values, places, found = self._found()
        self.winners.run(x, values, places)
        self.scatter.share_out(x, gy, gx, found.__array_interface__["data"][0])

    def run_items(self, x: Array, gy: Array, gx: Array, items: Any) -> None:
        """The units of some batch items alone."""
        values, places, found = self._found()
        self.winners.run_items(x, values, places, items)
        self.scatter.run_items(x, gy, gx, items, found)

    def _found(self) -> tuple[Array, Array, Array]:
        """Arrays for the values and for what is known of their winners, and the addresses of both."""
        values = self.winners.new()
        places = new_array(self.winners.shape, np.dtype(np.int64))
        at = [v.__array_interface__["data"][0] for v in (values, places)]
        return values, places, np.array(at, np.int64)


class NhwcGradient:
    """The gradient of a max with channels last: marks, then gathering by them."""

    def __init__(self, marks: Call, gather: Call) -> None:
        laid_alike(marks, gather)
        self.calls, self.new, self.order = (marks, gather), gather.new, gather.order

    def run(self, x: Array, gy: Array, gx: Array) -> None:
        run_each(self.calls, self.arrays(x, gy, gx, self.calls[0].new()))

    @staticmethod
    def arrays(x: Any, gy: Any, gx: Any, marks: Any) -> tuple[tuple[Any, Any, Any], ...]:
        """What each of the two calls works on."""
        return (x, marks, marks), (marks, gy, gx)


class TiedTangent:
    """The tangent of a max with channels last where ties count: its values, then sums over the cells that equal them."""

    def __init__(self, values: Any, sums: Call) -> None:
        laid_alike(values, sums)
        self.calls, self.new, self.order = (values, sums), sums.new, sums.order

    def run(self, x: Array, y: Array, dx: Array) -> None:
        values = self.calls[0].new()
        run_each(self.calls, self.arrays(x, y, dx, values))

    @staticmethod
    def arrays(x: Any, y: Any, dx: Any, values: Any) -> tuple[tuple[Any, ...], ...]:
        """What each of the two calls works on."""
        return (x, values, values), (x, y, dx, values)


class TiedGradient:
    """The gradient of such a max: its values, what each window gives to its winners where they split it, then gathering."""

    def __init__(self, values: Any, shares: Call | None, gather: Call) -> None:
        self.calls = (values, shares, gather) if shares is not None else (values, gather)
        laid_alike(*self.calls)
        self.new, self.order = gather.new, gather.order

    def run(self, x: Array, gy: Array, gx: Array) -> None:
        between = [call.new() for call in self.calls[:-1]]
        run_each(self.calls, self.arrays(x, gy, gx, *between))

    @staticmethod
    def arrays(
        x: Any, gy: Any, gx: Any, values: Any, shares: Any = None
    ) -> tuple[tuple[Any, ...], ...]:
        """What each of the calls works on."""
        if shares is None:
            return (x, values, values), (x, gy, gx, values)
        return (x, values, values), (x, gy, shares, values), (x, shares, gx, values)


def run_each(calls: Any, arrays: Any) -> None:
    """Calls one after the other; a fourth array is in the place of flags."""
    for call, (a, b, c, *fourth) in zip(calls, arrays, strict=True):
        if fourth:
            at = fourth[0].__array_interface__["data"][0]
            (call.run_alone if call.small else call.share_out)(a, b, c, at)
        else:
            call.run(a, b, c)


class NhwcLseGradient:
    """The gradient of a smooth max with channels last: weights, then gathering by shares."""

    def __init__(self, weights: QuickNhwc, gather: QuickNhwc, again: Any) -> None:
        self.calls, self.new, self.order = (weights, gather), gather.new, gather.order
        self.again = again

    def run(self, x: Array, gy: Array, gx: Array) -> None:
        first, _ = self.calls
        weights, flags = first.new(), np.zeros(first.plan.items, np.uint8)
        at = flags.__array_interface__["data"][0]
        for call, arrays in zip(self.calls, self.arrays(x, gy, gx, weights), strict=True):
            (call.run_alone if call.small else call.share_out)(*arrays, at)
        if flags.any():
            items, again = first.plan.each_channel(np.flatnonzero(flags)), self.again()
            laid_alike(self, again)
            again.run_items(x, gy, gx, items)

    @staticmethod
    def arrays(x: Any, gy: Any, gx: Any, weights: Any) -> tuple[tuple[Any, Any, Any], ...]:
        """What each of the two calls works on."""
        return (x, gy, weights), (x, weights, gx)


class TiledCall:
    """Kernels on tiles, one after the other, and the call that does flagged items again.

    Of a gradient there are two: the first leaves marks or weights for the second.
    """

    order = None
    """Results lie as their axes come."""

    def __init__(
        self, steps: list[tuple[Any, Tiling]], shape: Shape, dtype: Any, again: Any
    ) -> None:
        self.steps, self.shape, self.dtype, self.again = steps, shape, dtype, again

    def new(self, dtype: Any = None) -> Array:
        """The array for the result, or for one of another dtype beside it."""
        return new_array(self.shape, dtype or self.dtype)

    def run(self, a: Array, b: Array, c: Array) -> None:
        flags = np.zeros(self.steps[0][1].items, np.uint8)
        self.work(a, b, c, flags)
        if flags.any():
            again = self.again()
            laid_alike(self, again)
            again.run_items(a, b, c, np.flatnonzero(flags))

    def work(self, a: Array, b: Array, c: Array, flags: Array) -> None:
        """All steps; an item that a kernel should not have trusted is flagged."""
        self.do(0, a, b, c, flags)

    def do(self, step: int, a: Array, b: Array, c: Array, flags: Array) -> None:
        """One step on all its units."""
        kernel, tiling = self.steps[step]
        at_a, at_b, at_c, at_flags = (v.__array_interface__["data"][0] for v in (a, b, c, flags))

        share_out(
            kernel,
            lambda memory: (
                at_a,
                at_b,
                at_c,
                memory.scratch(tiling.scratch),
                tiling.at,
                at_flags,
            ),
            tiling.units,
            tiling.cells_visited,
        )


class ArgmaxGradient(TiledCall):
    """The gradient of a max: marks, then gathering by them."""

    def work(self, x: Array, gy: Array, gx: Array, flags: Array) -> None:
        marks = new_array((self.steps[0][1].all_outputs,), np.dtype(np.uint8))
        self.do(0, x, marks, marks, flags)
        self.do(1, marks, gy, gx, flags)


class LseGradient(TiledCall):
    """The gradient of a smooth max: pivots and weights, then gathering by shares."""

    def work(self, x: Array, gy: Array, gx: Array, flags: Array) -> None:
        tiling = self.steps[0][1]
        number = np.dtype(np.float32 if tiling.size == 4 else np.float64)
        weights = new_array((3, tiling.all_outputs), number)
        self.do(0, x, gy, weights, flags)
        self.do(1, x, weights, gx, flags)
