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

from numba import types

from lunette.kernels.cpu.jit import intrinsics
from lunette.kernels.cpu.jit.intrinsics import compiled, pointer
from lunette.kernels.cpu.schedule.staging import (
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
from lunette.kernels.cpu.simd.streaming import stream, stream_fence
from lunette.kernels.cpu.simd.vec import WIDTH, vec
from lunette.kernels.cpu.threadpool.indirect import call

__all__ = ["kernel"]


@cache
def kernel() -> Any:
    """The kernel that runs another on units first … last of a job and pours out what it leaves.

    Its arguments are the job, the scratch memory of the other, the stage, three zeros, first, last.
    """
    bytes_ = vec(types.uint8, types.uint8, "")
    load, store_n = bytes_.load, bytes_.store_n

    @compiled
    def stream_out(source_at, target_at, size):
        """Copy bytes between places that are alike within a line; part of a line is stored plainly."""
        source, target = pointer(source_at, types.uint8), pointer(target_at, types.uint8)
        done = min(size, (-target_at) % WIDTH)
        store_n(target, 0, load(source, 0), done)
        while done + WIDTH <= size:
            stream(target, done, load(source, done))
            done += WIDTH
        store_n(target, done, load(source, done), size - done)

    @compiled
    def element(job, edges, unit):
        """The first element of a unit's results."""
        return job[ITEM] * (unit // job[UNITS]) + edges[unit % job[UNITS]]

    @intrinsics.kernel
    def run_staged(job_at, scratch_at, stage_at, zero, nought, nil, first, last):
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
            stream_out(source, target, end - begin)
            unit = until
        stream_fence()

    return run_staged
