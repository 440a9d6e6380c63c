"""The command `lunette check`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from lunette.check.calls import OPS, VERBS

__all__ = ["check"]


def check(
    target: Annotated[
        str, typer.Argument(help="What to check: a name from --list, or module:function.")
    ] = "",
    op: Annotated[list[str] | None, typer.Option(help=f"Only these ops: {', '.join(OPS)}.")] = None,
    verb: Annotated[
        list[str] | None, typer.Option(help=f"Only these verbs: {', '.join(VERBS)}.")
    ] = None,
    cases: Annotated[
        int | None, typer.Option(help="How many calls. Default: as many as suit the target.")
    ] = None,
    seed: Annotated[int, typer.Option(help="The same seed gives the same report.")] = 0,
    time: Annotated[
        float | None,
        typer.Option(
            help="Seconds from start to end. Default: 60; with --cases alone, as long as they take. "
            "With --time alone, as many calls as fit."
        ),
    ] = None,
    report: Annotated[Path | None, typer.Option(help="Write one HTML page here.")] = None,
    json: Annotated[Path | None, typer.Option(help="Write the report as JSON here.")] = None,
    list_targets: Annotated[
        bool, typer.Option("--list", help="Say which targets are installed and what they offer.")
    ] = False,
) -> None:
    """Does an implementation mean what it says? The exact meaning against any of them.

    Exit status: 0 if nothing was wrong and nothing crashed; 1 otherwise, and where nothing was tried;
    2 for a bad command line.
    """
    from rich.console import Console

    from lunette.check.display import Display, show_report, show_targets
    from lunette.check.report import write_html, write_json
    from lunette.check.run import run
    from lunette.check.targets import find_target

    console = Console()
    if list_targets:
        show_targets(console)
        raise typer.Exit(0)
    if "" not in sys.path and "." not in sys.path:
        sys.path.insert(0, os.getcwd())  # as `python -m` does, so that module:function is found
    _check_choices("--op", op, tuple(OPS))
    _check_choices("--verb", verb, VERBS)
    if cases is not None and cases < 1:
        raise typer.BadParameter(f"--cases {cases}: expected at least 1")
    if seed < 0:
        raise typer.BadParameter(f"--seed {seed}: expected 0 or more")
    if time is not None and not time > 0:
        raise typer.BadParameter(f"--time {time}: expected more than 0 seconds")
    for path in (report, json):
        if path is not None and not path.absolute().parent.is_dir():
            raise typer.BadParameter(f"{path}: no such directory")
    if not target:
        raise typer.BadParameter("which target? `lunette check --list` names them")
    try:
        chosen = find_target(target)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    if not chosen.installed():
        raise typer.BadParameter(chosen.missing())
    command = _command(target, op, verb, cases, seed, time)
    with Display(console, target) as display:
        result = run(chosen, op, verb, cases, seed, time, command=command, progress=display.update)
    show_report(console, result)
    if report is not None:
        write_html(result, report)
    if json is not None:
        write_json(result, json)
    if not result.cases:
        console.print(f"nothing was tried: {result.cut or 'the target offers nothing of this'}")
    raise typer.Exit(0 if result.clean and result.cases else 1)


def _check_choices(name: str, values: list[str] | None, allowed: tuple[str, ...]) -> None:
    for value in values or ():
        if value not in allowed:
            raise typer.BadParameter(f"{name} {value}: expected one of {', '.join(allowed)}")


def _command(
    target: str,
    op: list[str] | None,
    verb: list[str] | None,
    cases: int | None,
    seed: int,
    time: float | None,
) -> str:
    words = ["lunette check", target]
    words += [f"--op {o}" for o in op or ()] + [f"--verb {v}" for v in verb or ()]
    words += [f"--cases {cases}"] if cases is not None else []
    words += [f"--seed {seed}"]
    words += [f"--time {time:g}"] if time is not None else []
    return " ".join(words)
