"""Arrays on disk: `.npy`, TIFF, PNG and Zarr, read and written by ranges of positions."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from lunette.scale import hdf5, marks, nifti, npy, precomputed, volumes
from lunette.scale.containers import container_of, is_remote
from lunette.scale.described import NOTHING, Kept
from lunette.scale.errors import ScaleError
from lunette.scale.storage import Storage

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
    names: tuple[str, ...] = ()
    told: str = ""
    kept: Kept = NOTHING

    def read(self, ranges: Ranges, again: bool = False) -> Array:
        """The cells of these ranges; an unreadable chunk is named as the file has it.

        With `again` they may lie in memory that the next such reading of this thread uses again.
        """
        stored, chunks, shape = (self._in_file(v) for v in (ranges, self.chunks, self.shape))
        block = _read(self.path, self.kind, self.inner, stored, chunks, shape, again)
        if not block.dtype.isnative:  # in place: memory was counted for one slab
            block = block.byteswap(inplace=block.flags.writeable).view(self.dtype)
        return block.transpose(self.order)

    @property
    def as_stored(self) -> bool:
        """Whether it is read from a folder just as it lies there, so that its chunks can be copied."""
        return self.order == tuple(range(len(self.order))) and os.path.isdir(self.path)

    def prepare(self) -> None:
        """Read what has to be read whole, so that a broken file shows before an output is begun."""
        if self.kind in ("png", "tif", "hdf5", "nifti", "volume"):
            open_handles_for("")
            corner = tuple((0, 1) for _ in self.shape)
            _read(self.path, self.kind, self.inner, corner, self.chunks, self.shape)

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
            names=tuple(self.names[i] for i in places),
        )


@dataclass(frozen=True)
class Level:
    """An array being written: Zarr chunks, or cells of a `.npy` file that space was set aside for."""

    path: str
    kind: str
    shape: Shape
    dtype: str
    chunks: Shape
    storage: Storage | None = None
    names: tuple[str, ...] = ()
    fill: float | int | bool = 0
    attributes: str = "{}"
    copied: bool = False
    letters: str = ""
    linked: bool = False

    def read(self, ranges: Ranges, again: bool = False) -> Array:
        """The cells of these ranges; an unreadable chunk is named."""
        if self.kind == "precomputed":
            return precomputed.read(self, ranges)
        return _read(self.path, self.kind, "", ranges, self.chunks, self.shape, again)

    def write(self, ranges: Ranges, block: Array) -> None:
        """Put a block in its place; a Zarr chunk appears whole or not at all."""
        place = tuple(slice(lo, hi) for lo, hi in ranges)
        if self.kind == "zarr":
            _zarr_to_write(self)[place] = block
            return
        if self.kind == "precomputed":
            precomputed.write(self, ranges, block)
            return
        npy.write(self.path, ranges, block)


def chunks_of(ranges: Ranges, chunks: Shape) -> list[Shape]:
    """The indices of the chunks that ranges touch."""
    grids = [range(lo // c, -(-hi // c)) for (lo, hi), c in zip(ranges, chunks, strict=True)]
    return list(product(*grids))


# -- reading --


def _read(
    path: str,
    kind: str,
    inner: str,
    ranges: Ranges,
    chunks: Shape,
    shape: Shape,
    again: bool = False,
) -> Array:
    try:
        return _cells(path, kind, inner, ranges, again)
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
        where = f"{path}, array {inner!r}" if inner and kind == "zarr" else path
        raise ScaleError(f"cannot read {culprit} of {where}: {error}") from error


def _cells(path: str, kind: str, inner: str, ranges: Ranges, again: bool = False) -> Array:
    place = tuple(slice(lo, hi) for lo, hi in ranges)
    if kind == "npy":
        return npy.read(path, ranges)
    if kind == "zarr":
        array = _zarr(path, inner)
        if again and hasattr(array, "read_again"):
            return np.asarray(array.read_again(place))
        return np.asarray(array[place])
    if kind == "hdf5":
        return hdf5.read(path, inner, ranges)
    if kind == "nifti":
        return nifti.read(path, ranges)
    if kind == "volume":
        return volumes.read(path, ranges)
    if kind == "png":
        return _png(path, inner)[place]
    return np.asarray(_tif(path, int(inner))[place])


@lru_cache(maxsize=64)
def _zarr(path: str, inner: str) -> Any:
    from lunette.scale.zarr_arrays import open_array

    return open_array(path, inner)


@lru_cache(maxsize=64)
def _zarr_to_write(level: Level) -> Any:
    from lunette.scale.zarr_arrays import open_to_write
    from lunette.scale.zarr_output import array_metadata

    return open_to_write(level.path, list(array_metadata(level).values())[-1])


@lru_cache(maxsize=4)
def _png(path: str, inner: str) -> Array:
    from lunette.scale import png

    return png.read(path, inner)


@lru_cache(maxsize=4)
def _tif(path: str, number: int) -> Any:
    import tifffile
    import zarr

    from lunette.scale.bounded_tif import guard

    series = tifffile.TiffFile(path, _multifile=False).series[number]
    guard(series)
    store: Any = zarr.open(series.aszarr(), mode="r")
    return store if hasattr(store, "shape") else store["0"]


@lru_cache(maxsize=1)
def open_handles_for(run: str) -> None:
    """Files may have been replaced since another run, so open them anew for this one, once."""
    for cached in (hdf5.opened, nifti.layout, volumes.opened):
        cached.cache_clear()
    for cached in (_zarr, _zarr_to_write, _png, _tif, npy.header, container_of):
        cached.cache_clear()


# -- creating --


def create_level(level: Level) -> None:
    """An empty array in a store; the space of a file is set aside, so that a full disk shows now."""
    if level.kind == "precomputed":
        Path(level.path).mkdir(parents=True, exist_ok=True)
        marks.mark(Path(level.path))
        return
    if level.kind == "zarr":
        from lunette.scale.zarr_output import create_array

        create_array(level)
        if not is_remote(level.path):
            marks.mark(Path(level.path))
        return
    Path(level.path).parent.mkdir(parents=True, exist_ok=True)
    array = np.lib.format.open_memmap(level.path, "w+", np.dtype(level.dtype), level.shape)
    del array
    if hasattr(os, "posix_fallocate"):
        with open(level.path, "r+b") as file:
            size = file.seek(0, os.SEEK_END)
            os.posix_fallocate(file.fileno(), 0, size)
