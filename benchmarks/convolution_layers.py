"""Convolution layers as networks have them, drawn by a seed: family, channels, lengths and batch."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import lunette as ln

__all__ = ["ConvolutionLayer", "draw_convolutions"]

PRODUCTS = (1 << 21, 1 << 31)
"""The fewest and the most multiplications of a forward pass."""

CELLS = 1 << 24
"""The most cells of an input or of a result."""


@dataclass(frozen=True)
class ConvolutionLayer:
    """One layer: our op and the shapes of its input and its weight."""

    name: str
    op: ln.Conv
    shape: tuple[int, ...]
    weight: tuple[int, ...]

    def __str__(self) -> str:
        shape = "×".join(map(str, self.shape))
        return f"{self.name} {shape} to {self.weight[0]}"

    @property
    def products(self) -> int:
        """Multiplications of a forward pass."""
        out = self.op.out_shape(self.shape, self.weight)
        return prod(out) * prod(self.weight[1:])

    def eager(self, x: Any, weight: Any) -> Any:
        """torch's own call for it."""
        from torch.nn import functional

        op = self.op
        convolve = getattr(functional, f"conv{op.rank}d")
        padding = tuple(before for before, _ in op.padding)
        return convolve(x, weight, None, op.stride, padding, op.dilation, op.groups)


def draw_convolutions(seed: int, count: int) -> list[ConvolutionLayer]:
    """`count` layers, the same for the same seed: every family comes before any comes twice."""
    rng = random.Random(seed)
    found: list[ConvolutionLayer] = []
    while len(found) < count:
        families = list(FAMILIES)
        rng.shuffle(families)
        found += [_layer(rng, family) for family in families[: count - len(found)]]
    return found


