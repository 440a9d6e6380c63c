"""Chunks of a Zarr array that is stored plainly, read without the Zarr library: one codec that can grow, or none.

The library starts tasks and threads for every chunk, which costs more than to decode it. Arrays of
shards, transposed cells or filters are left to it.
"""

from __future__ import annotations

from itertools import product
from math import prod
from typing import Any

import numpy as np

from lunette.scale.bounded import EXPANDING, expand
from lunette.scale.containers import Container
from lunette.scale.zarr_metadata import chunk_key

__all__ = ["PlainArray", "plain_codec"]

Array = np.ndarray[Any, Any]


def plain_codec(version: int, metadata: dict[str, Any]) -> tuple[str, str] | None:
    """The order of bytes and the codec (or nothing); None where the library has to read the array."""
    if version == 2:
        compressor = metadata.get("compressor")
        if metadata["order"] != "C" or metadata.get("filters"):
            return None
        name = "" if compressor is None else str(compressor["id"])
        return (str(metadata["dtype"])[0], name) if name in ("", *EXPANDING) else None
    first, *others = [c if isinstance(c, dict) else {"name": c} for c in metadata["codecs"]]
    if first["name"] != "bytes" or len(others) > 1:
        return None
    endian = (first.get("configuration") or {}).get("endian", "little")
    name = str(others[0]["name"]).removeprefix("numcodecs.") if others else ""
    if name not in ("", *EXPANDING):
        return None
    return {"little": "<", "big": ">"}.get(endian, "<"), name


class PlainArray:
    """An array to be read by slices. `largest` is what a stored chunk may have."""

    def __init__(
        self, container: Container, inner: str, array: Any, metadata: dict[str, Any], largest: int
    ) -> None:
        version = int(metadata["zarr_format"])
        found = plain_codec(version, metadata)
        assert found is not None
        order, self.codec = found
        self.container, self.metadata, self.largest = container, metadata, largest
        self.prefix = f"{inner.strip('/')}/" if inner.strip("/") else ""
        self.shape, self.chunks = tuple(array.shape), tuple(array.chunks)
        self.dtype = np.dtype(array.dtype)
        self.stored = self.dtype if order == "|" else self.dtype.newbyteorder(order)
        self.fill = 0 if array.fill_value is None else array.fill_value
        self.size = prod(self.chunks) * self.dtype.itemsize

    def __getitem__(self, place: tuple[slice, ...]) -> Array:
        out = np.empty([s.stop - s.start for s in place], self.stored)
        rows = [
            range(s.start // c, -(-s.stop // c)) for s, c in zip(place, self.chunks, strict=True)
        ]
        for index in product(*rows):
            inside, target = [], []
            for i, c, s in zip(index, self.chunks, place, strict=True):
                a, b = max(s.start, i * c), min(s.stop, (i + 1) * c)
                inside.append(slice(a - i * c, b - i * c))
                target.append(slice(a - s.start, b - s.start))
            block = self._chunk(index)
            out[tuple(target)] = self.fill if block is None else block[tuple(inside)]
        return out

    def _chunk(self, index: tuple[int, ...]) -> Array | None:
        """A chunk, whole also at the edge; None where none was written."""
        raw: Any = self.container.read(
            self.prefix + chunk_key(self.metadata, index), None, self.largest
        )
        if raw is None:
            return None
        if self.codec:
            raw = expand(self.codec, raw, self.size)
        if len(raw) != self.size:
            raise ValueError(f"the chunk has {len(raw)} bytes, expected {self.size}")
        return np.frombuffer(raw, self.stored).reshape(self.chunks)
