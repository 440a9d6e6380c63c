"""Geometries to try, per op: the known-hard ones, every small one, then random ones without end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain, count, product
from typing import Any

import numpy as np

from lunette.check.calls import OPS

__all__ = ["Geometry", "geometries", "tags_of", "valid"]

WIDTHS = (7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65)
"""Lengths around every vector width in use."""


@dataclass(frozen=True)
class Geometry:
    """An op's arguments with the shapes of its operands; `hard` ones come first and get more inputs."""

    op: str
    arguments: dict[str, Any]
    shapes: tuple[tuple[int, ...], ...]
    hard: bool = False
    tags: frozenset[str] = field(default=frozenset())


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


def valid(geometry: Geometry) -> Geometry | None:
    """The geometry with its tags; None where the op refuses it."""
    make = OPS[geometry.op]
    if make is None:
        return geometry
    try:
        made = make(**geometry.arguments)
        out = made.out_shape(*geometry.shapes)
    except ValueError:
        return None
    return Geometry(
        geometry.op, geometry.arguments, geometry.shapes, geometry.hard, tags_of(geometry, out)
    )


def tags_of(geometry: Geometry, out: tuple[int, ...]) -> frozenset[str]:
    """The properties that this geometry puts to the test."""
    arguments, shape, tags = geometry.arguments, geometry.shapes[0], set()
    kernel = arguments.get("kernel", ())
    padding = arguments.get("padding", ())
    if padding == "same" or any(map(any, padding)):
        tags.add("padding")
    if padding == "same" or any(before != after for before, after in padding):
        tags.add("asymmetric")
    if arguments.get("ceil_mode"):
        tags.add("ceil_mode")
    if any(d > 1 for d in arguments.get("dilation", ())):
        tags.add("dilation")
    if any(s > k for s, k in zip(arguments.get("stride", ()), kernel, strict=False)):
        tags.add("strides")
    if shape[-1] > 6:
        tags.add("length")
    if arguments.get("groups", 1) > 1:
        tags.add("groups")
    if 0 in out:
        tags.add("empty batch")
    return frozenset(tags)


# -- sliding windows: max, mean, smooth max --


def _sliding(
    op: str,
    rng: np.random.Generator,
    lengths: tuple[int, ...],
    kernel: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    batch: tuple[int, ...] | None = None,
    hard: bool = True,
    **own: Any,
) -> Geometry:
    rank = len(lengths)
    kernel = _spread(kernel, rank)
    stride = kernel if stride is None else _spread(stride, rank)
    if padding != "same":
        pads = _spread(padding, rank) if not isinstance(padding, list) else padding
        padding = tuple(p if isinstance(p, tuple) else (p, p) for p in pads)
    arguments: dict[str, Any] = {
        "kernel": kernel,
        "stride": stride,
        "padding": padding,
        "dilation": _spread(dilation, rank),
        "ceil_mode": ceil_mode,
    }
    if op == "max":
        arguments["ties"] = str(rng.choice(["first", "first", "all", "split"]))
    if op == "smooth-max":
        arguments["beta"] = float(rng.choice([1.0, 0.5, 3.0, -2.0, 40.0]))
    if op in ("mean", "smooth-max"):
        arguments["count_include_pad"] = bool(rng.random() < 0.6)
    if op == "mean" and rng.random() < 0.15:
        arguments["divisor_override"] = int(rng.integers(1, 12))
    arguments |= own
    batch = _batch(rng) if batch is None else batch
    return Geometry(op, arguments, ((*batch, *lengths),), hard)


def _spread(value: Any, rank: int) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, tuple) else (value,) * rank


def _batch(rng: np.random.Generator) -> tuple[int, ...]:
    choices: list[tuple[int, ...]] = [(1, 2), (2, 3), (1, 1), (2, 1), (3,), (), (2, 1, 2), (0, 2)]
    weights = [0.34, 0.16, 0.16, 0.1, 0.1, 0.06, 0.05, 0.03]
    return choices[int(rng.choice(len(choices), p=weights))]


# (lengths, kernel, stride, …): ceil_mode, some windows would start in the end padding
CEIL: list[Any] = [
    ((4, 4), 3, 2, 1), ((5, 5), 2, 2, 0), ((12,), 1, 2, 0), ((5,), 2, 3, 1), ((6, 5), 3, 2, 1),
    ((4,), 2, 3, 1), ((7,), 3, 3, 1), ((6, 6, 5), 3, 2, 1), ((10,), 4, 3, 2), ((3,), 2, 2, 1),
]  # fmt: skip
# padding with dilation; windows of padding alone; padding past half the kernel
PADDED: list[Any] = [
    ((1,), 2, 1, 2, 3), ((4,), 2, 1, 2, 3), ((5, 4), 3, 1, 2, 2), ((6,), 2, 1, 3, 1),
    ((5,), 3, 2, [(2, 0)], 1), ((5,), 3, 2, [(0, 3)], 1), ((6, 6), 2, 3, 1, 2),
    ((7, 7), 3, 1, 1, 1), ((7,), 2, 2, 2, 4), ((2, 2), 3, 1, 1, 1), ((9,), 3, 2, 1, 2),
]  # fmt: skip
# strides past the kernel; a window over everything; one cell
STRIDES: list[Any] = [((9,), 1, 4), ((8, 9), 2, 5), ((5, 7), (5, 7), 1), ((1, 1), 1, 1)]
# "same", and its mirror image with the odd cell in front
SAME: list[Any] = [((5,), 2, 1), ((6, 5), 2, 2), ((7,), 4, 3), ((4, 4), 4, 1), ((8,), 3, 2)]


