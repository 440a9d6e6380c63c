"""Who wins each large window of a max: values and marks reduced together, then used by three verbs.

A mark is the flat position of a cell in the pooled axes. The passes are those of the row-first
kernel, with a mark beside every value. `indices` writes marks, `jvp` reads the tangent there, and
`vjp` adds the gradient there, output by output in row-major order, each slab by one unit alone.

Cells outside a row are the least number there is. They come after the cells of a window, or have the mark of
its first cell, so a window of nothing but least numbers has the right winner.
"""

# Numba types the kernels, not mypy.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

from functools import cache
from typing import Any

from numba import types

from lunette.kernels.cpu.jit import intrinsics
from lunette.kernels.cpu.jit.intrinsics import compiled, noinline, pointer
from lunette.kernels.cpu.micro.argmax_passes import argmax_passes, mark_of
from lunette.kernels.cpu.micro.index import batch_offset, input_line, place_of, receptive_range
from lunette.kernels.cpu.micro.rows import moves
from lunette.kernels.cpu.schedule.records import PLAN
from lunette.kernels.cpu.simd.half import DType, dtype_of, same
from lunette.kernels.cpu.simd.vec import vec
from lunette.kernels.cpu.tuning import SLACK

__all__ = ["kernel"]

plan_of = PLAN.at


