"""Draws the picture of the front page: `python docs/draw_window.py` writes docs/window.svg anew."""

from pathlib import Path

import numpy as np

import lunette as ln
from lunette.drawing import draw

CELLS = np.array(
    [[3, 1, 4, 1, 5], [9, 2, 6, 5, 3], [5, 8, 9, 7, 9], [3, 2, 3, 8, 4], [6, 2, 6, 4, 3]], float
)


def picture() -> str:
    """A 3×3 window slides over five by five cells; each winner is ringed, and the gradient fills its cells."""
    return draw(ln.MaxPool((3, 3), stride=2, padding=1), CELLS, moving=True) + "\n"


if __name__ == "__main__":
    (Path(__file__).parent / "window.svg").write_text(picture(), encoding="utf-8")
