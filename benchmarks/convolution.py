"""Convolution on the CPU: values and gradients beside torch, JAX and a plain matrix product."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

import lunette as ln
from benchmarks.machine import describe
from benchmarks.report import write_section
from benchmarks.timing import interleaved
from lunette.kernels import threads

__all__ = ["HEADING", "WORKLOADS", "main", "measure"]

HEADING = "## Convolution on CPU"

Call = Callable[[], Any]
Array = np.ndarray[Any, Any]


class Workload(NamedTuple):
    """An op, the shapes of x and weight, and how many times a peer's speed is the goal."""

    name: str
    op: ln.Conv
    x: tuple[int, ...]
    weight: tuple[int, ...]
    goal: float = 1.0
    peer: str = "torch"


WORKLOADS = (
    Workload("3×3, 64 to 64", ln.Conv((3, 3), 1, 1), (8, 64, 56, 56), (64, 64, 3, 3)),
    Workload("3×3, 256 to 256", ln.Conv((3, 3), 1, 1), (8, 256, 14, 14), (256, 256, 3, 3)),
    Workload("7×7 stride 2, 3 to 64", ln.Conv((7, 7), 2, 3), (8, 3, 224, 224), (64, 3, 7, 7)),
    Workload("1×1, 64 to 256", ln.Conv((1, 1)), (8, 64, 56, 56), (256, 64, 1, 1)),
    Workload("3×3 depthwise, 64", ln.Conv((3, 3), 1, 1, groups=64), (8, 64, 56, 56), (64, 1, 3, 3)),
    Workload("3³, 16 to 32", ln.Conv((3, 3, 3), 1, 1), (2, 16, 16, 32, 32), (32, 16, 3, 3, 3)),
    Workload("3⁴, 4 to 8", ln.Conv((3, 3, 3, 3)), (1, 4, 16, 16, 16, 16), (8, 4, 3, 3, 3, 3), 10, "jax"),
)  # fmt: skip


def operations(workload: Workload) -> int:
    """Multiplications and additions of one value; both gradients take twice as many."""
    out = workload.op.out_shape(workload.x, workload.weight)
    return 2 * int(np.prod(out)) * int(np.prod(workload.weight[1:]))


def calls(workload: Workload, verb: str) -> dict[str, Call]:
    """What is timed, by name; a peer that has no such op is left out."""
    generator = np.random.default_rng(0)
    op = workload.op
    x, w, g = (
        generator.standard_normal(shape).astype(np.float32)
        for shape in (workload.x, workload.weight, op.out_shape(workload.x, workload.weight))
    )
    found: dict[str, Call] = {}
    found["lunette"] = (lambda: op(x, w)) if verb == "value" else (lambda: op.vjp((x, w), g))
    if op.rank <= 3:
        found["torch"] = _torch(op, x, w, g, verb)
    found["jax"] = _jax(op, x, w, g, verb)
    return found


def _torch(op: ln.Conv, x: Array, w: Array, g: Array, verb: str) -> Call:
    import torch

    function = getattr(torch.nn.functional, f"conv{op.rank}d")
    padding = tuple(before for before, _ in op.padding)
    tensors = [torch.from_numpy(a) for a in (x, w, g)]

    def run(image: Any, weight: Any) -> Any:
        return function(image, weight, None, op.stride, padding, op.dilation, op.groups)

    if verb == "value":
        return lambda: run(*tensors[:2])
    leaves = [t.clone().requires_grad_() for t in tensors[:2]]
    out = run(*leaves)
    return lambda: torch.autograd.grad(out, leaves, tensors[2], retain_graph=True)


def _jax(op: ln.Conv, x: Array, w: Array, g: Array, verb: str) -> Call:
    import jax

    def run(image: Any, weight: Any) -> Any:
        return jax.lax.conv_general_dilated(
            image,
            weight,
            op.stride,
            op.padding,
            rhs_dilation=op.dilation,
            feature_group_count=op.groups,
            dimension_numbers=None,
        )

    def gradients(image: Any, weight: Any, grad: Any) -> Any:
        return jax.vjp(run, image, weight)[1](grad)

    image, weight, grad = map(jax.numpy.asarray, (x, w, g))
    if verb == "value":
        compiled = jax.jit(run)
        return lambda: compiled(image, weight).block_until_ready()
    both = jax.jit(gradients)
    return lambda: jax.block_until_ready(both(image, weight, grad))


def matmul() -> tuple[Call, int]:
    """A product of square matrices by NumPy's BLAS, and its operations: the speed to compare with."""
    a = np.random.default_rng(0).standard_normal((1024, 1024)).astype(np.float32)
    return lambda: a @ a, 2 * 1024**3