@cache
def kernel(dtype: str, verb: str) -> Any:
    """The kernel of a verb for a dtype; no window may be empty.

    For `indices` array 2 is that of the winners, for `jvp` the tangent, for `vjp` the gradient.
    """
    outer = dtype_of(dtype, False)
    if outer.work.bitwidth < 32:  # marks need as many bits
        outer = DType(outer.memory, types.int32, outer.kept, same, same, "")
    memory, work, load_one, store_one = outer.memory, outer.work, outer.load, outer.store
    mark = mark_of(work)
    load_row, store_row = moves(outer)
    emit_marks = moves(DType(types.int64, mark, types.int64, same, same, "")).store_row
    along, along_table, across, double = argmax_passes(work)
    width, fill, zero = vec(work, work, "").width, outer.lowest, work(0)
    writes_indices, gathers, scatters = verb == "indices", verb == "jvp", verb == "vjp"

    @compiled
    def clear(s, q, row, start, reach, dilation):
        """A row of positions `start` and on, none of which is there yet."""
        noinline()
        for c in range(reach + width):
            p = start + c
            s[row + c] = fill
            # Before the row: the first cell that follows in windows with this dilation.
            q[row + c] = mark(p if p >= 0 else p % dilation)

    @compiled
    def along_axis(x, s, q, plan, base, rows, columns):
        """The winners of outputs from_j … to_j of each row, at positions low … high of the first axis."""
        noinline()
        low, high, lines = rows
        from_j, to_j, from_p, to_p = columns
        rank, row, place = plan.rank, plan.row, 0
        w_axis = plan.axes[rank - 1]
        n, far, table = w_axis.in_len, w_axis.x_stride, w_axis.windows
        stride, dilation, size = w_axis.stride, w_axis.dilation, w_axis.taps
        outputs, work_row = to_j - from_j, row + plan.row_size + SLACK
        start, reach = from_p, to_p - from_p
        if size > 0:
            start = w_axis.origin + stride * from_j
            reach = stride * (outputs - 1) + dilation * (size - 1) + 1
            from_p, to_p = max(from_p, start), min(to_p, start + reach)
            clear(s, q, row, start, reach, dilation)
        for number in range((high - low) * lines):
            position, line = low + number // lines, number % lines
            at = base + input_line(plan, line, 0)
            if rank > 1:
                at += position * plan.axes[0].x_stride
            to = row + from_p - start
            load_row(x, at + from_p * far, far, s, to, to_p - from_p, fill)
            before = (position * lines + line) * n
            if size == 0:
                along_table(s, q, row - start, table, place, from_j, to_j, before)
            else:
                runs, done = row, 1
                while 2 * done <= size:
                    count = reach - (2 * done - 1) * dilation
                    double(s, q, runs, work_row, count, done * dilation)
                    runs, done = work_row, 2 * done
                rest = (size - done) * dilation
                along(s, q, runs, place, outputs, stride, rest, before)
            place += outputs

    @compiled
    def across_axis(s, q, plan, axis, at, held, outputs, target):
        """Outputs first … last of an axis, from rows of `span` cells at positions low … low + n."""
        noinline()
        low, n = held
        first, last = outputs
        to, span = target
        entry = plan.axes[axis]
        table, size, step = entry.windows, entry.taps, entry.dilation * span
        done, joins = 1, 1
        while 2 * done <= size:
            done, joins = 2 * done, joins + entry.stride
        if joins >= size - 1:  # for each output, by doubling and one by one; or windows lie anyhow
            for i in range(first, last):
                w, place = table[i], to + (i - first) * span
                row = at + (w.start - low) * span
                across(s, q, row, w.step * span, w.in_bounds, place, span)
            return
        done = 1
        while done <= size:
            for i in range(first, last):
                w = table[i]
                count, row = w.in_bounds, at + (w.start - low) * span
                if done <= count < 2 * done:
                    rest = (count - done) * w.step * span
                    across(s, q, row, rest, 2, to + (i - first) * span, span)
            double(s, q, at, at, n * span - done * step, done * step)
            done *= 2

    @compiled
    def scatter(y, at, far, q, k, count, sums, slab):
        """Add the gradients of a row of outputs to the sums of their winners, in order.

        Neighbours often have the same winner: its sum is put back when another one comes.
        """
        noinline()
        below, above = slab
        winner, total = -1, zero
        for j in range(count):
            flat = q[k + j]
            if flat != winner:
                if below <= winner < above:
                    sums[winner - below] = total
                winner, total = flat, zero
                if below <= winner < above:
                    total = sums[winner - below]
            total += load_one(y[at + j * far])
        if below <= winner < above:
            sums[winner - below] = total

    @intrinsics.kernel
    def win(x_at, y_at, z_at, scratch_at, plan_at, cells, first, last):
        plan, s = plan_of(plan_at), pointer(scratch_at, work)
        q = pointer(scratch_at + 8 * cells, mark)
        x, y = pointer(x_at, memory), pointer(y_at, memory)
        indices, dx = pointer(z_at, types.int64), pointer(z_at, memory)
        sums = pointer(scratch_at + 16 * cells, work)
        rank = plan.rank
        w_axis = plan.axes[rank - 1]
        n, m, inner = w_axis.in_len, w_axis.out_len, plan.axes[0].flat_stride
        per_item = plan.slab_count if scatters else plan.tiles
        dense = w_axis.z_stride == 1
        for axis in range(rank - 1):
            entry = plan.axes[axis]
            dense &= entry.z_stride == entry.flat_stride
        for unit in range(first, last):
            item, part = unit // per_item, unit % per_item
            base, out = batch_offset(plan, item, 0), batch_offset(plan, item, 1)
            third = batch_offset(plan, item, 2)
            begin, end = part * plan.tile, min(plan.axes[0].out_len, (part + 1) * plan.tile)
            below, above = 0, 0
            if scatters:
                slab = plan.slabs[part]
                begin, end = slab.first, slab.last
                below, above = slab.low * inner, slab.high * inner
                for c in range(above - below):
                    sums[c] = zero
            # A slab's readers are taken a tile at a time, in order.
            for tile in range(begin, end, plan.tile):
                until = min(end, tile + plan.tile)
                low, high, lines, from_j, to_j, from_p, to_p = 0, 1, 1, 0, m, 0, n
                if rank == 1:
                    from_j, to_j = tile, until
                    from_p, to_p = receptive_range(plan, 0, tile, until)
                else:
                    low, high = receptive_range(plan, 0, tile, until)
                    for axis in range(1, rank - 1):
                        lines *= plan.axes[axis].in_len
                along_axis(x, s, q, plan, base, (low, high, lines), (from_j, to_j, from_p, to_p))
                outputs = to_j - from_j
                span, here, there = outputs, 0, plan.second_area
                for axis in range(rank - 2, 0, -1):
                    entry = plan.axes[axis]
                    lines //= entry.in_len
                    for line in range((high - low) * lines):
                        at = here + line * entry.in_len * span
                        to = there + line * entry.out_len * span
                        across_axis(
                            s, q, plan, axis, at, (0, entry.in_len), (0, entry.out_len), (to, span)
                        )
                    span *= entry.out_len
                    here, there = there, here
                first_row, last_row = 0, 1
                if rank > 1:
                    first_row, last_row = tile, until
                    across_axis(
                        s, q, plan, 0, here, (low, high - low), (tile, until), (there, span)
                    )
                    here = there
                for i in range(first_row, last_row):
                    # `outputs` at a time: output rows of the last axis, which may have any stride.
                    for c in range(0, span, outputs):
                        result = here + (i - first_row) * span + c
                        rest, place = c // outputs, from_j * w_axis.y_stride
                        for axis in range(rank - 2, 0, -1):
                            entry = plan.axes[axis]
                            place += (rest % entry.out_len) * entry.y_stride
                            rest //= entry.out_len
                        if rank > 1:
                            place += i * plan.axes[0].y_stride
                        if writes_indices:
                            store_row(s, result, y, out + place, outputs)
                            emit_marks(q, result, indices, out + place, outputs)
                        if gathers:
                            for j in range(outputs):
                                flat = q[result + j]
                                offset = flat if dense else place_of(plan, flat, 2)
                                tangent = load_one(dx[third + offset])
                                y[out + place + j * w_axis.y_stride] = store_one(tangent + zero)
                        if scatters:
                            at, far = out + place, w_axis.y_stride
                            scatter(y, at, far, q, result, outputs, sums, (below, above))
            if scatters:
                store_row(sums, 0, dx, third + below, above - below)

    return win
