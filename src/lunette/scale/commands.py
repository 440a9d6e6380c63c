"""`lunette pool` and `lunette pyramid`: arguments in words, a progress bar, errors in one line."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from lunette.scale import interrupts
from lunette.scale.errors import one_line

__all__ = ["pool", "pyramid"]

In = Annotated[Path, typer.Argument(metavar="IN", help="A .npy, .tif, .png or Zarr array.")]
Out = Annotated[Path, typer.Argument(metavar="OUT", help="Where to write; the suffix says what.")]
Memory = Annotated[
    str, typer.Option(help="Most memory to use, such as 2GB; half of the machine's by default.")
]
Chunks = Annotated[str, typer.Option(help="Chunks of the output, such as 64,64,64.")]
Shards = Annotated[str, typer.Option(help="Shards of a Zarr output: multiples of the chunks.")]
Compression = Annotated[str, typer.Option(help="zstd or none, for Zarr.")]
Threads = Annotated[int | None, typer.Option(help="Tiles at once; one per core by default.")]
Scheduler = Annotated[
    str, typer.Option(help="Address of a dask.distributed scheduler that sees the same files.")
]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with an output that was begun.")]
Force = Annotated[bool, typer.Option("--force", help="Write over an output that exists.")]
ArrayName = Annotated[str, typer.Option("--array", help="The array of a Zarr group to read.")]
Axes = Annotated[str, typer.Option(help="Names of the axes of IN, of t, c, z, y, x: such as czyx.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress bar, no closing line.")]


def pool(
    operator: Annotated[str, typer.Argument(help="mean, max, min, or stride (plain subsampling).")],
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
    compression: Compression = "zstd",
    threads: Threads = None,
    scheduler: Scheduler = "",
    resume: Resume = False,
    force: Force = False,
    array: ArrayName = "",
    axes: Axes = "",
    quiet: Quiet = False,
) -> None:
    """Pool an array of any size on disk, in bounded memory.

    The mean of integers is rounded half to even in exact integer arithmetic. Interrupted, it leaves
    an output that --resume goes on with, to the same bits.
    """

    def do(progress: Any) -> Any:
        from lunette.scale import work

        options = _options(
            memory, chunks, shards, compression, threads, scheduler, resume, force, array, axes
        )
        return work.pool(
            operator,
            source,
            out,
            _sizes(kernel, "kernel"),
            _one_or_more(stride, "stride"),
            _one_or_more(padding, "padding"),
            ceil_mode,
            options,
            progress,
        )

    _run(do, quiet)


def pyramid(
    source: In,
    out: Out,
    levels: Annotated[int, typer.Option(help="How many times to halve z, y and x.")],
    op: Annotated[
        str, typer.Option(help="mean, max, min, or stride (plain subsampling).")
    ] = "mean",
    memory: Memory = "",
    chunks: Chunks = "",
    shards: Shards = "",
    compression: Compression = "zstd",
    threads: Threads = None,
    scheduler: Scheduler = "",
    resume: Resume = False,
    force: Force = False,
    array: ArrayName = "",
    axes: Axes = "",
    quiet: Quiet = False,
) -> None:
    """Halve an array again and again: OME-NGFF 0.5 in Zarr, OME-TIFF (y and x), or numbered files.

    Zarr and OME-TIFF hold the full image as level 0. At an odd edge the last cell stands alone: a
    level has half the length of the one before, rounded up.
    """

    def do(progress: Any) -> Any:
        from lunette.scale import work

        options = _options(
            memory, chunks, shards, compression, threads, scheduler, resume, force, array, axes
        )
        return work.pyramid(op, source, out, levels, options, progress)

    _run(do, quiet)


def _options(
    memory: str,
    chunks: str,
    shards: str,
    compression: str,
    threads: int | None,
    scheduler: str,
    resume: bool,
    force: bool,
    array: str,
    axes: str,
) -> Any:
    """The words of the options that both commands have, as values."""
    from lunette.scale.work import Options

    return Options(
        memory=_bytes(memory),
        chunks=_sizes(chunks, "chunks") if chunks else None,
        shards=_sizes(shards, "shards") if shards else None,
        compression=compression,
        threads=threads,
        scheduler=scheduler or None,
        resume=resume,
        force=force,
        array=array,
        axes=axes,
    )


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
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn
    from rich.progress import TransferSpeedColumn as Speed

    columns = (BarColumn(), DownloadColumn(), Speed(), TimeRemainingColumn())
    console = Console(stderr=True)
    hidden = quiet or not console.is_terminal
    with Progress(*columns, console=console, disable=hidden, transient=True) as bar:
        task = bar.add_task("", total=None)

        def progress(read: int, written: int, whole: int) -> None:
            bar.update(task, advance=read, total=whole)

        return do(progress)


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
