"""Which cells of a step are bounded together: neighbours, over the part of the network they read.

Rows of many cells at once read much that most of them do not; rows of few are many small arrays. The
edge of a tile is the one with the least work, counted in products.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from lunette.bounds.affine import Affine
from lunette.bounds.box import Array
from lunette.bounds.network import Network
from lunette.bounds.parts import Part, cells_of, part_of, region_around, regions_of

__all__ = ["tiles"]

EDGES = (1, 2, 4, 8, 16, 32)
SMALL = 1 << 24
"""Work, in products, below which a network is not cut into parts."""
EACH = 1 << 21
"""What a step of a part costs besides its products, counted in them."""


def tiles(network: Network, k: int, cells: Array) -> Iterator[tuple[Part | None, Array, Array]]:
    """Parts of the network, which of `cells` each is for, and where they are in the part's result.

    None for the whole network, where cutting would save nothing.
    """
    shape = network.steps[k].shape
    edge = _edge(network, k, len(cells))
    if edge is None:
        yield None, np.arange(len(cells)), cells
        return
    places = np.stack(np.unravel_index(cells, shape))
    space = places[_first(shape) :] // edge
    tile = np.ravel_multi_index(tuple(space), tuple(-(-n // edge) for n in shape[_first(shape) :]))
    order = np.argsort(tile, kind="stable")
    for some in np.split(order, np.flatnonzero(np.diff(tile[order])) + 1):
        part = part_of(network, k, region_around(shape, cells[some]))
        local = np.full(math.prod(shape), -1)
        held = cells_of(shape, part.regions[-1])
        local[held] = np.arange(len(held))
        yield part, some, local[cells[some]]


def _first(shape: tuple[int, ...]) -> int:
    """The first axis of space: after batch and channels."""
    return min(2, len(shape))


def _edge(network: Network, k: int, count: int) -> int | None:
    """The edge of the cheapest tiles; None where the whole network at once is cheaper."""
    shape = network.steps[k].shape
    if len(shape) <= 2 or not count:
        return None
    best, found = _work(network, k, tuple((0, n) for n in shape), count), None
    if best < SMALL:
        return None
    for edge in EDGES:
        space = shape[2:]
        if edge >= max(space):
            break
        # A tile in the middle, where nothing is cut off by an edge of the image.
        middle = [(min(n // 2, n - min(edge, n)), n) for n in space]
        region = [(0, n) for n in shape[:2]] + [(a, min(a + edge, n)) for a, n in middle]
        number = math.prod(-(-n // edge) for n in space)
        work = number * _work(network, k, tuple(region), count / number)
        if work < best:
            best, found = work, edge
    return found


def _work(network: Network, k: int, region: tuple[tuple[int, int], ...], rows: float) -> float:
    regions = regions_of(network, k, region)
    total = 0.0
    for j, one in regions.items():
        step = network.steps[j]
        terms = int(step.terms) if isinstance(step, Affine) else 1
        # Arrays of rows are read several times besides; an array costs something of its own.
        total += rows * math.prod(b - a for a, b in one) * (terms + 32) + EACH
    return total
