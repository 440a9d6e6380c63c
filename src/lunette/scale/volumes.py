"""N5 and neuroglancer precomputed volumes of a folder, read by TensorStore."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from lunette.scale.described import Described
from lunette.scale.errors import ScaleError
from lunette.scale.lengths import positive, unit_named

__all__ = ["describe", "driver_of", "opened", "read"]

LARGEST = 1 << 20


def driver_of(folder: Path) -> str:
    """`n5` or `neuroglancer_precomputed` by the metadata of a folder; nothing if it is neither."""
    for name, key, driver in (
        ("attributes.json", "blockSize", "n5"),
        ("info", "scales", "neuroglancer_precomputed"),
    ):
        path = folder / name
        if not path.is_file() or path.stat().st_size > LARGEST:
            continue
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict) and key in found:
            return driver
    return ""


@lru_cache(maxsize=8)
def opened(path: str) -> Any:
    """The volume, at its finest scale."""
    import tensorstore

    driver = driver_of(Path(path))
    if not driver:
        raise ScaleError(f"{path!r} holds no volume of N5 or neuroglancer")
    spec = {"driver": driver, "kvstore": {"driver": "file", "path": f"{path}/"}}
    return tensorstore.open(spec, read=True).result()


def describe(path: str) -> Described:
    """Shape, axes and sizes of cells; x comes first, unless labels say otherwise."""
    opened.cache_clear()
    store = opened(path)
    rank = store.ndim
    labels = tuple(str(n) if n else None for n in store.domain.labels)
    if any(labels):
        names = tuple("c" if n == "channel" else n for n in labels)
        found = Described(tuple(store.shape), store.dtype.numpy_dtype.str, names=names)
    else:
        found = Described(tuple(store.shape), store.dtype.numpy_dtype.str, letters="xyzct"[:rank])
    found.told = "its metadata"
    found.chunks = tuple(int(n or 1) for n in store.chunk_layout.read_chunk.shape)
    units = [u and (positive(u.multiplier), u.base_unit) for u in store.dimension_units]
    found.scale = tuple((u[0] if u else None) or 1.0 for u in units)
    found.units = tuple(unit_named(u[1]) if u else None for u in units)
    return found


def read(path: str, ranges: tuple[tuple[int, int], ...]) -> np.ndarray[Any, Any]:
    """The cells of these ranges, counted from the first."""
    store = opened(path)
    origin = store.domain.origin
    place = tuple(slice(lo + o, hi + o) for (lo, hi), o in zip(ranges, origin, strict=True))
    return np.asarray(store[place].read().result())
