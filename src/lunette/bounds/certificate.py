"""Certificates: all that a reader needs to see, in exact integers, that bounds hold.

A certificate holds the network, the box, for every max two linear functions per window, claimed
boxes, and rows with the number that each never falls below. Numbers are integers and one power of
two per list. `lunette.bounds.check` replays it and trusts none of it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from lunette.bounds import affine
from lunette.bounds.affine import Affine, Step
from lunette.bounds.box import Array, Box
from lunette.bounds.deployed import Deployment
from lunette.bounds.network import Input
from lunette.bounds.outputs import FLOAT32, least_of, row_array
from lunette.bounds.parts import divisors_of
from lunette.bounds.pull import Enclosure
from lunette.bounds.reading import network_of
from lunette.bounds.relax import grid_of
from lunette.bounds.tighten import ROUNDS, best, enclose, unit_rows
from lunette.bounds.windows import Maximum, Relaxation, table_of

__all__ = ["FORMAT", "certificate", "dyadic", "least_values"]

FORMAT = "lunette-bounds-1"


def certificate(
    tape: Any,
    output: Any,
    boxes: dict[Any, Box],
    rows: Any = None,
    *,
    method: str = "tight",
    deployment: Deployment | None = FLOAT32,
) -> dict[str, Any]:
    """A certificate that `Σ row·output ≥ least` for each of `rows`, ready for `json.dump`.

    Without rows, each output alone and its negative: bounds on both sides of all of them. Smooth max,
    tanh and sigmoid have none: the checker has no exponentials.

    Parameters
    ----------
    tape : Tape
        The network.
    output : Id
        The node.
    boxes : dict of Id to Box
        Where leaves lie.
    rows : array_like, optional
        Coefficients, `(rows, *output.shape)`.
    method : {"ibp", "crown", "tight"}, default "tight"
        How close, and how long it takes.
    deployment : Deployment or None
        The arithmetic of the network that will run. Default: float32.

    Returns
    -------
    dict
        What `lunette/bounds/check.py` verifies in exact integers.

    Raises
    ------
    ValueError, TypeError
        For an op that has no certificate, rows of another shape, or a box that does not fit its leaf.

    Examples
    --------
    >>> import json
    >>> import numpy as np
    >>> import lunette as ln
    >>> from lunette.bounds import check
    >>> tape = ln.Tape()
    >>> x = tape.leaf(np.zeros((1, 2), np.float32), "x")
    >>> proof = ln.bounds.certificate(tape, tape.relu(x), {x: ln.Box([[-1.0, 0.0]], [[1.0, 2.0]])})
    >>> check.check(json.dumps(proof))
    'verified: 4 rows'
    """
    if method not in ("crown", "tight"):
        raise ValueError(f"method={method!r}: expected 'crown' or 'tight'")
    if deployment is not None and deployment.flush_subnormals:
        raise ValueError("flush_subnormals=True: certificates know gradual underflow alone")
    network = network_of(tape, output, boxes, deployment)
    shape, cells = network.steps[-1].shape, np.arange(network.steps[-1].cells)
    if rows is None:
        rows = np.concatenate([unit_rows(shape, cells, 1.0), unit_rows(shape, cells, -1.0)])
    matrix = row_array(rows, shape)
    for step in network.steps:
        _check_step(step)
    # Relaxations of boxes inside are shared by all rows, so that each is written and checked once.
    enclosure = enclose(network, deployment, "crown", short=True)
    writer = _Writer(enclosure)
    document: dict[str, Any] = {
        "format": FORMAT,
        "arithmetic": "exact" if deployment is None else deployment.dtype,
        "exp": writer.exponent,
        "steps": writer.steps,
    }
    rounds = ROUNDS[method]
    return document | {"rows": [_claim(enclosure, writer, row, rounds) for row in matrix]}


def least_values(document: dict[str, Any]) -> Array:
    """The numbers that the rows of a certificate never fall below.

    Parameters
    ----------
    document : dict
        A certificate.

    Returns
    -------
    numpy.ndarray of float64
        A number for each row.

    Examples
    --------
    >>> import numpy as np
    >>> import lunette as ln
    >>> tape = ln.Tape()
    >>> x = tape.leaf(np.zeros((1, 1), np.float32), "x")
    >>> proof = ln.bounds.certificate(tape, tape.relu(x), {x: ln.Box([[1.0]], [[2.0]])}, [[[1.0]]])
    >>> ln.bounds.least_values(proof)
    array([1.])
    """
    pairs = [(row["least"]["int"][0], row["least"]["exp"]) for row in document["rows"]]
    return np.array([math.ldexp(n, e) for n, e in pairs])


def dyadic(values: Any, exponent: int | None = None) -> dict[str, Any]:
    """Floats as integers and one exponent of two, the highest that serves or the one given."""
    ratios = [v.as_integer_ratio() for v in np.asarray(values, np.float64).reshape(-1).tolist()]
    if exponent is None:
        exponent = min((1 - d.bit_length() for _, d in ratios), default=0)
    return {"exp": exponent, "int": [n << (1 - d.bit_length() - exponent) for n, d in ratios]}


def _claim(enclosure: Enclosure, writer: _Writer, row: Array, rounds: int) -> dict[str, Any]:
    k = len(enclosure.network.steps) - 1
    value, own = best(enclosure, k, row[None], rounds)
    interval = least_of(enclosure, row[None], "ibp")
    if interval[0] >= value[0]:
        value, own = interval, {}
    if not np.isfinite(value[0]):
        raise ValueError("a row's bound overflows float64; give a smaller box")
    grid = grid_of(np.abs(value)) * 2.0**8
    used = np.flatnonzero(row.reshape(-1))
    numbers = dyadic(row.reshape(-1)[used])
    totals: dict[int, int] = {}  # outputs that are one cell taken twice are one number here
    for cell, n in zip(writer.cells[k][used].tolist(), numbers["int"], strict=True):
        totals[cell] = totals.get(cell, 0) + n
    claim = {
        "cells": list(totals),
        "row": numbers | {"int": list(totals.values())},
        "least": dyadic([math.floor(value[0] / grid) * grid]),
    }
    if own:
        claim["own"] = {
            str(writer.place[j]): {"relax": _relax(enclosure.network.steps[j], chosen, 0)}
            for j, chosen in own.items()
        }
    return claim


def _relax(step: Step, chosen: Relaxation, row: int | None = None) -> dict[str, Any]:
    assert isinstance(step, Maximum)
    parts = [chosen.high_slope, chosen.low_slope, chosen.high_offset]
    if row is not None:
        parts = [p[row] for p in parts]
    slope, share, offset = parts
    return {
        "slope": dyadic(slope[step.present]),
        "share": dyadic(share[step.present]),
        "offset": dyadic(offset),
    }


def _check_step(step: Step) -> None:
    if not isinstance(step, (Input, Affine, Maximum)):
        raise ValueError(f"{step.about}: certificates know sums and max, not {step.title}")
    if isinstance(step, affine.Scaled) and step.divisor is not None:
        mantissas = np.frexp(step.divisor)[0]
        if (np.abs(mantissas) != 0.5).any():
            raise ValueError(
                f"{step.about}: a certificate needs divisors that are powers of two; "
                "multiply by the reciprocal instead"
            )


class _Writer:
    """Steps as records. Cells of all records are numbered in one row; `cells` are a step's own."""

    def __init__(self, enclosure: Enclosure) -> None:
        self.enclosure = enclosure
        self.steps: list[dict[str, Any]] = []
        self.cells: list[Array] = []
        self.place: dict[int, int] = {}
        self.count = 0
        self.exponent = _finest(enclosure)
        for k, step in enumerate(enclosure.network.steps):
            read = [self.cells[p] for p in step.parents]
            if (
                isinstance(step, affine.Moved) and step.exact
            ):  # the same cells in another order: no step at all
                self.cells.append(np.concatenate(read)[step.index])
                continue
            self.place[k] = len(self.steps)
            self.steps.append(self._record(k, step, read))
            self.cells.append(np.arange(self.count, self.count + step.cells))
            self.count += step.cells

    def _record(self, k: int, step: Step, read: list[Array]) -> dict[str, Any]:
        if isinstance(step, Input):
            return {"op": "input", **self._ends(k)}
        if isinstance(step, Maximum):
            windows = _patterns(_lists(step.table, read[0]))
            zero, relaxed = [int(z) for z in step.zero], _relax(step, self.enclosure.relaxed[k])
            return {"op": "max", "windows": windows, "zero": zero, "relax": relaxed}
        if isinstance(step, affine.Pooled):
            cells, divisors = _lists(table_of(step.op, step.x), read[0]), divisors_of(step).tolist()
            return {"op": "sums", **_mean(cells, divisors), **self._ends(k)}
        if isinstance(step, affine.Summed) and step.divisor > 1:
            kept = [i for i in range(len(step.x)) if i - len(step.x) not in step.axes]
            order = [*kept, *(i + len(step.x) for i in step.axes)]
            turned = read[0].reshape(step.x).transpose(order).reshape(step.cells, step.terms)
            divisors = [step.divisor] * step.cells
            return {"op": "sums", **_mean(list(turned), divisors), **self._ends(k)}
        assert isinstance(step, Affine)
        return {"op": "sums", **_sums(step, np.concatenate(read)), **self._ends(k)}

    def _ends(self, k: int) -> dict[str, Any]:
        lo, hi = (dyadic(side[k], self.exponent)["int"] for side in self._sides)
        return {"lo": lo, "hi": hi}

    @property
    def _sides(self) -> tuple[list[Array], list[Array]]:
        return self.enclosure.lo, self.enclosure.hi


