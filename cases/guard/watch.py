"""Draws in processes of their own: a fault is a finding that names the draw, and the next draw goes on."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from typing import NamedTuple

from cases.guard.draws import DTYPES

__all__ = ["Sweep", "sweep"]

PATIENCE = 600
"""Seconds without a word after which a draw counts as hung."""


class Sweep(NamedTuple):
    """How many calls were made, and what was wrong with draws."""

    calls: int
    findings: list[str]


def sweep(
    seed: int, first: int, count: int, dtypes: tuple[str, ...] = DTYPES, most: int = 20
) -> Sweep:
    """Perform `count` draws from `first` on, in some dtypes; after `most` findings, no more."""
    calls, findings, last = 0, [], first + count
    while first < last and len(findings) < most:
        done, found, first = _child(seed, first, last, dtypes)
        calls += done
        findings += found
    return Sweep(calls, findings)


def _child(
    seed: int, first: int, last: int, dtypes: tuple[str, ...]
) -> tuple[int, list[str], int]:
    """One process: calls made, findings, and the draw to go on with."""
    arguments = [f"--seed={seed}", f"--first={first}", f"--count={last - first}"]
    arguments += ["--dtypes", *dtypes]
    calls, findings, now, at = 0, [], "", first
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "cases.guard", *arguments],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        assert process.stdout is not None
        for line in process.stdout:
            word, number, rest = line.rstrip("\n").split(" ", 2)
            at = int(number) + 1
            if word == "begin":
                now = rest
            elif word == "end":
                calls, now = calls + int(rest), ""
            else:
                findings.append(f"{now}: {rest}")
                now = ""
        if process.wait(PATIENCE):
            errors.seek(0)
            findings.append(f"{now or 'before the first draw'}: {errors.read()[-3000:]}")
    return calls, findings, at if now else last
