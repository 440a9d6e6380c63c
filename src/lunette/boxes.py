"""The order of a sum over all positions: boxes of positions are summed one by one and added in a tree.

The gradients of a convolution's weight and bias are such sums. Boxes follow from the op and the shape
of the whole array, and a box on its own is one box again. So whoever holds the numbers of a box can
sum it, and the bits do not depend on how the array was cut before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import product
from math import prod
from typing import TypeVar

from lunette.ops.base import Shape
from lunette.ops.convolution import Convolution

__all__ = ["Box", "Range", "add_up", "boxes", "of_grad", "of_windows"]

Range = tuple[int, int]
Box = tuple[Range, ...]
Part = TypeVar("Part")

NUMBERS = 1 << 23
"""Numbers of a box, all channels of it: a few megabytes, so that it fits where a chunk does."""
POSITIONS = 1 << 14
"""A box may have so many positions for any number of channels: adding up boxes must cost little."""

ROW = 512
"""A box is not cut along the last axis below this: short rows make kernels slower."""


def of_windows(op: Convolution, image: Shape, windows: Shape) -> list[list[Range]]:
    """The boxes of windows that the gradient of the weight is summed over: ranges on each axis."""
    channel = -op.rank - 1
    cells = prod(region.stride or 1 for region in op.regions)
    return _ranges(windows, op.rank, _most(windows[channel] + cells * image[channel]))


def of_grad(op: Convolution, grad: Shape) -> list[list[Range]]:
    """The boxes of a gradient that the gradient of the bias is summed over: ranges on each axis."""
    return _ranges(grad, op.rank, _most(grad[-op.rank - 1]))


def boxes(ranges: list[list[Range]]) -> Iterable[Box]:
    """All boxes, in row-major order."""
    return product(*ranges)


def add_up(parts: Iterable[Part], add: Callable[[Part, Part], Part]) -> Part | None:
    """Neighbours are added, then neighbours of these, and so on; one without a neighbour waits.

    None where there are no parts. Aligned runs of 2ᵏ parts may be added up first, on their own.
    """
    waiting: list[Part] = []
    for number, part in enumerate(parts, 1):
        total = part
        for _ in range((number & -number).bit_length() - 1):  # as often as 2 divides the number
            total = add(waiting.pop(), total)
        waiting.append(total)
    while len(waiting) > 1:
        last = waiting.pop()
        waiting.append(add(waiting.pop(), last))
    return waiting[0] if waiting else None


def _most(numbers: int) -> int:
    """Positions of a box that has so many numbers at each."""
    return max(POSITIONS, NUMBERS // numbers)


@lru_cache(maxsize=64)
def _ranges(shape: Shape, rank: int, most: int) -> list[list[Range]]:
    """The ranges of boxes of at most so many positions over `(*batch, channels, *lengths)`."""
    if 0 in shape:  # no position, though an axis may be longer than any list
        return [[] for _ in shape]
    channel = len(shape) - rank - 1
    sides = _cube(shape[channel + 1 :], most)
    left = most // prod(sides) if sides == list(shape[channel + 1 :]) else 1
    sides.insert(0, shape[channel])
    for n in reversed(shape[:channel]):
        whole = n <= left
        sides.insert(0, n if whole else 1 << left.bit_length() - 1)
        left = left // max(1, n) if whole else 1
    return [
        [(first, min(n, first + side)) for first in range(0, n, max(1, side))]
        for n, side in zip(shape, sides, strict=True)
    ]


def _cube(lengths: Sequence[int], most: int) -> list[int]:
    """Sides of about a cube of at most so many positions: powers of two, or whole axes.

    Chunks on disk are about cubes, so a cube lies in few of them; but rows have some length.
    """

    def sides_of(side: int) -> list[int]:
        return [min(n, side) for n in lengths[:-1]] + [min(lengths[-1], max(side, row))]

    side, row = 1, min(ROW, most // 16)
    while side < max(lengths) and prod(sides_of(2 * side)) <= most:
        side *= 2
    sides = sides_of(side)
    for a in reversed(range(len(sides))):
        longer = min(lengths[a], 2 * sides[a])
        if prod(sides) // sides[a] * longer <= most:
            sides[a] = longer
    return sides
