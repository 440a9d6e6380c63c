"""Draws in processes of their own: a fault is a finding that names the draw, and the next draw goes on."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from cases.guard.directed import DIRECTED
from cases.guard.draws import DTYPES

__all__ = ["CHECKS", "ROOT", "Sweep", "directed", "sweep"]

ROOT = Path(__file__).parents[2]
"""Where `cases` is."""

PATIENCE = 600
"""Seconds that a process may take to end after its last word."""


class Sweep(NamedTuple):
    """How many calls were made, and what was wrong with draws."""

    calls: int
    findings: list[str]


def sweep(
    seed: int, count: int, dtypes: tuple[str, ...] = DTYPES, share: float = 0.2, most: int = 20
) -> Sweep:
    """Perform so many draws of a seed, in some dtypes, a share of them convolutions; after `most` findings, no more.

    Of odd seeds sizes are small, as `small_sizes` has them.
    """
    options = [f"--seed={seed}", f"--convolutions={share}", *["--small-sizes"] * (seed % 2)]
    return _watched(0, count, [*options, "--dtypes", *dtypes], most)


def directed(first: int = 0, count: int = len(DIRECTED)) -> Sweep:
    """Perform the draws that were chosen by hand, or some of them."""
    return _watched(first, count, ["--directed"], len(DIRECTED))


CHECKS: dict[str, Callable[[], list[str]]] = {
    "guarded smooth max": lambda: directed(4, 1).findings,
    "guarded mean": lambda: directed(24, 1).findings,
    "guarded convolution": lambda: directed(33, 1).findings,
}
"""What is wrong with some of them, by what they are of."""


def told(errors: str) -> str:
    """The line that says where the fault was, and the end of what the process wrote."""
    fault = next((line for line in errors.splitlines() if line.startswith("guard page:")), "")
    return f"{fault}\n{errors[-3000:]}"


def _watched(first: int, count: int, options: list[str], most: int) -> Sweep:
    calls, findings, last = 0, [], first + count
    while first < last and len(findings) < most:
        done, found, first = _child(first, last, options)
        calls += done
        findings += found
    return Sweep(calls, findings)


def _child(first: int, last: int, options: list[str]) -> tuple[int, list[str], int]:
    """One process: calls made, findings, and the draw to go on with."""
    calls, findings, now, at = 0, [], "before the first draw", first
    command = [sys.executable, "-m", "cases.guard", f"--first={first}", f"--count={last - first}"]
    same = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}  # packages
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            command + options, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=ROOT, env=same
        )
        assert process.stdout is not None
        for line in process.stdout:
            word, number, rest = line.rstrip("\n").split(" ", 2)
            at = int(number) + 1
            if word == "begin":
                now = rest
            elif word == "end":
                calls += int(rest)
            else:
                findings.append(f"{now}: {rest}")
        if process.wait(PATIENCE):
            errors.seek(0)
            findings.append(f"{now}: {told(errors.read())}")
            return calls, findings, max(at, first + 1)
    return calls, findings, last
