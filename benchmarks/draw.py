"""Pooling layers drawn by a seed, through the calls people make, against torch eager and torch.compile.

python -m benchmarks draw cuda --seed 1 --layers 60
python -m benchmarks draw cpu --seed 1 --layers 40 --threads 2
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from math import exp, log
from pathlib import Path
from statistics import median
from typing import Any

import lunette as ln
from benchmarks.layers import Layer, draw

__all__ = ["DTYPES", "VERBS", "interleaved", "main"]

DTYPES = {"cuda": ("float32", "bfloat16", "float16"), "cpu": ("float32",)}
VERBS = ("forward", "both")

FOR_COMPILING = 0.5
"""The part of the given seconds in which other processes begin to compile a layer."""


def main(arguments: list[str]) -> None:
    """Draw, check, measure, print."""
    if arguments[:1] == ["cpu"]:
        from benchmarks import cpu_draw

        cpu_draw.main(arguments[1:])
        return
    parser = argparse.ArgumentParser(prog="benchmarks draw", description=__doc__.splitlines()[0])
    parser.add_argument("device", choices=("cuda", "cpu"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--layers", type=int, default=40)
    parser.add_argument("--threads", type=int, default=0, help="threads of torch and of ours (cpu)")
    parser.add_argument("--no-compile", action="store_true", help="leave out torch.compile")
    parser.add_argument("--workers", type=int, default=0, help="processes that compile beforehand")
    parser.add_argument(
        "--seconds", type=float, default=1e9, help="draw no further layer after that"
    )
    parser.add_argument("--part", default="", help=argparse.SUPPRESS)
    parser.add_argument("--json", type=Path, help="write the measurements here")
    chosen = parser.parse_args(arguments)
    began = time.perf_counter()
    import torch

    if chosen.device == "cuda" and not torch.cuda.is_available():
        sys.exit("draw: no CUDA device")
    if chosen.threads:
        torch.set_num_threads(chosen.threads)
        ln.set_num_threads(chosen.threads)
    layers = draw(chosen.seed, chosen.layers, DTYPES[chosen.device])
    if chosen.part:
        first, step = map(int, chosen.part.split("/"))
        for layer in layers[first::step]:
            if time.perf_counter() - began < chosen.seconds * FOR_COMPILING:
                _calls(layer, chosen.device, not chosen.no_compile)
        return
    if chosen.workers:
        _compile_beforehand(arguments, chosen.workers)
    rows = []
    for number, layer in enumerate(layers):
        if time.perf_counter() - began > chosen.seconds:
            print(f"{len(layers) - number} layers were not measured in {chosen.seconds:g} s")
            break
        rows.append(_measure(layer, chosen.device, not chosen.no_compile))
        print(f"{number:3} {_line(rows[-1])}", flush=True)
    print(_summary(rows, chosen.device))
    print(_tiny_calls(chosen.device))
    if chosen.json:
        chosen.json.write_text(json.dumps(rows, indent=1))


def _compile_beforehand(arguments: list[str], workers: int) -> None:
    """Fill the compilers' caches on disk from several processes: compiling takes most of the time."""
    began = time.perf_counter()
    parts = [
        subprocess.Popen(
            [sys.executable, "-m", "benchmarks", "draw", *arguments, "--part", f"{i}/{workers}"],
            stdout=subprocess.DEVNULL,
        )
        for i in range(workers)
    ]
    for part in parts:
        part.wait()
    print(f"compiled beforehand in {time.perf_counter() - began:.0f} s", flush=True)


def _calls(layer: Layer, device: str, compiled: bool) -> dict[str, dict[str, Callable[[], Any]]]:
    """verb → who → a call, each made once; a result of ours that is wrong is an AssertionError."""
    import torch

    torch._dynamo.reset()
    whos: dict[str, Callable[[Any], Any]] = {"ours": layer.op, "eager": layer.eager}
    if compiled:
        whos["compile"] = torch.compile(layer.eager, dynamic=False)
    x = layer.input(device)
    leaf = x.clone().requires_grad_()
    grad = torch.randn_like(layer.eager(x))
    calls: dict[str, dict[str, Callable[[], Any]]] = {verb: {} for verb in VERBS}
    for who, function in whos.items():

        def forward(function: Any = function) -> Any:
            with torch.no_grad():
                return function(x)

        def both(function: Any = function) -> Any:
            return torch.autograd.grad(function(leaf), leaf, grad)[0]

        for verb, call in (("forward", forward), ("both", both)):
            try:
                call()
            except Exception as error:  # a peer that cannot is no peer
                if who == "ours":
                    raise
                print(f"{who} {verb} of {layer}: {type(error).__name__}", flush=True)
                continue
            calls[verb][who] = call
    exact = leaf.detach().double().contiguous().requires_grad_()
    value = layer.eager(exact)
    expected = {"forward": value, "both": torch.autograd.grad(value, exact, grad.double())[0]}
    for verb in VERBS:
        _agree(calls[verb]["ours"](), expected[verb], layer, verb)
    return calls


