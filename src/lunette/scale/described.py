"""What a format says of an array: given by each reader, made into a `Source` by `opening`."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

__all__ = ["NOTHING", "Described", "Kept"]


@dataclass
class Described:
    """Shape, dtype and whatever else a file knows; what it does not know is left empty.

    `names` and `types` of axes are as the file has them, `told` says where they stand.
    """

    shape: tuple[int, ...]
    dtype: str
    chunks: tuple[int, ...] | None = None
    inner: str = ""
    names: tuple[str | None, ...] = ()
    types: tuple[str | None, ...] = ()
    letters: str = ""
    told: str = ""
    scale: tuple[float, ...] | None = None
    translation: tuple[float, ...] | None = None
    units: tuple[str | None, ...] | None = None
    kept: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Kept:
    """What a pyramid takes over as it is.

    `group` are the attributes of a multiscale image besides its levels, `array` those of its array;
    both as JSON. `fill` stands where nothing was written. `labels` says that cells are numbers of
    things. `version` is the Zarr version of the input, 0 for other formats, and `root` the place in its
    store of the multiscale image, None where there is none. `like` is the metadata of a Zarr array that
    others can be made after.
    """

    group: str = "{}"
    array: str = "{}"
    fill: float | int | bool = 0
    labels: bool = False
    version: int = 0
    root: str | None = None
    shards: tuple[int, ...] | None = None
    like: str = ""

    @property
    def group_attributes(self) -> dict[str, Any]:
        """The attributes of the group."""
        return dict(json.loads(self.group))

    @property
    def array_attributes(self) -> dict[str, Any]:
        """The attributes of the array."""
        return dict(json.loads(self.array))


NOTHING = Kept()
"""Of a format that says nothing."""
