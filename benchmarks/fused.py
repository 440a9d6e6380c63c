"""Pooling between a relu and an addition under torch.compile: one node of ours, or torch's operators, which inductor fuses.

`python -m benchmarks fused cuda|cpu --seed S --layers N` draws layers, compares the results, and times both in turns.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from math import exp, log
from typing import Any

from benchmarks.draw import DTYPES, VERBS, interleaved
from benchmarks.layers import Layer, draw

__all__ = ["main"]


def main(arguments: list[str]) -> None:
    """Draw, compare, measure, print."""
    parser = argparse.ArgumentParser(prog="benchmarks fused", description=__doc__.splitlines()[0])
    parser.add_argument("device", choices=("cuda", "cpu"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--layers", type=int, default=10)
    chosen = parser.parse_args(arguments)
    rows = []
    for number, layer in enumerate(draw(chosen.seed, chosen.layers, DTYPES[chosen.device])):
        times = {
            verb: interleaved(calls, chosen.device)
            for verb, calls in _calls(layer, chosen.device).items()
        }
        rows.append(times)
        parts = [f"{v} {t['one node']:.0f}/{t['fused']:.0f} µs" for v, t in times.items()]
        print(f"{number:3} {layer!s:58} {'  '.join(parts)}", flush=True)
    print(f"{chosen.device}: relu, pooling, addition; one node / torch's operators fused")
    for verb in VERBS:
        ratios = sorted(t[verb]["fused"] / t[verb]["one node"] for t in rows)
        mean = exp(sum(map(log, ratios)) / len(ratios))
        faster = sum(r < 1 for r in ratios)
        print(
            f"{verb:8} time fused over time of one node: geometric mean {mean:.2f}, from {ratios[0]:.2f} "
            f"to {ratios[-1]:.2f}; fused is faster in {faster} of {len(ratios)}"
        )


def _calls(layer: Layer, device: str) -> dict[str, dict[str, Callable[[], Any]]]:
    """verb → how → a call, each made once."""
    import torch

    import lunette.torch as lt

    x = layer.input(device)
    leaf = x.clone().requires_grad_()
    results: dict[str, list[Any]] = {verb: [] for verb in VERBS}
    calls: dict[str, dict[str, Callable[[], Any]]] = {verb: {} for verb in VERBS}
    for how in ("one node", "fused"):
        torch._dynamo.reset()

        def chain(x: Any) -> Any:
            return layer.op(torch.relu(x)) + 1

        compiled = torch.compile(chain, dynamic=False)
        grad = torch.ones_like(chain(x))

        def forward(compiled: Any = compiled) -> Any:
            with torch.no_grad():
                return compiled(x)

        def both(compiled: Any = compiled, grad: Any = grad) -> Any:
            return torch.autograd.grad(compiled(leaf), leaf, grad)[0]

        for verb, call in (("forward", forward), ("both", both)):
            made = _lowered(call, lt) if how == "fused" else call
            results[verb].append(made())
            calls[verb][how] = made
    rough = {"float32": 1e-4, "bfloat16": 3e-2, "float16": 5e-3}[layer.dtype]
    ours, theirs = results["forward"]
    torch.testing.assert_close(ours, theirs, rtol=rough, atol=rough)
    if "max" not in layer.name:  # relu makes ties, and which zero of a window wins may differ
        torch.testing.assert_close(*results["both"], rtol=rough, atol=rough)
    return calls


def _lowered(call: Callable[[], Any], lt: Any) -> Callable[[], Any]:
    def inside() -> Any:
        with lt.lowered():
            return call()

    return inside
