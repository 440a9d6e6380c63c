"""Sums of a convolution over the cells and taps that meet, one by one: where nearly all else would be zeros.

A large stride leaves most cells of an image without a window, and a large kernel most taps of a window on padding. The
other kernels multiply such zeros, which is quick while they are few. Here what a sum costs is what it adds up: channels, then taps, in
order, as everywhere; so the bits are those of the other kernels.
"""

# mypy: disallow-untyped-defs = False
from __future__ import annotations

from functools import cache
from typing import Any

from numba import types

from lunette.kernels.cpu.compiling import machine
from lunette.kernels.cpu.compiling.machine import compiled, fma, pointer, within
from lunette.kernels.cpu.convolving.blocks import (
    A_BASE,
    A_STRIDES,
    A_TERMS,
    B_BASE,
    B_STRIDES,
    B_TERMS,
    CELL_OUT,
    CELL_OUT_STRIDES,
    CELL_RANK,
    CELL_SOURCES,
    CELL_STARTS,
    CELL_SUMS,
    CELL_TERMS,
    CELLS,
    LINE_COUNTS,
    LINE_HEADS,
    LINES,
)
from lunette.kernels.cpu.convolving.sizes import FUSED
from lunette.kernels.cpu.convolving.slabs import elements, zero_of

__all__ = ["sums_kernel"]

WIDTH = 6
"""Numbers of a line: output, first cell, step, first tap, step, how many."""


@compiled
def multiply_add(a, b, total):
    """`a·b + total` as the other kernels round it."""
    within()
    if FUSED:
        return fma(a, b, total)
    return a * b + total


@cache
def sums_kernel(dtype: str) -> Any:
    """Units (sum, cell): `out = start + Σ_source Σ_term Σ_line a·b`.

    The table has addresses of `lines` of every axis, from row `heads[axis]` on, `counts[axis]` of them, and of where the
    factors a and b are: for each sum, for each term of it, and from cell to cell, in bytes, one source after another.
    """
    zero, _ = zero_of(dtype)

    @machine.kernel
    def sums(first, last, told, scratch, _a, _b, _c, _d):
        n = pointer(told, types.int64)
        cells, rank, sources, terms, all_sums = (
            n[CELLS],
            n[CELL_RANK],
            n[CELL_SOURCES],
            n[CELL_TERMS],
            n[CELL_SUMS],
        )
        lines, heads = pointer(n[LINES], types.int64), pointer(n[LINE_HEADS], types.int64)
        counts, starts = pointer(n[LINE_COUNTS], types.int64), elements(n[CELL_STARTS], zero)
        a_base, b_base = pointer(n[A_BASE], types.int64), pointer(n[B_BASE], types.int64)
        a_terms, b_terms = pointer(n[A_TERMS], types.int64), pointer(n[B_TERMS], types.int64)
        a_strides, b_strides = (
            pointer(n[A_STRIDES], types.int64),
            pointer(n[B_STRIDES], types.int64),
        )
        out = pointer(n[CELL_OUT], types.int64)
        out_strides = pointer(n[CELL_OUT_STRIDES], types.int64)
        row, index = pointer(scratch, types.int64), pointer(scratch + 8 * rank, types.int64)
        a_step = pointer(scratch + 16 * rank, types.int64)
        b_step = pointer(scratch + 24 * rank, types.int64)
        for unit in range(first, last):
            which, cell, target, empty = unit // cells, unit % cells, 0, 0
            for axis in range(rank - 1, -1, -1):
                row[axis] = (heads[axis] + cell % counts[axis]) * WIDTH
                cell //= counts[axis]
                target += lines[row[axis]] * out_strides[axis]
                if lines[row[axis] + 5] <= 0:
                    empty = 1
                index[axis] = 0
            total = starts[which]
            if empty == 0:
                inner = lines[row[rank - 1] + 5]
                for s in range(sources):
                    a_first, b_first = a_base[s * all_sums + which], b_base[s * all_sums + which]
                    for axis in range(rank):
                        line, a_stride, b_stride = (
                            row[axis],
                            a_strides[s * rank + axis],
                            b_strides[s * rank + axis],
                        )
                        a_first += lines[line + 1] * a_stride
                        b_first += lines[line + 3] * b_stride
                        a_step[axis] = lines[line + 2] * a_stride
                        b_step[axis] = lines[line + 4] * b_stride
                    for term in range(terms):
                        a, b = (
                            a_first + a_terms[s * terms + term],
                            b_first + b_terms[s * terms + term],
                        )
                        axis = 0
                        while axis >= 0:
                            at_a, at_b = a, b
                            for _ in range(inner):
                                total = multiply_add(
                                    elements(at_a, zero)[0], elements(at_b, zero)[0], total
                                )
                                at_a += a_step[rank - 1]
                                at_b += b_step[rank - 1]
                            axis = rank - 2
                            while axis >= 0:
                                index[axis] += 1
                                a += a_step[axis]
                                b += b_step[axis]
                                if index[axis] < lines[row[axis] + 5]:
                                    break
                                a -= index[axis] * a_step[axis]
                                b -= index[axis] * b_step[axis]
                                index[axis] = 0
                                axis -= 1
            elements(out[which] + target, zero)[0] = total

    return sums
