"""Branch and bound: whether rows over an output stay above 0 on a box, decided by cutting it.

Where bounds leave a row open, one number is cut in two. With few inputs that is the widest of them.
Otherwise it is the highest cell of the window that costs the row's bound most, cut where it begins to
win for sure: at the best low end of the others, which for a relu is its sign. Each input has its number on one
side or on the other, so a row is proved when it is proved on every part.
"""

from __future__ import annotations

import heapq
import itertools
import math
from typing import Any, NamedTuple

import numpy as np

from lunette.arguments import size
from lunette.bounds.attack import attack
from lunette.bounds.box import Array, Box
from lunette.bounds.deployed import Deployment
from lunette.bounds.network import Input, Network
from lunette.bounds.outputs import FLOAT32, least_of, row_array
from lunette.bounds.pull import Cut, Empty, Enclosure, lower
from lunette.bounds.reading import network_of
from lunette.bounds.tighten import enclose
from lunette.bounds.windows import Jump, Maximum, Windowed

__all__ = ["Verdict", "decide", "enclosed", "most_open"]


class Verdict(NamedTuple):
    """What became of rows: `"proved"`, `"refuted"` or `"open"`.

    `least` is a number no row falls below, where that is known; `point` a counterexample, leaf by
    leaf, with a row that is not above 0 there in float64; `parts` how many boxes were bounded.

    Parameters
    ----------
    status : {"proved", "refuted", "open"}
        What became of them.
    least : float
        A number that no row falls below.
    point : dict of Id to numpy.ndarray, or None
        A counterexample.
    parts : int
        How many boxes were bounded.

    Examples
    --------
    >>> from lunette.bounds import Verdict
    >>> Verdict("proved", 0.25, None, 1).status
    'proved'
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

    Parameters
    ----------
    tape : Tape
        The network.
    output : Id
        The node.
    boxes : dict of Id to Box
        Where leaves lie.
    rows : array_like
        Coefficients, `(rows, *output.shape)`.
    deployment : Deployment or None
        The arithmetic of the network that will run. Default: float32.
    parts : int, default 200
        How many boxes are bounded, at most.
    tries : int, default 8
        How many searches for a counterexample start.

    Returns
    -------
    Verdict
        "proved", "refuted" or "open".

    Raises
    ------
    ValueError, TypeError
        For rows of another shape, an op that has no bounds, or a box that does not fit its leaf.

    Examples
    --------
    >>> import numpy as np
    >>> import lunette as ln
    >>> tape = ln.Tape()
    >>> x = tape.leaf(np.zeros((1, 2), np.float32), "x")
    >>> box = ln.Box([[1.0, 0.0]], [[3.0, 0.5]])
    >>> ln.bounds.decide(tape, tape.relu(x), {x: box}, [[[1.0, -1.0]]]).status
    'proved'
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
        enclosure = enclosed(network, deployment, cuts)
        if enclosure is None:  # nothing is left of this part
            continue
        least = least_of(enclosure, rows, "tight")
        if least.min() > 0:
            proved = min(proved, float(least.min()))
            continue
        for cut in _cuts(enclosure, rows[int(least.argmin())]):
            heapq.heappush(waiting, (float(least.min()), next(order), (*cuts, cut)))
    return Verdict("proved", float(proved), None, used)


def enclosed(
    network: Network,
    deployment: Deployment | None,
    cuts: tuple[Cut, ...],
    until: float = math.inf,
    known: Enclosure | None = None,
    inner: bool = True,
) -> Enclosure | None:
    """Bounds on the part of the box that the cuts leave; None where it is empty."""
    inputs = {k: (box.lo.copy(), box.hi.copy()) for k, box in network.boxes.items()}
    inside: dict[int, list[Cut]] = {}
    for cut in cuts:
        if cut.step not in inputs:
            inside.setdefault(cut.step, []).append(cut)
            continue
        lo, hi = (side.reshape(-1) for side in inputs[cut.step])
        lo[cut.cells] = np.maximum(lo[cut.cells], cut.lo)
        hi[cut.cells] = np.minimum(hi[cut.cells], cut.hi)
        if (lo > hi).any():
            return None
    try:
        return enclose(
            network.boxed(inputs),
            deployment,
            "crown",
            cuts=inside,
            until=until,
            known=known,
            inner=inner,
        )
    except Empty:
        return None


def _cuts(enclosure: Enclosure, row: Array) -> list[Cut]:
    """Two parts that cover what the enclosure covers."""
    network = enclosure.network
    widths = {k: enclosure.hi[k] - enclosure.lo[k] for k in network.inputs}
    inputs = sum(int((w > 0).sum()) for w in widths.values())
    chosen = None if inputs <= 8 else most_open(enclosure, row)
    if chosen is None:
        k = max(widths, key=lambda n: widths[n].max(initial=0.0))
        cell = int(widths[k].reshape(-1).argmax())
        lo, hi = (side[k].reshape(-1)[cell] for side in (enclosure.lo, enclosure.hi))
        middle = (lo + hi) / 2
        return [_part(k, [cell], [lo], [middle]), _part(k, [cell], [middle], [hi])]
    return chosen


def _part(k: int, cells: Any, lo: Any, hi: Any) -> Cut:
    return Cut(k, np.asarray(cells), np.asarray(lo, float), np.asarray(hi, float))


def most_open(enclosure: Enclosure, row: Array) -> list[Cut] | None:
    """The window whose two functions, between them, cost the row's bound most; cut by who wins."""
    network, seen = enclosure.network, dict[int, Array]()
    lower(enclosure, len(network.steps) - 1, row[None], seen=seen)
    best, found = 0.0, None
    for k, coefficients in seen.items():
        step, chosen = network.steps[k], enclosure.relaxed[k]
        if not isinstance(step, (Maximum, Jump)):
            continue
        p = step.parents[0]
        low, high = (step.gather(side[p], 0.0) for side in (enclosure.lo, enclosure.hi))
        if isinstance(step, Maximum):
            undecided = enclosure.hulls[k].undecided()
        else:
            undecided = ((low <= 0) & (high >= 0) & (low < high))[:, 0]
        if isinstance(network.steps[p], Input) or not undecided.any():
            continue
        # How far the two functions lie apart in the middle of the box.
        between = (chosen.high_slope - chosen.low_slope) * (low + high) / 2
        gap = chosen.high_offset - chosen.low_offset + between.sum(axis=-1)
        effect = np.where(undecided, np.abs(coefficients[0]) * gap, 0.0)
        window = int(effect.argmax())
        if effect[window] > best:
            best, found = float(effect[window]), (k, window)
    return None if found is None else _by_winner(enclosure, *found)


