"""What the figures were measured on: date, machine, versions."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

__all__ = ["describe"]

PACKAGES = (
    "numpy",
    "numba",
    "torch",
    "onnxruntime",
    "jax",
    "scipy",
    "opencv-python-headless",
)


def describe() -> dict[str, object]:
    """Date, processor, cores, and the versions of everything that was timed."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "system": platform.system(),
        "python": platform.python_version(),
        "versions": {name: found for name in PACKAGES if (found := _version(name))},
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    fields = dict(line.partition(":")[::2] for line in lines if ":" in line)
    named = {key.strip(): value.strip() for key, value in fields.items()}
    return f"{named.get('model name', platform.machine())} ({_generation()})"


def _generation() -> str:
    """LLVM's name for the processor: its own may not tell one generation from the next."""
    import llvmlite.binding as llvm

    return str(llvm.get_host_cpu_name())


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
