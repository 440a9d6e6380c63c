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

from functools import cache
from typing import Any

from numba import types

from lunette.kernels.cpu.jit import intrinsics
from lunette.kernels.cpu.jit.intrinsics import alwaysinline, compiled, noinline, pointer, real
from lunette.kernels.cpu.micro.index import batch_offset
from lunette.kernels.cpu.micro.lse_pairs_rows import lse_pair_rows, unless_nan, where_not_below
from lunette.kernels.cpu.micro.lse_pairs_scratch import (
    FOUND,
    OTHER,
    PLACES,
    ROW,
    RUNS,
    SPARE,
    TILE,
    TILES,
)
from lunette.kernels.cpu.schedule.slots import (
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
from lunette.kernels.cpu.simd.half import dtype_of
from lunette.kernels.cpu.simd.vec import vec
from lunette.kernels.cpu.simd.vec_math import exp_down, log_up
from lunette.kernels.cpu.tuning import LINE

__all__ = ["kernel"]


@cache
def kernel(dtype: str, verb: str, beta_positive: bool) -> Any:
    """The kernel of a verb for a dtype and a sign of beta (`beta_positive`: positive).

    No window is empty, and the cells of each lie side by side on every axis. Array 0 is the input. `forward` writes array 1. `jvp` writes array 1 and reads the tangent
    from array 2. `vjp` reads the gradient of the result from array 1 and writes array 2. A unit is a tile of the first pooled axis of some items:
    of outputs or, of a gradient, of inputs. `rooms_at` is where the sizes that `pair_rooms` has found are.
    """
    outer = dtype_of(dtype, True)
    memory, work, kept, read, write = outer.memory, outer.work, outer.kept, outer.load, outer.store
    from_x, here = vec(memory, work, outer.half), vec(work, work, "")
    to_y = vec(kept if outer.half else work, work, outer.half)
    width, load_x, store_y = here.width, from_x.load, to_y.store
    load, store, broadcast, subtract = here.load, here.store, here.broadcast, here.subtract
    add, multiply, divide = here.add, here.multiply, here.divide
    follows, back = verb == "jvp", verb == "vjp"
    each, merge, fetched, kept_at, fold_line, fold_axis = lse_pair_rows(work, follows)
    zero, one = work(0), work(1)

    @compiled
    def lay_row(s, line, x, places, at, far, n, beside, dx, others, there, far_z, beside_z):
        """A row of all items as pairs: each cell is its own pivot. A NaN is in the sum."""
        noinline()
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
            store(s, k + width, unless_nan(cell, broadcast(one)))
            store(s, k, where_not_below(cell, cell, cell, broadcast(zero)))

    @compiled
    def row_offset(g, line, array, what):
        """Offset of a row, by its number among the rows of one position of the first axis; counted by outputs or inputs."""
        alwaysinline()
        at = 0
        for axis in range(g[RANK] - 2, 0, -1):
            e = AXES + axis * AXIS_WIDTH
            at += (line % g[e + what]) * g[e + STEP_X + array]
            line //= g[e + what]
        return at

    @compiled
    def padding(g, number):
        """Zeros of padding that count in a window, by its number in its item."""
        alwaysinline()
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
        alwaysinline()
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
            fold_line(
                s, line, levels_at, g, table, begin, end, low, here_at, each, beta_positive, rate
            )
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
                fold_line(s, line, levels_at, g, table, 0, m, 0, to, each, beta_positive, rate)
        outer, inner = (high - low) * between, m
        for axis in range(rank - 2, 0, -1):
            f = AXES + axis * AXIS_WIDTH
            outer //= g[f + EXTENT]
            fold_axis(
                s, here_at, there_at, room, outer, g[f + EXTENT], inner,
                g, g[f + TABLE], 0, g[f + COUNT], 0, beta_positive, rate,
            )  # fmt: skip
            inner *= g[f + COUNT]
            here_at, there_at = there_at, here_at
        fold_axis(
            s, here_at, there_at, room, 1, high - low, inner,
            g, first, begin, end, low, beta_positive, rate,
        )  # fmt: skip
        return there_at, here_at

    @compiled
    def lay_places(g, first, array, places):
        """Where some items begin, the last again for lanes without one; and whether they lie side by side."""
        alwaysinline()
        beside = True
        for lane in range(width):
            places[lane] = batch_offset(g, min(first + lane, g[ITEMS] - 1), array)
            beside &= places[lane] == places[0] + lane
        return beside

    @compiled
    def put(y, places, at, value, s, spare, items, beside):
        """A vector of results to where they belong: one of each item."""
        alwaysinline()
        if beside & (items == width):
            store_y(y, places[0] + at, value)
        else:
            store(s, spare, value)
            for lane in range(items):
                y[places[lane] + at] = write(s[spare + lane])

    @compiled
    def taken(x, places, at, s, spare, beside):
        """A vector of cells, one of each item."""
        alwaysinline()
        if beside:
            return load_x(x, places[0] + at)
        for lane in range(width):
            s[spare + lane] = read(x[places[lane] + at])
        return load(s, spare)

    @compiled
    def with_padding(g, number, m, total, t, rate):
        """A window with the zeros of its padding."""
        alwaysinline()
        pads = padding(g, number)
        if pads > 0:
            extra = broadcast(work(pads))
            return merge(beta_positive, rate, m, total, t, broadcast(zero), extra, broadcast(zero))
        return m, total, t

    @compiled
    def unread(g, i, q, p):
        """Whether no window reads a position."""
        alwaysinline()
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

    @compiled
    def finish_windows(s, found, b, places, spare, items, beside, g, begin, end, beta, rate):
        """Results of outputs begin … end of the first axis, or for a gradient what each of them gives to its cells, in place of its sum."""
        alwaysinline()
        rank, lines = g[RANK], 1  # rows of outputs to a position of the first axis
        e = AXES + (rank - 1) * AXIS_WIDTH
        for axis in range(1, rank - 1):
            lines *= g[AXES + axis * AXIS_WIDTH + COUNT]
        m, step = (g[e + COUNT], g[e + STEP_Y]) if rank > 1 else (1, 0)
        for i in range(begin, end):
            for q in range(lines):
                to = i * g[AXES + STEP_Y] + row_offset(g, q, 1, COUNT)
                for j in range(m):
                    k = found + (((i - begin) * lines + q) * m + j) * each
                    p, total, t = fetched(s, k)
                    number = (i * lines + q) * m + j
                    p, total, t = with_padding(g, number, p, total, t, rate)
                    if back:
                        grad = taken(b, places, to + j * step, s, spare, beside)
                        kept_at(s, k, p, divide(grad, total), t)
                        continue
                    if follows:
                        # Shares about an infinite pivot are not numbers.
                        value = add(divide(t, total), subtract(p, p))
                    else:
                        value = add(p, divide(log_up(total), broadcast(beta)))
                        value = unless_nan(total, value)
                    put(b, places, to + j * step, value, s, spare, items, beside)

    @compiled
    def readers_of(s, room, found, other, g, begin, end, low, high, rate):
        """The windows that read each position of low … high of the first axis, joined axis by axis; gives where they are."""
        alwaysinline()
        rank, outer, inner = g[RANK], end - begin, 1
        for axis in range(1, rank - 1):
            outer *= g[AXES + axis * AXIS_WIDTH + COUNT]
        for axis in range(rank - 1, 0, -1):
            h = AXES + axis * AXIS_WIDTH
            if axis < rank - 1:
                outer //= g[h + COUNT]
            fold_axis(
                s, found, other, room, outer, g[h + COUNT], inner,
                g, g[h + READ_BY], 0, g[h + EXTENT], 0, not beta_positive, rate,
            )  # fmt: skip
            inner *= g[h + EXTENT]
            found, other = other, found
        fold_axis(
            s, found, other, room, 1, end - begin, inner,
            g, g[AXES + READ_BY], low, high, begin, not beta_positive, rate,
        )  # fmt: skip
        return other

    @compiled
    def put_gradients(
        s, found, x, places, beside, gx, others, beside_z, spare, items, g, low, high, beta
    ):
        """The gradients of positions low … high of the first axis."""
        alwaysinline()
        rank, rows = g[RANK], 1
        e = AXES + (rank - 1) * AXIS_WIDTH
        for axis in range(1, rank - 1):
            rows *= g[AXES + axis * AXIS_WIDTH + EXTENT]
        n, far, far_z = (g[e + EXTENT], g[e + STEP_X], g[e + STEP_Z]) if rank > 1 else (1, 0, 0)
        for i in range(low, high):
            for q in range(rows):
                at = i * g[AXES + STEP_X] + row_offset(g, q, 0, EXTENT)
                to = i * g[AXES + STEP_Z] + row_offset(g, q, 2, EXTENT)
                for p in range(n):
                    pivot, weight, _ = fetched(s, found + (((i - low) * rows + q) * n + p) * each)
                    cell = taken(x, places, at + p * far, s, spare, beside)
                    below = multiply(broadcast(beta), subtract(cell, pivot))
                    value = multiply(weight, unless_nan(below, exp_down(below)))
                    if unread(g, i, q, p):
                        value = broadcast(zero)
                    put(gx, others, to + p * far_z, value, s, spare, items, beside_z)

    @compiled
    def reading(g, low, high):
        """The outputs of the first axis that read positions low … high; none is a range that ends before it begins."""
        alwaysinline()
        begin, end = g[AXES + COUNT], 0
        for p in range(low, high):
            w = g[AXES + READ_BY] + WINDOW_WIDTH * p
            if g[w + MEMBERS] > 0:
                begin, end = min(begin, g[w + START]), max(end, g[w + START] + g[w + MEMBERS])
        return begin, end

    @intrinsics.kernel
    def in_pairs(x_at, b_at, c_at, scratch_at, g_at, rooms_at, first_unit, last_unit):
        g, rooms = pointer(g_at, types.int64), pointer(rooms_at, types.int64)
        s = pointer(scratch_at, work)
        tile_size, tiles, spare = rooms[TILE], rooms[TILES], rooms[SPARE]
        room, spaces = (rooms[ROW], rooms[RUNS]), (rooms[FOUND], rooms[OTHER])
        at_x = pointer(scratch_at + rooms[PLACES], types.int64)
        at_b = pointer(scratch_at + rooms[PLACES] + 8 * LINE, types.int64)
        at_c = pointer(scratch_at + rooms[PLACES] + 16 * LINE, types.int64)
        x, dx = pointer(x_at, memory), pointer(c_at, memory)
        b, gx = pointer(b_at, memory if back else kept), pointer(c_at, kept)
        beta = work(real(g[BETA]))
        rate, length = broadcast(-abs(beta)), g[AXES + EXTENT] if back else g[AXES + COUNT]
        for unit in range(first_unit, last_unit):
            block, tile = unit // tiles, unit % tiles
            items = min(width, g[ITEMS] - block * width)
            beside = lay_places(g, block * width, 0, at_x) & (items == width)
            beside_b = lay_places(g, block * width, 1, at_b) & (items == width)
            beside_c = lay_places(g, block * width, 2, at_c) & (items == width)
            low, high = tile * tile_size, min(length, (tile + 1) * tile_size)
            begin, end = reading(g, low, high) if back else (low, high)
            found, other = spaces
            if begin < end:
                found, other = windows_of(
                    s, room, spaces, x, at_x, beside, dx, at_c, beside_c, g, begin, end, rate
                )
            finish_windows(s, found, b, at_b, spare, items, beside_b, g, begin, end, beta, rate)
            if back:
                found = readers_of(s, room, found, other, g, begin, end, low, high, rate)
                put_gradients(
                    s, found, x, at_x, beside, gx, at_c, beside_c, spare, items, g, low, high, beta
                )

    return in_pairs
