"""Rows folded into one, element by element, from one array to another: x to scratch memory, or from there to y."""

# Numba types the kernels, not mypy.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

from functools import cache
from typing import Any

from lunette.kernels.cpu.jit.intrinsics import alwaysinline, compiled
from lunette.kernels.cpu.simd.half import DType
from lunette.kernels.cpu.simd.prefetch import DISTANCE, prefetch_for
from lunette.kernels.cpu.simd.vec import vec

__all__ = ["across_between"]


PIECE = 1 << 14
"""Bytes of a long row that are added to in turn: they stay in the nearest cache."""

NEAR_VECTORS = 64
"""Vectors of a long row, at most, that go eight at a time in registers where the rows may be found in a cache."""


@cache
def across_between(source: DType, target: DType, operation: str, watch: bool = False) -> Any:
    """`across` from rows of one array to rows of another: x to scratch, or scratch to y.

    Where it watches, it gives non-zero after a NaN.
    """
    inputs = vec(source.memory, source.work, source.half)
    outputs = vec(target.kept, target.work, target.half)
    width, load, load_n = inputs.width, inputs.load, inputs.load_n
    load_y, load_y_part, nought = outputs.load, outputs.load_n, target.work(0)
    store, store_n, join = outputs.store, outputs.store_n, getattr(inputs, operation)
    zero, isnan_bits = source.work(0), inputs.isnan_bits
    unrounded, longest = target.kept == target.work, PIECE // (source.work.bitwidth // 8)
    ahead = DISTANCE // (source.memory.bitwidth // 8)

    @compiled
    def nonfinite(a, b):
        return isnan_bits(a, b) if watch else 0

    @compiled
    def many(x, p, step, count, distant):
        best = load(x, p)
        seen = nonfinite(best, best)
        if distant:
            prefetch_for(x, p)
        for t in range(1, count):
            value = load(x, p + t * step)
            if distant:
                prefetch_for(x, p + t * step)
            seen |= nonfinite(value, value)
            best = join(best, value)
        return best, seen

    @compiled
    def prefetch_four(x, p):
        alwaysinline()
        prefetch_for(x, p)
        prefetch_for(x, p + width)
        prefetch_for(x, p + 2 * width)
        prefetch_for(x, p + 3 * width)

    @compiled
    def row_of_few(x, at, step, count, y, to, size, distant):
        """`many` of a row of two to four vectors, row by row in the order of memory.

        The last ones end with the row, so they may repeat some of those before.
        """
        alwaysinline()
        last = size - width
        one, two = min(width, last), min(2 * width, last)
        a, b, d, e = load(x, at), load(x, at + one), load(x, at + two), load(x, at + last)
        seen = nonfinite(a, b) | nonfinite(d, e)
        if distant:
            prefetch_four(x, at)
        for t in range(1, count):
            p = at + t * step
            if distant:
                prefetch_four(x, p)
            i, j, k, m = load(x, p), load(x, p + one), load(x, p + two), load(x, p + last)
            seen |= nonfinite(i, j) | nonfinite(k, m)
            a, b, d, e = join(a, i), join(b, j), join(d, k), join(e, m)
        store(y, to, a)
        store(y, to + one, b)
        store(y, to + two, d)
        store(y, to + last, e)
        return seen

    @compiled
    def row_of_many(x, at, step, count, y, to, size, distant):
        """`many` of a row of five to eight vectors, row by row in the order of memory.

        The last ones end with the row, so they may repeat some of those before.
        """
        alwaysinline()
        five, six = min(5 * width, size - width), min(6 * width, size - width)
        four, seven = min(4 * width, size - width), min(7 * width, size - width)
        a, b = load(x, at), load(x, at + width)
        d, e = load(x, at + 2 * width), load(x, at + 3 * width)
        seen = nonfinite(a, b) | nonfinite(d, e)
        i, j, k, m = load(x, at + four), load(x, at + five), load(x, at + six), load(x, at + seven)
        seen |= nonfinite(i, j) | nonfinite(k, m)
        if distant:
            prefetch_four(x, at)
            prefetch_four(x, at + 4 * width)
        for t in range(1, count):
            p = at + t * step
            if distant:
                prefetch_four(x, p)
                prefetch_four(x, p + 4 * width)
            q, r, u, v = (
                load(x, p),
                load(x, p + width),
                load(x, p + 2 * width),
                load(x, p + 3 * width),
            )
            seen |= nonfinite(q, r) | nonfinite(u, v)
            a, b, d, e = join(a, q), join(b, r), join(d, u), join(e, v)
            q, r, u, v = load(x, p + four), load(x, p + five), load(x, p + six), load(x, p + seven)
            seen |= nonfinite(q, r) | nonfinite(u, v)
            i, j, k, m = join(i, q), join(j, r), join(k, u), join(m, v)
        store(y, to, a)
        store(y, to + width, b)
        store(y, to + 2 * width, d)
        store(y, to + 3 * width, e)
        store(y, to + four, i)
        store(y, to + five, j)
        store(y, to + six, k)
        store(y, to + seven, m)
        return seen

    @compiled
    def piece_of_many(x, at, step, count, y, to, size, distant):
        """`many` of a piece of a long row, which stays near while it is added to, row by row in the order of memory."""
        alwaysinline()
        seen = 0
        for t in range(count):
            p, c = at + t * step, 0
            while c + width <= size:
                value = load(x, p + c)
                if distant:
                    # What is ahead of its end is the beginning of the next.
                    prefetch_for(x, p + c if c + ahead < size else p + c + step - size)
                seen |= nonfinite(value, value)
                if t > 0:
                    value = join(load_y(y, to + c), value)
                store(y, to + c, value)
                c += width
            if c < size:
                value = load_n(x, p + c, 0, size - c, zero)
                seen |= nonfinite(value, value)
                if t > 0:
                    value = join(load_y_part(y, to + c, 0, size - c, nought), value)
                store_n(y, to + c, value, size - c)
        return seen

    @compiled
    def few(x, p, step, count):
        a = load(x, p)
        if count == 1:
            return a, nonfinite(a, a)
        b = load(x, p + step)
        if count == 2:
            return join(a, b), nonfinite(a, b)
        c = load(x, p + 2 * step)
        return join(join(a, b), c), nonfinite(a, b) | nonfinite(c, c)

    @compiled
    def across(x, at, step, count, y, to, size, distant):
        """y[to + c] = the fold of x[at + t·step + c], t < count, for each c < size.

        A `distant` x, which is in no cache, is asked for.
        """
        seen = 0
        if size < width:
            best = load_n(x, at, 0, size, zero)
            seen |= nonfinite(best, best)
            for t in range(1, count):
                value = load_n(x, at + t * step, 0, size, zero)
                seen |= nonfinite(value, value)
                best = join(best, value)
            store_n(y, to, best, size)
            return seen
        # The last vector ends with the row, so it may repeat some of the one before.
        whole, last = size - size % width, size - width
        if count <= 3:
            for c in range(0, whole, width):
                value, more = few(x, at + c, step, count)
                store(y, to + c, value)
                seen |= more
            if whole < size:
                value, more = few(x, at + last, step, count)
                store(y, to + last, value)
                seen |= more
        elif size == width:
            best, more = many(x, at, step, count, distant)
            store(y, to, best)
            seen |= more
        elif size <= 4 * width:
            seen |= row_of_few(x, at, step, count, y, to, size, distant)
        elif size <= 8 * width:
            seen |= row_of_many(x, at, step, count, y, to, size, distant)
        elif unrounded & (distant | (size > NEAR_VECTORS * width)):
            for c in range(0, size, longest):
                piece = min(longest, size - c)
                seen |= piece_of_many(x, at + c, step, count, y, to + c, piece, distant)
        else:
            for c in range(0, size, 8 * width):
                # The last piece ends with the row, too.
                p = min(c, size - 8 * width)
                seen |= row_of_many(x, at + p, step, count, y, to + p, 8 * width, distant)
        return seen

    return across
