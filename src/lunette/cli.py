"""The command line: `lunette tour` and what else a shell can ask of the library."""

from __future__ import annotations

from typing import Annotated

import typer

import lunette
from lunette.check.command import check
from lunette.scale.commands import pool, pyramid
from lunette.verify.commands import recheck, verify

__all__ = ["app", "main"]

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    help="Window operators in any dimension: one exact meaning, and kernels that agree with it.",
    epilog="Start with `lunette tour`. In Python: `import lunette as ln; help(ln)`.",
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"lunette {lunette.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version and leave.", callback=_version, is_eager=True
        ),
    ] = False,
) -> None:
    pass


@app.command()
def tour() -> None:
    """A small image pooled before your eyes: values, winners, gradients, exact numbers, intervals."""
    from lunette.tour import show

    show()


app.command()(check)
app.command()(pool)
app.command()(pyramid)
app.command()(verify)
app.command()(recheck)


def main() -> None:
    """Entry point of the `lunette` command."""
    app()


if __name__ == "__main__":
    main()
