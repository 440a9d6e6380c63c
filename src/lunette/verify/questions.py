"""What is asked of the bounds: rows over the part of the network that the property speaks of.

A softmax at the end keeps the order of its operands, so a question of order is asked of these.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from lunette.bounds.affine import Moved
from lunette.bounds.box import magnitude
from lunette.bounds.deployed import Deployment, softmax_error
from lunette.bounds.network import Network
from lunette.bounds.parts import focused
from lunette.bounds.tighten import enclose
from lunette.bounds.windows import Softmax
from lunette.verify.problems import Array, Problem

__all__ = ["asked"]


def asked(
    network: Network, problem: Problem, deployment: Deployment
) -> tuple[Network, Array, list[Fraction]]:
    """The network, rows over its output, and limits that each row must stay above."""
    before = _before_softmax(network, problem, deployment)
    if before is None:
        return *focused(network, problem.rows), problem.limits
    short, rows, limit = before
    return *focused(short, rows), [limit] * len(rows)


def _before_softmax(
    network: Network, problem: Problem, deployment: Deployment
) -> tuple[Network, Array, Fraction] | None:
    """Rows over the operands of a last softmax, where all of them together say which is the largest.

    If one operand is above every other by a little, so is its share: it is at least 1/n, no share is
    lost to underflow, and what rounding can do to two shares is less than their distance.
    """
    rows, k = problem.rows, len(network.steps) - 1
    step = network.steps[k]
    while isinstance(step, Moved) and step.exact and len(step.parents) == step.readers == 1:
        rows, k = step.pull(rows)[0], step.parents[0]
        step = network.steps[k]
    classes = step.shape[-1] if step.shape else 0
    if not isinstance(step, Softmax) or step.cells != classes:
        return None
    flat = rows.reshape(len(rows), classes)
    first = int(flat[0].argmax())
    others = sorted(int(row.argmin()) for row in flat)
    if len(problem.every) != len(flat) or any(limit > 0 for limit in problem.limits):
        return None
    if others != [j for j in range(classes) if j != first]:
        return None
    for row, one in zip(flat, problem.every, strict=True):
        used = np.flatnonzero(row)
        if len(used) != 2 or row[first] <= 0 or row[first] != -row.min() or len(one) != 1:
            return None
    (parent,) = step.parents
    short = Network(network.steps[: parent + 1], network.nodes)
    unit_rows = np.sign(flat).reshape(len(flat), *network.steps[parent].shape)
    known = enclose(short, deployment, "ibp")
    size = float(magnitude(known.lo[-1], known.hi[-1]).max())
    error = softmax_error(classes, size, deployment)
    return short, unit_rows, Fraction(4 * error)
