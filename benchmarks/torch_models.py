"""Whole models on the CPU with torch's pooling and with ours: inference and a training step.

`python -m benchmarks torch_models [--model NAME] [--seconds S]`. Each model is built twice from
one seed; `lunette.torch.replace` swaps the pooling of the second. Outputs are compared before
anything is timed, and the two are timed in turns, so that both meet the same machine.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import time
from collections.abc import Callable
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
    target = torch.arange(len(x)) % 10

    def call() -> Any:
        optimiser.zero_grad()
        loss = nn.functional.cross_entropy(model(x), target)
        loss.backward()
        optimiser.step()
        return loss.detach()

    return call


def in_turns(calls: list[Callable[[], Any]], seconds: float) -> list[float]:
    """The median time of each call, the calls taking turns."""
    for call in calls:
        call()
    times: list[list[float]] = [[] for _ in calls]
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times[0]) < 5:
        for call, record in zip(calls, times, strict=True):
            start = time.perf_counter()
            call()
            record.append(time.perf_counter() - start)
    return [statistics.median(record) for record in times]


def main(arguments: list[str]) -> None:
    """Print a row per model and kind of work."""
    parser = argparse.ArgumentParser(prog="benchmarks torch_models", description=__doc__)
    parser.add_argument("--model", choices=MODELS, action="append")
    parser.add_argument("--seconds", type=float, default=5.0, help="per row")
    options = parser.parse_args(arguments)
    print(describe(), f"torch threads: {torch.get_num_threads()}")
    print(f"{'model':10} {'work':10} {'torch ms':>9} {'lunette ms':>11} {'speed-up':>9}")
    for name in options.model or MODELS:
        for kind in (inference, training):
            torch.manual_seed(0)
            theirs, x = MODELS[name]()
            ours = copy.deepcopy(theirs)
            if lt.replace(ours).left:
                raise RuntimeError(f"{name}: some pooling was left as it was")
            calls = [kind(theirs, x), kind(ours, x)]
            expected, result = (call() for call in calls)
            torch.testing.assert_close(result, expected, rtol=1e-3, atol=1e-4)
            before, after = in_turns(calls, options.seconds)
            print(
                f"{name:10} {kind.__name__:10} {before * 1e3:9.2f} {after * 1e3:11.2f} "
                f"{before / after:8.2f}×"
            )


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
