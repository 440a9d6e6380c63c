"""Small items, some at a time: they are laid side by side as if they were channels, pooled so, and laid back.

A row of a few cells fills no vector. Where items are many, vectors of items do, and kernels for channels last
are there for most verbs. A part of the items is turned, worked on and turned back while it is in a cache.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple

import numpy as np

from lunette.kernels.cpu.jit.cache import Kernels
from lunette.kernels.cpu.memory.block_cache import new_array
from lunette.kernels.cpu.program.calls import (
    Call,
    NhwcGradient,
    NhwcLseGradient,
    QuickCall,
    TiedGradient,
    TiedTangent,
)
from lunette.kernels.cpu.schedule.plan import in_a_row
from lunette.kernels.cpu.schedule.stages import (
    ARRAYS,
    FLAGS,
    FLAGS_STEP,
    KERNEL,
    STEP,
    TABLE,
    UNITS,
)
from lunette.kernels.cpu.schedule.windows import affine
from lunette.kernels.cpu.threadpool.pool import share_out
from lunette.kernels.cpu.tuning import LINE
from lunette.ops.pooling import Pooling
from lunette.reductions import Max, Mean, SmoothMax

__all__ = ["BatchInterleave", "Operand", "in_parts", "ties_count"]

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]

chains, transposition = Kernels("program.tile_stages"), Kernels("simd.transpose")

SHORT, MIDDLE, LONG = 10, 20, 64
"""Cells of the rows of a small item, at most: see `_longest`."""

MOST, BYTES = 256, 1 << 17
"""Items of a part, at most, and its bytes, about."""

BLOCK = 16
"""Items that are turned together."""

ONE_WINDOW = 32
"""Cells of an item with one window, at most, whose winner is found beside those of others."""


class Bounds(NamedTuple):
    """What items are served: cells of one, at most; how many there are, and how many make a part, at least."""

    cells: int
    items: int
    part: int


USUAL, SEARCHED = Bounds(1 << 12, 256, 64), Bounds(1 << 12, 64, 64)
"""As a rule, and where winners are looked for."""

TIED = Bounds(1 << 16, 32, 16)
"""Where ties count: the other way is many times slower there."""


class Operand(NamedTuple):
    """An array of a kernel: `role` is `r` if it is read, `w` if written, `-` if neither.

    One that is read may have any strides; without, it is contiguous.
    """

    role: str
    shape: Shape
    dtype: Any
    strides: Shape | None = None

    @property
    def in_order(self) -> bool:
        """Whether it is contiguous."""
        return self.strides is None or in_a_row(self.shape, self.strides, self.dtype.itemsize)


def in_parts(
    op: Pooling, shape: Shape, operands: list[Operand], verb: str, choice: Callable[..., Any]
) -> BatchInterleave | None:
    """The call of a verb on small items, of an input of this shape; None where they are not served so.

    Verbs are "values", "winners", "tangents" and "gradients".

    `choice` is given the shape of a part of the input, and the strides of a part of each operand that is read, and
    gives the call on parts.
    """
    sizes = [o.dtype.itemsize for o in operands]
    tied = ties_count(op, verb)
    short = tied or shape[-1] <= _longest(op, shape, verb, sizes[1])  # the first may be offsets
    searched = verb != "values" and isinstance(op.reduction, Max)
    bounds, alone = TIED if tied else SEARCHED if searched else USUAL, ONE_WINDOW * searched
    part = _part(op, shape, max(sizes), bounds, alone) if short else 0
    if not part or not all(o.in_order for o in operands):
        return None
    first = len(shape) - op.rank
    strides = [
        _beside((part, *o.shape[first:]), o.dtype.itemsize) for o in operands if o.role != "w"
    ]
    inner = choice((part, *shape[first:]), *strides)
    several = (NhwcGradient, NhwcLseGradient, TiedGradient, TiedTangent)
    if not isinstance(inner, (Call, *several)) or inner.order is None:
        return None
    return BatchInterleave(inner, shape, op.rank, part, operands)


def ties_count(op: Pooling, verb: str) -> bool:
    """Whether a verb asks for all winners of a window; of those that no kernel for rows knows but cell by cell."""
    counts = isinstance(op.reduction, Max) and op.reduction.ties != "first"
    return counts and verb in ("tangents", "gradients")


def _longest(op: Pooling, shape: Shape, verb: str, size: int) -> int:
    """Cells of a row, at most, of items that are quicker side by side; found by measurement. A number has `size` bytes.

    Kernels for rows are at their best where windows lie alike with a stride of one or two, and worst where they have to
    search windows that do not.
    """
    pooled = shape[len(shape) - op.rank :]
    lies = [affine(r, n) for r, n in zip(op.regions, pooled, strict=True)]
    alike, near = all(kernel for *_, kernel in lies), 0 < lies[-1][0] <= 2
    if isinstance(op.reduction, SmoothMax):
        return MIDDLE if near or not alike else LONG // 2
    if verb == "values":
        return SHORT if alike else MIDDLE
    if isinstance(op.reduction, Mean):
        return SHORT if alike else LONG // 2
    if size > 4:
        return SHORT if alike else LONG // 2
    if alike and near:
        return SHORT if verb == "tangents" else MIDDLE
    return LONG


def _part(op: Pooling, shape: Shape, size: int, bounds: Bounds, alone: int) -> int:
    """How many items go together; 0 where they are not small, or too few, or have one window each and more than `alone` cells."""
    first = len(shape) - op.rank
    items, cells = prod(shape[:first]), prod(shape[first:])
    if not 0 < cells <= bounds.cells:
        return 0
    if cells == 1 and items <= MOST:
        return 0  # items of one cell lie side by side as they are: a part of them is such an array again
    one = prod(op.out_shape(shape)) == items
    if isinstance(op.reduction, Max):  # others have kernels for windows of a part of an item
        one = one and _whole(op, shape[first:])
    if items < bounds.items or (cells > alone if one else op.rank < 2):
        return 0
    most = min(MOST, max(bounds.part, BYTES // (cells * size) // BLOCK * BLOCK))
    even = next((p for p in range(most, bounds.part - 1, -BLOCK) if items % p == 0), 0)
    if even:
        return even
    # As few parts as may be, all alike: the last ends with the last item, and does some of the part before again.
    parts = max(2, -(-items // most))
    part = -(-items // parts // BLOCK) * BLOCK
    return part if bounds.part <= part <= items else 0


def _whole(op: Pooling, pooled: Shape) -> bool:
    """Whether the first window has all cells of an item."""
    lies = [affine(r, n) for r, n in zip(op.regions, pooled, strict=True)]
    return all(
        not kernel or (origin <= 0 and origin + dilation * (kernel - 1) + 1 >= n)
        for (_, origin, dilation, kernel), n in zip(lies, pooled, strict=True)
    )


def _beside(shape: Shape, size: int) -> Shape:
    """Strides of a part of this shape, items first, whose items lie side by side."""
    items, *pooled = shape
    return (size, *(size * items * prod(pooled[axis + 1 :]) for axis in range(len(pooled))))


class Step(NamedTuple):
    """A call of a kernel. Places are bytes of scratch memory or the number of an operand, bytes of a part of it and those before the last part."""

    kernel: Any
    table: int
    units: int
    places: tuple[int | tuple[int, int, int], ...]
    flags: int = 0
    flags_step: int = 0


class BatchInterleave:
    """A call on parts of some operands: `inner` is the call on one of them."""

    again: Any = None
    """Gives the call that does items again where the inner one trusted what it should not have: of an input of a shape, and
    of arrays with these strides that are read."""

    order = None
    """Results lie as their axes come."""

    def __init__(
        self,
        inner: Call | NhwcGradient | NhwcLseGradient | TiedGradient | TiedTangent,
        shape: Shape,
        rank: int,
        part: int,
        operands: list[Operand],
    ) -> None:
        items, self.pooled = prod(shape[: len(shape) - rank]), shape[len(shape) - rank :]
        result = next(o for o in operands if o.role == "w")
        self.shape, self.dtype = result.shape, result.dtype
        self.operands, self.items = operands, items
        self.parts, self.part, self.inner = -(-items // part), part, inner
        self.tables: list[Any] = []
        calls = [inner] if isinstance(inner, Call) else inner.calls
        self.flagged = any(isinstance(call, QuickCall) for call in calls)
        self.cells = sum(call.plan.cells_visited for call in calls)
        self.scratch = 0
        self._room(max(call.scratch for call in calls))
        cells = [prod(o.shape) // items for o in operands]
        wholes = [
            (
                k,
                cells[k] * part * o.dtype.itemsize if o.role != "-" else 0,
                cells[k] * (items - part) * o.dtype.itemsize,
            )
            for k, o in enumerate(operands)
        ]
        rooms = [self._room(size) for _, size, _ in wholes]
        steps = [
            self._turn(part, cells[k], o.dtype.itemsize, wholes[k], rooms[k])
            for k, o in enumerate(operands)
            if o.role == "r"
        ]
        if isinstance(inner, Call):
            steps.append(self._call(inner, *rooms))
        else:
            between = [self._room(prod(c.shape) * c.dtype.itemsize) for c in calls[:-1]]
            for call, arrays in zip(calls, inner.arrays(*rooms, *between), strict=True):
                steps.append(self._call(call, *arrays))
        steps += [
            self._turn(cells[k], part, o.dtype.itemsize, rooms[k], wholes[k])
            for k, o in enumerate(operands)
            if o.role == "w"
        ]
        self._lay_out(steps)

    def _room(self, size: int) -> int:
        """Where so many bytes of scratch memory are, from a line on."""
        place = self.scratch
        self.scratch += -(-size // LINE) * LINE + LINE
        return place

    def _turn(self, rows: int, columns: int, size: int, source: Any, target: Any) -> Step:
        """The step that turns a matrix."""
        table = np.array((rows, columns, 0, columns, 0, rows, max(rows, columns), 1), np.int64)
        self.tables.append(table)
        at = table.__array_interface__["data"][0]
        return Step(transposition.kernel(size), at, 1, (source, target))

    def _call(self, call: Call, *rooms: int) -> Step:
        """The step that runs a call; a fourth array is in the place of flags."""
        if isinstance(call, QuickCall):  # two flags for each part
            return Step(call.kernel, call.plan.at, call.units, rooms, 0, 2)
        if len(rooms) > 3:
            return Step(call.kernel, call.plan.at, call.units, rooms[:3], rooms[3], -1)
        return Step(call.kernel, call.plan.at, call.units, rooms, call.plan.room)

    def _lay_out(self, steps: list[Step]) -> None:
        """The table of the chain, and which of its numbers are to be the addresses of arrays, or of flags."""
        self.table = np.zeros(1 + len(steps) * STEP, np.int64)
        self.table[0], self.steps = len(steps), steps
        self.addresses: list[tuple[int, int]] = []
        for number, step in enumerate(steps):
            begin = 1 + number * STEP
            entry = self.table[begin : begin + STEP]
            entry[KERNEL] = ctypes.cast(step.kernel, ctypes.c_void_p).value or 0
            entry[TABLE], entry[UNITS] = step.table, step.units
            entry[FLAGS], entry[FLAGS_STEP] = step.flags, step.flags_step
            for which, place in enumerate(step.places):
                at = ARRAYS + 3 * which
                if isinstance(place, tuple):
                    self.addresses.append((begin + at, place[0]))
                    entry[at + 1 : at + 3] = place[1:]
                else:
                    entry[at] = place

    def new(self, dtype: Any = None) -> Array:
        """The array for the result, or for one of another dtype beside it."""
        return new_array(self.shape, dtype or self.dtype)

    def run(self, a: Array, b: Array, c: Array) -> None:
        """All parts, shared out among threads."""
        table, at = self.table.copy(), [v.__array_interface__["data"][0] for v in (a, b, c)]
        for place, number in self.addresses:
            table[place] = at[number]
        flags = np.zeros(2 * self.parts if self.flagged else 0, np.uint8)
        for number, step in enumerate(self.steps):
            if step.flags_step > 0:
                table[1 + number * STEP + FLAGS] = flags.__array_interface__["data"][0]
        chain_at = table.__array_interface__["data"][0]
        share_out(
            chains.kernel(),
            lambda memory: (chain_at, memory.scratch(self.scratch), 0, 0, 0, 0),
            self.parts,
            self.parts * self.cells,
        )
        if flags.any():
            nonfinite = np.flatnonzero(flags.reshape(-1, 2).any(axis=1))
            begin = np.minimum(nonfinite * self.part, self.items - self.part)
            self._mend([a, b, c], np.unique(begin[:, None] + np.arange(self.part)))

    def _mend(self, arrays: list[Array], items: Array) -> None:
        """Do some items again, by themselves: that call makes its own result, in the layout that it writes."""
        written, all_of_them = [o.role for o in self.operands].index("w"), len(items) == self.items
        whole = [
            array.reshape(self.items, *o.shape[len(o.shape) - len(self.pooled) :])
            for array, o in zip(arrays, self.operands, strict=False)
        ]
        some = [a if all_of_them or k == written else a[items] for k, a in enumerate(whole)]
        read = (a.strides for k, a in enumerate(some) if k != written)
        call = self.again((len(items), *self.pooled), *read)
        result = some[written] = call.new()
        call.run(*some, *[result] * (3 - len(some)))  # values alone are the last array, too
        whole[written][items] = result
