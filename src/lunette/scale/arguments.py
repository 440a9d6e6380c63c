"""Arguments of the commands: what they are, and what is refused before any work."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lunette.regions import Sliding
from lunette.scale.errors import ScaleError
from lunette.scale.locks import lock_path
from lunette.scale.operators import OPERATORS
from lunette.scale.plan import Step
from lunette.scale.stores import Source
from lunette.scale.workspace import folder_of, journal_of

__all__ = [
    "Options",
    "check_lengths",
    "check_operator",
    "check_out",
    "check_paths",
    "checked",
    "chunks_and_unit",
    "on_axes",
]

SIDES = {1: 1 << 20, 2: 1024, 3: 128}
"""Default chunk: cells along each of so many spatial axes."""


@dataclass(frozen=True)
class Options:
    """What both commands take besides the operator: see their help."""

    memory: int | None = None
    chunks: tuple[int, ...] | None = None
    shards: tuple[int, ...] | None = None
    compression: str = "zstd"
    threads: int | None = None
    scheduler: str | None = None
    resume: bool = False
    force: bool = False
    array: str = ""
    axes: str = ""


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


def chunks_and_unit(
    source: Source, steps: tuple[Step, ...], options: Options
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Chunks of the output, and the unit that has one writer: a chunk, or a shard."""
    rank = len(source.shape)
    for name, given in (("chunks", options.chunks), ("shards", options.shards)):
        if given is not None and len(given) != rank:
            raise ScaleError(f"--{name} {given}: expected {rank} sizes, one per axis")
        if given is not None and min(given) < 1:
            raise ScaleError(f"--{name} {given}: expected sizes of at least 1")
    if options.compression not in ("zstd", "none"):
        raise ScaleError(f"--compression {options.compression!r}: expected 'zstd' or 'none'")
    chunks = options.chunks
    if chunks is None and source.kind == "zarr":
        chunks = source.chunks
    if chunks is None:
        spatial = sum(a in "zyx" for a in source.axes)
        side = SIDES[max(1, spatial)]
        chunks = tuple(
            side if a in "zyx" else (n if source.axes.endswith("c") and a == "c" else 1)
            for a, n in zip(source.axes, source.shape, strict=True)
        )
    if options.chunks is None:
        chunks = tuple(min(c, n) for c, n in zip(chunks, source.shape, strict=True))
    if options.shards is None:
        return chunks, chunks
    if any(s % c for s, c in zip(options.shards, chunks, strict=True)):
        raise ScaleError(f"--shards {options.shards}: expected multiples of the chunks {chunks}")
    return chunks, options.shards
