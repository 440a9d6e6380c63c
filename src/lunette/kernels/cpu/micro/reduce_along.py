"""Windows along the last axis, of rows that are read where they lie, for strides 1 and 2.

A vector of outputs at a time. Where a row has outputs enough, those whose windows lie within it go
by plain loads and the others cell by cell; where it has not, and always for narrow elements, every
load has a mask that leaves out what lies outside the row.
"""

# Numba types the kernels, not mypy; `v != v` is how a NaN is known.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"
# ruff: noqa: PLR0124

from __future__ import annotations

from functools import cache
from typing import Any

from lunette.kernels.cpu.jit.intrinsics import alwaysinline, compiled, noinline
from lunette.kernels.cpu.micro.rows import add, maximum
from lunette.kernels.cpu.simd.half import DType
from lunette.kernels.cpu.simd.prefetch import prefetch_for
from lunette.kernels.cpu.simd.vec import vec

__all__ = ["along_input"]

NARROW = 16
"""Bits of elements, or fewer, whose rows go by masks alone."""


@cache
def along_input(dtype_of: DType, operation: str) -> Any:
    """`along` that reads rows of the input in place, for windows of stride 1 or 2.

    With the operation `max_num`, which takes numbers on trust, it gives non-zero after a NaN.
    """
    from_x, here = (
        vec(dtype_of.memory, dtype_of.work, dtype_of.half),
        vec(dtype_of.work, dtype_of.work, ""),
    )
    width, load, store = here.width, from_x.load, here.store
    concat_even, concat_odd, join = here.concat_even, here.concat_odd, getattr(here, operation)
    slide_down_1, slide_down_2, isnan_bits = here.slide_down_1, here.slide_down_2, from_x.isnan_bits
    load_n, store_n, broadcast = from_x.load_n, here.store_n, here.broadcast
    fill = dtype_of.work(0) if operation == "add" else dtype_of.lowest
    narrow = dtype_of.work.bitwidth <= NARROW
    join_two = add if operation == "add" else maximum
    summing, zero, read = operation == "add", dtype_of.work(0), dtype_of.load
    watch = operation == "max_num"

    @compiled
    def nonfinite(a, b):
        return isnan_bits(a, b) if watch else 0

    @compiled
    def general(x, p, stride, kernel):
        """A vector of windows of any size; nothing past the last cell is read: it may end the array."""
        if stride == 1:
            best = load(x, p)
            seen = nonfinite(best, best)
            for t in range(1, kernel):
                value = load(x, p + t)
                seen |= nonfinite(value, value)
                best = join(best, value)
            return best, seen
        a, b = load(x, p), load(x, p + width)
        best, seen = join(concat_even(a, b), concat_odd(a, b)), nonfinite(a, b)
        for t in range(2, kernel - 1, 2):
            a, b = load(x, p + t), load(x, p + t + width)
            seen |= nonfinite(a, b)
            best = join(join(best, concat_even(a, b)), concat_odd(a, b))
        if kernel % 2:
            p += kernel - 2
            a, b = load(x, p), load(x, p + width)
            seen |= nonfinite(a, b)
            best = join(best, concat_odd(a, b))
        return best, seen

    @compiled
    def by_two(x, p, s, q, begin, whole, three):
        """Windows of two or three cells, stride 2: what the next vector reads, it hands on."""
        a, b = load(x, p + 2 * begin), load(x, p + 2 * begin + width)
        seen, even, odd = nonfinite(a, b), concat_even(a, b), concat_odd(a, b)
        for j in range(begin, whole - width, width):
            a, b = load(x, p + 2 * j + 2 * width), load(x, p + 2 * j + 3 * width)
            prefetch_for(x, p + 2 * j)
            prefetch_for(x, p + 2 * j + width)
            seen |= nonfinite(a, b)
            more = concat_even(a, b)
            best = join(even, odd)
            if three:
                best = join(best, slide_down_1(even, more))
            store(s, q + j, best)
            even, odd = more, concat_odd(a, b)
        return seen

    @compiled
    def by_one(x, p, s, q, begin, whole):
        """Windows of three cells, stride 1."""
        a = load(x, p + begin)
        seen = nonfinite(a, a)
        for j in range(begin, whole - width, width):
            b = load(x, p + j + width)
            prefetch_for(x, p + j)
            seen |= nonfinite(b, b)
            store(s, q + j, join(join(a, slide_down_1(a, b)), slide_down_2(a, b)))
            a = b
        return seen

    @compiled
    def clamped(v):
        alwaysinline()
        return max(0, min(width, v))

    @compiled
    def part(x, at, p, n):
        """Cells p … p + width of a row of `n` that begins at `at`; `fill` outside the row."""
        alwaysinline()
        return load_n(x, at + p, clamped(-p), clamped(n - p), fill)

    @compiled
    def pairs(x, at, pitch, rows, n, s, to, outputs, p, size, three):
        """A vector of windows of two or three cells, stride 2, of each row."""
        alwaysinline()
        seen, third = 0, n if three else 0
        for r in range(rows):
            row = at + r * pitch
            prefetch_for(x, row + p)
            prefetch_for(x, row + p + width)
            a, b = part(x, row, p, n), part(x, row, p + width, n)
            c = part(x, row, p + 2 * width, third)
            even = concat_even(a, b)
            best = join(even, concat_odd(a, b))
            if three:
                best = join(best, slide_down_1(even, c))
                seen |= nonfinite(c, c)
            store_n(s, to + r * outputs, best, size)
            seen |= nonfinite(a, b)
        return seen

    @compiled
    def several(x, at, pitch, rows, n, s, to, outputs, p, size, stride, kernel):
        """A vector of windows of any size, of each row."""
        alwaysinline()
        seen = 0
        for r in range(rows):
            row = at + r * pitch
            prefetch_for(x, row + p)
            best = broadcast(fill)
            for t in range(p, p + kernel):
                a = part(x, row, t, n)
                seen |= nonfinite(a, a)
                if stride == 2:
                    b = part(x, row, t + width, n)
                    seen |= nonfinite(b, b)
                    a = concat_even(a, b)
                best = join(best, a)
            store_n(s, to + r * outputs, best, size)
        return seen

    @compiled
    def by_masks(x, at, pitch, rows, n, s, to, first, last, stride, origin, kernel):
        """`along` for rows of `n` cells, where vectors may reach past both ends of a row."""
        noinline()
        outputs, seen = last - first, 0
        for block in range(0, outputs, width):
            size, p, q = min(width, outputs - block), stride * (first + block) + origin, to + block
            if (stride == 2) & (kernel == 3):
                seen |= pairs(x, at, pitch, rows, n, s, q, outputs, p, size, True)
            elif (stride == 2) & (kernel == 2):
                seen |= pairs(x, at, pitch, rows, n, s, q, outputs, p, size, False)
            else:
                seen |= several(x, at, pitch, rows, n, s, q, outputs, p, size, stride, kernel)
        return seen

    @compiled
    def along(x, at, pitch, rows, n, s, to, first, begin, end, last, stride, origin, kernel, table):
        """s[to + j − first] = the fold of window j: stride·j + origin + t, t < kernel.

        So for each of `rows` of `n` cells, which begin `pitch` apart in x and follow each other in s. Outputs
        begin … end, whose windows lie in the row, go side by side; the others one by one.
        """
        noinline()
        if narrow | (begin == last):
            return by_masks(x, at, pitch, rows, n, s, to, first, last, stride, origin, kernel)
        whole, tail = end - (end - begin) % width, end - width
        outputs, seen = last - first, 0
        for r in range(rows):
            p, q = at + r * pitch + origin, to + r * outputs - first
            block = begin
            if (whole - begin > width) & (stride == 2) & (kernel == 3):
                seen |= by_two(x, p, s, q, begin, whole, True)
                block = whole - width
            elif (whole - begin > width) & (stride == 2) & (kernel == 2):
                seen |= by_two(x, p, s, q, begin, whole, False)
                block = whole - width
            elif (whole - begin > width) & (stride == 1) & (kernel == 3):
                seen |= by_one(x, p, s, q, begin, whole)
                block = whole - width
            while block < end:
                j = min(block, tail)
                value, more = general(x, p + stride * j, stride, kernel)
                prefetch_for(x, p + stride * j)
                if stride == 2:
                    prefetch_for(x, p + stride * j + width)
                store(s, q + j, value)
                seen |= more
                block += width
        for edge in range((begin - first) + (last - end)):
            j = first + edge if first + edge < begin else edge - (begin - first) + end
            start, stop = table[j].start, table[j].stop
            for r in range(rows):
                value = zero if summing else read(x[at + r * pitch + start])
                for p in range(start + (not summing), stop):
                    value = join_two(value, read(x[at + r * pitch + p]))
                s[to + r * outputs + j - first] = value
                if watch:
                    seen |= value != value
        return seen

    return along
