"""Windows of three neighbouring positions, each one further than the last, where channels lie side by side.

A position is in three windows. The fold of its rows stays in registers until it has been in all of them, so each cell is read once.
"""

# Numba types the kernels, not mypy.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

from functools import cache
from typing import Any

from lunette.kernels.cpu.jit.intrinsics import alwaysinline, compiled, noinline
from lunette.kernels.cpu.micro.fold import folding
from lunette.kernels.cpu.micro.guards import guards
from lunette.kernels.cpu.simd.prefetch import PAGE, prefetch_line
from lunette.kernels.cpu.simd.vec import vec

__all__ = ["sliding"]


@cache
def sliding(dtype: str, operation: str) -> Any:
    """`slide` of an operation, `max_num` or `add`, for a dtype."""
    outer, fill, safe, _, _, end = folding(dtype, operation)
    here = vec(outer.work, outer.work, "")
    width, join, broadcast = here.width, getattr(here, operation), here.broadcast
    read = vec(outer.memory, outer.work, outer.half).load
    all_true, both, failed, *_ = guards(outer.work, outer.half)
    size_of = outer.memory.bitwidth // 8

    @compiled
    def column(x, p, rows, count, inside, trusted):
        """The fold of the rows of a position, `fill` where it is not in the row; the lanes of `trusted` where none is a NaN."""
        alwaysinline()
        if not inside:
            return broadcast(fill), trusted
        if count == 3:
            a, b, d = read(x, p + rows[0]), read(x, p + rows[1]), read(x, p + rows[2])
            return join(join(a, b), d), safe(safe(trusted, a, b), d, d)
        best = read(x, p + rows[0])
        trusted = safe(trusted, best, best)
        for r in range(1, count):
            a = read(x, p + rows[r])
            best, trusted = join(best, a), safe(trusted, a, a)
        return best, trusted

    def strips(two):
        @compiled
        def strip(read_from, written, prefetched, c, other, first, last):
            """One vector of channels, from c on, or two, the other from `other` on, of windows first … last."""
            noinline()
            x, base, rows, count, wide, n, origin = read_from
            divisors, factor, y, to, streaming = written
            lead, trusted, nonzero = broadcast(factor), all_true(), all_true()
            others, nonzeros = trusted, nonzero
            q = first + origin
            p = base + q * wide
            a, trusted = column(x, p + c, rows, count, 0 <= q < n, trusted)
            b, trusted = column(x, p + wide + c, rows, count, 0 <= q + 1 < n, trusted)
            d = e = b
            if two:
                d, others = column(x, p + other, rows, count, 0 <= q < n, others)
                e, others = column(x, p + wide + other, rows, count, 0 <= q + 1 < n, others)
            for j in range(first, last):
                q = j + origin + 2
                p, at, inside = base + q * wide, j * wide, 0 <= q < n
                if prefetched > 0:
                    # Rows before the last have been read for other windows, as a rule.
                    new = p + rows[count - 1]
                    prefetch_line(prefetched + (new + c) * size_of + PAGE)
                    if two:
                        prefetch_line(prefetched + (new + other) * size_of + PAGE)
                z, trusted = column(x, p + c, rows, count, inside, trusted)
                value = join(join(a, b), z)
                nonzero = end(
                    value, divisors, at + c, lead, y, to + at + c, width, streaming, nonzero
                )
                a, b = b, z
                if two:
                    z, others = column(x, p + other, rows, count, inside, others)
                    value = join(join(d, e), z)
                    nonzeros = end(
                        value,
                        divisors,
                        at + other,
                        lead,
                        y,
                        to + at + other,
                        width,
                        streaming,
                        nonzeros,
                    )
                    d, e = e, z
            return failed(both(trusted, others)), failed(both(nonzero, nonzeros))

        return strip

    one_vector, two_vectors = strips(False), strips(True)

    @compiled
    def slide(read_from, written, prefetched, first, last):
        """y[to + j·wide + c] = the fold of window j, first ≤ j < last, of channel c.

        Read from: x; where its item begins, and where a window's rows do, from there on; how many these are; channels, positions of a
        row, and the first of window 0. Written: divisors along a row, and across it; y, where the row goes, and whether past the caches.
        `prefetched` is the address of x, 0 if it is not asked for. Gives whether a lane must not be trusted, and whether a result is zero.
        """
        noinline()
        wide, c, nonfinite, zero = read_from[4], 0, False, False
        while c + 2 * width <= wide:
            lost_lane, found = two_vectors(
                read_from, written, prefetched, c, c + width, first, last
            )
            nonfinite, zero, c = nonfinite | lost_lane, zero | found, c + 2 * width
        while c < wide:
            # The last vector ends with the position, so it may repeat some lanes of the one before.
            at = min(c, wide - width)
            lost_lane, found = one_vector(read_from, written, prefetched, at, at, first, last)
            nonfinite, zero, c = nonfinite | lost_lane, zero | found, c + width
        return nonfinite, zero

    return slide
