"""Rows folded into one, and how a vector of results is stored: what kernels of small windows share.

A max watches what it reads for NaNs, and its results for zeros: of these the sign may be another's.
"""

# Numba types the kernels, not mypy.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from lunette.kernels.cpu.jit.intrinsics import alwaysinline, compiled, noinline
from lunette.kernels.cpu.micro.guards import guards
from lunette.kernels.cpu.simd.half import DType, dtype_of, ordered
from lunette.kernels.cpu.simd.streaming import stream
from lunette.kernels.cpu.simd.vec import vec

__all__ = ["Folding", "folding"]


class Folding(NamedTuple):
    """How cells are held, what is where there are none, and the functions, each with its own docstring."""

    dtype_of: DType
    fill: Any
    safe: Any
    fold: Any
    negative: Any
    end: Any


@cache
def folding(dtype: str, operation: str) -> Folding:
    """The functions of an operation, `max_num` or `add`, for a dtype."""
    summing = operation == "add"
    outer = dtype_of(dtype, summing)
    if outer.half and not summing:
        outer = ordered(dtype)
    memory, work, kept = outer.memory, outer.work, outer.kept
    from_x, here = vec(memory, work, outer.half), vec(work, work, "")
    to_y = vec(kept, work, outer.half)
    width, load, load_n = here.width, from_x.load, from_x.load_n
    load_s, store_s, join = here.load, here.store, getattr(here, operation)
    broadcast, add, multiply, divide = here.broadcast, here.add, here.multiply, here.divide
    all_true, _, failed, and_not_nan, and_not_zero, and_not_minus_zero, _ = guards(work, outer.half)
    store, store_n = to_y.store, to_y.store_n
    zero, whole_lines = work(0), kept == work
    fill = zero if summing else outer.lowest

    @compiled
    def safe(trusted, a, b):
        """The lanes of `trusted` where neither is a NaN."""
        alwaysinline()
        return trusted if summing else and_not_nan(trusted, a, b)

    @compiled
    def many_rows(x, at, rows, count, n, s, to, trusted):
        """`fold` of any rows, as far as whole vectors go: two of each row at a time, then one."""
        alwaysinline()
        c = 0
        while c + 2 * width <= n:
            p = at + rows[0] + c
            a, b = load(x, p), load(x, p + width)
            trusted = safe(trusted, a, b)
            for r in range(1, count):
                p = at + rows[r] + c
                d, e = load(x, p), load(x, p + width)
                trusted = safe(trusted, d, e)
                a, b = join(a, d), join(b, e)
            store_s(s, to + c, a)
            store_s(s, to + c + width, b)
            c += 2 * width
        if c + width <= n:
            a = load(x, at + rows[0] + c)
            trusted = safe(trusted, a, a)
            for r in range(1, count):
                d = load(x, at + rows[r] + c)
                trusted = safe(trusted, d, d)
                a = join(a, d)
            store_s(s, to + c, a)
        return trusted

    @compiled
    def rest_of_rows(x, at, rows, count, n, s, to, trusted):
        """`fold` of the cells past the last whole vector, and `fill` after them."""
        alwaysinline()
        c = n - n % width
        a = load_n(x, at + rows[0] + c, 0, n - c, fill)
        trusted = safe(trusted, a, a)
        for r in range(1, count):
            b = load_n(x, at + rows[r] + c, 0, n - c, fill)
            trusted = safe(trusted, b, b)
            a = join(a, b)
        store_s(s, to + c, a)
        return trusted

    @compiled
    def fold(x, at, rows, count, n, s, to):
        """s[to + c] = the fold of x[at + rows[r] + c], r < count, for c < n; then `fill` to the vector's end.

        Gives whether a lane must not be trusted.
        """
        alwaysinline()
        trusted = many_rows(x, at, rows, count, n, s, to, all_true())
        if n % width > 0:
            trusted = rest_of_rows(x, at, rows, count, n, s, to, trusted)
        return failed(trusted)

    @compiled
    def negative(x, at, rows, count, n):
        """Whether there is a −0 in the rows of a window."""
        noinline()
        trusted, rest = all_true(), n % width
        for r in range(count):
            for c in range(0, n - rest, width):
                trusted = and_not_minus_zero(trusted, load(x, at + rows[r] + c))
            value = load_n(x, at + rows[r] + n - rest, 0, rest, fill)
            trusted = and_not_minus_zero(trusted, value)
        return failed(trusted)

    @compiled
    def end(value, divisors, j, lead, y, to, size, streaming, trusted):
        """Store a vector of results, or `size` of its lanes; gives the lanes of `trusted` that are not zero.

        With `streaming` a whole vector is a line of memory, and goes past the caches.
        """
        alwaysinline()
        if summing:
            value = divide(value, multiply(lead, load_s(divisors, j)))
            value = add(value, broadcast(zero))  # a sum starts from +0: it is never −0
        if size < width:
            store_n(y, to, value, size)
        elif whole_lines & streaming:
            stream(y, to, value)
        else:
            store(y, to, value)
        return trusted if summing else and_not_zero(trusted, value)

    return Folding(outer, fill, safe, fold, negative, end)