def _finest(enclosure: Enclosure) -> int:
    """The exponent at which every end of a box is an integer."""
    steps = enclosure.network.steps
    return min(
        int(dyadic(side[k])["exp"])
        for k, step in enumerate(steps)
        for side in (enclosure.lo, enclosure.hi)
        if isinstance(step, (Input, Affine))
    )


def _lists(table: Array, cells: Array) -> list[Array]:
    """Rows of a table without the places where none is, as cells."""
    return [cells[row[row >= 0]] for row in table]


def _patterns(cells: list[Array]) -> dict[str, Any]:
    """The cells of each output: the first of them, and what stands at which distance from it."""
    firsts = [int(row.min()) if row.size else 0 for row in cells]
    known: dict[bytes, int] = {}
    like = [
        known.setdefault((row.astype(np.int64) - first).tobytes(), len(known))
        for row, first in zip(cells, firsts, strict=True)
    ]
    patterns = [np.frombuffer(key, np.int64).tolist() for key in known]
    return {"patterns": patterns, "like": like, "at": firsts}


def _mean(cells: list[Array], divisors: list[int]) -> dict[str, Any]:
    nothing, none = {"exp": 0, "int": [0]}, {"exp": 0, "int": []}
    kinds = [0] * len(cells)
    return {
        "cells": _patterns(cells),
        "kinds": kinds,
        "divisors": divisors,
        "weight": none,
        "bias": nothing,
    }


