"""Geometries of convolution, plain and transposed."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np

from lunette.check.geometry import WIDTHS, Geometry, spread

__all__ = ["hard_convolution", "random_convolution", "small_convolution"]


def _convolution(
    op: str,
    rng: np.random.Generator,
    lengths: Any,
    kernel: Any,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    *,
    groups: int = 1,
    per_group: tuple[int, int] = (1, 1),
    hard: bool = True,
    output_padding: Any = 0,
) -> Geometry:
    rank = len(lengths)
    if padding != "same":
        pads = padding if isinstance(padding, list) else spread(padding, rank)
        padding = tuple(p if isinstance(p, tuple) else (p, p) for p in pads)
    arguments = {
        "kernel": spread(kernel, rank),
        "stride": spread(stride, rank),
        "padding": padding,
        "dilation": spread(dilation, rank),
        "groups": groups,
    }
    ins, outs = groups * per_group[0], groups * per_group[1]
    weight = (outs, per_group[0], *arguments["kernel"])
    if op == "conv-transpose":
        arguments["output_padding"] = spread(output_padding, rank)
        weight = (ins, per_group[1], *arguments["kernel"])
    batch = (1,) if rng.random() < 0.7 else [(2,), (), (0,), (1, 2)][int(rng.integers(4))]
    shapes = [(*batch, ins, *lengths), weight]
    if rng.random() < 0.5:
        shapes.append((outs,))
    return Geometry(op, arguments, tuple(shapes), hard)


def hard_convolution(op: str, rng: np.random.Generator) -> Iterator[Geometry]:
    """The known-hard ones."""

    def make(*arguments: Any, **named: Any) -> Geometry:
        return _convolution(op, rng, *arguments, **named)

    for named in ({}, {"per_group": (2, 3)}, {"groups": 2, "per_group": (1, 2)}):
        yield make((5,), 3, **named)
        yield make((6,), 2, 3, 1, 2, **named)
        yield make((4, 5), (3, 2), (2, 1), 1, **named)
        yield make((5, 4), 2, 2, [(0, 2), (1, 0)], (1, 2), **named)
        yield make((3, 3, 2), 2, 1, 1, **named)
        yield make((9,), 1, 4, **named)
    yield make((4,), 3, 2, 3)
    if op == "conv":
        yield make((5,), 2, 1, "same")
        yield make((6, 5), (4, 3), 2, "same")
    else:
        yield make((4,), 3, 2, 1, output_padding=1)
        yield make((3, 4), 2, (3, 2), 0, output_padding=(2, 1))
    for n in WIDTHS[:9]:
        yield make((n,), 3, 1, 1, per_group=(1, 1))
    yield make((2, 2, 2, 2), (2, 1, 2, 1))


def random_convolution(op: str, rng: np.random.Generator) -> Geometry:
    """One of up to three dimensions."""
    rank = int(rng.choice([1, 2, 3], p=[0.5, 0.4, 0.1]))
    lengths = tuple(int(v) for v in rng.integers(1, {1: 12, 2: 6, 3: 4}[rank], rank))
    kernel = tuple(int(v) for v in rng.integers(1, 4, rank))
    stride = tuple(int(v) for v in rng.integers(1, 4, rank))
    dilation = tuple(int(v) for v in rng.choice([1, 1, 2], rank))
    padding: Any = tuple(int(v) for v in rng.integers(0, 3, rank))
    if rng.random() < 0.2:
        padding = [(int(rng.integers(0, 3)), int(rng.integers(0, 3))) for _ in kernel]
    extra: dict[str, Any] = {}
    if op == "conv-transpose":
        extra["output_padding"] = tuple(int(rng.integers(0, s)) for s in stride)
    groups = int(rng.choice([1, 1, 2, 3]))
    per_group = (int(rng.integers(1, 3)), int(rng.integers(1, 3)))
    return _convolution(
        op,
        rng,
        lengths,
        kernel,
        stride,
        padding,
        dilation,
        groups=groups,
        per_group=per_group,
        hard=False,
        **extra,
    )


def small_convolution(op: str, rng: np.random.Generator) -> Iterator[Geometry]:
    """Every one of up to five cells in one dimension."""
    for n, k, s, p, d in product(range(1, 6), range(1, 4), range(1, 4), range(3), range(1, 3)):
        if op == "conv-transpose" or d * (k - 1) + 1 <= n + 2 * p:
            yield _convolution(op, rng, (n,), k, s, p, d, hard=False)
