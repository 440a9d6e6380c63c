"""A dataset of an HDF5 file, read within bounds: compressed chunks are expanded into their own size.

The HDF5 library inflates whatever a stream gives; so chunks are read as they are stored, and expanded
by `bounded.expand`.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import product
from math import prod
from typing import Any

import numpy as np

from lunette.scale import axes
from lunette.scale.bounded import expand
from lunette.scale.described import Described
from lunette.scale.errors import ScaleError
from lunette.scale.lengths import positive
from lunette.scale.packages import require

__all__ = ["describe", "opened", "read", "split"]

Array = np.ndarray[Any, Any]
Ranges = tuple[tuple[int, int], ...]

DEFLATE, SHUFFLE, FLETCHER, LZF = 1, 2, 3, 32000
"""Numbers of filters; the first three are HDF5's own."""

MOST_LISTED = 20


def split(place: str) -> tuple[str, str]:
    """`file.h5:/path` as the file and the path in it."""
    match = re.fullmatch(
        r"(.*\.(?:h5|hdf5|hdf|he5|nwb|nxs|ims)):/?(.*)", place, re.IGNORECASE | re.S
    )
    return (match[1], match[2]) if match else (place, "")


def describe(place: str, inner: str) -> Described:
    """What a dataset says of itself; the only one of a file need not be named."""
    import h5py

    opened.cache_clear()
    if not inner:
        names: list[str] = []
        with h5py.File(place, "r") as file:
            file.visititems(lambda n, d: names.append(n) if isinstance(d, h5py.Dataset) else None)
        if len(names) != 1:
            listed = ", ".join(names[:MOST_LISTED])
            raise ScaleError(
                f"IN={place!r} holds {len(names)} datasets; name one, as in file.h5:/path, of {listed}"
            )
        inner = names[0]
    data = opened(place, inner)
    if data.dtype.kind not in "iufb" or data.shape is None:
        raise ScaleError(f"{inner!r} holds {data.dtype}; expected numbers")
    labels = [str(d.label) or None for d in data.dims]
    found = Described(tuple(data.shape), data.dtype.str, data.chunks, inner)
    if any(labels):
        found.names = axes.check_names(labels, len(labels), "labels of dimensions")
        found.told = "the labels of its dimensions"
    sizes = data.attrs.get("element_size_um")
    if sizes is not None and np.shape(sizes) == (len(data.shape),):
        good = [positive(s) for s in np.asarray(sizes).tolist()]
        if all(good):
            found.scale = tuple(g or 1.0 for g in good)
            found.units = ("micrometer",) * len(good)
    fill = data.fillvalue
    found.kept = {"fill": 0 if fill is None else np.asarray(fill).item()}
    return found


@lru_cache(maxsize=8)
def opened(path: str, inner: str) -> Any:
    """The dataset; what leads out of the file, and filters that are not known, are refused."""
    import h5py

    file = h5py.File(path, "r")
    group: Any = file
    for part in filter(None, inner.split("/")):
        link = group.get(part, getlink=True) if isinstance(group, h5py.Group) else None
        if link is None:
            raise ScaleError(f"--array {inner!r}: there is no {part!r} in IN={path!r}")
        if not isinstance(link, h5py.HardLink):
            raise ScaleError(f"{inner!r} is a link; name what it leads to")
        group = group[part]
    if not isinstance(group, h5py.Dataset):
        raise ScaleError(f"--array {inner!r}: a group of IN={path!r}, not a dataset")
    if group.external or group.is_virtual:
        raise ScaleError(f"{inner!r} has its cells in other files, which are not read")
    unknown = [n for n, _ in _filters(group) if n not in (DEFLATE, SHUFFLE, FLETCHER, LZF)]
    if unknown:
        raise ScaleError(
            f"{inner!r} has a filter, number {unknown[0]}, that is not known; convert it"
        )
    if any(n == LZF for n, _ in _filters(group)):
        require("imagecodecs", "an HDF5 dataset of LZF")
    return group


def _filters(data: Any) -> list[tuple[int, tuple[int, ...]]]:
    created = data.id.get_create_plist()
    found = (created.get_filter(i) for i in range(created.get_nfilters()))
    return [(number, values) for number, _, values, _ in found]


def read(path: str, inner: str, ranges: Ranges) -> Array:
    """The cells of these ranges."""
    data = opened(path, inner)
    filters = _filters(data)
    if not filters:
        return np.asarray(data[tuple(slice(lo, hi) for lo, hi in ranges)])
    out = np.empty([hi - lo for lo, hi in ranges], data.dtype)
    grid = [range(lo // c, -(-hi // c)) for (lo, hi), c in zip(ranges, data.chunks, strict=True)]
    for index in product(*grid):
        offset = tuple(i * c for i, c in zip(index, data.chunks, strict=True))
        block = _chunk(data, filters, offset)
        place, inside = [], []
        for (lo, hi), first, c in zip(ranges, offset, data.chunks, strict=True):
            a, b = max(lo, first), min(hi, first + c)
            place.append(slice(a - lo, b - lo))
            inside.append(slice(a - first, b - first))
        out[tuple(place)] = data.fillvalue if block is None else block[tuple(inside)]
    return out


def _chunk(data: Any, filters: Any, offset: tuple[int, ...]) -> Array | None:
    """A chunk, decoded; None where nothing was written."""
    size = prod(data.chunks) * data.dtype.itemsize
    info = data.id.get_chunk_info_by_coord(offset)
    if info.byte_offset is None:
        return None
    if info.size > 2 * size + (64 << 10):
        raise ScaleError(f"a chunk of {info.size} bytes, expected at most {2 * size}")
    skipped, raw = data.id.read_direct_chunk(offset)
    for position in reversed(range(len(filters))):
        number, values = filters[position]
        if skipped >> position & 1:
            continue
        if number == DEFLATE:
            raw = expand("zlib", raw, size + 4 * len(filters), exact=False)
        elif number == LZF:
            from imagecodecs import lzf_decode

            raw = lzf_decode(raw, out=size)
        elif number == FLETCHER:
            raw = raw[:-4]
        else:
            width = values[0] if values else data.dtype.itemsize
            raw = np.frombuffer(raw, np.uint8).reshape(width, -1).T.tobytes()
    if len(raw) != size:
        raise ScaleError(f"a chunk holds {len(raw)} bytes, expected {size}")
    return np.frombuffer(raw, data.dtype).reshape(data.chunks)
