"""Where the numbers of a convolution's arrays are, the types of its arithmetic, and how its kernels are run."""

from __future__ import annotations

from array import array as integers
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from lunette.kernels import threads
from lunette.kernels.cpu.memory.scratchpad import Scratchpad
from lunette.kernels.cpu.threadpool.pool import share_out
from lunette.kernels.cpu.tuning import LINE
from lunette.ops.base import Shape

__all__ = ["FORMS", "Array", "Form", "Place", "address", "place", "run", "scratchpad"]

Array = np.ndarray[Any, Any]


KEPT = 16 << 20
"""Bytes of scratch memory that a thread keeps for its next call, at most."""


def address(numbers: Array) -> int:
    """Where an array's first number is."""
    found: int = numbers.__array_interface__["data"][0]
    return found


class Place(NamedTuple):
    """Where an array's numbers are: strides in elements; offsets of the batch items, and their address.

    `item` is how far batch items are apart; None where that differs.
    """

    array: Array
    address: int
    offsets: Array
    offsets_at: int
    channel: int
    strides: tuple[int, ...]
    item: int | None

    def with_batch(self) -> Place:
        """The batch as a first axis of one item, where items are equally far apart."""
        assert self.item is not None
        return self._replace(
            offsets=ZERO, offsets_at=address(ZERO), strides=(self.item, *self.strides)
        )


ZERO = np.zeros(1, np.int64)


def place(array: Array, rank: int) -> Place:
    """Where an array lies; one whose strides are no whole elements is copied."""
    size = array.itemsize
    if not array.flags.aligned or any(stride % size for stride in array.strides):
        array = np.ascontiguousarray(array)
    offsets, offsets_at, strides, item = _layout(array.shape, array.strides, size, rank)
    return Place(array, address(array), offsets, offsets_at, strides[0], strides[1:], item)


@lru_cache(maxsize=1024)
def _layout(
    shape: Shape, strides: Shape, size: int, rank: int
) -> tuple[Array, int, Shape, int | None]:
    """Offsets of the batch items and their address, strides of the channels and the axes, all in elements, and of the items."""
    offsets, steps = np.zeros(1, np.int64), [stride // size for stride in strides]
    for n, step in zip(shape[: -rank - 1], steps, strict=False):
        offsets = np.add.outer(offsets, np.arange(n) * step).ravel()
    apart = np.diff(offsets)
    item = None if len(apart) == 0 or (apart != apart[0]).any() else int(apart[0])
    return offsets, address(offsets), tuple(steps[-rank - 1 :]), item


class Form(NamedTuple):
    """The type of the arithmetic, its name, and the bytes of a number."""

    work: Any
    name: str
    size: int


FORMS = {
    np.dtype(work): Form(work, np.dtype(work).name, work().itemsize)
    for work in (np.float32, np.float64)
}


def scratchpad(parts: Iterable[int]) -> tuple[list[int], int]:
    """Where parts of so many bytes lie one after the other, each from a cache line on, and the bytes of all."""
    places, end = [], 0
    for size in parts:
        places.append(end)
        end += -(-size // LINE) * LINE
    return places, end


def run(
    kernel: Any, units: int, record: list[int], held: Any, scratch: int = 0, workers: int = 0
) -> None:
    """Run a kernel's units on all threads, or on so many, each with so many bytes of scratch memory.

    Some numbers of the record are addresses in what is `held`: it lives until every thread is done.
    """
    table = integers("q", record)
    at, workers = table.buffer_info()[0], workers or threads.get_num_threads()
    if scratch <= KEPT:

        def arguments(
            memory: Scratchpad, _: Any = (table, held)
        ) -> tuple[int, int, int, int, int, int]:
            return at, memory.scratch(scratch), 0, 0, 0, 0

        share_out(kernel, arguments, units, workers * threads.CELLS_ASLEEP)
        return

    def task(first: int, last: int) -> None:
        memory = Scratchpad()
        kernel(at, memory.scratch(scratch), 0, 0, 0, 0, first, last)
        del memory  # in use until here, by its address

    threads.run(task, units, workers, (table, held))
