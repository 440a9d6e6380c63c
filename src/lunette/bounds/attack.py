"""The search for counterexamples: points of a box where rows over the output are small.

Steps along the sign of the gradient, from the middle, from corners and from random points, projected
to the box. Nothing here is a proof; a point that is found is checked by running the network.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from lunette.bounds.affine import Affine
from lunette.bounds.box import Array
from lunette.bounds.network import Input, Network
from lunette.bounds.windows import Curve, Jump, Maximum, Smooth, Softmax, Windowed

__all__ = ["attack", "descents", "gradients"]


def attack(
    network: Network, row: Array, *, tries: int = 8, rounds: int = 20, seed: int = 0
) -> tuple[float, dict[int, Array]]:
    """The least `Σ row·output` that was found, in float64, and the inputs that gave it."""
    best, found = np.inf, {k: box.lo for k, box in network.boxes.items()}
    for value, point in descents(network, row, tries=tries, rounds=rounds, seed=seed):
        best, found = value, point
    return best, found


def descents(
    network: Network, row: Array, *, tries: int = 8, rounds: int = 20, seed: int = 0
) -> Iterator[tuple[float, dict[int, Array]]]:
    """Each value of `Σ row·output` that is less than all before, and the inputs that gave it."""
    rng = np.random.default_rng(seed)
    boxes = network.boxes
    points = {k: _starts(rng, box, tries) for k, box in boxes.items()}
    rows = np.broadcast_to(row, (tries, *row.shape))
    best = np.inf
    for turn in range(rounds + 1):
        values = network.values(points)
        results = (values[-1] * rows).reshape(tries, -1).sum(axis=1)
        least = int(results.argmin())
        if results[least] < best:
            best = float(results[least])
            yield best, {k: p[least].copy() for k, p in points.items()}
        slopes = gradients(network, values, rows)
        for k, box in boxes.items():
            step = box.width * (0.5 / (1 + turn / 3))
            moved = points[k] - step * np.sign(slopes[k])
            points[k] = np.clip(moved, box.lo, box.hi)


def _starts(rng: np.random.Generator, box: Any, tries: int) -> Array:
    parts = rng.random((tries, *box.shape))
    parts[0] = 0.5
    parts[1 : tries // 2] = np.round(parts[1 : tries // 2])
    return np.asarray(np.clip(box.lo + parts * box.width, box.lo, box.hi))


def gradients(network: Network, values: list[Array], rows: Array) -> dict[int, Array]:
    """The gradient of rows in every input, at points whose values these are."""
    waiting = {len(network.steps) - 1: np.asarray(rows, np.float64)}
    found = {k: np.zeros_like(values[k]) for k in network.inputs}
    for k in range(len(network.steps) - 1, -1, -1):
        step = network.steps[k]
        if k not in waiting:
            continue
        a = waiting.pop(k)
        if isinstance(step, Input):
            found[k] = a
            continue
        if isinstance(step, Affine):
            parts = step.pull(a)
        else:
            assert isinstance(step, Windowed)
            share = _shares(step, values[step.parents[0]])
            parts = [step.scatter(a.reshape(len(a), -1)[..., None] * share)]
        for p, part in zip(step.parents, parts, strict=True):
            waiting[p] = waiting[p] + part if p in waiting else part
    return found


def _shares(step: Windowed, x: Array) -> Array:
    """The derivative of each window in its cells."""
    cells = step.gather(x, 0.0)
    if isinstance(step, Curve):
        return step.slope(cells)
    if isinstance(step, Jump):  # flat but at 0: a slope that says which way the jump lies
        scale = np.abs(cells).mean(axis=-2, keepdims=True) + 1e-30
        return np.asarray(1 / (scale + np.abs(cells)))
    if isinstance(step, Softmax):
        share = np.exp(cells - cells.max(axis=-1, keepdims=True))
        share = share / share.sum(axis=-1, keepdims=True)
        own = np.zeros(cells.shape[-1])
        own[0] = 1.0
        return np.asarray(share[..., :1] * (own - share))
    inside = np.where(step.present, cells, -np.inf)
    if isinstance(step, Smooth):
        signed = np.where(step.present, np.sign(step.beta) * cells, -np.inf)
        pivot, total = step.logs(np.sign(step.beta) * cells)
        safe = np.where(total > 0, total, 1.0)[..., None]
        return np.asarray(np.exp(abs(step.beta) * (signed - pivot[..., None])) / safe)
    assert isinstance(step, Maximum)
    share = np.zeros(cells.shape)
    np.put_along_axis(share, inside.argmax(axis=-1)[..., None], 1.0, axis=-1)
    live = ~step.zero | (inside.max(axis=-1, initial=-np.inf) > 0)
    return np.asarray(share * live[..., None])
