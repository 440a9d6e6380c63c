"""Drawings of pooling ops as SVG: the input with its padding, a window, the cells that win, the gradient, the output.

A picture shows the last two pooled axes (one, of an op with one). Values, winners and gradients are the
specification's own.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from lunette.inputs import array
from lunette.regions import Region, Sliding

if TYPE_CHECKING:
    from lunette.ops.pooling import Pooling

__all__ = ["draw", "example"]

CELL, GAP, TOP = 36, 60, 34
"""Pixels: the side of a cell, what is between input and output, and the room for headings."""

SECONDS = 0.9
"""How long a moving window stays at an output."""

INK, PAPER, LINE, WINDOW, WIN, HEAT = (
    "#1b2430",
    "#ffffff",
    "#c3ccd6",
    "#0b63ce",
    "#d9480f",
    "#f59f00",
)

MOST = 12
"""Cells drawn along an axis; an op that needs more is written, not drawn."""


def example(op: Pooling) -> np.ndarray[Any, Any]:
    """A small input of whole numbers for a drawing: the shortest with three outputs an axis, where there is one.

    Parameters
    ----------
    op : Pooling
        What is to be drawn.

    Returns
    -------
    numpy.ndarray
        One or two axes of at most 12 cells.

    Raises
    ------
    ValueError
        For windows that are too long to draw.

    Examples
    --------
    >>> import lunette as ln
    >>> from lunette.drawing import example
    >>> example(ln.MaxPool((2, 2))).shape
    (6, 6)
    """
    lengths = [_length(region) for region in op.regions[-2:]]
    count = int(np.prod(lengths))
    numbers = np.random.default_rng(7).permutation(count) % 10
    integers = type(op.reduction).__name__ in ("Mode", "RoundedMean")
    return numbers.reshape(lengths).astype(np.int64 if integers else np.float64)


def _length(region: Region) -> int:
    for n in range(1, MOST + 1):
        try:
            outputs = region.out_length(n)
        except ValueError:
            continue
        wide = isinstance(region, Sliding) and region.kernel > 1
        if outputs >= 3 and (n >= 5 or not wide):
            return n if wide else max(n, 6)
        if not isinstance(region, Sliding) and n >= 6:
            return n
    raise ValueError(f"{region!r}: too long to draw; expected windows within {MOST} cells")


def draw(
    op: Pooling, x: Any = None, output: tuple[int, ...] | None = None, *, moving: bool = False
) -> str:
    """An op at work on a small array, as SVG.

    Parameters
    ----------
    op : Pooling
        Any pooling op; of more than two axes, the last two are drawn.
    x : array_like, optional
        One or two axes of at most 12 cells, as many as are drawn. Default: an array made for the op.
    output : tuple of int, optional
        The output whose window is framed. Default: the one in the middle.
    moving : bool, default False
        Let the window slide from output to output, while the gradient fills.

    Returns
    -------
    str
        An SVG element that stands alone.

    Examples
    --------
    >>> import lunette as ln
    >>> from lunette.drawing import draw
    >>> draw(ln.MaxPool((2, 2)))[:4]
    '<svg'
    """
    return _Drawing(op, example(op) if x is None else array(x, "x"), output).svg(moving)


class _Drawing:
    """The numbers of a drawing, and its parts."""

    def __init__(self, op: Pooling, x: np.ndarray[Any, Any], output: Any) -> None:
        from lunette import spec
        from lunette.ops.pooling import Pool

        self.op, self.x = op, x
        self.regions = op.regions[-2:]
        if x.ndim != len(self.regions) or max(x.shape) > MOST or not x.size:
            raise ValueError(
                f"x has shape {x.shape}; expected {len(self.regions)} axes of 1 to {MOST} cells"
            )
        flat = Pool(self.regions, op.reduction)
        self.y = spec.forward(flat, x)
        self.places = [tuple(map(int, p)) for p in np.ndindex(*self.y.shape)]
        middle = tuple(n // 2 for n in self.y.shape)
        self.output = middle if output is None else tuple(output)
        self.shares = []
        for place in self.places:  # what each output sends back
            one = np.zeros(self.y.shape)
            one[place] = 1
            integers = x.dtype.kind in "iub"
            self.shares.append(
                np.zeros(x.shape) if integers else spec.vjp(flat, x.astype(float), one)
            )
        self.margins = [
            r.margins(n) if isinstance(r, Sliding) else (0, 0)
            for r, n in zip(self.regions, x.shape, strict=True)
        ]

    # -- places on the paper --

    def _at(self, index: tuple[int, ...]) -> tuple[float, float]:
        """The upper left corner of an input cell; of padding, too."""
        full = [i + before for i, (before, _) in zip(index, self.margins, strict=True)]
        row, column = (0, full[0]) if len(full) == 1 else (full[0], full[1])
        return 10 + column * CELL, TOP + row * CELL

    def _of_output(self, index: tuple[int, ...]) -> tuple[float, float]:
        row, column = (0, index[0]) if len(index) == 1 else index
        return self._wide() + GAP + column * CELL, TOP + row * CELL

    def _wide(self) -> float:
        return 10.0 + CELL * (int(self.x.shape[-1]) + sum(self.margins[-1]))

    def _frame(self, place: tuple[int, ...]) -> tuple[float, float, float, float]:
        """The box around the cells of a window: x, y, width, height."""
        first, last = [], []
        for region, n, i, (before, after) in zip(
            self.regions, self.x.shape, place, self.margins, strict=True
        ):
            if isinstance(region, Sliding):
                start = i * (region.stride or 1) - before
                end = min(start + region.extent, n + after)
            else:
                window = region.window(n, i)
                start, end = window.start, window.stop
            first.append(start)
            last.append(end - 1)
        (x0, y0), (x1, y1) = self._at(tuple(first)), self._at(tuple(last))
        return x0, y0, x1 - x0 + CELL, y1 - y0 + CELL

    # -- parts --

    def svg(self, moving: bool) -> str:
        rows = self.x.shape[0] + sum(self.margins[0]) if self.x.ndim == 2 else 1
        out_rows = self.y.shape[0] if self.y.ndim == 2 else 1
        width = self._wide() + GAP + max(CELL * self.y.shape[-1], 50) + 10
        width = max(width, 20 + 7 * len(repr(self.op)))
        height = TOP + CELL * max(rows, out_rows) + 30
        title = escape(f"{self.op!r} on {' × '.join(map(str, self.x.shape))} cells")
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
            f'height="{height:g}" role="img" font-family="system-ui,sans-serif" font-size="14">',
            f"<title>{title}</title>",
            f'<rect width="{width:g}" height="{height:g}" rx="6" fill="{PAPER}"/>',
            '<defs><pattern id="p" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
            f'<rect width="6" height="6" fill="#f4f6f8"/><path d="M0 0V6" stroke="{LINE}"/></pattern></defs>',
            _text(10, 20, "input", "start", INK),
            _text(self._wide() + GAP, 20, "output", "start", INK),
        ]
        parts += self._cells(moving)
        parts += self._outputs(moving)
        parts += self._window(moving)
        parts.append(_text(10, height - 10, repr(self.op), "start", "#52606d", 12))
        return "".join(parts) + "</svg>"

    def _cells(self, moving: bool) -> list[str]:
        parts = []
        total = np.cumsum(self.shares, axis=0)
        top = float(np.abs(total).max()) or 1.0
        lengths = [n + sum(m) for n, m in zip(self.x.shape, self.margins, strict=True)]
        for raw in np.ndindex(*lengths):
            index = tuple(int(i) - m[0] for i, m in zip(raw, self.margins, strict=True))
            x, y = self._at(index)
            inside = all(0 <= i < n for i, n in zip(index, self.x.shape, strict=True))
            fill = PAPER if inside else "url(#p)"
            parts.append(_box(x, y, CELL, CELL, f'fill="{fill}" stroke="{LINE}"'))
            if not inside:
                continue
            amounts = [0.75 * abs(float(t[index])) / top for t in total]
            if amounts[-1]:
                shown = self._animated("opacity", [f"{a:.3g}" for a in amounts]) if moving else ""
                box = f'fill="{HEAT}" opacity="{amounts[-1]:.3g}"'
                parts.append(_box(x, y, CELL, CELL, box, shown))
            parts.append(_text(x + CELL / 2, y + CELL / 2 + 5, _number(self.x[index])))
        return parts

    def _outputs(self, moving: bool) -> list[str]:
        parts = []
        # The framed one last, so that no other is drawn over its frame.
        for number, place in sorted(enumerate(self.places), key=lambda p: p[1] == self.output):
            x, y = self._of_output(place)
            chosen = place == self.output and not moving
            style = f'fill="{PAPER}" stroke="{WINDOW if chosen else LINE}" stroke-width="{3 if chosen else 1}"'
            parts.append(_box(x, y, CELL, CELL, style))
            shown = ""
            if moving:
                shown = self._animated(
                    "opacity", ["0"] * number + ["1"] * (len(self.places) - number)
                )
            text = _text(x + CELL / 2, y + CELL / 2 + 5, _number(self.y[place]), inside=shown)
            parts.append(text)
        return parts

    def _window(self, moving: bool) -> list[str]:
        frames = [self._frame(place) for place in self.places]
        now = self.places.index(self.output)
        x, y, w, h = frames[0 if moving else now]
        inside = ""
        if moving:
            for name, values in zip(
                ("x", "y", "width", "height"), zip(*frames, strict=True), strict=True
            ):
                inside += self._animated(name, [f"{v:g}" for v in values])
        style = f'fill="none" stroke="{WINDOW}" stroke-width="3" rx="3"'
        parts = [_box(x, y, w, h, style, inside)]
        for number, place in enumerate(self.places):  # the cells that win, or have a share
            if not moving and place != self.output:
                continue
            winners = np.argwhere(self.shares[number] != 0)
            if type(self.op.reduction).__name__ not in ("Max", "Min"):
                continue
            for cell in winners:
                cx, cy = self._at(tuple(map(int, cell)))
                style = f'fill="none" stroke="{WIN}" stroke-width="3" rx="8"'
                shown = ""
                if moving:
                    style += ' opacity="0"'
                    here = ["1" if n == number else "0" for n in range(len(self.places))]
                    shown = self._animated("opacity", here)
                parts.append(_box(cx + 4, cy + 4, CELL - 8, CELL - 8, style, shown))
        return parts

    def _animated(self, name: str, values: list[str]) -> str:
        seconds = SECONDS * len(self.places)
        return (
            f'<animate attributeName="{name}" values="{";".join(values)}" dur="{seconds:g}s" '
            'calcMode="discrete" repeatCount="indefinite"/>'
        )


def _box(x: float, y: float, w: float, h: float, style: str, inside: str = "") -> str:
    return f'<rect x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" {style}>{inside}</rect>'


def _text(
    x: float,
    y: float,
    text: str,
    anchor: str = "middle",
    fill: str = INK,
    size: int = 14,
    inside: str = "",
) -> str:
    return (
        f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" fill="{fill}" font-size="{size}">'
        f"{escape(text)}{inside}</text>"
    )


def _number(value: Any) -> str:
    """A value in few characters."""
    text = f"{float(value):.3g}"
    return text[:5]
