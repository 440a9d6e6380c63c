"""Branch and bound: whether rows over an output stay above 0 on a box, decided by cutting it.

Where bounds leave a row open, one number is cut in two. With few inputs that is the widest of them.
Otherwise it is the highest cell of the window that is most open, cut where it begins to win for sure:
at the best low end of the others, which for a relu is its sign. Each input has its number on one
side or on the other, so a row is proved when it is proved on every part.
"""

from __future__ import annotations

import heapq
import itertools
from typing import Any, NamedTuple

import numpy as np

from lunette.arguments import size
from lunette.bounds.attack import attack
from lunette.bounds.box import Array, Box
from lunette.bounds.deployed import Deployment
from lunette.bounds.network import Input, Network, network_of
from lunette.bounds.outputs import FLOAT32, least_of, row_array
from lunette.bounds.pull import Cut, Empty, Enclosure
from lunette.bounds.tighten import enclose
from lunette.bounds.windows import Maximum

__all__ = ["Verdict", "decide"]


class Verdict(NamedTuple):
    """What became of rows: `"proved"`, `"refuted"` or `"open"`.

    `least` is a number no row falls below, where that is known; `point` a counterexample, leaf by
    leaf, with a row that is not above 0 there in float64; `parts` how many boxes were bounded.
    """

    status: str
    least: float
    point: dict[Any, Array] | None
    parts: int


def decide(
    tape: Any,
    output: Any,
    boxes: dict[Any, Box],
    rows: Any,
    *,
    deployment: Deployment | None = FLOAT32,
    parts: int = 200,
    tries: int = 8,
) -> Verdict:
    """Whether `Σ row·output > 0` for all rows on all of the box.

    First a search for a counterexample, then bounds, then cuts: at most `parts` boxes are bounded.
    """
    size(parts, "parts", 1)
    size(tries, "tries", 2)
    network = network_of(tape, output, boxes, deployment)
    matrix = row_array(rows, network.steps[-1].shape)
    for n, row in enumerate(matrix):
        value, point = attack(network, row, tries=tries, seed=n)
        if value <= 0:
            keys = {
                network.nodes[tape._number(key)]: key
                for key in boxes
                if tape._number(key) in network.nodes
            }
            return Verdict("refuted", value, {keys[k]: p for k, p in point.items()}, 0)
    return _search(network, matrix, deployment, parts)


def _search(network: Network, rows: Array, deployment: Deployment | None, parts: int) -> Verdict:
    order = itertools.count()
    waiting: list[Any] = [(-np.inf, next(order), ())]
    proved, used = np.inf, 0
    while waiting:
        floor, _, cuts = heapq.heappop(waiting)
        if used >= parts:
            return Verdict("open", float(min(floor, proved)), None, used)
        used += 1
        enclosure = _enclosed(network, deployment, cuts)
        if enclosure is None:  # nothing is left of this part
            continue
        least = least_of(enclosure, rows, "tight")
        if least.min() > 0:
            proved = min(proved, float(least.min()))
            continue
        for cut in _cuts(enclosure):
            heapq.heappush(waiting, (float(least.min()), next(order), (*cuts, cut)))
    return Verdict("proved", float(proved), None, used)


def _enclosed(
    network: Network, deployment: Deployment | None, cuts: tuple[Cut, ...]
) -> Enclosure | None:
    """Bounds on the part of the box that the cuts leave; None where it is empty."""
    inputs = {k: (box.lo.copy(), box.hi.copy()) for k, box in network.boxes.items()}
    inner: dict[int, list[Cut]] = {}
    for cut in cuts:
        if cut.step not in inputs:
            inner.setdefault(cut.step, []).append(cut)
            continue
        lo, hi = (side.reshape(-1) for side in inputs[cut.step])
        lo[cut.cells] = np.maximum(lo[cut.cells], cut.lo)
        hi[cut.cells] = np.minimum(hi[cut.cells], cut.hi)
        if (lo > hi).any():
            return None
    try:
        return enclose(network.boxed(inputs), deployment, "crown", cuts=inner)
    except Empty:
        return None


def _cuts(enclosure: Enclosure) -> list[Cut]:
    """Two parts that cover what the enclosure covers."""
    network = enclosure.network
    widths = {k: enclosure.hi[k] - enclosure.lo[k] for k in network.inputs}
    inputs = sum(int((w > 0).sum()) for w in widths.values())
    chosen = None if inputs <= 8 else _widest_window(enclosure)
    if chosen is None:
        k = max(widths, key=lambda n: widths[n].max(initial=0.0))
        cell = int(widths[k].reshape(-1).argmax())
        lo, hi = (side[k].reshape(-1)[cell] for side in (enclosure.lo, enclosure.hi))
        middle = (lo + hi) / 2
        return [_part(k, [cell], [lo], [middle]), _part(k, [cell], [middle], [hi])]
    return chosen


def _part(k: int, cells: Any, lo: Any, hi: Any) -> Cut:
    return Cut(k, np.asarray(cells), np.asarray(lo, float), np.asarray(hi, float))


def _widest_window(enclosure: Enclosure) -> list[Cut] | None:
    """The window whose upper function stands highest above its lower one, cut by who wins."""
    best, found = 0.0, None
    for k, step in enumerate(enclosure.network.steps):
        if not isinstance(step, Maximum) or isinstance(
            enclosure.network.steps[step.parents[0]], Input
        ):
            continue
        hull = enclosure.hulls[k]
        gap = np.where(hull.undecided(), hull.sorted[:, 0], 0.0)
        window = int(gap.argmax()) if len(gap) else 0
        if len(gap) and gap[window] > best:
            best, found = float(gap[window]), (step, hull, window)
    if found is None:
        return None
    step, hull, window = found
    p, cells = step.parents[0], step.table[window]
    winner = int(hull.excess[window].argmax())
    lo, hi = hull.lo[window, winner], hull.hi[window, winner]
    # The highest cell lies below the best of the others' low ends, or above: a cut of one cell.
    middle = (
        (max(hull.least[window], lo) + hi) / 2 if hull.least[window] <= lo else hull.least[window]
    )
    cell = [int(cells[winner])]
    return [_part(p, cell, [lo], [middle]), _part(p, cell, [middle], [hi])]
