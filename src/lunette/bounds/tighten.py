"""The whole forward pass with narrower boxes, and relaxations chosen anew for every row.

A bound is attained at a corner of the inputs. There each window has its own best λ and shares, or
chord and tangent; with those the bound is attained elsewhere. A few rounds, each a shorter step from the last choice, end
close to the hull; the best of them is kept.
"""

from __future__ import annotations

import math
import time

import numpy as np

from lunette.bounds import relax
from lunette.bounds.affine import Affine
from lunette.bounds.box import Array
from lunette.bounds.deployed import Deployment
from lunette.bounds.network import Input, Network
from lunette.bounds.parts import enclosed
from lunette.bounds.pull import Choices, Cut, Enclosure, batches, lower
from lunette.bounds.tiles import tiles
from lunette.bounds.windows import Jump, Maximum, Relaxation, Smooth, Windowed

__all__ = ["METHODS", "enclose", "least"]

METHODS = ("ibp", "crown", "tight")
ROUNDS = {"ibp": 0, "crown": 0, "tight": 12}
"""Rounds of the output's rows."""
INNER_ROUNDS = {"ibp": 0, "crown": 0, "tight": 2}
"""Rounds of the rows of boxes inside the network: there are many of them."""


def enclose(
    network: Network,
    deployment: Deployment | None,
    method: str,
    short: bool = False,
    cuts: dict[int, list[Cut]] | None = None,
    until: float = math.inf,
    known: Enclosure | None = None,
    inner: bool = True,
) -> Enclosure:
    """Boxes of every step; but for `"ibp"`, those that a bending step reads by going backward.

    With `cuts`, of the inputs for which some numbers inside lie on one side; `Empty` if there are none.
    `TimeoutError` when `time.monotonic()` passes `until`. `known` holds of a larger box of inputs;
    without `inner`, nothing but the output goes backward.
    """
    enclosure = Enclosure(network, deployment, short)
    enclosure.until = until
    read = {p for s in network.steps if isinstance(s, Windowed) for p in s.parents}
    for number, step in enumerate(network.steps):
        k = enclosure.extend()
        if known is not None:
            enclosure.meet(k, known)
        for cut in (cuts or {}).get(k, ()):
            enclosure.narrow(k, cut.cells, cut.lo, cut.hi)
        if method == "ibp":
            continue
        if isinstance(step, Windowed):
            enclosure.relax(k)
        if inner and number in read and not _as_good(network, k):
            cells = _open_cells(enclosure, k)
            _narrow(enclosure, k, cells, INNER_ROUNDS[method])
    return enclosure


def least(enclosure: Enclosure, rows: Array, rounds: int) -> Array:
    """The least value of rows over the output, the better of going backward and of its box."""
    k = len(enclosure.network.steps) - 1
    return _lower_rows(enclosure, k, rows, rounds)


def _as_good(network: Network, k: int) -> bool:
    """Whether interval arithmetic is the best there is: one affine step on the inputs, or less."""
    step = network.steps[k]
    if isinstance(step, Input):
        return True
    return (
        isinstance(step, Affine)
        and all(isinstance(network.steps[p], Input) for p in step.parents)
        and len(set(step.parents)) == len(step.parents)
    )


def _open_cells(enclosure: Enclosure, k: int) -> Array:
    """Cells that some bending step reads in a window that is not decided yet."""
    network = enclosure.network
    found = np.zeros(network.steps[k].cells, bool)
    for step in network.steps[k + 1 :]:
        if not isinstance(step, Windowed) or k not in step.parents:
            continue
        windows = np.ones(len(step.table), bool)
        if isinstance(step, Maximum):
            windows = relax.Hull(step, enclosure.lo[k], enclosure.hi[k]).undecided()
        elif isinstance(step, Jump):
            low, high = enclosure.lo[k].reshape(-1), enclosure.hi[k].reshape(-1)
            windows = (low <= 0) & (high >= 0) & (low < high)
            windows = windows[step.table[:, 0]]
        cells = step.table[windows]
        found[cells[cells >= 0]] = True
    return np.flatnonzero(found)


