"""Sums and smooth maxima whose bits depend on more than their windows: on layout, threads, chunks or parts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import dask.array as da
import numpy as np

import lunette as ln
from cases import drawn, values
from cases.agreement import differing_bits, pool, run
from lunette import dispatch
from lunette.ops.pooling import Pooling
from lunette.regions import Part

__all__ = ["by_chunks", "by_layout", "by_parts", "by_threads", "cases"]

Array = np.ndarray[Any, Any]
Case = tuple[Pooling, Array, Array, Array]


def cases(kind: str, count: int, seed: int, dtype: str = "float32") -> Iterator[Case]:
    """Ops of a kind of reduction, each with an input, a tangent and a gradient."""
    for number in range(count):
        rng = np.random.default_rng([seed, number])
        lengths, regions = drawn.geometry(rng, int(rng.choice([1, 2, 2, 3])))
        batch = BATCHES[int(rng.integers(len(BATCHES)))]
        op = pool(regions, drawn.reduction(rng, kind))
        x, dx = (drawn.numbers(rng, (*batch, *lengths), dtype) for _ in range(2))
        yield op, x, dx, drawn.numbers(rng, op.out_shape(x.shape), dtype)


BATCHES = ((), (5,), (1, 5), (2, 16), (3, 1), (1, 33))
"""Batch axes: none, few channels, and as many as fill vectors."""


def _verbs(op: Pooling, x: Array, dx: Array, gy: Array) -> Iterator[tuple[str, tuple[Array, ...]]]:
    yield "forward", (x,)
    if ln.Mean is not type(op.reduction):
        yield "jvp", (x, dx)
    yield "vjp", (x, gy)


def _whole(op: Pooling, verb: str, arrays: tuple[Array, ...]) -> Array:
    return np.asarray(run(op, verb, *arrays))


def _told(op: Pooling, verb: str, x: Array, what: str, got: Array, expected: Array) -> list[str]:
    difference = differing_bits(np.asarray(got), expected, any_nan=True)
    return [f"{verb} of {op!r} on {x.dtype}{list(x.shape)} {what}: {difference}"] * bool(difference)


def by_layout(case: Case) -> list[str]:
    """Verbs whose bits depend on the layout of one of their arrays."""
    op, *arrays = case
    found = []
    for verb, given in _verbs(op, *arrays):
        expected = _whole(op, verb, tuple(np.ascontiguousarray(a) for a in given))
        views = [list(values.layouts(a)) for a in given]
        for number, those in enumerate(views):
            for name, view in those:
                mixed = [*given[:number], view, *given[number + 1 :]]
                got = _whole(op, verb, tuple(mixed))
                found += _told(op, verb, case[1], f"array {number} {name}", got, expected)
        for those in zip(*views, strict=True) if len(given) > 1 else ():
            got = _whole(op, verb, tuple(view for _, view in those))
            found += _told(op, verb, case[1], f"all {those[0][0]}", got, expected)
    return found


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = ln.get_num_threads()
    ln.set_num_threads(count)
    try:
        yield
    finally:
        ln.set_num_threads(before)


def by_threads(case: Case, counts: tuple[int, ...] = (2, 3, 8)) -> list[str]:
    """Verbs whose bits depend on how many threads there are."""
    op, *arrays = case
    found = []
    for verb, given in _verbs(op, *arrays):
        with _threads(1):
            expected = _whole(op, verb, given)
        for count in counts:
            with _threads(count):
                got = _whole(op, verb, given)
            found += _told(op, verb, case[1], f"with {count} threads", got, expected)
    return found


def by_parts(case: Case, rng: np.random.Generator, count: int = 3) -> list[str]:
    """Values and tangents whose bits depend on which outputs are asked for: some along every axis at once."""
    op, x, dx, _ = case
    found, first = [], x.ndim - op.rank
    for verb, given in (("forward", (x,)), ("jvp", (x, dx))):
        expected = _whole(op, verb, given)
        for _ in range(count):
            parts: list[Part] = []
            for region, n in zip(op.regions, x.shape[first:], strict=True):
                low, high = sorted(map(int, rng.choice(region.out_length(n) + 1, 2, replace=False)))
                parts.append(region.part(n, low, high))
            cut = (..., *(slice(*part.slab_range) for part in parts))
            outputs = (..., *(slice(*part.outputs) for part in parts))
            got = _whole(pool(tuple(parts), op.reduction), verb, tuple(a[cut] for a in given))
            found += _told(op, verb, x, f"outputs {outputs[1:]}", got, expected[outputs])
    return found


def by_chunks(case: Case, rng: np.random.Generator, count: int = 1) -> list[str]:
    """Verbs whose bits depend on the chunks of Dask arrays, some of which are shorter than a window."""
    op, *arrays = case
    found = []

    def chunked(a: Array) -> Any:
        cuts = (np.unique(rng.integers(0, n + 1, rng.integers(0, 5))) for n in a.shape)
        chunks = (tuple(map(int, np.diff([0, *c, n]))) for c, n in zip(cuts, a.shape, strict=True))
        return da.from_array(a, chunks=tuple(tuple(k for k in c if k) for c in chunks), name=False)

    for verb, given in _verbs(op, *arrays):
        expected = _whole(op, verb, given)
        for _ in range(count):
            lazy = [chunked(a) for a in given]
            got = getattr(dispatch, verb)(op, *lazy).compute(scheduler="sync")
            chunks = " and ".join(str(a.chunks) for a in lazy)
            found += _told(op, verb, case[1], f"in chunks {chunks}", got, expected)
    return found
