"""A max over long windows that share few cells: lanes lie within a window, and every cell is read once.

Cells are folded into a vector in whatever order is quick, then its lanes. That gives the winner's
value; its bits too, unless it is a zero, which has two signs, or a NaN was seen. Then the window
is searched from its first cell on for the first that wins.
"""

# Numba types the kernels, not mypy; `v != v` is how a NaN is known.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"
# ruff: noqa: PLR0124

from __future__ import annotations

from functools import cache
from typing import Any

from numba import types

from lunette.kernels.cpu import machine
from lunette.kernels.cpu.asking import ask_for
from lunette.kernels.cpu.halves import codec
from lunette.kernels.cpu.lanes import lanes
from lunette.kernels.cpu.layout import (
    AXES,
    AXIS_WIDTH,
    COUNT,
    EXTENT,
    MEMBERS,
    OUTPUT_ROWS,
    RANK,
    START,
    STEP,
    STEP_X,
    STOP,
    TABLE,
    WINDOW_WIDTH,
)
from lunette.kernels.cpu.machine import apart, compiled, pointer
from lunette.kernels.cpu.places import item_offset, output_row
from lunette.kernels.cpu.slides import folded

__all__ = ["kernel"]


@compiled
def blocks_of(g, row):
    """How many blocks of rows an output row reads: the cells of its windows on all axes but two."""
    blocks = 1
    if g[RANK] > 1:
        row //= g[AXES + (g[RANK] - 2) * AXIS_WIDTH + COUNT]
    for axis in range(g[RANK] - 3, -1, -1):
        e = AXES + axis * AXIS_WIDTH
        blocks *= g[g[e + TABLE] + WINDOW_WIDTH * (row % g[e + COUNT]) + MEMBERS]
        row //= g[e + COUNT]
    return blocks


@compiled
def block_offset(g, row, number):
    """Where block `number` of an output row begins, from the item's first cell."""
    at = 0
    if g[RANK] > 1:
        e = AXES + (g[RANK] - 2) * AXIS_WIDTH
        at = g[g[e + TABLE] + WINDOW_WIDTH * (row % g[e + COUNT]) + START] * g[e + STEP_X]
        row //= g[e + COUNT]
    for axis in range(g[RANK] - 3, -1, -1):
        e = AXES + axis * AXIS_WIDTH
        w = g[e + TABLE] + WINDOW_WIDTH * (row % g[e + COUNT])
        at += (g[w + START] + (number % g[w + MEMBERS]) * g[w + STEP]) * g[e + STEP_X]
        number //= g[w + MEMBERS]
        row //= g[e + COUNT]
    return at


@cache
def kernel(dtype: str) -> Any:
    """The kernel for a dtype; no window may be empty."""
    outer = codec(dtype, False)
    memory, work, kept, read, write = outer.memory, outer.work, outer.kept, outer.load, outer.store
    inputs = lanes(memory, work, outer.half)
    width, load, load_part, most = inputs.width, inputs.load, inputs.load_part, inputs.most
    unordered, spread, floor = inputs.unordered, inputs.spread, outer.least
    real = isinstance(work, types.Float)
    fold = folded(work, "most")

    @compiled
    def block(x, at, pitch, rows, size, best):
        """The fold of `best` and `rows` of `size` cells; the bits of lanes where a NaN was seen."""
        apart()
        whole, seen = size - size % width, 0
        if whole == width:
            seen_one = 0
            other = best
            for r in range(0, rows - 1, 2):
                p = at + r * pitch
                a, b = load(x, p), load(x, p + pitch)
                ask_for(x, p)
                ask_for(x, p + pitch)
                seen_one |= unordered(a, b)
                best, other = most(best, a), most(other, b)
            if rows % 2:
                a = load(x, at + (rows - 1) * pitch)
                ask_for(x, at + (rows - 1) * pitch)
                seen_one |= unordered(a, a)
                best = most(best, a)
            best, seen = most(best, other), seen_one
        elif whole > 0:
            for r in range(rows):
                p = at + r * pitch
                for c in range(0, whole, width):
                    a = load(x, p + c)
                    ask_for(x, p + c)
                    seen |= unordered(a, a)
                    best = most(best, a)
        if whole < size:
            for r in range(rows):
                p = at + r * pitch + whole
                a = load_part(x, p, 0, size - whole, floor)
                ask_for(x, p)
                seen |= unordered(a, a)
                best = most(best, a)
        return best, seen

    @compiled
    def search(x, base, g, row, start, size, pitch, rows, value, nan):
        """The first cell in row-major order that is a NaN, or equal to `value` where none is."""
        apart()
        for number in range(blocks_of(g, row)):
            at = base + block_offset(g, row, number) + start
            for r in range(rows):
                for c in range(size):
                    v = read(x[at + r * pitch + c])
                    if (v != v) if nan else (v == value):
                        return v
        return value

    @machine.kernel
    def reduce_windows(x_at, y_at, z_at, scratch_at, g_at, room, first, last):
        g = pointer(g_at, types.int64)
        x, y = pointer(x_at, memory), pointer(y_at, kept)
        rank = g[RANK]
        e = AXES + (rank - 1) * AXIS_WIDTH
        n, m, table = g[e + EXTENT], g[e + COUNT], g[e + TABLE]
        for unit in range(first, last):
            item, row = unit // g[OUTPUT_ROWS], unit % g[OUTPUT_ROWS]
            base, target = item_offset(g, item, 0), item_offset(g, item, 1) + output_row(g, row, 1)
            rows, pitch, blocks = 1, n, blocks_of(g, row)
            if rank > 1:
                f = e - AXIS_WIDTH
                w = g[f + TABLE] + WINDOW_WIDTH * (row % g[f + COUNT])
                rows, pitch = g[w + MEMBERS], g[w + STEP] * g[f + STEP_X]
            for j in range(m):
                start = g[table + WINDOW_WIDTH * j + START]
                size = g[table + WINDOW_WIDTH * j + STOP] - start
                best, seen = spread(floor), 0
                for number in range(blocks):
                    at = base + block_offset(g, row, number) + start
                    best, strange = block(x, at, pitch, rows, size, best)
                    seen |= strange
                value = fold(best)
                if real & ((seen != 0) | (value == work(0))):
                    value = search(x, base, g, row, start, size, pitch, rows, value, seen != 0)
                y[target + j] = write(value)

    return reduce_windows
