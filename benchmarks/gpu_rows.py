"""The GPU workloads: what is measured, which bytes count, and which peers offer the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch.nn import functional as F

import lunette as ln
from lunette.kernels import triton as kernels

IMAGES = (256, 64, 112, 112)
VOLUMES = (8, 32, 64, 128, 128)
LARGE = (32, 64, 112, 112)
BETA = 2.0


@dataclass(frozen=True)
class Row:
    """One line of the table: ours and the peers as calls, made for a device and a dtype."""

    name: str
    goal: dict[str, float]
    make: Callable[[Any], Work]


@dataclass(frozen=True)
class Work:
    """Our call, the bytes it must at least read and write, and peers: each makes its call when asked."""

    ours: Callable[[], Any]
    bytes: int
    eager: Callable[[], Callable[[], Any]] | None = None
    compiled: Callable[[], Callable[[], Any]] | None = None
    cudnn: Callable[[], Callable[[], Any]] | None = None


def size(*tensors: Any) -> int:
    return sum(t.numel() * t.element_size() for t in tensors)


def images(dtype: Any, shape: tuple[int, ...] = IMAGES, last: bool = False) -> Any:
    """Random numbers, channels last if asked."""
    generator = torch.Generator("cuda").manual_seed(0)
    x = torch.randn(shape, device="cuda", generator=generator).to(dtype)
    return x.contiguous(memory_format=torch.channels_last) if last else x


def forward(
    op: Any, eager: Any, shape: Any = IMAGES, cudnn: Any = None, last: bool = False
) -> Callable[[Any], Work]:
    def make(dtype: Any) -> Work:
        x = images(dtype, shape, last)
        y = torch.empty(op.out_shape(tuple(x.shape)), dtype=x.dtype, device=x.device)

        def compiled() -> Callable[[], Any]:
            made = torch.compile(eager)
            return lambda: made(x)

        return Work(
            lambda: kernels.forward(op, (x,)),
            size(x, y),
            lambda: lambda: eager(x),
            compiled,
            (lambda: cudnn(x, y)) if cudnn else None,
        )

    return make


def backward_of(eager: Any, x: Any, g: Any) -> Callable[[], Any]:
    """torch's own backward alone: the graph is kept, the gradient computed anew each call."""
    leaf = x.detach().requires_grad_()
    y = eager(leaf)
    return lambda: torch.autograd.grad(y, leaf, g, retain_graph=True)


def both_of(eager: Any, x: Any, g: Any) -> Callable[[], Any]:
    """torch's forward and backward: what a gradient from the input alone has to do."""
    leaf = x.detach().requires_grad_()
    return lambda: torch.autograd.grad(eager(leaf), leaf, g)


def gradient(
    op: Any, eager: Any, form: str, shape: Any = IMAGES, last: bool = False
) -> Callable[[Any], Work]:
    """`form` is "offsets", or "x" where the gradient reads the input, or "grad" where it does not."""

    def make(dtype: Any) -> Work:
        x = images(dtype, shape, last)
        g = images(dtype, op.out_shape(tuple(x.shape)), last)
        backward = both_of if form == "x" else backward_of

        def peer() -> Callable[[], Any]:
            return backward(eager, x, g)

        def compiled() -> Callable[[], Any]:
            torch._dynamo.reset()
            return backward(torch.compile(eager), x, g)

        if form == "offsets":
            _, offsets = kernels.forward_with_offsets(op, (x,))
            return Work(
                lambda: kernels.vjp_from_offsets(op, x.shape, offsets, g),
                size(offsets, g, x),
                peer,
                compiled,
            )
        moved = size(x, g) + (size(x) if form == "x" else 0)
        return Work(lambda: kernels.vjp(op, (x,), g), moved, peer, compiled)

    return make


def offsets(op: Any, eager: Any) -> Callable[[Any], Work]:
    def make(dtype: Any) -> Work:
        x = images(dtype)
        outputs = prod(op.out_shape(tuple(x.shape)))
        return Work(
            lambda: kernels.forward_with_offsets(op, (x,)),
            size(x) + outputs * (x.element_size() + 1),
            lambda: lambda: eager(x),
        )

    return make


def smooth(x: Any) -> Any:
    """Smooth max the way users write it in torch: it overflows for large inputs."""
    k = 9.0
    return torch.log(F.avg_pool2d(torch.exp(BETA * x), 3, 2, 1) * k) / BETA


def cudnn_pool(mode: str, kernel: int, stride: int, padding: int) -> Any:
    from benchmarks.cudnn import pooling

    return lambda x, y: pooling(x, y, mode, kernel, stride, padding)


def both(float32: float, half: float) -> dict[str, float]:
    return {"float32": float32, "bfloat16": half}


