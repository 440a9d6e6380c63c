"""A Zarr array opened by the way that suits it: plainly, or by the Zarr library within bounds."""

from __future__ import annotations

from typing import Any

from lunette.scale import zarr_metadata
from lunette.scale.containers import container_of
from lunette.scale.errors import ScaleError
from lunette.scale.plain_zarr import PlainArray, PlainWriter, plain

__all__ = ["open_array", "open_to_write", "writer_of"]


def open_array(path: str, inner: str) -> Any:
    """The array at a path in a store, to be read by slices."""
    container = container_of(path)
    kind, version, found, _ = zarr_metadata.node(container, inner)
    if kind != "array":
        raise ScaleError(f"{inner!r} in IN={path!r} is a group, not an array")
    largest = zarr_metadata.check_array(version, found)
    simple = plain(version, found)
    if simple is not None:
        return PlainArray(container, inner, simple, {"zarr_format": version, **found}, largest)
    from lunette.scale.bounded_zarr import open_bounded

    return open_bounded(container, inner, version, found, largest)


def open_to_write(path: str, metadata: dict[str, Any]) -> Any:
    """An array at a path, or its URL, of this metadata, whose whole chunks are set by slices."""
    writer = writer_of(path, metadata)
    if writer is not None:
        return writer
    import zarr

    return zarr.open_array(path, mode="r+")


def writer_of(path: str, metadata: dict[str, Any]) -> PlainWriter | None:
    """What writes such an array plainly; None where the library has to, with the metadata in its place."""
    simple = plain(int(metadata["zarr_format"]), metadata)
    if simple is None:
        return None
    writer = PlainWriter(container_of(path), simple, metadata)
    return None if writer.encode is None else writer
