"""A finding as a picture: the input with its padding and the window, what was expected, what came."""

from __future__ import annotations

import html
from typing import Any

import numpy as np

from lunette.check.calls import Array, Call
from lunette.check.findings import Finding
from lunette.ops.pooling import Pooling
from lunette.regions import Sliding

__all__ = ["picture"]

WIDE, HIGH = 46, 26
MOST = 16
"""Cells drawn along an axis; the rest is left out."""


def picture(finding: Finding) -> str:
    """Inline SVG."""
    call = finding.call
    blocks: list[tuple[str, Array, Any, Any, Array | None]] = []
    window, margins = _window(finding)
    image = _plane(call.x, finding, call.x.ndim - min(2, call.x.ndim))
    blocks.append(("input, padding hatched, window framed", image, window, margins, None))
    for outcome, actual in zip(finding.expected, finding.actual, strict=False):
        same = outcome.values.shape == actual.shape
        differs = outcome.differs(actual) if same and actual.dtype == outcome.values.dtype else None
        planes = [_plane(a, finding, 0) for a in (outcome.values, actual)]
        marks = None if differs is None else _plane(differs, finding, 0)
        blocks.append((f"expected {outcome.name}", planes[0], None, None, marks))
        blocks.append((f"actual {outcome.name}", planes[1], None, None, marks))
    parts, y, width = [], 8, 0
    for title, plane, frame, pads, marks in blocks:
        svg, w, h = _grid(title, plane, frame, pads, marks, y)
        parts.append(svg)
        y += h
        width = max(width, w)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width + 16}" height="{y + 4}" '
        f'font-family="monospace" font-size="11">{_HATCH}{"".join(parts)}</svg>'
    )


_HATCH = (
    '<defs><pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" '
    'patternTransform="rotate(45)"><line x1="0" y1="0" x2="0" y2="6" stroke="#bbb"/>'
    "</pattern></defs>"
)


def _plane(a: Array, finding: Finding, _: int) -> Array:
    """Two axes of an array: the image of the first cell that differs."""
    place = finding.verdict.place or ()
    while a.ndim > 2:
        first = place[0] if place and place[0] < a.shape[0] else 0
        if a.shape[0] == 0:
            return np.zeros((0, 0), a.dtype)
        a, place = a[first], place[1:]
    return a.reshape(1, -1) if a.ndim < 2 else a


def _window(finding: Finding) -> tuple[Any, Any]:
    """(positions per axis of the window at fault, padding per axis) on the drawn axes."""
    call, place = finding.call, finding.verdict.place
    if call.bad or call.op == "unpool":
        return None, None
    op = call.lunette_op
    regions = getattr(op, "regions", ())
    margins = []
    for region, n in zip(regions, call.pooled, strict=True):
        margins.append(region.margins(n) if isinstance(region, Sliding) else (0, 0))
    if place is None or call.verb == "vjp" or not isinstance(op, Pooling) or not op.keepdims:
        return None, margins[-2:]
    windows = [
        region.window(n, i).positions
        for region, n, i in zip(regions, call.pooled, place[len(place) - call.rank :], strict=True)
    ]
    return windows[-2:], margins[-2:]


def _grid(
    title: str, plane: Array, window: Any, margins: Any, marks: Array | None, y: int
) -> tuple[str, int, int]:
    if not plane.size:
        text = html.escape(f"{title}: empty, of shape {plane.shape}")
        return f'<text x="8" y="{y + 12}" fill="#444">{text}</text>', 7 * len(text), 26
    rows, columns = min(plane.shape[0], MOST), min(plane.shape[1], MOST)
    (top, bottom), (left, right) = (0, 0), (0, 0)
    if margins:
        left, right = (min(m, 4) for m in margins[-1])
        if len(margins) == 2:
            top, bottom = (min(m, 4) for m in margins[0])
    parts = [f'<text x="8" y="{y + 12}" fill="#444">{html.escape(title)}</text>']
    y += 18
    for r in range(-top, rows + bottom):
        for c in range(-left, columns + right):
            x0, y0 = 8 + (c + left) * WIDE, y + (r + top) * HIGH
            inside = 0 <= r < rows and 0 <= c < columns
            fill = "#fff" if inside else "url(#hatch)"
            if inside and marks is not None and marks[r, c]:
                fill = "#ffb3b3"
            if inside and _in_window(window, r, c):
                fill = "#ffe9a8"
            parts.append(
                f'<rect x="{x0}" y="{y0}" width="{WIDE}" height="{HIGH}" fill="{fill}" stroke="#999"/>'
            )
            if inside:
                text = html.escape(_text(plane[r, c]))
                parts.append(f'<text x="{x0 + 4}" y="{y0 + 17}">{text}</text>')
    width, height = (columns + left + right) * WIDE, (rows + top + bottom) * HIGH + 26
    if plane.shape[0] > MOST or plane.shape[1] > MOST:
        parts.append(f'<text x="{width + 12}" y="{y + 12}">…</text>')
    return "".join(parts), max(width, 7 * len(title)), height  # captions are not cut off


def _in_window(window: Any, r: int, c: int) -> bool:
    if not window:
        return False
    return c in window[-1] and (len(window) < 2 or r in window[0])


def _text(value: Any) -> str:
    if isinstance(value, (bool, np.bool_)):
        return str(bool(value))
    if np.asarray(value).dtype.kind in "iu":
        return str(int(value))
    return f"{float(value):.4g}"


def call_text(call: Call) -> str:
    """The call in a line."""
    arguments = ", ".join(f"{k}={v}" for k, v in call.arguments.items() if v is not None)
    return f"{call.op}({arguments}) on {call.dtype}{list(call.x.shape)}"
