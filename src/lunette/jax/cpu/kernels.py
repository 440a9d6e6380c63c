"""What tasks need of the CPU kernels: the prepared call of a task, taken apart into its steps. All that JAX knows of them is here.

A step is a kernel, its table, its units, and the places that it reads and writes: an operand or a result of the task by its
number, or temporary memory. Calls that are more than steps are left to NumPy's verbs.
"""

from __future__ import annotations

import ctypes
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np

from lunette.jax.verbs import Task
from lunette.kernels import threads
from lunette.kernels.cpu.jit.cache import Kernels
from lunette.kernels.cpu.layout.batch_interleave import BatchInterleave
from lunette.kernels.cpu.layout.split_axis import LONG
from lunette.kernels.cpu.program.calls import (
    ArgmaxGradient,
    Call,
    LseGradient,
    NhwcGradient,
    NhwcLseGradient,
    QuickCall,
    TiedGradient,
    TiedTangent,
    TiledCall,
)
from lunette.kernels.cpu.schedule.nhwc import cheap_argmax
from lunette.kernels.cpu.schedule.stages import FLAGS as STAGE_FLAGS
from lunette.kernels.cpu.schedule.stages import STEP
from lunette.kernels.cpu.schedule.windows import few_cells
from lunette.kernels.cpu.select.argmax import (
    indices_call,
    offsets_call,
    taken_call,
    tangent_call,
)
from lunette.kernels.cpu.select.forward import forward_call
from lunette.kernels.cpu.select.huge_windows import huge_max
from lunette.kernels.cpu.select.lse_pairs import is_huge
from lunette.kernels.cpu.select.vjp import gather_call, gradient_call
from lunette.kernels.cpu.tuning import ARGMAX_DIRECT_MAX_TAPS, PAGE
from lunette.ops.base import is_float
from lunette.ops.pooling import Pooling
from lunette.reductions import Max, Mean, SmoothMax

__all__ = [
    "FLAGS",
    "PAGE",
    "XLA",
    "Number",
    "Step",
    "Steps",
    "Temporary",
    "address_of",
    "offsets_are_quick",
    "prepared",
    "threads_for",
]

XLA = Kernels("xla.handler")

CHAINS = Kernels("program.tile_stages")

FLAGS = -1
"""The place of flags."""

LARGE = 1 << 20
"""Cells of an axis that no window is longer than."""

CELLS_EACH = threads.CELLS_ASLEEP
"""Cells that a step visits for each of its threads, at least: those of XLA may be asleep."""

NARROW = 1 << 12
"""Elements of a unit that makes numbers narrower."""


class Number(int):
    """A number that a kernel takes in the place of the address of flags."""


class Temporary(NamedTuple):
    """The place of an array between two steps."""

    number: int


class Step(NamedTuple):
    """A kernel on its units. `flags` is a place, `FLAGS`, or a `Number`."""

    kernel: Any
    table: int
    units: int
    cells: int
    scratch: int
    places: tuple[Any, Any, Any]
    flags: Any
    chain: Any = None
    """Of a chain: its table, and which of its words are places, or the address of flags."""


class Steps(NamedTuple):
    """What does a task; `again` gives the steps for numbers that these flag, or None where only NumPy's verbs know them."""

    steps: list[Step]
    flags: int
    temporary: list[int]
    again: Any
    keeps: Any
    """What must not be gone while these steps may run."""


def address_of(kernel: Any) -> int:
    """Where the machine code of a kernel is."""
    return ctypes.cast(kernel, ctypes.c_void_p).value or 0


