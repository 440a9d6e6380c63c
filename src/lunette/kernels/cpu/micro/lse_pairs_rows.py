"""Lines of pairs: windows along one axis, from runs of 1, 2, 4, … neighbours. See `pairs`."""

# Numba types the kernels, not mypy.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

import math
from functools import cache
from typing import Any, NamedTuple

from numba.extending import intrinsic

from lunette.kernels.cpu.jit.intrinsics import alwaysinline, compiled, noinline
from lunette.kernels.cpu.micro.lse_pairs_scratch import LONGEST, POSITIONS
from lunette.kernels.cpu.simd.vec import vec
from lunette.kernels.cpu.simd.vec_math import Vectors, exp_down

__all__ = ["LsePairRows", "lse_pair_rows", "unless_nan", "where_not_below"]


class LsePairRows(NamedTuple):
    """Numbers of a pair in vectors; pairs joined, read and written; windows of a line, and of all lines of an axis."""

    each: int
    merge: Any
    fetched: Any
    kept_at: Any
    fold_line: Any
    fold_axis: Any


@intrinsic  # type: ignore[untyped-decorator]
def distance(context: Any, a: Any, b: Any) -> Any:
    """|a − b|; 0 of two infinities that are equal."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        vectors = Vectors(builder, arguments[0].type)
        apart = vectors.magnitude(builder.fsub(*arguments))
        same = builder.fcmp_ordered("==", *arguments)
        return builder.select(same, vectors.number(0.0), apart)

    return a(a, b), generate


@intrinsic  # type: ignore[untyped-decorator]
def where_not_below(context: Any, a: Any, b: Any, one: Any, other: Any) -> Any:
    """`one` in lanes where a ≥ b, `other` elsewhere."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        a, b, one, other = arguments
        return builder.select(builder.fcmp_ordered(">=", a, b), one, other)

    return one(a, b, one, other), generate


