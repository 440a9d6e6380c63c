"""The rows of a window folded into one, then its positions: values of small windows with channels last.

Where windows share few positions, all cells of one are folded at once.
It serves what `folded_rows` does, where the channels of a position lie side by side in memory, and positions of a row
after each other. What it flags, and the order in which a mean adds, are the same.
"""

# Numba types the kernels, not mypy.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

from functools import cache
from typing import Any

from numba import types

from lunette.kernels.cpu.jit import intrinsics
from lunette.kernels.cpu.jit.intrinsics import alwaysinline, compiled, noinline, pointer
from lunette.kernels.cpu.micro.divisors import cells_of_row
from lunette.kernels.cpu.micro.fold import folding
from lunette.kernels.cpu.micro.guards import guards
from lunette.kernels.cpu.micro.index import batch_offset, list_offsets, receptive_range
from lunette.kernels.cpu.micro.sliding_nhwc import sliding
from lunette.kernels.cpu.schedule.records import PLAN
from lunette.kernels.cpu.schedule.slots import DIRECT
from lunette.kernels.cpu.simd.half import INFINITY
from lunette.kernels.cpu.simd.prefetch import (
    EVERY_ACCESS,
    PAGE_INTERLEAVED,
    prefetch,
    prefetch_taps,
)
from lunette.kernels.cpu.simd.streaming import stream_fence
from lunette.kernels.cpu.simd.vec import vec
from lunette.kernels.cpu.tuning import LINE

__all__ = ["kernel"]

plan_of = PLAN.at

AT_ONCE = 128
"""Cells that are folded from one asking for memory to the next."""

FAR_APART = 1024
"""Bytes of a position from which processors that are not always asked do not foresee the next ones, where several are read at once."""

MOST_AT_ONCE = 16
"""Cells of a window that are folded at once, at most. More are too far apart: rows of them are folded in the order of memory."""


@compiled
def at_once_gains(kernel, stride, rows):
    """Whether windows share so few positions, and have so few cells, that to fold all of one at once takes fewer loads and stores."""
    alwaysinline()
    return ((kernel - stride) * rows <= kernel + stride) & (kernel * rows <= MOST_AT_ONCE)


