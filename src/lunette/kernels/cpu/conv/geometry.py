"""The tables that a convolution's kernels walk by: which positions are read, and from what planes.

Everything here follows from shapes and strides alone and is remembered.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import product
from math import inf, prod
from typing import Any, NamedTuple

import numpy as np

from lunette.kernels.cpu.conv.lines import Span, reached
from lunette.ops.base import Shape
from lunette.ops.convolution import Convolution

__all__ = [
    "Axis",
    "Phase",
    "Strides",
    "Tile",
    "cells_of",
    "fills",
    "image_phases",
    "merge",
    "spans",
    "sparse",
    "tile_of",
    "window_phase",
    "with_batch",
]

Array = np.ndarray[Any, Any]
Strides = tuple[tuple[int, ...], ...]

FEW_PHASES, PHASE = 64, 1 << 18
"""Phases that are worth their tables whatever they add up, and what one costs beside its products, in products one by one."""

QUICK, WASTE = 1 << 22, 64
"""Products that take no time, and how many of zeros to one that counts are as quick as products one by one."""


class Phase(NamedTuple):
    """A correlation: output `start + stride·i` on each axis reads positions `step·i + tap`.

    `kernel` has the flat kernel index of each tap.
    """

    lengths: Shape
    counts: Shape
    steps: Shape
    taps: tuple[Shape, ...]
    kernel: Shape
    start: Shape
    stride: Shape


@lru_cache(maxsize=256)
def window_phase(op: Convolution, image: Shape, windows: Shape) -> Phase:
    """Windows read the image: one correlation with the op's own steps."""
    axes = [
        [j * region.dilation - region.margins(n)[0] for j in range(region.kernel)]
        for region, n in zip(op.regions, image, strict=True)
    ]
    zeros, ones = (0,) * op.rank, (1,) * op.rank
    kernel = tuple(range(prod(op.kernel)))
    return Phase(image, windows, op.stride, tuple(product(*axes)), kernel, zeros, ones)


