"""`lunette tour`: one small image through every idea of the library, drawn in the terminal."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from rich.columns import Columns
from rich.console import Console, Group
from rich.panel import Panel
from rich.text import Text

import lunette as ln
from lunette.spec import Interval

__all__ = ["show"]

Array = np.ndarray[Any, Any]


def crescent(n: int = 8) -> Array:
    """An n×n image of a crescent moon, brightness 0 … 9."""
    row, column = np.mgrid[:n, :n] - (n - 1) / 2
    disc = np.hypot(row, column) < n * 0.48
    shadow = np.hypot(row + 0.6, column - n * 0.28) < n * 0.42
    return np.asarray(np.where(disc & ~shadow, 9 - (abs(row) + abs(column)) / 2, disc)).round()


def show(console: Console | None = None) -> None:
    """Print the tour; seconds, not minutes."""
    out = console or Console()
    out.rule("[bold]Lunette[/bold] · a tour")
    x = crescent()
    op = ln.MaxPool((3, 3), stride=2, padding=1)
    # The specification answers here: on so small an image it needs less time than a compiler.
    y, indices = ln.spec.forward_with_indices(op, x)
    winners = np.zeros(x.size, bool)
    winners[indices[indices >= 0]] = True
    winners = winners.reshape(x.shape)

    out.print("\nAn op is a value: what it reads and how it reduces. It holds no array.")
    out.print(f"  [cyan]op = ln.{op!r}[/cyan]")
    out.print(f"  op.out_shape({x.shape}) → {op.out_shape(x.shape)}\n")
    gradient = ln.spec.vjp(op, x, np.ones_like(y))
    out.print(
        Columns(
            [
                Panel(_picture(x, winners), title="x, winners marked", expand=False),
                Panel(_picture(y), title="op(x)", expand=False),
                Panel(_picture(gradient, gradient > 0), title="op.vjp(x, ones)", expand=False),
            ],
            padding=(0, 2),
        )
    )
    out.print(
        "A cell that wins in several windows collects the gradient of each. Of equal\n"
        "cells the first in row-major order wins; 'all' and 'split' are the other rules.\n"
    )

    out.print("[bold]The same op over exact fractions[/bold] (a third of the image, its mean)")
    exact = np.frompyfunc(lambda v: Fraction(int(v), 3), 1, 1)(x)
    mean = ln.avg_pool(exact, (4, 4))
    out.print(f"  [cyan]ln.avg_pool(x / 3, (4, 4))[/cyan] → {_row(mean)}")
    out.print(
        f"  in float64                 → {_row(ln.avg_pool(x / 3, (4, 4), backend='spec'))}\n"
    )

    out.print("[bold]And over intervals[/bold] (every pixel known to ± 1/2)")
    fuzzy = np.frompyfunc(lambda v: Interval(v - 0.5, v + 0.5), 1, 1)(x)
    hull = ln.max_pool(fuzzy, (4, 4))
    out.print(f"  [cyan]ln.max_pool(x ± ½, (4, 4))[/cyan] → {_row(hull)}")
    try:
        ln.max_pool(fuzzy, (4, 4), return_indices=True)
    except ln.spec.Undecided as undecided:
        out.print(f"  Its winners: [yellow]{undecided}[/yellow]")
    out.print()
    out.print(Panel(_next_steps(), title="what next", expand=False))


def _picture(image: Array, marked: Array | None = None) -> Text:
    """A grid of digits on grey; marked cells stand in angle brackets, so that no colour is needed."""
    text, scale = Text(), max(image.max(), 1)
    for r, row in enumerate(image):
        for c, value in enumerate(row):
            grey = int(236 + 19 * value / scale) if value > 0 else 234
            hit = marked is not None and marked[r, c]
            ink = "bold red" if hit else ("black" if grey > 245 else "white")
            cell = f"‹{value:.0f}›" if hit else f" {value:.0f} "
            text.append(cell, style=f"{ink} on color({grey})")
        text.append("\n")
    text.rstrip()
    return text


def _row(values: Array) -> str:
    def one(v: Any) -> str:
        if isinstance(v, Interval):
            return f"[{v.lo:g}, {v.hi:g}]"
        return f"{v:.8f}" if isinstance(v, float) else str(v)

    return "  ".join(one(v) for v in values.flat).replace("[", r"\[")


def _next_steps() -> Group:
    return Group(
        Text("MaxPool AvgPool SmoothMaxPool Adaptive* Global* Conv   any number of axes"),
        Text("op(x)   op.jvp(x, dx)   op.vjp(x, gy)   op.out_shape(shape)"),
        Text("ln.Tape                        gradients of networks, exact or fast"),
        Text("lunette check torch            does an implementation mean what it says?"),
        Text("lunette pyramid IN OUT         volumes larger than memory"),
        Text("help(ln.MaxPool)               what an op takes, with an example"),
        Text("https://lunette-ops.github.io/lunette   tutorials, and what every op means"),
    )
