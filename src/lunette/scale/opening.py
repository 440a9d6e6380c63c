"""What there is to read at a path: the shape, the axes and where cells stand; no cell is read."""

from __future__ import annotations

import logging
import re
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from lunette.scale import memory, npy
from lunette.scale.errors import ScaleError
from lunette.scale.ngff import read_metadata
from lunette.scale.stores import Source
from lunette.scale.zarr_metadata import node

__all__ = ["SYMBOLS", "kind_of", "open_source"]

SUFFIXES = {".npy": "npy", ".tif": "tif", ".tiff": "tif", ".png": "png", ".zarr": "zarr"}
DEFAULT_AXES = {1: "x", 2: "yx", 3: "zyx", 4: "czyx", 5: "tczyx"}
LARGEST = 1 << 55
"""Bytes of an array that anyone has: a larger one is a mistake, or a trap."""

DESCRIBING = 1 << 30
"""Bytes that it may take to find out what a file holds."""

SYMBOLS = {
    "meter": "m",
    "centimeter": "cm",
    "millimeter": "mm",
    "micrometer": "µm",
    "nanometer": "nm",
    "picometer": "pm",
    "angstrom": "Å",
}
"""Units of length: OME-NGFF has their names, OME-TIFF their symbols."""


def kind_of(path: Path, name: str) -> str:
    """The format that a path names by its suffix."""
    if path.suffix.lower() in SUFFIXES:
        return SUFFIXES[path.suffix.lower()]
    if path.is_dir() and any((path / f).exists() for f in ("zarr.json", ".zarray", ".zgroup")):
        return "zarr"
    known = ", ".join(SUFFIXES)
    raise ScaleError(f"{name}={str(path)!r}: expected a path that ends in one of {known}")


def open_source(path: Path, array: str = "", axes: str = "") -> Source:
    """The array at a path, with `axes` in place of those that the file names."""
    _check_there(path)
    kind = kind_of(path, "IN")
    if kind == "zarr" and not path.is_dir():
        raise ScaleError(f"IN={str(path)!r}: a Zarr array is a folder, and this is none")
    if kind != "zarr" and not path.is_file():  # a pipe would be waited for
        raise ScaleError(f"IN={str(path)!r}: expected a plain file")
    if array and kind != "zarr":
        raise ScaleError(f"--array {array!r}: only a Zarr group has arrays by name")
    try:
        with memory.at_most(DESCRIBING):
            described = _DESCRIBE[kind](path, array)
        dtype = np.dtype(described["dtype"])
    except Exception as error:
        if isinstance(error, ScaleError) and any(
            w in str(error) for w in ("IN=", "--array", " IN ")
        ):
            raise
        text = str(error) or type(error).__name__
        raise ScaleError(f"IN={str(path)!r} cannot be read as {kind}: {text}") from error
    shape = described["shape"]
    rank = len(shape)
    if prod(shape) * max(1, dtype.itemsize) > LARGEST:
        raise ScaleError(
            f"IN={str(path)!r} says that it has shape {shape} of {dtype}; expected at most "
            f"{LARGEST} bytes"
        )
    if not shape or 0 in shape:
        raise ScaleError(f"IN={str(path)!r} has shape {shape}; expected an array with cells")
    names = axes or described.get("axes") or DEFAULT_AXES.get(rank, "")
    if len(names) != rank or len(set(names)) != rank or not set(names) <= set("tczyx"):
        raise ScaleError(
            f"--axes {names!r}: expected {rank} different letters of t, c, z, y, x, one for each "
            f"axis of {shape}"
        )
    return Source(
        str(path.absolute()),  # a worker of a cluster may stand in another directory
        kind,
        described.get("inner", ""),
        shape,
        dtype.newbyteorder("=").str,
        described.get("chunks") or (1,) * (rank - 1) + shape[-1:],
        names,
        described.get("scale") or (1.0,) * rank,
        described.get("translation") or (0.0,) * rank,
        described.get("units") or (None,) * rank,
        tuple(range(rank)),
    )


