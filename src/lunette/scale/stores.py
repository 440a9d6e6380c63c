"""Arrays on disk: `.npy`, TIFF, PNG and Zarr, read and written by ranges of positions."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from lunette.scale import npy
from lunette.scale.errors import ScaleError
from lunette.scale.ngff import read_metadata

__all__ = ["Level", "Source", "create_level", "forget_handles", "kind_of", "open_source"]

Array = np.ndarray[Any, Any]
Ranges = tuple[tuple[int, int], ...]

SUFFIXES = {".npy": "npy", ".tif": "tif", ".tiff": "tif", ".png": "png", ".zarr": "zarr"}
DEFAULT_AXES = {1: "x", 2: "yx", 3: "zyx", 4: "czyx", 5: "tczyx"}


def kind_of(path: Path, name: str) -> str:
    """The format that a path names by its suffix."""
    if path.suffix.lower() in SUFFIXES:
        return SUFFIXES[path.suffix.lower()]
    if path.is_dir() and any((path / f).exists() for f in ("zarr.json", ".zarray", ".zgroup")):
        return "zarr"
    known = ", ".join(SUFFIXES)
    raise ScaleError(f"{name}={str(path)!r}: expected a path that ends in one of {known}")


@dataclass(frozen=True)
class Source:
    """An array to read. `chunks` are the smallest pieces that can be read alone."""

    path: str
    kind: str
    inner: str
    shape: tuple[int, ...]
    dtype: str
    chunks: tuple[int, ...]
    axes: str
    scale: tuple[float, ...]
    translation: tuple[float, ...]
    units: tuple[str | None, ...]

    def read(self, ranges: Ranges) -> Array:
        """The cells of these ranges; an unreadable chunk is named."""
        try:
            return _read(self.path, self.kind, self.inner, ranges)
        except Exception as error:
            raise ScaleError(
                f"cannot read {self._culprit(ranges)} of {self.path}: {error}"
            ) from error

    def _culprit(self, ranges: Ranges) -> str:
        """The first chunk among these ranges that cannot be read."""
        grids = [
            range(lo // c, -(-hi // c)) for (lo, hi), c in zip(ranges, self.chunks, strict=True)
        ]
        for index in product(*grids):
            alone = tuple(
                (i * c, min((i + 1) * c, n))
                for i, c, n in zip(index, self.chunks, self.shape, strict=True)
            )
            try:
                _read(self.path, self.kind, self.inner, alone)
            except Exception:
                return f"chunk {index}"
        return f"positions {ranges}"


@dataclass(frozen=True)
class Level:
    """An array being written: Zarr chunks, or cells of a `.npy` file that space was set aside for."""

    path: str
    kind: str
    shape: tuple[int, ...]
    dtype: str
    chunks: tuple[int, ...]
    shards: tuple[int, ...] | None = None
    compression: str = "zstd"

    def read(self, ranges: Ranges) -> Array:
        """The cells of these ranges."""
        return _read(self.path, self.kind, "", ranges)

    def write(self, ranges: Ranges, block: Array) -> None:
        """Put a block in its place; a Zarr chunk appears whole or not at all."""
        place = tuple(slice(lo, hi) for lo, hi in ranges)
        if self.kind == "zarr":
            _zarr(self.path, "", "r+")[place] = block
            return
        npy.write(self.path, ranges, block)


def _read(path: str, kind: str, inner: str, ranges: Ranges) -> Array:
    place = tuple(slice(lo, hi) for lo, hi in ranges)
    if kind == "npy":
        return npy.read(path, ranges)
    if kind == "zarr":
        return np.asarray(_zarr(path, inner, "r")[place])
    if kind == "png":
        return _png(path)[place]
    return np.asarray(_tif(path)[place])


@lru_cache(maxsize=64)
def _zarr(path: str, inner: str, mode: str) -> Any:
    import zarr

    store: Any = zarr.open(path, mode=mode)
    return store[inner] if inner else store


@lru_cache(maxsize=4)
def _png(path: str) -> Array:
    from PIL import Image

    Image.MAX_IMAGE_PIXELS = None  # the size was held against the memory before this
    with Image.open(path) as image:
        return np.asarray(image)


@lru_cache(maxsize=4)
def _tif(path: str) -> Any:
    import tifffile
    import zarr

    store: Any = zarr.open(tifffile.TiffFile(path).series[0].aszarr(), mode="r")
    return store if hasattr(store, "shape") else store["0"]


def forget_handles() -> None:
    """Open everything anew: files may have been replaced."""
    for cached in (_zarr, _png, _tif, npy.header):
        cached.cache_clear()


# -- opening --


def open_source(path: Path, array: str = "", axes: str = "") -> Source:
    """What there is to read at a path; nothing but headers is read."""
    if not path.exists():
        raise ScaleError(f"IN={str(path)!r}: no such file or directory")
    kind = kind_of(path, "IN")
    if array and kind != "zarr":
        raise ScaleError(f"--array {array!r}: only a Zarr group has arrays by name")
    try:
        described = _DESCRIBE[kind](path, array)
    except ScaleError:
        raise
    except Exception as error:
        raise ScaleError(f"IN={str(path)!r} cannot be read as {kind}: {error}") from error
    shape = described["shape"]
    if not shape or 0 in shape:
        raise ScaleError(f"IN={str(path)!r} has shape {shape}; expected an array with cells")
    names = axes or described.get("axes") or DEFAULT_AXES.get(len(shape), "")
    if len(names) != len(shape) or len(set(names)) != len(names) or not set(names) <= set("tczyx"):
        raise ScaleError(
            f"--axes {names!r}: expected {len(shape)} different letters of t, c, z, y, x, one for "
            f"each axis of {shape}"
        )
    ones, zeros = (1.0,) * len(shape), (0.0,) * len(shape)
    return Source(
        str(path),
        kind,
        described.get("inner", ""),
        shape,
        described["dtype"],
        described.get("chunks") or (1,) * (len(shape) - 1) + shape[-1:],
        names,
        described.get("scale") or ones,
        described.get("translation") or zeros,
        described.get("units") or (None,) * len(shape),
    )


def _describe_npy(path: Path, array: str) -> dict[str, Any]:
    npy.header.cache_clear()
    found = npy.header(str(path))
    return {"shape": found.shape, "dtype": found.dtype.str}


def _describe_png(path: Path, array: str) -> dict[str, Any]:
    from PIL import Image

    limit, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, None
    try:
        with Image.open(path) as image:
            modes = {"1": ("|b1", 0), "L": ("|u1", 0), "I;16": ("<u2", 0)}
            modes |= {"RGB": ("|u1", 3), "RGBA": ("|u1", 4), "LA": ("|u1", 2)}
            if image.mode not in modes:
                raise ScaleError(
                    f"IN={str(path)!r} is a PNG of mode {image.mode!r}; expected grey, RGB or RGBA"
                )
            dtype, channels = modes[image.mode]
            shape = (image.height, image.width) + (channels,) * bool(channels)
    finally:
        Image.MAX_IMAGE_PIXELS = limit
    return {"shape": shape, "dtype": dtype, "chunks": shape, "axes": "yxc"[: len(shape)]}


def _describe_tif(path: Path, array: str) -> dict[str, Any]:
    import tifffile

    with tifffile.TiffFile(path) as file:
        series = file.series[0]
        axes = series.axes.lower().replace("s", "c")
        text = file.ome_metadata or ""
        page = series.keyframe
        chunk = tuple(page.chunks) if page.is_tiled else page.shape
    shape = tuple(series.shape)
    known = len(set(axes)) == len(axes) and set(axes) <= set("tczyx")
    sizes = {a: re.search(rf'PhysicalSize{a.upper()}="([0-9.eE+-]+)"', text) for a in axes}
    scale = tuple(float(m.group(1)) if (m := sizes[a]) else 1.0 for a in axes)
    chunks = (1,) * (len(shape) - len(chunk)) + chunk
    return {
        "shape": shape,
        "dtype": np.dtype(series.dtype).str,
        "axes": axes if known else "",
        "scale": scale,
        "chunks": tuple(min(c, n) for c, n in zip(chunks, shape, strict=True)),
    }


def _describe_zarr(path: Path, array: str) -> dict[str, Any]:
    import zarr

    check_name(array, "--array")
    store: Any = zarr.open(str(path), mode="r")
    described: dict[str, Any] = {"inner": array}
    if not hasattr(store, "shape"):
        described |= read_metadata(dict(store.attrs)) if not array else {}
        check_name(described["inner"], "the path of a dataset in IN")
        if not described["inner"]:
            raise ScaleError(f"IN={str(path)!r} is a Zarr group; name one of its arrays by --array")
        store = store[described["inner"]]
    elif array:
        raise ScaleError(f"--array {array!r}: IN={str(path)!r} is an array, not a group")
    if not hasattr(store, "shape"):
        raise ScaleError(f"{described['inner']!r} in IN={str(path)!r} is a group, not an array")
    described |= {"shape": store.shape, "dtype": store.dtype.str, "chunks": tuple(store.chunks)}
    return described


def check_name(name: str, argument: str) -> None:
    """Refuse the name of an array that leads out of its store."""
    parts = name.replace("\\", "/").split("/")
    if ".." in parts or name.startswith(("/", "\\", "~")) or ":" in name or "\0" in name:
        raise ScaleError(f"{argument} {name!r}: a name may not lead out of the store")


_DESCRIBE = {
    "npy": _describe_npy,
    "png": _describe_png,
    "tif": _describe_tif,
    "zarr": _describe_zarr,
}


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
        return
    Path(level.path).parent.mkdir(parents=True, exist_ok=True)
    array = np.lib.format.open_memmap(level.path, "w+", np.dtype(level.dtype), level.shape)
    del array
    if hasattr(os, "posix_fallocate"):
        with open(level.path, "r+b") as file:
            size = file.seek(0, os.SEEK_END)
            os.posix_fallocate(file.fileno(), 0, size)


def nbytes(shape: tuple[int, ...], dtype: str) -> int:
    """Bytes of an array."""
    return prod(shape) * np.dtype(dtype).itemsize
