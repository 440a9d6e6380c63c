"""How a task finds its slab: the chunks that hold it, and how their pieces are put together."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise, product
from math import prod
from typing import Any, NamedTuple

import numpy as np

from lunette.regions import Region, Window

__all__ = ["Clipped", "Piece", "Reading", "Span", "bounds_of", "cut_outputs", "spans"]

Chunks = tuple[int, ...]


class Piece(NamedTuple):
    """A part of one chunk: where it lies in the chunk, and where it goes in the slab."""

    chunk: int
    inside: slice
    place: slice


class Span(NamedTuple):
    """Positions `lo ≤ p < hi` of one axis, and the pieces of chunks that they are made of."""

    lo: int
    hi: int
    pieces: tuple[Piece, ...]
    chunks: tuple[int, ...]


def bounds_of(chunks: Chunks) -> list[int]:
    """Where chunks begin, and where the last one ends."""
    return [0, *accumulate(chunks)]


def span(bounds: list[int], lo: int, hi: int) -> Span:
    """The pieces of chunks with these bounds that make `[lo, hi)`."""
    pieces = []
    chunk = max(bisect_right(bounds, lo) - 1, 0)
    while chunk < len(bounds) - 1 and bounds[chunk] < hi:
        start, stop = max(lo, bounds[chunk]), min(hi, bounds[chunk + 1])
        if start < stop:
            inside = slice(start - bounds[chunk], stop - bounds[chunk])
            pieces.append(Piece(chunk, inside, slice(start - lo, stop - lo)))
        chunk += 1
    if not pieces:  # nothing to read; an empty piece still says what kind of array it is
        chunk = min(chunk, len(bounds) - 2)
        pieces.append(Piece(chunk, slice(0, 0), slice(0, 0)))
    return Span(lo, hi, tuple(pieces), tuple(p.chunk for p in pieces))


def spans(chunks: Chunks, ranges: Sequence[tuple[int, int]]) -> list[Span]:
    """The span of each range over one axis with these chunks."""
    bounds = bounds_of(chunks)
    return [span(bounds, lo, hi) for lo, hi in ranges]


def cut_outputs(region: Region, chunks: Chunks) -> Chunks:
    """Chunks of the outputs, one for each chunk of the input that some output begins to need.

    An output goes with the last chunk that it reads, so that a task waits for no later chunk.
    """
    n = sum(chunks)
    outputs = region.out_length(n)
    cuts = {0, outputs}
    for edge in bounds_of(chunks)[1:-1]:
        readers = region.readers(n, edge, n)
        if len(readers):
            cuts.add(readers[0])
    ordered = sorted(cuts)
    return tuple(b - a for a, b in pairwise(ordered))


class Reading:
    """How a task reads one operand: chunk by chunk, or straight from the store beneath them.

    `source` is None for chunks; otherwise the arguments of dask's own reader of stores.
    """

    __slots__ = ("source", "spans")

    def __init__(self, spans: tuple[Span, ...], source: dict[str, Any] | None) -> None:
        self.spans, self.source = spans, source

    def __reduce__(self) -> Any:
        return Reading, (self.spans, self.source)

    @property
    def count(self) -> int:
        """How many of the task's arguments this operand takes."""
        return 1 if self.source is not None else prod(len(s.pieces) for s in self.spans)

    @property
    def chunk_indices(self) -> Iterable[tuple[int, ...]]:
        """The chunks it takes, in the order in which `array` wants them."""
        return product(*[s.chunks for s in self.spans])

    def array(self, blocks: Sequence[Any]) -> Any:
        """The slab itself."""
        if self.source is not None:
            from dask.array.core import getter

            return getter(blocks[0], tuple(slice(s.lo, s.hi) for s in self.spans), **self.source)
        pieces = list(product(*(s.pieces for s in self.spans)))
        if len(pieces) == 1:
            return blocks[0][tuple(p.inside for p in pieces[0])]
        shape = tuple(s.hi - s.lo for s in self.spans)
        slab = np.empty_like(blocks[0], shape=shape)
        for block, piece in zip(blocks, pieces, strict=True):
            slab[tuple(p.place for p in piece)] = block[tuple(p.inside for p in piece)]
        return slab


class Clipped(Region):
    """Outputs `first ≤ i < last` of a region, of whose windows only cells in `[lo, hi)` are kept.

    A window counts as many cells as it did: its padded cells, or with `real` those it read. So the
    gradient of a mean can be found chunk by chunk, without the cells of other chunks.
    """

    __slots__ = ("_key",)

    def __init__(
        self, region: Region, n: int, outputs: tuple[int, int], kept: tuple[int, int], real: bool
    ) -> None:
        self._key = (region, n, outputs, kept, real)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Clipped) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        return f"Clipped{self._key!r}"

    def out_length(self, n: int) -> int:
        _, _, (first, last), _, _ = self._key
        return last - first

    def window(self, n: int, i: int) -> Window:
        region, length, (first, _), (lo, hi), real = self._key
        whole = region.window(length, first + i)
        counted = whole.real if real else whole.counted
        positions = whole.positions
        kept = positions[_index(positions, lo) : _index(positions, hi)]
        if not kept:
            return Window(0, 0, whole.step, counted)
        return Window(kept[0] - lo, kept[-1] + 1 - lo, whole.step, counted)

    def readers(self, n: int, lo: int, hi: int) -> Sequence[int]:
        region, length, (first, last), (start, _), _ = self._key
        return [
            i - first
            for i in region.readers(length, max(lo, 0) + start, min(hi, n) + start)
            if first <= i < last
        ]


def _index(positions: range, p: int) -> int:
    """How many of the positions lie before `p`."""
    return min(len(positions), max(0, -((positions.start - p) // positions.step)))