def _check_there(path: Path) -> None:
    try:
        path.stat()
    except FileNotFoundError:
        raise ScaleError(f"IN={str(path)!r}: no such file or directory") from None
    except (OSError, ValueError) as error:
        raise ScaleError(f"IN={str(path)!r}: {error}") from error


# -- each format --


def _describe_npy(path: Path, array: str) -> dict[str, Any]:
    npy.header.cache_clear()
    found = npy.header(str(path))
    return {"shape": found.shape, "dtype": found.dtype.str}


def _describe_png(path: Path, array: str) -> dict[str, Any]:
    from PIL import Image

    limit, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, None
    try:
        with Image.open(path, formats=["PNG"]) as image:
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

    from lunette.scale.bounded_tif import check_segments

    with _Complaints() as complaints, tifffile.TiffFile(path, _multifile=False) as file:
        if not file.series:
            raise ValueError("it holds no image")
        series = file.series[0]
        check_segments(file, series)
        letters, shape, dtype = series.axes, tuple(series.shape), np.dtype(series.dtype).str
        text = file.ome_metadata or ""
        chunk = tuple(series.keyframe.chunks)
    if complaints.heard:  # tifffile goes on with the pages that it can find
        raise ValueError(complaints.heard[0])
    axes = _tif_axes(letters)
    sizes = [_physical_size(text, a) for a in axes]
    chunks = (1,) * (len(shape) - len(chunk)) + chunk
    return {
        "shape": shape,
        "dtype": dtype,
        "axes": axes,
        "scale": tuple(s for s, _ in sizes),
        "units": tuple(u for _, u in sizes),
        "chunks": chunks,
    }


class _Complaints(logging.Handler):
    """What tifffile has to say of a broken file, instead of raising."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.heard: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.heard.append(record.getMessage())

    def __enter__(self) -> _Complaints:
        logger = logging.getLogger("tifffile")
        logger.addHandler(self)
        self.propagates, logger.propagate = logger.propagate, False
        return self

    def __exit__(self, *_: object) -> None:
        logger = logging.getLogger("tifffile")
        logger.removeHandler(self)
        logger.propagate = self.propagates


def _tif_axes(letters: str) -> str:
    """Samples are channels. Pages of a kind that we do not name are z, or else c, or else t."""
    axes = list(letters.lower().replace("s", "c"))
    free = [a for a in "zct" if a not in axes]
    for i in reversed(range(len(axes))):
        if axes[i] not in "tczyx" and free:
            axes[i] = free.pop(0)
    return "".join(axes)


def _physical_size(text: str, axis: str) -> tuple[float, str | None]:
    """The size of a cell and its unit, from OME-XML; a size without a unit is in micrometers."""
    size = re.search(rf'PhysicalSize{axis.upper()}="([0-9.eE+-]+)"', text)
    if size is None:
        return 1.0, None
    unit = re.search(rf'PhysicalSize{axis.upper()}Unit="([^"]*)"', text)
    names = {symbol: name for name, symbol in SYMBOLS.items()}
    return float(size.group(1)), names.get(unit.group(1)) if unit else "micrometer"


def _describe_zarr(path: Path, array: str) -> dict[str, Any]:
    from lunette.scale.bounded_zarr import open_array

    check_name(array, "--array")
    kind, _, _, attributes = node(path)
    described: dict[str, Any] = {"inner": array}
    if kind == "group":
        described |= read_metadata(attributes) if not array else {}
        check_name(described["inner"], "the path of a dataset in IN")
        if not described["inner"]:
            raise ScaleError(f"IN={str(path)!r} is a Zarr group; name one of its arrays by --array")
    elif array:
        raise ScaleError(f"--array {array!r}: IN={str(path)!r} is an array, not a group")
    store = open_array(str(path), described["inner"])
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
