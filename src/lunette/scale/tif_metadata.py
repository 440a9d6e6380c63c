"""What a TIFF says of its image: OME-XML, the description that ImageJ writes, or tifffile's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lunette.scale.lengths import positive, unit_named
from lunette.scale.xml import elements

__all__ = ["axes_of", "channels_of", "sizes_of"]

Sizes = tuple[float, str | None]


def axes_of(letters: str) -> str:
    """Samples are channels. Pages of a kind that we do not name are z, or else c, or else t."""
    axes = list(letters.lower().replace("s", "c"))
    free = [a for a in "zct" if a not in axes]
    for i in reversed(range(len(axes))):
        if axes[i] not in "tczyx" and free:
            axes[i] = free.pop(0)
    return "".join(axes)


def sizes_of(file: Any, series: Any, number: int, axes: str) -> tuple[list[Sizes], str]:
    """For each axis the size of a cell and its unit, and who says so."""
    if file.ome_metadata:
        pixels = _pixels(file.ome_metadata, number)
        return [_ome_size(pixels, a) for a in axes], "OME-XML"
    if file.imagej_metadata is not None:
        return [_imagej_size(file, a) for a in axes], "ImageJ"
    shaped = file.shaped_metadata
    if shaped and number < len(shaped):
        return [_ome_size(shaped[number], a) for a in axes], "the description of the TIFF"
    return [(1.0, None)] * len(axes), "the pages of the TIFF"


def _pixels(text: str, number: int) -> dict[str, str]:
    """The attributes of the image of this number."""
    found = [a for _, _, a in elements(text, ("Pixels",))]
    return found[number] if number < len(found) else {}


def _ome_size(pixels: Mapping[str, Any], axis: str) -> Sizes:
    """A length without a unit is in micrometers, a time in seconds."""
    if axis == "t":
        size = positive(pixels.get("TimeIncrement"))
        unit = pixels.get("TimeIncrementUnit", "s")
    else:
        size = positive(pixels.get(f"PhysicalSize{axis.upper()}"))
        unit = pixels.get(f"PhysicalSize{axis.upper()}Unit", "µm")
    return (1.0, None) if size is None else (size, unit_named(unit))


def _imagej_size(file: Any, axis: str) -> Sizes:
    """Cells per unit stand in tags of the first page, the rest in the description."""
    found = file.imagej_metadata
    unit = unit_named(found.get("unit"))
    if axis == "t":
        interval = positive(found.get("finterval"))
        return (1.0, None) if interval is None else (interval, unit_named(found.get("tunit", "s")))
    if axis == "z":
        spacing = positive(abs(_number(found.get("spacing"))))
        return (1.0, None) if spacing is None else (spacing, unit)
    if axis not in "yx":
        return 1.0, None
    tag = file.pages[0].tags.get("YResolution" if axis == "y" else "XResolution")
    try:
        size = positive(tag.value[1] / tag.value[0])
    except (AttributeError, TypeError, IndexError, ZeroDivisionError):
        size = None
    if size is None or (size == 1 and unit is None):
        return 1.0, None
    return size, unit


def _number(value: Any) -> float:
    """A number; 0 for what is none. ImageJ writes a spacing downwards as a negative one."""
    return float(value) if isinstance(value, (int, float)) else 0.0


def channels_of(file: Any, number: int) -> list[dict[str, Any]]:
    """Name and colour of each channel of an OME-TIFF, as `omero` of OME-NGFF has them."""
    if not file.ome_metadata:
        return []
    images = -1
    found: list[dict[str, Any]] = []
    for name, _, attributes in elements(file.ome_metadata, ("Pixels", "Channel")):
        images += name == "Pixels"
        if name == "Channel" and images == number:
            channel: dict[str, Any] = {"label": attributes.get("Name", f"Channel {len(found)}")}
            if attributes.get("Color", "").lstrip("-").isdecimal():
                number_ = int(attributes["Color"]) & 0xFFFFFFFF  # RGBA in a signed integer
                channel["color"] = f"{number_ >> 8:06X}"
            found.append(channel)
    return found if any(set(c) > {"label"} or "Channel " not in c["label"] for c in found) else []
