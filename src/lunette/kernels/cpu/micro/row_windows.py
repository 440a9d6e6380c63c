"""Small windows, row by row where the windows of neighbouring rows lie alike.

From one such row to the next nothing changes but places in memory. Windows of two or three cells share
what they read with their neighbours in registers: a vector of them, and the one beside it.
"""

# Numba types the kernels, not mypy.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

from functools import cache
from typing import Any

from lunette.kernels.cpu.jit.intrinsics import alwaysinline, compiled, noinline
from lunette.kernels.cpu.micro.divisors import counted
from lunette.kernels.cpu.micro.guards import guards
from lunette.kernels.cpu.simd.half import DType
from lunette.kernels.cpu.simd.prefetch import prefetch_by_rows, prefetch_rows
from lunette.kernels.cpu.simd.shuffle import slide
from lunette.kernels.cpu.simd.streaming import line_buffer
from lunette.kernels.cpu.simd.vec import vec

__all__ = ["alike", "rows_alike"]


@compiled
def alike(plan, row, most, counting):
    """How many windows from number `row` on lie alike on the axis before the last, and how far apart.

    `counting`, as many cells count in each.
    """
    alwaysinline()
    axis = plan.rank - 2
    windows = plan.axes[axis].windows
    w = windows[row]
    far, count = windows[row + 1].start - w.start if most > 1 else 0, 1
    while count < most:
        v = windows[row + count]
        same = (
            (v.start == w.start + count * far) & (v.step == w.step) & (v.in_bounds == w.in_bounds)
        )
        if counting:
            same &= counted(plan, axis, row + count) == counted(plan, axis, row)
        if not same:
            break
        count += 1
    return count, far


