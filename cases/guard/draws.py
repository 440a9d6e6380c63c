"""Draws of ops and arrays: any rank, region, reduction, dtype and layout, each from a seed and a number alone.

The shapes are those that kernels are chosen by: rows shorter and longer than vectors, few and many channels, many small
items, windows past 255 cells, strides past the kernel, padding past the window, bins that outnumber positions.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from random import Random
from typing import Any, NamedTuple

import numpy as np

import lunette as ln
from cases.workloads import dtype_named
from lunette.ops.pooling import Pool
from lunette.reductions import Max, Mean, Min, Mode, Reduction, RoundedMean, SmoothMax
from lunette.regions import Adaptive, Global, Region, Sliding

__all__ = ["DTYPES", "FLOATS", "Draw", "array", "draw"]

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]

FLOATS = ("float32", "float16", "bfloat16", "float64")
INTEGERS = ("uint8", "int8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "bool")
LAYOUTS = ("C", "C", "C", "F", "channels last", "channels last", "permuted", "strided", "reversed", "unaligned", "broadcast")  # fmt: skip
DTYPES = FLOATS * 9 + INTEGERS
THREADS = (1, 2, 3, 8)

WORK = 1 << 22
"""Cells that all windows of a call read, at most: cell by cell that takes some milliseconds."""


class Draw(NamedTuple):
    """An op, the shapes of its operands, a dtype, a layout for each array, a number of threads."""

    op: Any
    shapes: tuple[Shape, ...]
    dtype: str
    layouts: tuple[str, ...]
    values: str
    threads: int
    seed: tuple[int, int]

    def __str__(self) -> str:
        arrays = ", ".join(f"{list(s)}" for s in self.shapes)
        return (
            f"draw {self.seed}: {self.op!r} of {self.dtype} {arrays} as {'/'.join(self.layouts)}, "
            f"{self.values}, {self.threads} threads"
        )


def draw(seed: int, number: int, dtypes: tuple[str, ...] = DTYPES, share: float = 0.2) -> Draw:
    """The draw of this seed and number, in one of some dtypes; the same in every process.

    A `share` of those of floats are convolutions.
    """
    random = Random(f"{seed} {number}")
    dtype, kind = random.choice(dtypes), random.random()
    op, shapes = (_convolution if dtype in FLOATS and kind < share else _pooling)(random)
    if dtype not in FLOATS and random.random() < 0.5:  # kernels of their own
        op = replace(op, reduction=_of_integers(random))
    layouts = tuple(random.choice(LAYOUTS) for _ in range(3))
    if random.random() < 0.5:  # layouts that agree reach other kernels than those that do not
        layouts = (layouts[0],) * 3
    values = random.choice(("plain",) * 4 + ("ties", "with NaN", "infinite"))
    return Draw(op, shapes, dtype, layouts, values, random.choice(THREADS), (seed, number))


# -- pooling --


def _pooling(random: Random) -> tuple[Any, tuple[Shape, ...]]:
    family = random.choices(tuple(_FAMILIES), [weight for weight, _ in _FAMILIES.values()])[0]
    while True:
        lengths, regions, batch = _FAMILIES[family][1](random)
        outputs = [r.out_length(n) for r, n in zip(regions, lengths, strict=True)]
        taps = [min(_reach(r), n) for r, n in zip(regions, lengths, strict=True)]
        if prod(outputs) * prod(taps) * prod(batch) <= WORK >= prod(lengths) * prod(batch):
            break
    keepdims = random.random() < 0.5 or not all(isinstance(r, Global) for r in regions)
    return Pool(regions, _reduction(random), keepdims), ((*batch, *lengths),)


def _reduction(random: Random) -> Reduction:
    kind = random.random()
    if kind < 0.45:
        return Max(random.choice(("first", "first", "first", "all", "split")))
    if kind < 0.7:
        return Mean(random.random() < 0.6, random.choice((None, None, None, 1, 7)))
    return SmoothMax(random.choice((1.0, 0.5, 30.0, -2.0, 1e-3)), random.random() < 0.6)


def _of_integers(random: Random) -> Reduction:
    kind = random.random()
    if kind < 0.5:
        return Mode(random.choice(("smallest", "first")), random.random() < 0.5)
    return RoundedMean(random.random() < 0.6) if kind < 0.8 else Min()


def _reach(region: Region) -> int:
    return region.kernel if isinstance(region, Sliding) else 1 << 30


def _length(random: Random, longest: int) -> int:
    """Short lengths as often as long ones, and those beside a vector's or a line's more often."""
    if random.random() < 0.25:
        return max(1, min(longest, 2 ** random.randint(0, longest.bit_length()) + random.randint(-1, 1)))  # fmt: skip
    return random.randint(1, max(1, int(longest ** random.random())))


def _sliding(random: Random, n: int, kernel: int, stride: int, most: int) -> Sliding:
    k, dilation = _length(random, kernel), random.choice((1,) * 6 + (2, 3, random.randint(1, n)))
    before, after = ((0, 0), (random.randint(0, k), random.randint(0, k)))[random.random() < 0.6]
    if random.random() < 0.1:  # windows of padding alone
        before, after = random.randint(0, 3 * k + most), random.randint(0, 3 * k + most)
    if random.random() < 0.1:
        return Sliding(k, _length(random, stride), "same", dilation)
    after += max(0, dilation * (k - 1) + 1 - n - before - after)
    step = random.choice((1, 2, k, _length(random, stride), n + random.randint(0, 5)))
    return Sliding(k, step, (before, after), dilation, random.random() < 0.3)


def _region(random: Random, n: int, kernel: int, stride: int = 6, most: int = 3) -> Region:
    kind = random.random()
    if kind < 0.1:
        return Adaptive(_length(random, 2 * n + 3))
    if kind < 0.16:
        return Global()
    return _sliding(random, n, kernel, stride, most)


Geometry = tuple[list[int], tuple[Region, ...], Shape]


def _small(random: Random) -> Geometry:
    rank = random.randint(1, 5)
    lengths = [_length(random, (300, 40, 14, 8, 6)[rank - 1]) for _ in range(rank)]
    batch = tuple(random.randint(1, 5) for _ in range(random.randint(0, 2)))
    return lengths, tuple(_region(random, n, 6) for n in lengths), batch


def _images(random: Random) -> Geometry:
    lengths = [_length(random, 70), _length(random, 280)]
    batch = (random.randint(1, 3), random.randint(1, 4))
    kernel = random.choice((3, 3, 9, 33, 80))
    if random.random() < 0.4:  # what networks have
        k, s = random.choice(((2, 2), (3, 2), (3, 1), (5, 1), (7, 3), (2, 1), (4, 4)))
        lengths = [max(n, k) for n in lengths]
        return lengths, (Sliding(k, s, random.choice((0, k // 2))),) * 2, batch
    return lengths, tuple(_region(random, n, kernel) for n in lengths), batch


def _lines(random: Random) -> Geometry:
    n = _length(random, 6000)
    region = _region(random, n, random.choice((3, 40, 300, 2000)), 300, 100)
    return [n], (region,), tuple(random.randint(1, 20) for _ in range(random.randint(0, 2)))


def _channels(random: Random) -> Geometry:
    rank = random.randint(1, 3)
    lengths = [_length(random, (90, 24, 9)[rank - 1]) for _ in range(rank)]
    regions = tuple(_region(random, n, random.choice((2, 3, 7, 20))) for n in lengths)
    return lengths, regions, (random.randint(1, 3), random.randint(1, 140))


def _items(random: Random) -> Geometry:
    rank = random.randint(2, 3)
    lengths = [random.randint(1, 12 if rank == 2 else 6) for _ in range(rank - 1)]
    lengths.append(_length(random, 66))
    part = random.choice((16, 48, 64, 64, 80, 96, 128, 256))
    regions = tuple(_region(random, n, 5) for n in lengths)
    return lengths, regions, (random.randint(1, 3), part * -(-1024 // part))


def _volumes(random: Random) -> Geometry:
    lengths = [_length(random, 12), _length(random, 30), _length(random, 90)]
    if random.random() < 0.5:
        k = random.choice((2, 3))
        lengths = [max(n, k) for n in lengths]
        return lengths, (Sliding(k, 2, random.choice((0, 1))),) * 3, (2,)
    return lengths, tuple(_region(random, n, 7) for n in lengths), (random.randint(1, 3),)


def _whole(random: Random) -> Geometry:
    rank = random.randint(1, 3)
    lengths = [_length(random, (9000, 200, 40)[rank - 1]) for _ in range(rank)]
    batch = (random.randint(1, 40), random.randint(1, 40))
    if random.random() < 0.5:
        return lengths, tuple(Adaptive(_length(random, n + 3)) for n in lengths), batch
    return lengths, (Global(),) * rank, batch


def _large(random: Random) -> Geometry:
    """Past the size from which threads share a call, and results lie elsewhere or go past the caches."""
    k, s = random.choice(((2, 2), (3, 2), (3, 1), (2, 1)))
    side, wide = random.randint(60, 200), random.randint(60, 400)
    padding = (random.randint(0, 1), random.randint(0, 1))
    regions = (Sliding(k, s, padding, 1, random.random() < 0.5),) * 2
    batch = (random.randint(1, 3), max(1, WORK // (k * k * side * wide * 3)))
    return [side, wide], regions, batch


_FAMILIES: dict[str, Any] = {
    "small": (6, _small),
    "images": (5, _images),
    "lines": (4, _lines),
    "channels": (4, _channels),
    "items": (1, _items),
    "volumes": (2, _volumes),
    "whole": (1, _whole),
    "large": (0.3, _large),
}


# -- convolution --


def _convolution(random: Random) -> tuple[Any, tuple[Shape, ...]]:
    while True:
        rank = random.choice((1, 1, 2, 2, 2, 3, 4))
        groups = random.choice((1, 1, 1, 2, 3, 8))
        into, out = (groups * _length(random, 24) for _ in range(2))
        kernel = tuple(_length(random, (90, 9, 4, 3)[rank - 1]) for _ in range(rank))
        lengths = tuple(_length(random, (400, 40, 10, 6)[rank - 1]) for _ in range(rank))
        stride = tuple(random.choice((1, 1, 2, 3, _length(random, 40))) for _ in range(rank))
        dilation = tuple(random.choice((1, 1, 1, 2, 5)) for _ in range(rank))
        padding = tuple(
            (random.randint(0, k), random.randint(0, k))
            if random.random() < 0.9
            else (random.randint(0, 30), random.randint(0, 30))
            for k in kernel
        )
        batch = tuple(random.randint(1, 3) for _ in range(random.randint(0, 2)))
        transposed = random.random() < 0.4
        try:
            if transposed:
                more = tuple(random.randint(0, max(s, d) - 1) for s, d in zip(stride, dilation, strict=True))  # fmt: skip
                op: Any = ln.ConvTranspose(kernel, stride, padding, more, dilation, groups)
                weight = (into, out // groups, *kernel)
            else:
                op = ln.Conv(kernel, stride, padding, dilation, groups)
                weight = (out, into // groups, *kernel)
            shapes: tuple[Shape, ...] = ((*batch, into, *lengths), weight)
            if random.random() < 0.5:
                shapes = (*shapes, (out,))
            found = op.out_shape(*shapes)
        except ValueError:  # a window longer than the axis, or no output
            continue
        cells = max(prod(found), prod(shapes[0]))
        if cells <= 1 << 18 and cells * prod(weight) // max(into, out) <= 4 * WORK:
            return op, shapes


# -- arrays --


def array(shape: Shape, dtype: str, layout: str, values: str, rng: Any, rank: int) -> Array:
    """An array in a layout, in a block that ends with its last element and begins with its first."""
    kind = dtype_named(dtype)
    if layout == "unaligned":
        size = prod(shape) * kind.itemsize
        made: Array = np.empty(size + 1, np.uint8)[1:].view(kind).reshape(shape)
    elif layout == "broadcast" and shape:
        axis = int(rng.integers(len(shape)))
        once = tuple(1 if a == axis else n for a, n in enumerate(shape))
        made = np.empty(once, kind)
        made[...] = _filled(once, kind, values, rng)
        return np.broadcast_to(made, shape)
    else:
        made = _laid_out(shape, kind, layout, rng, rank)
    made[...] = _filled(shape, kind, values, rng)
    return made


def _laid_out(shape: Shape, kind: Any, layout: str, rng: Any, rank: int) -> Array:
    order, first = list(range(len(shape))), len(shape) - rank
    gaps, signs = [1] * len(shape), [1] * len(shape)
    if layout == "F":
        order.reverse()
    elif layout == "channels last" and first > 0:
        order.append(order.pop(first - 1))
    elif layout == "permuted":
        order = rng.permutation(len(shape)).tolist()
    elif layout == "strided":
        gaps = rng.choice([1, 1, 2, 3], len(shape)).tolist()
    elif layout == "reversed":
        signs = rng.choice([1, -1], len(shape)).tolist()
    strides, far = [0] * len(shape), 1
    for axis in reversed(order):
        far *= gaps[axis]
        strides[axis] = far
        far *= shape[axis]
    span = 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
    begin = sum((n - 1) * s for n, s, sign in zip(shape, strides, signs, strict=True) if sign < 0)
    steps = [s * sign * kind.itemsize for s, sign in zip(strides, signs, strict=True)]
    return np.lib.stride_tricks.as_strided(np.zeros(span, kind)[begin:], shape, steps)


def _filled(shape: Shape, kind: Any, values: str, rng: Any) -> Array:
    if kind.kind in "iub":
        found: Array = rng.integers(0, 2 if kind.kind == "b" else 100, shape)
        return found.astype(kind)
    found = rng.integers(-2, 3, shape) * 1.0 if values == "ties" else rng.standard_normal(shape)
    if values in ("with NaN", "infinite"):
        strange = np.nan if values == "with NaN" else np.inf
        found = np.where(rng.random(shape) < 0.02, strange, found)
    return found.astype(kind)