@intrinsic  # type: ignore[untyped-decorator]
def unless_nan(context: Any, number: Any, value: Any) -> Any:
    """The value, NaN in lanes where a number is."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        number, value = arguments
        nan = Vectors(builder, value.type).number(math.nan)
        return builder.select(builder.fcmp_unordered("uno", number, number), nan, value)

    return value(number, value), generate


@cache
def lse_pair_rows(work: Any, follows: bool) -> LsePairRows:
    """For a type of numbers; with a third number to each pair if it `follows` tangents."""
    here = vec(work, work, "")
    width, load, store, broadcast = here.width, here.load, here.store, here.broadcast
    add, multiply, zero = here.add, here.multiply, work(0)
    each = (3 if follows else 2) * width

    @compiled
    def merge(up, rate, m, s, t, other_m, other_s, other_t):
        """Two pairs as one, about the greater pivot if `up`; `rate` is −|beta|."""
        alwaysinline()
        less = exp_down(multiply(rate, distance(m, other_m)))
        a, b = (m, other_m) if up else (other_m, m)
        pivot = where_not_below(a, b, m, other_m)
        large, small = where_not_below(a, b, s, other_s), where_not_below(a, b, other_s, s)
        total = add(large, multiply(small, less))
        if follows:
            large, small = where_not_below(a, b, t, other_t), where_not_below(a, b, other_t, t)
            t = add(large, multiply(small, less))
        return pivot, total, t

    @compiled
    def fetched(s, at):
        alwaysinline()
        return (
            load(s, at),
            load(s, at + width),
            load(s, at + 2 * width) if follows else broadcast(zero),
        )

    @compiled
    def kept_at(s, at, m, total, t):
        alwaysinline()
        store(s, at, m)
        store(s, at + width, total)
        if follows:
            store(s, at + 2 * width, t)

    @compiled
    def doubled(s, line, levels_at, span, level, up, rate):
        """Runs of 2^(level+1) neighbours of a span of cells, from those of half the length."""
        noinline()
        half = 1 << level
        source = line if level == 0 else levels_at + (level - 1) * POSITIONS * each
        target = levels_at + level * POSITIONS * each
        for p in range(span - 2 * half + 1):
            m, total, t = fetched(s, source + p * each)
            om, ototal, ot = fetched(s, source + (p + half) * each)
            m, total, t = merge(up, rate, m, total, t, om, ototal, ot)
            kept_at(s, target + p * each, m, total, t)

    @compiled
    def from_levels(s, line, levels_at, start, members, up, rate):
        """A window, from the runs of its digits, the longest first."""
        alwaysinline()
        level = 0
        while (2 << level) <= members:
            level += 1
        p, left = start, members
        m, total, t = broadcast(zero), broadcast(zero), broadcast(zero)
        while left > 0:
            while (1 << level) > left:
                level -= 1
            at = line if level == 0 else levels_at + (level - 1) * POSITIONS * each
            om, ototal, ot = fetched(s, at + p * each)
            if p == start:
                m, total, t = om, ototal, ot
            else:
                m, total, t = merge(up, rate, m, total, t, om, ototal, ot)
            p += 1 << level
            left -= 1 << level
        return m, total, t

    @compiled
    def by_itself(s, line, stack, start, members, up, rate):
        """The same without the runs of other windows: halves wait on a stack until they meet."""
        noinline()
        level = 0
        while (2 << level) <= members:
            level += 1
        p, left = start, members
        m, total, t = broadcast(zero), broadcast(zero), broadcast(zero)
        while left > 0:
            while (1 << level) > left:
                level -= 1
            a, b, c = broadcast(zero), broadcast(zero), broadcast(zero)
            for i in range(1 << level):
                a, b, c = fetched(s, line + (p + i) * each)
                depth, bits = 0, i
                while bits & 1:
                    oa, ob, oc = fetched(s, stack + depth * each)
                    a, b, c = merge(up, rate, oa, ob, oc, a, b, c)
                    depth, bits = depth + 1, bits >> 1
                kept_at(s, stack + depth * each, a, b, c)
            if p == start:
                m, total, t = a, b, c
            else:
                m, total, t = merge(up, rate, m, total, t, a, b, c)
            p += 1 << level
            left -= 1 << level
        return m, total, t

    @compiled
    def fold_line(s, line, levels_at, table, begin, end, low, target, stride, up, rate):
        """Windows begin … end of a table over a line of cells, which begins with position `low`, to every `stride`th place.

        A window of nothing is a sum of 0.
        """
        alwaysinline()
        j = begin
        while j < end:
            # As many windows as fit into the levels.
            first, until, visited, longest = table[j].start, j, 0, 0
            stop = first
            while until < end:
                w = table[until]
                after = w.start + w.in_bounds
                if (until > j) & (max(stop, after) - first > POSITIONS):
                    break
                if w.in_bounds > 0:
                    stop = max(stop, after)
                visited, longest = visited + w.in_bounds, max(longest, w.in_bounds)
                until += 1
            span, level = stop - first, 0
            shared = (longest <= LONGEST) & (span <= POSITIONS) & (visited > 2 * span)
            at = line + (first - low) * each
            if shared:
                while (2 << level) <= longest:
                    doubled(s, at, levels_at, span, level, up, rate)
                    level += 1
            while j < until:
                w = table[j]
                start, members = w.start - first, w.in_bounds
                if shared & (members > 0):
                    m, total, t = from_levels(s, at, levels_at, start, members, up, rate)
                elif members > 0:
                    m, total, t = by_itself(s, at, levels_at, start, members, up, rate)
                else:
                    m, total, t = broadcast(zero), broadcast(zero), broadcast(zero)
                kept_at(s, target, m, total, t)
                target += stride
                j += 1

    @compiled
    def fold_axis(s, source, target, room, outer, n, inner, table, begin, end, low, up, rate):
        """One axis of an array of pairs, n long with `inner` pairs to a position, `outer` times."""
        alwaysinline()
        line, levels_at = room
        for o in range(outer):
            for c in range(inner):
                at = source + (o * n * inner + c) * each
                for p in range(n):
                    m, total, t = fetched(s, at + p * inner * each)
                    kept_at(s, line + p * each, m, total, t)
                to = target + (o * (end - begin) * inner + c) * each
                stride = inner * each
                fold_line(s, line, levels_at, table, begin, end, low, to, stride, up, rate)

    return LsePairRows(each, merge, fetched, kept_at, fold_line, fold_axis)
