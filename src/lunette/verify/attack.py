"""A search for a counterexample: steps down the gradient of what is nearest to hold."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from lunette.verify.problems import Array, Problem

__all__ = ["FEW", "STEPS", "candidates", "gradient", "step_down"]

STEPS = 24
"""Steps of one descent on the whole box."""

FEW = 6
"""Steps of one on a part of it: there are many parts, and bounds cost no more than this."""


def candidates(
    problem: Problem,
    lo: Array,
    hi: Array,
    deadline: float,
    seed: int = 0,
    descents: int = 64,
    steps: int = STEPS,
) -> Iterator[Array]:
    """Points of a box of floats that make the network unsafe, by its own floats."""
    generator = np.random.default_rng(seed)
    dtype = lo.dtype
    for descent in range(descents):
        share = 0.5 if descent == 0 else generator.uniform(size=lo.shape)
        if descent % 2 == 1:
            share = np.round(share)  # a corner
        x = _within((lo + share * (hi.astype(np.float64) - lo)).astype(dtype), lo, hi)
        wanted = None
        for step in range(steps):
            if time.monotonic() > deadline:
                return
            recording = problem.net.record(x)
            outputs = recording.output.value
            if problem.violated(outputs):
                yield x
                break
            margins = problem.margins(outputs)
            wanted = _target(problem, margins, descent) if wanted is None else wanted
            row = max(wanted, key=lambda k: margins[k])
            slopes = gradient(recording, problem.rows[row])
            if slopes is None or not slopes.any():
                break
            x = step_down(x, slopes, lo, hi, 0.5 if step < 4 else 1.0 / (step + 1))


def _target(problem: Problem, margins: Array, descent: int) -> tuple[int, ...]:
    """A conjunction to make hold: the nearest first, then the next ones in turn."""
    far = [max(margins[k] for k in every) for every in problem.every]
    order = np.argsort(far, kind="stable")
    return problem.every[int(order[descent % len(order)])]


def gradient(recording: Any, row: Array) -> Array | None:
    """The gradient of a row of the outputs; None where there is none, or none that is finite."""
    output = recording.output
    if not recording.tape._nodes[int(output)].requires_grad:
        return None
    found = recording.tape.backward(output, row.astype(output.dtype)).get(recording.input)
    if found is None or not np.isfinite(found).all():
        return None
    return np.asarray(found)


def step_down(x: Array, slopes: Array, lo: Array, hi: Array, share: float) -> Array:
    """A share of the box's width against the sign of the gradient, kept in the box."""
    width = hi.astype(np.float64) - lo
    return _within((x - share * width * np.sign(slopes)).astype(x.dtype), lo, hi)


def _within(x: Array, lo: Array, hi: Array) -> Array:
    return np.minimum(np.maximum(x, lo), hi)
