"""Large results past the caches: units fill a stage that stays near, which is poured into memory.

A plain store reads a line of memory before it changes it, though all of the line will be new. A
store past the caches does not, which halves the traffic of a result, but it must fill whole lines
in a row. So a kernel is given, instead of the result, a stage at the same place within a line; what
a few units leave there is a piece of the result, and goes to memory from one end to the other.
Kernels need not know: they only find their results elsewhere.
"""

# Numba types the kernels, not mypy.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

from functools import cache
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from lunette.kernels.cpu import machine
from lunette.kernels.cpu.halves import Codec
from lunette.kernels.cpu.lanes import WIDTH, lanes
from lunette.kernels.cpu.library import PARAMETERS
from lunette.kernels.cpu.machine import compiled, pointer, within
from lunette.kernels.cpu.pieces import (
    ARRAYS,
    BATCH,
    EDGES,
    FLAGS,
    ITEM,
    KERNEL,
    RESULT,
    SIZE,
    TABLE,
    UNITS,
)

__all__ = ["keeping", "kernel", "line_flow", "settle", "store_past"]


@intrinsic  # type: ignore[untyped-decorator]
def call(
    context: Any, at: Any, a: Any, b: Any, c: Any, d: Any, e: Any, f: Any, g: Any, h: Any
) -> Any:
    """Call the kernel at an address."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(ir.IntType(32), [ir.IntType(64)] * PARAMETERS)
        builder.call(builder.inttoptr(arguments[0], kind.as_pointer()), arguments[1:])
        return context.get_dummy_value()

    return types.void(*[types.int64] * (PARAMETERS + 1)), generate


@intrinsic  # type: ignore[untyped-decorator]
def store_past(context: Any, p: Any, i: Any, value: Any) -> Any:
    """Write a whole line of memory, past the caches."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        p, i, value = arguments
        at = builder.bitcast(builder.gep(p, [i]), value.type.as_pointer())
        store = builder.store(value, at, align=WIDTH)
        past = builder.module.add_metadata([ir.Constant(ir.IntType(32), 1)])
        store.set_metadata("nontemporal", past)
        return context.get_dummy_value()

    return types.void(p, i, value), generate


@cache
def keeping(codec: Codec) -> Any:
    """What writes a vector to memory of a codec; past the caches where that is asked for, and lines are whole."""
    whole_lines = codec.memory == codec.work
    store = lanes(codec.memory, codec.work, codec.half).store

    @compiled
    def keep(array, at, value, past):
        within()
        if whole_lines & past:
            store_past(array, at, value)
        else:
            store(array, at, value)

    return keep


@intrinsic  # type: ignore[untyped-decorator]
def settle(context: Any) -> Any:
    """Have all that was written past the caches seen by other threads before what comes next."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.void(), generate


@cache
def line_flow() -> tuple[Any, Any]:
    """`pour_lines` and `pour_rest`: rows that end within a line, put together on a stage of a few lines."""
    bytes_ = lanes(types.uint8, types.uint8, "")
    load, store, store_part = bytes_.load, bytes_.store, bytes_.store_part

    @compiled
    def pour_lines(stage_at, line_at, fill, skip):
        """Write the whole lines of `fill` bytes on the stage to `line_at`, but not the first `skip` bytes.

        Gives where the next line goes, and what is left on the stage of it: bytes, and those to skip.
        """
        within()
        stage, target, done = pointer(stage_at, types.uint8), pointer(line_at, types.uint8), 0
        if (skip > 0) & (fill >= WIDTH):
            store_part(target, skip, load(stage, skip), WIDTH - skip)
            skip, done = 0, WIDTH
        while done + WIDTH <= fill:
            store_past(target, done, load(stage, done))
            done += WIDTH
        store(stage, 0, load(stage, done))
        return line_at + done, fill - done, skip

    @compiled
    def pour_rest(stage_at, line_at, fill, skip):
        """Write what is left on the stage: part of a line."""
        stage, target = pointer(stage_at, types.uint8), pointer(line_at, types.uint8)
        store_part(target, skip, load(stage, skip), max(0, fill - skip))

    return pour_lines, pour_rest


@cache
def kernel() -> Any:
    """The kernel that runs another on units first … last of a job and pours out what it leaves.

    Its arguments are the job, the scratch memory of the other, the stage, three zeros, first, last.
    """
    bytes_ = lanes(types.uint8, types.uint8, "")
    load, store_part = bytes_.load, bytes_.store_part

    @compiled
    def pour(source_at, target_at, size):
        """Copy bytes between places that are alike within a line; part of a line is stored plainly."""
        source, target = pointer(source_at, types.uint8), pointer(target_at, types.uint8)
        done = min(size, (-target_at) % WIDTH)
        store_part(target, 0, load(source, 0), done)
        while done + WIDTH <= size:
            store_past(target, done, load(source, done))
            done += WIDTH
        store_part(target, done, load(source, done), size - done)

    @compiled
    def element(job, edges, unit):
        """The first element of a unit's results."""
        return job[ITEM] * (unit // job[UNITS]) + edges[unit % job[UNITS]]

    @machine.kernel
    def stream(job_at, scratch_at, stage_at, zero, nought, nil, first, last):
        job = pointer(job_at, types.int64)
        edges, size = pointer(job[EDGES], types.int64), job[SIZE]
        a, b, c = job[ARRAYS], job[ARRAYS + 1], job[ARRAYS + 2]
        unit = first
        while unit < last:
            until = min(last, unit + job[BATCH])
            begin, end = element(job, edges, unit) * size, element(job, edges, until) * size
            target = job[ARRAYS + job[RESULT]] + begin
            source = stage_at + (target - stage_at) % WIDTH  # alike within a line
            if job[RESULT] == 1:
                b = source - begin
            else:
                c = source - begin
            call(job[KERNEL], a, b, c, scratch_at, job[TABLE], job[FLAGS], unit, until)
            pour(source, target, end - begin)
            unit = until
        settle()

    return stream
