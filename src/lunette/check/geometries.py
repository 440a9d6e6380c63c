"""Geometries to try, per op: the known-hard ones, every small one, then random ones without end."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, count, product
from typing import Any

import numpy as np

from lunette.check.convolving import hard_convolution, random_convolution, small_convolution
from lunette.check.geometry import WIDTHS, Geometry, some_batch, valid
from lunette.check.sliding import hard_sliding, random_sliding, small_sliding

__all__ = ["geometries"]


def geometries(op: str, rng: np.random.Generator) -> Iterator[Geometry]:
    """Every geometry worth trying for this op, the most telling first; never ends."""
    hard, small = list(_hard(op, rng)), list(_small(op, rng))
    # A shuffle, so that a short run samples all of them and another seed samples others.
    order = [hard[i] for i in rng.permutation(len(hard))]
    rest = iter([small[i] for i in rng.permutation(len(small))])
    for geometry in chain(order, _interleaved(rest, op, rng)):
        checked = valid(geometry)
        if checked is not None:
            yield checked


def _interleaved(
    small: Iterator[Geometry], op: str, rng: np.random.Generator
) -> Iterator[Geometry]:
    for _ in count():
        following = next(small, None)
        if following is not None:
            yield following
        yield _random(op, rng)


# -- adaptive and global --


def _adaptive(
    op: str, rng: np.random.Generator, lengths: Any, sizes: Any, hard: bool = True
) -> Geometry:
    arguments: dict[str, Any] = {"output_size": tuple(sizes)}
    if op == "adaptive-max":
        arguments["ties"] = str(rng.choice(["first", "first", "first", "all", "split"]))
    return Geometry(op, arguments, ((*some_batch(rng), *lengths),), hard)


def _global(
    op: str, rng: np.random.Generator, shape: tuple[int, ...], ndim: int, hard: bool = True
) -> Geometry:
    arguments: dict[str, Any] = {"ndim": ndim, "keepdims": bool(rng.random() < 0.7)}
    if op == "global-max":
        arguments["ties"] = str(rng.choice(["all", "first", "split"]))
    if op == "global-smooth-max":
        arguments["beta"] = float(rng.choice([1.0, 1.0, 1.0, 0.5, -2.0]))
    return Geometry(op, arguments, (shape,), hard)


# -- unpooling --


def _unpool(rng: np.random.Generator, lengths: Any, hard: bool = True) -> Geometry:
    out = tuple(int(n * rng.integers(1, 4)) for n in lengths)
    return Geometry("unpool", {"output_size": out}, ((*some_batch(rng), *lengths),), hard)


# -- the three kinds, per op --


def _hard(op: str, rng: np.random.Generator) -> Iterator[Geometry]:
    if op in ("max", "mean", "smooth-max"):
        yield from hard_sliding(op, rng)
    elif op.startswith("adaptive"):
        # uneven bins, growing bins, one cell, one bin
        for lengths, sizes in [
            ((5,), (3,)), ((7,), (3,)), ((3,), (7,)), ((10,), (4,)), ((1,), (5,)), ((7, 5), (3, 2)),
            ((4, 6), (5, 4)), ((8, 8), (4, 4)), ((9,), (1,)), ((3, 4, 5), (2, 3, 2)), ((33,), (7,)),
            ((65,), (64,)), ((2, 17), (1, 5)), ((300,), (7,)), ((2, 2, 2, 3), (1, 2, 3, 2)),
        ]:  # fmt: skip
            yield _adaptive(op, rng, lengths, sizes)
    elif op.startswith("global"):
        for n in (1, 2, *WIDTHS, 300):
            yield _global(op, rng, (2, n), 1)
        for shape, ndim in [((2, 3, 4, 5), 2), ((1, 2, 3, 3, 3), 3), ((5,), 1), ((0, 2, 3), 1)]:
            yield _global(op, rng, shape, ndim)
    elif op.startswith("conv"):
        yield from hard_convolution(op, rng)
    else:
        for lengths in [(1,), (4,), (2, 3), (2, 2, 2), (9,), (3, 5)]:
            yield _unpool(rng, lengths)


def _small(op: str, rng: np.random.Generator) -> Iterator[Geometry]:
    if op in ("max", "mean", "smooth-max"):
        yield from small_sliding(op, rng)
    elif op.startswith("adaptive"):
        for n, m in product(range(1, 10), range(1, 10)):
            yield _adaptive(op, rng, (n,), (m,), hard=False)
    elif op.startswith("conv"):
        yield from small_convolution(op, rng)


def _random(op: str, rng: np.random.Generator) -> Geometry:
    if op in ("max", "mean", "smooth-max"):
        return random_sliding(op, rng)
    if op.startswith("conv"):
        return random_convolution(op, rng)
    rank = int(rng.integers(1, 4))
    longest = {1: 40, 2: 9, 3: 5}[rank]
    lengths = tuple(int(v) for v in rng.integers(1, longest, rank))
    if op.startswith("adaptive"):
        sizes = tuple(int(v) for v in rng.integers(1, longest, rank))
        return _adaptive(op, rng, lengths, sizes, hard=False)
    if op == "unpool":
        return _unpool(rng, lengths, hard=False)
    return _global(op, rng, (*some_batch(rng), *lengths), rank, hard=False)