def _agree(ours: Any, theirs: Any, layer: Layer, verb: str) -> None:
    import torch

    if "global max" in layer.name and verb == "both":
        return  # torch splits the gradient among ties, ours gives each the whole
    rough = {"float32": 1e-4, "bfloat16": 3e-2, "float16": 5e-3}[layer.dtype]
    torch.testing.assert_close(
        ours.double(), theirs.detach(), rtol=rough, atol=rough, msg=lambda m: f"{layer} {verb}: {m}"
    )


def _measure(layer: Layer, device: str, compiled: bool) -> dict[str, Any]:
    calls = _calls(layer, device, compiled)
    row: dict[str, Any] = {"layer": str(layer)}
    for verb in VERBS:
        row[verb] = interleaved(calls[verb], device)
        if device == "cuda":
            row[f"{verb} on the device"] = {
                who: _in_a_graph(call) for who, call in calls[verb].items() if who != "compile"
            }
    return row


def interleaved(
    calls: dict[str, Callable[[], Any]], device: str, rounds: int = 7
) -> dict[str, float]:
    """Microseconds a call, host time included: medians of rounds taken in turns."""
    import torch

    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    counts = {}
    for who, call in calls.items():
        for _ in range(3):
            call()
        wait()
        began = time.perf_counter()
        call()
        wait()
        counts[who] = max(1, min(200, int(0.004 / (time.perf_counter() - began))))
    times: dict[str, list[float]] = {who: [] for who in calls}
    for _ in range(rounds):
        for who, call in calls.items():
            wait()
            began = time.perf_counter()
            for _ in range(counts[who]):
                call()
            wait()
            times[who].append((time.perf_counter() - began) / counts[who] * 1e6)
    return {who: median(t) for who, t in times.items()}


def _in_a_graph(call: Callable[[], Any], repeats: int = 10) -> float | None:
    """Microseconds on the device alone: a CUDA graph of `repeats` calls, replayed."""
    import torch

    try:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(repeats):
                call()
    except Exception:
        torch.cuda.synchronize()
        return None
    graph.replay()
    times = []
    for _ in range(5):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) / repeats * 1e3)
    return median(times)


def _ratio(times: dict[str, float]) -> float:
    return min(t for who, t in times.items() if who != "ours") / times["ours"]


def _line(row: dict[str, Any]) -> str:
    parts = [f"{row['layer']:58}"]
    for verb in VERBS:
        times = "/".join(f"{times:.0f}" for times in row[verb].values())
        parts.append(f"{verb} {_ratio(row[verb]):5.2f} ({times} µs)")
        inside = row.get(f"{verb} on the device")
        if inside:
            parts.append(
                "device " + "/".join("–" if t is None else f"{t:.1f}" for t in inside.values())
            )
    return "  ".join(parts)


def _summary(rows: list[dict[str, Any]], device: str) -> str:
    cells = []
    for verb in VERBS:
        ratios = sorted(_ratio(row[verb]) for row in rows)
        if not ratios:
            return "no layer was measured"
        mean = exp(sum(map(log, ratios)) / len(ratios))
        behind = sum(r < 1 for r in ratios)
        cells.append(f"{mean:.2f}, {ratios[0]:.2f}, {behind} of {len(ratios)}")
    return (
        "times are ours/eager/compile; a ratio above 1 is faster than the best of them\n"
        "| where | forward: geometric mean, worst, behind | forward and backward |\n|---|---|---|\n"
        f"| {device}, {len(rows)} layers | {cells[0]} | {cells[1]} |"
    )


def _tiny_calls(device: str) -> str:
    """What a call costs where there is next to nothing to do: ours and eager."""
    from torch.nn import functional

    tiny: dict[str, tuple[Any, Callable[[Any], Any]]] = {
        "max": (ln.MaxPool((2, 2)), lambda x: functional.max_pool2d(x, 2)),
        "mean": (ln.AvgPool((2, 2)), lambda x: functional.avg_pool2d(x, 2)),
        "global mean": (ln.GlobalAvgPool(2), lambda x: x.mean((-2, -1), keepdim=True)),
    }
    lines = ["µs of a call on 1×3×8×8 (ours/eager)"]
    for name, (op, eager) in tiny.items():
        calls = _calls(Layer(name, op, eager, (1, 3, 8, 8), "float32", False), device, False)
        times = {verb: interleaved(calls[verb], device) for verb in VERBS}
        parts = [f"{v} {t['ours']:.1f}/{t['eager']:.1f}" for v, t in times.items()]
        lines.append(f"{name:12} {'  '.join(parts)}")
    return "\n".join(lines)
