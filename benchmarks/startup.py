"""What a user feels before and between the large arrays: import, first call, overhead, scaling."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import timeit
from statistics import median
from typing import Any

import numpy as np
from rich.console import Console

import lunette as ln
from benchmarks.timing import interleaved

__all__ = ["measure"]

IMPORT = """
import time; start = time.perf_counter()
import {module}
print(time.perf_counter() - start)
"""

FIRST_CALL = """
import time
import numpy as np, lunette as ln
x = np.ones((1, 3, 8, 8), np.float32)
op = {op}
start = time.perf_counter()
{call}
print(time.perf_counter() - start)
"""

CALLS = {
    "max forward": ("ln.MaxPool((3, 3), stride=2, padding=1)", "op(x)"),
    "max vjp": ("ln.MaxPool((3, 3), stride=2, padding=1)", "op.vjp(x, np.ones((1, 3, 4, 4), 'f'))"),
    "mean forward": ("ln.AvgPool((2, 2))", "op(x)"),
    "smooth forward": ("ln.SmoothMaxPool((3, 3), 2.0, stride=2, padding=1)", "op(x)"),
    "smooth vjp": (
        "ln.SmoothMaxPool((3, 3), 2.0, stride=2, padding=1)",
        "op.vjp(x, np.ones((1, 3, 4, 4), 'f'))",
    ),
    "large window": ("ln.MaxPool((7, 7), stride=1, padding=3)", "op(x)"),
    "adaptive max": ("ln.AdaptiveMaxPool((3, 3))", "op(x)"),
}
"""Gradients of max and smooth max take two kernels each, the others one."""


def measure(console: Console, quick: bool = False) -> dict[str, Any]:
    """Seconds of import and first calls, microseconds of a small call, growth with size, threads."""
    console.print("start-up: import, first calls, small calls, scaling, threads")
    return {
        "import_s": _imports(3 if quick else 7),
        "first_call_s": _first_calls(),
        "small_call_us": _small_calls(),
        "scaling": _scaling(quick),
        "threads_ms": _threads(quick),
    }


def _seconds(program: str, **environment: str) -> float:
    finished = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **environment},
    )
    return float(finished.stdout.strip().splitlines()[-1])


def _imports(repeats: int) -> dict[str, float]:
    return {
        module: median(_seconds(IMPORT.format(module=module)) for _ in range(repeats))
        for module in ("lunette", "numpy")
    }


def _first_calls() -> dict[str, dict[str, float]]:
    """The first call of a kernel in a fresh process: nothing compiled, then all on disk."""
    found = {}
    for name, (op, call) in CALLS.items():
        program = FIRST_CALL.format(op=op, call=call)
        with tempfile.TemporaryDirectory() as folder:
            cold = _seconds(program, NUMBA_CACHE_DIR=folder)
            cached = median(_seconds(program, NUMBA_CACHE_DIR=folder) for _ in range(3))
        found[name] = {"cold": cold, "cached": cached}
    return found


def _small_calls() -> dict[str, float]:
    """Microseconds of a call on 1×3×8×8, ours and torch's."""
    x = np.ones((1, 3, 8, 8), np.float32)
    op = ln.MaxPool((3, 3), stride=2, padding=1)
    calls = {"lunette": lambda: op(x)}
    try:
        import torch
        import torch.nn.functional as F

        t = torch.from_numpy(x)
        calls["torch eager"] = lambda: F.max_pool2d(t, 3, 2, 1)
    except ImportError:
        pass
    return {
        name: min(timeit.repeat(call, number=2000, repeat=7)) / 2000 * 1e6
        for name, call in calls.items()
    }


def _scaling(quick: bool) -> dict[str, float]:
    """Time on sixteen times the input over time on the input, both far past the caches."""
    op = ln.MaxPool((3, 3), stride=2, padding=1)
    images = 8 if quick else 32
    small = np.ones((images, 64, 112, 112), np.float32)
    large = np.ones((16 * images, 64, 112, 112), np.float32)
    timings = interleaved({"small": lambda: op(small), "large": lambda: op(large)}, 0.5)
    return {"times": timings["large"].seconds / timings["small"].seconds, "images": images}


def _threads(quick: bool) -> dict[str, float]:
    """Milliseconds of max k3s2p1 forward with each number of threads."""
    op = ln.MaxPool((3, 3), stride=2, padding=1)
    x = np.ones((8 if quick else 32, 64, 112, 112), np.float32)
    before = ln.get_num_threads()
    counts = sorted({1, 2, len(os.sched_getaffinity(0))})

    def with_threads(count: int) -> Any:
        def call() -> Any:
            ln.set_num_threads(count)
            return op(x)

        return call

    timings = interleaved({str(n): with_threads(n) for n in counts}, 0.3)
    ln.set_num_threads(before)
    return {name: t.seconds * 1e3 for name, t in timings.items()}
