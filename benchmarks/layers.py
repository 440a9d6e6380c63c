"""Pooling layers drawn at random from what networks have, with torch's own call for each."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import lunette as ln

__all__ = ["Layer", "draw"]

LENGTHS = {1: (31, 4096), 2: (6, 160), 3: (4, 48)}
"""The shortest and longest axis of each rank."""

CELLS = (1 << 13, 1 << 25)
"""The smallest and largest input, in cells."""


@dataclass(frozen=True)
class Layer:
    """One layer: our op, torch's function, and the input it is measured on."""

    name: str
    op: Any
    eager: Callable[[Any], Any]
    shape: tuple[int, ...]
    dtype: str
    channels_last: bool

    def __str__(self) -> str:
        shape = "×".join(map(str, self.shape))
        return f"{self.name} {shape} {self.dtype}{' last' if self.channels_last else ''}"

    def input(self, device: str, seed: int = 0) -> Any:
        """Random numbers in the layer's shape, dtype and memory format."""
        import torch

        generator = torch.Generator(device).manual_seed(seed)
        x = torch.randn(self.shape, device=device, generator=generator)
        x = x.to(getattr(torch, self.dtype))
        if not self.channels_last:
            return x
        last = torch.channels_last if x.ndim == 4 else torch.channels_last_3d
        return x.contiguous(memory_format=last)


def draw(seed: int, count: int, dtypes: tuple[str, ...], most_cells: int = CELLS[1]) -> list[Layer]:
    """`count` layers; the same for the same seed."""
    rng = random.Random(seed)
    return [_layer(rng, rng.choice(dtypes), most_cells) for _ in range(count)]


def _layer(rng: random.Random, dtype: str, most_cells: int) -> Layer:
    rank = rng.choices((1, 2, 3), (2, 6, 2))[0]
    shape = _shape(rng, rank, most_cells)
    kind = rng.choices(("max", "mean", "adaptive", "global"), (5, 3, 2, 2))[0]
    make = {"max": _max, "mean": _mean, "adaptive": _adaptive, "global": _global}[kind]
    name, op, eager = make(rng, rank, shape[2:])
    last = rank > 1 and rng.random() < 0.25
    return Layer(f"{name} {rank}-D", op, eager, shape, dtype, last)


def _shape(rng: random.Random, rank: int, most_cells: int) -> tuple[int, ...]:
    """Batch, channels and lengths: odd and even alike, up to so many cells."""
    low, high = LENGTHS[rank]
    while True:
        side = _log_uniform(rng, low, high)
        lengths = [max(low, round(side * rng.uniform(0.8, 1.25))) for _ in range(rank)]
        channels = rng.choice((3, 16, 24, 32, 48, 64, 96, 128, 192, 240, 256, 384, 512))
        shape = (_log_uniform(rng, 1, 128), channels, *lengths)
        if CELLS[0] <= prod(shape) <= most_cells:
            return shape


def _log_uniform(rng: random.Random, low: int, high: int) -> int:
    return round(low * (high / low) ** rng.random())


def _window(rng: random.Random, rank: int, lengths: tuple[int, ...]) -> tuple[int, int, int]:
    """Kernel, stride and padding, as networks have them."""
    common = (
        (2, 2, 0),
        (3, 2, 1),
        (3, 2, 0),
        (3, 1, 1),
        (4, 4, 0),
        (5, 1, 2),
        (7, 7, 0),
        (5, 3, 2),
    )
    long = ((9, 1, 4), (13, 1, 6), (25, 1, 12)) if rank < 3 else ()
    while True:
        kernel, stride, padding = rng.choice(long if long and rng.random() < 0.15 else common)
        if kernel <= min(lengths):
            return kernel, stride, padding


def _max(rng: random.Random, rank: int, lengths: tuple[int, ...]) -> Any:
    from torch.nn import functional

    k, s, p = _window(rng, rank, lengths)
    pool = getattr(functional, f"max_pool{rank}d")
    return f"max k{k}s{s}p{p}", ln.MaxPool((k,) * rank, s, p), lambda x: pool(x, k, s, p)


def _mean(rng: random.Random, rank: int, lengths: tuple[int, ...]) -> Any:
    from torch.nn import functional

    k, s, p = _window(rng, rank, lengths)
    pool = getattr(functional, f"avg_pool{rank}d")
    return f"mean k{k}s{s}p{p}", ln.AvgPool((k,) * rank, s, p), lambda x: pool(x, k, s, p)


def _adaptive(rng: random.Random, rank: int, lengths: tuple[int, ...]) -> Any:
    from torch.nn import functional

    bins = rng.choice([m for m in (1, 2, 3, 5, 7, 8) if m <= min(lengths)])
    word, op = rng.choice((("max", ln.AdaptiveMaxPool), ("avg", ln.AdaptiveAvgPool)))
    pool = getattr(functional, f"adaptive_{word}_pool{rank}d")
    return f"adaptive {word} {bins}", op((bins,) * rank), lambda x: pool(x, bins)


def _global(rng: random.Random, rank: int, lengths: tuple[int, ...]) -> Any:
    axes = tuple(range(-rank, 0))
    if rng.random() < 0.7:
        return "global mean", ln.GlobalAvgPool(rank), lambda x: x.mean(axes, keepdim=True)
    return "global max", ln.GlobalMaxPool(rank), lambda x: x.amax(axes, keepdim=True)
