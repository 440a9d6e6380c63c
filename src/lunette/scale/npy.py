"""Cells of a `.npy` file by ranges, through small mappings that are closed at once.

Pages of a mapped file count as memory of the process, and a slab touches far more pages than it
has bytes. So a slab is copied band by band, and a band maps at most some megabytes of the file.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import lru_cache
from itertools import product
from math import prod
from typing import Any, NamedTuple

import numpy as np

__all__ = ["BAND", "Header", "header", "read", "write"]

Array = np.ndarray[Any, Any]
Ranges = tuple[tuple[int, int], ...]

BAND = 1 << 23
"""Bytes of the file that are mapped at a time, if one step along the last axes is not more."""


LONGEST = 10_000
"""Bytes of a header."""

READERS = {
    (1, 0): (np.lib.format.read_array_header_1_0, 2),
    (2, 0): (np.lib.format.read_array_header_2_0, 4),
    (3, 0): (np.lib.format.read_array_header_2_0, 4),
}
"""By the version of a file: what reads its header, and how many bytes give its length."""


class Header(NamedTuple):
    """Where the cells begin, and how they lie."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    offset: int
    fortran: bool


@lru_cache(maxsize=64)
def header(path: str) -> Header:
    """What the file says of itself; a file that is too short for it is a ValueError."""
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        version = np.lib.format.read_magic(file)
        if version not in READERS:
            raise ValueError(f"version {version} of the format is not known")
        reader, width = READERS[version]
        start = file.tell()
        length = int.from_bytes(file.read(width), "little")
        if length > LONGEST:
            raise ValueError(f"a header of {length} bytes; expected at most {LONGEST}")
        file.seek(start)
        shape, fortran, dtype = reader(file)
        offset = file.tell()
    if dtype.hasobject:
        raise ValueError("it holds Python objects, which are not read")
    if not all(type(n) is int and n >= 0 for n in shape):
        raise ValueError(f"shape {shape}: expected sizes")
    cells = prod(shape)
    if offset + cells * dtype.itemsize > size:
        raise ValueError(
            f"{shape} of {dtype} are {cells * dtype.itemsize} bytes; the file has {size - offset}"
        )
    return Header(shape, dtype, offset, bool(fortran and len(shape) > 1))


def read(path: str, ranges: Ranges, found: Header | None = None) -> Array:
    """A copy of the cells of these ranges; `found` says how they lie in a file that is no `.npy`."""
    found = found or header(path)
    if found.fortran:  # the file of the transposed array in C order
        ranges = ranges[::-1]
    out = np.empty([hi - lo for lo, hi in ranges], found.dtype)
    for place, mapped, inside in _bands(path, found, ranges, "r"):
        out[place] = mapped[inside]
    return out.T if found.fortran else out


def write(path: str, ranges: Ranges, block: Array) -> None:
    """Put a block in its place in a file in C order."""
    for place, mapped, inside in _bands(path, header(path), ranges, "r+"):
        mapped[inside] = block[place]


def _bands(path: str, found: Header, ranges: Ranges, mode: Any) -> Iterator[tuple[Any, Array, Any]]:
    """(place in the block, mapped cells, place in them): steps of one axis, for each index before it."""
    shape = found.shape[::-1] if found.fortran else found.shape
    size = found.dtype.itemsize
    axis = 0
    while axis < len(shape) - 1 and prod(shape[axis + 1 :]) * size > BAND:
        axis += 1
    cells = prod(shape[axis + 1 :])
    thick = max(1, BAND // (cells * size))
    inner = tuple(slice(lo, hi) for lo, hi in ranges[axis + 1 :])
    lo, hi = ranges[axis]
    for index in product(*(range(a, b) for a, b in ranges[:axis])):
        flat = 0
        for i, n in zip(index, shape, strict=False):
            flat = flat * n + i
        lead = tuple(i - a for i, (a, _) in zip(index, ranges, strict=False))
        for first in range(lo, hi, thick):
            last = min(first + thick, hi)
            start = (flat * shape[axis] + first) * cells
            offset = found.offset + start * size
            band = (last - first, *shape[axis + 1 :])
            mapped = np.memmap(path, found.dtype, mode, offset, band)
            yield (*lead, slice(first - lo, last - lo)), mapped, (slice(None), *inner)
