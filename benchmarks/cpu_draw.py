"""Pooling and convolution layers drawn by a seed, on the CPU, from NumPy arrays and from torch tensors.

python -m benchmarks draw cpu --threads 2 --seed 1 --layers 30
python -m benchmarks draw cpu --threads 16 --op convolution --no-compile --json draws.json

Forward, and forward with the gradients of every operand, against the best of torch eager, torch.compile and ONNX
Runtime (forward alone). A ratio above 1 is faster than the best of them.
"""

from __future__ import annotations

import argparse
import gc
import json
import time
from collections.abc import Callable
from math import exp, log
from pathlib import Path
from statistics import median
from typing import Any

import lunette as ln
from benchmarks.convolution_layers import draw_convolutions
from benchmarks.layers import Layer, draw
from benchmarks.onnx_calls import onnx_call

__all__ = ["Row", "main", "summary"]

Row = dict[str, Any]
Call = Callable[[], Any]
VERBS = ("forward", "both")
OURS = ("numpy", "torch")
"""Who is ours: the call of a NumPy array, and that of a torch tensor."""


def main(arguments: list[str]) -> None:
    """Draw, check, measure, print."""
    parser = argparse.ArgumentParser(
        prog="benchmarks draw cpu",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--threads", type=int, default=0, help="threads of everybody")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--layers", type=int, default=30, help="of each op")
    parser.add_argument("--op", choices=("pooling", "convolution", "all"), default="all")
    parser.add_argument("--no-compile", action="store_true", help="leave out torch.compile")
    parser.add_argument("--no-onnx", action="store_true", help="leave out ONNX Runtime")
    parser.add_argument("--forward", action="store_true", help="forward alone")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument(
        "--busy",
        action="store_true",
        help="one thread each and the least processor time, for a machine with other work",
    )
    parser.add_argument("--only", default="", help="layers whose name contains this")
    parser.add_argument("--seconds", type=float, default=0, help="begin no layer after so many")
    parser.add_argument(
        "--part", default="", help="k/n: only compile the kernels of each nth layer"
    )
    parser.add_argument("--json", type=Path, help="write the measurements here")
    chosen = parser.parse_args(arguments)
    if chosen.busy:
        chosen.threads = 1
    _use(chosen.threads)
    if chosen.part:
        first, step = map(int, chosen.part.split("/"))
        for layers in _drawn(chosen).values():
            for layer in layers[first::step]:
                _calls(layer, chosen)
        return
    began = time.perf_counter()
    rows: dict[str, list[Row]] = {}
    for op, layers in _drawn(chosen).items():
        for number, layer in enumerate(layers):
            if chosen.only not in str(layer):
                continue
            if chosen.seconds and time.perf_counter() - began > chosen.seconds:
                print(f"{op}: stopped after {number} layers", flush=True)
                break
            rows.setdefault(op, []).append(_measure(layer, chosen))
            print(f"{number:3} {_line(rows[op][-1])}", flush=True)
    for op, some in rows.items():
        print(summary(f"{op}, {chosen.threads or 'all'} threads, seed {chosen.seed}", some))
    if chosen.json:
        chosen.json.write_text(json.dumps(rows, indent=1) + "\n")


def _use(threads: int) -> None:
    import torch

    if threads:
        torch.set_num_threads(threads)
        ln.set_num_threads(threads)


def _drawn(chosen: Any) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    if chosen.op != "convolution":
        found["pooling"] = draw(chosen.seed, chosen.layers, ("float32",))
    if chosen.op != "pooling":
        found["convolution"] = draw_convolutions(chosen.seed, chosen.layers)
    return found


# -- one layer --


def _measure(layer: Any, chosen: Any) -> Row:
    row: Row = {"layer": str(layer)}
    calls = _calls(layer, chosen)
    for verb, functions in calls.items():
        timed = _least_processor_time if chosen.busy else _medians
        row[verb] = timed(functions, chosen.rounds)
    return row


def _calls(layer: Any, chosen: Any) -> dict[str, dict[str, Call]]:
    """verb → who → a call, each made once; a result of ours that is wrong is an AssertionError."""
    import torch

    torch._dynamo.reset()
    operands = _operands(layer)
    exact = [t.double().contiguous().requires_grad_() for t in operands]
    value = layer.eager(*exact)
    grad = torch.randn(value.shape).to(torch.float32)
    if operands[0].ndim == 4 and not operands[0].is_contiguous():
        grad = grad.contiguous(memory_format=torch.channels_last)
    elif operands[0].ndim == 5 and not operands[0].is_contiguous():
        grad = grad.contiguous(memory_format=torch.channels_last_3d)
    functions = {"torch": layer.op, "eager": layer.eager}
    if not chosen.no_compile:
        functions["compile"] = torch.compile(layer.eager, dynamic=False)
    verbs = VERBS[:1] if chosen.forward else VERBS
    calls: dict[str, dict[str, Call]] = {verb: {} for verb in verbs}
    arrays, outer = [t.numpy() for t in operands], grad.numpy()
    calls["forward"]["numpy"] = lambda: layer.op(*arrays)
    if not chosen.forward:
        calls["both"]["numpy"] = _numpy_both(layer.op, arrays, outer)
    for who, function in functions.items():
        for verb, call in _torch_calls(function, operands, grad, verbs).items():
            try:
                call()
            except Exception as error:  # a peer that cannot is no peer
                if who in OURS:
                    raise
                print(f"{who} {verb} of {layer}: {type(error).__name__}", flush=True)
                continue
            calls[verb][who] = call
    if not chosen.no_onnx and (peer := onnx_call(layer, operands, chosen.threads)):
        calls["forward"]["onnx"] = peer
    _check(layer, calls, exact, value, grad)
    return calls


