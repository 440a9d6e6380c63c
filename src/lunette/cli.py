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


@app.command()
def warm(
    dtype: Annotated[
        list[str], typer.Option(help="A dtype to compile for; may be given again.")
    ] = ["float32"],  # noqa: B006
    verb: Annotated[
        list[str], typer.Option(help="forward, jvp, vjp or autograd; may be given again.")
    ] = ["forward", "vjp", "autograd"],  # noqa: B006
    processes: Annotated[
        int | None, typer.Option(min=1, help="Processes side by side; the default is one a core.")
    ] = None,
) -> None:
    """Compile the kernels of common poolings ahead, so that first calls are as fast as later ones."""
    from lunette.warmup_command import show

    show(dtype, verb, processes)


@app.command()
def explain(
    reduction: Annotated[str, typer.Argument(help="max, mean or smooth.")],
    shape: Annotated[str, typer.Argument(help="The input's shape, such as 32,64,112,112.")],
    window: Annotated[str, typer.Option(help="Lengths of the window, such as 3,3.")] = "2,2",
    stride: Annotated[
        int | None, typer.Option(min=1, help="As long as the window if not said.")
    ] = None,
    padding: Annotated[int, typer.Option(min=0)] = 0,
    dtype: Annotated[str, typer.Option()] = "float32",
    verb: Annotated[
        str, typer.Option(help="forward, forward_with_indices, jvp or vjp.")
    ] = "forward",
    ties: Annotated[str, typer.Option(help="Of a max: first, all or split.")] = "first",
    channels_last: Annotated[bool, typer.Option(help="Axis 1 is the last in memory.")] = False,
) -> None:
    """Which kernel serves a pooling call, why those before it do not, and how it runs."""
    from lunette.explanation import by_words

    try:
        found = by_words(
            reduction,
            shape,
            window,
            stride,
            padding,
            dtype=dtype,
            ties=ties,
            channels_last=channels_last,
            verb=verb,
        )
    except (TypeError, ValueError) as wrong:
        raise typer.BadParameter(str(wrong)) from None
    typer.echo(str(found))


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
