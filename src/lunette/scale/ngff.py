"""OME-NGFF 0.5 multiscale metadata: the axes, and each level's scale and translation."""

from __future__ import annotations

from typing import Any

__all__ = ["read_metadata", "write_metadata"]

TYPES = {"t": "time", "c": "channel", "z": "space", "y": "space", "x": "space"}


def read_metadata(attributes: dict[str, Any]) -> dict[str, Any]:
    """The first dataset of the first multiscale image, its axes, scale and translation."""
    multiscales = attributes.get("ome", attributes).get("multiscales")
    if not multiscales:
        return {"inner": ""}
    image = multiscales[0]
    dataset = image["datasets"][0]
    axes = [a if isinstance(a, dict) else {"name": a} for a in image.get("axes", [])]
    names = "".join(str(a["name"]) for a in axes)
    scale, translation = [1.0] * len(axes), [0.0] * len(axes)
    for steps in (dataset, image):  # the dataset's own transformations come first
        for step in steps.get("coordinateTransformations", []):
            if step["type"] == "scale":
                scale = [s * float(v) for s, v in zip(scale, step["scale"], strict=True)]
                translation = [
                    t * float(v) for t, v in zip(translation, step["scale"], strict=True)
                ]
            elif step["type"] == "translation":
                translation = [
                    t + float(v) for t, v in zip(translation, step["translation"], strict=True)
                ]
    known = len(names) == len(axes) and set(names) <= set(TYPES)
    return {
        "inner": str(dataset["path"]),
        "axes": names if known else "",
        "scale": tuple(scale) if known else None,
        "translation": tuple(translation) if known else None,
        "units": tuple(a.get("unit") for a in axes) if known else None,
    }


def write_metadata(
    name: str,
    axes: str,
    units: tuple[str | None, ...],
    datasets: list[tuple[str, tuple[float, ...], tuple[float, ...]]],
    operator: str,
) -> dict[str, Any]:
    """The attributes of a multiscale group; a dataset is its path, scale and translation."""
    return {
        "ome": {
            "version": "0.5",
            "multiscales": [
                {
                    "name": name,
                    "axes": [
                        {"name": a, "type": TYPES[a]} | ({"unit": u} if u else {})
                        for a, u in zip(axes, units, strict=True)
                    ],
                    "datasets": [
                        {
                            "path": path,
                            "coordinateTransformations": [
                                {"type": "scale", "scale": list(scale)},
                                {"type": "translation", "translation": list(translation)},
                            ],
                        }
                        for path, scale, translation in datasets
                    ],
                    "type": operator,
                    "metadata": {"description": f"lunette pyramid, {operator} of 2 cells per axis"},
                }
            ],
        }
    }
