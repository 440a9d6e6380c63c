"""Draws chosen by hand: calls that once left their memory, and those nearest to an edge."""

from __future__ import annotations

import lunette as ln
from cases.guard.draws import Draw
from lunette.ops.pooling import Pool
from lunette.reductions import SmoothMax
from lunette.regions import Adaptive

__all__ = ["DIRECTED"]

_POOLINGS = (
    # One long window of a smooth max: the pairs of its gradient are as many as its cells.
    *((ln.SmoothMaxPool((n,), 1.0), (1, n)) for n in (65, 100, 128, 1000)),
    (ln.SmoothMaxPool((70,), 1.0, stride=200), (3, 400)),  # cells that no window reads
    (Pool((Adaptive(3),), SmoothMax(1.0)), (2, 300)),
    # Rows of more than 64 vectors, added up in pieces whose last is a part of one; and of more than eight.
    (ln.AvgPool((9, 9), 1, 4), (41, 1051)),
    (ln.AvgPool((20, 3), 1), (40, 403)),
)

_CONVOLUTIONS = (
    # A panel of fewer positions than a vector has lanes, in a wide slab.
    (ln.Conv((9, 9), padding=2), (1, 16, 5, 5), (16, 16, 9, 9)),
    (ln.Conv((1, 90)), (2, 12, 3, 90), (8, 12, 1, 90)),
)

DIRECTED = (
    *(
        Draw(op, (shape,), dtype, (layout,) * 3, "plain", threads, (0, number))
        for op, shape in _POOLINGS
        for dtype in ("float32", "float64")
        for number, layout, threads in ((0, "C", 1), (1, "F", 2))
    ),
    *(
        Draw(op, (x, weight), "float32", ("C", "F", "C"), "plain", 1 + way, (0, way))
        for op, x, weight in _CONVOLUTIONS
        for way in range(4)
    ),
)
"""Poolings in two dtypes and layouts; convolutions by each way to read the windows."""
