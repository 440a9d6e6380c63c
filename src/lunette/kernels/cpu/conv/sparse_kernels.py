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

from lunette.kernels.cpu.conv.input_tile import elements, zero_of
from lunette.kernels.cpu.conv.records import SPARSE
from lunette.kernels.cpu.conv.sizes import FUSED
from lunette.kernels.cpu.jit import intrinsics
from lunette.kernels.cpu.jit.intrinsics import alwaysinline, compiled, fma, pointer

__all__ = ["sums_kernel"]

sparse = SPARSE.at

WIDTH = 6
"""Numbers of a line: output, first cell, step, first tap, step, how many."""


@compiled
def multiply_add(a, b, total):
    """`a·b + total` as the other kernels round it."""
    alwaysinline()
    if FUSED:
        return fma(a, b, total)
    return a * b + total


@cache
def sums_kernel(dtype: str) -> Any:
    """Units (sum, cell): `out = start + Σ_source Σ_term Σ_line a·b`.

    The table has addresses of `lines` of every axis, from row `heads[axis]` on, `counts[axis]` of them, and of where the
    factors a and b are: for each sum, for each term of it, and from cell to cell, in bytes, one source after another.
    """
    zero = zero_of(dtype)

    @intrinsics.kernel
    def sums(told, scratch, _a, _b, _c, _d, first, last):
        plan = sparse(told)
        cells, rank, sources, terms, all_sums = (
            plan.cells,
            plan.rank,
            plan.sources,
            plan.terms,
            plan.sums,
        )
        lines, heads, counts, starts = (
            plan.lines,
            plan.line_heads,
            plan.line_counts,
            elements(plan.starts, zero),
        )
        a_base, a_terms, a_strides = plan.a_base, plan.a_terms, plan.a_strides
        b_base, b_terms, b_strides = plan.b_base, plan.b_terms, plan.b_strides
        out, out_strides = plan.out, plan.out_stride
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
