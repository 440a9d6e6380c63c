"""Who wins each window of a max: values and marks reduced together, then used by three verbs.

A mark is the flat position of a cell in the pooled axes. The passes are those of the row-first
kernel, with a mark beside every value. `indices` writes marks, `jvp` reads the tangent there, and
`vjp` adds the gradient there, output by output in row-major order, each slab by one unit alone.
"""

# Numba types the kernels, not mypy.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

from functools import cache
from typing import Any

from numba import types

from lunette.kernels.cpu import machine
from lunette.kernels.cpu.direct import takes
from lunette.kernels.cpu.halves import codec
from lunette.kernels.cpu.lanes import lanes
from lunette.kernels.cpu.layout import (
    AXES,
    AXIS_WIDTH,
    COUNT,
    DILATION,
    EXTENT,
    FLAT,
    KERNEL,
    MEMBERS,
    ORIGIN,
    RANK,
    ROW,
    SECOND,
    SLABS,
    SLABS_AT,
    START,
    STEP,
    STEP_X,
    STEP_Y,
    STEP_Z,
    STOP,
    STRIDE,
    TABLE,
    TILE,
    TILES,
    WINDOW_WIDTH,
)
from lunette.kernels.cpu.machine import apart, compiled, pointer
from lunette.kernels.cpu.passes import inside, moves
from lunette.kernels.cpu.places import item_offset, place_of
from lunette.kernels.cpu.row_first import hull, input_line

__all__ = ["kernel"]