def _sums(step: Affine, read: Array) -> dict[str, Any]:
    """Any affine step, from what a single coefficient of each output pulls back: each weight once."""
    cells: list[Array] = []
    weights: list[Array] = []
    batch = max(1, (1 << 21) // max(1, step.cells, len(read)))
    for first in range(0, step.cells, batch):
        some = np.arange(first, min(first + batch, step.cells))
        pulled = step.pull(unit_rows(step.shape, some, 1.0))
        for row in np.concatenate([p.reshape(len(some), -1) for p in pulled], axis=1):
            places = np.flatnonzero(row)
            cells.append(read[places])
            weights.append(row[places])
    table, which = np.unique(np.concatenate([np.zeros(0), *weights]), return_inverse=True)
    ends = np.cumsum([len(w) for w in weights])[:-1]
    constant = step.constant()
    bias = np.zeros(step.shape) if constant is None else np.broadcast_to(constant, step.shape)
    # Outputs with the same weights and constant, as those of one channel, are of one kind.
    kinds: dict[tuple[bytes, float], int] = {}
    parts = np.split(which.reshape(-1).astype(np.int64), ends)
    keys = [(w.tobytes(), float(b)) for w, b in zip(parts, bias.reshape(-1), strict=True)]
    places_of = [kinds.setdefault(key, len(kinds)) for key in keys]
    return {
        "cells": _patterns(cells),
        "kinds": places_of,
        "which": [np.frombuffer(w, np.int64).tolist() for w, _ in kinds],
        "weight": dyadic(table),
        "bias": dyadic([b for _, b in kinds]),
    }
