"""How levels are stored: chunks, shards, and the codec — `zstd:3`, `blosc`, `gzip:6` or `none`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from lunette.scale.errors import ScaleError

__all__ = ["DEFAULT", "Storage", "check_codec", "codec_metadata"]

DEFAULT = "zstd:1"

LEVELS = {"zstd": (1, -7, 22), "gzip": (5, 0, 9), "blosc": (5, 0, 9), "none": (0, 0, 0)}
"""Of each codec the level that it has by default, the least and the largest."""


@dataclass(frozen=True)
class Storage:
    """How the levels of an output are stored. `like` is the metadata of the input, where it is as it is there."""

    chunks: tuple[int, ...]
    shards: tuple[int, ...] | None
    codec: str
    version: int
    like: str = ""

    @property
    def unit(self) -> tuple[int, ...]:
        """What has one writer: a chunk, or a shard."""
        return self.shards or self.chunks


def check_codec(text: str) -> tuple[str, int]:
    """The name and the level of a codec."""
    match = re.fullmatch(r"(\w+)(?::(-?\d+))?", text)
    if match is None or match.group(1) not in LEVELS:
        raise ScaleError(
            f"--codec {text!r}: expected {', '.join(LEVELS)}, with a level such as zstd:3"
        )
    name = match.group(1)
    usual, least, most = LEVELS[name]
    level = usual if match.group(2) is None else int(match.group(2))
    if not least <= level <= most:
        raise ScaleError(f"--codec {text!r}: expected a level from {least} to {most}")
    return name, level


def codec_metadata(text: str, version: int, itemsize: int) -> dict[str, Any] | None:
    """The codec as the metadata of an array has it; Blosc is Zstandard after a shuffle of bits."""
    name, level = check_codec(text)
    if name == "none":
        return None
    found: dict[str, Any] = {"level": level}
    if name == "zstd":
        found["checksum"] = False
    if name == "blosc":
        found = {"cname": "zstd", "clevel": level, "shuffle": 2, "blocksize": 0}
    if version == 2:
        return {"id": name, **found}
    if name == "blosc":
        found |= {"typesize": itemsize, "shuffle": "bitshuffle"}
    return {"name": name, "configuration": found}