def processor_seconds(functions: dict[str, Call], rounds: int = 4) -> dict[str, float]:
    """The least processor time of a call, in turns: what a shared machine can still compare."""
    least = dict.fromkeys(functions, float("inf"))
    for function in functions.values():
        function()
    for _ in range(rounds):
        for name, function in functions.items():
            start = time.process_time()
            function()
            least[name] = min(least[name], time.process_time() - start)
    return least


def one_thread() -> None:
    """One thread for us, torch and JAX; a shared machine has no more to give."""
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
    import torch

    torch.set_num_threads(1)
    threads.set_num_threads(1)


def measure(workload: Workload, verb: str, seconds: float, shared: bool = False) -> dict[str, Any]:
    """Times of one workload, all peers and the matrix product in turns."""
    reference, products = matmul()
    # The product comes after, for BLAS's threads go on turning for a while and would be in the way.
    times = {}
    for functions in (calls(workload, verb), {"matmul": reference}):
        if shared:
            times |= processor_seconds(functions)
        else:
            found = interleaved(functions, seconds, rounds=5)
            times |= {name: timing.seconds for name, timing in found.items()}
    time.sleep(0.1)
    work = operations(workload) * (1 if verb == "value" else 2)
    ms = {name: found * 1e3 for name, found in times.items()}
    return {
        "name": workload.name,
        "verb": verb,
        "ms": ms,
        "gflops": work / ms["lunette"] / 1e6,
        "matmul_gflops": products / ms.pop("matmul") / 1e6,
        "goal": workload.goal,
        "peer": workload.peer,
    }


COLUMNS = (
    "work",
    "",
    "lunette ms",
    "torch ms",
    "JAX ms",
    "× torch",
    "× JAX",
    "GFLOP/s",
    "matmul",
    "goal",
)


def cells(row: dict[str, Any]) -> list[str]:
    """A row of the table, in words."""
    ours = row["ms"]["lunette"]

    def shown(name: str) -> str:
        return f"{row['ms'][name]:.1f}" if name in row["ms"] else "–"

    def times(name: str) -> str:
        return f"{row['ms'][name] / ours:.2f}" if name in row["ms"] else "–"

    reached = row["ms"][row["peer"]] / ours >= row["goal"]
    goal = f"{row['goal']:g}× {row['peer']} {'✓' if reached else '✗'}"
    return [
        row["name"], row["verb"], f"{ours:.1f}", shown("torch"), shown("jax"), times("torch"),
        times("jax"), f"{row['gflops']:.0f}", f"{row['matmul_gflops']:.0f}", goal,
    ]  # fmt: skip


def markdown(rows: list[dict[str, Any]], machine: dict[str, Any], shared: bool) -> str:
    """The section of the documentation, without its heading."""
    versions = ", ".join(f"{name} {found}" for name, found in machine["versions"].items())
    lines = [
        "float32, in turns in one run; gradients are those of x and weight. "
        + (
            "One thread each, least processor time: the machine was shared with other work."
            if shared
            else "Medians of the time on the clock, all cores."
        ),
        "GFLOP/s count every multiplication and addition of the definition; `matmul` is NumPy's",
        "BLAS on 1024², timed after them. `× torch` above 1 is faster than torch.",
        f"{machine['date']}, {machine['processor']}, {machine['cores']} cores; Python "
        f"{machine['python']}, {versions}. Repeat with `python -m benchmarks convolution`.",
        "",
        "| " + " | ".join(COLUMNS) + " |",
        "|---" * 2 + "|--:" * (len(COLUMNS) - 3) + "|---|",
        *("| " + " | ".join(cells(row)) + " |" for row in rows),
        "",
    ]
    return "\n".join(lines)


def main(arguments: list[str]) -> None:
    """Measure, print the table, and write it into the documentation when asked."""
    parser = argparse.ArgumentParser(prog="benchmarks convolution", description=__doc__)
    parser.add_argument("--seconds", type=float, default=0.4, help="for each function")
    parser.add_argument("--only", default="", help="workloads whose name contains this")
    parser.add_argument("--docs", type=Path, help="the page to write the section into")
    parser.add_argument(
        "--shared", action="store_true", help="processor time of one thread, on a busy machine"
    )
    chosen = parser.parse_args(arguments)
    if chosen.shared:
        one_thread()
    table = Table(title="Convolution on CPU, float32")
    for column in COLUMNS:
        table.add_column(column, no_wrap=True)
    rows = []
    for workload in WORKLOADS:
        if chosen.only in workload.name:
            for verb in ("value", "gradients"):
                rows.append(measure(workload, verb, chosen.seconds, chosen.shared))
                table.add_row(*cells(rows[-1]))
    Console(width=140).print(table)
    if chosen.docs:
        write_section(chosen.docs, HEADING, markdown(rows, describe(), chosen.shared))
