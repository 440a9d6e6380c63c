"""Two versions of the library against each other, and one of them against itself: what a change costs.

`python -m benchmarks versions BEFORE AFTER [--rows NAME …]`, where both are folders that hold `lunette`, such as `src`. Each
version runs in a process of its own, three in all: before, after, and before once more. Calls go round in turns, so that
a slow moment of the machine hits all three; what is told is CPU time, which other work disturbs least. Where
before ÷ before is not 1, neither is after ÷ before to be believed any further.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

__all__ = ["compare", "main", "ratios"]

ROOT = Path(__file__).resolve().parents[1]
ROUNDS = 15
SECONDS = 0.02
"""Of calls of one row in one turn, at least; one call if that takes longer."""


def work() -> None:
    """In a process of its own: CPU seconds a call of each workload that is asked for on standard input."""
    from cases.workloads import by_name
    from lunette import dispatch

    known: dict[str, Any] = {}
    for line in sys.stdin:
        name = line.strip()
        if name not in known:
            workload = by_name(name)
            x = workload.array()
            verb: Any = getattr(dispatch, workload.verb)
            more = (workload.result_like(),) if workload.verb == "vjp" else ()
            more = (x,) if workload.verb == "jvp" else more
            known[name] = lambda verb=verb, op=workload.op, x=x, more=more: verb(op, x, *more)
            known[name]()
        calls, start, began = 0, time.process_time(), time.perf_counter()
        while not calls or time.perf_counter() - began < SECONDS:
            known[name]()
            calls += 1
        print(json.dumps((time.process_time() - start) / calls), flush=True)


def ratios(times: dict[str, list[float]]) -> tuple[float, float]:
    """Medians over the rounds of after ÷ before, and of before ÷ before."""
    return tuple(  # type: ignore[return-value]
        median(a / b for a, b in zip(times[other], times["before"], strict=True))
        for other in ("after", "again")
    )


def compare(before: Path, after: Path, names: list[str], rounds: int = ROUNDS) -> dict[str, Any]:
    """For each row the two ratios."""
    folders = {"before": before, "after": after, "again": before}
    command = [sys.executable, "-c", "from benchmarks.versions import work; work()"]
    processes = {
        name: subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(folder.resolve()), str(ROOT)])},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name, folder in folders.items()
    }
    found = {}
    try:
        for row in names:
            times: dict[str, list[float]] = {name: [] for name in folders}
            for turn in range(rounds + 1):
                order = list(folders)[turn % 3 :] + list(folders)[: turn % 3]
                for name in order:
                    pipe = processes[name]
                    assert pipe.stdin is not None and pipe.stdout is not None
                    pipe.stdin.write(row + "\n")
                    pipe.stdin.flush()
                    times[name].append(float(json.loads(pipe.stdout.readline())))
            found[row] = ratios({name: t[1:] for name, t in times.items()})  # the first warms up
    finally:
        for process in processes.values():
            assert process.stdin is not None
            process.stdin.close()
            process.wait()
    return found


def main(arguments: list[str]) -> None:
    """Print a line for each row."""
    from cases.workloads import WORKLOADS

    parser = argparse.ArgumentParser(prog="python -m benchmarks versions", description=__doc__)
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--rows", nargs="*", default=[w.name for w in WORKLOADS if not w.kept])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    given = parser.parse_args(arguments)
    for name, (change, control) in compare(
        given.before, given.after, given.rows, given.rounds
    ).items():
        print(f"{name:<40} after ÷ before {change:5.3f}   before ÷ before {control:5.3f}")
