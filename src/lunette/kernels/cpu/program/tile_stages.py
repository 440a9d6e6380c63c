"""Kernels one after the other on a part of some arrays, then on the next part: what one leaves is in a cache for the next.

A chain is a table of numbers: how many steps there are, then those of each step as `STEP` has them.
"""

# Numba types the kernels, not mypy.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

from functools import cache
from typing import Any

from numba import types

from lunette.kernels.cpu.jit import intrinsics
from lunette.kernels.cpu.jit.intrinsics import alwaysinline, compiled, pointer
from lunette.kernels.cpu.schedule.stages import (
    ARRAYS,
    FLAGS,
    FLAGS_STEP,
    KERNEL,
    STEP,
    TABLE,
    UNITS,
)
from lunette.kernels.cpu.threadpool.indirect import call

__all__ = ["kernel"]


@cache
def kernel() -> Any:
    """The kernel that runs a chain on parts first … last. Its first arguments are the chain and scratch memory."""

    @compiled
    def place(chain, r, part, scratch_at):
        """Where an array of a part is."""
        alwaysinline()
        if chain[r + 1] > 0:
            return chain[r] + min(part * chain[r + 1], chain[r + 2])
        return chain[r] + scratch_at

    @intrinsics.kernel
    def run_chain(chain_at, scratch_at, z, zero, nought, nil, first, last):
        chain = pointer(chain_at, types.int64)
        for part in range(first, last):
            for step in range(chain[0]):
                s = 1 + step * STEP
                r = s + ARRAYS
                # An array with no step from part to part is in the scratch memory.
                a = place(chain, r, part, scratch_at)
                b = place(chain, r + 3, part, scratch_at)
                c = place(chain, r + 6, part, scratch_at)
                far = chain[s + FLAGS_STEP]
                flags = chain[s + FLAGS] + (part * far if far >= 0 else scratch_at)
                call(
                    chain[s + KERNEL],
                    a,
                    b,
                    c,
                    scratch_at,
                    chain[s + TABLE],
                    flags,
                    0,
                    chain[s + UNITS],
                )

    return run_chain
