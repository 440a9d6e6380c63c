"""Long windows of a max that overlap, at a cost that does not grow with their length.

Along a row, `eights` folds the eight cells from each on, in registers: a vector and the next, moved
by one, two and four lanes; `pieces` makes windows of these. Across rows, `van_herk` cuts the axis into blocks as long as a window: a
window is the end of one block and the beginning of the next, and both are folded once for all.
Of equals, each step keeps the earlier.
"""

# Numba types the kernels, not mypy.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

from functools import cache
from typing import Any

from lunette.kernels.cpu.jit.intrinsics import alwaysinline, compiled, noinline
from lunette.kernels.cpu.micro.rows import clipped
from lunette.kernels.cpu.simd.half import DType
from lunette.kernels.cpu.simd.shuffle import slide
from lunette.kernels.cpu.simd.vec import vec

__all__ = ["EIGHT", "MOST_PIECES", "eights", "pieces", "van_herk"]

EIGHT = 8
"""Cells that `eights` folds; no vector has fewer lanes."""


MOST_PIECES = 13
"""Pieces of a window that are folded at once; of longer ones they are doubled before."""


@cache
def eights(dtype_of: DType, operation: str, watch: bool) -> Any:
    """The fold of every eight neighbours of a row of the input."""
    inputs, here = (
        vec(dtype_of.memory, dtype_of.work, dtype_of.half),
        vec(dtype_of.work, dtype_of.work, ""),
    )
    width, store, cells = inputs.width, here.store, clipped(dtype_of, dtype_of.lowest)
    join, isnan_bits = getattr(here, operation), inputs.isnan_bits
    by_one, by_two, by_four = slide(1), slide(2), slide(4)

    @compiled
    def nonfinite(a):
        alwaysinline()
        return isnan_bits(a, a) if watch else 0

    @compiled
    def along(x, at, n, p, s, to, size):
        """s[to + c] = the fold of cells p + c … p + c + 8 of a row, for c < size and on to a whole vector.

        Gives non-zero after a NaN, where it watches.
        """
        noinline()
        a, b, c = cells(x, at, p, n), cells(x, at, p + width, n), cells(x, at, p + 2 * width, n)
        seen = nonfinite(a) | nonfinite(b) | nonfinite(c)
        two = join(b, by_one(b, c))
        before = join(a, by_one(a, b))
        four = join(before, by_two(before, two))
        for q in range(0, size, width):
            d = cells(x, at, p + q + 3 * width, n)
            seen |= nonfinite(d)
            more = join(c, by_one(c, d))
            more_four = join(two, by_two(two, more))
            store(s, to + q, join(four, by_four(four, more_four)))
            c, two, four = d, more, more_four
        return seen

    return along


@cache
def pieces(work: Any, operation: str) -> Any:
    """Windows along a row of scratch memory, of cells that are folded already for so many neighbours."""
    here = vec(work, work, "")
    width, load, store, store_n = here.width, here.load, here.store, here.store_n
    join = getattr(here, operation)

    @compiled
    def along(s, at, to, m, done, kernel):
        """s[to + j] = the fold of the `kernel` cells from s[at + j] on, j < m, where each is that of `done`."""
        noinline()
        count, rest = kernel // done, kernel - done
        for j in range(0, m, width):
            p = at + j
            best = load(s, p)
            for _ in range(1, count):
                p += done
                best = join(best, load(s, p))
            best = join(best, load(s, at + j + rest))
            if m - j >= width:
                store(s, to + j, best)
            else:
                store_n(s, to + j, best, m - j)

    return along


@cache
def van_herk(source: DType, target: DType, operation: str) -> Any:
    """Windows across rows of scratch memory, to rows of scratch memory or of the output."""
    inputs = vec(source.work, source.work, "")
    outputs = vec(target.kept, target.work, target.half)
    width, load, store = inputs.width, inputs.load, inputs.store
    give, give_part, broadcast = outputs.store, outputs.store_n, inputs.broadcast
    join, fill, store_n = getattr(inputs, operation), source.lowest, inputs.store_n

    def strips(two):
        @compiled
        def strip(s, at, span, low, high, kernel, stride, y, to, size, lanes_left):
            """One vector, or two side by side, of every row."""
            noinline()
            nothing, stop = broadcast(fill), stride * (size - 1) + 1
            for block in range(0, stop, kernel):
                # From the block's last row up, in place: the fold of each row and those below it.
                end, begin = min(block + kernel, high), max(block, low)
                best = other = nothing
                p = at + end * span
                for _ in range(end - begin):
                    p -= span
                    best = join(load(s, p), best)
                    if two:
                        other = join(load(s, p + width), other)
                        store(s, p, best)
                        store(s, p + width, other)
                    elif lanes_left >= width:
                        store(s, p, best)
                    else:
                        store_n(s, p, best, lanes_left)
                # Then down the next block: what it adds to the windows that begin in this one.
                best = other = nothing
                i = (block + stride - 1) // stride
                wanted, q = stride * i, to + i * span
                for t in range(block, min(block + kernel, stop)):
                    e = t + kernel - 1
                    if (t > block) & (e >= low) & (e < high):
                        best = join(best, load(s, at + e * span))
                        if two:
                            other = join(other, load(s, at + e * span + width))
                    if t != wanted:
                        continue
                    a, b = best, other
                    if max(t, low) < end:
                        p = at + max(t, low) * span
                        a = join(load(s, p), best)
                        if two:
                            b = join(load(s, p + width), other)
                    if two:
                        give(y, q, a)
                        give(y, q + width, b)
                    elif lanes_left >= width:
                        give(y, q, a)
                    else:
                        give_part(y, q, a, lanes_left)
                    wanted += stride
                    q += span

        return strip

    one_vector, two_vectors = strips(False), strips(True)

    @compiled
    def across(s, at, span, low, high, kernel, stride, y, to, size):
        """y[to + i·span + c] = the fold of s[at + t·span + c], stride·i ≤ t < stride·i + kernel, i < size.

        Rows low … high alone are there. What was in s is lost.
        """
        noinline()
        c = 0
        while span - c >= 2 * width:
            two_vectors(s, at + c, span, low, high, kernel, stride, y, to + c, size, span - c)
            c += 2 * width
        while c < span:
            one_vector(s, at + c, span, low, high, kernel, stride, y, to + c, size, span - c)
            c += width

    return across
