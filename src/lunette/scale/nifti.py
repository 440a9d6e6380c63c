"""NIfTI images, plain or compressed by gzip: x lies first in memory, and cells may be scaled."""

from __future__ import annotations

import atexit
import gzip
import math
import os
import tempfile
import zlib
from contextlib import suppress
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np

from lunette.scale import npy
from lunette.scale.described import Described
from lunette.scale.errors import ScaleError
from lunette.scale.lengths import positive, unit_named

__all__ = ["describe", "is_nifti", "layout", "read"]

Array = np.ndarray[Any, Any]

UNITS = {"mm": "millimeter", "micron": "micrometer", "meter": "meter"}
STEP = 1 << 22


class Layout(NamedTuple):
    """How cells are stored, and the slope and intercept by which they are scaled, if they are."""

    header: npy.Header
    scaling: tuple[float, float] | None


def is_nifti(place: str) -> bool:
    """Whether a path names such a file."""
    return place.lower().endswith((".nii", ".nii.gz"))


@lru_cache(maxsize=16)
def layout(path: str) -> Layout:
    """What the header says of the cells."""
    stored = _image(
        path
    ).dataobj  # a loaded header forgets where cells are, and how they are scaled
    dtype, shape = stored.dtype, tuple(int(n) for n in stored.shape)
    if dtype.kind not in "iuf" or any(n < 1 for n in shape):
        raise ScaleError(f"an image of {dtype}, shape {shape}; expected numbers")
    offset = int(stored.offset)
    if not path.lower().endswith(".gz") and offset + prod(shape) * dtype.itemsize > os.path.getsize(
        path
    ):
        raise ScaleError(f"{shape} of {dtype} do not fit into {os.path.getsize(path)} bytes")
    scaling: tuple[float, float] | None = (float(stored.slope), float(stored.inter))
    if scaling == (1, 0):
        scaling = None
    if scaling and not all(map(math.isfinite, scaling)):
        raise ScaleError(f"cells scaled by {scaling}; expected finite numbers")
    return Layout(npy.Header(shape, dtype, offset, len(shape) > 1), scaling)


def _image(path: str) -> Any:
    import nibabel
    from nibabel.filebasedimages import ImageFileError

    try:
        image: Any = nibabel.load(path)
    except (ImageFileError, zlib.error, EOFError) as error:
        raise ScaleError(str(error)) from error
    if not isinstance(image, nibabel.Nifti1Image):  # which NIfTI-2 is a kind of
        raise ScaleError(f"a {type(image).__name__}; expected a NIfTI image in one file")
    return image


def describe(path: str) -> Described:
    """Shape, sizes of cells and units."""
    layout.cache_clear()
    found = layout(path)
    header = _image(path).header
    shape = found.header.shape
    letters = "xyztc"[: len(shape)]
    space, time = header.get_xyzt_units()
    zooms = [positive(z) or 1.0 for z in header.get_zooms()]
    units = [UNITS.get(space) if a in "xyz" else None for a in letters]
    if "t" in letters:
        units[3] = unit_named(time)
    dtype = np.dtype("f8") if found.scaling else found.header.dtype
    return Described(
        shape,
        dtype.str,
        letters=letters,
        told="the header of the NIfTI file",
        scale=tuple(zooms[: len(shape)]),
        units=tuple(units),
    )


def read(path: str, ranges: tuple[tuple[int, int], ...]) -> Array:
    """The cells of these ranges, scaled as the header says."""
    found = layout(path)
    block = npy.read(
        _inflated(path) if path.lower().endswith(".gz") else path, ranges, found.header
    )
    if found.scaling is None:
        return block
    slope, inter = found.scaling
    return np.asarray(block * np.float64(slope) + inter)


@lru_cache(maxsize=4)
def _inflated(path: str) -> str:
    """A file of this process with what a compressed one holds, and not a byte more than its header says."""
    found = layout(path).header
    left = found.offset + prod(found.shape) * found.dtype.itemsize
    handle, name = tempfile.mkstemp(suffix=".nii", prefix="lunette-")
    atexit.register(_remove, name)
    with os.fdopen(handle, "wb") as out, gzip.open(path, "rb") as file:
        while left and (part := file.read(min(left, STEP))):
            out.write(part)
            left -= len(part)
    if left:
        raise ScaleError(f"{path!r} is cut short: {left} bytes are missing")
    return name


def _remove(name: str) -> None:
    with suppress(OSError):
        os.unlink(name)
