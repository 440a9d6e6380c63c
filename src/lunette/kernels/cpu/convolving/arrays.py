"""Where the numbers of a convolution's arrays are, and the types of its arithmetic."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from lunette.kernels.cpu.convolving.blocks import address
from lunette.ops.base import Shape

__all__ = ["FORMS", "Array", "Form", "Place", "place"]

Array = np.ndarray[Any, Any]


class Place(NamedTuple):
    """Where an array's numbers are: strides in elements; offsets of the batch items, and their address."""

    array: Array
    address: int
    offsets: Array
    offsets_at: int
    channel: int
    strides: tuple[int, ...]


def place(array: Array, rank: int) -> Place:
    """Where an array lies; one whose strides are no whole elements is copied."""
    size = array.itemsize
    if not array.flags.aligned or any(stride % size for stride in array.strides):
        array = np.ascontiguousarray(array)
    offsets, offsets_at, strides = _layout(array.shape, array.strides, size, rank)
    return Place(array, address(array), offsets, offsets_at, strides[0], strides[1:])


@lru_cache(maxsize=1024)
def _layout(shape: Shape, strides: Shape, size: int, rank: int) -> tuple[Array, int, Shape]:
    """Offsets of the batch items and their address, strides of the channels and the axes, in elements."""
    offsets, steps = np.zeros(1, np.int64), [stride // size for stride in strides]
    for n, step in zip(shape[: -rank - 1], steps, strict=False):
        offsets = np.add.outer(offsets, np.arange(n) * step).ravel()
    return offsets, address(offsets), tuple(steps[-rank - 1 :])


class Form(NamedTuple):
    """The type of the arithmetic, its name, and the bytes of a number."""

    work: Any
    name: str
    size: int


FORMS = {
    np.dtype(work): Form(work, np.dtype(work).name, work().itemsize)
    for work in (np.float32, np.float64)
}
