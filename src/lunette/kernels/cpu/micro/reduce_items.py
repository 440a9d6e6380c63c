"""A max of items with one window each, as long as a few vectors: as many items at a time as a vector has lanes.

Each is folded into a vector. These vectors are turned, so that lane i has what is left of item i, and folded in their turn.
"""

# Numba types the kernels, not mypy.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

from functools import cache
from typing import Any

from numba import types

from lunette.kernels.cpu.jit.intrinsics import compiled, noinline
from lunette.kernels.cpu.micro.reduce_window import equal, wide_windows
from lunette.kernels.cpu.simd.half import DType
from lunette.kernels.cpu.simd.prefetch import prefetch_in_order
from lunette.kernels.cpu.simd.transpose import BLOCK, turning
from lunette.kernels.cpu.simd.vec import vec

__all__ = ["is_global"]

LONG = 8
"""Vectors of a window from which it is folded as a long one is."""


@cache
def is_global(dtype_of: DType) -> tuple[Any, int]:
    """`values_of_some` for a codec, and how many items it takes; 0 where a vector has too many lanes for that."""
    from_x, here = (
        vec(dtype_of.memory, dtype_of.work, dtype_of.half),
        vec(dtype_of.work, dtype_of.work, ""),
    )
    width, load, load_n = from_x.width, from_x.load, from_x.load_n
    max_num, broadcast, load_s, store_s = here.max_num, here.broadcast, here.load, here.store
    to_y = vec(dtype_of.kept, dtype_of.work, dtype_of.half)
    store, store_n = to_y.store, to_y.store_n
    fold_block, isnan_bits = wide_windows(dtype_of).fold_block, from_x.isnan_bits
    fill, zero, real = dtype_of.lowest, dtype_of.work(0), isinstance(dtype_of.work, types.Float)
    turn: Any = turning(width) if width <= BLOCK else None

    @compiled
    def values_of_some(x, y, s, plan, first, items):
        """The values of some items from `first` on, which have one pooled axis; gives a bit for each that is to be done again.

        That is a zero, for it has two signs, or a NaN was seen in any of them.
        """
        noinline()
        table, nonfinite = plan.axes[0].windows, 0
        start = table[0].start
        size = table[0].stop - start
        whole = size - size % width
        for i in range(items):
            at = (first + i) * plan.batch[0].x_stride + start
            best = broadcast(fill)
            if size > LONG * width:
                best, seen = fold_block(x, at, 0, 1, size, best)
                nonfinite |= seen
            else:
                for c in range(0, whole, width):
                    a = load(x, at + c)
                    prefetch_in_order(x, at + c)
                    nonfinite |= isnan_bits(a, a)
                    best = max_num(best, a)
                if whole < size:
                    a = load_n(x, at + whole, 0, size - whole, fill)
                    nonfinite |= isnan_bits(a, a)
                    best = max_num(best, a)
            store_s(s, i * width, best)
        turn(s, 0, width, s, width * width)
        best = load_s(s, width * width)
        for c in range(width + 1, 2 * width):
            best = max_num(best, load_s(s, c * width))
        if items == width:
            store(y, first, best)
        else:
            store_n(y, first, best, items)
        if nonfinite != 0:
            return -1
        return equal(best, broadcast(zero)) if real else 0

    return values_of_some, width if turn else 0
