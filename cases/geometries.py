"""Window geometries: every small one along one axis, and samples of products for more axes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from random import Random

from lunette.regions import Adaptive, Global, Region, Sliding

__all__ = ["Geometry", "adaptive", "boxes", "global_", "one_axis", "sampled"]

Geometry = tuple[tuple[int, ...], tuple[Region, ...]]
"""Lengths of the pooled axes, and a region for each."""


def one_axis(
    longest: int = 9, kernel: int = 4, stride: int = 3, dilation: int = 3, padding: int = 3
) -> Iterator[Geometry]:
    """Every sliding window with these largest sizes that fits, asymmetric padding and both modes.

    Under ceil_mode a window also fits whose end the edge cuts off, by less than a stride.
    """
    for n, k, s, d, before, after, ceil_mode in product(
        range(1, longest + 1),
        range(1, kernel + 1),
        range(1, stride + 1),
        range(1, dilation + 1),
        range(padding + 1),
        range(padding + 1),
        (False, True),
    ):
        region = Sliding(k, s, (before, after), d, ceil_mode)
        if region.extent < n + before + after + (s if ceil_mode else 1):
            yield (n,), (region,)
    for n, k, s, d in product(
        range(1, longest + 1), range(1, kernel + 1), range(1, stride + 1), range(1, dilation + 1)
    ):
        yield (n,), (Sliding(k, s, "same", d),)


def adaptive(longest: int = 9) -> Iterator[Geometry]:
    """Every adaptive region of a short axis, with more bins than positions too."""
    for n, m in product(range(1, longest + 1), range(1, longest + 4)):
        yield (n,), (Adaptive(m),)


def global_(longest: int = 9) -> Iterator[Geometry]:
    """The global region of every short axis."""
    for n in range(1, longest + 1):
        yield (n,), (Global(),)


def sampled(geometries: Iterator[Geometry], every: int, phase: int = 0) -> list[Geometry]:
    """About one in `every`, chosen by a fixed shuffle so that no parameter is favoured."""
    everything = list(geometries)
    Random(0).shuffle(everything)
    return everything[phase % every :: every]


def boxes(ndim: int, count: int, seed: int = 0, longest: int = 6) -> list[Geometry]:
    """Products of one-axis geometries over `ndim` axes: sliding, adaptive and global mixed."""
    random = Random(1000 * ndim + seed)
    # Larger boxes take shorter axes, so that the specification can walk them.
    longest = max(2, longest - max(0, ndim - 2))
    sliding = list(one_axis(longest, kernel=3))
    others = [*adaptive(longest), *global_(longest)]
    picked = []
    while len(picked) < count:
        axes = [random.choice(others if random.random() < 0.2 else sliding) for _ in range(ndim)]
        lengths = tuple(n for (n,), _ in axes)
        picked.append((lengths, tuple(region for _, (region,) in axes)))
    return picked
