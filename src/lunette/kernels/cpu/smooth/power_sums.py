"""Sums of the powers of windows side by side: one power for each cell, sums down the rows, then along them.

Rows of powers lie in scratch memory as the cells do in the row, so all but the last step is plain vectors.
Padding is a power of zero. Sums go from the first cell to the last on either axis.
"""

# Numba types the kernels, not mypy.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from lunette.kernels.cpu.compiling.machine import apart, compiled
from lunette.kernels.cpu.smooth.powers import power
from lunette.kernels.cpu.vectors.asking import ask_for
from lunette.kernels.cpu.vectors.halves import codec
from lunette.kernels.cpu.vectors.lanes import lanes

__all__ = ["PowerSums", "power_sums"]


class PowerSums(NamedTuple):
    """`raised` makes a row of powers, `down` a row of sums of such rows, `raised_down` both at once, and `along`
    the sums of windows along a row of sums.
    """

    raised: Any
    raised_down: Any
    down: Any
    along: Any


@cache
def power_sums(dtype: str) -> PowerSums:
    """The functions for a dtype; `how` is what `power` needs beside the cell."""
    outer = codec(dtype, True)
    work = outer.work
    from_x, here = lanes(outer.memory, work, outer.half), lanes(work, work, "")
    width, load, store, store_part = here.width, here.load, here.store, here.store_part
    load_x, load_x_part, load_x_step = from_x.load, from_x.load_part, from_x.load_step
    add, spread, evens, odds, load_step = (
        here.add,
        here.spread,
        here.evens,
        here.odds,
        here.load_step,
    )
    zero = work(0)

    @compiled
    def raised(x, at, far, lo, hi, s, to, how):
        """s[to + c] = the power of the cell at `at` + c·far, for lo ≤ c < hi; then zeros to the vector's end."""
        apart()
        rate, rest, limit, other = how
        rates, rests, limits, others = spread(rate), spread(rest), spread(limit), spread(other)
        for c in range(lo, hi, width):
            left = min(width, hi - c)
            if far == 1:
                ask_for(x, at + c)
                value = load_x_part(x, at + c, 0, left, zero)
            else:
                value = load_x_step(x, at + c * far, far, 0, left, zero)
            store(s, to + c, spread(zero))
            store_part(s, to + c, power(value, rates, rests, limits, others), left)

    @compiled
    def raised_down(x, at, pitch, row, old, new, s, ring, slot, lo, hi, blank, v, how):
        """`raised` of `new` rows of the input, and `down` of `old` rows of powers and these; whole vectors alone.

        Row r of powers is in place r & ring; the first is row number `row`, the new ones begin at `at`.
        A row of zeros is at `blank`. Usual windows go without a loop over rows.
        """
        apart()
        rate, rest, limit, other = how
        rates, rests, limits, others = spread(rate), spread(rest), spread(limit), spread(other)
        r = row + old
        before, first, second = ((r - 1) & ring) * slot, (r & ring) * slot, ((r + 1) & ring) * slot
        if (new == 2) & (old <= 1):
            before = before if old else blank
            for c in range(lo, hi, width):
                ask_for(x, at + c)
                ask_for(x, at + pitch + c)
                a = power(load_x(x, at + c), rates, rests, limits, others)
                b = power(load_x(x, at + pitch + c), rates, rests, limits, others)
                store(s, first + c, a)
                store(s, second + c, b)
                store(s, v + c, add(add(load(s, before + c), a), b))
        elif (new == 1) & (old == 2):
            second = (row & ring) * slot
            for c in range(lo, hi, width):
                ask_for(x, at + c)
                a = power(load_x(x, at + c), rates, rests, limits, others)
                store(s, first + c, a)
                store(s, v + c, add(add(load(s, second + c), load(s, before + c)), a))
        else:
            for c in range(lo, hi, width):
                total, p = spread(zero), at + c
                for r in range(row, row + old):
                    total = add(total, load(s, (r & ring) * slot + c))
                for r in range(row + old, row + old + new):
                    ask_for(x, p)
                    a = power(load_x(x, p), rates, rests, limits, others)
                    store(s, (r & ring) * slot + c, a)
                    total = add(total, a)
                    p += pitch
                store(s, v + c, total)

    @compiled
    def down(s, rows, count, lo, hi, v):
        """s[v + c] = the sum of s[rows[r] + c], r < count, for lo ≤ c < hi, and to the vector's end."""
        apart()
        for c in range(lo, hi, width):
            total = spread(zero)
            for r in range(count):
                total = add(total, load(s, rows[r] + c))
            store(s, v + c, total)

    @compiled
    def along(s, p, to, slot, rows, columns, stride, dilation, kernel):
        """s[to + c] = the sum of s[p + stride·c + dilation·t], t < kernel, for c < columns, and to the vector's end.

        So for each of `rows` rows, `slot` apart.
        """
        apart()
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
                    total = evens(a, b)
                    if kernel > 1:
                        total = add(total, odds(a, b))
                    for t in range(2, kernel, 2):
                        a, b = load(s, k + t), load(s, k + t + width)
                        total = add(total, evens(a, b))
                        if t + 1 < kernel:
                            total = add(total, odds(a, b))
                    store(s, to + c, total)
            else:
                for c in range(0, columns, width):
                    k = p + stride * c
                    total = load_step(s, k, stride, 0, width, zero)
                    for t in range(1, kernel):
                        total = add(total, load_step(s, k + t * dilation, stride, 0, width, zero))
                    store(s, to + c, total)
            p += slot
            to += slot

    return PowerSums(raised, raised_down, down, along)
