"""Who wins each window of a max where channels lie side by side: vectors of channels, cell by cell.

The cells of a window come in row-major order, so the first of equals and the first NaN stay. A mark is the winner's place
in the window's box of taps, as in `offsets`, or its flat position.
"""

# Numba types the kernels, not mypy.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

from functools import cache
from typing import Any

from numba import types

from lunette.kernels.cpu.jit import intrinsics
from lunette.kernels.cpu.jit.intrinsics import alwaysinline, compiled, pointer
from lunette.kernels.cpu.micro.argmax_passes import mark_of
from lunette.kernels.cpu.micro.index import batch_offset, list_offsets, list_tap_ids, skipped
from lunette.kernels.cpu.schedule.records import PLAN
from lunette.kernels.cpu.simd.half import dtype_of
from lunette.kernels.cpu.simd.prefetch import EVERY_ACCESS, PAGE, prefetch, prefetch_line
from lunette.kernels.cpu.simd.vec import vec

__all__ = ["kernel"]

plan_of = PLAN.at


@cache
def kernel(dtype: str, verb: str) -> Any:
    """The kernel of a verb for a dtype whose vectors have at most 16 numbers; there are as many channels, and no window is empty.

    Array 0 is x. `indices` writes values to array 1 and flat positions to array 2, `places` positions alone; `kept` values and
    marks, `offsets` marks alone; `jvp` reads the tangent from array 2 and writes array 1.
    """
    outer = dtype_of(dtype, False)
    memory, work = outer.memory, outer.work
    mark = mark_of(work)
    from_x, here = vec(memory, work, outer.half), vec(work, work, "")
    marks, bytes_, places = (
        vec(mark, mark, ""),
        vec(types.uint8, mark, ""),
        vec(types.int64, mark, ""),
    )
    width, load, store, add = here.width, from_x.load, from_x.store, here.add
    maximum, select_maximum, broadcast, spread_mark = (
        here.maximum,
        here.select_maximum,
        here.broadcast,
        marks.broadcast,
    )
    store_byte, store_place, add_mark = bytes_.store, places.store, marks.add
    zero, size_of = work(0), memory.bitwidth // 8
    indexes, follows, writes = (
        verb in ("indices", "places"),
        verb == "jvp",
        verb in ("indices", "kept"),
    )

    @compiled
    def there(dx, p, code):
        """What goes with a cell: its tangent, or its mark."""
        alwaysinline()
        return load(dx, p) if follows else spread_mark(mark(code))

    @compiled
    def joined(x, dx, at, to, code, best, with_it):
        """The winner so far and a later cell."""
        alwaysinline()
        value = load(x, at)
        with_it = select_maximum(best, value, with_it, there(dx, to, code))
        return maximum(best, value), with_it

    @compiled
    def one(source, cells, columns):
        """The winner of a window of vectors, and what goes with it.

        Cells are at p + rows[r] + t·far; tangents at q + others[r] + t·far_z; marks are codes[r] + t·apart.
        """
        alwaysinline()
        x, dx, p, q = source
        rows, others, codes, count = cells
        members, far, far_z, apart = columns
        a, u = load(x, p + rows[0]), there(dx, q + others[0], codes[0])
        for r in range(count):
            at, to, code = p + rows[r], q + others[r], codes[r]
            for t in range(0 if r > 0 else 1, members):
                a, u = joined(x, dx, at + t * far, to + t * far_z, code + t * apart, a, u)
        return a, u

    @compiled
    def four(source, cells, columns):
        """The same of four neighbouring vectors: none waits for the comparisons of another."""
        alwaysinline()
        x, dx, p, q = source
        rows, others, codes, count = cells
        members, far, far_z, apart = columns
        at, to, code = p + rows[0], q + others[0], codes[0]
        a, u = load(x, at), there(dx, to, code)
        b, v = load(x, at + width), there(dx, to + width, code)
        c, w = load(x, at + 2 * width), there(dx, to + 2 * width, code)
        d, z = load(x, at + 3 * width), there(dx, to + 3 * width, code)
        for r in range(count):
            at, to, code = p + rows[r], q + others[r], codes[r]
            for t in range(0 if r > 0 else 1, members):
                here, beside, number = at + t * far, to + t * far_z, code + t * apart
                a, u = joined(x, dx, here, beside, number, a, u)
                b, v = joined(x, dx, here + width, beside + width, number, b, v)
                c, w = joined(x, dx, here + 2 * width, beside + 2 * width, number, c, w)
                d, z = joined(x, dx, here + 3 * width, beside + 3 * width, number, d, z)
        return a, u, b, v, c, w, d, z

    @compiled
    def keep(y, z_at, to, best, with_it, lead):
        """A vector of results; marks are raised by `lead`."""
        alwaysinline()
        if writes:
            store(y, to, best)
        if follows:
            store(y, to, add(with_it, broadcast(zero)))
        elif indexes:
            with_it = add_mark(with_it, spread_mark(mark(lead)))
            store_place(pointer(z_at, types.int64), to, with_it)
        else:
            with_it = add_mark(with_it, spread_mark(mark(lead)))
            store_byte(pointer(z_at, types.uint8), to, with_it)

    @compiled
    def prefetch_four(array_at, p, rows, count, far, positions):
        """Ask for what is a page ahead of four vectors at each of some positions of some rows."""
        alwaysinline()
        for r in range(count):
            for t in range(positions):
                at = array_at + (p + rows[r] + t * far) * size_of + PAGE
                prefetch_line(at)
                prefetch_line(at + width * size_of)
                prefetch_line(at + 2 * width * size_of)
                prefetch_line(at + 3 * width * size_of)

    @intrinsics.kernel
    def win(x_at, y_at, z_at, scratch_at, plan_at, room, first, last):
        plan, rows = plan_of(plan_at), pointer(scratch_at, types.int64)
        x, y, dx = pointer(x_at, memory), pointer(y_at, memory), pointer(z_at, memory)
        rank, wide, most, lines = plan.rank, plan.channels, plan.list_size, plan.output_rows
        others = pointer(scratch_at + 8 * most, types.int64)
        codes = pointer(scratch_at + 16 * most, types.int64)
        taps = pointer(scratch_at + 24 * most, types.int64)
        w_axis = plan.axes[rank - 1]
        m, table, far, far_z, box = (
            w_axis.out_len,
            w_axis.windows,
            w_axis.x_stride,
            w_axis.z_stride,
            w_axis.box,
        )
        row_bytes = plan.row_bytes * size_of
        prefetched, stride, each = -1, w_axis.stride, EVERY_ACCESS & (plan.out_of_cache != 0)
        for unit in range(first, last):
            item, row = unit // lines, unit % lines
            base, third = batch_offset(plan, item, 0), batch_offset(plan, item, 2)
            count, _ = list_offsets(plan, rank - 1, row, rows, most)
            if not indexes:
                list_tap_ids(plan, rank - 1, row, taps)
                for r in range(count):
                    codes[r] = taps[r] * box
            # Results follow each other in memory, row by row.
            to, read_to = unit * m * wide, base * size_of + row * row_bytes
            if prefetched < 0:
                prefetched = read_to
            for j in range(m):
                w = table[j]
                start, step, members = w.start, w.step, w.in_bounds
                # Positions that are new to a window are asked for as they are read, or all in the order of memory.
                fresh = (min(stride, members) if stride > 0 else members) if each else 0
                if (row_bytes > 0) & (not each):
                    prefetched = prefetch(x_at, prefetched, read_to + row_bytes * (j + 1) // m)
                lead = start if indexes else skipped(w_axis, j)
                apart = step if indexes else 1
                at, third_at, step_z = base + start * far, third + start * far_z, step * far_z
                far_x, vector = step * far, 0
                while vector + 4 * width <= wide:
                    p, q, k = at + vector, third_at + vector, to + vector
                    if each:
                        prefetch_four(x_at, p, rows, count, far, fresh)
                        if follows:
                            prefetch_four(z_at, q, others, count, far_z, fresh)
                    a, u, b, v, d, f, h, i = four(
                        (x, dx, p, q), (rows, others, codes, count), (members, far_x, step_z, apart)
                    )
                    keep(y, z_at, k, a, u, lead)
                    keep(y, z_at, k + width, b, v, lead)
                    keep(y, z_at, k + 2 * width, d, f, lead)
                    keep(y, z_at, k + 3 * width, h, i, lead)
                    vector += 4 * width
                while vector < wide:
                    # The last vector ends with the position, so it may repeat some channels of the one before.
                    c = min(vector, wide - width)
                    p, q = at + c, third_at + c
                    a, u = one(
                        (x, dx, p, q), (rows, others, codes, count), (members, far_x, step_z, apart)
                    )
                    keep(y, z_at, to + c, a, u, lead)
                    vector += width
                to += wide

    return win
