"""A tape's graph as an SVG file: rows by depth, each node near the middle of its neighbours."""

from __future__ import annotations

import os
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from lunette.arguments import shown
from lunette.tape.drawing import FILLS, kind_of_node, labels, op_name

if TYPE_CHECKING:
    from lunette.tape.tape import Node

__all__ = ["svg", "write_svg"]

WIDTH_OF_LETTER, HEIGHT, GAP, ROW = 7.2, 40.0, 22.0, 78.0  # in pixels


class Box:
    """A node's place; or a place, with no node, where a long arrow crosses a row."""

    def __init__(self, number: int | None, row: int, width: float) -> None:
        self.number, self.row, self.width = number, row, width
        self.x = 0.0
        self.sources: list[Box] = []
        self.targets: list[Box] = []

    @property
    def top(self) -> float:
        return self.row * ROW + GAP

    @property
    def middle(self) -> float:
        return self.x + self.width / 2


def write_svg(nodes: list[Node], path: str | os.PathLike[str]) -> None:
    """Write the picture of a tape's nodes."""
    if not isinstance(path, (str, os.PathLike)):
        raise TypeError(f"path={shown(path)}: expected a path")
    if Path(path).suffix.lower() != ".svg":
        raise ValueError(f"path={str(path)!r}: expected a name that ends in .svg")
    Path(path).write_text(svg(nodes), encoding="utf-8")


def svg(nodes: list[Node]) -> str:
    """The picture as text."""
    rows = _rows(nodes)
    _place(rows)
    boxes = [box for row in rows for box in row]
    width = max((box.x + box.width for box in boxes), default=0) + GAP
    height = max((box.top + HEIGHT for box in boxes), default=0) + GAP
    shapes = [_arrow(box, target) for box in boxes for target in box.targets]
    shapes += [_box(box, nodes[box.number]) for box in boxes if box.number is not None]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
            f'viewBox="0 0 {width:.0f} {height:.0f}" font-family="sans-serif">',
            '<rect width="100%" height="100%" fill="white"/>',
            *shapes,
            "</svg>\n",
        ]
    )


# -- the layout --


def _rows(nodes: list[Node]) -> list[list[Box]]:
    """Boxes by row: an op below its operands, a leaf just above the first op that reads it."""
    depth = [0] * len(nodes)
    for number, node in enumerate(nodes):
        depth[number] = 1 + max((depth[p] for p in node.parents), default=-1)
    for number, node in enumerate(nodes):
        if node.rule is None:
            readers = [depth[n] for n, other in enumerate(nodes) if number in other.parents]
            depth[number] = min(readers, default=1) - 1
    rows: list[list[Box]] = [[] for _ in range(max(depth, default=-1) + 1)]
    boxes = []
    for number, node in enumerate(nodes):
        letters = max(map(len, labels(number, node)))
        box = Box(number, depth[number], letters * WIDTH_OF_LETTER + 20)
        boxes.append(box)
        rows[box.row].append(box)
    for number, node in enumerate(nodes):
        for parent in node.parents:
            _connect(boxes[parent], boxes[number], rows)
    return rows


def _connect(source: Box, target: Box, rows: list[list[Box]]) -> None:
    """An arrow, by way of an empty place in every row between."""
    for row in range(source.row + 1, target.row):
        between = Box(None, row, 4)
        rows[row].append(between)
        source.targets.append(between)
        between.sources.append(source)
        source = between
    source.targets.append(target)
    target.sources.append(source)


def _place(rows: list[list[Box]]) -> None:
    """Sweep down and up: order each row by its neighbours' middles, then set it about them."""
    for row in rows:
        _spread(row, [box.middle for box in row])
    for sweep in range(8):
        downward = sweep % 2 == 0
        for row in rows if downward else reversed(rows):
            wishes = [_wish(box, downward) for box in row]
            order = sorted(range(len(row)), key=wishes.__getitem__)
            row[:] = [row[i] for i in order]
            _spread(row, [wishes[i] for i in order])
    left = min((box.x for row in rows for box in row), default=0)
    for row in rows:
        for box in row:
            box.x += GAP - left


def _wish(box: Box, downward: bool) -> float:
    """The middle that a box would choose: that of its neighbours in the row just placed."""
    neighbours = (box.sources if downward else box.targets) or box.targets or box.sources
    if not neighbours:
        return box.middle
    return sum(other.middle for other in neighbours) / len(neighbours)


def _spread(row: list[Box], wishes: list[float]) -> None:
    """Boxes in order without overlap, the row as a whole as near to the wishes as it can be."""
    x = 0.0
    for i, (box, wish) in enumerate(zip(row, wishes, strict=True)):
        x = wish - box.width / 2 if i == 0 else max(x, wish - box.width / 2)
        box.x = x
        x += box.width + GAP
    shift = sum(w - box.middle for box, w in zip(row, wishes, strict=True)) / max(len(row), 1)
    for box in row:
        box.x += shift


# -- the shapes --


def _arrow(source: Box, target: Box) -> str:
    start = source.top + (HEIGHT if source.number is not None else HEIGHT / 2)
    end = target.top if target.number is not None else target.top + HEIGHT / 2
    bend = (end - start) / 2
    path = (
        f"M{source.middle:.1f},{start:.1f} C{source.middle:.1f},{start + bend:.1f} "
        f"{target.middle:.1f},{end - bend:.1f} {target.middle:.1f},{end:.1f}"
    )
    line = f'<path d="{path}" fill="none" stroke="#888" stroke-width="1.3"/>'
    if target.number is None:
        return line
    x, y = target.middle, end
    head = f'<path d="M{x - 4:.1f},{y - 7:.1f} L{x:.1f},{y:.1f} L{x + 4:.1f},{y - 7:.1f} Z" fill="#888"/>'
    return line + head


def _box(box: Box, node: Node) -> str:
    assert box.number is not None
    title, detail = labels(box.number, node)
    fill = FILLS[kind_of_node(node)]
    text = f'x="{box.middle:.1f}" text-anchor="middle"'
    return (
        f"<g><title>{escape(op_name(node))}</title>"
        f'<rect x="{box.x:.1f}" y="{box.top:.1f}" width="{box.width:.1f}" height="{HEIGHT:.0f}" '
        f'rx="6" fill="{fill}" stroke="#666"/>'
        f'<text {text} y="{box.top + 17:.1f}" font-size="12" font-weight="bold">{escape(title)}</text>'
        f'<text {text} y="{box.top + 32:.1f}" font-size="11" fill="#444">{escape(detail)}</text></g>'
    )
