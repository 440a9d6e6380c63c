"""Geometries drawn by chance, from short windows to long ones, and numbers whose sums tell one order from another."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from cases.workloads import dtype_named
from lunette.reductions import Max, Mean, Reduction, SmoothMax
from lunette.regions import Adaptive, Global, Region, Sliding

__all__ = ["geometry", "numbers", "reduction"]

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]

CELLS, VISITS = 1 << 13, 1 << 18
"""Cells of the pooled axes, and cells of all their windows, at most: the checks go through every one several times."""


def geometry(rng: np.random.Generator, rank: int) -> tuple[Shape, tuple[Region, ...]]:
    """Lengths of so many axes, and a region for each; none is too large for a check."""
    while True:
        axes = [_axis(rng, rank) for _ in range(rank)]
        lengths = tuple(n for n, _ in axes)
        try:
            outputs = [region.out_length(n) for n, region in axes]
        except ValueError:  # a window longer than the padded axis
            continue
        cells = [
            max(region.window(n, i).real for i in (0, m // 2, m - 1))
            for (n, region), m in zip(axes, outputs, strict=True)
        ]
        visits = prod(m * max(1, k) for m, k in zip(outputs, cells, strict=True))
        if prod(lengths) <= CELLS and visits <= VISITS:
            return lengths, tuple(region for _, region in axes)


def _axis(rng: np.random.Generator, rank: int) -> tuple[int, Region]:
    n = int(rng.integers(1, (400, 70, 24)[rank - 1]))
    kind = rng.random()
    if kind < 0.1:
        return n, Adaptive(int(rng.integers(1, n + 5)))
    if kind < 0.15:
        return n, Global()
    kernel = int(rng.choice([1, 2, 3, 4, 5, 8, 9, 16, 17, 20, 25, 31, 33]))
    stride = int(rng.choice([1, 1, 1, 2, 2, 3, 5, kernel, 2 * kernel + 1, 100]))
    dilation = int(rng.choice([1, 1, 1, 2, 3, 7]))
    if rng.random() < 0.2:
        return n, Sliding(kernel, stride, "same", dilation)
    padding = rng.integers(0, max(2, kernel), 2) if rng.random() < 0.6 else (0, 0)
    before, after = map(int, padding)
    return n, Sliding(kernel, stride, (before, after), dilation, bool(rng.random() < 0.3))


def reduction(rng: np.random.Generator, kind: str) -> Reduction:
    """A max with some rule for ties, a mean with some divisor, or a smooth max with some beta."""
    if kind == "max":
        return Max(str(rng.choice(["first", "all", "split"])))  # type: ignore[arg-type]
    counts = bool(rng.random() < 0.5)
    if kind == "mean":
        return Mean(counts, 7 if rng.random() < 0.1 else None)
    return SmoothMax(float(rng.choice([0.3, 1.5, -2.0])), counts)


def numbers(rng: np.random.Generator, shape: Shape, dtype: str) -> Array:
    """Numbers of many sizes: to add them in another order is to get other bits."""
    if np.dtype(dtype_named(dtype)).kind in "iub":
        return rng.integers(0, 2 if dtype == "bool" else 100, shape).astype(dtype_named(dtype))
    wide = rng.standard_normal(shape) * np.exp2(rng.integers(-6, 7, shape))
    return np.asarray(wide.astype(dtype_named(dtype)))
