"""Stores past the caches: whole lines of memory that are written without being read first."""

# Numba types the kernels, not mypy.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

from functools import cache
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from lunette.kernels.cpu.jit.intrinsics import alwaysinline, compiled, pointer
from lunette.kernels.cpu.simd.half import DType
from lunette.kernels.cpu.simd.vec import WIDTH, vec

__all__ = ["line_buffer", "store_or_stream", "stream", "stream_fence"]


@intrinsic  # type: ignore[untyped-decorator]
def stream(context: Any, p: Any, i: Any, value: Any) -> Any:
    """Write a whole line of memory, past the caches."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        p, i, value = arguments
        at = builder.bitcast(builder.gep(p, [i]), value.type.as_pointer())
        store = builder.store(value, at, align=WIDTH)
        streaming = builder.module.add_metadata([ir.Constant(ir.IntType(32), 1)])
        store.set_metadata("nontemporal", streaming)
        return context.get_dummy_value()

    return types.void(p, i, value), generate


@cache
def store_or_stream(dtype_of: DType) -> Any:
    """What writes a vector to memory of a codec; past the caches where that is asked for, and lines are whole."""
    whole_lines = dtype_of.memory == dtype_of.work
    store = vec(dtype_of.memory, dtype_of.work, dtype_of.half).store

    @compiled
    def keep(array, at, value, streaming):
        alwaysinline()
        if whole_lines & streaming:
            stream(array, at, value)
        else:
            store(array, at, value)

    return keep


@intrinsic  # type: ignore[untyped-decorator]
def stream_fence(context: Any) -> Any:
    """Have all that was written past the caches seen by other threads before what comes next."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.void(), generate


@cache
def line_buffer() -> tuple[Any, Any]:
    """`flush_lines` and `flush_tail`: rows that end within a line, put together on a stage of a few lines."""
    bytes_ = vec(types.uint8, types.uint8, "")
    load, store, store_n = bytes_.load, bytes_.store, bytes_.store_n

    @compiled
    def flush_lines(stage_at, line_at, fill, skip):
        """Write the whole lines of `fill` bytes on the stage to `line_at`, but not the first `skip` bytes.

        Gives where the next line goes, and what is left on the stage of it: bytes, and those to skip.
        """
        alwaysinline()
        stage, target, done = pointer(stage_at, types.uint8), pointer(line_at, types.uint8), 0
        if (skip > 0) & (fill >= WIDTH):
            store_n(target, skip, load(stage, skip), WIDTH - skip)
            skip, done = 0, WIDTH
        while done + WIDTH <= fill:
            stream(target, done, load(stage, done))
            done += WIDTH
        store(stage, 0, load(stage, done))
        return line_at + done, fill - done, skip

    @compiled
    def flush_tail(stage_at, line_at, fill, skip):
        """Write what is left on the stage: part of a line."""
        stage, target = pointer(stage_at, types.uint8), pointer(line_at, types.uint8)
        store_n(target, skip, load(stage, skip), max(0, fill - skip))

    return flush_lines, flush_tail
