"""Smooth max of a vector of windows about their own pivots: for cells of any finite size.

The pivot is the window's largest cell (the smallest for beta < 0). Two passes over the cells, both in
row-major order, and a third for a tangent. Padding that does not count is ∓inf, whose share is 0.
"""

# Numba types the kernels, not mypy.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

import math
from functools import cache
from typing import Any, NamedTuple

from lunette.kernels.cpu.jit.intrinsics import compiled
from lunette.kernels.cpu.simd.vec import vec
from lunette.kernels.cpu.simd.vec_math import exp_beside_one, exp_down

__all__ = ["Pivots", "about_pivots"]


class Pivots(NamedTuple):
    """Of outputs c, c + 1, …, with `count` rows of a window in `s` from `rows[r]` on, laid out by phase:
    `of(s, c, rows, count, pads, …)` is the pivots, `sums(s, c, rows, count, pads, pivot, beta, …)` the sums of
    shares, `tangents(s, second, c, rows, count, pivot, beta, …)` the sums of shares times tangents, which lie as
    cells do, `second` after them. All end with `g, taps, size`: the taps of a row.
    """

    of: Any
    sums: Any
    tangents: Any


@cache
def about_pivots(work: Any, beta_positive: bool) -> Pivots:
    """The functions for a type and a sign of beta (`beta_positive`: positive)."""
    here = vec(work, work, "")
    load, broadcast, add, subtract = here.load, here.broadcast, here.add, here.subtract
    multiply, divide = here.multiply, here.divide
    extreme, least = here.max_num if beta_positive else here.min_num, here.min_num
    zero, fill = work(0), work(-math.inf if beta_positive else math.inf)

    @compiled
    def of(s, c, rows, count, pads, plan, taps, size):
        best = broadcast(fill)
        for r in range(count):
            for t in range(size):
                best = extreme(best, load(s, rows[r] + c + plan.numbers[taps + t]))
        if plan.count_padding:
            # Zeros that count, in the windows that have some: elsewhere 0/0 is NaN.
            best = extreme(best, divide(broadcast(zero), pads))
        return best

    @compiled
    def padding(pads, pivot, beta):
        """The shares of zeros that count."""
        below = least(broadcast(zero), multiply(beta, subtract(broadcast(zero), pivot)))
        return multiply(pads, exp_beside_one(below))

    @compiled
    def sums(s, c, rows, count, pads, pivot, beta, plan, taps, size):
        total = broadcast(zero)
        for r in range(count):
            for t in range(size):
                cell = load(s, rows[r] + c + plan.numbers[taps + t])
                total = add(total, exp_beside_one(multiply(beta, subtract(cell, pivot))))
        if plan.count_padding:
            total = add(total, padding(pads, pivot, beta))
        return total

    @compiled
    def tangents(s, second, c, rows, count, pivot, beta, plan, taps, size):
        total = broadcast(zero)
        for r in range(count):
            for t in range(size):
                k = rows[r] + c + plan.numbers[taps + t]
                part = exp_down(multiply(beta, subtract(load(s, k), pivot)))
                total = add(total, multiply(part, load(s, second + k)))
        return total

    return Pivots(of, sums, tangents)