@cache
def kernel(dtype: str, verb: str) -> Any:
    """The kernel of a verb for a dtype; no window may be empty.

    For `indices` array 2 is that of the winners, for `jvp` the tangent, for `vjp` the gradient.
    """
    outer = codec(dtype, False)
    memory, work, load_one, store_one = outer.memory, outer.work, outer.load, outer.store
    mark = {8: types.int8, 16: types.int16, 32: types.int32, 64: types.int64}[work.bitwidth]
    mark = types.int32 if work.bitwidth < 32 else mark
    narrow = work.bitwidth < 32  # few marks fit beside bytes: such values are reduced one by one
    fetch, emit = moves(outer)
    values = lanes(work, work, "")
    width, load, load_step, store = values.width, values.load, values.load_step, values.store
    evens = values.evens
    larger, larger_from = values.larger, values.larger_from
    marks = lanes(mark, mark, "")
    load_mark, store_mark = marks.load, marks.store
    spread_mark, add_mark = marks.spread, marks.add
    zero = work(0)
    writes_indices, gathers, scatters = verb == "indices", verb == "jvp", verb == "vjp"

    @compiled
    def tap(s, p, stride, t, dilation):
        if stride == 1:
            return load(s, p + t * dilation)
        if stride == 2:
            p += t * dilation
            return evens(load(s, p), load(s, p + width))
        return load_step(s, p + t * dilation, stride, 0, width, zero)

    @compiled
    def along(s, at, q, to, first, begin, end, last, stride, origin, dilation, size, g, table):
        """Values s[to + j − first] and marks q[to + j − first] of windows along a row at `at`."""
        apart()
        if not narrow:
            for block in range(begin, end, width):
                j = min(block, end - width)
                p = at + stride * j + origin
                best, where = tap(s, p, stride, 0, dilation), spread_mark(mark(0))
                for t in range(1, size):
                    value = tap(s, p, stride, t, dilation)
                    where = larger_from(best, value, where, spread_mark(mark(t)))
                    best = larger(best, value)
                store(s, to + j - first, best)
                store_mark(q, to + j - first, where)
        for edge in range((begin - first) + (last - end)):
            j = first + edge if first + edge < begin else edge - (begin - first) + end
            w = table + WINDOW_WIDTH * j
            best, where = s[at + g[w + START]], g[w + START]
            for p in range(g[w + START] + g[w + STEP], g[w + STOP], g[w + STEP]):
                if takes(best, s[at + p]):
                    best, where = s[at + p], p
            s[to + j - first] = best
            q[to + j - first] = mark(where)
        if not narrow:  # vectors hold the number of the winning cell; make it a position
            for j in range(begin, end):
                at_j = to + j - first
                q[at_j] = mark(stride * j + origin + q[at_j] * dilation)

    @compiled
    def across(s, q, at, step, count, start, flat, to, size):
        """Values and marks of `count` rows, the marks of the first raised by `start`, then `flat`."""
        apart()
        whole = 0
        if not narrow:
            whole = size - size % width
            for c in range(0, whole, width):
                best = load(s, at + c)
                where = add_mark(load_mark(q, at + c), spread_mark(mark(start)))
                for t in range(1, count):
                    value, place = load(s, at + c + t * step), load_mark(q, at + c + t * step)
                    place = add_mark(place, spread_mark(mark(start + t * flat)))
                    where = larger_from(best, value, where, place)
                    best = larger(best, value)
                store(s, to + c, best)
                store_mark(q, to + c, where)
        for c in range(whole, size):
            best, where = s[at + c], q[at + c] + start
            for t in range(1, count):
                value = s[at + c + t * step]
                if takes(best, value):
                    best, where = value, q[at + c + t * step] + start + t * flat
            s[to + c] = best
            q[to + c] = mark(where)

    @machine.kernel
    def win(x_at, y_at, z_at, scratch_at, g_at, cells, first, last):
        g, s = pointer(g_at, types.int64), pointer(scratch_at, work)
        q = pointer(scratch_at + 8 * cells, mark)
        x, y = pointer(x_at, memory), pointer(y_at, memory)
        indices, dx = pointer(z_at, types.int64), pointer(z_at, memory)
        sums = pointer(scratch_at + 16 * cells, work)
        rank = g[RANK]
        e = AXES + (rank - 1) * AXIS_WIDTH
        n, m, far, table = g[e + EXTENT], g[e + COUNT], g[e + STEP_X], g[e + TABLE]
        stride, origin, dilation, size = (
            g[e + STRIDE],
            g[e + ORIGIN],
            g[e + DILATION],
            g[e + KERNEL],
        )
        row, inner = g[ROW], g[AXES + FLAT]
        per_item = g[SLABS] if scatters else g[TILES]
        dense = g[e + STEP_Z] == 1
        for axis in range(rank - 1):
            f = AXES + axis * AXIS_WIDTH
            dense &= g[f + STEP_Z] == g[f + FLAT]
        for unit in range(first, last):
            item, part = unit // per_item, unit % per_item
            base, out = item_offset(g, item, 0), item_offset(g, item, 1)
            third = item_offset(g, item, 2)
            begin, end = part * g[TILE], min(g[AXES + COUNT], (part + 1) * g[TILE])
            below, above = 0, 0
            if scatters:
                slab = g[SLABS_AT] + 4 * part
                begin, end = g[slab + 2], g[slab + 3]
                below, above = g[slab] * inner, g[slab + 1] * inner
                for c in range(above - below):
                    sums[c] = zero
            # A slab's readers are taken a tile at a time, in order.
            for tile in range(begin, end, g[TILE]):
                until = min(end, tile + g[TILE])
                low, high, lines, from_j, to_j, from_p, to_p = 0, 1, 1, 0, m, 0, n
                if rank == 1:
                    from_j, to_j = tile, until
                    from_p, to_p = hull(g, 0, tile, until)
                else:
                    low, high = hull(g, 0, tile, until)
                    for axis in range(1, rank - 1):
                        lines *= g[AXES + axis * AXIS_WIDTH + EXTENT]
                outputs, to = to_j - from_j, 0
                begin_j = end_j = to_j
                if (size > 0) & (not narrow):
                    reach = dilation * (size - 1) + 1
                    begin_j, end_j = inside(from_j, to_j, n, stride, origin, reach, width)
                for position in range(low, high):
                    for line in range(lines):
                        at = base + input_line(g, line, 0)
                        if rank > 1:
                            at += position * g[AXES + STEP_X]
                        fetch(x, at + from_p * far, far, s, row + from_p, to_p - from_p, zero)
                        along(
                            s,
                            row,
                            q,
                            to,
                            from_j,
                            begin_j,
                            end_j,
                            to_j,
                            stride,
                            origin,
                            dilation,
                            size,
                            g,
                            table,
                        )
                        to += outputs
                span, here, there = outputs, 0, g[SECOND]
                for axis in range(rank - 2, 0, -1):
                    f = AXES + axis * AXIS_WIDTH
                    lines //= g[f + EXTENT]
                    for line in range((high - low) * lines):
                        for i in range(g[f + COUNT]):
                            w = g[f + TABLE] + WINDOW_WIDTH * i
                            at = here + (line * g[f + EXTENT] + g[w + START]) * span
                            place = there + (line * g[f + COUNT] + i) * span
                            start, flat = g[w + START] * g[f + FLAT], g[w + STEP] * g[f + FLAT]
                            across(
                                s,
                                q,
                                at,
                                g[w + STEP] * span,
                                g[w + MEMBERS],
                                start,
                                flat,
                                place,
                                span,
                            )
                    span *= g[f + COUNT]
                    here, there = there, here
                first_row, last_row = (tile, until) if rank > 1 else (0, 1)
                for i in range(first_row, last_row):
                    result = here
                    if rank > 1:
                        w = g[AXES + TABLE] + WINDOW_WIDTH * i
                        at, result = here + (g[w + START] - low) * span, there
                        start, flat = g[w + START] * inner, g[w + STEP] * inner
                        across(
                            s, q, at, g[w + STEP] * span, g[w + MEMBERS], start, flat, result, span
                        )
                    # `outputs` at a time: output rows of the last axis, which may have any stride.
                    for c in range(0, span, outputs):
                        rest, place = c // outputs, from_j * g[e + STEP_Y]
                        for axis in range(rank - 2, 0, -1):
                            f = AXES + axis * AXIS_WIDTH
                            place += (rest % g[f + COUNT]) * g[f + STEP_Y]
                            rest //= g[f + COUNT]
                        if rank > 1:
                            place += i * g[AXES + STEP_Y]
                        if writes_indices:
                            emit(s, result + c, y, out + place, outputs)
                            for j in range(outputs):
                                indices[out + place + j] = q[result + c + j]
                        if gathers:
                            for j in range(outputs):
                                flat = q[result + c + j]
                                offset = flat if dense else place_of(g, flat, 2)
                                tangent = load_one(dx[third + offset])
                                y[out + place + j * g[e + STEP_Y]] = store_one(tangent + zero)
                        if scatters:
                            for j in range(outputs):
                                flat = q[result + c + j]
                                if below <= flat < above:
                                    gradient = load_one(y[out + place + j * g[e + STEP_Y]])
                                    sums[flat - below] += gradient
            if scatters:
                emit(sums, 0, dx, third + below, above - below)

    return win
