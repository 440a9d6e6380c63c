"""Geometries of sliding windows: max, mean and smooth max."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np

from lunette.check.geometry import WIDTHS, Geometry, some_batch, spread

__all__ = ["hard_sliding", "random_sliding", "small_sliding"]


# (lengths, kernel, stride, …): ceil_mode; some windows would start in the end padding, and some are longer
# than the padded input by less than a stride
CEIL: list[Any] = [
    ((4, 4), 3, 2, 1), ((5, 5), 2, 2, 0), ((12,), 1, 2, 0), ((5,), 2, 3, 1), ((6, 5), 3, 2, 1),
    ((4,), 2, 3, 1), ((7,), 3, 3, 1), ((6, 6, 5), 3, 2, 1), ((10,), 4, 3, 2), ((3,), 2, 2, 1),
    ((2,), 3, 2, 0), ((2, 2), 3, 2, 0), ((1,), 4, 5, 1), ((3, 5), 4, 3, 0), ((1, 2, 2), 2, 2, 0),
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


def _sliding(
    op: str,
    rng: np.random.Generator,
    lengths: tuple[int, ...],
    kernel: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    *,
    batch: tuple[int, ...] | None = None,
    hard: bool = True,
    **own: Any,
) -> Geometry:
    rank = len(lengths)
    kernel = spread(kernel, rank)
    stride = kernel if stride is None else spread(stride, rank)
    if padding != "same":
        pads = spread(padding, rank) if not isinstance(padding, list) else padding
        padding = tuple(p if isinstance(p, tuple) else (p, p) for p in pads)
    arguments: dict[str, Any] = {
        "kernel": kernel,
        "stride": stride,
        "padding": padding,
        "dilation": spread(dilation, rank),
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
    batch = some_batch(rng) if batch is None else batch
    return Geometry(op, arguments, ((*batch, *lengths),), hard)


def hard_sliding(op: str, rng: np.random.Generator) -> Iterator[Geometry]:
    """The known-hard ones."""

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


def small_sliding(op: str, rng: np.random.Generator) -> Iterator[Geometry]:
    """Every one of up to six cells in one dimension."""
    for n, k, s, p, d, ceil in product(
        range(1, 7), range(1, 5), range(1, 5), range(3), range(1, 4), (False, True)
    ):
        if d * (k - 1) + 1 < n + 2 * p + (s if ceil else 1):
            yield _sliding(op, rng, (n,), k, s, p, d, ceil, hard=False)


def random_sliding(op: str, rng: np.random.Generator) -> Geometry:
    """One of up to four dimensions."""
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
