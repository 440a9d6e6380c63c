"""Arrays with channels last, for verbs whose kernels go along rows: turned part by part, and their results turned back.

To gather a row from among the channels takes a line of memory for each cell. It is faster to copy about a
megabyte so that rows lie as the kernels want them, and to read that while it is in a cache. Threads take parts
by turns. Results have their channels last, as those of the other verbs.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from lunette.kernels import threads
from lunette.kernels.cpu.jit.cache import Kernels
from lunette.kernels.cpu.memory.block_cache import new_array
from lunette.kernels.cpu.memory.scratchpad import exact
from lunette.kernels.cpu.schedule.plan import channel_axis, in_a_row, memory_order

__all__ = ["Transposed", "channels_last"]

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]

transposition = Kernels("simd.transpose")

BLOCK = 16
"""Channels and positions that are turned together, at least."""

PART, MOST = 1 << 20, 64 << 20
"""Bytes of an array that are turned at a time, where that is possible, and at most."""

CHUNK = 1 << 17
"""Bytes of a unit of the kernel, about."""

SMALL = 1 << 14
"""Bytes of an array that is not worth the trouble."""


def channels_last(rank: int, x: Array) -> Transposed | None:
    """How to turn `x`, whose last `rank` axes are pooled.

    None where it has not its channels last, is small, or would need too large a copy.
    """
    if x.nbytes < SMALL or x.flags.c_contiguous:
        return None
    steps = tuple(s // x.dtype.itemsize for s in x.strides)
    lane = channel_axis(x.shape, steps, rank)
    order = memory_order(x.ndim, lane)
    if order is None or prod(x.shape[-rank:]) * BLOCK * x.dtype.itemsize > MOST:
        return None
    whole = in_a_row(tuple(x.shape[a] for a in order), tuple(steps[a] for a in order))
    return Transposed(x, rank, lane) if whole else None


class Transposed:
    """The layout of an array, and verbs on parts of it: some of its items, some of their channels."""

    def __init__(self, x: Array, rank: int, lane: int) -> None:
        self.rank, self.lane = rank, lane
        self.batch = [axis for axis in range(x.ndim - rank) if axis != lane]
        self.outer = tuple(x.shape[axis] for axis in self.batch)
        self.items, self.channels = prod(self.outer), x.shape[lane]
        self.item = prod(x.shape[-rank:]) * x.dtype.itemsize

    def apply(self, verb: Callable[..., tuple[Array, ...]], *arrays: Array) -> tuple[Array, ...]:
        """The results of a verb, a function of such arrays with channels before the pooled axes."""
        sources = [self._seen(a) for a in arrays]
        parts = self._parts()

        def made(part: tuple[slice, slice]) -> tuple[Array, ...]:
            try:
                rooms = _spare.pop()
            except IndexError:
                rooms = _Scratch()
            seen = (
                s[part] if whole else _turned(s[part], rooms.of(number, s[part].shape, s.dtype))
                for number, (s, whole) in enumerate(sources)
            )
            results = verb(*seen)
            _spare.append(rooms)
            return results

        first = made(parts[0])
        shapes = [(self.items, prod(y.shape[2:]), self.channels) for y in first]
        results = [new_array(shape, y.dtype) for shape, y in zip(shapes, first, strict=True)]

        def lay(part: tuple[slice, slice], found: tuple[Array, ...]) -> None:
            items, channels = part
            for result, y in zip(results, found, strict=True):
                flat = np.ascontiguousarray(y).reshape(*y.shape[:2], -1)
                _transpose(flat, result[items, :, channels])

        def task(first: int, last: int) -> None:
            for part in parts[1:][first:last]:
                lay(part, made(part))

        lay(parts[0], first)
        threads.run(task, len(parts) - 1)
        return tuple(
            self._as_given(result, y.shape[2:]) for result, y in zip(results, first, strict=True)
        )

    def _parts(self) -> list[tuple[slice, slice]]:
        """Items and channels of each part."""
        channels = self.channels
        if self.item * channels > PART:
            channels = min(channels, max(1, PART // (self.item * BLOCK)) * BLOCK)
        items = max(1, PART // (self.item * channels))
        return [
            (slice(i, i + items), slice(c, c + channels))
            for i in range(0, self.items, items)
            for c in range(0, self.channels, channels)
        ]

    def _seen(self, a: Array) -> tuple[Array, bool]:
        """An array as items × channels × the other axes, and whether kernels are to read its rows where they lie."""
        axes = (*self.batch, self.lane, *range(a.ndim - self.rank, a.ndim))
        seen = a.transpose(axes).reshape(self.items, self.channels, *a.shape[a.ndim - self.rank :])
        matrices = np.moveaxis(seen, 1, -1)
        return seen, not matrices.flags.c_contiguous or seen.flags.c_contiguous

    def _as_given(self, result: Array, lengths: Shape) -> Array:
        """A result with its axes in the order of the input's."""
        return np.moveaxis(result.reshape(*self.outer, *lengths, self.channels), -1, self.lane)


class _Scratch:
    """Memory for turned parts, one for each array of a verb: what was just used is in a cache."""

    def __init__(self) -> None:
        self.rooms: dict[int, Array] = {}

    def of(self, number: int, shape: Shape, dtype: Any) -> Array:
        """An array of any content, until the next of this number."""
        size = prod(shape) * dtype.itemsize
        if size > PART or exact():  # kept for as long as other large arrays are
            return new_array(shape, dtype)
        room = self.rooms.get(number)
        if room is None or len(room) < size:
            room = self.rooms[number] = np.empty(size, np.uint8)
        array: Array = room[:size].view(dtype).reshape(shape)
        return array


_spare: list[_Scratch] = []
"""Rooms that nobody is in. A signal handler may come while its thread is in some, and takes others."""


def _turned(some: Array, made: Array) -> Array:
    """Items × channels × positions … copied to a room, so that positions lie side by side."""
    items, channels = some.shape[:2]
    _transpose(
        np.moveaxis(some, 1, -1).reshape(items, -1, channels), made.reshape(items, channels, -1)
    )
    return made


def _transpose(source: Array, target: Array) -> None:
    """Each matrix of the source, turned, to the target; the last axis of both is contiguous."""
    size = source.dtype.itemsize
    matrices, rows, columns = source.shape
    x_next, far, y_next, apart = (s // size for a in (source, target) for s in a.strides[:2])
    length, other = (rows, columns) if far < apart else (columns, rows)
    chunk = max(1, CHUNK // (other * size * BLOCK)) * BLOCK
    chunks = -(-length // chunk)
    table = np.array((rows, columns, x_next, far, y_next, apart, chunk, chunks), np.int64)
    at_x, at_y, at_g = (a.__array_interface__["data"][0] for a in (source, target, table))
    kernel = transposition.kernel(size)

    def task(first: int, last: int) -> None:
        kernel(at_x, at_y, 0, 0, at_g, 0, first, last)

    some = 1 if source.nbytes <= PART else 0
    threads.run(task, matrices * chunks, some, held=(source, target, table))