def threads_for(units: int, cells: int) -> int:
    """How many threads are worth waking for a step."""
    return max(1, min(threads.get_num_threads(), units, cells // CELLS_EACH))


@lru_cache(maxsize=4096)
def offsets_are_quick(op: Pooling, size: int, channels_last: bool) -> bool:
    """Whether kernels look at each cell of a window of numbers of `size` bytes, on a large input: then offsets give the gradient sooner than x does."""
    if prod(getattr(r, "kernel", LARGE) for r in op.regions) > ARGMAX_DIRECT_MAX_TAPS:
        return False
    shape = (LARGE,) * op.rank
    return cheap_argmax(op, shape) if channels_last else few_cells(op, shape, max(4, size))


def prepared(task: Task, operands: Any, results: Any) -> Steps | None:
    """The steps of a task on arrays of these shapes and dtypes, or None where NumPy's verbs are to be asked."""
    op = task.op
    if task.backend not in (None, "cpu") or type(op.reduction) not in (Max, Mean, SmoothMax):
        return None
    arrays = [np.broadcast_to(np.zeros((), dtype), shape) for shape, dtype in (*operands, *results)]
    if any(a.size == 0 for a in arrays):
        return None
    whole = max(a.ndim for a in arrays)
    last = task.channels_last and next(a for a in arrays if a.ndim == whole).shape[-1] > 1
    # With one channel, the channel may stand anywhere.
    shapes = [_first(op, a.shape, task.channels_last and a.ndim == whole) for a in arrays]
    kept = [s if len(s) == whole else (*s, *(1,) * op.rank) for s in shapes]
    x = kept[_of_input(task, operands)]
    if max(x) > LONG or _is_huge(task, x):
        return None
    types = [a.dtype for a in arrays]
    strides = [_strides(op, s, t.itemsize, last) for s, t in zip(kept, types, strict=True)]
    found = _chosen(task, x, kept, strides, types)
    if found is None:
        return None
    call, places, wide = found
    if not _lies(call, op, whole, last):
        return None
    made = _taken_apart(call, places)
    if made is None or not wide:
        return made
    return _narrowed(made, task, len(operands) + len(results) - 1, types[-1], prod(kept[-1]))


def _of_input(task: Task, operands: Any) -> int:
    """Which array has the shape of the op's input."""
    if task.verb == "taken":
        return 1
    return len(operands) if task.verb in ("gathered", "spread") else 0


def _first(op: Pooling, shape: tuple[int, ...], last: bool) -> tuple[int, ...]:
    if not last:
        return shape
    first = len(shape) - 1 - op.rank
    return (*shape[:first], shape[-1], *shape[first:-1])


def _strides(op: Pooling, shape: tuple[int, ...], size: int, last: bool) -> tuple[int, ...]:
    """Strides of an array of this shape, the pooled axes last, that lies in order or with its channels last."""
    ndim = len(shape)
    order = list(range(ndim))
    if last:
        order.append(order.pop(ndim - 1 - op.rank))
    found, step = [0] * ndim, size
    for axis in reversed(order):
        found[axis] = step
        step *= shape[axis]
    return tuple(found)


def _lies(call: Any, op: Pooling, ndim: int, last: bool) -> bool:
    """Whether a call lays its result out as XLA wants it."""
    if not last:
        return call.order is None
    order = list(range(ndim))
    order.append(order.pop(ndim - 1 - op.rank))
    return call.order is not None and tuple(call.order) == tuple(order)


VERBS = {"forward": "values", "indices": "winners", "offsets": "winners", "tangents": "tangents"}


def _is_huge(task: Task, shape: tuple[int, ...]) -> bool:
    """Whether windows are so large that NumPy's verbs take them whole axes at a time."""
    verb = VERBS.get(task.verb, "gradients")
    if isinstance(task.op.reduction, SmoothMax):
        return is_huge(task.op, shape, verb)
    return bool(huge_max(task.op, shape, verb))


def _chosen(task: Task, x: Any, shapes: Any, strides: Any, types: Any) -> Any:
    """The prepared call, the places of its three arrays, and whether its last result is of a wider type than the task's."""
    op, verb, dtype = task.op, task.verb, types[0]
    call: Any
    if verb == "forward":
        call = forward_call(op, x, strides[0], dtype)
        return call and (call, (0, 1, 1), types[1] != op.result_dtype(dtype))
    if verb == "indices":
        call = indices_call(op, x, strides[0], dtype)
        return call and (call, (0, 1, 2), types[2] != np.int64)
    if not is_float(types[-1]) and verb != "offsets":
        return None
    if verb == "offsets":
        call = offsets_call(op, x, strides[0], dtype)
        return call and (call, (0, 1, 2), False)
    if verb == "tangents":
        if isinstance(op.reduction, Mean):
            call = forward_call(op, x, strides[1], dtype)
            return call and (call, (1, 2, 2), False)
        call = tangent_call(op, x, strides[0], strides[1], dtype)
        return call and (call, (0, 2, 1), False)
    if verb == "gradients":
        call = gradient_call(op, x, strides[0], strides[1], dtype)
        return call and (call, (0, 1, 2), False)
    if verb == "taken":
        call = taken_call(op, x, strides[1], types[1])
        return call and (call, (1, 2, 0), False)
    if verb == "gathered":
        call = gather_call(op, x, strides[1], types[1])
        return call and (call, (0, 1, 2), False)
    call = gradient_call(op, x, strides[1], strides[0], dtype)  # of a mean, which reads no x
    return call and (call, (1, 0, 1), False)


# -- a call, taken apart --


def _taken_apart(call: Any, places: Any) -> Steps | None:
    if isinstance(call, BatchInterleave):
        return _chain(call, places)
    if isinstance(call, (NhwcGradient, NhwcLseGradient, TiedGradient, TiedTangent)):
        return _one_after_the_other(call, places)
    if isinstance(call, TiledCall):
        return _tiled(call, places)
    if type(call) is Call:
        return Steps([_step(call, places, Number(call.plan.room))], 0, [], None, call)
    if isinstance(call, QuickCall):
        again = _again(call.again, places) if type(call) is QuickCall else None
        return Steps([_step(call, places, FLAGS)], 2 * call.plan.items, [], again, call)
    return None


def _step(call: Any, places: Any, flags: Any) -> Step:
    plan = call.plan
    at = address_of(call.kernel)
    return Step(at, plan.at, call.units, plan.cells_visited, call.scratch, places, flags)


def _again(make: Any, places: Any) -> Any:
    """Gives the steps of the call that takes nothing on trust, for all items: some were flagged."""
    if make is None:
        return None

    def steps() -> Steps | None:
        call = make()
        if type(call) is not Call or call.order is not None:
            return None
        return _taken_apart(call, places)

    return steps


def _tiled(call: TiledCall, places: Any) -> Steps | None:
    a, b, c = places
    first = call.steps[0][1]
    temporary: list[int] = []
    between = Temporary(0)
    each = [(a, b, c)]
    if isinstance(call, ArgmaxGradient):
        temporary, each = [first.all_outputs], [(a, between, between), (between, b, c)]
    elif isinstance(call, LseGradient):
        temporary = [3 * first.all_outputs * (4 if first.size == 4 else 8)]
        each = [(a, b, between), (a, between, c)]
    elif type(call) is not TiledCall or len(call.steps) != 1:
        return None
    steps = [
        Step(address_of(k), t.at, t.units, t.cells_visited, t.scratch, p, FLAGS)
        for (k, t), p in zip(call.steps, each, strict=True)
    ]
    return Steps(steps, max(first.items, 1), temporary, _again(call.again, places), call)


def _one_after_the_other(call: Any, places: Any) -> Steps:
    calls = call.calls
    between = [Temporary(k) for k in range(len(calls) - 1)]
    sizes = [prod(c.shape) * c.dtype.itemsize for c in calls[:-1]]
    steps, flags = [], 0
    for each, (a, b, c, *fourth) in zip(calls, call.arrays(*places, *between), strict=True):
        if fourth:
            room: Any = fourth[0]
        elif isinstance(each, QuickCall):
            room, flags = FLAGS, max(flags, 2 * each.plan.items)
        else:
            room = Number(each.plan.room)
        steps.append(_step(each, (a, b, c), room))
    return Steps(steps, flags, sizes, None, call)


def _chain(call: BatchInterleave, places: Any) -> Steps:
    """Small items, some at a time; the chain's table is made anew for each call."""
    patches = [(place, places[number]) for place, number in call.addresses]
    flags = 2 * call.parts if call.flagged else 0
    for number, each in enumerate(call.steps):
        if each.flags_step > 0:
            patches.append((1 + number * STEP + STAGE_FLAGS, FLAGS))
    step = Step(
        address_of(CHAINS.kernel()),
        call.table.__array_interface__["data"][0],
        call.parts,
        call.parts * call.cells,
        call.scratch,
        (0, Temporary(0), 0),
        Number(0),
        (len(call.table), patches),
    )
    return Steps([step], flags, [8 * len(call.table)], None, call)


def _narrowed(made: Steps, task: Task, target: int, dtype: Any, elements: int) -> Steps | None:
    """Steps whose last result goes through temporary memory into a narrower type."""
    wide = np.dtype(np.int64) if task.verb == "indices" else np.dtype(np.float64)
    if (wide.name, dtype.name) not in (("int64", "int32"), ("float64", "float32")):
        return None
    new = Temporary(len(made.temporary))

    def moved(place: Any) -> Any:
        return new if type(place) is int and place == target else place

    steps = []
    for step in made.steps:
        chain = step.chain and (step.chain[0], [(word, moved(p)) for word, p in step.chain[1]])
        a, b, c = map(moved, step.places)
        steps.append(step._replace(places=(a, b, c), chain=chain))
    table = np.array((elements, NARROW), np.int64)
    kernel = address_of(XLA.narrow_kernel(wide.name, dtype.name))
    at, units = table.__array_interface__["data"][0], -(-elements // NARROW)
    steps.append(Step(kernel, at, units, elements, 0, (new, target, target), Number(0)))
    temporary = [*made.temporary, elements * wide.itemsize]
    return Steps(steps, made.flags, temporary, None, (made.keeps, table))
