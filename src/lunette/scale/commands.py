"""`lunette pool` and `lunette pyramid`: arguments in words, a progress bar, errors in one line."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable
from typing import Annotated, Any

import typer

from lunette.scale import interrupts
from lunette.scale.errors import one_line

__all__ = ["pool", "pyramid"]

EVERY = 30
"""Seconds between lines of progress, where nobody watches a bar."""

In = Annotated[
    str, typer.Argument(metavar="IN", help="A .npy, .tif, .png or Zarr array, also at a URL.")
]
Out = Annotated[
    str,
    typer.Argument(metavar="OUT", help="Where to write; the suffix says what. Zarr also at a URL."),
]
Memory = Annotated[
    str, typer.Option(help="Most memory to use, such as 2GB; half of the machine's by default.")
]
Chunks = Annotated[str, typer.Option(help="Chunks of the output, such as 64,64,64.")]
Shards = Annotated[str, typer.Option(help="Shards of a Zarr output: multiples of the chunks.")]
Codec = Annotated[
    str,
    typer.Option(
        "--codec",
        "--compression",
        help="none, zstd:3, gzip:6 or blosc:5, for Zarr and TIFF; by default as IN has it, or zstd:1.",
    ),
]
Format = Annotated[
    str,
    typer.Option("--format", help="0.4 (Zarr 2) or 0.5 (Zarr 3); by default the version of IN."),
]
Series = Annotated[
    int | None, typer.Option(help="Which image of a TIFF or a bioformats2raw store, from 0.")
]
Threads = Annotated[int | None, typer.Option(help="Tiles at once; one per core by default.")]
Scheduler = Annotated[
    str, typer.Option(help="Address of a dask.distributed scheduler that sees the same files.")
]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with an output that was begun.")]
Force = Annotated[bool, typer.Option("--force", help="Write over an output that exists.")]
ArrayName = Annotated[str, typer.Option("--array", help="The array of a Zarr group to read.")]
Axes = Annotated[
    str, typer.Option(help="Axes of IN in place of those it names: czyx, or time,lat,lon.")
]
NoData = Annotated[
    str, typer.Option("--nodata", help="A number, or nan, whose cells have no part in a value.")
]
SkipNa = Annotated[bool, typer.Option("--skipna", help="Leave NaN out, as --nodata nan does.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress bar, no closing line.")]


def pool(
    operator: Annotated[
        str,
        typer.Argument(
            help="mean, max, min, mode, sparse-mode (zeros have no vote), or stride (plain subsampling)."
        ),
    ],
    source: In,
    out: Out,
    kernel: Annotated[str, typer.Option(help="Cells of a window along the last axes: 2,2,2.")],
    stride: Annotated[str, typer.Option(help="Cells between windows; the kernel by default.")] = "",
    padding: Annotated[str, typer.Option(help="Cells of padding on both sides.")] = "0",
    ceil_mode: Annotated[
        bool, typer.Option("--ceil-mode", help="Keep a last window that the edge cuts short.")
    ] = False,
    memory: Memory = "",
    chunks: Chunks = "",
    shards: Shards = "",
    codec: Codec = "",
    format: Format = "",
    threads: Threads = None,
    scheduler: Scheduler = "",
    resume: Resume = False,
    force: Force = False,
    array: ArrayName = "",
    axes: Axes = "",
    series: Series = None,
    nodata: NoData = "",
    skipna: SkipNa = False,
    quiet: Quiet = False,
) -> None:
    """Pool an array of any size on disk, in bounded memory.

    The mean of integers is rounded half to even in exact integer arithmetic. Interrupted, it leaves
    an output that --resume goes on with, to the same bits.
    """

    def do(progress: Any) -> Any:
        from lunette.scale import work

        options = work.Options(
            memory=_bytes(memory),
            chunks=_sizes(chunks, "chunks") if chunks else None,
            shards=_sizes(shards, "shards") if shards else None,
            codec=codec,
            format=format,
            threads=threads,
            scheduler=scheduler or None,
            resume=resume,
            force=force,
            array=array,
            axes=axes,
            series=series,
            nodata=_number(nodata),
            skipna=skipna,
        )
        return work.pool(
            operator,
            source,
            out,
            _sizes(kernel, "kernel"),
            _one_or_more(stride, "stride"),
            _one_or_more(padding, "padding"),
            ceil_mode,
            options=options,
            progress=progress,
        )

    _run(do, quiet)


def pyramid(
    source: In,
    out: Annotated[
        str | None,
        typer.Argument(
            metavar="[OUT]", help="Where to write; the suffix says what. Zarr also at a URL."
        ),
    ] = None,
    levels: Annotated[
        int | None,
        typer.Option(help="How many; by default until the longest axis fits into a chunk."),
    ] = None,
    op: Annotated[
        str,
        typer.Option(
            help="mean, max, min, mode, sparse-mode (zeros have no vote), or stride (plain subsampling)."
            " By default the mean, with a warning where integers look like labels."
        ),
    ] = "",
    factors: Annotated[
        str,
        typer.Option(
            help="Factor of each axis: 2, or z=1,y=2,x=2; with ; between levels. By default axes of"
            " space are halved, those with the smallest cells first."
        ),
    ] = "",
    in_place: Annotated[
        bool,
        typer.Option("--in-place", help="Add levels to the multiscale image that IN is; no OUT."),
    ] = False,
    memory: Memory = "",
    chunks: Chunks = "",
    shards: Shards = "",
    codec: Codec = "",
    format: Format = "",
    threads: Threads = None,
    link: Annotated[
        bool,
        typer.Option(
            "--link",
            help="Level 0 as hard links to the files of IN, which is not copied then. Whatever writes into"
            " a file of one writes into both.",
        ),
    ] = False,
    scheduler: Scheduler = "",
    resume: Resume = False,
    force: Force = False,
    array: ArrayName = "",
    axes: Axes = "",
    series: Series = None,
    nodata: NoData = "",
    skipna: SkipNa = False,
    quiet: Quiet = False,
) -> None:
    """Halve an array again and again: OME-NGFF 0.5 in Zarr, OME-TIFF (y and x), or numbered files.

    Zarr and OME-TIFF hold the full image as level 0. At an odd edge the last cell stands alone: a
    level has half the length of the one before, rounded up.
    """

    def do(progress: Any) -> Any:
        from lunette.scale import work
        from lunette.scale.errors import ScaleError

        options = work.Options(
            memory=_bytes(memory),
            chunks=_sizes(chunks, "chunks") if chunks else None,
            shards=_sizes(shards, "shards") if shards else None,
            codec=codec,
            format=format,
            threads=threads,
            scheduler=scheduler or None,
            resume=resume,
            force=force,
            array=array,
            axes=axes,
            series=series,
            nodata=_number(nodata),
            skipna=skipna,
            link=link,
        )
        if in_place == (out is not None):
            raise ScaleError("expected either OUT or --in-place")
        say = None if quiet else _say
        return work.pyramid(
            op or None, source, out, levels, options, progress, factors or None, say
        )

    _run(do, quiet)


def _say(text: str) -> None:
    """A line for the person who waits, apart from the result."""
    typer.echo(text, err=True)


def _run(do: Callable[[Any], Any], quiet: bool) -> None:
    """Do it with a progress bar; whatever goes wrong is one line, and an exit status."""
    with interrupts.noted():
        try:
            outcome = _with_bar(do, quiet)
        except (typer.Exit, typer.BadParameter):
            raise
        except KeyboardInterrupt as stopped:
            typer.echo(interrupts.STOPPED, err=True)
            raise typer.Exit(getattr(stopped, "code", 130)) from None
        except Exception as error:
            typer.echo(f"error: {one_line(error)}", err=True)
            raise typer.Exit(1) from None
    if not quiet:
        shapes = ", ".join("×".join(map(str, s)) for s in outcome.shapes)
        speed = outcome.read / 1e6 / max(outcome.seconds, 1e-9)
        typer.echo(
            f"{outcome.path}: {shapes}, {outcome.tiles} tiles, {outcome.read / 1e6:.1f} MB read in "
            f"{outcome.seconds:.1f} s ({speed:.0f} MB/s)"
        )


def _with_bar(do: Callable[[Any], Any], quiet: bool) -> Any:
    watched = sys.stderr.isatty() or any(
        os.environ.get(n) for n in ("TTY_COMPATIBLE", "FORCE_COLOR")
    )
    if quiet or not watched:  # without Rich, which has its own share of memory
        return do(None if quiet else _Lines().report)
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn
    from rich.progress import TransferSpeedColumn as Speed

    columns = (BarColumn(), DownloadColumn(), Speed(), TimeRemainingColumn())
    console = Console(stderr=True)
    if not console.is_terminal:
        return do(_Lines().report)
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=None)

        def progress(read: int, written: int, whole: int) -> None:
            bar.update(task, advance=read, total=whole)

        return do(progress)


class _Lines:
    """Progress in a log: a line every half minute, and none of a job that is done before."""

    def __init__(self) -> None:
        self.begun = self.last = time.monotonic()
        self.read = 0

    def report(self, read: int, written: int, whole: int) -> None:
        """What is called after each tile."""
        self.read += read
        now = time.monotonic()
        if now - self.last < EVERY:
            return
        self.last = now
        speed = self.read / (now - self.begun)
        share = min(self.read / max(whole, 1), 1)
        left = max(whole - self.read, 0) / speed if speed else 0
        typer.echo(
            f"{share:.0%}: {self.read / 1e6:.0f} of {whole / 1e6:.0f} MB read, {speed / 1e6:.0f} MB/s, "
            f"{left:.0f} s left",
            err=True,
        )


def _sizes(text: str, name: str) -> tuple[int, ...]:
    """`2,2,2` as integers."""
    if not re.fullmatch(r"\s*-?\d+(\s*,\s*-?\d+)*\s*", text):
        raise typer.BadParameter(f"--{name} {text!r}: expected integers with commas, such as 2,2,2")
    return tuple(int(part) for part in text.split(","))


def _one_or_more(text: str, name: str) -> Any:
    """None, one integer for all axes, or one for each."""
    if not text:
        return None
    values = _sizes(text, name)
    return values[0] if len(values) == 1 else values


def _number(text: str) -> float | int | None:
    """An integer, a float or nan."""
    if not text:
        return None
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(f"--nodata {text!r}: expected a number, or nan") from None


def _bytes(text: str) -> int | None:
    """`2GB`, `512MiB`, `1.5G` as bytes."""
    if not text:
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kMGT]?)(i?)B?", text.strip())
    if not match or float(match.group(1)) == 0:
        raise typer.BadParameter(f"--memory {text!r}: expected a number of bytes, such as 2GB")
    base = 1024 if match.group(3) else 1000
    power = {"": 0, "k": 1, "M": 2, "G": 3, "T": 4}[match.group(2)]
    return int(float(match.group(1)) * base**power)
