"""Rows of outputs of a max that take the tangent of each winner along: windows of two or three neighbouring cells.

Where a later cell wins, its tangent goes in the place of the earlier one's: nothing is looked up afterwards.
"""

# Numba types the kernels, not mypy.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

from functools import cache
from typing import Any

from lunette.kernels.cpu.compiling.machine import apart, compiled, within
from lunette.kernels.cpu.maxima.winning_rows import in_row
from lunette.kernels.cpu.rows.passes import least
from lunette.kernels.cpu.small_windows.trust import trust
from lunette.kernels.cpu.vectors.halves import Codec
from lunette.kernels.cpu.vectors.lanes import lanes

__all__ = ["following_rows"]


@cache
def following_rows(outer: Codec, stride: int) -> Any:
    """`follow` for a stride of 1 or 2, and vectors of at most 16 numbers."""
    work = outer.work
    from_x, here = lanes(outer.memory, work, outer.half), lanes(work, work, "")
    width, load, load_bits, store = from_x.width, from_x.load, from_x.load_bits, from_x.store
    spread, add, most, most_from = here.spread, here.add, here.most, here.most_from
    evens, odds = here.evens, here.odds
    all_lanes, both, lost, while_ordered, _, _, while_found = trust(work, "")
    fill, zero = least(work), work(0)

    @compiled
    def cells(z, at, inside, bits, long, nothing):
        """The first, second and third cells of a vector of windows; `nothing` where a cell is outside."""
        within()
        if stride == 1:
            if inside:
                a, b = load(z, at), load(z, at + 1)
                return a, b, load(z, at + 2) if long else b
            a, b = load_bits(z, at, bits, nothing), load_bits(z, at + 1, bits >> 1, nothing)
            return a, b, load_bits(z, at + 2, bits >> 2, nothing) if long else b
        if inside:
            a, b = load(z, at), load(z, at + width)
        else:
            a = load_bits(z, at, bits, nothing)
            b = load_bits(z, at + width, bits >> width, nothing)
        first, second = evens(a, b), odds(a, b)
        if not long:
            return first, second, second
        if inside:
            a, b = load(z, at + 2), load(z, at + 2 + width)
        else:
            a = load_bits(z, at + 2, bits >> 2, nothing)
            b = load_bits(z, at + 2 + width, bits >> (2 + width), nothing)
        return first, second, evens(a, b)

    @compiled
    def follow(x, at, rows, dx, to, others, count, p, n, long, y, q, columns):
        """y[q + c] = the tangent of the winner of window c < columns, of which there are at least a vector.

        Windows have two or, if `long`, three cells of each of the rows at `rows` from `at` on, and tangents at `others` from
        `to` on; the first window has its first cell at position `p` of a row of `n`. Gives whether a lane must not be
        trusted: there was a NaN, or nothing above −∞.
        """
        apart()
        trusted, others_trusted = all_lanes(), all_lanes()
        for vector in range(0, columns, width):
            # The last vector ends with the row, so it may repeat some of the one before.
            c = min(vector, columns - width)
            position = p + stride * c
            inside, bits = (position >= 0) & (position + stride * width + 1 + long <= n), 0
            if not inside:
                bits = in_row(position, n)
            best, tangent = spread(fill), spread(zero)
            for r in range(count):
                a, b, d = cells(x, at + rows[r] + position, inside, bits, long, fill)
                i, j, k = cells(dx, to + others[r] + position, inside, bits, long, zero)
                trusted = while_ordered(trusted, a, b)
                tangent, best = most_from(best, a, tangent, i), most(best, a)
                tangent, best = most_from(best, b, tangent, j), most(best, b)
                if long:
                    others_trusted = while_ordered(others_trusted, d, d)
                    tangent, best = most_from(best, d, tangent, k), most(best, d)
            trusted = while_found(trusted, best)
            store(y, q + c, add(tangent, spread(zero)))
        return lost(both(trusted, others_trusted))

    return follow
