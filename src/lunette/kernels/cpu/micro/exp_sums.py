"""Sums of the powers of windows side by side: one power for each cell, sums down the rows, then along them.

Rows of powers lie in scratch memory as the cells do in the row, so all but the last step is plain vectors.
Padding is a power of zero. Sums go from the first cell to the last on either axis.
"""

# Numba types the kernels, not mypy.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from lunette.kernels.cpu.jit.intrinsics import compiled, noinline
from lunette.kernels.cpu.micro.exp_scaled import exp_scaled
from lunette.kernels.cpu.simd.half import dtype_of
from lunette.kernels.cpu.simd.prefetch import prefetch_for
from lunette.kernels.cpu.simd.vec import vec

__all__ = ["ExpSums", "exp_sums"]


class ExpSums(NamedTuple):
    """`exp_row` makes a row of powers, `down` a row of sums of such rows, `exp_rows_down` both at once, and `along`
    the sums of windows along a row of sums.
    """

    exp_row: Any
    exp_rows_down: Any
    down: Any
    along: Any


@cache
def exp_sums(dtype: str) -> ExpSums:
    """The functions for a dtype; `how` is what `exp_scaled` needs beside the cell."""
    outer = dtype_of(dtype, True)
    work = outer.work
    from_x, here = vec(outer.memory, work, outer.half), vec(work, work, "")
    width, load, store, store_n = here.width, here.load, here.store, here.store_n
    load_x, load_x_part, load_x_step = from_x.load, from_x.load_n, from_x.gather_strided
    add, broadcast, concat_even, concat_odd, gather_strided = (
        here.add,
        here.broadcast,
        here.concat_even,
        here.concat_odd,
        here.gather_strided,
    )
    zero = work(0)

    @compiled
    def exp_row(x, at, far, lo, hi, s, to, how):
        """s[to + c] = the power of the cell at `at` + c·far, for lo ≤ c < hi; then zeros to the vector's end."""
        noinline()
        rate, rest, limit, other = how
        rates, rests, limits, others = (
            broadcast(rate),
            broadcast(rest),
            broadcast(limit),
            broadcast(other),
        )
        for c in range(lo, hi, width):
            left = min(width, hi - c)
            if far == 1:
                prefetch_for(x, at + c)
                value = load_x_part(x, at + c, 0, left, zero)
            else:
                value = load_x_step(x, at + c * far, far, 0, left, zero)
            store(s, to + c, broadcast(zero))
            store_n(s, to + c, exp_scaled(value, rates, rests, limits, others), left)

    @compiled
    def exp_rows_down(x, at, pitch, row, old, new, s, ring, slot, lo, hi, blank, v, how):
        """`exp_row` of `new` rows of the input, and `down` of `old` rows of powers and these; whole vectors alone.

        Row r of powers is in place r & ring; the first is row number `row`, the new ones begin at `at`.
        A row of zeros is at `blank`. Usual windows go without a loop over rows.
        """
        noinline()
        rate, rest, limit, other = how
        rates, rests, limits, others = (
            broadcast(rate),
            broadcast(rest),
            broadcast(limit),
            broadcast(other),
        )
        r = row + old
        before, first, second = ((r - 1) & ring) * slot, (r & ring) * slot, ((r + 1) & ring) * slot
        if (new == 2) & (old <= 1):
            before = before if old else blank
            for c in range(lo, hi, width):
                prefetch_for(x, at + c)
                prefetch_for(x, at + pitch + c)
                a = exp_scaled(load_x(x, at + c), rates, rests, limits, others)
                b = exp_scaled(load_x(x, at + pitch + c), rates, rests, limits, others)
                store(s, first + c, a)
                store(s, second + c, b)
                store(s, v + c, add(add(load(s, before + c), a), b))
        elif (new == 1) & (old == 2):
            second = (row & ring) * slot
            for c in range(lo, hi, width):
                prefetch_for(x, at + c)
                a = exp_scaled(load_x(x, at + c), rates, rests, limits, others)
                store(s, first + c, a)
                store(s, v + c, add(add(load(s, second + c), load(s, before + c)), a))
        else:
            for c in range(lo, hi, width):
                total, p = broadcast(zero), at + c
                for r in range(row, row + old):
                    total = add(total, load(s, (r & ring) * slot + c))
                for r in range(row + old, row + old + new):
                    prefetch_for(x, p)
                    a = exp_scaled(load_x(x, p), rates, rests, limits, others)
                    store(s, (r & ring) * slot + c, a)
                    total = add(total, a)
                    p += pitch
                store(s, v + c, total)

    @compiled
    def down(s, rows, count, lo, hi, v):
        """s[v + c] = the sum of s[rows[r] + c], r < count, for lo ≤ c < hi, and to the vector's end."""
        noinline()
        for c in range(lo, hi, width):
            total = broadcast(zero)
            for r in range(count):
                total = add(total, load(s, rows[r] + c))
            store(s, v + c, total)

    @compiled
    def along(s, p, to, slot, rows, columns, stride, dilation, kernel):
        """s[to + c] = the sum of s[p + stride·c + dilation·t], t < kernel, for c < columns, and to the vector's end.

        So for each of `rows` rows, `slot` apart.
        """
        noinline()
        for _ in range(rows):
            if stride == 1:
                for c in range(0, columns, width):
                    total = load(s, p + c)
                    for t in range(1, kernel):
                        total = add(total, load(s, p + c + t * dilation))
                    store(s, to + c, total)
            elif (stride == 2) & (dilation == 1):
                for c in range(0, columns, width):
                    k = p + 2 * c
                    a, b = load(s, k), load(s, k + width)
                    total = concat_even(a, b)
                    if kernel > 1:
                        total = add(total, concat_odd(a, b))
                    for t in range(2, kernel, 2):
                        a, b = load(s, k + t), load(s, k + t + width)
                        total = add(total, concat_even(a, b))
                        if t + 1 < kernel:
                            total = add(total, concat_odd(a, b))
                    store(s, to + c, total)
            else:
                for c in range(0, columns, width):
                    k = p + stride * c
                    total = gather_strided(s, k, stride, 0, width, zero)
                    for t in range(1, kernel):
                        total = add(
                            total, gather_strided(s, k + t * dilation, stride, 0, width, zero)
                        )
                    store(s, to + c, total)
            p += slot
            to += slot

    return ExpSums(exp_row, exp_rows_down, down, along)
