"""`python -m lunette.check` is `lunette check`."""

import typer

from lunette.check.command import check

if __name__ == "__main__":
    typer.run(check)