def _layer(rng: random.Random, family: Callable[[random.Random], Any]) -> ConvolutionLayer:
    """A layer of a family that is neither tiny nor huge, nor larger than its kernel's reach allows."""
    while True:
        name, kernel, settings, channels, rows, lengths = family(rng)
        batch = rng.choice((1, 1, 2, 4, 8, 16))
        shape = (batch, channels, *lengths)
        op = ln.Conv(kernel, **settings)
        weight = (rows, channels // settings.get("groups", 1), *kernel)
        layer = ConvolutionLayer(name, op, shape, weight)
        try:
            out = op.out_shape(shape, weight)
        except ValueError:
            continue
        if PRODUCTS[0] <= layer.products <= PRODUCTS[1] and max(prod(shape), prod(out)) <= CELLS:
            return layer


def _square(rng: random.Random, *sides: int) -> tuple[int, int]:
    """An image, now and then not a square one."""
    side = rng.choice(sides)
    return (
        (side, side) if rng.random() < 0.7 else (side, max(4, round(side * rng.uniform(0.6, 1.7))))
    )


def _vgg(rng: random.Random) -> Any:
    c = rng.choice((64, 128, 256, 512))
    side = {64: (112, 56), 128: (112, 56, 28), 256: (28, 14), 512: (28, 14, 7)}[c]
    return "3×3", (3, 3), {"padding": 1}, c, c, _square(rng, *side)


def _downsampling(rng: random.Random) -> Any:
    c = rng.choice((64, 128, 256))
    return "3×3 stride 2", (3, 3), {"stride": 2, "padding": 1}, c, 2 * c, _square(rng, 56, 28, 14)


def _stem(rng: random.Random) -> Any:
    k, s = rng.choice(((7, 2), (3, 2), (5, 2)))
    rows = rng.choice((32, 64))
    return (
        f"{k}×{k} stem",
        (k, k),
        {"stride": s, "padding": k // 2},
        3,
        rows,
        _square(rng, 224, 160),
    )


def _bottleneck(rng: random.Random) -> Any:
    c, rows = rng.choice(
        ((64, 256), (256, 64), (512, 128), (128, 512), (1024, 256), (256, 1024), (2048, 512))
    )
    side = {64: 56, 128: 28, 256: 14, 512: 7}[min(c, rows)]
    return "1×1", (1, 1), {}, c, rows, _square(rng, side)


def _shortcut(rng: random.Random) -> Any:
    c = rng.choice((64, 128, 256, 512))
    return "1×1 stride 2", (1, 1), {"stride": 2}, c, 2 * c, _square(rng, 56, 28)


def _expansion(rng: random.Random) -> Any:
    c, rows = rng.choice(
        ((16, 96), (24, 144), (144, 24), (32, 192), (192, 64), (96, 576), (160, 960))
    )
    return "1×1 of an inverted bottleneck", (1, 1), {}, c, rows, _square(rng, 112, 56, 28, 14)


def _depthwise(rng: random.Random) -> Any:
    k, s = rng.choice(((3, 1), (3, 2), (5, 1), (5, 2), (7, 1)))
    c = rng.choice((32, 64, 96, 144, 192, 240, 384, 576))
    settings = {"stride": s, "padding": k // 2, "groups": c}
    return f"{k}×{k} depthwise stride {s}", (k, k), settings, c, c, _square(rng, 112, 56, 28, 14)


def _depthwise_small(rng: random.Random) -> Any:
    k, c = rng.choice((3, 5)), rng.choice((240, 480, 672, 960))
    settings = {"padding": k // 2, "groups": c}
    return f"{k}×{k} depthwise small", (k, k), settings, c, c, _square(rng, 14, 7)


def _grouped(rng: random.Random) -> Any:
    c, groups = rng.choice(((128, 32), (256, 32), (256, 4), (64, 2)))
    settings = {"padding": 1, "groups": groups, "stride": rng.choice((1, 1, 2))}
    return f"3×3 groups {groups}", (3, 3), settings, c, c, _square(rng, 56, 28, 14)


def _dilated(rng: random.Random) -> Any:
    d, c = rng.choice((2, 4, 6, 12)), rng.choice((64, 128, 256))
    return (
        f"3×3 dilation {d}",
        (3, 3),
        {"padding": d, "dilation": d},
        c,
        c,
        _square(rng, 56, 33, 28),
    )


def _five(rng: random.Random) -> Any:
    c, rows = rng.choice(((16, 32), (32, 96), (48, 64), (64, 64)))
    return "5×5", (5, 5), {"padding": 2}, c, rows, _square(rng, 56, 28, 14)


def _factored(rng: random.Random) -> Any:
    c = rng.choice((64, 128, 160, 192))
    kernel, padding = rng.choice(
        (((1, 7), (0, 3)), ((7, 1), (3, 0)), ((1, 3), (0, 1)), ((3, 1), (1, 0)))
    )
    return f"{kernel[0]}×{kernel[1]}", kernel, {"padding": padding}, c, c, _square(rng, 17, 35)


def _patches(rng: random.Random) -> Any:
    k, rows = rng.choice(((4, 96), (16, 384), (16, 768), (2, 192)))
    return (
        f"{k}×{k} patches",
        (k, k),
        {"stride": k},
        3 if k > 2 else 96,
        rows,
        _square(rng, 224, 112),
    )


def _segmentation(rng: random.Random) -> Any:
    c, rows = rng.choice(((16, 16), (32, 32), (64, 32), (64, 64)))
    return "3×3 of a U-Net", (3, 3), {"padding": 1}, c, rows, _square(rng, 256, 192, 128)


def _speech(rng: random.Random) -> Any:
    k, s, c, rows = rng.choice(
        ((10, 5, 1, 512), (3, 2, 512, 512), (3, 1, 80, 384), (3, 2, 384, 384), (2, 2, 512, 512))
    )
    n = rng.choice((16000, 8000)) if c == 1 else rng.choice((3000, 1500, 800))
    return (
        f"1-D {k} stride {s}",
        (k,),
        {"stride": s, "padding": k // 2 if s < k else 0},
        c,
        rows,
        (n,),
    )


def _sequence(rng: random.Random) -> Any:
    k, d = rng.choice(((3, 1), (3, 4), (2, 16), (5, 1), (7, 3)))
    c = rng.choice((32, 64, 128, 256))
    n = rng.choice((256, 1024, 4000, 8192))
    return f"1-D {k} dilation {d}", (k,), {"padding": (k - 1) * d // 2, "dilation": d}, c, c, (n,)


def _sequence_depthwise(rng: random.Random) -> Any:
    k, c = rng.choice((3, 15, 31)), rng.choice((144, 256, 512))
    return (
        f"1-D {k} depthwise",
        (k,),
        {"padding": k // 2, "groups": c},
        c,
        c,
        (rng.choice((200, 500, 1600)),),
    )


def _volume(rng: random.Random) -> Any:
    c, rows = rng.choice(((8, 8), (16, 16), (16, 32), (32, 32), (64, 64), (128, 128)))
    side = {8: 64, 16: 48, 32: 32, 64: 16, 128: 8}[c]
    lengths = tuple(max(4, round(side * rng.uniform(0.7, 1.2))) for _ in range(3))
    return "3³", (3, 3, 3), {"padding": 1}, c, rows, lengths


def _volume_down(rng: random.Random) -> Any:
    c = rng.choice((8, 16, 32, 64))
    side = {8: 64, 16: 48, 32: 32, 64: 16}[c]
    return "3³ stride 2", (3, 3, 3), {"stride": 2, "padding": 1}, c, 2 * c, (side,) * 3


def _volume_stem(rng: random.Random) -> Any:
    kernel, stride = rng.choice((((3, 3, 3), 1), ((3, 7, 7), (1, 2, 2)), ((7, 7, 7), 2)))
    padding = tuple(k // 2 for k in kernel)
    shown = "×".join(map(str, kernel))
    return (
        f"{shown} stem",
        kernel,
        {"stride": stride, "padding": padding},
        rng.choice((1, 3)),
        rng.choice((16, 32)),
        (16, 64, 64),
    )


def _volume_point(rng: random.Random) -> Any:
    c, rows = rng.choice(((16, 8), (32, 16), (64, 128), (128, 64)))
    return "1³", (1, 1, 1), {}, c, rows, (rng.choice((8, 16)),) + (rng.choice((16, 28)),) * 2


def _video(rng: random.Random) -> Any:
    kernel, padding = rng.choice((((1, 3, 3), (0, 1, 1)), ((3, 1, 1), (1, 0, 0))))
    c = rng.choice((64, 128))
    return (
        "×".join(map(str, kernel)),
        kernel,
        {"padding": padding},
        c,
        c,
        (8, *_square(rng, 28, 14)),
    )


FAMILIES = (
    _vgg, _downsampling, _stem, _bottleneck, _shortcut, _expansion, _depthwise, _depthwise_small, _grouped, _dilated,
    _five, _factored, _patches, _segmentation, _speech, _sequence, _sequence_depthwise, _volume, _volume_down,
    _volume_stem, _volume_point, _video,
)  # fmt: skip
"""VGG, ResNet, MobileNet, EfficientNet, ResNeXt, DeepLab, Inception, ConvNeXt and ViT, U-Nets of two and three axes,
wav2vec and Whisper, WaveNet, Conformer, C3D and S3D."""
