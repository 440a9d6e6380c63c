"""How long calls take: medians of interleaved rounds, and the bandwidth of a plain copy."""

from __future__ import annotations

import ctypes
import gc
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any

import numpy as np

__all__ = ["Copy", "Timing", "interleaved", "once"]


@dataclass(frozen=True)
class Timing:
    """Seconds of one call: the median, the fastest, and how many were timed."""

    seconds: float
    fastest: float
    calls: int


def once(function: Callable[[], Any]) -> float:
    """Seconds of one call."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def interleaved(
    functions: dict[str, Callable[[], Any]],
    seconds: float = 0.5,
    rounds: int = 8,
    least: int = 1,
    warm: int = 2,
) -> dict[str, Timing]:
    """Medians of every function, timed in turns so that a slow minute of the machine hits them all.

    Each function gets about `seconds` in all, split over the rounds, and at least `least` calls in
    each. The first `warm` calls of each are not timed.
    """
    samples: dict[str, list[float]] = {name: [] for name in functions}
    for name, function in functions.items():
        for _ in range(warm if once(function) < seconds else 0):
            function()
        samples[name] = []
    gc.collect()
    gc.disable()
    try:
        for _ in range(rounds):
            for name, function in functions.items():
                spent, calls = 0.0, 0
                while calls < least or (spent < seconds / rounds and calls < 200):
                    elapsed = once(function)
                    samples[name].append(elapsed)
                    spent, calls = spent + elapsed, calls + 1
    finally:
        gc.enable()
    return {name: Timing(median(s), min(s), len(s)) for name, s in samples.items()}


class Copy:
    """A plain copy from one array to another, shared by as many threads as the machine has cores."""

    def __init__(self, bytes_: int = 1 << 27, threads: int | None = None) -> None:
        self.threads = threads or len(os.sched_getaffinity(0))
        self.source = np.ones(bytes_, np.uint8)
        self.target = np.zeros(bytes_, np.uint8)
        self.pool = ThreadPoolExecutor(self.threads)
        edges = np.linspace(0, bytes_, self.threads + 1).astype(int).tolist()
        self.parts = [slice(*pair) for pair in pairwise(edges)]

    def __call__(self) -> None:
        for done in [self.pool.submit(self._part, part) for part in self.parts]:
            done.result()

    def _part(self, part: slice) -> None:
        np.copyto(self.target[part], self.source[part])

    def read(self) -> None:
        """Read the source and write nothing: what memory gives to an op that mostly reads."""
        for done in [self.pool.submit(self._read, part) for part in self.parts]:
            done.result()

    def _read(self, part: slice) -> None:
        self.source[part].view(np.float32).max()

    def write(self) -> None:
        """Fill the target and read nothing, by the system's own function: what memory takes from an op that mostly writes."""
        for done in [self.pool.submit(self._write, part) for part in self.parts]:
            done.result()

    def _write(self, part: slice) -> None:
        some = self.target[part]
        ctypes.memset(some.ctypes.data, 1, some.nbytes)  # releases the interpreter lock

    def bandwidth(self, seconds: float) -> float:
        """Bytes read and written per second, given the time of one copy."""
        return 2 * self.source.nbytes / seconds
