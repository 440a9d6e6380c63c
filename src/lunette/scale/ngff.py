"""OME-NGFF multiscale metadata, 0.4 and 0.5: the axes, each level's scale and translation, and the rest."""

from __future__ import annotations

import math
from typing import Any

from lunette.scale.lengths import positive

__all__ = ["dataset_of", "multiscales_of", "read_image", "write_image"]

TYPES = {"t": "time", "c": "channel", "z": "space", "y": "space", "x": "space"}

OURS = ("multiscales", "version", "ome", "bioformats2raw.layout", "_ARRAY_DIMENSIONS")
"""Attributes of a group that are written anew, or say something of the layout of the input."""


def _ome(attributes: dict[str, Any]) -> dict[str, Any]:
    """Where OME-NGFF stands: `ome` since 0.5, the attributes themselves before."""
    found = attributes.get("ome", attributes)
    if not isinstance(found, dict):
        raise ValueError("ome: expected a JSON object")
    return found


def multiscales_of(attributes: dict[str, Any]) -> list[Any]:
    """The multiscale images that the attributes of a group describe."""
    found = _ome(attributes).get("multiscales") or []
    if not isinstance(found, list):
        raise ValueError("multiscales: expected a list")
    return found


def read_image(attributes: dict[str, Any], image: Any, path: str | None) -> dict[str, Any] | None:
    """A level of an image: the first, or the one at a path; None if it has no such level.

    Names and types of axes, units, scale and translation of the level; the attributes to keep.
    """
    datasets = image["datasets"]
    chosen = [d for d in datasets if path is None or str(d["path"]).strip("/") == path]
    if not chosen:
        return None
    dataset = chosen[0]
    axes = [a if isinstance(a, dict) else {"name": a} for a in image.get("axes") or []]
    scale, translation = _placed(dataset, image, len(axes))
    ome = _ome(attributes)
    kept = {k: v for k, v in attributes.items() if k not in OURS} if ome is not attributes else {}
    kept |= {k: v for k, v in ome.items() if k not in OURS}
    kept |= {"multiscale": {k: image[k] for k in ("name", "metadata", "type") if k in image}}
    return {
        "dataset": str(dataset["path"]).strip("/") if path is None else path,
        "first": str(datasets[0]["path"]),
        "names": tuple(a["name"] for a in axes),
        "types": tuple(a.get("type") for a in axes),
        "units": tuple(u if isinstance(u := a.get("unit"), str) else None for a in axes),
        "scale": scale,
        "translation": translation,
        "attributes": kept,
    }


def _placed(dataset: Any, image: Any, rank: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Scale and translation: the dataset's own transformations come first."""
    scale, translation = [1.0] * rank, [0.0] * rank
    for steps in (dataset, image):
        for step in steps.get("coordinateTransformations") or []:
            if step["type"] == "scale":
                factors = [float(v) for v in step["scale"]]
                if any(positive(abs(f)) is None for f in factors):
                    raise ValueError(f"scale {str(step['scale'])[:80]}: expected finite sizes")
                scale = [s * v for s, v in zip(scale, factors, strict=True)]
                translation = [t * v for t, v in zip(translation, factors, strict=True)]
            elif step["type"] == "translation":
                moves = [float(v) for v in step["translation"]]
                if not all(map(math.isfinite, moves)):
                    raise ValueError(
                        f"translation {str(step['translation'])[:80]}: expected finite lengths"
                    )
                translation = [t + v for t, v in zip(translation, moves, strict=True)]
    return tuple(scale), tuple(translation)


def dataset_of(
    path: str, scale: tuple[float, ...], translation: tuple[float, ...]
) -> dict[str, Any]:
    """What the metadata says of a level."""
    return {
        "path": path,
        "coordinateTransformations": [
            {"type": "scale", "scale": list(scale)},
            {"type": "translation", "translation": list(translation)},
        ],
    }


def write_image(
    name: str,
    letters: str,
    names: tuple[str, ...],
    units: tuple[str | None, ...],
    datasets: list[tuple[str, tuple[float, ...], tuple[float, ...]]],
    *,
    operator: str,
    description: str,
    kept: dict[str, Any],
    version: str,
) -> dict[str, Any]:
    """The attributes of a multiscale group; a dataset is its path, scale and translation."""
    kept = dict(kept)
    own = kept.pop("multiscale", {})
    image = {
        "name": own.get("name", name),
        "axes": [
            {"name": n} | ({"type": TYPES[a]} if a in TYPES else {}) | ({"unit": u} if u else {})
            for a, n, u in zip(letters, names, units, strict=True)
        ],
        "datasets": [dataset_of(*dataset) for dataset in datasets],
        "type": operator,
        "metadata": {"description": description},
    }
    ome: dict[str, Any] = {
        k: kept.pop(k) for k in ("omero", "image-label", "labels", "_creator") if k in kept
    }
    if version == "0.4":
        if isinstance(ome.get("image-label"), dict):
            ome["image-label"] = {**ome["image-label"], "version": version}
        return {**kept, "multiscales": [{"version": version, **image}], **ome}
    if isinstance(ome.get("image-label"), dict):
        ome["image-label"] = {k: v for k, v in ome["image-label"].items() if k != "version"}
    return {**kept, "ome": {"version": version, "multiscales": [image], **ome}}
