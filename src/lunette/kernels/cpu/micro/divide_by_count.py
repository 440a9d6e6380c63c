"""Means of a line from its sums: over the cells that count, or by a reciprocal where that saves more."""

# Numba types the kernels, not mypy.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

from functools import cache
from typing import Any

from lunette.kernels.cpu.jit.intrinsics import compiled, noinline
from lunette.kernels.cpu.micro.log_step import scaled
from lunette.kernels.cpu.micro.rows import averaged, inside
from lunette.kernels.cpu.simd.half import DType
from lunette.kernels.cpu.tuning import DIRECT_SUM_MAX_TAPS

__all__ = ["doubles", "finished"]


MANY = 2.0**60
"""More cells than are counted where the reciprocal is used: it must be a normal number."""


@compiled
def doubles(plan, axis):
    """Whether windows of an axis are summed by doubling."""
    entry = plan.axes[axis]
    return (entry.taps > DIRECT_SUM_MAX_TAPS) & (entry.taps > entry.stride)


@cache
def finished(outer: DType, doubling: bool) -> Any:
    """What makes means of a line of sums; whether windows may be summed by doubling."""
    work = outer.work
    average, scale = averaged(outer), scaled(outer)

    @compiled
    def finish(s, plan, at, divisors, factor, y, to, first, last):
        """Outputs first … last of a line: sums over the cells that count.

        Whole windows that are summed by doubling multiply by the reciprocal instead: two roundings,
        where the sum has saved more.
        """
        noinline()
        wide = max(1, plan.channels)
        begin, size = first * wide, (last - first) * wide
        if doubling and doubles(plan, plan.rank - 1) & (plan.divisor == 0) & (factor < MANY):
            w_axis = plan.axes[plan.rank - 1]
            cells = w_axis.dilation * (w_axis.taps - 1) + 1
            low, high = inside(first, last, w_axis.in_len, w_axis.stride, w_axis.origin, cells, 1)
            middle, rest = (low - first) * wide, (high - first) * wide
            reciprocal = work(1) / (work(factor) * work(w_axis.taps))
            average(s, at, 0, 1, divisors, begin, work(factor), y, to, middle)
            scale(s, at + middle, reciprocal, y, to + middle, rest - middle)
            at, to, begin, size = at + rest, to + rest, begin + rest, size - rest
        average(s, at, 0, 1, divisors, begin, work(factor), y, to, size)

    return finish
