"""Smooth max of large windows, in pairs: a pivot and a sum about it. What a cell costs does not grow with its windows.

A pair (m, s) stands for s·e^(beta·m). Two are joined about the more extreme pivot, with one exponential. Runs of 1, 2, 4, … neighbours
are joined for every position at once, and a window is the runs that the digits of its length name, the longest first; one axis
after the other, the last axis first. Where windows share little, each run is made by itself, from the same halves. So the bits depend on the
window alone.

A tangent has a third number, the sum of tangents about the pivot. For a gradient, the windows that read a cell are joined in their turn: of
each its pivot, and its gradient over its sum, about the least extreme pivot, which no cell exceeds.

A vector has one cell of as many items, whatever their layout.
"""

# Numba types the kernels, not mypy.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

import math
from functools import cache
from typing import Any

from numba import types
from numba.extending import intrinsic

from lunette.kernels.cpu.compiling import machine
from lunette.kernels.cpu.compiling.machine import apart, compiled, pointer, real, within
from lunette.kernels.cpu.plans.layout import (
    AXES,
    AXIS_WIDTH,
    BETA,
    COUNT,
    COUNT_PADDING,
    COUNTS,
    EXTENT,
    ITEMS,
    MEMBERS,
    RANK,
    READ_BY,
    START,
    STEP_X,
    STEP_Y,
    STEP_Z,
    TABLE,
    WINDOW_WIDTH,
)
from lunette.kernels.cpu.plans.sizes import LINE
from lunette.kernels.cpu.rows.places import item_offset
from lunette.kernels.cpu.smooth.pair_rooms import LONGEST, POSITIONS, TILE
from lunette.kernels.cpu.vectors.exponentials import Vectors, exp_down, log_up
from lunette.kernels.cpu.vectors.halves import codec
from lunette.kernels.cpu.vectors.lanes import lanes