def _hard_sliding(op: str, rng: np.random.Generator) -> Iterator[Geometry]:
    def make(*arguments: Any, **named: Any) -> Geometry:
        return _sliding(op, rng, *arguments, **named)

    for lengths, k, s, p in CEIL:
        for include in (True, False) if op != "max" else (True,):
            own: dict[str, Any] = {} if op == "max" else {"count_include_pad": include}
            if op == "mean":
                own["divisor_override"] = None
            yield make(lengths, k, s, p, ceil_mode=True, **own)
    for lengths, k, s, p, d in PADDED:
        yield make(lengths, k, s, p, d)
        yield make(lengths, k, s, p, d, ceil_mode=True)
    for lengths, k, s in STRIDES:
        yield make(lengths, k, s)
    for lengths, k, s in SAME:
        yield make(lengths, k, s, "same", **_counted(op))
        yield make(lengths, k, s, _same_lower(lengths, k, s), **_counted(op))
    # lengths around vector widths
    for n in WIDTHS:
        k, s = int(rng.integers(1, 4)), int(rng.integers(1, 3))
        yield make((n,), k, s, min(k // 2, 1), batch=(1, 1))
        yield make((2, n), (2, k), (1, s), batch=(1,))
    # long axes with few windows: flat positions past 2⁸, 2¹⁶ and 2²⁴
    yield make((300,), 3, 99, batch=(1, 1))
    if op == "max":
        yield make((70_000,), 2, 23_000, batch=(1, 1))
        yield make((300, 300), (1, 2), 99, batch=(1, 1))
        yield make((2**24 + 9,), 3, 2**23 + 3, batch=(1, 1))
    # large windows, many axes, empty batches
    yield make((16,), 13, 1, 6, batch=(1, 1))
    yield make((20,), 17, 3, batch=(1, 2))
    yield make((3, 4, 3), 2, 1, 1)
    yield make((2, 3, 2, 3), (2, 2, 1, 2), 1, batch=(1,))
    yield make((5,), 2, 1, 1, batch=(0, 2))
    yield make((4, 4), 2, batch=(2, 0))
    yield make((10**18,), 2, batch=(0,))


def _counted(op: str) -> dict[str, Any]:
    return {} if op == "max" else {"count_include_pad": True}


def _same_lower(lengths: tuple[int, ...], k: int, s: int) -> list[tuple[int, int]]:
    """Padding for `ceil(n / s)` outputs, the odd cell in front."""
    totals = [max((-(-n // s) - 1) * s + k - n, 0) for n in lengths]
    return [(t - t // 2, t // 2) for t in totals]


def _small_sliding(op: str, rng: np.random.Generator) -> Iterator[Geometry]:
    for n, k, s, p, d, ceil in product(
        range(1, 7), range(1, 5), range(1, 5), range(3), range(1, 4), (False, True)
    ):
        if d * (k - 1) + 1 <= n + 2 * p:
            yield _sliding(op, rng, (n,), k, s, p, d, ceil, hard=False)


def _random_sliding(op: str, rng: np.random.Generator) -> Geometry:
    rank = int(rng.choice([1, 2, 3, 4], p=[0.35, 0.45, 0.15, 0.05]))
    longest = {1: 40, 2: 9, 3: 5, 4: 3}[rank]
    lengths = tuple(int(v) for v in rng.integers(1, longest + 1, rank))
    kernel = tuple(int(v) for v in rng.integers(1, 5 if rank < 3 else 4, rank))
    stride = tuple(int(v) for v in rng.integers(1, 5, rank))
    dilation = tuple(int(v) for v in rng.choice([1, 1, 1, 2, 3], rank))
    style = rng.random()
    padding: Any
    if style < 0.35:
        padding = 0
    elif style < 0.7:
        padding = tuple(int(rng.integers(0, k // 2 + 1)) for k in kernel)
    elif style < 0.9:
        padding = [(int(rng.integers(0, 4)), int(rng.integers(0, 4))) for _ in kernel]
    else:
        padding = "same"
    ceil_mode = bool(rng.random() < 0.4) and padding != "same"
    return _sliding(op, rng, lengths, kernel, stride, padding, dilation, ceil_mode, hard=False)


# -- adaptive and global --


def _adaptive(
    op: str, rng: np.random.Generator, lengths: Any, sizes: Any, hard: bool = True
) -> Geometry:
    arguments: dict[str, Any] = {"output_size": tuple(sizes)}
    if op == "adaptive-max":
        arguments["ties"] = str(rng.choice(["first", "first", "first", "all", "split"]))
    return Geometry(op, arguments, ((*_batch(rng), *lengths),), hard)


def _global(
    op: str, rng: np.random.Generator, shape: tuple[int, ...], ndim: int, hard: bool = True
) -> Geometry:
    arguments: dict[str, Any] = {"ndim": ndim, "keepdims": bool(rng.random() < 0.7)}
    if op == "global-max":
        arguments["ties"] = str(rng.choice(["all", "first", "split"]))
    if op == "global-smooth-max":
        arguments["beta"] = float(rng.choice([1.0, 1.0, 1.0, 0.5, -2.0]))
    return Geometry(op, arguments, (shape,), hard)


# -- convolution --


def _convolution(
    op: str,
    rng: np.random.Generator,
    lengths: Any,
    kernel: Any,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    per_group: tuple[int, int] = (1, 1),
    hard: bool = True,
    output_padding: Any = 0,
) -> Geometry:
    rank = len(lengths)
    if padding != "same":
        pads = padding if isinstance(padding, list) else _spread(padding, rank)
        padding = tuple(p if isinstance(p, tuple) else (p, p) for p in pads)
    arguments = {
        "kernel": _spread(kernel, rank),
        "stride": _spread(stride, rank),
        "padding": padding,
        "dilation": _spread(dilation, rank),
        "groups": groups,
    }
    ins, outs = groups * per_group[0], groups * per_group[1]
    weight = (outs, per_group[0], *arguments["kernel"])
    if op == "conv-transpose":
        arguments["output_padding"] = _spread(output_padding, rank)
        weight = (ins, per_group[1], *arguments["kernel"])
    batch = (1,) if rng.random() < 0.7 else [(2,), (), (0,), (1, 2)][int(rng.integers(4))]
    shapes = [(*batch, ins, *lengths), weight]
    if rng.random() < 0.5:
        shapes.append((outs,))
    return Geometry(op, arguments, tuple(shapes), hard)


def _hard_convolution(op: str, rng: np.random.Generator) -> Iterator[Geometry]:
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


def _random_convolution(op: str, rng: np.random.Generator) -> Geometry:
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
        op, rng, lengths, kernel, stride, padding, dilation, groups, per_group, False, **extra
    )


# -- unpooling --


def _unpool(rng: np.random.Generator, lengths: Any, hard: bool = True) -> Geometry:
    out = tuple(int(n * rng.integers(1, 4)) for n in lengths)
    return Geometry("unpool", {"output_size": out}, ((*_batch(rng), *lengths),), hard)


# -- the three kinds, per op --


def _hard(op: str, rng: np.random.Generator) -> Iterator[Geometry]:
    if op in ("max", "mean", "smooth-max"):
        yield from _hard_sliding(op, rng)
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
        yield from _hard_convolution(op, rng)
    else:
        for lengths in [(1,), (4,), (2, 3), (2, 2, 2), (9,), (3, 5)]:
            yield _unpool(rng, lengths)


def _small(op: str, rng: np.random.Generator) -> Iterator[Geometry]:
    if op in ("max", "mean", "smooth-max"):
        yield from _small_sliding(op, rng)
    elif op.startswith("adaptive"):
        for n, m in product(range(1, 10), range(1, 10)):
            yield _adaptive(op, rng, (n,), (m,), hard=False)
    elif op.startswith("conv"):
        for n, k, s, p, d in product(range(1, 6), range(1, 4), range(1, 4), range(3), range(1, 3)):
            if op == "conv-transpose" or d * (k - 1) + 1 <= n + 2 * p:
                yield _convolution(op, rng, (n,), k, s, p, d, hard=False)


def _random(op: str, rng: np.random.Generator) -> Geometry:
    if op in ("max", "mean", "smooth-max"):
        return _random_sliding(op, rng)
    if op.startswith("conv"):
        return _random_convolution(op, rng)
    rank = int(rng.integers(1, 4))
    longest = {1: 40, 2: 9, 3: 5}[rank]
    lengths = tuple(int(v) for v in rng.integers(1, longest, rank))
    if op.startswith("adaptive"):
        sizes = tuple(int(v) for v in rng.integers(1, longest, rank))
        return _adaptive(op, rng, lengths, sizes, hard=False)
    if op == "unpool":
        return _unpool(rng, lengths, hard=False)
    return _global(op, rng, (*_batch(rng), *lengths), rank, hard=False)
