"""One axis at a time, with a mark beside every value: who wins, not only what.

Of two runs of cells the later one wins where it is larger, or has the first NaN. So runs may overlap, and a window of
many cells is folded by doubling: two cells, four, eight, then two runs that overlap.
"""

# Numba types the kernels, not mypy.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from numba import types

from lunette.kernels.cpu.jit.intrinsics import alwaysinline, compiled, noinline
from lunette.kernels.cpu.micro.rows import takes
from lunette.kernels.cpu.simd.strided import strided
from lunette.kernels.cpu.simd.vec import vec

__all__ = ["ArgmaxPasses", "argmax_passes", "mark_of"]


class ArgmaxPasses(NamedTuple):
    """Passes over values `s` and marks `q` in scratch memory."""

    along: Any
    along_table: Any
    across: Any
    double: Any


def mark_of(work: Any) -> Any:
    """The type of marks beside numbers of a type: an integer as wide."""
    return {8: types.int8, 16: types.int16, 32: types.int32, 64: types.int64}[work.bitwidth]


@cache
def argmax_passes(work: Any) -> ArgmaxPasses:
    """The passes for numbers of 32 or 64 bits."""
    mark = mark_of(work)
    values, marks = vec(work, work, ""), vec(mark, mark, "")
    width, load, store, store_n = values.width, values.load, values.store, values.store_n
    every, concat_even = strided(work, work, ""), values.concat_even
    load_mark, store_mark, store_mark_part = marks.load, marks.store, marks.store_n
    every_mark, mark_evens = strided(mark, mark, ""), marks.concat_even
    spread_mark, add_mark = marks.broadcast, marks.add
    maximum, select_maximum = values.maximum, values.select_maximum

    @compiled
    def keep(s, q, to, best, where, left):
        """Write values and marks, or as many lanes as are left of the row."""
        alwaysinline()
        if left >= width:
            store(s, to, best)
            store_mark(q, to, where)
        else:
            store_n(s, to, best, left)
            store_mark_part(q, to, where, left)

    @compiled
    def cells(s, q, at, stride):
        """Values and marks at `at`, `at` + stride, …"""
        alwaysinline()
        if stride == 1:
            return load(s, at), load_mark(q, at)
        if stride == 2:
            return (
                concat_even(load(s, at), load(s, at + width)),
                mark_evens(load_mark(q, at), load_mark(q, at + width)),
            )
        return (
            every(s, at, stride),
            every_mark(q, at, stride),
        )

    @compiled
    def along(s, q, at, to, m, stride, rest, raise_by):
        """At `to` + j the winner of the runs at `at` + stride·j and `rest` later, marks raised, for j < m."""
        noinline()
        more = spread_mark(mark(raise_by))
        for j in range(0, m, width):
            best, where = cells(s, q, at + stride * j, stride)
            value, other = cells(s, q, at + stride * j + rest, stride)
            where = add_mark(select_maximum(best, value, where, other), more)
            keep(s, q, to + j, maximum(best, value), where, m - j)

    @compiled
    def along_table(s, q, at, table, to, first, last, raise_by):
        """The same for windows first … last of a table, which do not lie alike; position 0 is at `at`."""
        noinline()
        for j in range(first, last):
            w = table[j]
            best, where = s[at + w.start], w.start
            for p in range(w.start + w.step, w.stop, w.step):
                if takes(best, s[at + p]):
                    best, where = s[at + p], p
            s[to + j - first] = best
            q[to + j - first] = mark(where + raise_by)

    @compiled
    def across(s, q, at, step, count, to, size):
        """At `to` + c the winner among `at` + c + t·step, t < count, for c < size."""
        noinline()
        for c in range(0, size, width):
            p = at + c
            best, where = load(s, p), load_mark(q, p)
            for _ in range(1, count):
                p += step
                value = load(s, p)
                where = select_maximum(best, value, where, load_mark(q, p))
                best = maximum(best, value)
            keep(s, q, to + c, best, where, size - c)

    @compiled
    def double(s, q, at, to, size, step):
        """At `to` + c the winner of the runs at `at` + c and `step` later, from the first c to the last."""
        noinline()
        for c in range(0, size, width):
            best, value = load(s, at + c), load(s, at + c + step)
            where = select_maximum(best, value, load_mark(q, at + c), load_mark(q, at + c + step))
            keep(s, q, to + c, maximum(best, value), where, size - c)

    return ArgmaxPasses(along, along_table, across, double)
