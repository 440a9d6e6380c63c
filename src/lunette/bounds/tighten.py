"""The whole forward pass with narrower boxes, and relaxations chosen anew for every row.

A bound is attained at a corner of the inputs. There each window has its own best λ and shares; with
those the bound is attained elsewhere. A few rounds, each a shorter step from the last choice, end
close to the hull; the best of them is kept.
"""

from __future__ import annotations

import math

import numpy as np

from lunette.bounds import relax
from lunette.bounds.affine import Affine
from lunette.bounds.box import Array
from lunette.bounds.deployed import Deployment
from lunette.bounds.network import Input, Network
from lunette.bounds.pull import Choices, Cut, Enclosure, batches, lower
from lunette.bounds.windows import Maximum, Relaxation, Smooth, Windowed

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
) -> Enclosure:
    """Boxes of every step; but for `"ibp"`, those that a bending step reads by going backward.

    With `cuts`, of the inputs for which some numbers inside lie on one side; `Empty` if there are none.
    """
    enclosure = Enclosure(network, deployment, short)
    read = {p for s in network.steps if isinstance(s, Windowed) for p in s.parents}
    for number, step in enumerate(network.steps):
        k = enclosure.extend()
        for cut in (cuts or {}).get(k, ()):
            enclosure.narrow(k, cut.cells, cut.lo, cut.hi)
        if method == "ibp":
            continue
        if isinstance(step, Windowed):
            enclosure.relax(k)
        if number in read and not _as_good(network, k):
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
        cells = step.table[windows]
        found[cells[cells >= 0]] = True
    return np.flatnonzero(found)


def _narrow(enclosure: Enclosure, k: int, cells: Array, rounds: int) -> None:
    shape, count = enclosure.network.steps[k].shape, enclosure.network.steps[k].cells
    for some in batches(enclosure, k, len(cells)):
        here = cells[some]
        rows = np.zeros((2 * len(here), count))
        places = np.arange(len(here))
        rows[places, here], rows[len(here) + places, here] = 1.0, -1.0
        found = _lower_rows(enclosure, k, rows.reshape(-1, *shape), rounds)
        enclosure.narrow(k, here, found[: len(here)], -found[len(here) :])


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
    kept: dict[int, tuple[Array, Array]] = {}
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
    kept: dict[int, tuple[Array, Array]],
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
        if isinstance(step, Maximum):
            hull = enclosure.hulls[j]
            found = hull.at(step.gather(inputs[0], 0.0))
            if j in kept:
                lam, shares = (b + part * (a - b) for a, b in zip(found, kept[j], strict=True))
                found = (lam, shares)
            kept[j] = found
            choices[j] = hull.relaxation(*found)
        elif isinstance(step, Smooth):
            lo, hi = (side[step.parents[0]] for side in (enclosure.lo, enclosure.hi))
            at = step.gather(inputs[0], 0.0)
            choices[j] = _stretched(relax.smooth_tangent(step, lo, hi, at), count)
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