def _narrow(enclosure: Enclosure, k: int, cells: Array, rounds: int) -> None:
    """Narrower boxes of some cells: of a few neighbours at a time, over the part that they read."""
    if not len(cells):
        return
    low, high = np.full(len(cells), -np.inf), np.full(len(cells), np.inf)
    for part, some, places in tiles(enclosure.network, k, cells):
        known = enclosure if part is None else enclosed(enclosure, part, hulls=rounds > 0)
        last = len(known.network.steps) - 1 if part is not None else k
        size = known.network.steps[last].shape
        for batch in batches(known, last, len(some)):
            if time.monotonic() > enclosure.until:
                raise TimeoutError
            here, there = places[batch], some[batch]
            rows = np.concatenate([unit_rows(size, here, 1.0), unit_rows(size, here, -1.0)])
            found = _lower_rows(known, last, rows, rounds)
            low[there], high[there] = found[: len(here)], -found[len(here) :]
    enclosure.narrow(k, cells, low, high)


def _lower_rows(enclosure: Enclosure, k: int, rows: Array, rounds: int) -> Array:
    found = np.empty(len(rows))
    for some in batches(enclosure, k, len(rows)):
        found[some] = best(enclosure, k, rows[some], rounds)[0]
    return found


def best(enclosure: Enclosure, k: int, rows: Array, rounds: int) -> tuple[Array, Choices]:
    """The best lower bound of each row in some rounds, and the relaxations that gave it.

    A step without relaxations of its own keeps those that all rows share.
    """
    value, points = lower(enclosure, k, rows)
    if not any(j <= k for j in enclosure.relaxed):
        return value, {}
    kept: dict[int, tuple[Array, ...]] = {}
    won: Choices = {}
    for turn in range(rounds):
        choices = _chosen(enclosure, k, points, kept, 2 / (turn + 2))
        found, points = lower(enclosure, k, rows, choices)
        better = found > value
        for j, chosen in choices.items():
            old = won.get(j) or _stretched(enclosure.relaxed[j], len(rows))
            won[j] = _where(better, chosen, old)
        value = np.maximum(value, found)
    return value, won


def _where(better: Array, new: Relaxation, old: Relaxation) -> Relaxation:
    slope, offset = better[:, None, None], better[:, None]
    return Relaxation(
        np.where(slope, new.low_slope, old.low_slope),
        np.where(offset, new.low_offset, old.low_offset),
        np.where(slope, new.high_slope, old.high_slope),
        np.where(offset, new.high_offset, old.high_offset),
    )


def _chosen(
    enclosure: Enclosure,
    k: int,
    points: dict[int, Array],
    kept: dict[int, tuple[Array, ...]],
    part: float,
) -> Choices:
    """Relaxations that are best at these inputs, or part of the way there from the last ones."""
    network = enclosure.network
    count = len(next(iter(points.values())))
    values: list[Array] = []
    choices: Choices = {}
    for j, step in enumerate(network.steps[: k + 1]):
        if isinstance(step, Input):
            middle = (enclosure.lo[j] + enclosure.hi[j]) / 2
            values.append(points.get(j, np.broadcast_to(middle, (count, *step.shape))))
            continue
        inputs = [values[p] for p in step.parents]
        values.append(step.value(*inputs))
        if isinstance(step, (Maximum, Smooth)):
            hull = enclosure.hulls[j]
            found: tuple[Array, ...] = hull.at(step.gather(inputs[0], 0.0))
            if j in kept:
                found = tuple(b + part * (a - b) for a, b in zip(found, kept[j], strict=True))
            kept[j] = found
            choices[j] = hull.relaxation(*found)
        elif isinstance(step, Jump):
            lo, hi = (side[step.parents[0]] for side in (enclosure.lo, enclosure.hi))
            choices[j] = relax.sign(step, lo, hi, step.gather(inputs[0], 0.0))
    return choices


def _stretched(chosen: Relaxation, count: int) -> Relaxation:
    """The same for every row, where a side does not depend on the row."""
    slope = (count, *chosen.low_slope.shape[-2:])
    return Relaxation(
        np.broadcast_to(chosen.low_slope, slope),
        np.broadcast_to(chosen.low_offset, slope[:2]),
        np.broadcast_to(chosen.high_slope, slope),
        np.broadcast_to(chosen.high_offset, slope[:2]),
    )


def unit_rows(shape: tuple[int, ...], cells: Array, sign: float) -> Array:
    """One row for each of some cells, with one coefficient."""
    rows = np.zeros((len(cells), math.prod(shape)))
    rows[np.arange(len(cells)), cells] = sign
    return rows.reshape(-1, *shape)
