"""Sums of a convolution over the cells and taps that meet, one by one: where nearly all else would be zeros.

A large stride leaves most cells of an image without a window, and a large kernel most taps of a window on padding. The
other kernels multiply such zeros, which is quick while they are few. Here what a sum costs is what it adds up: channels, then taps, in
order, as everywhere; so the bits are those of the other kernels.
"""

# mypy: disallow-untyped-defs = False
from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

import numpy as np

from lunette.kernels.cpu.compiling.machine import compiled, fma, kernel, within
from lunette.kernels.cpu.convolving.slabs import elements
from lunette.kernels.cpu.convolving.vectors import FUSED

__all__ = ["Factor", "run"]

Array = np.ndarray[Any, Any]


class Factor(NamedTuple):
    """One array of a product, in bytes: where it is for each sum (`base`), for each term of it, and from cell to cell."""

    base: Array
    terms: Array
    strides: Any


@compiled
def multiply_add(a, b, total):
    """`a·b + total` as the other kernels round it."""
    within()
    if FUSED:
        return fma(a, b, total)
    return a * b + total


@kernel
def sums(
    first, last, cells, lines, heads, counts, a_base, a_terms, a_strides, b_base, b_terms, b_strides,
    starts, out_base, out_strides, zero,
):  # fmt: skip
    """Units (sum, cell): `out = start + Σ_source Σ_term Σ_line a·b`.

    `lines` has those of every axis, from row `heads[axis]` on, `counts[axis]` of them.
    """
    rank = counts.size
    row, index = np.empty(rank, np.int64), np.empty(rank, np.int64)
    a_step, b_step = np.empty(rank, np.int64), np.empty(rank, np.int64)
    for unit in range(first, last):
        which, cell, target, empty = unit // cells, unit % cells, 0, False
        for axis in range(rank - 1, -1, -1):
            row[axis] = heads[axis] + cell % counts[axis]
            cell //= counts[axis]
            target += lines[row[axis], 0] * out_strides[axis]
            empty |= lines[row[axis], 5] <= 0
            index[axis] = 0
        total = starts[which]
        if not empty:
            inner = lines[row[rank - 1], 5]
            for s in range(a_base.shape[0]):
                a_first, b_first = a_base[s, which], b_base[s, which]
                for axis in range(rank):
                    line = lines[row[axis]]
                    a_first += line[1] * a_strides[s, axis]
                    b_first += line[3] * b_strides[s, axis]
                    a_step[axis] = line[2] * a_strides[s, axis]
                    b_step[axis] = line[4] * b_strides[s, axis]
                for term in range(a_terms.shape[1]):
                    a, b = a_first + a_terms[s, term], b_first + b_terms[s, term]
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
                            if index[axis] < lines[row[axis], 5]:
                                break
                            a -= index[axis] * a_step[axis]
                            b -= index[axis] * b_step[axis]
                            index[axis] = 0
                            axis -= 1
        elements(out_base[which] + target, zero)[0] = total


def run(
    share: Any, lines: list[Array], factors: tuple[list[Factor], list[Factor]], starts: Array,
    out: tuple[Array, Any], zero: Any,
) -> None:  # fmt: skip
    """All sums; `out` is where the results of each begin, in bytes, and their strides.

    `share` runs a kernel's units on all threads. `factors` are those of each source.
    """
    counts = np.array([len(table) for table in lines], np.int64)
    cells = prod(map(int, counts))
    heads = np.cumsum(counts) - counts
    both = (
        tuple(np.array([getattr(f, name) for f in side], np.int64) for name in Factor._fields)
        for side in factors
    )
    a, b = both
    base, strides = out
    share(
        sums, len(base) * cells,
        (cells, np.concatenate(lines), heads, counts, *a, *b, starts, base,
         np.array(strides, np.int64), zero),
    )  # fmt: skip
