"""Draws a max of two cells and the linear functions around it: `python examples/window_hull.py hull.svg`.

x₁ lies in [−1, 2] and x₂ in [0, 1]. Shown over x₁, with x₂ in the middle of its range: the max, two
upper functions (λ = 0 and λ = the second largest excess) and the lower functions of two shares.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from lunette.bounds.relax import Hull
from lunette.bounds.windows import Maximum

LO, HI = np.array([-1.0, 0.0]), np.array([2.0, 1.0])
WIDTH, HEIGHT, MARGIN = 560, 360, 40
COLORS = {
    "max": "#222222",
    "λ = 0": "#c0392b",
    "λ = 1": "#e67e22",
    "x₁": "#2471a3",
    "x₂": "#17a589",
}


def lines() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Name → points over x₁, with x₂ = 1/2."""
    step = Maximum((0,), (1,), "a window", (2,), np.array([[0, 1]]), np.array([False]))
    hull = Hull(step, LO, HI)
    x = np.array([LO[0], 0.5, HI[0]])
    found = {"max": (x, np.maximum(x, 0.5))}
    for lam in (0.0, float(hull.sorted[0, 1])):
        chosen = hull.relaxation(np.array([lam]), np.array([[1.0, 0.0]]))
        slope, offset = chosen.high_slope[0], chosen.high_offset[0]
        found[f"λ = {lam:g}"] = (x, slope[0] * x + slope[1] * 0.5 + offset)
    return found | {"x₁": (x, x), "x₂": (x, np.full(3, 0.5))}


def svg() -> str:
    """The picture."""

    def place(x: float, y: float) -> str:
        across = MARGIN + (x + 1) / 3 * (WIDTH - 2 * MARGIN)
        down = HEIGHT - MARGIN - (y + 1) / 3.5 * (HEIGHT - 2 * MARGIN)
        return f"{across:.1f},{down:.1f}"

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="13">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<polyline points="{place(-1, 0)} {place(2, 0)}" stroke="#bbbbbb"/>',
    ]
    for row, (name, (xs, ys)) in enumerate(lines().items()):
        color, thick = COLORS[name], 3 if name == "max" else 1.6
        points = " ".join(place(float(x), float(y)) for x, y in zip(xs, ys, strict=True))
        parts.append(
            f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="{thick}"/>'
        )
        side = "above" if name.startswith("λ") else "below" if name != "max" else "itself"
        label = f"{name}: {side}" if name != "max" else "max(x₁, x₂), x₂ = ½"
        parts.append(
            f'<text x="{MARGIN + 8}" y="{MARGIN - 12 + 17 * row}" fill="{color}">{label}</text>'
        )
    return "\n".join([*parts, "</svg>", ""])


def main(arguments: list[str] | None = None) -> None:
    """Write the picture where the first argument says."""
    target = (arguments if arguments is not None else sys.argv[1:]) or ["window-hull.svg"]
    Path(target[0]).write_text(svg(), encoding="utf-8")


if __name__ == "__main__":
    main()