def _operands(layer: Any) -> list[Any]:
    import torch

    if isinstance(layer, Layer):
        return [layer.input("cpu")]
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=generator) for shape in (layer.shape, layer.weight)]


def _numpy_both(op: Any, arrays: list[Any], grad: Any) -> Call:
    if isinstance(op, ln.Conv):
        return lambda: (op(*arrays), op.vjp(tuple(arrays), grad))[1]
    return lambda: (op(*arrays), op.vjp(arrays[0], grad))[1]


def _torch_calls(
    function: Callable[..., Any], operands: list[Any], grad: Any, verbs: tuple[str, ...]
) -> dict[str, Call]:
    import torch

    leaves = [t.clone().requires_grad_() for t in operands]

    def forward() -> Any:
        with torch.no_grad():
            return function(*operands)

    def both() -> Any:
        return torch.autograd.grad(function(*leaves), leaves, grad)

    return {verb: {"forward": forward, "both": both}[verb] for verb in verbs}


def _check(layer: Any, calls: Any, exact: list[Any], value: Any, grad: Any) -> None:
    """Our results against torch's in float64."""
    import torch

    expected = {"forward": (value.detach(),)}
    if "both" in calls and "global max" not in str(layer):
        # Of tied global maxima torch splits the gradient; ours gives each the whole.
        expected["both"] = torch.autograd.grad(value, exact, grad.double())
    for verb, wanted in expected.items():
        for who in OURS:
            found = calls[verb][who]()
            found = found if isinstance(found, tuple) else (found,)
            for a, b in zip(found, wanted, strict=True):
                scale = max(1.0, float(b.abs().max()))
                torch.testing.assert_close(
                    torch.as_tensor(a).double() / scale,
                    b / scale,
                    rtol=1e-4,
                    atol=1e-4,
                    msg=lambda m, who=who, verb=verb: f"{layer} {verb} of {who}: {m}",
                )


# -- time --


def _medians(calls: dict[str, Call], rounds: int) -> dict[str, float]:
    """Microseconds a call on the clock: medians of rounds taken in turns."""
    counts = {}
    for who, call in calls.items():
        for _ in range(2):
            call()
        began = time.perf_counter()
        call()
        counts[who] = max(1, min(200, int(0.004 / (time.perf_counter() - began))))
    times: dict[str, list[float]] = {who: [] for who in calls}
    gc.collect()
    for _ in range(rounds):
        for who, call in calls.items():
            call()  # whoever was before may have left the caches and its threads as it likes
            began = time.perf_counter()
            for _ in range(counts[who]):
                call()
            times[who].append((time.perf_counter() - began) / counts[who] * 1e6)
    return {who: median(t) for who, t in times.items()}


def _least_processor_time(calls: dict[str, Call], rounds: int) -> dict[str, float]:
    """Microseconds of processor time of a call, the least of many in turns: what other work on the machine disturbs least."""
    least = dict.fromkeys(calls, float("inf"))
    counts = {}
    for who, call in calls.items():
        call()
        began = time.thread_time()
        call()
        counts[who] = max(1, min(50, int(0.001 / max(1e-7, time.thread_time() - began))))
    for _ in range(2 * rounds):
        for who, call in calls.items():
            began = time.thread_time()
            for _ in range(counts[who]):
                call()
            least[who] = min(least[who], (time.thread_time() - began) / counts[who] * 1e6)
    return least


# -- what is printed --


def ratio(times: dict[str, float], who: str) -> float:
    """The time of the best peer over ours."""
    return min(t for name, t in times.items() if name not in OURS) / times[who]


def _line(row: Row) -> str:
    parts = [f"{row['layer']:52}"]
    for verb in VERBS:
        if verb in row:
            ratios = " ".join(f"{ratio(row[verb], who):5.2f}" for who in OURS)
            times = " ".join(f"{who} {t:.0f}" for who, t in row[verb].items())
            parts.append(f"{verb} {ratios} ({times} µs)")
    return "  ".join(parts)


def summary(title: str, rows: list[Row]) -> str:
    """Geometric mean, worst, and how many are behind: from NumPy arrays and from tensors."""
    lines = [f"{title}: {len(rows)} layers"]
    for verb in VERBS:
        for who in OURS:
            found = sorted((ratio(row[verb], who), row["layer"]) for row in rows if verb in row)
            if found:
                mean = exp(sum(log(r) for r, _ in found) / len(found))
                behind = sum(r < 1 for r, _ in found)
                worst = f"worst {found[0][0]:.2f} ({found[0][1]})"
                lines.append(
                    f"  {verb:8} from {who:6} geometric mean {mean:.2f}, {worst}, "
                    f"behind in {behind} of {len(found)}"
                )
    return "\n".join(lines)
