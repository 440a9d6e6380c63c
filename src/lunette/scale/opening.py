"""What there is to read at a place: the shape, the axes and where cells stand; no cell is read."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from lunette.platform import allocations_limited
from lunette.scale import axes, hdf5, nifti, npy, volumes, zarr_source
from lunette.scale.containers import container_of, is_remote
from lunette.scale.described import Described, Kept
from lunette.scale.errors import ScaleError
from lunette.scale.packages import require_for
from lunette.scale.stores import Source
from lunette.scale.zarr_metadata import NAMES

__all__ = ["kind_of", "open_source"]

SUFFIXES = {
    ".npy": "npy",
    ".tif": "tif",
    ".tiff": "tif",
    ".png": "png",
    ".zarr": "zarr",
    ".zip": "zarr",
    **dict.fromkeys((".h5", ".hdf5", ".hdf", ".he5", ".nwb", ".nxs", ".ims"), "hdf5"),
    ".nii": "nifti",
}
WRITTEN = (".npy", ".tif", ".tiff", ".png", ".zarr", ".precomputed")
LARGEST = 1 << 55
"""Bytes of an array that anyone has: a larger one is a mistake, or a trap."""

DESCRIBING = 1 << 30
"""Bytes that it may take to find out what a file holds."""


def kind_of(place: str | Path, name: str) -> str:
    """The format that a path names by its suffix."""
    path = Path(place)
    suffix = path.suffix.lower()
    if name != "IN":
        if is_remote(str(place)) and suffix != ".zarr":
            raise ScaleError(
                f"{name}={str(place)!r}: on the network Zarr alone is written; expected a URL that ends in "
                ".zarr"
            )
        if suffix in WRITTEN:
            return SUFFIXES.get(suffix, "precomputed")
        raise ScaleError(
            f"{name}={str(place)!r}: expected a path that ends in one of {', '.join(WRITTEN)}"
        )
    if nifti.is_nifti(str(place)):
        return "nifti"
    if suffix in SUFFIXES:
        return SUFFIXES[suffix]
    if path.is_dir() and volumes.driver_of(path):
        return "volume"
    if is_remote(str(place)) or (path.is_dir() and any((path / f).exists() for f in NAMES)):
        return "zarr"
    known = ", ".join(SUFFIXES)
    raise ScaleError(f"{name}={str(place)!r}: expected a path that ends in one of {known}")


def open_source(
    place: str | Path, array: str = "", asked: str = "", series: int | None = None
) -> Source:
    """The array at a place, with `asked` in place of the axes that the file names."""
    place, inside = hdf5.split(str(place))
    if inside and array:
        raise ScaleError(f"--array {array!r}: IN names {inside!r} already")
    array = array or inside
    kind = _kind_there(place)
    require_for(kind, f"IN={place!r}")
    if array and kind in ("npy", "tif", "nifti", "volume"):
        raise ScaleError(f"--array {array!r}: only a Zarr group has arrays by name")
    if series is not None and kind not in ("tif", "zarr"):
        raise ScaleError(f"--series {series}: IN={place!r} holds one image")
    try:
        with allocations_limited(DESCRIBING):
            place, found = _DESCRIBE[kind](place, array, series)
        dtype = np.dtype(found.dtype)
    except Exception as error:
        if isinstance(error, ScaleError) and any(
            w in str(error) for w in ("IN=", "--array", " IN ", "--series", "--axes", "pip install")
        ):
            raise
        text = str(error) or type(error).__name__
        raise ScaleError(f"IN={place!r} cannot be read as {kind}: {text}") from error
    _check_shape(place, found, dtype)
    letters, names, told = _axes(found, asked)
    rank = len(found.shape)
    return Source(
        place if is_remote(place) else str(Path(place).absolute()),  # workers stand elsewhere
        kind,
        found.inner,
        found.shape,
        dtype.newbyteorder("=").str,
        found.chunks or (1,) * (rank - 1) + found.shape[-1:],
        letters,
        found.scale or (1.0,) * rank,
        found.translation or (0.0,) * rank,
        found.units or (None,) * rank,
        tuple(range(rank)),
        names,
        told,
        Kept(**found.kept),
    )


def _kind_there(place: str) -> str:
    """The format of what is there; nothing, and what is no plain file or folder, is refused."""
    if is_remote(place):
        return kind_of(place, "IN")
    path = Path(place)
    _check_there(path)
    kind = kind_of(path, "IN")
    if kind == "zarr" and not path.is_dir() and path.suffix.lower() != ".zip":
        raise ScaleError(f"IN={str(path)!r}: a Zarr array is a folder, and this is none")
    if kind == "volume":
        return kind
    if (kind != "zarr" or path.suffix.lower() == ".zip") and not path.is_file():
        raise ScaleError(f"IN={str(path)!r}: expected a plain file")  # a pipe would be waited for
    return kind


def _check_there(path: Path) -> None:
    try:
        path.stat()
    except FileNotFoundError:
        raise ScaleError(f"IN={str(path)!r}: no such file or directory") from None
    except (OSError, ValueError) as error:
        raise ScaleError(f"IN={str(path)!r}: {error}") from error


def _check_shape(place: str, found: Described, dtype: np.dtype[Any]) -> None:
    shape = found.shape
    if prod(shape) * max(1, dtype.itemsize) > LARGEST:
        raise ScaleError(
            f"IN={place!r} says that it has shape {shape} of {dtype}; expected at most "
            f"{LARGEST} bytes"
        )
    if not shape or 0 in shape:
        raise ScaleError(f"IN={place!r} has shape {shape}; expected an array with cells")


def _axes(found: Described, asked: str) -> tuple[str, tuple[str, ...], str]:
    """A letter and a name for each axis, and who says so."""
    shape = found.shape
    if asked:
        return *axes.asked(asked, shape), "as --axes says"
    if any(found.names):
        letters = axes.letters_of(found.names, found.types)
        names = tuple(n or f"dim_{i}" for i, n in enumerate(found.names))
        return letters, names, f"named by {found.told}"
    letters = found.letters or axes.by_number(len(shape))
    told = f"by {found.told}" if found.letters else "without names, so by their number"
    if (
        len(letters) != len(shape)
        or len(set(letters)) != len(shape)
        or not set(letters) <= set("tczyx")
    ):
        raise ScaleError(
            f"--axes {letters!r}: expected {len(shape)} different letters of t, c, z, y, x, one for "
            f"each axis of {shape}"
        )
    return letters, tuple(letters), told


# -- each format --


def _describe_npy(place: str, array: str, series: int | None) -> tuple[str, Described]:
    npy.header.cache_clear()
    found = npy.header(place)
    return place, Described(found.shape, found.dtype.str)


def _describe_png(place: str, array: str, series: int | None) -> tuple[str, Described]:
    from lunette.scale import png

    return place, png.describe(Path(place), array)


def _describe_tif(place: str, array: str, series: int | None) -> tuple[str, Described]:
    import tifffile

    from lunette.scale import tif_metadata
    from lunette.scale.bounded_tif import check_segments

    number = series or 0
    with _Complaints() as complaints, tifffile.TiffFile(place, _multifile=False) as file:
        if not file.series:
            raise ValueError("it holds no image")
        if not 0 <= number < len(file.series):
            raise ScaleError(
                f"--series {number}: IN={place!r} has {len(file.series)}, numbered from 0"
            )
        image = file.series[number]
        check_segments(file, image)
        shape = tuple(image.shape)
        letters = tif_metadata.axes_of(image.axes)
        sizes, told = tif_metadata.sizes_of(file, image, number, letters)
        channels = tif_metadata.channels_of(file, number)
        chunk = tuple(image.keyframe.chunks)
        dtype = np.dtype(image.dtype).str
    if complaints.heard:  # tifffile goes on with the pages that it can find
        raise ValueError(complaints.heard[0])
    found = Described(shape, dtype, (1,) * (len(shape) - len(chunk)) + chunk, str(number))
    found.letters, found.told = letters, told
    found.scale = tuple(s for s, _ in sizes)
    found.units = tuple(u for _, u in sizes)
    if channels:
        found.kept = {"group": json.dumps({"channels": channels})}
    return place, found


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


def _describe_zarr(place: str, array: str, series: int | None) -> tuple[str, Described]:
    container_of.cache_clear()
    return zarr_source.describe(place, array, series)


def _describe_hdf5(place: str, array: str, series: int | None) -> tuple[str, Described]:
    return place, hdf5.describe(place, array)


def _describe_nifti(place: str, array: str, series: int | None) -> tuple[str, Described]:
    return place, nifti.describe(place)


def _describe_volume(place: str, array: str, series: int | None) -> tuple[str, Described]:
    return place, volumes.describe(place)


_DESCRIBE: dict[str, Callable[[str, str, int | None], tuple[str, Described]]] = {
    "npy": _describe_npy,
    "png": _describe_png,
    "tif": _describe_tif,
    "zarr": _describe_zarr,
    "hdf5": _describe_hdf5,
    "nifti": _describe_nifti,
    "volume": _describe_volume,
}