@lru_cache(maxsize=256)
def image_phases(op: Convolution, image: Shape, windows: Shape) -> list[Phase]:
    """Image cells read windows: one correlation for each residue of the cell modulo the strides that a tap reaches.

    Cell `p` reads window `i` through tap `j` where `i·stride + j·dilation − before = p`.
    """
    axes: list[list[Any]] = [
        [
            (first, -((first - axis.length) // axis.stride), taps)
            for first, taps in reached(axis).items()
        ]
        for axis in spans(op, image, windows)
    ]
    phases = []
    for residue in product(*axes):
        pairs = list(product(*(axis[2] for axis in residue)))
        kernel = [int(np.ravel_multi_index([j for j, _ in tap], op.kernel)) for tap in pairs]
        moves = tuple(tuple(shift for _, shift in tap) for tap in pairs)
        counts, start = tuple(axis[1] for axis in residue), tuple(axis[0] for axis in residue)
        ones = (1,) * op.rank
        phases.append(Phase(windows, counts, ones, moves, tuple(kernel), start, op.stride))
    return phases


def with_batch(phase: Phase, items: int) -> Phase:
    """The same correlation with the batch as a first axis: its items may then share a tile."""
    first = (0,)
    return Phase(
        (items, *phase.lengths), (items, *phase.counts), (1, *phase.steps), tuple(first + tap for tap in phase.taps),
        phase.kernel, (0, *phase.start), (1, *phase.stride),
    )  # fmt: skip


def spans(op: Convolution, image: Shape, windows: Shape) -> list[Span]:
    """The axes that the windows of an image slide over."""
    return [Span(region, n, m) for region, n, m in zip(op.regions, image, windows, strict=True)]


@lru_cache(maxsize=256)
def fills(op: Convolution, image: Shape, windows: Shape) -> bool:
    """Whether some cells of the image are in no phase: no tap reaches them."""
    return any(len(reached(a)) < min(a.stride, a.length) for a in spans(op, image, windows))


@lru_cache(maxsize=256)
def sparse(op: Convolution, image: Shape, windows: Shape, transposed: bool, each: int) -> bool:
    """Whether a sum should go cell by cell, for most of what it meets would be zeros; or must, for numbers past int64.

    `each` is the products of a cell with a tap. Phases have a cost of their own, so many of few products are not worth it.
    """
    axes = spans(op, image, windows)
    if not all(axis.safe for axis in axes):
        return True
    if transposed:
        residues = [reached(axis) for axis in axes]
        phases = prod(map(len, residues))
        products = prod(
            sum(-((r - axis.length) // axis.stride) * len(taps) for r, taps in found.items())
            for axis, found in zip(axes, residues, strict=True)
        )
    else:
        phases, products = 1, prod(axis.count * axis.kernel for axis in axes)
    if phases <= FEW_PHASES and products * each <= QUICK:
        return False
    pairs = prod(axis.pairs() for axis in axes)
    if phases > FEW_PHASES and pairs * each < phases * PHASE:
        return True
    return products > WASTE * max(1, pairs)


class Tile(NamedTuple):
    """Blocks of output rows and the planes that they read.

    `blocks` is (rows, columns) of a block, `shape` (rows, columns) of a plane; `planes` has the
    position that a plane's first cell reads for output 0; tap t is `within[t]` in plane `which[t]`.
    """

    blocks: Array
    shape: Array
    planes: Array
    which: Array
    within: Array
    tiles: int


def cells_of(found: Tile) -> Array:
    """Where each tap is in a channel's planes, in elements."""
    height, width = found.shape
    rows = found.which * height + found.within[:, 0]
    cells: Array = rows * width + found.within[:, 1]
    return cells


class Axis(NamedTuple):
    """The taps on an axis: how many, how many residues modulo the step, and how many steps apart."""

    places: int
    residues: int
    reach: int

    @classmethod
    def of(cls, taps: Array, step: int) -> Axis:
        if not len(taps):
            return cls(0, 0, 0)
        away, residues = np.divmod(taps - taps.min(), step)
        return cls(len(np.unique(taps)), len(np.unique(residues)), int(away.max()))

    def shares(self, block: int) -> bool:
        """Whether planes that taps share are smaller than one plane for each."""
        return self.residues * (block + self.reach) <= self.places * block

    def planes(self, block: int) -> tuple[int, int]:
        """How many planes there are on this axis, and their length."""
        if self.shares(block):
            return self.residues, block + self.reach
        return self.places, block


def tile_of(counts: Array, steps: Array, taps: Array, items: int, blocks: tuple[int, int]) -> Tile:
    """Planes for blocks of output rows × columns: taps that differ by whole steps share a plane.

    On an axis where the shared planes would be larger, each place of a tap has a plane of its own.
    """
    within = np.zeros((len(taps), 2), np.int64)
    bases = taps.copy()
    for a in (-2, -1) if len(taps) else ():
        first = taps[:, a].min()
        if Axis.of(taps[:, a], int(steps[a])).shares(blocks[a]):
            within[:, a], residues = np.divmod(taps[:, a] - first, steps[a])
            bases[:, a] = first + residues
    planes, which = np.unique(bases, axis=0, return_inverse=True)
    shape = np.array(blocks) + within.max(0, initial=0)
    per_item = prod(int(-(-n // b)) for n, b in zip(counts[-2:], blocks, strict=True))
    units = items * int(np.prod(counts[:-2])) * per_item
    return Tile(np.array(blocks), shape, planes, which.ravel(), within, units)


def merge(phase: Phase, strides: Strides, short: float = inf) -> tuple[Array, ...]:
    """The phase's tables and the strides, at least two axes, those merged that are read as they lie.

    An axis without taps and padding joins the one before it if it is `short`; then runs are longer.
    """
    lengths, counts, steps = list(phase.lengths), list(phase.counts), list(phase.steps)
    taps = np.array(phase.taps, np.int64).reshape(-1, len(lengths))
    table = np.array(strides, np.int64)
    for a in range(len(lengths) - 2, -1, -1):
        n = lengths[a + 1]
        whole = steps[a + 1] == 1 and counts[a + 1] == n and not taps[:, a + 1].any()
        if n < short and whole and steps[a] == 1 and (table[:, a] == table[:, a + 1] * n).all():
            lengths[a : a + 2] = [lengths[a] * n]
            counts[a : a + 2] = [counts[a] * n]
            del steps[a + 1]
            taps[:, a] *= n
            taps, table = np.delete(taps, a + 1, 1), np.delete(table, a, 1)
    if len(lengths) == 1:
        lengths, counts, steps = [1, *lengths], [1, *counts], [1, *steps]
        taps, table = np.insert(taps, 0, 0, 1), np.insert(table, 0, 0, 1)
    tables = (np.array(v, np.int64) for v in (lengths, counts, steps))
    return (*tables, np.ascontiguousarray(taps), np.ascontiguousarray(table))
