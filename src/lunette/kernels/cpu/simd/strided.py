"""Every so many elements of memory as one vector: whole vectors are read and sorted out in registers.

A gather asks for each lane by itself, which takes as long as so many loads, or longer. Of steps that windows often have, all lanes
come of as many loads as the step, and one shuffle fewer.
"""

# Numba types the kernels, not mypy.
# mypy: disable-error-code="no-untyped-def,no-untyped-call,no-any-return"

from __future__ import annotations

from functools import cache
from typing import Any

from llvmlite import ir
from numba.extending import intrinsic

from lunette.kernels.cpu.jit.intrinsics import alwaysinline, compiled
from lunette.kernels.cpu.simd.vec import vec
from lunette.kernels.cpu.tuning import SORTED_STEPS

__all__ = ["gathered", "strided"]

NARROWEST = 16
"""Bits of an element, at least: processors sort out smaller ones piece by piece."""


@cache
def _ordered(order: tuple[int, ...]) -> Any:
    """The elements of two vectors by their numbers, those of the second after those of the first."""

    @intrinsic  # type: ignore[untyped-decorator]
    def chosen(context: Any, a: Any, b: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            mask = ir.Constant(ir.VectorType(ir.IntType(32), len(order)), list(order))
            return builder.shuffle_vector(*arguments, mask)

        return a(a, b), generate

    return chosen


@cache
def _sorted_out(memory: Any, work: Any, half: str, step: int) -> Any:
    """`strided` for one step: the loads end with the last element that is asked for."""
    here = vec(memory, work, half)
    width, load = here.width, here.load
    starts = [k * width for k in range(step - 1)] + [(step - 1) * (width - 1)]
    # Of each lane, the load that has its element, and where.
    found = [next(k for k, at in enumerate(starts) if step * j < at + width) for j in range(width)]
    places = [step * j - starts[k] for j, k in enumerate(found)]

    def joined(k: int) -> Any:
        """Loads 0 … k in order."""
        order = [width + places[j] if found[j] == k else j for j in range(width)]
        if k == 1:
            order = [places[j] + width * min(1, found[j]) for j in range(width)]
        put, at = _ordered(tuple(order)), starts[k]
        if k == 1:

            @compiled
            def two(p, i):
                alwaysinline()
                return put(load(p, i), load(p, i + at))

            return two
        before = joined(k - 1)

        @compiled
        def more(p, i):
            alwaysinline()
            return put(before(p, i), load(p, i + at))

        return more

    return joined(step - 1)


@cache
def gathered(memory: Any, work: Any, half: str) -> Any:
    """`gathered(p, i, step)` is a vector of the elements i, i + step, …, each asked for by itself: short code for a rare case."""
    here = vec(memory, work, half)
    width, gather_strided, zero = here.width, here.gather_strided, work(0)

    @compiled
    def every(p, i, step):
        alwaysinline()
        return gather_strided(p, i, step, 0, width, zero)

    return every


@cache
def strided(memory: Any, work: Any, half: str) -> Any:
    """`strided(p, i, step)` is a vector of the elements i, i + step, …: no other is read past the last of these."""
    one_by_one = gathered(memory, work, half)
    if work.bitwidth < NARROWEST:
        return one_by_one
    by_three, by_four, by_five, by_seven = (
        _sorted_out(memory, work, half, s) for s in SORTED_STEPS
    )

    @compiled
    def sorted_out(p, i, step):
        alwaysinline()
        if step == 3:
            return by_three(p, i)
        if step == 4:
            return by_four(p, i)
        if step == 5:
            return by_five(p, i)
        if step == 7:
            return by_seven(p, i)
        return one_by_one(p, i, step)

    return sorted_out
