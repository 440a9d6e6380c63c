"""Arrays on disk: `.npy`, TIFF, PNG and Zarr, read and written by ranges of positions."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from lunette.scale import marks, npy
from lunette.scale.errors import ScaleError

__all__ = ["Level", "Source", "chunks_of", "create_level", "open_handles_for"]

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]
Ranges = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Source:
    """An array to read. `chunks` are the smallest pieces that can be read alone.

    The dtype is the machine's own, whatever the order of bytes in the file. Axis `i` is axis
    `order[i]` of the file.
    """

    path: str
    kind: str
    inner: str
    shape: Shape
    dtype: str
    chunks: Shape
    axes: str
    scale: tuple[float, ...]
    translation: tuple[float, ...]
    units: tuple[str | None, ...]
    order: Shape

    def read(self, ranges: Ranges) -> Array:
        """The cells of these ranges; an unreadable chunk is named as the file has it."""
        stored, chunks, shape = (self._in_file(v) for v in (ranges, self.chunks, self.shape))
        block = _read(self.path, self.kind, self.inner, stored, chunks, shape)
        if not block.dtype.isnative:  # in place: memory was counted for one slab
            block = block.byteswap(inplace=block.flags.writeable).view(self.dtype)
        return block.transpose(self.order)

    def prepare(self) -> None:
        """Read what has to be read whole, so that a broken file shows before an output is begun."""
        if self.kind == "png":
            open_handles_for("")
            _read(self.path, "png", "", tuple((0, 1) for _ in self.shape), self.chunks, self.shape)

    def _in_file(self, values: tuple[Any, ...]) -> tuple[Any, ...]:
        """One value per axis, in the order of the file."""
        return tuple(values[self.order.index(axis)] for axis in range(len(values)))

    def reordered(self, letters: str) -> Source:
        """The same array with its axes in the order of these letters."""
        places = [self.axes.index(a) for a in letters if a in self.axes]
        return replace(
            self,
            shape=tuple(self.shape[i] for i in places),
            chunks=tuple(self.chunks[i] for i in places),
            axes="".join(self.axes[i] for i in places),
            scale=tuple(self.scale[i] for i in places),
            translation=tuple(self.translation[i] for i in places),
            units=tuple(self.units[i] for i in places),
            order=tuple(self.order[i] for i in places),
        )


@dataclass(frozen=True)
class Level:
    """An array being written: Zarr chunks, or cells of a `.npy` file that space was set aside for."""

    path: str
    kind: str
    shape: Shape
    dtype: str
    chunks: Shape
    shards: Shape | None = None
    compression: str = "zstd"

    def read(self, ranges: Ranges) -> Array:
        """The cells of these ranges; an unreadable chunk is named."""
        return _read(self.path, self.kind, "", ranges, self.chunks, self.shape)

    def write(self, ranges: Ranges, block: Array) -> None:
        """Put a block in its place; a Zarr chunk appears whole or not at all."""
        place = tuple(slice(lo, hi) for lo, hi in ranges)
        if self.kind == "zarr":
            _zarr_to_write(self.path)[place] = block
            return
        npy.write(self.path, ranges, block)


def chunks_of(ranges: Ranges, chunks: Shape) -> list[Shape]:
    """The indices of the chunks that ranges touch."""
    grids = [range(lo // c, -(-hi // c)) for (lo, hi), c in zip(ranges, chunks, strict=True)]
    return list(product(*grids))


# -- reading --


def _read(path: str, kind: str, inner: str, ranges: Ranges, chunks: Shape, shape: Shape) -> Array:
    try:
        return _cells(path, kind, inner, ranges)
    except Exception as error:
        culprit = f"positions {ranges}"
        for index in chunks_of(ranges, chunks):
            alone = tuple(
                (i * c, min((i + 1) * c, n)) for i, c, n in zip(index, chunks, shape, strict=True)
            )
            try:
                _cells(path, kind, inner, alone)
            except Exception:
                culprit = f"chunk {index}"
                break
        where = f"{path}, array {inner!r}" if inner else path
        raise ScaleError(f"cannot read {culprit} of {where}: {error}") from error


def _cells(path: str, kind: str, inner: str, ranges: Ranges) -> Array:
    place = tuple(slice(lo, hi) for lo, hi in ranges)
    if kind == "npy":
        return npy.read(path, ranges)
    if kind == "zarr":
        return np.asarray(_zarr(path, inner)[place])
    if kind == "png":
        return _png(path)[place]
    return np.asarray(_tif(path)[place])


@lru_cache(maxsize=64)
def _zarr(path: str, inner: str) -> Any:
    from lunette.scale.bounded_zarr import open_array

    return open_array(path, inner)


@lru_cache(maxsize=64)
def _zarr_to_write(path: str) -> Any:
    import zarr

    return zarr.open_array(path, mode="r+", zarr_format=3)


@lru_cache(maxsize=4)
def _png(path: str) -> Array:
    from PIL import Image

    Image.MAX_IMAGE_PIXELS = None  # the size was held against the memory before this
    with Image.open(path, formats=["PNG"]) as image:
        return np.asarray(image)


@lru_cache(maxsize=4)
def _tif(path: str) -> Any:
    import tifffile
    import zarr

    from lunette.scale.bounded_tif import guard

    series = tifffile.TiffFile(path, _multifile=False).series[0]
    guard(series)
    store: Any = zarr.open(series.aszarr(), mode="r")
    return store if hasattr(store, "shape") else store["0"]


@lru_cache(maxsize=1)
def open_handles_for(run: str) -> None:
    """Files may have been replaced since another run, so open them anew for this one, once."""
    for cached in (_zarr, _zarr_to_write, _png, _tif, npy.header):
        cached.cache_clear()


# -- creating --


def create_level(level: Level, axes: str) -> None:
    """An empty array in a store; the space of a file is set aside, so that a full disk shows now."""
    if level.kind == "zarr":
        import zarr

        codecs: Any = None if level.compression == "none" else zarr.codecs.ZstdCodec(level=1)
        zarr.create_array(
            level.path,
            shape=level.shape,
            dtype=level.dtype,
            chunks=level.chunks,
            shards=level.shards,
            compressors=codecs,
            fill_value=0,
            dimension_names=list(axes),
            zarr_format=3,
            overwrite=True,
        )
        marks.mark(Path(level.path))
        return
    Path(level.path).parent.mkdir(parents=True, exist_ok=True)
    array = np.lib.format.open_memmap(level.path, "w+", np.dtype(level.dtype), level.shape)
    del array
    if hasattr(os, "posix_fallocate"):
        with open(level.path, "r+b") as file:
            size = file.seek(0, os.SEEK_END)
            os.posix_fallocate(file.fileno(), 0, size)
