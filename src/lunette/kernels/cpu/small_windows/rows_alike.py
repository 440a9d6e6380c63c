"""Small windows, row by row where the windows of neighbouring rows lie alike.

From one such row to the next nothing changes but places in memory. Windows of two or three cells share
what they read with their neighbours in registers: a vector of them, and the one beside it.
"""

# Numba types the kernels, not mypy.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

from functools import cache
from typing import Any

from lunette.kernels.cpu.compiling.machine import apart, compiled, within
from lunette.kernels.cpu.plans.layout import (
    AXES,
    AXIS_WIDTH,
    MEMBERS,
    RANK,
    START,
    STEP,
    TABLE,
    WINDOW_WIDTH,
)
from lunette.kernels.cpu.rows.counts import counted
from lunette.kernels.cpu.small_windows.trust import trust
from lunette.kernels.cpu.vectors.asking import ask_by_rows, ask_rows
from lunette.kernels.cpu.vectors.halves import Codec
from lunette.kernels.cpu.vectors.lanes import lanes
from lunette.kernels.cpu.vectors.past_caches import line_flow
from lunette.kernels.cpu.vectors.slides import slide

__all__ = ["alike", "rows_alike"]


@compiled
def alike(g, row, most, counting):
    """How many windows from number `row` on lie alike on the axis before the last, and how far apart.

    `counting`, as many cells count in each.
    """
    within()
    axis = g[RANK] - 2
    w = g[AXES + axis * AXIS_WIDTH + TABLE] + WINDOW_WIDTH * row
    far, count = g[w + WINDOW_WIDTH] - g[w + START] if most > 1 else 0, 1
    while count < most:
        v = w + count * WINDOW_WIDTH
        same = (
            (g[v + START] == g[w + START] + count * far)
            & (g[v + STEP] == g[w + STEP])
            & (g[v + MEMBERS] == g[w + MEMBERS])
        )
        if counting:
            same &= counted(g, axis, row + count) == counted(g, axis, row)
        if not same:
            break
        count += 1
    return count, far


@cache
def rows_alike(codec: Codec, operation: str, way: str, safe: Any, end: Any, folds: str) -> Any:
    """`pool` for an operation, `most` or `add`, and the way in which windows lie along a row.

    Windows of two cells, stride 2 (`pair`); of three cells, stride 2, from one before the row on (`back`) or
    from elsewhere (`ahead`); of three cells, stride 1 (`one`). `safe` watches two vectors that were read, `end` stores one of results.

    `pool` takes what is read, what is written, and what is asked for meanwhile:

    - x, and where its rows are: the first window reads those from `at + rows[r]` on, r < `total`, which is
      at least two, and each of `count` windows is `down` further; cells of a row, and the first that output 0 reads.
      Where it `folds` "across", the first `planes` of these are folded, then as many after them, then the folds;
      where "one", there is one such row;
    - divisors along a row, and across it; y, where the first output goes, outputs of a row, and whether vectors
      go past the caches; whether y is a stage instead, and where its lines go, as `line_flow` has it;
    - as `ask` needs them: the address, bytes asked for and reached, and how many more each row reaches; then
      where planes are, in bytes, whose rows are wanted later, and how many.

    It gives whether a lane must not be trusted, whether a result is zero, the state of the stage, and the bytes asked for.
    """
    work = codec.work
    from_x, here = lanes(codec.memory, work, codec.half), lanes(work, work, "")
    width, load, load_part = here.width, from_x.load, from_x.load_part
    spread, join = here.spread, getattr(here, operation)
    evens, odds, slide_one, slide_two = here.evens, here.odds, here.slide_one, here.slide_two
    slide_back = slide(width - 1)
    pair, back, one = way == "pair", way == "back", way == "one"
    across_planes, lone = folds == "across", folds == "one"
    stride = 1 if one else 2
    all_lanes, both, lost, *_ = trust(work, codec.half)
    fill = work(0) if operation == "add" else codec.least
    x_size, size_of = codec.memory.bitwidth // 8, codec.kept.bitwidth // 8
    pour_lines, _ = line_flow()

    @compiled
    def cells(x, p, whole, low, high):
        """A vector of a row, of which lanes low … high are in it."""
        within()
        return load(x, p) if whole else load_part(x, p, low, high, fill)

    @compiled
    def two(x, p, whole, low, high):
        """A vector of a row, and the one after it unless the stride is 1."""
        within()
        a = cells(x, p, whole, low, high)
        return a, a if one else cells(x, p + width, whole, low - width, high - width)

    @compiled
    def across(x, p, rows, first, planes, whole, low, high):
        """The fold of `two` of a row of each plane."""
        within()
        a, b = two(x, p + rows[first], whole, low, high)
        for r in range(first + 1, first + planes):
            d, e = two(x, p + rows[r], whole, low, high)
            a, b = join(a, d), join(b, e)
        return a, b

    @compiled
    def pool(read, written, lines, asks):
        apart()
        x, at, rows, total, planes, down, count, n, origin = read
        divisors, factor, y, to, m, past = written
        by_lines, stage_at, line_at, filled, skip = lines
        x_at, asked, reached, share, ahead, distant = asks
        lead, trusted = spread(factor), all_lanes()
        others, nonzero = trusted, trusted
        first, second = rows[0], 0 if lone else rows[1]
        third = rows[2] if total > 2 else 0
        # Windows that reach ahead are done when what comes after them is there.
        vectors = (m + width - 1) // width + (0 if back or pair else 1)
        for _ in range(count):
            reached += share
            asked = ask_by_rows(x_at, asked, reached, n * x_size, distant)
            ask_rows(x_at + at * x_size, ahead, distant, down * x_size)
            even = odd = spread(fill)
            for number in range(vectors):
                j = number * width
                c = stride * j + (origin + 1 if back else origin)
                p, low, high = at + c, -c, n - c
                whole = (c >= 0) & (high >= stride * width)
                a, b = spread(fill), spread(fill)
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
                    before, even, odd = odd, evens(a, b), odds(a, b)
                    best = even if pair else join(slide_back(before, odd), even)
                    best = join(best, odd)
                    nonzero = end(best, divisors, j, lead, y, to + j, m - j, past, nonzero)
                    continue
                if one:
                    best = join(join(even, slide_one(even, a)), slide_two(even, a))
                    even = a
                else:
                    more = evens(a, b)
                    best = join(join(even, odd), slide_one(even, more))
                    even, odd = more, odds(a, b)
                j -= width
                if j >= 0:
                    nonzero = end(best, divisors, j, lead, y, to + j, m - j, past, nonzero)
            at += down
            to += m
            if by_lines:
                filled += size_of * m
                line_at, filled, skip = pour_lines(stage_at, line_at, filled, skip)
                to = filled // size_of
        return lost(both(trusted, others)), lost(nonzero), (line_at, filled, skip), asked

    return pool
