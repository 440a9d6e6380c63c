"""A max over three axes or more whose windows share no plane: each plane is pooled as it comes, onto what is there.

A plane is the last two axes, with windows of two cells along a row. Planes of one window lie apart; read one after
the other they are in the order of memory, which the processor foresees. Results wait in a near cache until the
last plane of their windows has come, so there must not be many.

As in `folded_rows`, cells are folded in another order than the first winner's: an item is flagged where that may show.
"""

# Numba types the kernels, not mypy.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

from functools import cache
from typing import Any

from numba import types

from lunette.kernels.cpu.jit import intrinsics
from lunette.kernels.cpu.jit.intrinsics import alwaysinline, compiled, noinline, pointer
from lunette.kernels.cpu.micro.fold import folding
from lunette.kernels.cpu.micro.guards import guards
from lunette.kernels.cpu.micro.index import batch_offset, list_offsets, rows_of_planes
from lunette.kernels.cpu.micro.row_windows import alike
from lunette.kernels.cpu.schedule.records import PLAN
from lunette.kernels.cpu.simd.half import INFINITY
from lunette.kernels.cpu.simd.prefetch import prefetch
from lunette.kernels.cpu.simd.vec import vec

__all__ = ["kernel"]

plan_of = PLAN.at


@cache
def kernel(dtype: str) -> Any:
    """The kernel for a dtype. No window may be empty."""
    outer, fill, safe, _, negative, _ = folding(dtype, "max_num")
    memory, work, kept = outer.memory, outer.work, outer.kept
    from_x, here, to_y = (
        vec(memory, work, outer.half),
        vec(work, work, ""),
        vec(kept, work, outer.half),
    )
    width, max_num, concat_even, concat_odd = (
        here.width,
        here.max_num,
        here.concat_even,
        here.concat_odd,
    )
    load, load_n = from_x.load, from_x.load_n
    load_y, load_y_part, store, store_n = to_y.load, to_y.load_n, to_y.store, to_y.store_n
    all_true, both, failed, _, and_not_zero, *_ = guards(work, outer.half)
    size_of, halves = memory.bitwidth // 8, outer.half in INFINITY

    @compiled
    def onto(y, to, value, size, begun):
        """Store a vector of maxima, or `size` of its lanes: where some have `begun`, the larger of both. Gives it."""
        alwaysinline()
        if size < width:
            if begun:
                value = max_num(load_y_part(y, to, 0, size, fill), value)
            store_n(y, to, value, size)
        else:
            if begun:
                value = max_num(load_y(y, to), value)
            store(y, to, value)
        return value

    @compiled
    def two(x, p, cells):
        """Two vectors of a row that has so many cells from there on."""
        alwaysinline()
        if cells >= 2 * width:
            return load(x, p), load(x, p + width)
        return load_n(x, p, 0, cells, fill), load_n(x, p + width, 0, cells - width, fill)

    @compiled
    def pool(read, written, asks):
        """`count` rows of maxima, each of two rows of a plane: the first `down` further each time, the `second` so far from it.

        Gives whether a lane must not be trusted, whether a result is zero, and the bytes asked for.
        """
        noinline()
        x, at, second, down, n = read
        y, to, m, count, begun = written
        x_at, prefetched, read_to, share = asks
        trusted, others, nonzero = all_true(), all_true(), all_true()
        for _ in range(count):
            read_to += share
            prefetched = prefetch(x_at, prefetched, read_to)
            for j in range(0, m, width):
                p, cells = at + 2 * j, n - 2 * j
                a, b = two(x, p, cells)
                c, d = two(x, p + second, cells)
                trusted, others = safe(trusted, a, c), safe(others, b, d)
                a, b = max_num(a, c), max_num(b, d)
                best = onto(y, to + j, max_num(concat_even(a, b), concat_odd(a, b)), m - j, begun)
                nonzero = and_not_zero(nonzero, best)
            at += down
            to += m
        return failed(both(trusted, others)), failed(nonzero), prefetched

    @compiled
    def pool_plane(arrays, plan, source, to, rows, from_first, asks):
        """All rows of maxima of a window's plane number `plane` of `count`.

        Gives whether a lane must not be trusted, and whether a −0 is where the last plane leaves a zero.
        """
        alwaysinline()
        x, y = arrays
        base, planes, plane, count = source
        x_at, read_to, share = asks
        w_axis, h_axis = plan.axes[plan.rank - 1], plan.axes[plan.rank - 2]
        n, m, lines, far = w_axis.in_len, w_axis.out_len, h_axis.out_len, h_axis.x_stride
        at, line, prefetched = base + planes[plane], 0, read_to
        seen = mixed = False
        while line < lines:
            w = h_axis.windows[line]
            start, length = at + w.start * far, w.in_bounds
            # A single row is its own second.
            second = w.step * far if length > 1 else 0
            taken, down = from_first if line == 0 else alike(plan, line, lines - line, False)
            read = (x, start, second, down * far, n)
            written = (y, to, m, taken, plane > 0)
            nonfinite, zero, prefetched = pool(read, written, (x_at, prefetched, read_to, share))
            if zero & (plane == count - 1):
                rows_of_planes(planes, count, second, length, rows, False)
                for t in range(taken):
                    there = base + start - at + t * down * far
                    mixed |= negative(x, there, rows, count * length, n)
            seen |= nonfinite
            line, to, read_to = line + taken, to + taken * m, read_to + taken * share
        return seen, mixed

    @intrinsics.kernel
    def pool_planes(x_at, y_at, z_at, scratch_at, plan_at, flags_at, first, last):
        plan, x, y = plan_of(plan_at), pointer(x_at, memory), pointer(y_at, kept)
        flags = pointer(flags_at, types.uint8)
        planes = pointer(scratch_at + plan.lists, types.int64)
        rows = pointer(scratch_at + plan.lists + 24 * plan.list_size, types.int64)
        rank = plan.rank
        w_axis, h_axis = plan.axes[rank - 1], plan.axes[rank - 2]
        n, lines, between = w_axis.in_len, h_axis.out_len, 1
        for axis in range(1, rank - 2):
            between *= plan.axes[axis].out_len
        results = lines * w_axis.out_len
        row_bytes = h_axis.in_len * n // lines * size_of if plan.row_bytes > 0 else 0
        from_first = alike(plan, 0, lines, False)
        for unit in range(first, last):
            item, tile = unit // plan.folded_tiles, unit % plan.folded_tiles
            base, target = batch_offset(plan, item, 0), batch_offset(plan, item, 1)
            seen = mixed = False
            begin = tile * plan.folded_tile
            end = min(plan.axes[0].out_len, begin + plan.folded_tile)
            # In the order of memory: a position of the first axis, then the windows on the axes after it.
            i, member, output = begin, 0, begin * between
            while i < end:
                members = plan.axes[0].windows[i].in_bounds
                count, _ = list_offsets(plan, rank - 2, output, planes, plan.list_size)
                share, to = count // members, target + output * results
                for plane in range(member * share, (member + 1) * share):
                    asks = (x_at, (base + planes[plane]) * size_of, row_bytes)
                    nonfinite, found = pool_plane(
                        (x, y), plan, (base, planes, plane, count), to, rows, from_first, asks
                    )
                    seen |= nonfinite
                    mixed |= found
                output += 1
                if output == (i + 1) * between:
                    member += 1
                    if member == members:
                        i, member = i + 1, 0
                    output = i * between
            if seen:
                flags[item] = 1
            if mixed:  # of halves no quick kernel knows what to do with a −0
                flags[item if halves else plan.items + item] = 1

    return pool_planes