@cache
def kernel(dtype: str, operation: str) -> Any:
    """The kernel of an operation, `max_num` or `add`, for a dtype. No window of a max may be empty."""
    summing = operation == "add"
    outer, fill, safe, fold, negative, end = folding(dtype, operation)
    memory, work, kept = outer.memory, outer.work, outer.kept
    here = vec(work, work, "")
    width, load, join, broadcast = here.width, here.load, getattr(here, operation), here.broadcast
    read = vec(memory, work, outer.half).load
    all_true, _, failed, *_ = guards(work, outer.half)
    size_of, halves = memory.bitwidth // 8, outer.half in INFINITY
    slide = sliding(dtype, operation)

    @compiled
    def positions(s, p, far, count):
        """The fold of a vector at each of `count` positions, `far` apart."""
        alwaysinline()
        best = load(s, p)
        if count == 3:
            return join(join(best, load(s, p + far)), load(s, p + 2 * far))
        for _ in range(1, count):
            p += far
            best = join(best, load(s, p))
        return best

    @compiled
    def along(s, low, wide, table, outputs, factors, target):
        """y[to + j·wide + c] = the fold of window j, first ≤ j < last, of lane c of positions `low` … in s.

        Gives whether a result is zero.
        """
        noinline()
        first, last = outputs
        divisors, factor = factors
        y, to, streaming = target
        lead, trusted = broadcast(factor), all_true()
        for j in range(first, last):
            w = table[j]
            p, far, count, at = (
                (w.start - low) * wide,
                w.step * wide,
                w.in_bounds,
                j * wide,
            )
            for vector in range(0, wide, width):
                # The last vector ends with the position, so it may repeat some lanes of the one before.
                c = min(vector, max(0, wide - width))
                value = broadcast(fill)
                if count > 0:
                    value = positions(s, p + c, far, count)
                trusted = end(
                    value, divisors, at + c, lead, y, to + at + c, wide - c, streaming, trusted
                )
        return failed(trusted)

    @compiled
    def two_by_two(x, p, far, one, two, trusted):
        """The fold of a vector at two positions of two rows; the lanes of `trusted` where none is a NaN."""
        alwaysinline()
        a, b = read(x, p + one), read(x, p + two)
        d, e = read(x, p + far + one), read(x, p + far + two)
        return join(join(a, b), join(d, e)), safe(safe(trusted, a, b), d, e)

    @compiled
    def three_by_three(x, p, far, one, two, three, trusted):
        """The same at three positions of three rows."""
        alwaysinline()
        best = broadcast(fill)
        for t in range(3):
            q = p + t * far
            a, b, d = read(x, q + one), read(x, q + two), read(x, q + three)
            trusted = safe(safe(trusted, a, b), d, d)
            column = join(join(a, b), d)
            best = column if t == 0 else join(best, column)
        return best, trusted

    @compiled
    def any_cells(x, p, far, taps, rows, count, trusted):
        """The same at any positions of any rows."""
        alwaysinline()
        best = broadcast(fill)
        for t in range(taps):
            column = read(x, p + t * far + rows[0])
            trusted = safe(trusted, column, column)
            for r in range(1, count):
                a = read(x, p + t * far + rows[r])
                trusted, column = safe(trusted, a, a), join(column, a)
            best = column if t == 0 else join(best, column)
        return best, trusted

    @compiled
    def at_once(read_from, written, asks, table, first, last):
        """`along` of windows whose rows are not folded before: each cell is read where it lies.

        Asks are the address of x, bytes asked for and reached, and the share of a window; and how many positions of each
        row are asked for, as many as are new to a window. Gives whether a lane must not be trusted, whether a result is zero, and the bytes asked for.
        """
        noinline()
        x, base, rows, count, wide = read_from
        x_at, prefetched, read_to, share, asked_for = asks
        divisors, factor, y, to, streaming = written
        lead, nonzero, trusted = broadcast(factor), all_true(), all_true()
        one, two, three = rows[0], rows[1] if count > 1 else 0, rows[2] if count > 2 else 0
        for j in range(first, last):
            w, at = table[j], j * wide
            p, far, taps = base + w.start * wide, w.step * wide, w.in_bounds
            if (share > 0) & (asked_for == 0):
                read_to += share
                prefetched = prefetch(x_at, prefetched, read_to)
            for vector in range(0, wide, width):
                # The last vector ends with the position, so it may repeat some lanes of the one before.
                c = min(vector, wide - width)
                if asked_for > 0:
                    prefetch_taps(x_at, p + c, rows, count, wide, asked_for, size_of)
                if (taps == 2) & (count == 2):
                    value, trusted = two_by_two(x, p + c, far, one, two, trusted)
                elif (taps == 3) & (count == 3):
                    value, trusted = three_by_three(x, p + c, far, one, two, three, trusted)
                else:
                    value, trusted = any_cells(x, p + c, far, taps, rows, count, trusted)
                nonzero = end(
                    value, divisors, at + c, lead, y, to + at + c, width, streaming, nonzero
                )
        return failed(trusted), failed(nonzero), prefetched

    @intrinsics.kernel
    def fold_nhwc(x_at, y_at, z_at, scratch_at, plan_at, flags_at, first, last):
        plan, s = plan_of(plan_at), pointer(scratch_at, work)
        x, y = pointer(x_at, memory), pointer(y_at, kept)
        flags = pointer(flags_at, types.uint8)
        rows = pointer(scratch_at + plan.lists, types.int64)
        rank, divisors, wide = plan.rank, pointer(plan.divisors, work), plan.channels
        w_axis = plan.axes[rank - 1]
        m, table, together = w_axis.out_len, w_axis.windows, plan.beside
        kernel, stride, whole, asked_for = w_axis.taps, w_axis.stride, wide >= width, 0
        each = EVERY_ACCESS & (plan.out_of_cache != 0)
        if (
            (not PAGE_INTERLEAVED)
            & (plan.out_of_cache != 0)
            & (EVERY_ACCESS | (wide * size_of >= FAR_APART))
        ):
            asked_for = min(kernel, stride)
        n, origin = w_axis.in_len, w_axis.origin
        slides = whole & (kernel == 3) & (stride == 1) & (w_axis.dilation == 1)
        across = 1
        for axis in range(1, rank - 1):
            across *= plan.axes[axis].out_len
        row_bytes, streaming = (
            plan.row_bytes * size_of,
            (plan.stream == DIRECT) & (y_at % LINE == 0),
        )
        for unit in range(first, last):
            item, tile = unit // plan.folded_tiles, unit % plan.folded_tiles
            base, target, seen, mixed = (
                batch_offset(plan, item, 0),
                batch_offset(plan, item, 1),
                False,
                False,
            )
            begin, stop = (
                tile * plan.folded_tile * across,
                min(plan.axes[0].out_len, (tile + 1) * plan.folded_tile) * across,
            )
            prefetched = base * size_of + begin * row_bytes
            for row in range(begin, stop):
                count, _ = list_offsets(plan, rank - 1, row, rows, plan.list_size)
                factor = work(1)
                if summing:
                    factor = work(cells_of_row(plan, row))
                to, read_to = target + row * m * wide, base * size_of + row * row_bytes
                for j in range(0, m, together):
                    after = min(m, j + together)
                    low, high = receptive_range(plan, rank - 1, j, after)
                    at, cells = base + low * wide, (high - low) * wide
                    start, share = read_to + row_bytes * j // m, row_bytes * (after - j) // m
                    if slides & (count > 0):
                        slid_from = (x, base, rows, count, wide, n, origin)
                        written = (divisors, factor, y, to, streaming)
                        asks_at = x_at if asked_for > 0 else 0
                        nonfinite, zero = slide(slid_from, written, asks_at, j, after)
                        seen |= nonfinite
                    elif whole & (count > 0) & at_once_gains(kernel, stride, count):
                        read_from = (x, base, rows, count, wide)
                        written = (divisors, factor, y, to, streaming)
                        asks = (x_at, prefetched, start, row_bytes // m, asked_for)
                        nonfinite, zero, prefetched = at_once(
                            read_from, written, asks, table, j, after
                        )
                        seen |= nonfinite
                    else:
                        for c in range(0, cells if count > 0 else 0, AT_ONCE):
                            some = min(AT_ONCE, cells - c)
                            if each:
                                vectors = -(-some // width)
                                prefetch_taps(x_at, at + c, rows, count, width, vectors, size_of)
                            elif row_bytes > 0:
                                prefetched = prefetch(
                                    x_at, prefetched, start + share * (c + some) // cells
                                )
                            seen |= fold(x, at + c, rows, count, some, s, c)
                        for c in range(cells if count == 0 else 0):
                            s[c] = fill
                        zero = along(
                            s, low, wide, table, (j, after), (divisors, factor), (y, to, streaming)
                        )
                    if zero:
                        mixed |= negative(x, at, rows, count, cells)
            if seen:
                flags[item] = 1
            if mixed:  # of halves no quick kernel knows what to do with a −0
                flags[item if halves else plan.items + item] = 1
        stream_fence()

    return fold_nhwc
