"""Draw the pictures of the guide to pyramids: labels under a mean and under a mode, and how levels are cut."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import lunette as ln

HERE = Path(__file__).parent
INK, PALE = "#333", "#bbb"
COLOURS = ["#ffffff", "#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee"]
"""Of the labels 0 to 5; a number that no thing has is drawn in black."""


def svg(width: int, height: int, body: list[str]) -> str:
    """A picture of shapes, on a ground of its own so that dark pages can be read."""
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="13">'
    ground = f'<rect width="{width}" height="{height}" fill="#fff"/>'
    return "\n".join([head, ground, *body, "</svg>"]) + "\n"


def text(x: float, y: float, words: str) -> str:
    return f'<text x="{x}" y="{y}" fill="{INK}">{words}</text>'


def labels() -> np.ndarray:
    """Five discs on a ground of zeros, with numbers that have nothing to do with where they are."""
    found = np.zeros((32, 32), np.uint16)
    y, x = np.mgrid[:32, :32]
    discs = [(8, 8, 7, 10), (9, 23, 6, 400), (21, 8, 7, 70), (24, 22, 7, 20), (16, 16, 4, 900)]
    for row, column, radius, number in discs:
        found[(y - row) ** 2 + (x - column) ** 2 <= radius**2] = number
    return found


def panel(image: np.ndarray, numbers: list[int], left: int, top: int, side: int) -> list[str]:
    """Cells in the colours of their numbers, row by row in runs."""
    step = side / image.shape[0]
    body = []
    for i, row in enumerate(image.tolist()):
        start = 0
        for j in range(1, len(row) + 1):
            if j == len(row) or row[j] != row[start]:
                number = row[start]
                colour = COLOURS[numbers.index(number)] if number in numbers else "#000"
                if colour != COLOURS[0]:
                    body.append(
                        f'<rect x="{left + start * step:g}" y="{top + i * step:g}" '
                        f'width="{(j - start) * step:g}" height="{step:g}" fill="{colour}"/>'
                    )
                start = j
    frame = (
        f'<rect x="{left}" y="{top}" width="{side}" height="{side}" fill="none" stroke="{PALE}"/>'
    )
    return [*body, frame]


def draw_labels() -> str:
    """Level 0, and level 2 by the mean and by the mode."""
    full = labels()
    numbers = np.unique(full).tolist()
    body = []
    for k, (name, image) in enumerate(
        [
            ("level 0", full),
            ("level 2, mean", ln.pyramid(full, levels=2)[2]),
            ("level 2, mode", ln.pyramid(full, levels=2, op="mode")[2]),
        ]
    ):
        wrong = int((~np.isin(image, numbers)).sum())
        body += panel(image, numbers, 10 + 230 * k, 30, 210)
        body.append(text(10 + 230 * k, 20, name))
        words = f"{wrong} of {image.size} cells hold a number of nothing"
        body.append(f'<text x="{10 + 230 * k}" y="258" fill="{INK}" font-size="11">{words}</text>')
    return svg(700, 270, body)


def draw_levels() -> str:
    """Cells of 40 × 10 × 10 nm, level by level, seen along y: they become cubes, and then stay so."""
    body = [text(10, 20, "one cell, seen along y: z upwards, x to the right")]
    z, x, left = 40, 10, 20
    for level in range(5):
        body.append(
            f'<rect x="{left}" y="{230 - z}" width="{x}" height="{z}" fill="{COLOURS[5]}" '
            f'stroke="{INK}"/>'
        )
        body.append(text(left, 248, f"{level}"))
        body.append(f'<text x="{left}" y="264" fill="{INK}" font-size="11">{z} × {x} nm</text>')
        left += max(x, 60) + 40
        both = z < 2**0.5 * x
        z, x = (2 * z if both else z), 2 * x
    return svg(700, 275, body)


if __name__ == "__main__":
    (HERE / "labels-levels.svg").write_text(draw_labels(), encoding="utf-8")
    (HERE / "cell-levels.svg").write_text(draw_levels(), encoding="utf-8")
