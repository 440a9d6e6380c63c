"""Rows of outputs of a max that take the tangent of each winner along: windows of two or three neighbouring cells.

Where a later cell wins, its tangent goes in the place of the earlier one's: nothing is looked up afterwards.
"""

# Numba types the kernels, not mypy.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

from functools import cache
from typing import Any

from lunette.kernels.cpu.jit.intrinsics import alwaysinline, compiled, noinline
from lunette.kernels.cpu.micro.argmax_rows import in_row
from lunette.kernels.cpu.micro.guards import guards
from lunette.kernels.cpu.micro.rows import least
from lunette.kernels.cpu.simd.half import DType
from lunette.kernels.cpu.simd.vec import vec

__all__ = ["max_tangent_rows"]


@cache
def max_tangent_rows(outer: DType, stride: int) -> Any:
    """`carry_tangent` for a stride of 1 or 2, and vectors of at most 16 numbers."""
    work = outer.work
    from_x, here = vec(outer.memory, work, outer.half), vec(work, work, "")
    width, load, load_masked, store = from_x.width, from_x.load, from_x.load_masked, from_x.store
    broadcast, add, max_num, select_max_num = (
        here.broadcast,
        here.add,
        here.max_num,
        here.select_max_num,
    )
    concat_even, concat_odd = here.concat_even, here.concat_odd
    all_true, both, failed, and_not_nan, _, _, and_above_neg_inf = guards(work, "")
    fill, zero = least(work), work(0)

    @compiled
    def cells(z, at, inside, bits, long, nothing):
        """The first, second and third cells of a vector of windows; `nothing` where a cell is outside."""
        alwaysinline()
        if stride == 1:
            if inside:
                a, b = load(z, at), load(z, at + 1)
                return a, b, load(z, at + 2) if long else b
            a, b = load_masked(z, at, bits, nothing), load_masked(z, at + 1, bits >> 1, nothing)
            return a, b, load_masked(z, at + 2, bits >> 2, nothing) if long else b
        if inside:
            a, b = load(z, at), load(z, at + width)
        else:
            a = load_masked(z, at, bits, nothing)
            b = load_masked(z, at + width, bits >> width, nothing)
        first, second = concat_even(a, b), concat_odd(a, b)
        if not long:
            return first, second, second
        if inside:
            a, b = load(z, at + 2), load(z, at + 2 + width)
        else:
            a = load_masked(z, at + 2, bits >> 2, nothing)
            b = load_masked(z, at + 2 + width, bits >> (2 + width), nothing)
        return first, second, concat_even(a, b)

    @compiled
    def carry_tangent(x, at, rows, dx, to, others, count, p, n, long, y, q, columns):
        """y[q + c] = the tangent of the winner of window c < columns, of which there are at least a vector.

        Windows have two or, if `long`, three cells of each of the rows at `rows` from `at` on, and tangents at `others` from
        `to` on; the first window has its first cell at position `p` of a row of `n`. Gives whether a lane must not be
        trusted: there was a NaN, or nothing above −∞.
        """
        noinline()
        trusted, others_trusted = all_true(), all_true()
        for vector in range(0, columns, width):
            # The last vector ends with the row, so it may repeat some of the one before.
            c = min(vector, columns - width)
            position = p + stride * c
            inside, bits = (position >= 0) & (position + stride * width + 1 + long <= n), 0
            if not inside:
                bits = in_row(position, n)
            best, tangent = broadcast(fill), broadcast(zero)
            for r in range(count):
                a, b, d = cells(x, at + rows[r] + position, inside, bits, long, fill)
                i, j, k = cells(dx, to + others[r] + position, inside, bits, long, zero)
                trusted = and_not_nan(trusted, a, b)
                tangent, best = select_max_num(best, a, tangent, i), max_num(best, a)
                tangent, best = select_max_num(best, b, tangent, j), max_num(best, b)
                if long:
                    others_trusted = and_not_nan(others_trusted, d, d)
                    tangent, best = select_max_num(best, d, tangent, k), max_num(best, d)
            trusted = and_above_neg_inf(trusted, best)
            store(y, q + c, add(tangent, broadcast(zero)))
        return failed(both(trusted, others_trusted))

    return carry_tangent
