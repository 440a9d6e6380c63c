"""Cells that a kernel must not take on trust, a few among many: what is done again is put where it belongs, and right."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np

from cases import oracle, values
from cases.agreement import TIES, differing_bits, direction, pool, run
from cases.workloads import dtype_named
from lunette import offsets
from lunette.reductions import Max
from lunette.regions import Adaptive, Global, Region, Sliding

__all__ = ["disagreements", "drawn", "layouts_of", "with_specials"]

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]

BATCHES = ((2048,), (8, 144), (1024, 1), (2, 1088), (40,), (3, 16), (2, 5))
"""Items that go side by side, items that channels of are side by side, and few."""

MOST = 1 << 17
"""Cells of an array, at most."""


def drawn(rng: np.random.Generator) -> tuple[Shape, tuple[Region, ...]]:
    """The shape of an array, and windows on its last axes, some of which have one cell."""
    while True:
        rank = int(rng.choice([1, 2, 2, 2, 3]))
        lengths = tuple(int(n) for n in rng.choice([1, 1, 2, 3, 5, 7, 12, 19, 40], rank))
        batch = BATCHES[int(rng.integers(len(BATCHES)))]
        regions = tuple(_region(rng, n) for n in lengths)
        try:
            outputs = [r.out_length(n) for r, n in zip(regions, lengths, strict=True)]
        except ValueError:  # a window longer than the padded axis
            continue
        if prod((*batch, *lengths)) <= MOST and prod((*batch, *outputs)) <= MOST:
            return (*batch, *lengths), regions


def _region(rng: np.random.Generator, n: int) -> Region:
    kind = rng.random()
    if kind < 0.2:
        return Adaptive(int(rng.integers(1, n + 3)))
    if kind < 0.25:
        return Global()
    kernel, stride = int(rng.choice([1, 2, 2, 3, 3, 4, 9])), int(rng.choice([1, 1, 2, 2, 3, 30]))
    before, after = map(int, rng.integers(0, kernel, 2))
    return Sliding(
        kernel, stride, (before, after), int(rng.choice([1, 1, 1, 2])), bool(rng.random() < 0.3)
    )


def with_specials(rng: np.random.Generator, shape: Shape, dtype: str) -> Array:
    """Numbers with ties; among them a few NaNs, zeros of both signs, infinities or subnormal numbers, or one in an item or two."""
    target = dtype_named(dtype)
    if dtype not in values.FLOATS:
        return values.filled(
            str(rng.choice(values.kinds_of(dtype))), shape, dtype, int(rng.integers(99))
        )
    x = rng.integers(-3, 4, shape).astype(target)
    if rng.random() < 0.5:
        x[x == 0] = -1  # a zero is rare, then
    tiny = values.filled("denormal", (8,), dtype)
    specials = np.array([np.nan, -0.0, 0.0, np.inf, -np.inf], target)
    kinds = (specials[:1], specials[1:3], specials[3:], tiny, np.concatenate([specials, tiny]))
    chosen = kinds[int(rng.integers(len(kinds)))]
    flat = x.reshape(-1)
    count = int(rng.choice([1, 2, max(1, x.size // 50), x.size // 2]))
    flat[rng.integers(0, x.size, count)] = rng.choice(chosen, count)
    if rng.random() < 0.3 and dtype != "bfloat16":  # the sign of a NaN is one of its bits
        flat[:] = np.where(rng.random(x.size) < 0.5, flat, np.copysign(flat, -1).astype(target))
    return x


def layouts_of(a: Array, rank: int) -> Iterator[tuple[str, Array]]:
    """An array as it is, column-major, and with each batch axis of more than a cell innermost."""
    yield "C", a
    yield "F", np.asfortranarray(a)
    for axis in range(a.ndim - rank):
        if a.shape[axis] > 1:
            yield (
                f"axis {axis} last",
                np.moveaxis(np.ascontiguousarray(np.moveaxis(a, axis, -1)), -1, axis),
            )


def disagreements(shape: Shape, regions: tuple[Region, ...], x: Array, seed: int = 0) -> list[str]:
    """Verbs of a max, by every rule for ties, that are not the specification's: in several layouts of all arrays."""
    found: list[str] = []
    real = x.dtype.kind not in "iub"

    def compare(
        what: str, op: Any, layout: Any, got: Array, expected: Array, any_nan: bool
    ) -> None:
        if difference := differing_bits(got, expected, any_nan):
            found.append(f"{what} of {op!r} on {x.dtype}{list(shape)} {layout}: {difference}")

    first, rank = pool(regions, Max("first")), len(regions)
    y, z = oracle.forward_with_indices(first, x)
    grad, dx = direction(y.shape, x.dtype, seed), direction(shape, x.dtype, seed + 1)
    grads, tangents = dict(layouts_of(grad, rank)), dict(layouts_of(dx, rank))
    wanted = {}
    if real:
        for rule in TIES:
            op = pool(regions, Max(rule))
            wanted[rule] = op, oracle.jvp(op, x, dx), oracle.vjp(op, x, grad)
    for name, view in layouts_of(x, rank):
        compare("forward", first, name, run(first, "forward", view), y, False)
        value, index = run(first, "forward_with_indices", view)
        compare("value", first, name, value, y, False)
        compare("index", first, name, index, z, False)
        for op, tangent, gradient in wanted.values():
            for other in {name, "C"}:
                layout = (name, other)
                got = run(op, "jvp", view, tangents.get(other, dx))
                compare("jvp", op, layout, got, tangent, True)
                got = run(op, "vjp", view, grads.get(other, grad))
                compare("vjp", op, layout, got, gradient, True)
        if (
            real
            and prod(r.boxes(n)[2] for r, n in zip(regions, shape[-rank:], strict=True))
            <= offsets.NOWHERE
        ):
            value, kept = offsets.forward_with_offsets(first, view)
            compare("value with its offset", first, name, value, y, False)
            compare("offset", first, name, kept, offsets.offsets_of(first, shape, z), False)
            got = offsets.vjp_from_offsets(first, kept, grads.get(name, grad), shape)
            compare("vjp from offsets", first, name, got, wanted["first"][2], True)
            got = offsets.jvp_from_offsets(first, kept, tangents.get(name, dx))
            compare("jvp from offsets", first, name, got, wanted["first"][1], True)
    return found
