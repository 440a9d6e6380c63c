"""The table of pooling on the CPU: every workload, ours and the peers', as fractions of a copy."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks import machine, peers, report, startup
from benchmarks.timing import Copy, interleaved
from cases.workloads import WORKLOADS, Workload, by_name
from lunette import dispatch, offsets

__all__ = ["main", "measure"]

RESULTS = Path("benchmarks/results/pooling-cpu.json")
CHART = Path("docs/benchmarks-cpu.svg")
PAGE = Path("docs/benchmarks.md")

PLAIN = ("copy", "reading", "writing")
"""What is timed for comparison and computes nothing."""


def measure(
    workload: Workload, copy: Copy, with_peers: list[str], seconds: float
) -> dict[str, Any]:
    """One row: milliseconds of everyone, our fraction of a copy, and the ratios that goals ask for."""
    x = workload.array()
    grad = workload.array(1) if workload.verb == "jvp" else workload.result_like()
    ours = _ours(workload, x, grad)
    calls: dict[str, Any] = dict(zip(PLAIN, (copy, copy.read, copy.write), strict=True))
    calls["lunette"] = ours
    # Our own on an array of this shape that this one is compared with, in turns with it.
    beside = [replace(w, shape=workload.shape) for w in WORKLOADS if w.name in workload.times]
    for other in beside:
        calls[other.name] = _ours(other, other.array(), other.result_like())
    expected = ours()
    for name in with_peers:
        call = peers.prepare(name, workload, x, grad, expected)
        if call is not None:
            calls[name] = call
    del expected
    timings = interleaved(calls, seconds)
    bandwidth = copy.bandwidth(timings["copy"].seconds)
    row = {
        "name": workload.name,
        "op": repr(workload.op),
        "verb": workload.verb,
        "shape": list(workload.shape),
        "dtype": workload.dtype,
        "bytes": workload.bytes_moved,
        "goal": workload.goal,
        "times": workload.times,
        "copy_gb_s": bandwidth / 1e9,
        "reading": copy.source.nbytes / timings["reading"].seconds / bandwidth,
        "writing": copy.target.nbytes / timings["writing"].seconds / bandwidth,
        "ms": {name: t.seconds * 1e3 for name, t in timings.items() if name not in PLAIN},
        "fastest_ms": {name: t.fastest * 1e3 for name, t in timings.items() if name not in PLAIN},
    }
    row["beside"] = {other.name: row["ms"].pop(other.name) for other in beside}
    row["of_copy"] = {
        name: workload.bytes_moved / (ms / 1e3) / bandwidth for name, ms in row["ms"].items()
    }
    return row


def _ours(workload: Workload, x: np.ndarray[Any, Any], grad: np.ndarray[Any, Any]) -> Any:
    verb = getattr(dispatch, workload.verb)
    if workload.kept:
        winners = offsets.forward_with_offsets(workload.op, x)[1]
        return lambda: offsets.vjp_from_offsets(workload.op, winners, grad, x.shape)
    if workload.verb in ("jvp", "vjp"):
        return lambda: verb(workload.op, x, grad)
    return lambda: verb(workload.op, x)


def main(arguments: list[str]) -> None:
    """Run the table; print it, save it, draw it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks pooling", description=__doc__)
    parser.add_argument("--only", action="append", metavar="NAME", help="one workload, by name")
    parser.add_argument("--peer", action="append", metavar="NAME", help="one peer, by name")
    parser.add_argument("--no-peers", action="store_true", help="time ours and the copy alone")
    parser.add_argument("--no-startup", action="store_true", help="leave out start-up and scaling")
    parser.add_argument("--only-startup", action="store_true", help="start-up and scaling alone")
    parser.add_argument("--quick", action="store_true", help="smaller batches and fewer calls")
    parser.add_argument("--save", type=Path, default=RESULTS, help="where the JSON goes")
    parser.add_argument("--merge", action="store_true", help="keep the other rows of the JSON")
    parser.add_argument("--write-docs", action="store_true", help="draw the chart, write the page")
    parser.add_argument("--from-saved", action="store_true", help="measure nothing; show the JSON")
    chosen = parser.parse_args(arguments)
    console = Console()
    if chosen.from_saved:
        results = report.load(chosen.save)
    else:
        results = _measure_all(chosen, console)
        report.save(results, chosen.save)
    report.show(results, console)
    if chosen.write_docs:
        report.draw(results, CHART)
        report.write_section(PAGE, report.HEADING, report.markdown(results, CHART.name))
        console.print(f"wrote {CHART} and {PAGE}")


def _measure_all(chosen: argparse.Namespace, console: Console) -> dict[str, Any]:
    workloads = [by_name(name) for name in chosen.only] if chosen.only else list(WORKLOADS)
    workloads = [] if chosen.only_startup else workloads
    with_peers = [] if chosen.no_peers else (chosen.peer or list(peers.PEERS))
    seconds = 0.1 if chosen.quick else 0.5
    if chosen.quick:
        workloads = [replace(w, shape=(max(1, w.shape[0] // 4), *w.shape[1:])) for w in workloads]
    old = (
        report.load(chosen.save)
        if (chosen.merge or chosen.only_startup) and chosen.save.exists()
        else {}
    )
    rows: dict[str, Any] = {row["name"]: row for row in old.get("rows", [])}
    copy = Copy()
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=len(workloads))
        for workload in workloads:
            progress.update(task, description=workload.name)
            rows[workload.name] = measure(workload, copy, with_peers, seconds)
            progress.console.print(report.line(rows[workload.name]), highlight=False)
            progress.advance(task)
    order = [w.name for w in WORKLOADS]
    results = {
        "machine": machine.describe(),
        "quick": chosen.quick,
        "rows": sorted(rows.values(), key=lambda row: order.index(row["name"])),
        "startup": old.get("startup", {}),
    }
    if not chosen.no_startup and not chosen.only:
        results["startup"] = startup.measure(console, quick=chosen.quick)
    return results