@cache
def rows_alike(dtype_of: DType, operation: str, way: str, safe: Any, end: Any, folds: str) -> Any:
    """`pool` for an operation, `max_num` or `add`, and the way in which windows lie along a row.

    Windows of two cells, stride 2 (`pair`); of three cells, stride 2, from one before the row on (`back`) or
    from elsewhere (`ahead`); of three cells, stride 1 (`one`). `safe` watches two vectors that were read, `end` stores one of results.

    `pool` takes what is read, what is written, and what is asked for meanwhile:

    - x, and where its rows are: the first window reads those from `at + rows[r]` on, r < `total`, which is
      at least two, and each of `count` windows is `down` further; cells of a row, and the first that output 0 reads.
      Where it `folds` "across", the first `planes` of these are folded, then as many after them, then the folds;
      where "one", there is one such row;
    - divisors along a row, and across it; y, where the first output goes, outputs of a row, and whether vectors
      go past the caches; whether y is a stage instead, and where its lines go, as `line_buffer` has it;
    - as `prefetch` needs them: the address, bytes asked for and reached, and how many more each row reaches; then
      where planes are, in bytes, whose rows are wanted later, and how many.

    It gives whether a lane must not be trusted, whether a result is zero, the state of the stage, and the bytes asked for.
    """
    work = dtype_of.work
    from_x, here = vec(dtype_of.memory, work, dtype_of.half), vec(work, work, "")
    width, load, load_n = here.width, from_x.load, from_x.load_n
    broadcast, join = here.broadcast, getattr(here, operation)
    concat_even, concat_odd, slide_down_1, slide_down_2 = (
        here.concat_even,
        here.concat_odd,
        here.slide_down_1,
        here.slide_down_2,
    )
    slide_back = slide(width - 1)
    pair, back, one = way == "pair", way == "back", way == "one"
    across_planes, lone = folds == "across", folds == "one"
    stride = 1 if one else 2
    all_true, both, failed, *_ = guards(work, dtype_of.half)
    fill = work(0) if operation == "add" else dtype_of.lowest
    x_size, size_of = dtype_of.memory.bitwidth // 8, dtype_of.kept.bitwidth // 8
    flush_lines, _ = line_buffer()

    @compiled
    def cells(x, p, whole, low, high):
        """A vector of a row, of which lanes low … high are in it."""
        alwaysinline()
        return load(x, p) if whole else load_n(x, p, low, high, fill)

    @compiled
    def two(x, p, whole, low, high):
        """A vector of a row, and the one after it unless the stride is 1."""
        alwaysinline()
        a = cells(x, p, whole, low, high)
        return a, a if one else cells(x, p + width, whole, low - width, high - width)

    @compiled
    def across(x, p, rows, first, planes, whole, low, high):
        """The fold of `two` of a row of each plane."""
        alwaysinline()
        a, b = two(x, p + rows[first], whole, low, high)
        for r in range(first + 1, first + planes):
            d, e = two(x, p + rows[r], whole, low, high)
            a, b = join(a, d), join(b, e)
        return a, b

    @compiled
    def pool(read, written, lines, asks):
        noinline()
        x, at, rows, total, planes, down, count, n, origin = read
        divisors, factor, y, to, m, streaming = written
        by_lines, stage_at, line_at, filled, skip = lines
        x_at, prefetched, read_to, share, ahead, distant = asks
        lead, trusted = broadcast(factor), all_true()
        others, nonzero = trusted, trusted
        first, second = rows[0], 0 if lone else rows[1]
        third = rows[2] if total > 2 else 0
        # Windows that reach ahead are done when what comes after them is there.
        vectors = (m + width - 1) // width + (0 if back or pair else 1)
        for _ in range(count):
            read_to += share
            prefetched = prefetch_by_rows(x_at, prefetched, read_to, n * x_size, distant)
            prefetch_rows(x_at + at * x_size, ahead, distant, down * x_size)
            even = odd = broadcast(fill)
            for number in range(vectors):
                j = number * width
                c = stride * j + (origin + 1 if back else origin)
                p, low, high = at + c, -c, n - c
                whole = (c >= 0) & (high >= stride * width)
                a, b = broadcast(fill), broadcast(fill)
                if lone and high > 0:
                    a, b = two(x, p + first, whole, low, high)
                    trusted, others = safe(trusted, a, a), safe(others, b, b)
                elif across_planes and high > 0:
                    a, b = across(x, p, rows, 0, planes, whole, low, high)
                    for r in range(planes, total, planes):
                        d, e = across(x, p, rows, r, planes, whole, low, high)
                        a, b = join(a, d), join(b, e)
                elif high > 0:
                    a, b = two(x, p + first, whole, low, high)
                    d, e = two(x, p + second, whole, low, high)
                    trusted, others = safe(trusted, a, d), safe(others, b, e)
                    a, b = join(a, d), join(b, e)
                    if total > 2:
                        d, e = two(x, p + third, whole, low, high)
                        others, a, b = safe(others, d, e), join(a, d), join(b, e)
                        for r in range(3, total):
                            d, e = two(x, p + rows[r], whole, low, high)
                            others, a, b = safe(others, d, e), join(a, d), join(b, e)
                if back or pair:
                    before, even, odd = odd, concat_even(a, b), concat_odd(a, b)
                    best = even if pair else join(slide_back(before, odd), even)
                    best = join(best, odd)
                    nonzero = end(best, divisors, j, lead, y, to + j, m - j, streaming, nonzero)
                    continue
                if one:
                    best = join(join(even, slide_down_1(even, a)), slide_down_2(even, a))
                    even = a
                else:
                    more = concat_even(a, b)
                    best = join(join(even, odd), slide_down_1(even, more))
                    even, odd = more, concat_odd(a, b)
                j -= width
                if j >= 0:
                    nonzero = end(best, divisors, j, lead, y, to + j, m - j, streaming, nonzero)
            at += down
            to += m
            if by_lines:
                filled += size_of * m
                line_at, filled, skip = flush_lines(stage_at, line_at, filled, skip)
                to = filled // size_of
        return failed(both(trusted, others)), failed(nonzero), (line_at, filled, skip), prefetched

    return pool
