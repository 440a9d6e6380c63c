"""Whole models with torch's pooling, with ours, and with hardly any: inference and a training step.

`python -m benchmarks torch_models [--device cuda] [--model NAME] [--seconds S]`. Each model is built three times from
one seed; `lunette.torch.replace` swaps the pooling of the second, and in the third every pooling only takes cells at
its stride, which is what a pooling that costs nothing could give. Outputs of the first two are compared before anything is timed, and all
are timed in turns, so that they meet the same machine. Models of torchvision are there too, where it is installed.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import torch
from torch import nn

import lunette.torch as lt
from benchmarks.machine import describe


def block(inside: int, outside: int) -> list[nn.Module]:
    """A 3×3 convolution, normalisation and relu."""
    return [
        nn.Conv2d(inside, outside, 3, padding=1, bias=False),
        nn.BatchNorm2d(outside),
        nn.ReLU(),
    ]


def vgg() -> tuple[nn.Module, torch.Tensor]:
    """Five stages of convolutions, each ended by a 2×2 max pool, on 8 images of 64×64."""
    layers: list[nn.Module] = []
    inside = 3
    for width in (16, 32, 64, 64, 64):
        layers += [*block(inside, width), nn.MaxPool2d(2)]
        inside = width
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inside, 10)]
    return nn.Sequential(*layers), torch.randn(8, 3, 64, 64)


class Bottleneck(nn.Module):
    """A residual block of two convolutions."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(*block(width, width), *block(width, width)[:2])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x + self.body(x))


def resnet() -> tuple[nn.Module, torch.Tensor]:
    """ResNet's stem with its 3×3 stride-2 max pool, two residual blocks, 4 images of 224×224."""
    stem = [
        nn.Conv2d(3, 64, 7, 2, 3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, 1),
    ]
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)]
    model = nn.Sequential(*stem, Bottleneck(64), Bottleneck(64), *head)
    return model, torch.randn(4, 3, 224, 224)


