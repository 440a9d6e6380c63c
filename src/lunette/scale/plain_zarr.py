"""Zarr arrays that are stored plainly, read and written without the Zarr library: one codec, or none.

The library takes a third of a second and 20 MB to load, and starts tasks and threads for every chunk, which
costs more than to decode it. Arrays of shards, transposed cells or filters, and whatever else is
unusual in their metadata, are left to it.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

import numpy as np

from lunette.scale.bounded import EXPANDING, expand
from lunette.scale.containers import Container
from lunette.scale.scratch import scratch
from lunette.scale.zarr_metadata import chunk_key

__all__ = ["Plain", "PlainArray", "PlainWriter", "plain"]

Array = np.ndarray[Any, Any]

KNOWN_3 = {"zarr_format", "node_type", "shape", "data_type", "chunk_grid", "chunk_key_encoding"}
KNOWN_3 |= {"fill_value", "codecs", "attributes", "dimension_names", "storage_transformers"}
"""What the metadata of an array of Zarr 3 may have; all else is for the library to judge."""

NUMBERS: dict[Any, Any] = {
    "NaN": float("nan"),
    "Infinity": float("inf"),
    "-Infinity": float("-inf"),
}
SHUFFLES = {"noshuffle": 0, "shuffle": 1, "bitshuffle": 2}


@dataclass(frozen=True)
class Plain:
    """How such an array is stored. `compressor` is None, or the codec with its configuration.

    `stored` is the dtype in the file, with its order of bytes.
    """

    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    stored: np.dtype[Any]
    compressor: dict[str, Any] | None
    fill: float | int | bool | None


def plain(version: int, metadata: dict[str, Any]) -> Plain | None:
    """What checked metadata says of a plain array; None where the library has to read it."""
    found = _plain_2(metadata) if version == 2 else _plain_3(metadata)
    if found is None or not found.shape:
        return None
    name = "" if found.compressor is None else str(found.compressor["id"])
    known = name in ("", *EXPANDING) and found.stored.kind in "biuf"
    return found if known and _is_fill(found.fill, found.stored) else None


def _plain_2(metadata: dict[str, Any]) -> Plain | None:
    if metadata["order"] != "C" or metadata.get("filters"):
        return None
    fill = metadata.get("fill_value")
    return Plain(
        tuple(metadata["shape"]),
        tuple(metadata["chunks"]),
        np.dtype(metadata["dtype"]),
        metadata.get("compressor"),
        NUMBERS.get(fill, fill) if isinstance(fill, str) else fill,
    )


def _plain_3(metadata: dict[str, Any]) -> Plain | None:
    if not set(metadata) <= KNOWN_3 or not _usual_keys(metadata.get("chunk_key_encoding")):
        return None
    first, *others = [c if isinstance(c, dict) else {"name": c} for c in metadata["codecs"]]
    endian = (first.get("configuration") or {}).get("endian")
    stored = np.dtype(metadata["data_type"])
    if first["name"] != "bytes" or len(others) > 1 or (endian is None and stored.itemsize > 1):
        return None
    if endian not in (None, "little", "big"):
        return None
    compressor = None
    if others:
        name = str(others[0]["name"]).removeprefix("numcodecs.")
        compressor = {**(others[0].get("configuration") or {}), "id": name}
        if name != others[0]["name"]:  # others may configure it in other words
            compressor["only"] = "read"
    fill = metadata["fill_value"]
    return Plain(
        tuple(metadata["shape"]),
        tuple(metadata["chunk_grid"]["configuration"]["chunk_shape"]),
        stored.newbyteorder("<" if endian != "big" else ">"),
        compressor,
        NUMBERS.get(fill, fill) if isinstance(fill, str) else fill,
    )


def _usual_keys(encoding: Any) -> bool:
    """Whether chunks have the names that `chunk_key` gives."""
    if encoding is None:
        return False
    configuration = encoding.get("configuration") if isinstance(encoding, dict) else None
    configuration = {} if configuration is None else configuration
    return (
        isinstance(encoding, dict)
        and encoding.get("name") in ("default", "v2")
        and isinstance(configuration, dict)
        and set(configuration) <= {"separator"}
        and configuration.get("separator", "/") in ("/", ".")
    )


def _is_fill(fill: Any, dtype: np.dtype[Any]) -> bool:
    """Whether a dtype has this number; whatever else may stand there, the library reads."""
    if fill is None:
        return True
    if dtype.kind == "b":
        return isinstance(fill, bool)
    if dtype.kind == "f":
        return type(fill) in (int, float)
    info = np.iinfo(dtype)
    return type(fill) is int and info.min <= fill <= info.max


class PlainArray:
    """An array to be read by slices. `largest` is what a stored chunk may have."""

    shards = None

    def __init__(
        self,
        container: Container,
        inner: str,
        found: Plain,
        metadata: dict[str, Any],
        largest: int,
    ) -> None:
        self.container, self.metadata, self.largest = container, metadata, largest
        self.prefix = f"{inner.strip('/')}/" if inner.strip("/") else ""
        self.shape, self.chunks, self.stored = found.shape, found.chunks, found.stored
        self.codec = "" if found.compressor is None else str(found.compressor["id"])
        told = (
            metadata["zarr_format"] == 2
        )  # Zarr 3 has the order of bytes in a codec, not in the dtype
        self.dtype = found.stored if told else found.stored.newbyteorder("=")
        self.fill_value = found.fill
        self.fill = 0 if found.fill is None else found.fill
        self.size = prod(self.chunks) * self.dtype.itemsize

    def __getitem__(self, place: tuple[slice, ...]) -> Array:
        return self.read(place, np.empty(self._bytes(place), np.uint8))

    def read_again(self, place: tuple[slice, ...]) -> Array:
        """The same cells, in memory that holds until this thread reads in this way again."""
        return self.read(place, scratch("slab", self._bytes(place)))

    def _bytes(self, place: tuple[slice, ...]) -> int:
        return int(prod(s.stop - s.start for s in place)) * self.stored.itemsize

    def read(self, place: tuple[slice, ...], memory: Array) -> Array:
        """The cells of a place, in this memory."""
        out = memory.view(self.stored).reshape([s.stop - s.start for s in place])
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
        """A chunk, whole also at the edge, until the next is read; None where none was written."""
        raw: Any = self.container.read(
            self.prefix + chunk_key(self.metadata, index), None, self.largest
        )
        if raw is None:
            return None
        if self.codec:
            raw = expand(self.codec, raw, self.size, out=scratch("chunk", self.size))
        if len(raw) != self.size:
            raise ValueError(f"the chunk has {len(raw)} bytes, expected {self.size}")
        return np.frombuffer(raw, self.stored).reshape(self.chunks)


class PlainWriter:
    """The chunks of an array, written whole. A chunk that holds the fill value alone is left out."""

    def __init__(self, container: Any, found: Plain, metadata: dict[str, Any]) -> None:
        self.container, self.plain, self.metadata = container, found, metadata
        self.encode = encoder(found.compressor, found.stored)
        fill = np.empty(1, found.stored)
        self.padding = 0 if found.fill is None else found.fill
        fill[0] = self.padding
        self.fill = fill.view(np.uint8 if fill.itemsize == 1 else f"u{fill.itemsize}")[0]

    def __setitem__(self, place: tuple[slice, ...], block: Array) -> None:
        """Whole chunks, as far as they lie in the array."""
        chunks, stored = self.plain.chunks, self.plain.stored
        for s, c, n in zip(place, chunks, self.plain.shape, strict=True):
            if s.start % c or (s.stop % c and s.stop != n):
                raise ValueError(f"cells {s.start} to {s.stop} are not whole chunks of {c}")
        rows = [range(s.start // c, -(-s.stop // c)) for s, c in zip(place, chunks, strict=True)]
        for index in product(*rows):
            part = block[
                tuple(
                    slice(i * c - s.start, (i + 1) * c - s.start)
                    for i, c, s in zip(index, chunks, place, strict=True)
                )
            ]
            if part.shape == chunks:
                chunk = np.ascontiguousarray(part, stored)
            else:
                chunk = np.full(chunks, self.padding, stored)
                chunk[tuple(slice(n) for n in part.shape)] = part
            self._put(chunk_key(self.metadata, index), chunk)

    def _put(self, key: str, chunk: Array) -> None:
        bits = chunk.view(self.fill.dtype).reshape(-1)
        if bits[0] == self.fill and bits[-1] == self.fill and (bits == self.fill).all():
            return
        self.container.write(key, memoryview(self.encode(chunk)).cast("B"))


def encoder(compressor: dict[str, Any] | None, dtype: np.dtype[Any]) -> Any:
    """What makes the stream of a chunk; None where the library has to."""
    if compressor is None:
        return lambda chunk: chunk.reshape(-1).view(np.uint8)
    import numcodecs

    configuration = dict(compressor)
    if configuration.pop("only", None) or configuration["id"] not in ("zstd", "gzip", "blosc"):
        return None
    if configuration["id"] == "blosc":
        if configuration.pop("typesize", dtype.itemsize) != dtype.itemsize:
            return None
        shuffle = configuration.get("shuffle", 1)
        configuration["shuffle"] = SHUFFLES.get(shuffle, shuffle)
        if configuration["shuffle"] not in (0, 1, 2):
            return None
    with suppress(Exception):
        return numcodecs.get_codec(configuration).encode
    return None
