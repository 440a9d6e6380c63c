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
from lunette.bounds.network import Input, network_of
from lunette.bounds.outputs import FLOAT32, row_array
from lunette.bounds.pull import Enclosure
from lunette.bounds.relax import grid_of
from lunette.bounds.tighten import ROUNDS, best, enclose, unit_rows
from lunette.bounds.windows import Maximum, Relaxation, counted_padding
from lunette.reductions import Mean

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
    if not matrix.size:
        raise ValueError("rows are empty: there is nothing to certify")
    for step in network.steps:
        _check_step(step)
    # Relaxations of boxes inside are shared by all rows, so that each is written and checked once.
    enclosure = enclose(network, deployment, "crown", short=True)
    writer = _Writer(enclosure)
    document = {
        "format": FORMAT,
        "arithmetic": "exact" if deployment is None else deployment.dtype,
        "steps": writer.steps,
        "rows": [],
    }
    for row in matrix:
        document["rows"].append(_claim(enclosure, writer, row, ROUNDS[method]))
    return document


def least_values(document: dict[str, Any]) -> Array:
    """The numbers that the rows of a certificate never fall below."""
    pairs = [(row["least"]["int"][0], row["least"]["exp"]) for row in document["rows"]]
    return np.array([math.ldexp(n, e) for n, e in pairs])


def dyadic(values: Any) -> dict[str, Any]:
    """Floats as integers and one exponent of two."""
    ratios = [v.as_integer_ratio() for v in np.asarray(values, np.float64).reshape(-1).tolist()]
    powers = [1 - d.bit_length() if d > 1 else (n & -n).bit_length() - 1 for n, d in ratios if n]
    exponent = min(powers, default=0)
    ints = [
        (n << -(exponent - 1 + d.bit_length())) if d > 1 or exponent < 0 else n >> exponent
        for n, d in ratios
    ]
    return {"exp": exponent, "int": ints}


def _claim(enclosure: Enclosure, writer: _Writer, row: Array, rounds: int) -> dict[str, Any]:
    k = len(enclosure.network.steps) - 1
    value, own = best(enclosure, k, row[None], rounds)
    if not np.isfinite(value[0]):
        raise ValueError("a row's bound overflows float64; give a smaller box")
    grid = grid_of(np.abs(value)) * 2.0**8
    claim = {"row": dyadic(row), "least": dyadic([math.floor(value[0] / grid) * grid])}
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
        raise ValueError(f"{step.about}: a certificate of {step.title} would need exponentials")
    if isinstance(step, affine.Scaled) and step.divisor is not None:
        mantissas = np.frexp(step.divisor)[0]
        if (np.abs(mantissas) != 0.5).any():
            raise ValueError(
                f"{step.about}: a certificate needs divisors that are powers of two; "
                "multiply by the reciprocal instead"
            )


