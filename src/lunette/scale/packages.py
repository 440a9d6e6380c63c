"""Packages that only some formats need: asked for before any work, with the line that installs them."""

from __future__ import annotations

from importlib.util import find_spec

from lunette.scale.errors import ScaleError

__all__ = ["LIBRARIES", "require", "require_for"]

LIBRARIES = {
    "zarr": ("zarr", "numcodecs"),
    "tif": ("tifffile", "zarr"),
    "png": ("PIL",),
    "hdf5": ("h5py",),
    "nifti": ("nibabel",),
    "volume": ("tensorstore",),
}
"""The packages that read and write each format, by the names under which they are imported."""

DISTRIBUTIONS = {"PIL": "pillow"}
"""Where a package is not installed by the name under which it is imported."""


def require(name: str, what: str) -> None:
    """Refuse to begin without a package; `what` needs it."""
    try:
        there = find_spec(name) is not None
    except (ImportError, ValueError):  # a module without a spec, or None in its place
        there = False
    if not there:
        raise ScaleError(
            f"{what} needs the package {name}: pip install {DISTRIBUTIONS.get(name, name)}"
        )


def require_for(kind: str, what: str) -> None:
    """Refuse to begin without the packages of a format."""
    for name in LIBRARIES.get(kind, ()):
        require(name, what)
