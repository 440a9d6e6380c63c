"""Sums of long windows along a row, by doubling in registers.

Level b has the sum of the 2ᵇ cells from each position on. Levels up to four come of one walk along
the row: a vector and the next, moved by one, two, four and eight lanes. A window adds one sum of
each level that is a power of two in its length, the shortest first. Nothing is subtracted.
"""

# Numba types the kernels, not mypy.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

from functools import cache
from typing import Any

from lunette.kernels.cpu.jit.intrinsics import alwaysinline, compiled, noinline
from lunette.kernels.cpu.micro.rows import clipped, passes
from lunette.kernels.cpu.simd.half import DType
from lunette.kernels.cpu.simd.prefetch import prefetch_for
from lunette.kernels.cpu.simd.shuffle import slide
from lunette.kernels.cpu.simd.streaming import stream
from lunette.kernels.cpu.simd.vec import vec
from lunette.kernels.cpu.tuning import LEVELS, NEAR, SLACK

__all__ = ["brief", "log_step", "scaled"]

TOP = 1 << (LEVELS - 1)
"""Cells of the last level that is kept in registers."""


@cache
def log_step(dtype_of: DType) -> Any:
    """Sums of windows along a row in memory of a codec."""
    here, zero = vec(dtype_of.work, dtype_of.work, ""), dtype_of.work(0)
    width, broadcast, cells = here.width, here.broadcast, clipped(dtype_of, zero)
    load_s, store, store_n, add = here.load, here.store, here.store_n, here.add
    by_one, by_two, by_four, by_eight = slide(1), slide(2), slide(4), slide(8)
    along_s, _, _, double, _ = passes(dtype_of.work, "add")

    @compiled
    def log_step_sum(x, at, n, p, s, to, pitch, size, kernel):
        """s[to + b·pitch + c] = the sum of 2ᵇ cells from p + c on, c < size; of each level in use.

        Four vectors before each level are written too.
        """
        noinline()
        one = two = four = eight = broadcast(zero)
        for c in range(-4 * width, size, width):
            more = cells(x, at, p + c + 4 * width, n)
            q = to + c
            if kernel & 1:
                store(s, q + 4 * width, more)
            more_two = add(one, by_one(one, more))
            one = more
            q += pitch
            if kernel & 2:
                store(s, q + 3 * width, more_two)
            more_four = add(two, by_two(two, more_two))
            two = more_two
            q += pitch
            if kernel & 4:
                store(s, q + 2 * width, more_four)
            more_eight = add(four, by_four(four, more_four))
            four = more_four
            q += pitch
            if kernel & 8:
                store(s, q + width, more_eight)
            store(s, q + pitch, add(eight, by_eight(eight, more_eight)))
            eight = more_eight

    @compiled
    def join(s, at, pitch, kernel, to, outputs):
        """s[to + j] = the sum of the window at j, of at most 31 cells; stride 1."""
        noinline()
        for j in range(0, outputs, width):
            total = broadcast(zero)
            for level in range(LEVELS):
                block = 1 << level
                if kernel & block:
                    total = add(
                        total, load_s(s, at + level * pitch + kernel - kernel % (2 * block) + j)
                    )
            if outputs - j >= width:
                store(s, to + j, total)
            else:
                store_n(s, to + j, total, outputs - j)

    @compiled
    def some(x, at, n, p, s, area, pitch, to, outputs, stride, kernel):
        """s[to + j] = the sum of the `kernel` cells from p + stride·j on."""
        noinline()
        reach = stride * (outputs - 1) + kernel
        log_step_sum(x, at, n, p, s, area, pitch, reach, kernel)
        if (stride == 1) & (kernel < 2 * TOP):
            join(s, area, pitch, kernel, to, outputs)
            return
        started, top = False, area + (LEVELS - 1) * pitch
        for level in range(LEVELS - 1):
            block = 1 << level
            if kernel & block:
                offset = level * pitch + kernel - kernel % (2 * block)
                along_s(s, area + offset, to, outputs, stride, 1, 1, started)
                started = True
        done = TOP
        while done <= kernel:
            if kernel & done:
                along_s(s, top + kernel - kernel % (2 * done), to, outputs, stride, 1, 1, started)
                started = True
            if 2 * done <= kernel:
                double(s, top, reach - done, done)
            done *= 2

    @compiled
    def along(x, at, n, first, last, s, area, to, stride, origin, kernel):
        """s[to + j − first] = the sum of window j of a row of `n` cells; `area` is for the levels."""
        noinline()
        pitch = -(-(NEAR + 5 * kernel + SLACK) // width) * width
        area = -(-area // width) * width + 4 * width
        near = max(1, max(NEAR, 4 * kernel) // stride)
        for j in range(first, last, near):
            p, size = stride * j + origin, min(near, last - j)
            some(x, at, n, p, s, area, pitch, to + j - first, size, stride, kernel)

    return along


@cache
def brief(dtype_of: DType) -> Any:
    """Means of windows of 17 to 31 cells, stride 1, all inside a row: from memory to memory in registers.

    For vectors of 16 numbers. It gives the bits of `log_step` and `scaled`.
    """
    here, to_y = (
        vec(dtype_of.work, dtype_of.work, ""),
        vec(dtype_of.kept, dtype_of.work, dtype_of.half),
    )
    from_x, zero, whole_lines = (
        vec(dtype_of.memory, dtype_of.work, dtype_of.half),
        dtype_of.work(0),
        dtype_of.kept == dtype_of.work,
    )
    width, broadcast, add, multiply = here.width, here.broadcast, here.add, here.multiply
    load, load_n = from_x.load, from_x.load_n
    store, store_n = to_y.store, to_y.store_n
    by_one, by_two, by_four, by_eight = slide(1), slide(2), slide(4), slide(8)

    @compiled
    def moved(a, b, lanes):
        """The vector that begins `lanes` after the beginning of `a`; `b` follows it."""
        alwaysinline()
        if lanes & 8:
            a, b = by_eight(a, b), by_eight(b, b)
        if lanes & 4:
            a, b = by_four(a, b), by_four(b, b)
        if lanes & 2:
            a, b = by_two(a, b), by_two(b, b)
        if lanes & 1:
            a = by_one(a, b)
        return a

    @compiled
    def means(x, at, cells, y, to, outputs, kernel, reciprocal, streaming):
        """y[to + j] = reciprocal · the sum of x[at + j + t], t < kernel; there are `cells` from `at` on."""
        noinline()
        factor, nothing = broadcast(reciprocal), broadcast(zero)
        # What each level has of the vectors that a window begins with and goes on with.
        one = two = four = eight = other_one = other_two = nothing
        third_one = nothing
        for c in range(-4 * width, outputs, width):
            p = c + 4 * width
            if p + width <= cells:
                prefetch_for(x, at + p)
                more = load(x, at + p)
            else:
                more = load_n(x, at + p, 0, max(0, cells - p), zero)
            more_two = add(one, by_one(one, more))
            more_four = add(two, by_two(two, more_two))
            more_eight = add(four, by_four(four, more_four))
            total = add(eight, by_eight(eight, more_eight))
            if c >= 0:
                rest = nothing
                if kernel & 1:
                    rest = moved(third_one, other_one, kernel & 14)
                if kernel & 2:
                    rest = add(rest, moved(other_two, two, kernel & 12))
                if kernel & 4:
                    rest = add(rest, moved(four, more_four, kernel & 8))
                if kernel & 8:
                    rest = add(rest, more_eight)
                value = add(multiply(add(rest, total), factor), nothing)  # never −0
                if outputs - c < width:
                    store_n(y, to + c, value, outputs - c)
                elif whole_lines & streaming:
                    stream(y, to + c, value)
                else:
                    store(y, to + c, value)
            third_one, other_one, one = other_one, one, more
            other_two, two = two, more_two
            four, eight = more_four, more_eight

    return means


@cache
def scaled(dtype_of: DType) -> Any:
    """Emit for a mean of long windows: sums times the reciprocal of the cells that count."""
    here, to_y = (
        vec(dtype_of.work, dtype_of.work, ""),
        vec(dtype_of.kept, dtype_of.work, dtype_of.half),
    )
    width, load, broadcast = here.width, here.load, here.broadcast
    add, multiply, zero = here.add, here.multiply, dtype_of.work(0)
    store, store_n = to_y.store, to_y.store_n

    @compiled
    def store_row(s, at, reciprocal, y, to, size):
        """y[to + c] = reciprocal · s[at + c] for c < size."""
        noinline()
        nothing, factor = broadcast(zero), broadcast(reciprocal)
        for c in range(0, size, width):
            value = add(multiply(load(s, at + c), factor), nothing)  # never −0
            if size - c >= width:
                store(y, to + c, value)
            else:
                store_n(y, to + c, value, size - c)

    return store_row
