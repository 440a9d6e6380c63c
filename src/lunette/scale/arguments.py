"""Arguments of the commands: what they are, and what is refused before any work."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lunette.regions import Sliding
from lunette.scale.axes import SPACE
from lunette.scale.errors import ScaleError
from lunette.scale.locks import lock_path
from lunette.scale.operators import OPERATORS
from lunette.scale.plan import Step
from lunette.scale.storage import DEFAULT, Storage, check_codec
from lunette.scale.stores import Source
from lunette.scale.workspace import folder_of, journal_of

__all__ = [
    "Options",
    "check_lengths",
    "check_operator",
    "check_out",
    "check_paths",
    "checked",
    "on_axes",
    "storage_of",
    "version_of",
]

SIDES = {1: 1 << 20, 2: 1024, 3: 128}
"""Default chunk: cells along each of so many spatial axes."""


@dataclass(frozen=True)
class Options:
    """What both commands take besides the operator: see their help."""

    memory: int | None = None
    chunks: tuple[int, ...] | None = None
    shards: tuple[int, ...] | None = None
    codec: str = ""
    format: str = ""
    threads: int | None = None
    scheduler: str | None = None
    resume: bool = False
    force: bool = False
    array: str = ""
    axes: str = ""
    series: int | None = None
    nodata: float | int | None = None
    skipna: bool = False
    link: bool = False

    def mark(self, dtype: str) -> float | int | None:
        """What stands for no data in this dtype; integers have no NaN to skip."""
        if self.nodata is not None:
            return self.nodata
        return float("nan") if self.skipna and dtype[1] == "f" else None


FORMATS = {"0.4": 2, "zarr2": 2, "2": 2, "0.5": 3, "zarr3": 3, "3": 3}
"""Versions of OME-NGFF and of Zarr, by the version of Zarr that both are."""


def version_of(text: str, source: Source) -> int:
    """The version of Zarr to write: the one that is asked for, or the input's."""
    if not text:
        return source.kept.version or 3
    if text not in FORMATS:
        raise ScaleError(f"--format {text!r}: expected one of {', '.join(FORMATS)}")
    return FORMATS[text]


def checked(check: Callable[[], Any]) -> Any:
    """The answer of a check of the library, whose refusal becomes the command's."""
    try:
        return check()
    except (TypeError, ValueError) as error:
        raise ScaleError(str(error)) from error


def check_operator(operator: str) -> None:
    """Refuse a word that is no operator."""
    if operator not in OPERATORS:
        raise ScaleError(f"operator {operator!r}: expected one of {', '.join(OPERATORS)}")


def check_lengths(step: Step) -> None:
    """Refuse a window that is longer than its axis."""
    for axis, (region, n) in enumerate(zip(step.regions, step.in_shape, strict=True)):
        try:
            region.out_length(n)
        except ValueError as error:
            raise ScaleError(f"axis {axis} of shape {step.in_shape}: {error}") from error


def check_out(out: Path) -> Path:
    """The place of the output, spelled out; a path that names no file of a folder is refused."""
    if out.name in ("", "..") or "\0" in str(out):
        raise ScaleError(f"OUT={str(out)!r}: expected the name of a file or a folder to make")
    try:
        parent = out.absolute().parent.resolve(strict=True)
    except (OSError, RuntimeError):
        parent = out.absolute().parent
    if not parent.is_dir():
        raise ScaleError(f"OUT={str(out)!r}: there is no directory {str(parent)!r}")
    return parent / out.name


def check_paths(source: Path, out: Path, finals: list[Path]) -> None:
    """Nothing that is written may lie in the input, nor swallow it, by whatever names."""
    a = source.resolve()
    for path in [out, *finals, folder_of(out), journal_of(out), *map(lock_path, [out, *finals])]:
        b = path.resolve()
        if any(_same(a, p) for p in (b, *b.parents)):
            raise ScaleError(
                f"OUT={str(path)!r} lies inside IN={str(source)!r}; choose another place"
            )
        if any(_same(b, p) for p in a.parents):
            raise ScaleError(
                f"IN={str(source)!r} lies inside OUT={str(path)!r}; choose another place"
            )


def _same(a: Path, b: Path) -> bool:
    """One file or folder, also where names differ in case, or by a link."""
    if a == b:
        return True
    try:
        return os.path.samefile(a, b)
    except OSError:
        return False


def on_axes(source: Source, regions: tuple[Sliding, ...]) -> tuple[Sliding, ...]:
    """A region for every axis: the given ones on the last axes, before the channels of an image."""
    one = Sliding(1, 1)
    rank = len(source.shape)
    if source.axes.endswith("c") and rank > len(regions):
        regions = (*regions, one)
    if len(regions) > rank:
        raise ScaleError(
            f"--kernel names {len(regions)} axes; IN={source.path!r} of shape {source.shape} has {rank}"
        )
    return (one,) * (rank - len(regions)) + regions


def storage_of(source: Source, kind: str, options: Options) -> Storage:
    """Chunks, shards, codec and version: those of the input, if it is Zarr and nothing else is asked."""
    rank = len(source.shape)
    for name, given in (("chunks", options.chunks), ("shards", options.shards)):
        if given is not None and len(given) != rank:
            raise ScaleError(f"--{name} {given}: expected {rank} sizes, one per axis")
        if given is not None and min(given) < 1:
            raise ScaleError(f"--{name} {given}: expected sizes of at least 1")
    if options.codec:
        check_codec(options.codec)
    version = version_of(options.format, source)
    kept = source.kept
    as_it_is = kind == "zarr" and version == kept.version
    if as_it_is and not (options.chunks or options.shards or options.codec) and kept.like:
        return Storage(source.chunks, kept.shards, "", version, kept.like)
    codec = options.codec or DEFAULT
    chunks = options.chunks
    if chunks is None and source.kind == "zarr":
        chunks = source.chunks
    if chunks is None:
        chunks = _usual_chunks(source)
    if options.chunks is None:
        chunks = tuple(min(c, n) for c, n in zip(chunks, source.shape, strict=True))
    if kind == "precomputed":  # chunks hold every channel, and nothing is compressed
        if options.shards or options.codec:
            raise ScaleError("--shards and --codec: precomputed volumes are written raw, in chunks")
        chunks = tuple(
            n if a == "c" else c for a, c, n in zip(source.axes, chunks, source.shape, strict=True)
        )
        return Storage(chunks, None, "none", 3)
    shards = options.shards
    if shards is None and options.chunks is None and kept.shards and version == 3:
        shards = kept.shards if chunks == source.chunks else None
    if shards is None:
        return Storage(chunks, None, codec, version)
    if version == 2 and kind == "zarr":
        raise ScaleError(f"--shards {shards}: Zarr 2 has none; expected --format 0.5")
    if any(s % c for s, c in zip(shards, chunks, strict=True)):
        raise ScaleError(f"--shards {shards}: expected multiples of the chunks {chunks}")
    return Storage(chunks, shards, codec, version)


def _usual_chunks(source: Source) -> tuple[int, ...]:
    spatial = sum(a in SPACE for a in source.axes)
    side = SIDES[max(1, spatial)]
    return tuple(
        side if a in SPACE else (n if source.axes.endswith("c") and a == "c" else 1)
        for a, n in zip(source.axes, source.shape, strict=True)
    )
