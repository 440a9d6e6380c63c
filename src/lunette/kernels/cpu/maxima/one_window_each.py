"""A max of items with one window each, as long as a few vectors: as many items at a time as a vector has lanes.

Each is folded into a vector. These vectors are turned, so that lane i has what is left of item i, and folded in their turn.
"""

# Numba types the kernels, not mypy.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

from functools import cache
from typing import Any

from numba import types

from lunette.kernels.cpu.compiling.machine import apart, compiled
from lunette.kernels.cpu.maxima.wide_windows import equal, wide_windows
from lunette.kernels.cpu.plans.layout import AXES, BATCH, START, STOP, TABLE
from lunette.kernels.cpu.vectors.asking import ask_in_order
from lunette.kernels.cpu.vectors.halves import Codec
from lunette.kernels.cpu.vectors.lanes import lanes
from lunette.kernels.cpu.vectors.transposition import BLOCK, turning

__all__ = ["one_window_each"]

LONG = 8
"""Vectors of a window from which it is folded as a long one is."""


@cache
def one_window_each(codec: Codec) -> tuple[Any, int]:
    """`values_of_some` for a codec, and how many items it takes; 0 where a vector has too many lanes for that."""
    from_x, here = lanes(codec.memory, codec.work, codec.half), lanes(codec.work, codec.work, "")
    width, load, load_part = from_x.width, from_x.load, from_x.load_part
    most, spread, load_s, store_s = here.most, here.spread, here.load, here.store
    to_y = lanes(codec.kept, codec.work, codec.half)
    store, store_part = to_y.store, to_y.store_part
    fold_block, unordered = wide_windows(codec).fold_block, from_x.unordered
    fill, zero, real = codec.least, codec.work(0), isinstance(codec.work, types.Float)
    turn: Any = turning(width) if width <= BLOCK else None

    @compiled
    def values_of_some(x, y, s, g, first, items):
        """The values of some items from `first` on, which have one pooled axis; gives a bit for each that is to be done again.

        That is a zero, for it has two signs, or a NaN was seen in any of them.
        """
        apart()
        table, strange = g[AXES + TABLE], 0
        start = g[table + START]
        size = g[table + STOP] - start
        whole = size - size % width
        for i in range(items):
            at = (first + i) * g[BATCH + 1] + start
            best = spread(fill)
            if size > LONG * width:
                best, seen = fold_block(x, at, 0, 1, size, best)
                strange |= seen
            else:
                for c in range(0, whole, width):
                    a = load(x, at + c)
                    ask_in_order(x, at + c)
                    strange |= unordered(a, a)
                    best = most(best, a)
                if whole < size:
                    a = load_part(x, at + whole, 0, size - whole, fill)
                    strange |= unordered(a, a)
                    best = most(best, a)
            store_s(s, i * width, best)
        turn(s, 0, width, s, width * width)
        best = load_s(s, width * width)
        for c in range(width + 1, 2 * width):
            best = most(best, load_s(s, c * width))
        if items == width:
            store(y, first, best)
        else:
            store_part(y, first, best, items)
        if strange != 0:
            return -1
        return equal(best, spread(zero)) if real else 0

    return values_of_some, width if turn else 0
