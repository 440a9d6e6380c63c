"""Rows laid out by phase in scratch memory, so that every tap of every window is a plain vector load.

With stride s, cell u of a row belongs to phase u mod s and block u // s. A phase is kept as one
run of cells: then tap t of windows c, c + 1, … is found side by side at block c + t // s of phase
t mod s, whatever the stride and dilation. Padding is in place, so no window needs a mask.
"""

# Numba types the kernels, not mypy; `v != v` is how a NaN is known.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"
# ruff: noqa: PLR0124

from __future__ import annotations

from functools import cache
from typing import Any

from lunette.kernels.cpu.jit.intrinsics import alwaysinline, compiled, noinline, real
from lunette.kernels.cpu.micro.index import skipped
from lunette.kernels.cpu.schedule.tiling import SPARE
from lunette.kernels.cpu.simd.half import DType
from lunette.kernels.cpu.simd.strided import strided
from lunette.kernels.cpu.simd.vec import vec

__all__ = [
    "cleared",
    "layout",
    "leading_place",
    "leading_readers",
    "reads",
    "rows_in_ring",
    "rows_of",
    "tile_of",
    "tile_rows",
]


@compiled
def split(number, parts):
    """How often `parts` go into a number, and the rest; small images have many units of one part."""
    alwaysinline()
    return (number, 0) if parts == 1 else (number // parts, number % parts)


@compiled
def tile_of(plan, unit):
    """Item, leading place, tile of rows and tile of columns of a unit."""
    rest, column = split(unit, plan.column_tiles)
    rest, row = split(rest, plan.row_tiles)
    item, lead = split(rest, plan.leads)
    return item, lead, row, column


@compiled
def tile_rows(plan, tile, outputs):
    """What a tile has of the axis before the last, and the hull of what it reads there.

    It has outputs and reads inputs, or, where `outputs` is 0, has inputs and reads outputs.
    """
    if plan.rank == 1:
        return 0, 1, 0, 1
    h_axis = plan.axes[plan.rank - 2]
    receptive_range = plan.hulls_at + 2 * tile
    begin, end = tile * plan.rows, min(h_axis.lengths[outputs], (tile + 1) * plan.rows)
    return begin, end, plan.numbers[receptive_range], plan.numbers[receptive_range + 1]


@compiled
def cleared(s, plan, areas, zero):
    """Zeros where rows will be, once a call: a vector may reach past the last row that was laid out.

    What other calls left there are no numbers; as numbers some are subnormal, and slow.
    """
    noinline()
    for c in range(
        areas * (plan.max_leads * plan.tile_rows * plan.row_stride + SPARE)
        + (plan.phases + 1) * plan.phase_stride
    ):
        s[c] = zero


@compiled
def reads(w, p):
    """Whether a window `w` has position `p` among its cells."""
    return (w.start <= p) & (p < w.stop) & ((p - w.start) % w.step == 0)


@compiled
def rows_of(plan, i):
    """First row, step, number of rows and counted rows of output `i` on the axis before the last."""
    if plan.rank == 1:
        return 0, 1, 1, 1.0
    w = plan.axes[plan.rank - 2].windows[i]
    return w.start, w.step, w.in_bounds, real(w.counted)


@compiled
def rows_in_ring(plan, i, leads, deep, slot, begin, places):
    """Where the rows of output `i`'s windows are, layer by layer, if rows take turns; gives how many."""
    first, step, rows, _ = rows_of(plan, i)
    count, last = 0, plan.tile_rows - 1
    for layer in range(leads):
        for r in range(rows):
            places[count] = begin + layer * deep + ((first + r * step) & last) * slot
            count += 1
    return count


@compiled
def leading_place(plan, lead, array, lengths):
    """Offset of a place of the leading axes, counted by outputs (`lengths` = 1) or inputs (0)."""
    offset = 0
    for axis in range(plan.rank - 3, -1, -1):
        entry = plan.axes[axis]
        offset += (lead % entry.lengths[lengths]) * entry.strides[array]
        lead //= entry.lengths[lengths]
    return offset


@compiled
def leading_readers(plan, lead, lists, most):
    """The outputs that read a place of the leading axes, in row-major order.

    Fills three lists of `most` each: offset in array 1, flat position among outputs, and which tap of
    the output's box it is. Gives how many there are.
    """
    count = 1
    lists[0] = lists[most] = lists[2 * most] = 0
    for axis in range(plan.rank - 2):
        entry = plan.axes[axis]
        after, inner = 1, 1
        for later in range(axis + 1, plan.rank):
            inner *= plan.axes[later].out_len
            if later < plan.rank - 2:
                after *= plan.axes[later].in_len
        p = (lead // after) % entry.in_len
        low, high = (
            plan.numbers[entry.readers_at + 2 * p],
            plan.numbers[entry.readers_at + 2 * p + 1],
        )
        readers = 0
        for i in range(low, high):
            w = entry.windows[i]
            readers += reads(w, p)
        for old in range(count - 1, -1, -1):  # from the back: each makes room for its own
            a, flat, cell = lists[old], lists[most + old], lists[2 * most + old]
            new = (old + 1) * readers
            for i in range(high - 1, low - 1, -1):
                w = entry.windows[i]
                if reads(w, p):
                    new -= 1
                    lists[new] = a + i * entry.y_stride
                    lists[most + new] = flat + i * inner
                    tap = (p - w.start) // w.step + skipped(entry, i)
                    lists[2 * most + new] = cell * entry.box + tap
        count *= readers
    return count


@cache
def layout(dtype_of: DType, watch: str, rarely: bool = False) -> Any:
    """`lay` for a codec; it watches for "nan", or for all that is not "finite", or not at all.

    One that is `rarely` needed gathers all rows, and is faster to compile.
    """
    from_x, here = (
        vec(dtype_of.memory, dtype_of.work, dtype_of.half),
        vec(dtype_of.work, dtype_of.work, ""),
    )
    width, load, load_n, gather_strided = (
        here.width,
        from_x.load,
        from_x.load_n,
        from_x.gather_strided,
    )
    store, store_n, concat_even, concat_odd = (
        here.store,
        here.store_n,
        here.concat_even,
        here.concat_odd,
    )
    subtract, isnan_bits = here.subtract, here.isnan_bits
    for_nan, for_all, read, zero = (
        watch == "nan",
        watch == "finite",
        dtype_of.load,
        dtype_of.work(0),
    )
    broadcast = here.broadcast
    every = strided(dtype_of.memory, dtype_of.work, dtype_of.half)

    @compiled
    def nonfinite(a, b):
        if for_nan:
            return isnan_bits(a, b)
        if for_all:  # inf − inf is NaN
            return isnan_bits(subtract(a, a), subtract(b, b))
        return 0

    @compiled
    def nonfinite_part(x, at, high, a):
        """As `nonfinite` for lanes up to `high` of a vector that was filled beyond them."""
        if for_all:
            a = load_n(x, at, 0, high, zero)
        return nonfinite(a, a)

    @compiled
    def nonfinite_one(v):
        return (for_nan & (v != v)) | (for_all & (v - v != v - v))

    @compiled
    def around(s, to, lo, hi, need, fill):
        """Padding before `lo` and from `hi` on; what it writes past either end is written again."""
        alwaysinline()
        for c in range(0, lo, width):
            store(s, to + c, broadcast(fill))
        for c in range(hi, need, width):
            store(s, to + c, broadcast(fill))

    @compiled
    def by_one(x, at, pitch, rows, start, n, s, to, slot, need, fill):
        """Rows of stride 1: cells lo … hi are in the row."""
        alwaysinline()
        lo, hi = min(need, max(0, -start)), max(0, min(need, n - start))
        seen, p = 0, at + start
        for _ in range(rows):
            around(s, to, lo, hi, need, fill)
            if hi - lo >= width:
                for c in range(lo, hi - width, width):
                    a = load(x, p + c)
                    seen |= nonfinite(a, a)
                    store(s, to + c, a)
                a = load(x, p + hi - width)
                seen |= nonfinite(a, a)
                store(s, to + hi - width, a)
            elif hi > lo:
                a = load_n(x, p + lo, 0, hi - lo, fill)
                seen |= nonfinite_part(x, p + lo, hi - lo, a)
                store_n(s, to + lo, a, hi - lo)
            p += pitch
            to += slot
        return seen

    @compiled
    def by_two(x, at, pitch, rows, start, n, s, to, slot, length, need, fill):
        """Rows of stride 2: blocks lo … hi have both of their cells in the row."""
        alwaysinline()
        lo = min(need, max(0, -(start // 2)))
        hi = max(lo, min(need, (n - start) // 2))
        second_alone = (lo > 0) & (start + 2 * lo - 1 == 0)
        first_alone = (hi < need) & (start + 2 * hi >= 0) & (start + 2 * hi < n)
        seen, p, other, left = 0, at + start, to + length, 2 * (hi - lo)
        for _ in range(rows):
            around(s, to, lo, hi, need, fill)
            around(s, other, lo, hi, need, fill)
            if hi - lo >= width:
                for c in range(lo, hi - width, width):
                    a, b = load(x, p + 2 * c), load(x, p + 2 * c + width)
                    seen |= nonfinite(a, b)
                    store(s, to + c, concat_even(a, b))
                    store(s, other + c, concat_odd(a, b))
                c = hi - width
                a, b = load(x, p + 2 * c), load(x, p + 2 * c + width)
                seen |= nonfinite(a, b)
                store(s, to + c, concat_even(a, b))
                store(s, other + c, concat_odd(a, b))
            elif hi > lo:
                a = load_n(x, p + 2 * lo, 0, min(width, left), fill)
                b = load_n(x, p + 2 * lo + width, 0, left - width, fill)
                seen |= nonfinite_part(x, p + 2 * lo, min(width, left), a)
                seen |= nonfinite_part(x, p + 2 * lo + width, left - width, b)
                store_n(s, to + lo, concat_even(a, b), hi - lo)
                store_n(s, other + lo, concat_odd(a, b), hi - lo)
            if second_alone:
                one = read(x[p + 2 * lo - 1])
                s[other + lo - 1] = one
                seen |= nonfinite_one(one)
            if first_alone:
                one = read(x[p + 2 * hi])
                s[to + hi] = one
                seen |= nonfinite_one(one)
            p += pitch
            to += slot
            other += slot
        return seen

    @compiled
    def by_step(x, at, pitch, rows, far, start, n, s, to, slot, length, need, stride, phases, fill):
        """Rows of any stride and layout, gathered."""
        alwaysinline()
        seen = 0
        for _ in range(rows):
            for phase in range(phases):
                # The blocks whose cell of this phase lies in the row.
                low = -((start + phase) // stride)
                high = -((start + phase - n) // stride)
                for c in range(0, need, width):
                    first, last = min(max(0, low - c), width), max(0, min(width, high - c))
                    p = at + (start + phase + stride * c) * far
                    if (first == 0) & (last == width) & (far == 1):
                        a = every(x, p, stride)
                    else:
                        a = gather_strided(x, p, stride * far, first, last, fill)
                    store(s, to + phase * length + c, a)
                    if for_all:
                        a = gather_strided(x, p, stride * far, first, last, zero)
                    seen |= nonfinite(a, a)
            at += pitch
            to += slot
        return seen

    @compiled
    def lay(x, at, pitch, rows, far, start, n, s, to, slot, length, need, stride, phases, fill):
        """Positions start, start + 1, … of each row by phase; not zero if something strange was seen.

        Rows begin `pitch` apart and are kept `slot` apart; of each phase `need` cells are kept.
        """
        noinline()
        if rarely:
            return by_step(
                x, at, pitch, rows, far, start, n, s, to, slot, length, need, stride, phases, fill
            )
        if (stride == 1) & (far == 1):
            return by_one(x, at, pitch, rows, start, n, s, to, slot, need, fill)
        if (stride == 2) & (phases == 2) & (far == 1):
            return by_two(x, at, pitch, rows, start, n, s, to, slot, length, need, fill)
        return by_step(
            x, at, pitch, rows, far, start, n, s, to, slot, length, need, stride, phases, fill
        )

    return lay
