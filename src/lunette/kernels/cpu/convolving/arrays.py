"""Where the numbers of a convolution's arrays are, the types of its arithmetic, and the sharing out of units."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from lunette.kernels import threads
from lunette.ops.base import Shape

__all__ = ["FORMS", "Array", "Form", "Place", "address_of", "place", "share"]

Array = np.ndarray[Any, Any]


class Place(NamedTuple):
    """Where an array's numbers are: strides in elements; offsets of the batch items."""

    array: Array
    address: int
    offsets: Array
    channel: int
    strides: tuple[int, ...]


def place(array: Array, rank: int) -> Place:
    """Where an array lies; one whose strides are no whole elements is copied."""
    size = array.itemsize
    if not array.flags.aligned or any(stride % size for stride in array.strides):
        array = np.ascontiguousarray(array)
    offsets, strides = _layout(array.shape, array.strides, size, rank)
    return Place(array, address_of(array), offsets, strides[0], strides[1:])


@lru_cache(maxsize=1024)
def _layout(shape: Shape, strides: Shape, size: int, rank: int) -> tuple[Array, Shape]:
    """Offsets of the batch items, and the strides of the channels and the axes, in elements."""
    offsets, steps = np.zeros(1, np.int64), [stride // size for stride in strides]
    for n, step in zip(shape[: -rank - 1], steps, strict=False):
        offsets = np.add.outer(offsets, np.arange(n) * step).ravel()
    return offsets, tuple(steps[-rank - 1 :])


def address_of(array: Array) -> int:
    """Where an array's first number is."""
    address: int = array.__array_interface__["data"][0]
    return address


class Form(NamedTuple):
    """The type of the arithmetic, its zero, and the bytes of a number."""

    work: Any
    zero: Any
    size: int


FORMS = {np.dtype(work): Form(work, work(0), work().itemsize) for work in (np.float32, np.float64)}


def share(kernel: Any, units: int, arguments: tuple[Any, ...], workers: int = 0) -> None:
    """Run a kernel's units on all threads, or on so many."""
    threads.run(lambda first, last: kernel(first, last, *arguments), units, workers)