ROWS = [
    Row("max k2s2 forward", both(0.92, 0.80), forward(ln.MaxPool((2, 2)), lambda x: F.max_pool2d(x, 2), cudnn=cudnn_pool("max", 2, 2, 0))),
    Row("mean k2s2 forward", both(0.92, 0.80), forward(ln.AvgPool((2, 2)), lambda x: F.avg_pool2d(x, 2), cudnn=cudnn_pool("mean", 2, 2, 0))),
    Row("max k3s2p1 forward", both(0.85, 0.65), forward(ln.MaxPool((3, 3), 2, 1), lambda x: F.max_pool2d(x, 3, 2, 1), cudnn=cudnn_pool("max", 3, 2, 1))),
    Row("mean k3s2p1 forward", both(0.85, 0.65), forward(ln.AvgPool((3, 3), 2, 1), lambda x: F.avg_pool2d(x, 3, 2, 1), cudnn=cudnn_pool("mean", 3, 2, 1))),
    Row("max k3s1p1 forward", both(0.70, 0.50), forward(ln.MaxPool((3, 3), 1, 1), lambda x: F.max_pool2d(x, 3, 1, 1), cudnn=cudnn_pool("max", 3, 1, 1))),
    Row("max k3s2p1 with offsets", {}, offsets(ln.MaxPool((3, 3), 2, 1), lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True))),
    Row("max k3s2p1 vjp from offsets", both(0.75, 0.60), gradient(ln.MaxPool((3, 3), 2, 1), lambda x: F.max_pool2d(x, 3, 2, 1), "offsets")),
    Row("mean k2s2 vjp", both(0.85, 0.70), gradient(ln.AvgPool((2, 2)), lambda x: F.avg_pool2d(x, 2), "grad")),
    Row("mean k3s2p1 vjp", both(0.85, 0.70), gradient(ln.AvgPool((3, 3), 2, 1), lambda x: F.avg_pool2d(x, 3, 2, 1), "grad")),
    Row("adaptive mean 7 forward", both(0.80, 0.65), forward(ln.AdaptiveAvgPool((7, 7)), lambda x: F.adaptive_avg_pool2d(x, 7))),
    Row("adaptive max 7 forward", both(0.80, 0.65), forward(ln.AdaptiveMaxPool((7, 7)), lambda x: F.adaptive_max_pool2d(x, 7))),
    Row("adaptive mean 7 vjp", both(0.80, 0.65), gradient(ln.AdaptiveAvgPool((7, 7)), lambda x: F.adaptive_avg_pool2d(x, 7), "grad")),
    Row("adaptive max 7 vjp", both(0.80, 0.65), gradient(ln.AdaptiveMaxPool((7, 7)), lambda x: F.adaptive_max_pool2d(x, 7), "x")),
    Row("global mean forward", both(0.80, 0.65), forward(ln.GlobalAvgPool(2), lambda x: x.mean((2, 3), keepdim=True))),
    Row("global max forward", both(0.80, 0.65), forward(ln.GlobalMaxPool(2), lambda x: x.amax((2, 3), keepdim=True))),
    Row("global mean vjp", both(0.80, 0.65), gradient(ln.GlobalAvgPool(2), lambda x: x.mean((2, 3), keepdim=True), "grad")),
    Row("global max vjp", both(0.80, 0.65), gradient(ln.GlobalMaxPool(2), lambda x: x.amax((2, 3), keepdim=True), "x")),
    Row("max 3-D k2s2 forward", {"float32": 0.85}, forward(ln.MaxPool((2, 2, 2)), lambda x: F.max_pool3d(x, 2), VOLUMES)),
    Row("max 3-D k3s2p1 forward", {"float32": 0.60}, forward(ln.MaxPool((3, 3, 3), 2, 1), lambda x: F.max_pool3d(x, 3, 2, 1), VOLUMES)),
    Row("max k13s1p6 forward", {"float32": 0.25}, forward(ln.MaxPool((13, 13), 1, 6), lambda x: F.max_pool2d(x, 13, 1, 6), LARGE, cudnn_pool("max", 13, 1, 6))),
    Row("smooth k3s2p1 forward", {"float32": 0.60}, forward(ln.SmoothMaxPool((3, 3), BETA, 2, 1), smooth)),
    Row("smooth k3s2p1 vjp", {"float32": 0.50}, gradient(ln.SmoothMaxPool((3, 3), BETA, 2, 1), smooth, "x")),
    Row("max k3s2p1 forward, channels last", {}, forward(ln.MaxPool((3, 3), 2, 1), lambda x: F.max_pool2d(x, 3, 2, 1), last=True)),
    Row("max k3s2p1 vjp, channels last", {}, gradient(ln.MaxPool((3, 3), 2, 1), lambda x: F.max_pool2d(x, 3, 2, 1), "offsets", last=True)),
    Row("mean k2s2 vjp, channels last", {}, gradient(ln.AvgPool((2, 2)), lambda x: F.avg_pool2d(x, 2), "grad", last=True)),
    Row("mean k3s2p1 vjp, channels last", {}, gradient(ln.AvgPool((3, 3), 2, 1), lambda x: F.avg_pool2d(x, 3, 2, 1), "grad", last=True)),
    Row("adaptive mean 7 vjp, channels last", {}, gradient(ln.AdaptiveAvgPool((7, 7)), lambda x: F.adaptive_avg_pool2d(x, 7), "grad", last=True)),
    Row("global mean forward, channels last", {}, forward(ln.GlobalAvgPool(2), lambda x: x.mean((2, 3), keepdim=True), last=True)),
    Row("global max vjp, channels last", {}, gradient(ln.GlobalMaxPool(2), lambda x: x.amax((2, 3), keepdim=True), "x", last=True)),
]  # fmt: skip
