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
from lunette.kernels.cpu.schedule.records import INPUTS, OUTPUTS, PLAN, X, Y, Z
from lunette.kernels.cpu.simd.half import dtype_of
from lunette.kernels.cpu.simd.vec import vec
from lunette.kernels.cpu.simd.vec_math import exp_down, log_up
from lunette.kernels.cpu.tuning import LINE

__all__ = ["kernel"]

plan_of = PLAN.at


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
    def lay_row(s, line, source, tangent):
        """A row of all items as pairs: each cell is its own pivot. A NaN is in the sum."""
        noinline()
        x, places, at, far, n, beside = source
        dx, others, there, far_z, beside_z = tangent
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
    def row_offset(plan, line, array, which):
        """Offset of a row, by its number among the rows of one position of the first axis; counted by outputs or inputs."""
        alwaysinline()
        at = 0
        for axis in range(plan.rank - 2, 0, -1):
            entry = plan.axes[axis]
            at += (line % entry.lengths[which]) * entry.strides[array]
            line //= entry.lengths[which]
        return at

    @compiled
    def padding(plan, number):
        """Zeros of padding that count in a window, by its number in its item."""
        alwaysinline()
        if plan.count_padding == 0:
            return 0.0
        counted, cells = 1.0, 1.0
        for axis in range(plan.rank - 1, -1, -1):
            entry = plan.axes[axis]
            w = entry.windows[number % entry.out_len]
            number //= entry.out_len
            counted, cells = counted * real(w.counted), cells * w.in_bounds
        return counted - cells

    @compiled
    def windows_of(s, room, spaces, source, tangent, plan, outputs, rate):
        """Pairs of outputs begin … end of the first axis, all of the others; gives where they are."""
        alwaysinline()
        x, places, beside = source
        dx, others, beside_z = tangent
        begin, end = outputs
        rank, (line, levels_at), (here_at, there_at) = plan.rank, room, spaces
        w_axis = plan.axes[rank - 1]
        n, m, far, far_z, table = (
            w_axis.in_len,
            w_axis.out_len,
            w_axis.x_stride,
            w_axis.z_stride,
            w_axis.windows,
        )
        if rank == 1:
            w = table[end - 1]
            low, high = table[begin].start, w.start + w.in_bounds
            lay_row(
                s, line, (x, places, low * far, far, high - low, beside),
                (dx, others, low * far_z, far_z, beside_z),
            )  # fmt: skip
            fold_line(
                s, line, levels_at, table, begin, end, low, here_at, each, beta_positive, rate
            )
            return here_at, there_at
        first = plan.axes[0].windows
        w = first[end - 1]
        low, high = first[begin].start, w.start + w.in_bounds
        between = 1
        for axis in range(1, rank - 1):
            between *= plan.axes[axis].in_len
        for i in range(low, high):
            for q in range(between):
                at = i * plan.axes[0].x_stride + row_offset(plan, q, X, INPUTS)
                there = i * plan.axes[0].z_stride + row_offset(plan, q, Z, INPUTS)
                lay_row(
                    s, line, (x, places, at, far, n, beside), (dx, others, there, far_z, beside_z)
                )
                to = here_at + ((i - low) * between + q) * m * each
                fold_line(s, line, levels_at, table, 0, m, 0, to, each, beta_positive, rate)
        outer, inner = (high - low) * between, m
        for axis in range(rank - 2, 0, -1):
            entry = plan.axes[axis]
            outer //= entry.in_len
            fold_axis(
                s, here_at, there_at, room, outer, entry.in_len, inner,
                entry.windows, 0, entry.out_len, 0, beta_positive, rate,
            )  # fmt: skip
            inner *= entry.out_len
            here_at, there_at = there_at, here_at
        fold_axis(
            s, here_at, there_at, room, 1, high - low, inner,
            first, begin, end, low, beta_positive, rate,
        )  # fmt: skip
        return there_at, here_at

    @compiled
    def lay_places(plan, first, array, places):
        """Where some items begin, the last again for lanes without one; and whether they lie side by side."""
        alwaysinline()
        beside = True
        for lane in range(width):
            places[lane] = batch_offset(plan, min(first + lane, plan.items - 1), array)
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
    def with_padding(plan, number, m, total, t, rate):
        """A window with the zeros of its padding."""
        alwaysinline()
        pads = padding(plan, number)
        if pads > 0:
            extra = broadcast(work(pads))
            return merge(beta_positive, rate, m, total, t, broadcast(zero), extra, broadcast(zero))
        return m, total, t

    @compiled
    def unread(plan, i, q, p):
        """Whether no window reads a position."""
        alwaysinline()
        rank = plan.rank
        none = plan.axes[0].readers[i].in_bounds == 0
        if rank > 1:
            w_axis = plan.axes[rank - 1]
            none |= w_axis.readers[p].in_bounds == 0
        for axis in range(rank - 2, 0, -1):
            h = plan.axes[axis]
            none |= h.readers[q % h.in_len].in_bounds == 0
            q //= h.in_len
        return none

    @compiled
    def finish_windows(s, found, target, plan, outputs, beta, rate):
        """Results of outputs begin … end of the first axis, or for a gradient what each of them gives to its cells, in place of its sum."""
        alwaysinline()
        b, places, spare, items, beside = target
        begin, end = outputs
        rank, lines = plan.rank, 1  # rows of outputs to a position of the first axis
        w_axis = plan.axes[rank - 1]
        for axis in range(1, rank - 1):
            lines *= plan.axes[axis].out_len
        m, step = (w_axis.out_len, w_axis.y_stride) if rank > 1 else (1, 0)
        for i in range(begin, end):
            for q in range(lines):
                to = i * plan.axes[0].y_stride + row_offset(plan, q, Y, OUTPUTS)
                for j in range(m):
                    k = found + (((i - begin) * lines + q) * m + j) * each
                    p, total, t = fetched(s, k)
                    number = (i * lines + q) * m + j
                    p, total, t = with_padding(plan, number, p, total, t, rate)
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
    def readers_of(s, room, found, other, plan, outputs, inputs, rate):
        """The windows that read each position of low … high of the first axis, joined axis by axis; gives where they are."""
        alwaysinline()
        begin, end = outputs
        low, high = inputs
        rank, outer, inner = plan.rank, end - begin, 1
        for axis in range(1, rank - 1):
            outer *= plan.axes[axis].out_len
        for axis in range(rank - 1, 0, -1):
            h = plan.axes[axis]
            if axis < rank - 1:
                outer //= h.out_len
            fold_axis(
                s, found, other, room, outer, h.out_len, inner,
                h.readers, 0, h.in_len, 0, not beta_positive, rate,
            )  # fmt: skip
            inner *= h.in_len
            found, other = other, found
        fold_axis(
            s, found, other, room, 1, end - begin, inner,
            plan.axes[0].readers, low, high, begin, not beta_positive, rate,
        )  # fmt: skip
        return other

    @compiled
    def put_gradients(s, found, source, target, plan, inputs, beta):
        """The gradients of positions low … high of the first axis."""
        alwaysinline()
        x, places, beside = source
        gx, others, beside_z, spare, items = target
        low, high = inputs
        rank, rows = plan.rank, 1
        w_axis = plan.axes[rank - 1]
        for axis in range(1, rank - 1):
            rows *= plan.axes[axis].in_len
        n, far, far_z = (w_axis.in_len, w_axis.x_stride, w_axis.z_stride) if rank > 1 else (1, 0, 0)
        for i in range(low, high):
            for q in range(rows):
                at = i * plan.axes[0].x_stride + row_offset(plan, q, X, INPUTS)
                to = i * plan.axes[0].z_stride + row_offset(plan, q, Z, INPUTS)
                for p in range(n):
                    pivot, weight, _ = fetched(s, found + (((i - low) * rows + q) * n + p) * each)
                    cell = taken(x, places, at + p * far, s, spare, beside)
                    below = multiply(broadcast(beta), subtract(cell, pivot))
                    value = multiply(weight, unless_nan(below, exp_down(below)))
                    if unread(plan, i, q, p):
                        value = broadcast(zero)
                    put(gx, others, to + p * far_z, value, s, spare, items, beside_z)

    @compiled
    def reading(plan, low, high):
        """The outputs of the first axis that read positions low … high; none is a range that ends before it begins."""
        alwaysinline()
        begin, end = plan.axes[0].out_len, 0
        for p in range(low, high):
            w = plan.axes[0].readers[p]
            if w.in_bounds > 0:
                begin, end = min(begin, w.start), max(end, w.start + w.in_bounds)
        return begin, end

    @intrinsics.kernel
    def in_pairs(x_at, b_at, c_at, scratch_at, plan_at, rooms_at, first_unit, last_unit):
        plan, rooms = plan_of(plan_at), pointer(rooms_at, types.int64)
        s = pointer(scratch_at, work)
        tile_size, tiles, spare = rooms[TILE], rooms[TILES], rooms[SPARE]
        room, spaces = (rooms[ROW], rooms[RUNS]), (rooms[FOUND], rooms[OTHER])
        at_x = pointer(scratch_at + rooms[PLACES], types.int64)
        at_b = pointer(scratch_at + rooms[PLACES] + 8 * LINE, types.int64)
        at_c = pointer(scratch_at + rooms[PLACES] + 16 * LINE, types.int64)
        x, dx = pointer(x_at, memory), pointer(c_at, memory)
        b, gx = pointer(b_at, memory if back else kept), pointer(c_at, kept)
        beta = work(real(plan.beta))
        rate, length = broadcast(-abs(beta)), plan.axes[0].in_len if back else plan.axes[0].out_len
        for unit in range(first_unit, last_unit):
            block, tile = unit // tiles, unit % tiles
            items = min(width, plan.items - block * width)
            beside = lay_places(plan, block * width, 0, at_x) & (items == width)
            beside_b = lay_places(plan, block * width, 1, at_b) & (items == width)
            beside_c = lay_places(plan, block * width, 2, at_c) & (items == width)
            low, high = tile * tile_size, min(length, (tile + 1) * tile_size)
            begin, end = reading(plan, low, high) if back else (low, high)
            found, other = spaces
            if begin < end:
                found, other = windows_of(
                    s,
                    room,
                    spaces,
                    (x, at_x, beside),
                    (dx, at_c, beside_c),
                    plan,
                    (begin, end),
                    rate,
                )
            finish_windows(
                s, found, (b, at_b, spare, items, beside_b), plan, (begin, end), beta, rate
            )
            if back:
                found = readers_of(s, room, found, other, plan, (begin, end), (low, high), rate)
                put_gradients(
                    s,
                    found,
                    (x, at_x, beside),
                    (gx, at_c, beside_c, spare, items),
                    plan,
                    (low, high),
                    beta,
                )

    return in_pairs