class _Writer:
    """Steps as records; `place` says where a step of the network went."""

    def __init__(self, enclosure: Enclosure) -> None:
        self.enclosure = enclosure
        self.steps: list[dict[str, Any]] = []
        self.place: dict[int, int] = {}
        for k, step in enumerate(enclosure.network.steps):
            record = self._record(k, step)
            record["of"] = record.get("of", [self.place[p] for p in step.parents])
            if isinstance(step, Affine) and not step.exact:
                lo, hi = enclosure.lo[k], enclosure.hi[k]
                record["box"] = {"lo": dyadic(lo), "hi": dyadic(hi)}
            self.place[k] = len(self.steps)
            self.steps.append(record)

    def _record(self, k: int, step: Step) -> dict[str, Any]:
        if isinstance(step, Input):
            return {"op": "input", "lo": dyadic(step.box.lo), "hi": dyadic(step.box.hi)}
        if isinstance(step, Maximum):
            zero = [int(z) for z in step.zero]
            relaxed = _relax(step, self.enclosure.relaxed[k])
            return {"op": "max", "zero": zero, "relax": relaxed, **_windows(step)}
        if isinstance(step, affine.Moved):
            return {"op": "move", "index": step.index.tolist()}
        if isinstance(step, affine.Convolved) and not step.op.transposed:
            return _convolution(step)
        if isinstance(step, affine.Linear):
            out, inputs = step.weight.shape
            bias = np.zeros(out) if step.bias is None else step.bias
            form = {"items": step.cells // out, "space": [], "axes": [], "channels": inputs}
            form |= {"groups": 1, "taps": 1, "weight": dyadic(step.weight), "bias": dyadic(bias)}
            return {"op": "conv", **form}
        if isinstance(step, affine.Pooled):
            return {"op": "mean", "divisors": _divisors(step), **_pool(step.op, step.x)}
        if isinstance(step, affine.Summed) and step.divisor > 1:
            return self._mean_of_axes(step)
        assert isinstance(step, Affine)
        return _sparse(step, [self.enclosure.network.steps[p].shape for p in step.parents])

    def _mean_of_axes(self, step: affine.Summed) -> dict[str, Any]:
        """The axes to sum go last; then each output is the mean of a row."""
        axes = [i for i in range(len(step.x)) if i - len(step.x) not in step.axes]
        order = [*axes, *(i + len(step.x) for i in step.axes)]
        index = np.arange(math.prod(step.x)).reshape(step.x).transpose(order).reshape(-1)
        of = [self.place[p] for p in step.parents]
        self.steps.append({"op": "move", "of": of, "index": index.tolist()})
        count = step.terms
        form = {"items": step.cells, "space": [count], "axes": [[list(range(count))]]}
        divisors = [step.divisor] * step.cells
        return {"op": "mean", "of": [len(self.steps) - 1], "divisors": divisors, **form}


def _convolution(step: affine.Convolved) -> dict[str, Any]:
    op = step.op
    space = step.x[len(step.x) - op.rank :]
    axes = []
    for region, n in zip(op.regions, space, strict=True):
        starts, gap, taps = region.boxes(n)
        cells = starts[:, None] + np.arange(taps) * gap
        axes.append(np.where((cells >= 0) & (cells < n), cells, -1).tolist())
    bias = np.zeros(len(step.weight)) if step.bias is None else step.bias
    return {
        "op": "conv",
        "items": math.prod(step.x[: len(step.x) - op.rank - 1]),
        "space": list(space),
        "axes": axes,
        "channels": step.x[len(step.x) - op.rank - 1],
        "groups": op.groups,
        "taps": math.prod(op.kernel),
        "weight": dyadic(step.weight),
        "bias": dyadic(bias),
    }


def _windows(step: Maximum) -> dict[str, Any]:
    if step.op is not None:
        return _pool(step.op, step.x)
    count = math.prod(step.x)
    return {"items": 1, "space": [count], "axes": [[[i] for i in range(count)]]}


def _pool(op: Any, x: tuple[int, ...]) -> dict[str, Any]:
    space = x[len(x) - op.rank :]
    axes = []
    for region, n in zip(op.regions, space, strict=True):
        windows = (region.window(n, i) for i in range(region.out_length(n)))
        axes.append([list(w.positions) for w in windows])
    return {"items": math.prod(x[: len(x) - op.rank]), "space": list(space), "axes": axes}


def _divisors(step: affine.Pooled) -> list[int]:
    from lunette.bounds.windows import table_of

    reduction = step.op.reduction
    assert isinstance(reduction, Mean)
    real = (table_of(step.op, step.x) >= 0).sum(axis=1)
    counted = real + counted_padding(step.op, step.x) if reduction.count_include_pad else real
    if reduction.divisor_override is not None:
        counted = np.full(len(real), reduction.divisor_override)
    return [max(1, int(c)) for c in counted]


def _sparse(step: Affine, shapes: list[tuple[int, ...]]) -> dict[str, Any]:
    """Any affine step, from what a single coefficient of each output pulls back."""
    cells: list[list[int]] = []
    weights: list[float] = []
    batch = max(1, (1 << 21) // max(1, step.cells, sum(map(math.prod, shapes))))
    for first in range(0, step.cells, batch):
        some = np.arange(first, min(first + batch, step.cells))
        parts = step.pull(unit_rows(step.shape, some, 1.0))
        for row in np.concatenate([p.reshape(len(some), -1) for p in parts], axis=1):
            places = np.flatnonzero(row)
            cells.append(places.tolist())
            weights += row[places].tolist()
    constant = step.constant()
    bias = np.zeros(step.shape) if constant is None else np.broadcast_to(constant, step.shape)
    return {"op": "rows", "cells": cells, "weight": dyadic(weights), "bias": dyadic(bias)}
