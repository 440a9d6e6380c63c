"""`lunette warm`: the progress of compiling ahead, for people to look at."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from lunette.warmup import VERBS, typical_calls, warm_calls

__all__ = ["show"]


def show(dtypes: Sequence[str], verbs: Sequence[str], processes: int | None) -> None:
    """Compile the kernels of typical calls, with a progress bar; exit status 1 if one fails."""
    for dtype in dtypes:
        if dtype not in ("float16", "float32", "float64"):
            raise typer.BadParameter(
                f"{dtype!r}: expected float16, float32 or float64", param_hint="--dtype"
            )
    for verb in verbs:
        if verb not in VERBS:
            raise typer.BadParameter(
                f"{verb!r}: expected one of {', '.join(VERBS)}", param_hint="--verb"
            )
    calls = typical_calls([np.dtype(d).str for d in dtypes], verbs)
    console, failed = Console(stderr=True), 0
    columns = (TextColumn("compiling"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("", total=len(calls))
        for call, error in warm_calls(calls, processes):
            progress.advance(task)
            if error:
                failed += 1
                progress.console.print(f"{call}: {error}", markup=False, highlight=False)
    typer.echo(f"{len(calls) - failed} of {len(calls)} kinds of call are compiled and kept on disk")
    if failed:
        raise typer.Exit(1)
