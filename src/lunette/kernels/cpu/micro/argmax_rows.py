"""Rows of outputs of a max: who wins each window, neighbours side by side.

Rows of the input are read where they lie. A window's cells are taken in row-major order, and of equals
the first stays. Winners are numbers, in the integer as wide as a number of the arithmetic: marks, or places that become positions.
"""

# Numba types the kernels, not mypy.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from lunette.kernels.cpu.jit.intrinsics import alwaysinline, compiled, noinline
from lunette.kernels.cpu.micro.argmax_passes import mark_of
from lunette.kernels.cpu.micro.guards import guards
from lunette.kernels.cpu.micro.rows import least
from lunette.kernels.cpu.simd import ir_helpers
from lunette.kernels.cpu.simd.half import DType
from lunette.kernels.cpu.simd.shuffle import slide
from lunette.kernels.cpu.simd.strided import strided
from lunette.kernels.cpu.simd.vec import Vector, vec

__all__ = ["WinningRows", "in_row", "winning_rows"]


class WinningRows(NamedTuple):
    """`any_row` for all windows; `by_one` and `by_two` for two or three neighbouring cells, by stride.

    The two are for vectors of at most 16 numbers.
    """

    any_row: Any
    by_one: Any
    by_two: Any


@cache
def numbers(mark: Any) -> Any:
    """`counted(first, step)`: first, first + step, … in the lanes of a vector of marks."""
    count = vec(mark, mark, "").width

    @intrinsic  # type: ignore[untyped-decorator]
    def counted(context: Any, first: Any, step: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            kind = ir.VectorType(ir.IntType(mark.bitwidth), count)
            first, step = (ir_helpers.broadcast(builder, value, kind) for value in arguments)
            return builder.add(first, builder.mul(step, ir.Constant(kind, list(range(count)))))

        return Vector(mark, count)(mark, mark), generate

    return counted


@compiled
def in_row(p, n):
    """A bit for each of the positions p … p + 64 that is in a row of `n`."""
    alwaysinline()
    low, high = max(0, min(64, -p)), max(0, min(64, n - p))
    above = np.int64(0) if low == 64 else np.int64(-1) << low
    below = np.int64(-1) if high == 64 else (np.int64(1) << high) - 1
    return above & below


@cache
def winning_rows(outer: DType, writes: bool, places: bool) -> WinningRows:
    """The rows of a codec; where it `writes`, values are written beside the marks.

    With `places`, for numbers of four bytes or more, codes are places in the pooled axes from the window's own on,
    and flat positions are written, of int64, instead of marks.
    """
    memory, work = outer.memory, outer.work
    mark = mark_of(work)
    from_x, wide = vec(memory, work, outer.half), vec(mark, mark, "")
    here, bytes_ = vec(work, work, ""), vec(types.uint8, mark, "")
    kept = vec(types.int64, mark, "") if places else bytes_
    width, load, load_n, gather_strided = (
        from_x.width,
        from_x.load,
        from_x.load_n,
        from_x.gather_strided,
    )
    load_masked = from_x.load_masked
    broadcast, max_num, select_max_num = here.broadcast, here.max_num, here.select_max_num
    concat_even, concat_odd, slide_back = here.concat_even, here.concat_odd, slide(width - 1)
    store_y, store_y_part = from_x.store, from_x.store_n
    load_first, store_mark, store_mark_part = bytes_.load, kept.store, kept.store_n
    spread_mark, add_mark, multiply_mark = wide.broadcast, wide.add, wide.multiply
    counted = numbers(mark)
    all_true, both, failed, and_not_nan, *_ = guards(work, "")
    fill, every = least(work), strided(memory, work, outer.half)

    @compiled
    def cells(x, at, p, n, stride, inside):
        """Cells p, p + stride, … of a row of `n` that begins at `at`; `fill` outside it."""
        alwaysinline()
        if (stride == 2) & inside:
            return concat_even(load(x, at + p), load(x, at + p + width))
        if (stride != 1) & inside:
            return every(x, at + p, stride)
        if stride != 1:
            low, high = -(p // stride), -((p - n) // stride)
            low, high = max(0, min(width, low)), max(0, min(width, high))
            return gather_strided(x, at + p, stride, low, high, fill)
        if inside:
            return load(x, at + p)
        return load_n(x, at + p, max(0, min(width, -p)), max(0, min(width, n - p)), fill)

    @compiled
    def joined(best, where, value, code):
        """The winners so far, `code` being where a later value is; of equals the first stays."""
        alwaysinline()
        return max_num(best, value), select_max_num(best, value, where, code)

    @compiled
    def winners(x, at, rows, codes, count, p, n, stride, dilation, size, where, trusted):
        """The winners of a vector of windows; `where` has those of windows with nothing above −∞."""
        alwaysinline()
        best, one = broadcast(fill), spread_mark(mark(dilation if places else 1))
        inside = (p >= 0) & (p + stride * width + dilation * (size - 1) <= n)
        for r in range(count):
            code = spread_mark(mark(codes[r]))
            for t in range(size):
                value = cells(x, at + rows[r], p + t * dilation, n, stride, inside)
                trusted = and_not_nan(trusted, value, value)
                best, where = joined(best, where, value, code)
                code = add_mark(code, one)
        return best, where, trusted

    @compiled
    def keep(y, q, marks, k, best, where, left, lead, stride):
        """A vector of values and marks, or what is left of the row; the first window's place is `lead`."""
        alwaysinline()
        if places:
            where = add_mark(where, counted(mark(lead), mark(stride)))
        if left >= width:
            store_mark(marks, k, where)
            if writes:
                store_y(y, q, best)
        else:
            store_mark_part(marks, k, where, left)
            if writes:
                store_y_part(y, q, best, left)

    @compiled
    def any_row(
        x,
        at,
        rows,
        codes,
        count,
        p,
        n,
        stride,
        dilation,
        size,
        y,
        q,
        marks,
        k,
        firsts,
        columns,
        lead,
    ):
        """A row of outputs: values to y from q on, unless only marks are asked for; marks from k on.

        Windows have `size` cells of each of the rows at `rows` from `at` on, the first of which are
        taps `codes`; the first window has its first cell at position `p`, which is place `lead`. Gives whether a lane must
        not be trusted.
        """
        noinline()
        trusted = all_true()
        for c in range(0, columns, width):
            first = load_first(firsts, c)
            if places:
                first = multiply_mark(first, spread_mark(mark(dilation)))
            first = add_mark(first, spread_mark(mark(codes[0])))
            found = winners(
                x, at, rows, codes, count, p + stride * c, n, stride, dilation, size, first, trusted
            )
            best, where, trusted = found
            keep(y, q + c, marks, k + c, best, where, columns - c, lead + stride * c, stride)
        return failed(trusted)

    @compiled
    def of_pairs(a, b, d, e, long, code, trusted):
        """The winners among two or, if `long`, three cells of windows of stride 2.

        `a` and `b` have the first two cells of all windows, `d` and `e` the third ones.
        """
        alwaysinline()
        trusted = and_not_nan(trusted, a, b)
        best, where = joined(
            concat_even(a, b), spread_mark(code), concat_odd(a, b), spread_mark(code + mark(1))
        )
        if long:
            trusted = and_not_nan(trusted, d, e)
            best, where = joined(best, where, concat_even(d, e), spread_mark(code + mark(2)))
        return best, where, trusted

    @compiled
    def of_three(a, b, d, long, code, trusted):
        """The winners among two or, if `long`, three cells of windows of stride 1: `a`, `b` and `d`."""
        alwaysinline()
        trusted = and_not_nan(trusted, a, b)
        best, where = joined(a, spread_mark(code), b, spread_mark(code + mark(1)))
        if long:
            trusted = and_not_nan(trusted, d, d)
            best, where = joined(best, where, d, spread_mark(code + mark(2)))
        return best, where, trusted

    def short_rows(stride: int) -> Any:
        """Rows of windows of stride 1 or 2 and two or three neighbouring cells."""

        @compiled
        def plain(x, at, long, code, trusted):
            """The winners of one row's part of windows that are all inside; the first cell is at `at`."""
            alwaysinline()
            a = load(x, at)
            if stride == 1:
                b, d = load(x, at + 1), a
                if long:
                    d = load(x, at + 2)
                return of_three(a, b, d, long, code, trusted)
            b, d, e = load(x, at + width), a, a
            if long:
                d, e = load(x, at + 2), load(x, at + 2 + width)
            return of_pairs(a, b, d, e, long, code, trusted)

        @compiled
        def pair(x, at, long, code, trusted, others):
            """`plain` of two neighbouring vectors of windows.

            Of three cells, the first of a window is the last of the one before, so each cell is read once,
            and one vector before them.
            """
            alwaysinline()
            if stride == 1 or not long:
                d, u, trusted = plain(x, at, long, code, trusted)
                e, v, others = plain(x, at + stride * width, long, code, others)
                return d, u, e, v, trusted, others
            one, two = spread_mark(code), spread_mark(code + mark(1))
            three = spread_mark(code + mark(2))
            a, b = load(x, at + 1), load(x, at + 1 + width)
            trusted, odd = and_not_nan(trusted, a, b), concat_odd(a, b)
            d, u = joined(slide_back(load(x, at + 1 - width), odd), one, concat_even(a, b), two)
            d, u = joined(d, u, odd, three)
            a, b = load(x, at + 1 + 2 * width), load(x, at + 1 + 3 * width)
            others, after = and_not_nan(others, a, b), concat_odd(a, b)
            e, v = joined(slide_back(odd, after), one, concat_even(a, b), two)
            e, v = joined(e, v, after, three)
            return d, u, e, v, trusted, others

        @compiled
        def clipped(x, at, bits, long, code, trusted):
            """The same where only cells whose bits are set are inside."""
            alwaysinline()
            a, b_at = load_masked(x, at, bits, fill), 1 if stride == 1 else width
            b, d, e = load_masked(x, at + b_at, bits >> b_at, fill), a, a
            if long:
                d = load_masked(x, at + 2, bits >> 2, fill)
                e = load_masked(x, at + 2 + width, bits >> (2 + width), fill)
            if stride == 1:
                return of_three(a, b, d, long, code, trusted)
            return of_pairs(a, b, d, e, long, code, trusted)

        @compiled
        def short_row(x, at, rows, codes, count, p, n, long, y, q, marks, k, firsts, columns, lead):
            """As `any_row` for two or, if `long`, three neighbouring cells.

            Two vectors go together where they are inside.
            """
            alwaysinline()
            trusted, others, c, top = all_true(), all_true(), 0, spread_mark(mark(codes[0]))
            reach = 2 * stride * width + (1 if stride == 1 else 0) + long
            ahead = width - 1 if stride == 2 and long else 0
            while c < columns:
                position = p + stride * c
                a, b, i = broadcast(fill), broadcast(fill), add_mark(load_first(firsts, c), top)
                inside = (position >= ahead) & (position + reach <= n)
                if inside & (c + 2 * width <= columns):
                    j = add_mark(load_first(firsts, c + width), top)
                    for r in range(count):
                        place, code = at + position + rows[r], mark(codes[r])
                        d, u, e, v, trusted, others = pair(x, place, long, code, trusted, others)
                        a, i = joined(a, i, d, u)
                        b, j = joined(b, j, e, v)
                    place, d = lead + stride * c, c + width
                    keep(y, q + c, marks, k + c, a, i, width, place, stride)
                    keep(y, q + d, marks, k + d, b, j, width, place + stride * width, stride)
                    c += 2 * width
                else:
                    bits = in_row(position, n)
                    for r in range(count):
                        place, code = at + position + rows[r], mark(codes[r])
                        d, u, trusted = clipped(x, place, bits, long, code, trusted)
                        a, i = joined(a, i, d, u)
                    keep(y, q + c, marks, k + c, a, i, columns - c, lead + stride * c, stride)
                    c += width
            return failed(both(trusted, others))

        return short_row

    return WinningRows(any_row, short_rows(1), short_rows(2))
