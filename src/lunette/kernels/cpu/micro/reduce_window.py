"""A max over long windows that share few cells: lanes lie within a window, and every cell is read once.

Cells are folded into a vector in whatever order is quick, then its lanes. That gives the winner's value; its bits too, unless it is a zero, which has two signs, or a NaN was seen. Then, and to
know where it is, the window is searched from its first cell on for the first that wins.

A window is some blocks of rows that lie evenly: the cells of it on all axes but the last two, on the
axis before the last, and on the last.
"""

# Numba types the kernels, not mypy; `v != v` is how a NaN is known.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from lunette.kernels.cpu.jit.intrinsics import compiled, noinline
from lunette.kernels.cpu.micro.index import cell_place
from lunette.kernels.cpu.schedule.records import FLAT, X
from lunette.kernels.cpu.simd.half import DType
from lunette.kernels.cpu.simd.prefetch import prefetch_in_order
from lunette.kernels.cpu.simd.shuffle import folded
from lunette.kernels.cpu.simd.vec import vec

__all__ = ["WideWindows", "first_of", "wide_windows"]


class WideWindows(NamedTuple):
    """The fold of a window, and the search for its winners, for one codec; and the fold of one of its blocks."""

    fold: Any
    search: Any
    fold_block: Any


@intrinsic  # type: ignore[untyped-decorator]
def equal(context: Any, a: Any, b: Any) -> Any:
    """A bit for each lane where two vectors are equal, as an integer."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        real = isinstance(a.element, types.Float)
        compare = builder.fcmp_ordered if real else builder.icmp_signed
        bits = builder.bitcast(compare("==", *arguments), ir.IntType(a.count))
        return builder.zext(bits, ir.IntType(64)) if a.count < 64 else bits

    return types.int64(a, b), generate


@intrinsic  # type: ignore[untyped-decorator]
def lowest(context: Any, bits: Any) -> Any:
    """The place of the lowest bit that is set; there must be one."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.int64), generate


@compiled
def first_of(state, extra, flat):
    """A visit that ends the search: the first winner's flat position."""
    return flat, True


@cache
def wide_windows(dtype_of: DType) -> WideWindows:
    """`fold` and `search` for a codec; no window may be empty.

    `fold(window)` gives the value of a window, and non-zero after a NaN. A window is x and where the item begins, the table, the output row and what `rows_of` says of it, the first position
    on the last axis and how many there are.

    `search(visit)` makes a search, called with a window, its value, whether there is a NaN, what visits need
    besides, and a state. It visits each cell that equals the value, or is a NaN if there is one, in row-major
    order: `state, done = visit(state, extra, flat)`, until that is done. It gives the last state.
    """
    inputs = vec(dtype_of.memory, dtype_of.work, dtype_of.half)
    width, load, load_n, broadcast = inputs.width, inputs.load, inputs.load_n, inputs.broadcast
    max_num, isnan_bits, fill = inputs.max_num, inputs.isnan_bits, dtype_of.lowest
    max_of_lanes = folded(dtype_of.work, "max_num")

    @compiled
    def fold_block(x, at, pitch, rows, size, best):
        """The fold of `best` and `rows` of `size` cells; the bits of lanes where a NaN was seen."""
        noinline()
        whole, seen = size - size % width, 0
        if whole == width:
            seen_one = 0
            other = broadcast(fill)
            for r in range(0, rows - 1, 2):
                p = at + r * pitch
                a, b = load(x, p), load(x, p + pitch)
                prefetch_in_order(x, p)
                prefetch_in_order(x, p + pitch)
                seen_one |= isnan_bits(a, b)
                best, other = max_num(best, a), max_num(other, b)
            if rows % 2:
                a = load(x, at + (rows - 1) * pitch)
                prefetch_in_order(x, at + (rows - 1) * pitch)
                seen_one |= isnan_bits(a, a)
                best = max_num(best, a)
            best, seen = max_num(best, other), seen_one
        elif whole > 0:
            other, twos = best, whole - whole % (2 * width)
            for r in range(rows):
                p = at + r * pitch
                for c in range(0, twos, 2 * width):
                    a, b = load(x, p + c), load(x, p + c + width)
                    prefetch_in_order(x, p + c)
                    prefetch_in_order(x, p + c + width)
                    seen |= isnan_bits(a, b)
                    best, other = max_num(best, a), max_num(other, b)
                if twos < whole:
                    a = load(x, p + twos)
                    prefetch_in_order(x, p + twos)
                    seen |= isnan_bits(a, a)
                    best = max_num(best, a)
            best = max_num(best, other)
        if whole < size:
            for r in range(rows):
                p = at + r * pitch + whole
                a = load_n(x, p, 0, size - whole, fill)
                prefetch_in_order(x, p)
                seen |= isnan_bits(a, a)
                best = max_num(best, a)
        return best, seen

    @compiled
    def fold(window):
        x, base, plan, row, (rows, pitch, blocks), start, size = window
        best, seen = broadcast(fill), 0
        for block in range(blocks):
            at = base + cell_place(plan, row, block, 0, start, X)
            best, more = fold_block(x, at, pitch, rows, size, best)
            seen |= more
        return max_of_lanes(best), seen

    @cache
    def search(visit: Any) -> Any:
        @compiled
        def visit_winners(window, value, nan, extra, state):
            x, base, plan, row, (rows, pitch, blocks), start, size = window
            wanted, last = broadcast(value), size - 1 - (size - 1) % width
            for block in range(blocks):
                at = base + cell_place(plan, row, block, 0, start, X)
                for r in range(rows):
                    for c in range(0, size, width):
                        a = load_n(x, at + c, 0, size - c, fill) if c == last else load(x, at + c)
                        winning = isnan_bits(a, a) if nan else equal(a, wanted)
                        if c == last:  # what fills the vector may be equal, too
                            winning &= (2 << (size - 1 - c)) - 1
                        while winning != 0:
                            flat = cell_place(
                                plan, row, block, r, start + c + lowest(winning), FLAT
                            )
                            state, done = visit(state, extra, flat)
                            if done:
                                return state
                            winning &= winning - 1
                    at += pitch
            return state

        return visit_winners

    return WideWindows(fold, search, fold_block)