__all__ = ["kernel"]


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
def kernel(dtype: str, verb: str, rising: bool) -> Any:
    """The kernel of a verb for a dtype and a sign of beta (`rising`: positive).

    No window is empty, and the cells of each lie side by side on every axis. Array 0 is the input. `forward` writes array 1. `jvp` writes array 1 and reads the tangent
    from array 2. `vjp` reads the gradient of the result from array 1 and writes array 2. A unit is a tile of the first pooled axis of some items:
    of outputs or, of a gradient, of inputs. `rooms_at` is where the sizes that `pair_rooms` has found are.
    """
    outer = codec(dtype, True)
    memory, work, kept, read, write = outer.memory, outer.work, outer.kept, outer.load, outer.store
    from_x, here = lanes(memory, work, outer.half), lanes(work, work, "")
    to_y = lanes(kept if outer.half else work, work, outer.half)
    width, load_x, store_y = here.width, from_x.load, to_y.store
    load, store, spread, subtract = here.load, here.store, here.spread, here.subtract
    add, multiply, divide = here.add, here.multiply, here.divide
    follows, back = verb == "jvp", verb == "vjp"
    numbers = 3 if follows else 2
    each, zero, one = numbers * width, work(0), work(1)

    @compiled
    def joined(up, rate, m, s, t, other_m, other_s, other_t):
        """Two pairs as one, about the greater pivot if `up`; `rate` is −|beta|."""
        within()
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
        within()
        return (
            load(s, at),
            load(s, at + width),
            load(s, at + 2 * width) if follows else spread(zero),
        )

    @compiled
    def kept_at(s, at, m, total, t):
        within()
        store(s, at, m)
        store(s, at + width, total)
        if follows:
            store(s, at + 2 * width, t)

    @compiled
    def doubled(s, line, levels_at, span, level, up, rate):
        """Runs of 2^(level+1) neighbours of a span of cells, from those of half the length."""
        apart()
        half = 1 << level
        source = line if level == 0 else levels_at + (level - 1) * POSITIONS * each
        target = levels_at + level * POSITIONS * each
        for p in range(span - 2 * half + 1):
            m, total, t = fetched(s, source + p * each)
            om, ototal, ot = fetched(s, source + (p + half) * each)
            m, total, t = joined(up, rate, m, total, t, om, ototal, ot)
            kept_at(s, target + p * each, m, total, t)

    @compiled
    def from_levels(s, line, levels_at, start, members, up, rate):
        """A window, from the runs of its digits, the longest first."""
        within()
        level = 0
        while (2 << level) <= members:
            level += 1
        p, left = start, members
        m, total, t = spread(zero), spread(zero), spread(zero)
        while left > 0:
            while (1 << level) > left:
                level -= 1
            at = line if level == 0 else levels_at + (level - 1) * POSITIONS * each
            om, ototal, ot = fetched(s, at + p * each)
            if p == start:
                m, total, t = om, ototal, ot
            else:
                m, total, t = joined(up, rate, m, total, t, om, ototal, ot)
            p += 1 << level
            left -= 1 << level
        return m, total, t

    @compiled
    def by_itself(s, line, stack, start, members, up, rate):
        """The same without the runs of other windows: halves wait on a stack until they meet."""
        apart()
        level = 0
        while (2 << level) <= members:
            level += 1
        p, left = start, members
        m, total, t = spread(zero), spread(zero), spread(zero)
        while left > 0:
            while (1 << level) > left:
                level -= 1
            a, b, c = spread(zero), spread(zero), spread(zero)
            for i in range(1 << level):
                a, b, c = fetched(s, line + (p + i) * each)
                depth, bits = 0, i
                while bits & 1:
                    oa, ob, oc = fetched(s, stack + depth * each)
                    a, b, c = joined(up, rate, oa, ob, oc, a, b, c)
                    depth, bits = depth + 1, bits >> 1
                kept_at(s, stack + depth * each, a, b, c)
            if p == start:
                m, total, t = a, b, c
            else:
                m, total, t = joined(up, rate, m, total, t, a, b, c)
            p += 1 << level
            left -= 1 << level
        return m, total, t

    @compiled
    def fold_line(s, line, levels_at, g, table, begin, end, low, target, stride, up, rate):
        """Windows begin … end of a table over a line of cells, which begins with position `low`, to every `stride`th place.

        A window of nothing is a sum of 0.
        """
        within()
        j = begin
        while j < end:
            # As many windows as fit into the levels.
            first, until, visited, longest = g[table + WINDOW_WIDTH * j + START], j, 0, 0
            stop = first
            while until < end:
                w = table + WINDOW_WIDTH * until
                after = g[w + START] + g[w + MEMBERS]
                if (until > j) & (max(stop, after) - first > POSITIONS):
                    break
                if g[w + MEMBERS] > 0:
                    stop = max(stop, after)
                visited, longest = visited + g[w + MEMBERS], max(longest, g[w + MEMBERS])
                until += 1
            span, level = stop - first, 0
            shared = (longest <= LONGEST) & (span <= POSITIONS) & (visited > 2 * span)
            at = line + (first - low) * each
            if shared:
                while (2 << level) <= longest:
                    doubled(s, at, levels_at, span, level, up, rate)
                    level += 1
            while j < until:
                w = table + WINDOW_WIDTH * j
                start, members = g[w + START] - first, g[w + MEMBERS]
                if shared & (members > 0):
                    m, total, t = from_levels(s, at, levels_at, start, members, up, rate)
                elif members > 0:
                    m, total, t = by_itself(s, at, levels_at, start, members, up, rate)
                else:
                    m, total, t = spread(zero), spread(zero), spread(zero)
                kept_at(s, target, m, total, t)
                target += stride
                j += 1

    @compiled
    def fold_axis(s, source, target, room, outer, n, inner, g, table, begin, end, low, up, rate):
        """One axis of an array of pairs, n long with `inner` pairs to a position, `outer` times."""
        within()
        line, levels_at = room
        for o in range(outer):
            for c in range(inner):
                at = source + (o * n * inner + c) * each
                for p in range(n):
                    m, total, t = fetched(s, at + p * inner * each)
                    kept_at(s, line + p * each, m, total, t)
                to = target + (o * (end - begin) * inner + c) * each
                stride = inner * each
                fold_line(s, line, levels_at, g, table, begin, end, low, to, stride, up, rate)

    @compiled
    def lay_row(s, line, x, places, at, far, n, beside, dx, others, there, far_z, beside_z):
        """A row of all items as pairs: each cell is its own pivot. A NaN is in the sum."""
        apart()
        for p in range(n):
            k = line + p * each
            if beside:
                store(s, k, load_x(x, places[0] + at + p * far))
            else:
                for lane in range(width):
                    s[k + lane] = read(x[places[lane] + at + p * far])
            if follows:
                if beside_z:
                    store(s, k + 2 * width, load_x(dx, others[0] + there + p * far_z))
                else:
                    for lane in range(width):
                        s[k + 2 * width + lane] = read(dx[others[lane] + there + p * far_z])
            cell = load(s, k)
            store(s, k + width, unless_nan(cell, spread(one)))
            store(s, k, where_not_below(cell, cell, cell, spread(zero)))

    @compiled
    def row_offset(g, line, array, what):
        """Offset of a row, by its number among the rows of one position of the first axis; counted by outputs or inputs."""
        within()
        at = 0
        for axis in range(g[RANK] - 2, 0, -1):
            e = AXES + axis * AXIS_WIDTH
            at += (line % g[e + what]) * g[e + STEP_X + array]
            line //= g[e + what]
        return at

    @compiled
    def padding(g, number):
        """Zeros of padding that count in a window, by its number in its item."""
        within()
        if g[COUNT_PADDING] == 0:
            return 0.0
        counted, cells = 1.0, 1.0
        for axis in range(g[RANK] - 1, -1, -1):
            e = AXES + axis * AXIS_WIDTH
            w = g[e + TABLE] + WINDOW_WIDTH * (number % g[e + COUNT])
            number //= g[e + COUNT]
            counted, cells = counted * real(g[w + COUNTS]), cells * g[w + MEMBERS]
        return counted - cells

    @compiled
    def windows_of(s, room, spaces, x, places, beside, dx, others, beside_z, g, begin, end, rate):
        """Pairs of outputs begin … end of the first axis, all of the others; gives where they are."""
        within()
        rank, (line, levels_at), (here_at, there_at) = g[RANK], room, spaces
        e = AXES + (rank - 1) * AXIS_WIDTH
        n, m, far, far_z, table = (
            g[e + EXTENT],
            g[e + COUNT],
            g[e + STEP_X],
            g[e + STEP_Z],
            g[e + TABLE],
        )
        if rank == 1:
            w = table + WINDOW_WIDTH * (end - 1)
            low, high = g[table + WINDOW_WIDTH * begin + START], g[w + START] + g[w + MEMBERS]
            lay_row(
                s, line, x, places, low * far, far, high - low, beside,
                dx, others, low * far_z, far_z, beside_z,
            )  # fmt: skip
            fold_line(s, line, levels_at, g, table, begin, end, low, here_at, each, rising, rate)
            return here_at, there_at
        first = g[AXES + TABLE]
        w = first + WINDOW_WIDTH * (end - 1)
        low, high = g[first + WINDOW_WIDTH * begin + START], g[w + START] + g[w + MEMBERS]
        between = 1
        for axis in range(1, rank - 1):
            between *= g[AXES + axis * AXIS_WIDTH + EXTENT]
        for i in range(low, high):
            for q in range(between):
                at = i * g[AXES + STEP_X] + row_offset(g, q, 0, EXTENT)
                there = i * g[AXES + STEP_Z] + row_offset(g, q, 2, EXTENT)
                lay_row(s, line, x, places, at, far, n, beside, dx, others, there, far_z, beside_z)
                to = here_at + ((i - low) * between + q) * m * each
                fold_line(s, line, levels_at, g, table, 0, m, 0, to, each, rising, rate)
        outer, inner = (high - low) * between, m
        for axis in range(rank - 2, 0, -1):
            f = AXES + axis * AXIS_WIDTH
            outer //= g[f + EXTENT]
            fold_axis(
                s, here_at, there_at, room, outer, g[f + EXTENT], inner,
                g, g[f + TABLE], 0, g[f + COUNT], 0, rising, rate,
            )  # fmt: skip
            inner *= g[f + COUNT]
            here_at, there_at = there_at, here_at
        fold_axis(
            s, here_at, there_at, room, 1, high - low, inner,
            g, first, begin, end, low, rising, rate,
        )  # fmt: skip
        return there_at, here_at

    @compiled
    def lay_places(g, first, array, places):
        """Where some items begin, the last again for lanes without one; and whether they lie side by side."""
        within()
        beside = True
        for lane in range(width):
            places[lane] = item_offset(g, min(first + lane, g[ITEMS] - 1), array)
            beside &= places[lane] == places[0] + lane
        return beside

    @compiled
    def put(y, places, at, value, s, spare, items, beside):
        """A vector of results to where they belong: one of each item."""
        within()
        if beside & (items == width):
            store_y(y, places[0] + at, value)
        else:
            store(s, spare, value)
            for lane in range(items):
                y[places[lane] + at] = write(s[spare + lane])

    @compiled
    def taken(x, places, at, s, spare, beside):
        """A vector of cells, one of each item."""
        within()
        if beside:
            return load_x(x, places[0] + at)
        for lane in range(width):
            s[spare + lane] = read(x[places[lane] + at])
        return load(s, spare)

    @compiled
    def with_padding(g, number, m, total, t, rate):
        """A window with the zeros of its padding."""
        within()
        pads = padding(g, number)
        if pads > 0:
            extra = spread(work(pads))
            return joined(rising, rate, m, total, t, spread(zero), extra, spread(zero))
        return m, total, t

    @compiled
    def unread(g, i, q, p):
        """Whether no window reads a position."""
        within()
        rank = g[RANK]
        none = g[g[AXES + READ_BY] + WINDOW_WIDTH * i + MEMBERS] == 0
        if rank > 1:
            e = AXES + (rank - 1) * AXIS_WIDTH
            none |= g[g[e + READ_BY] + WINDOW_WIDTH * p + MEMBERS] == 0
        for axis in range(rank - 2, 0, -1):
            h = AXES + axis * AXIS_WIDTH
            none |= g[g[h + READ_BY] + WINDOW_WIDTH * (q % g[h + EXTENT]) + MEMBERS] == 0
            q //= g[h + EXTENT]
        return none

    @machine.kernel
    def in_pairs(x_at, b_at, c_at, scratch_at, g_at, rooms_at, first_unit, last_unit):
        g, rooms = pointer(g_at, types.int64), pointer(rooms_at, types.int64)
        s = pointer(scratch_at, work)
        tile_size, tiles, line, levels_at, here_at, there_at, spare = (
            rooms[TILE],
            rooms[TILE + 1],
            rooms[TILE + 2],
            rooms[TILE + 3],
            rooms[TILE + 4],
            rooms[TILE + 5],
            rooms[TILE + 6],
        )
        at_x = pointer(scratch_at + rooms[TILE + 7], types.int64)
        at_b = pointer(scratch_at + rooms[TILE + 7] + 8 * LINE, types.int64)
        at_c = pointer(scratch_at + rooms[TILE + 7] + 16 * LINE, types.int64)
        x, dx, y = pointer(x_at, memory), pointer(c_at, memory), pointer(b_at, kept)
        gy, gx = pointer(b_at, memory), pointer(c_at, kept)
        rank, beta, room = g[RANK], work(real(g[BETA])), (line, levels_at)
        rate, spaces = spread(-abs(beta)), (here_at, there_at)
        e, f = AXES + (rank - 1) * AXIS_WIDTH, AXES
        lines = 1  # rows of outputs to a position of the first axis
        for axis in range(1, rank - 1):
            lines *= g[AXES + axis * AXIS_WIDTH + COUNT]
        m = g[e + COUNT] if rank > 1 else 1
        length = g[f + EXTENT] if back else g[f + COUNT]
        for unit in range(first_unit, last_unit):
            block, tile = unit // tiles, unit % tiles
            items = min(width, g[ITEMS] - block * width)
            beside = lay_places(g, block * width, 0, at_x) & (items == width)
            beside_b = lay_places(g, block * width, 1, at_b) & (items == width)
            beside_c = lay_places(g, block * width, 2, at_c) & (items == width)
            begin, end = tile * tile_size, min(length, (tile + 1) * tile_size)
            low, high = begin, end
            if back:  # the outputs that read these
                begin, end = g[f + COUNT], 0
                for p in range(low, high):
                    w = g[f + READ_BY] + WINDOW_WIDTH * p
                    if g[w + MEMBERS] > 0:
                        begin, end = (
                            min(begin, g[w + START]),
                            max(end, g[w + START] + g[w + MEMBERS]),
                        )
            found, other = spaces
            if begin < end:
                found, other = windows_of(
                    s, room, spaces, x, at_x, beside, dx, at_c, beside_c, g, begin, end, rate
                )
            for i in range(begin, end):
                for q in range(lines):
                    step = g[e + STEP_Y] if rank > 1 else 0
                    to = i * g[f + STEP_Y] + row_offset(g, q, 1, COUNT)
                    for j in range(m):
                        k = found + (((i - begin) * lines + q) * m + j) * each
                        p, total, t = fetched(s, k)
                        number = (i * lines + q) * m + j
                        p, total, t = with_padding(g, number, p, total, t, rate)
                        if back:
                            grad = taken(gy, at_b, to + j * step, s, spare, beside_b)
                            kept_at(s, k, p, divide(grad, total), t)
                        elif follows:
                            # Shares about an infinite pivot are not numbers.
                            value = add(divide(t, total), subtract(p, p))
                            put(y, at_b, to + j * step, value, s, spare, items, beside_b)
                        else:
                            value = add(p, divide(log_up(total), spread(beta)))
                            value = unless_nan(total, value)
                            put(y, at_b, to + j * step, value, s, spare, items, beside_b)
            if not back:
                continue
            # The windows that read each position, joined axis by axis.
            outer, inner, before = (end - begin) * lines, 1, end - begin
            for axis in range(rank - 1, 0, -1):
                h = AXES + axis * AXIS_WIDTH
                if axis < rank - 1:
                    outer //= g[h + COUNT]
                fold_axis(
                    s, found, other, room, outer, g[h + COUNT], inner,
                    g, g[h + READ_BY], 0, g[h + EXTENT], 0, not rising, rate,
                )  # fmt: skip
                inner *= g[h + EXTENT]
                found, other = other, found
            fold_axis(
                s, found, other, room, 1, before, inner,
                g, g[f + READ_BY], low, high, begin, not rising, rate,
            )  # fmt: skip
            rows = 1
            for axis in range(1, rank - 1):
                rows *= g[AXES + axis * AXIS_WIDTH + EXTENT]
            n = g[e + EXTENT] if rank > 1 else 1
            for i in range(low, high):
                for q in range(rows):
                    at = i * g[f + STEP_X] + row_offset(g, q, 0, EXTENT)
                    to = i * g[f + STEP_Z] + row_offset(g, q, 2, EXTENT)
                    for p in range(n):
                        far = p * g[e + STEP_X] if rank > 1 else 0
                        far_z = p * g[e + STEP_Z] if rank > 1 else 0
                        k = other + (((i - low) * rows + q) * n + p) * each
                        pivot, weight, _ = fetched(s, k)
                        cell = taken(x, at_x, at + far, s, spare, beside)
                        below = multiply(spread(beta), subtract(cell, pivot))
                        value = multiply(weight, unless_nan(below, exp_down(below)))
                        if unread(g, i, q, p):
                            value = spread(zero)
                        put(gx, at_c, to + far_z, value, s, spare, items, beside_c)

    return in_pairs