def _by_winner(enclosure: Enclosure, k: int, window: int) -> list[Cut]:
    """A cut of one cell that a window reads: of a max its highest one, where it begins to win."""
    step = enclosure.network.steps[k]
    assert isinstance(step, Windowed)
    p = step.parents[0]
    if isinstance(step, Jump):
        cell = int(step.table[window, 0])
        lo, hi = (float(side[p].reshape(-1)[cell]) for side in (enclosure.lo, enclosure.hi))
        # The numbers of a type below 0 end at its smallest; over the reals 0 belongs to both.
        smallest = 0.0 if enclosure.deployment is None else enclosure.deployment.smallest
        if lo == 0:
            return [_part(p, [cell], [0.0], [0.0]), _part(p, [cell], [smallest], [hi])]
        return [_part(p, [cell], [lo], [-smallest]), _part(p, [cell], [0.0], [hi])]
    hull, cells = enclosure.hulls[k], step.table[window]
    winner = int(hull.excess[window].argmax())
    low, high = hull.lo[window, winner], hull.hi[window, winner]
    # The highest cell lies below the best of the others' low ends, or above.
    at = hull.least[window] if hull.least[window] > low else (low + high) / 2
    cell = int(cells[winner])
    return [_part(p, [cell], [low], [at]), _part(p, [cell], [at], [high])]