class Inception(nn.Module):
    """A 1×1 convolution beside a 3×3 stride-1 max pool with its own 1×1 convolution."""

    def __init__(self, inside: int, outside: int) -> None:
        super().__init__()
        self.direct = nn.Conv2d(inside, outside, 1)
        self.pooled = nn.Sequential(nn.MaxPool2d(3, 1, 1), nn.Conv2d(inside, outside, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(torch.cat([self.direct(x), self.pooled(x)], 1))


def inception() -> tuple[nn.Module, torch.Tensor]:
    """Blocks whose pooling keeps the resolution, on 4 images of 56×56 with 64 channels."""
    stages = [Inception(64, 32), Inception(64, 32), nn.AvgPool2d(2), Inception(64, 32)]
    model = nn.Sequential(*stages, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))
    return model, torch.randn(4, 64, 56, 56)


MODELS: dict[str, Callable[[], tuple[nn.Module, torch.Tensor]]] = {
    "vgg": vgg,
    "resnet": resnet,
    "inception": inception,
}

VISION = {
    "resnet18": 224, "googlenet": 224, "squeezenet1_1": 224, "densenet121": 224, "vgg11_bn": 224,
    "mobilenet_v3_small": 224, "inception_v3": 299,
}  # fmt: skip
"""torchvision's models with pooling in them, and the side of their images."""


def vision(name: str) -> tuple[nn.Module, torch.Tensor]:
    """One of torchvision's models with random weights, on 16 images."""
    import torchvision

    options = {"init_weights": False} if name in ("googlenet", "inception_v3") else {}
    if options:
        options["aux_logits"] = False
    model = torchvision.models.get_model(name, weights=None, **options)
    return model, torch.randn(16, 3, VISION[name], VISION[name])


def named(name: str) -> tuple[nn.Module, torch.Tensor]:
    """A model and its input, by name."""
    return MODELS[name]() if name in MODELS else vision(name)


class Strided(nn.Module):
    """Cells at a pooling's stride, in its output's shape: next to no work."""

    def __init__(self, pool: nn.Module) -> None:
        super().__init__()
        self.pool = pool

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: tuple[int, ...] = self.pool(x.to("meta")).shape
        for axis in range(2, x.ndim):
            n, m = x.shape[axis], found[axis]
            index = [slice(None)] * x.ndim
            index[axis] = slice(0, None, max((n - 1) // max(m - 1, 1), 1))
            x = x[tuple(index)].narrow(axis, 0, m)
        return x.contiguous()


def without_pooling(model: nn.Module) -> nn.Module:
    """The model with `Strided` for each pooling module that `replace` would swap."""
    for change in lt.replace(copy.deepcopy(model)).replaced:
        parent, _, key = change.name.rpartition(".")
        setattr(model.get_submodule(parent), key, Strided(change.before))
    return model


def inference(model: nn.Module, x: torch.Tensor) -> Callable[[], Any]:
    """A forward pass without gradients."""
    model.eval()

    def call() -> Any:
        with torch.inference_mode():
            return model(x)

    return call


def training(model: nn.Module, x: torch.Tensor) -> Callable[[], Any]:
    """Forward, backward and a step of SGD."""
    model.train()
    optimiser = torch.optim.SGD(model.parameters(), lr=1e-4)
    target = torch.arange(len(x), device=x.device) % 10

    def call() -> Any:
        optimiser.zero_grad()
        loss = nn.functional.cross_entropy(model(x), target)
        loss.backward()
        optimiser.step()
        return loss.detach()

    return call


def in_turns(
    calls: list[Callable[[], Any]], seconds: float, wait: Callable[[], Any] = lambda: None
) -> list[float]:
    """The median time of each call, the calls taking turns; `wait` ends what a device still does."""
    for call in calls:
        call()
        wait()
    times: list[list[float]] = [[] for _ in calls]
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times[0]) < 5:
        for call, record in zip(calls, times, strict=True):
            start = time.perf_counter()
            call()
            wait()
            record.append(time.perf_counter() - start)
    return [statistics.median(record) for record in times]


def main(arguments: list[str]) -> None:
    """Print a row per model and kind of work."""
    parser = argparse.ArgumentParser(prog="benchmarks torch_models", description=__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--model", choices=[*MODELS, *VISION], action="append")
    parser.add_argument("--seconds", type=float, default=5.0, help="per row")
    options = parser.parse_args(arguments)
    names = options.model or [*MODELS, *(VISION if find_spec("torchvision") else ())]
    print(describe(), f"device: {options.device}, torch threads: {torch.get_num_threads()}")
    print(
        "speed-up: torch over lunette; possible: torch over a model whose poolings only take cells at their stride"
    )
    print(
        f"{'model':18} {'work':10} {'torch ms':>9} {'lunette ms':>11} {'speed-up':>9} {'possible':>9}"
    )
    ratios = []
    for name in names:
        for kind in (inference, training):
            ratios.append(_row(name, kind, options.device, options.seconds))
    print(
        f"speed-up from {min(ratios):.2f} to {max(ratios):.2f}, median {statistics.median(ratios):.2f}"
    )


def _row(name: str, kind: Any, device: str, seconds: float) -> float:
    """Measure and print one model at one kind of work; the speed-up."""
    torch.manual_seed(0)
    theirs, x = named(name)
    theirs, x = theirs.to(device), x.to(device)
    ours, least = copy.deepcopy(theirs), without_pooling(copy.deepcopy(theirs))
    if lt.replace(ours).left:
        raise RuntimeError(f"{name}: some pooling was left as it was")
    calls = [kind(theirs, x), kind(ours, x), kind(least, x)]
    if not any(isinstance(m, nn.Dropout) and kind is training for m in theirs.modules()):
        expected, result = (call() for call in calls[:2])
        torch.testing.assert_close(result, expected, rtol=1e-3, atol=1e-3)
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    before, after, possible = in_turns(calls, seconds, wait)
    print(
        f"{name:18} {kind.__name__:10} {before * 1e3:9.2f} {after * 1e3:11.2f} "
        f"{before / after:8.2f}× {before / possible:8.2f}×",
        flush=True,
    )
    return before / after


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
