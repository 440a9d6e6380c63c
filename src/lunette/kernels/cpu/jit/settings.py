"""Which Numba compiles, and what it is told: known without loading it, for kernels on disk do without."""

from __future__ import annotations

import hashlib
import os
import sys
from functools import cache
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from lunette.kernels.cpu.jit.storage import content

__all__ = ["changed", "given"]

FILE = ".numba_config.yaml"
"""Settings that Numba reads in the current folder, besides the environment."""

MOST = 1 << 20
"""Bytes of a file of settings, or of one that has Numba's version."""

CONFIG = "numba.core.config"


def given() -> tuple[Any, ...]:
    """Numba's version, and the settings of the environment and of a file."""
    variables = sorted(
        (variable, value)
        for variable, value in os.environ.items()
        if variable.startswith("NUMBA_") and variable != "NUMBA_CACHE_DIR"
    )
    return _version(), variables, hashlib.sha256(content(FILE, MOST, ours=False) or b"").hexdigest()


def _version() -> str:
    """A digest of the file that names the version, or nothing where there is no Numba."""
    spec = find_spec("numba")
    if spec is None or not spec.submodule_search_locations:
        return ""
    found = content(Path(spec.submodule_search_locations[0]) / "_version.py", MOST, ours=False)
    return hashlib.sha256(found or b"").hexdigest()


def changed() -> tuple[Any, ...]:
    """Settings that a program has changed since Numba was loaded; none while it is not."""
    config = sys.modules.get(CONFIG)
    if config is None:
        return ()
    fresh = _fresh(config.__file__)
    return tuple(
        sorted(
            (name, repr(value))
            for name, value in list(vars(config).items())
            if name.isupper() and name in fresh and fresh[name] != value and _matters(name)
        )
    )


def _matters(name: str) -> bool:
    """Whether a setting may change code: where it is kept and how many threads run do not."""
    return name != "CACHE_DIR" and "THREAD" not in name


@cache
def _fresh(path: str | None) -> dict[str, Any]:
    """The settings that Numba would find if it were loaded now: its own module, read a second time."""
    spec = spec_from_file_location(f"{CONFIG} of lunette", path) if path else None
    if spec is None or spec.loader is None:
        return {}
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return vars(module)
