"""What a Zarr store holds: which of its arrays is meant, and what it and its group say of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from lunette.scale import axes
from lunette.scale.containers import Container, container_of, is_remote
from lunette.scale.described import Described
from lunette.scale.errors import ScaleError
from lunette.scale.ngff import multiscales_of, read_image
from lunette.scale.zarr_arrays import open_array
from lunette.scale.zarr_metadata import NAMES, Node, node, node_or_none

__all__ = ["check_name", "describe", "store_and_path"]

HIGHEST = 4
"""Groups above an array that are asked whether it is a level of theirs."""

OURS = ("multiscales", "_ARRAY_DIMENSIONS")
"""Attributes that are written anew."""


def check_name(name: str, argument: str) -> None:
    """Refuse the name of an array that leads out of its store."""
    parts = name.replace("\\", "/").split("/")
    if ".." in parts or name.startswith(("/", "\\", "~")) or ":" in name or "\0" in name:
        raise ScaleError(f"{argument} {name!r}: a name may not lead out of the store")


def store_and_path(place: str, inner: str) -> tuple[str, str]:
    """The outermost group that a path lies in, and the path from there: `p.zarr/0` is `0` of `p.zarr`."""
    if is_remote(place):
        head, _, tail = place.rstrip("/").partition(".zarr/")
        return (f"{head}.zarr", "/".join(filter(None, (tail, inner)))) if tail else (place, inner)
    if not Path(place).is_dir():
        return place, inner
    folder = Path(place).absolute()
    for _ in range(HIGHEST):
        if not any((folder.parent / name).is_file() for name in NAMES):
            break
        inner = "/".join(filter(None, (folder.name, inner)))
        folder = folder.parent
    return str(folder), inner


def describe(place: str, array: str, series: int | None) -> tuple[str, Described]:
    """The store, and what it says of the array that is meant."""
    check_name(array, "--array")
    here = node(container_of(place))
    if here.kind == "array" and array:
        raise ScaleError(f"--array {array!r}: IN={place!r} is an array, not a group")
    root, inner = store_and_path(place, array)
    container = container_of(root)
    if root != place and node_or_none(container) is None:
        root, inner, container = place, array, container_of(place)
    inner, image = _resolved(container, inner, place, series)
    store = open_array(root, inner)
    found = Described(store.shape, store.dtype.str, tuple(store.chunks), inner)
    own = node(container, inner)
    if image is None:
        image = _image_above(container, inner)
    _take_names(found, own, image)
    if image is not None and len(image["scale"]) == len(found.shape):
        found.scale, found.translation = image["scale"], image["translation"]
        found.units = image["units"]
    group, version = (image or {}).get("attributes", {}), own.version
    attributes = {k: v for k, v in own.attributes.items() if k not in OURS}
    fill = store.fill_value
    found.kept = {
        "group": json.dumps(group),
        "array": json.dumps(attributes),
        "fill": 0 if fill is None else np.asarray(fill).item(),
        "labels": "image-label" in group,
        "version": version,
        "root": (image or {}).get("path"),
        "shards": None if store.shards is None else tuple(store.shards),
        "like": _like(own, np.dtype(store.dtype)),
    }
    return root, found


def _like(own: Node, dtype: np.dtype[Any]) -> str:
    """The metadata that makes another array as this one is stored, if cells have the machine's own order."""
    if not dtype.isnative:
        return ""
    left_out = ("shape", "attributes", "dimension_names", "consolidated_metadata")
    return json.dumps({k: v for k, v in own.metadata.items() if k not in left_out})


def _resolved(
    container: Container, inner: str, place: str, series: int | None
) -> tuple[str, dict[str, Any] | None]:
    """The path of an array, and the image that it is a level of, where the group was named."""
    found = node(container, inner)
    if found.kind == "array":
        return inner, None
    if "bioformats2raw.layout" in found.attributes or (
        "bioformats2raw.layout" in _ome(found.attributes)
    ):
        inner = "/".join(filter(None, (inner, str(series or 0))))
        check_name(inner, "--series")
        found = node(container, inner)
    elif series is not None:
        raise ScaleError(
            f"--series {series}: IN={place!r} is not of the bioformats2raw layout; name an array by "
            "--array"
        )
    if "plate" in _ome(found.attributes):
        raise ScaleError(
            f"IN={place!r} is a plate of many images; name one of them by --array, such as A/1/0"
        )
    images = multiscales_of(found.attributes)
    if not images:
        what = (
            f"{inner!r} in IN={place!r} is a group, not an array"
            if inner
            else (f"IN={place!r} is a Zarr group")
        )
        raise ScaleError(f"{what}; name one of its arrays by --array")
    image = read_image(found.attributes, images[0], None)
    assert image is not None
    check_name(image["first"], "the path of a dataset in IN")
    image["path"] = inner
    return "/".join(filter(None, (inner, image["dataset"]))), image


def _ome(attributes: dict[str, Any]) -> dict[str, Any]:
    found = attributes.get("ome", attributes)
    return found if isinstance(found, dict) else {}


def _image_above(container: Container, inner: str) -> dict[str, Any] | None:
    """The multiscale image that an array is a level of."""
    parts = inner.split("/") if inner else []
    for cut in range(len(parts) - 1, max(-1, len(parts) - 1 - HIGHEST), -1):
        above, below = "/".join(parts[:cut]), "/".join(parts[cut:])
        found = node_or_none(container, above)
        if found is None or found.kind != "group":
            continue
        for image in multiscales_of(found.attributes):
            read = read_image(found.attributes, image, below)
            if read is not None:
                return read | {"path": above}
    return None


def _take_names(found: Described, own: Node, image: dict[str, Any] | None) -> None:
    """Names of the axes: those of the image, else those of the array."""
    rank = len(found.shape)
    if image is not None and image["names"]:
        found.names = axes.check_names(image["names"], rank, "the axes of OME-NGFF")
        found.types, found.told = image["types"], "OME-NGFF"
        return
    where = "dimension_names" if own.version == 3 else "_ARRAY_DIMENSIONS"
    holder = own.metadata if own.version == 3 else own.attributes
    if holder.get(where) is not None:
        names = axes.check_names(holder[where], rank, where)
        if any(names):
            found.names, found.told = names, where
