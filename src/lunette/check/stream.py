"""The calls of a run, in order: geometry after geometry, op by turns, with a few bad calls after each round."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from itertools import islice, zip_longest
from math import prod
from typing import Any

import numpy as np

from lunette.check.bad import bad_calls
from lunette.check.calls import VERBS, Array, Call
from lunette.check.geometries import geometries
from lunette.check.geometry import Geometry
from lunette.check.inputs import FILLS, dtype_of, fill, fills_for
from lunette.ops.base import is_float

__all__ = ["DTYPES", "stream"]

DTYPES = (
    "float32", "float64", "float16", "bfloat16", "int8", "uint8", "int16", "uint16", "int32",
    "uint32", "int64", "uint64", "bool",
)  # fmt: skip
WEIGHTS = (0.32, 0.2, 0.12, 0.11, 0.03, 0.04, 0.03, 0.02, 0.04, 0.01, 0.05, 0.01, 0.02)
LAYOUT_WEIGHTS = {"contiguous": 0.7, "strided": 0.1, "offset": 0.06, "transposed": 0.08}
TURNS = {"max": 3, "mean": 3}
"""How many geometries an op tries in its turn, where it is not one."""
BAD = 6
"""How many bad calls follow a round through the ops, where a program is cheap."""
LONG = 2000
"""Inputs longer than this are tried on the verbs that read few of their cells."""


def stream(
    ops: Sequence[str],
    verbs: Sequence[str],
    dtypes: Sequence[str],
    layouts: Sequence[str],
    seed: int,
    inputs: int = 1,
    fit: Callable[[Geometry], Geometry] = lambda geometry: geometry,
) -> Iterator[Call]:
    """Calls without end, the same for the same seed; `inputs` per geometry, more for hard ones.

    `fit` may turn three geometries of four into something nearer to what a target offers.
    """
    # A bad call may crash the target, and a new start is dear: they take turns with the others, op by op.
    bad = _by_turns([[c for c in bad_calls(op) if c.verb in verbs] for op in ops])
    generators = {op: np.random.default_rng([seed, zlib.crc32(op.encode())]) for op in ops}
    sources = {op: geometries(op, rng) for op, rng in generators.items()}
    while True:
        for op in ops:
            for _ in range(TURNS.get(op, 1)):
                geometry, rng = next(sources[op]), generators[op]
                if rng.random() < 0.75:
                    geometry = fit(geometry)
                yield from _calls(geometry, verbs, dtypes, layouts, rng, inputs)
        yield from islice(bad, BAD if inputs == 1 else 1)


def _by_turns(lists: list[list[Call]]) -> Iterator[Call]:
    """The first of each list, then the second of each, until all are through."""
    for together in zip_longest(*lists):
        yield from (call for call in together if call is not None)


def _calls(
    geometry: Geometry,
    verbs: Sequence[str],
    dtypes: Sequence[str],
    layouts: Sequence[str],
    rng: np.random.Generator,
    inputs: int,
) -> Iterator[Call]:
    possible = [v for v in verbs if v in _verbs(geometry)]
    if not possible:
        return
    if inputs > 1:  # few programs, each on several inputs
        for verb in rng.permutation(possible)[:2]:
            dtype = _dtype(geometry, str(verb), dtypes, rng)
            for _ in range(inputs if dtype is not None else 0):
                yield _call(geometry, str(verb), dtype, layouts, rng)
        return
    chosen = [*possible, possible[0]] if geometry.hard else [str(rng.choice(possible))]
    for verb in chosen:
        dtype = _dtype(geometry, verb, dtypes, rng)
        if dtype is not None:
            yield _call(geometry, verb, dtype, layouts, rng)


def _verbs(geometry: Geometry) -> tuple[str, ...]:
    if geometry.op == "unpool":
        return ("forward",)
    long = prod(geometry.shapes[0]) > LONG
    if "max" in geometry.op and "smooth" not in geometry.op:
        return ("forward", "indices") if long else VERBS
    return ("forward", "jvp", "vjp")


def _dtype(
    geometry: Geometry, verb: str, dtypes: Sequence[str], rng: np.random.Generator
) -> np.dtype[Any] | None:
    names = list(dtypes)
    if verb in ("jvp", "vjp") or geometry.op.startswith("conv"):
        names = [n for n in names if is_float(dtype_of(n))]
    if prod(geometry.shapes[0]) > 2**20:
        names = [n for n in names if n in ("int8", "uint8", "bool")] or names[:1]
    weights = np.array([WEIGHTS[DTYPES.index(n)] for n in names])
    return dtype_of(str(rng.choice(names, p=weights / weights.sum()))) if names else None


def _call(
    geometry: Geometry,
    verb: str,
    dtype: Any,
    layouts: Sequence[str],
    rng: np.random.Generator,
) -> Call:
    names, weights = zip(*fills_for(geometry.op, verb, dtype), strict=True)
    name = str(rng.choice(names, p=np.array(weights) / sum(weights)))
    arguments, tags = dict(geometry.arguments), set(geometry.tags)
    if geometry.op == "mean" and "padding" in tags and rng.random() < 0.12:
        # What does the target do when nobody says whether padding counts?
        arguments.pop("count_include_pad")
        tags.add("default padding")
    rank = _rank(geometry)
    first = fill(name, geometry.shapes[0], dtype, rng, rank)
    rest = [fill("random", s, dtype, rng, len(s)) for s in geometry.shapes[1:]]
    if FILLS[name][0]:
        tags.add(FILLS[name][0])
    operands: tuple[Array, ...] = (first, *rest)
    if geometry.op == "unpool":
        operands = (first, _positions(geometry, rng))
    layout = _layout(layouts, rng)
    if layout != "contiguous":
        tags.add("layout")
    tangents: tuple[Array, ...] = ()
    gradient = None
    if verb == "jvp":
        tangents = tuple(_direction(a.shape, dtype, rng) for a in operands)
    call = Call(
        geometry.op, arguments, verb, operands, tangents, None, layout, tags=frozenset(tags)
    )
    if verb == "vjp":
        shape = call.lunette_op.out_shape(*geometry.shapes)
        gradient = _direction(
            shape, call.lunette_op.result_dtype(*(a.dtype for a in operands)), rng
        )
        call = Call(
            geometry.op, arguments, verb, operands, (), gradient, layout, tags=frozenset(tags)
        )
    return call


def _rank(geometry: Geometry) -> int:
    arguments = geometry.arguments
    for name in ("kernel", "output_size"):
        if name in arguments:
            return len(arguments[name])
    return int(arguments["ndim"])


def _direction(shape: tuple[int, ...], dtype: np.dtype[Any], rng: np.random.Generator) -> Array:
    """A tangent or gradient: small whole numbers, so that a misplaced one is seen, or random ones."""
    if rng.random() < 0.5:
        return rng.integers(1, 60, shape).astype(dtype)
    return rng.standard_normal(shape).astype(dtype)


def _positions(geometry: Geometry, rng: np.random.Generator) -> Array:
    """Indices to unpool: distinct within each image, so that no order of writing matters."""
    shape, rank = geometry.shapes[0], _rank(geometry)
    cells = int(np.prod(geometry.arguments["output_size"]))
    per_image = int(np.prod(shape[len(shape) - rank :]))
    images = int(np.prod(shape[: len(shape) - rank]))
    rows = [rng.permutation(cells)[:per_image] for _ in range(images)]
    return np.array(rows, np.int64).reshape(shape)


def _layout(layouts: Sequence[str], rng: np.random.Generator) -> str:
    weights = np.array([LAYOUT_WEIGHTS.get(name, 0.06) for name in layouts])
    return str(rng.choice(list(layouts), p=weights / weights.sum()))
