"""Offsets of winners against the verbs that find them anew: values, indices, tangents and gradients, bit for bit."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np

from cases import drawn, values
from cases.agreement import differing_bits, direction, pool, run
from cases.geometries import Geometry
from lunette import offsets
from lunette.ops.pooling import Pooling
from lunette.reductions import Max
from lunette.regions import Adaptive, Global, Sliding

__all__ = ["BATCHES", "disagreements", "one_axis", "several_axes"]

Array = np.ndarray[Any, Any]

BATCHES = ((), (2,), (16,), (64,))
"""Items: none but the input itself, few, and as many as lie side by side where an axis has one cell."""


def one_axis() -> Iterator[Geometry]:
    """Windows on one axis: strides that pass it, dilation, padding on either side, both modes; bins; the whole axis."""
    for n, kernel, stride, dilation, before, after, ceil_mode in product(
        (1, 2, 3, 7, 20),
        (1, 2, 3, 5, 9),
        (1, 2, 3, 6, 25, 100, 5000),
        (1, 2, 4),
        (0, 1, 2, 6, 40),
        (0, 1, 3, 40),
        (False, True),
    ):
        region = Sliding(kernel, stride, (before, after), dilation, ceil_mode)
        if region.extent <= n + before + after:
            yield (n,), (region,)
    for n, outputs in product((1, 2, 3, 7, 20), (1, 2, 3, 5, 8, 23)):
        yield (n,), (Adaptive(outputs),)
        yield (n,), (Global(),)


def several_axes(count: int, seed: int) -> Iterator[Geometry]:
    """Windows drawn on two or three axes, of at most 255 taps."""
    rng = np.random.default_rng([seed, 255])
    while count:
        lengths, regions = drawn.geometry(rng, int(rng.choice([2, 2, 3])))
        if (
            np.prod([r.boxes(n)[2] for r, n in zip(regions, lengths, strict=True)])
            <= offsets.NOWHERE
        ):
            count -= 1
            yield lengths, regions


def disagreements(
    geometry: Geometry, batch: tuple[int, ...], dtype: str, kind: str, seed: int = 0
) -> list[str]:
    """What offsets say that a max does not, of inputs of a kind of values."""
    lengths, regions = geometry
    op = pool(regions, Max("first"))
    x = values.filled(kind, (*batch, *lengths), dtype, seed)
    return [
        f"{what} of {op!r} on {kind} {dtype}{list(x.shape)}: {difference}"
        for what, got, expected in _both(op, x, seed)
        if (difference := differing_bits(got, expected, what not in ("value", "offset")))
    ]


def _both(op: Pooling, x: Array, seed: int) -> Iterator[tuple[str, Array, Array]]:
    y, indices = run(op, "forward_with_indices", x)
    value, kept = offsets.forward_with_offsets(op, x)
    yield "value", value, y
    yield "offset", kept, offsets.offsets_of(op, x.shape, indices)
    yield "index", offsets.indices_of(op, x.shape, kept), indices
    grad, dx = direction(y.shape, x.dtype, seed), direction(x.shape, x.dtype, seed + 1)
    gradient, tangent = run(op, "vjp", x, grad), run(op, "jvp", x, dx)
    for layout in ("C", "F"):
        g, d, k = (np.asarray(a, order=layout) for a in (grad, dx, kept))
        yield f"gradient ({layout})", offsets.vjp_from_offsets(op, k, g, x.shape), gradient
        yield f"tangent ({layout})", offsets.jvp_from_offsets(op, k, d), tangent
