"""Speed-up by threads: our calls, torch's, and a plain copy, in turns on one machine.

python -m benchmarks scaling --threads 1,2,4,8,16 --docs docs/benchmarks.md
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import lunette as ln
from benchmarks.machine import describe
from benchmarks.report import write_section
from benchmarks.timing import Copy

__all__ = ["HEADING", "main", "markdown", "speedups"]

HEADING = "## Speed-up by threads"
CHART = "scaling-cpu.svg"

Times = dict[str, dict[str, list[float]]]
"""row → who → milliseconds for each number of threads."""


class Work(NamedTuple):
    """A call of ours and torch's name for it, on inputs of these shapes; whether memory bounds it."""

    name: str
    op: Any
    shapes: tuple[tuple[int, ...], ...]
    torch: Callable[..., Any] | None
    bound: bool


def _work() -> list[Work]:
    from torch.nn import functional as F

    image = ((8, 64, 112, 112),)
    return [
        Work("max k2s2", ln.MaxPool((2, 2)), image, lambda x: F.max_pool2d(x, 2), True),
        Work("max k3s2p1", ln.MaxPool((3, 3), 2, 1), image, lambda x: F.max_pool2d(x, 3, 2, 1), True),
        Work("mean k3s1p1", ln.AvgPool((3, 3), 1, 1), image, lambda x: F.avg_pool2d(x, 3, 1, 1), True),
        Work("global mean", ln.GlobalAvgPool(2), image, lambda x: x.mean((2, 3), keepdim=True), True),
        Work("small max k2s2", ln.MaxPool((2, 2)), ((8, 32, 56, 56),), lambda x: F.max_pool2d(x, 2), False),
        Work("conv 3×3", ln.Conv((3, 3), 1, 1), ((8, 128, 28, 28), (128, 128, 3, 3)), lambda x, w: F.conv2d(x, w, padding=1), False),
        Work("conv 3³", ln.Conv((3, 3, 3), 1, 1), ((1, 32, 32, 32, 32), (32, 32, 3, 3, 3)), lambda x, w: F.conv3d(x, w, padding=1), False),
        Work("conv 3⁴", ln.Conv((3, 3, 3, 3)), ((1, 4, 16, 16, 16, 16), (8, 4, 3, 3, 3, 3)), None, False),
    ]  # fmt: skip


def main(arguments: list[str]) -> None:
    """Measure, print, and write the page and the chart when asked."""
    parser = argparse.ArgumentParser(prog="benchmarks scaling", description=__doc__.splitlines()[0])
    cores = len(os.sched_getaffinity(0))
    powers = ",".join(str(1 << i) for i in range(cores.bit_length()) if 1 << i <= cores)
    parser.add_argument("--threads", default=powers, help="numbers of threads, the first 1")
    parser.add_argument("--seconds", type=float, default=30, help="for everything")
    parser.add_argument("--json", type=Path, help="write the measurements here")
    parser.add_argument("--docs", type=Path, help="the page to write the section into")
    chosen = parser.parse_args(arguments)
    counts = [int(n) for n in chosen.threads.split(",")]
    times = _measure(counts, chosen.seconds)
    text = markdown(times, counts)
    print(text)
    if chosen.json:
        found = {"machine": describe(), "threads": counts, "ms": times}
        chosen.json.write_text(json.dumps(found, indent=1) + "\n")
    if chosen.docs:
        machine = describe()
        shown = f"{machine['date']}, {machine['processor']}, {machine['cores']} cores.\n\n"
        write_section(chosen.docs, HEADING, f"![Speed-up by threads]({CHART})\n\n{shown}{text}")
        _chart(times, counts, chosen.docs.parent / CHART)


def _measure(counts: list[int], seconds: float) -> Times:
    import torch

    work, times = _work(), {}
    share = seconds / (len(counts) * (2 * len(work) + 1))
    inputs = {w.name: [torch.randn(shape) for shape in w.shapes] for w in work}
    for n in counts:
        torch.set_num_threads(n)
        ln.set_num_threads(n)
        copy = Copy(1 << 26, n)
        times.setdefault("copy", {}).setdefault("copy", []).append(_time(copy, share))
        for w in work:
            tensors = inputs[w.name]
            arrays = [t.numpy() for t in tensors]
            row = times.setdefault(w.name, {})
            row.setdefault("ours", []).append(_time(lambda w=w, a=arrays: w.op(*a), share))
            if w.torch:
                call = lambda w=w, t=tensors: w.torch(*t)  # noqa: E731
                row.setdefault("torch", []).append(_time(call, share))
    return times


def _time(call: Callable[[], Any], seconds: float) -> float:
    """The median of as many calls as there is time for, in milliseconds."""
    for _ in range(3):
        call()
    found: list[float] = []
    began = time.perf_counter()
    while len(found) < 5 or time.perf_counter() - began < seconds:
        start = time.perf_counter()
        call()
        found.append((time.perf_counter() - start) * 1e3)
    return median(found)


def speedups(times: list[float]) -> list[float]:
    """How many times faster than with the first number of threads."""
    return [times[0] / t for t in times]


def markdown(times: Times, counts: list[int]) -> str:
    """Times on one thread, and speed-ups on the others."""
    more = " | ".join(f"{n}" for n in counts[1:])
    lines = [
        f"| work | who | ms on {counts[0]} | {more} |",
        "|---|---|--:|" + "--:|" * len(counts[1:]),
    ]
    for name, row in times.items():
        for who, found in row.items():
            ups = " | ".join(f"{s:.2f}" for s in speedups(found)[1:])
            lines.append(f"| {name} | {who} | {found[0]:.3f} | {ups} |")
    return "\n".join(lines) + "\n"


def _chart(times: Times, counts: list[int], path: Path) -> None:
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    plt.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "lunette", "font.size": 8})
    rows = [name for name in times if name != "copy"]
    figure, grid = plt.subplots(2, 4, figsize=(9, 4.2), sharex=True, sharey=True)
    for axes, name in zip(grid.ravel(), rows, strict=False):
        axes.plot(counts, speedups(times["copy"]["copy"]), color="0.6", label="a plain copy")
        for who, style in (("torch", "C1s--"), ("ours", "C0o-")):
            if who in times[name]:
                axes.plot(counts, speedups(times[name][who]), style, markersize=3, label=who)
        axes.set_title(name)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log", base=2)
        axes.set_xticks(counts, [str(n) for n in counts])
        axes.grid(alpha=0.3)
    grid[0, 0].legend()
    figure.supxlabel("threads")
    figure.supylabel("times faster than one thread")
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
