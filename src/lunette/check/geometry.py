"""A geometry: an op's arguments with the shapes of its operands, and what they put to the test."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lunette.check.calls import OPS

__all__ = ["WIDTHS", "Geometry", "some_batch", "spread", "valid"]

WIDTHS = (7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65)
"""Lengths around every vector width in use."""


@dataclass(frozen=True)
class Geometry:
    """An op's arguments with the shapes of its operands; `hard` ones come first and get more inputs."""

    op: str
    arguments: dict[str, Any]
    shapes: tuple[tuple[int, ...], ...]
    hard: bool = False
    tags: frozenset[str] = field(default=frozenset())


def valid(geometry: Geometry) -> Geometry | None:
    """The geometry with its tags; None where the op refuses it."""
    make = OPS[geometry.op]
    if make is None:
        return geometry
    try:
        made = make(**geometry.arguments)
        out = made.out_shape(*geometry.shapes)
    except ValueError:
        return None
    return Geometry(
        geometry.op, geometry.arguments, geometry.shapes, geometry.hard, _tags(geometry, out)
    )


def _tags(geometry: Geometry, out: tuple[int, ...]) -> frozenset[str]:
    """The properties that this geometry puts to the test."""
    arguments, shape, tags = geometry.arguments, geometry.shapes[0], set()
    kernel = arguments.get("kernel", ())
    padding = arguments.get("padding", ())
    if padding == "same" or any(map(any, padding)):
        tags.add("padding")
    if padding == "same" or any(before != after for before, after in padding):
        tags.add("asymmetric")
    if arguments.get("ceil_mode"):
        tags.add("ceil_mode")
    if any(d > 1 for d in arguments.get("dilation", ())):
        tags.add("dilation")
    if any(s > k for s, k in zip(arguments.get("stride", ()), kernel, strict=False)):
        tags.add("strides")
    if shape[-1] > 6:
        tags.add("length")
    if arguments.get("groups", 1) > 1:
        tags.add("groups")
    if 0 in out:
        tags.add("empty batch")
    return frozenset(tags)


def spread(value: Any, rank: int) -> tuple[Any, ...]:
    """One value per axis."""
    return tuple(value) if isinstance(value, tuple) else (value,) * rank


def some_batch(rng: np.random.Generator) -> tuple[int, ...]:
    """Leading axes: mostly two short ones, sometimes another number of them or an empty one."""
    choices: list[tuple[int, ...]] = [(1, 2), (2, 3), (1, 1), (2, 1), (3,), (), (2, 1, 2), (0, 2)]
    weights = [0.34, 0.16, 0.16, 0.1, 0.1, 0.06, 0.05, 0.03]
    return choices[int(rng.choice(len(choices), p=weights))]
