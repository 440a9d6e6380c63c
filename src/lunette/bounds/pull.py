"""Backward: a linear function of a step's result, bounded below by one of what the step reads.

Rows of coefficients go from the output to the inputs, step by step. An affine step exchanges them
exactly, up to `|row|·error`. A bending step is replaced by its lower function where a coefficient is
positive and by its upper one where it is negative. At the inputs the least value of a linear
function over a box is at a corner. Rows go in batches, so that memory stays bounded.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from lunette.bounds import relax
from lunette.bounds.affine import Affine, Step
from lunette.bounds.box import SLACK, TINY, UNIT, Array, gamma, magnitude
from lunette.bounds.deployed import Deployment, error, own_error
from lunette.bounds.network import Input, Network
from lunette.bounds.windows import Curve, Jump, Maximum, Relaxation, Smooth, Softmax, Windowed

__all__ = ["Cut", "Empty", "Enclosure", "batches", "lower"]

BATCH = 1 << 19
"""How many numbers one array of a batch of rows may hold."""

Choices = dict[int, Relaxation]


class Empty(Exception):
    """Two bounds exclude each other: no input reaches this part of a cut box."""


class Cut(NamedTuple):
    """A part of a box: ends of cells of a step that are narrower than elsewhere."""

    step: int
    cells: Array
    lo: Array
    hi: Array


class Enclosure:
    """What is known of every step: its box, its errors, and relaxations over the boxes before it."""

    def __init__(
        self, network: Network, deployment: Deployment | None, short: bool = False
    ) -> None:
        self.network, self.deployment = network, deployment
        self.short = short  # whether ends are rounded, outward, to numbers that are short to write
        self.until = math.inf
        """When narrowing gives up, in the seconds of `time.monotonic`."""
        self.lo: list[Array] = []
        self.hi: list[Array] = []
        self.charged: dict[int, Array] = {}
        self.hulls: dict[int, Any] = {}
        """What chooses the relaxations of a max or a smooth max."""
        self.relaxed: Choices = {}
        self.claimed: set[int] = set()
        """Steps whose boxes are narrower than interval arithmetic gives."""

    def sizes(self, step: Step) -> list[Array]:
        """The largest magnitudes of what a step reads."""
        return [magnitude(self.lo[p], self.hi[p]) for p in step.parents]

    def extend(self) -> int:
        """Add the box of the next step by interval arithmetic; the number of that step."""
        k = len(self.lo)
        step = self.network.steps[k]
        with np.errstate(over="ignore", invalid="ignore"):
            lo, hi = self._box(k, step)
        if not (np.isfinite(lo).all() and np.isfinite(hi).all()):
            raise ValueError(f"{step.about}: its bounds overflow float64; give a smaller box")
        if self.short and isinstance(step, Affine) and not step.exact:
            grid = relax.grid_of(magnitude(lo, hi))
            lo, hi = np.floor(lo / grid) * grid, np.ceil(hi / grid) * grid
        self.lo.append(lo)
        self.hi.append(hi)
        return k

    def _box(self, k: int, step: Step) -> tuple[Array, Array]:
        if isinstance(step, Input):
            return step.box.lo, step.box.hi
        lows, highs = ([side[p] for p in step.parents] for side in (self.lo, self.hi))
        if isinstance(step, Affine):
            sizes = self.sizes(step)
            unused = np.zeros(())
            self.charged[k] = error(step, sizes, unused, self.deployment) + own_error(step, sizes)
            if step.exact:
                ends = step.value(*lows), step.value(*highs)
                return np.minimum(*ends), np.maximum(*ends)
            middles = [(a + b) / 2 for a, b in zip(lows, highs, strict=True)]
            radii = [
                np.maximum(b - m, m - a) * (1 + 2.0**-50)
                for a, m, b in zip(lows, middles, highs, strict=True)
            ]
            middle, radius = step.value(*middles), step.spread(*radii) + self.charged[k]
            return middle - radius, middle + radius
        assert isinstance(step, Windowed)
        lo, hi = step.ends(lows[0], highs[0])
        if not isinstance(step, (Maximum, Jump)):
            loss = 2.0**-40 * (
                1 + np.abs(lo) + np.abs(hi) + sum(s.max(initial=0.0) for s in self.sizes(step))
            )
            if isinstance(step, Smooth):
                loss = loss + 2.0**-40 / abs(step.beta) * (1 + step.table.shape[-1] * 2.0**-10)
            lo, hi = lo - loss, hi + loss
        self.charged[k] = error(step, self.sizes(step), magnitude(lo, hi), self.deployment)
        return lo - self.charged[k], hi + self.charged[k]

    def narrow(self, k: int, cells: Array, lo: Array, hi: Array) -> None:
        """Replace ends of some cells of step k by better ones."""
        low, high = self.lo[k].reshape(-1).copy(), self.hi[k].reshape(-1).copy()
        if self.short:
            grid = relax.grid_of(magnitude(low, high))
            lo, hi = np.floor(lo / grid) * grid, np.ceil(hi / grid) * grid
        better = (lo > low[cells]) | (hi < high[cells])
        low[cells], high[cells] = np.maximum(low[cells], lo), np.minimum(high[cells], hi)
        if (low > high).any():
            raise Empty
        if better.any():
            self.claimed.add(k)
        self.lo[k], self.hi[k] = low.reshape(self.lo[k].shape), high.reshape(self.hi[k].shape)

    def meet(self, k: int, known: Enclosure) -> None:
        """Take the ends of step k that another enclosure of the same inputs, or of more, knows better."""
        lo, hi = np.maximum(self.lo[k], known.lo[k]), np.minimum(self.hi[k], known.hi[k])
        if (lo > hi).any():
            raise Empty
        self.lo[k], self.hi[k] = lo, hi

    def relax(self, k: int) -> None:
        """Choose the first relaxation of a bending step, over the box before it."""
        step = self.network.steps[k]
        lo, hi = (side[step.parents[0]] for side in (self.lo, self.hi))
        if isinstance(step, Maximum):
            self.hulls[k] = hull = relax.Hull(step, lo, hi)
            self.relaxed[k] = hull.relaxation(*hull.first_guess())
        elif isinstance(step, Smooth):
            self.hulls[k] = smooth = relax.SmoothHull(step, lo, hi)
            self.relaxed[k] = smooth.relaxation(*smooth.first_guess())
        elif isinstance(step, Curve):
            self.relaxed[k] = relax.curve(step, lo, hi)
        elif isinstance(step, Jump):
            self.relaxed[k] = relax.sign(step, lo, hi)
        elif isinstance(step, Softmax):  # the ends of its box, whatever the cells
            flat = np.zeros(step.table.shape)
            self.relaxed[k] = Relaxation(flat, self.lo[k].reshape(-1), flat, self.hi[k].reshape(-1))


def batches(enclosure: Enclosure, target: int, count: int) -> Iterator[slice]:
    """Rows in batches small enough for the widest step at or before `target`."""
    widest = 1
    for step in enclosure.network.steps[: target + 1]:
        entries = step.table.size if isinstance(step, Windowed) else 0
        widest = max(widest, step.cells, entries)
    size = max(1, BATCH // widest)
    return (slice(i, min(i + size, count)) for i in range(0, count, size))


def lower(
    enclosure: Enclosure,
    target: int,
    rows: Array,
    choices: Choices | None = None,
    seen: dict[int, Array] | None = None,
) -> tuple[Array, dict[int, Array]]:
    """The least value of `rows·result` of a step, row by row, and the inputs where it is attained.

    `rows` is `(rows, *shape of the step)`. `choices` are relaxations of their own for these rows.
    `seen` is filled with the coefficients that arrive at each bending step.
    """
    chosen = enclosure.relaxed | (choices or {})
    total, slack = np.zeros(len(rows)), np.full(len(rows), TINY)
    waiting: dict[int, Array] = {target: np.asarray(rows, np.float64)}
    points: dict[int, Array] = {}
    with np.errstate(over="ignore", invalid="ignore"):
        for k in range(target, -1, -1):
            if k not in waiting:
                continue
            step, a = enclosure.network.steps[k], waiting.pop(k)
            if isinstance(step, Input):
                parts: list[Array] = []
                gain, loss, points[k] = _least(a, enclosure.lo[k], enclosure.hi[k])
            elif isinstance(step, Affine):
                parts = step.pull(a)
                gain, loss = _through_sums(enclosure, k, step, a)
            else:
                assert isinstance(step, Windowed)
                if seen is not None:
                    seen[k] = _flat(a)
                gain, loss, part = _through_windows(enclosure, k, step, a, chosen[k])
                parts = [part]
            total = total + gain
            slack = slack + loss + 2 * UNIT * np.abs(total)
            for p, part in zip(step.parents, parts, strict=True):
                slack = slack + _join(enclosure, waiting, p, part)
        result = total - slack * SLACK
    return np.where(np.isnan(result), -np.inf, result - 2 * UNIT * np.abs(result)), points


def _least(a: Array, lo: Array, hi: Array) -> tuple[Array, Array, Array]:
    corner = np.where(a > 0, lo, hi)
    flat = _flat(a * corner)
    sizes = _flat(np.abs(a)) @ magnitude(lo, hi).reshape(-1)
    return flat.sum(axis=1), gamma(flat.shape[1] + 8) * sizes * SLACK, corner


def _through_sums(enclosure: Enclosure, k: int, step: Affine, a: Array) -> tuple[Array, Array]:
    loss = _flat(np.abs(a)) @ enclosure.charged[k].reshape(-1) * SLACK + TINY
    constant = step.constant()
    if constant is None:
        return np.zeros(len(a)), loss
    return _flat(a) @ np.broadcast_to(constant, step.shape).reshape(-1), loss


def _through_windows(
    enclosure: Enclosure, k: int, step: Windowed, a: Array, chosen: Relaxation
) -> tuple[Array, Array, Array]:
    flat = _flat(a)
    up = np.maximum(flat, 0.0)
    down = flat - up  # where a coefficient is not positive, the upper function counts
    part = step.scatter(up[..., None] * chosen.low_slope + down[..., None] * chosen.high_slope)
    cells = step.gather(enclosure.sizes(step)[0], 0.0).sum(axis=-1) * SLACK
    count = step.readers + len(step.table) + step.table.shape[1] + 16
    most = magnitude(chosen.low_offset, chosen.high_offset)
    own = gamma(count) * (cells + most) + enclosure.charged[k].reshape(-1)
    gain = _weighted(up, chosen.low_offset) + _weighted(down, chosen.high_offset)
    return gain, _weighted(up - down, own) * SLACK + TINY, part


def _weighted(rows: Array, values: Array) -> Array:
    """Row by row `Σ row·value`, of values that all rows share or of each row's own."""
    return np.asarray(rows @ values if values.ndim == 1 else (rows * values).sum(axis=1))


def _join(enclosure: Enclosure, waiting: dict[int, Array], p: int, part: Array) -> Any:
    """Add coefficients to those that came another way; what the sum can lose."""
    if p not in waiting:
        waiting[p] = part
        return 0.0
    waiting[p] = waiting[p] + part
    size = magnitude(enclosure.lo[p], enclosure.hi[p]).reshape(-1)
    return 2 * UNIT * (_flat(np.abs(waiting[p])) @ size)


def _flat(a: Array) -> Array:
    return a.reshape(len(a), math.prod(a.shape[1:]))
