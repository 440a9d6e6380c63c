"""Which of several cuts was the fastest, kept on disk: a number for each shape, in one small file.

It is trusted as machine code of the CPU's kernels is: the folder and the file must belong to this user, or to the administrator, and
nobody else may write them. What is read is a number that must be one of the cuts at hand, so a wrong one costs time and nothing else:
all cuts give the same bits. Kept are choices of these sources, this Triton and this model of GPU, whichever library launches them.
"""

from __future__ import annotations

import hashlib
import json
import threading
from contextlib import suppress
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import triton

from lunette.kernels.cpu.jit import cache as library
from lunette.kernels.cpu.jit import storage

__all__ = ["MOST", "keep", "kept"]

MOST = 4096
"""Choices in a file; past it the oldest are forgotten."""

FILES = 4
"""Files in a folder: versions, machines."""

LARGEST = 1 << 18
"""Bytes of a file that is read."""

_lock = threading.Lock()


def kept(key: Any, tiles: list[Any], devices: tuple[str, ...] | None = None) -> Any:
    """The cut that was the fastest of these, in any process; None where nobody has measured them.

    `devices` are the names of this machine's GPUs; without them torch is asked.
    """
    with _lock:
        known = _known() if devices is None else _read(devices)
        place = known.get(_name(key, tiles))
    return tiles[place] if isinstance(place, int) and 0 <= place < len(tiles) else None


def keep(key: Any, tiles: list[Any], best: Any) -> None:
    """Remember a choice for other processes, where a folder can be written."""
    with _lock:
        known = _known()
        known.update(_read())  # what others have measured since
        name = _name(key, tiles)
        known.pop(name, None)
        known[name] = tiles.index(best)
        while len(known) > MOST:
            del known[next(iter(known))]
        text = json.dumps(known, separators=(",", ":")).encode()
        for folder in library._folders():
            with suppress(OSError):
                storage.write(folder, *_file(), text, _mode(folder))
                _prune(folder)
                return


def _name(key: Any, tiles: list[Any]) -> str:
    return hashlib.sha256(repr((key, tiles)).encode()).hexdigest()[:24]


@cache
def _known() -> dict[str, int]:
    """The choices that this process knows, the oldest first."""
    return _read()


def _read(devices: tuple[str, ...] | None = None) -> dict[str, int]:
    """The first file that can be trusted and read; nothing where there is none."""
    for folder in library._folders():
        found = storage.read(folder, *_file(devices))
        if found is None or len(found) > LARGEST:
            continue
        with suppress(ValueError, RecursionError):
            table = json.loads(found)
            if isinstance(table, dict):
                return dict(list(table.items())[-MOST:])
    return {}


@lru_cache(maxsize=16)
def _file(devices: tuple[str, ...] | None = None) -> tuple[str, bytes]:
    """The file of these circumstances, and the key of its checksum."""
    if devices is None:
        devices = _devices()
    sources = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        sources.update(path.name.encode() + b"\0" + path.read_bytes())
    about = sources.hexdigest(), triton.__version__, devices
    key = hashlib.sha256(repr(about).encode()).digest()
    return f"triton-{key.hex()[:16]}.choices", key


def _devices() -> tuple[str, ...]:
    """The names of this machine's GPUs, as torch says them."""
    import torch

    return tuple(torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count()))


def _prune(folder: Path) -> None:
    """Of files of other versions and other machines, keep the newest few."""
    ages = {}
    for path in folder.glob(f"triton-{'?' * 16}.choices"):
        with suppress(OSError):
            ages[path] = path.lstat().st_mtime
    for path in sorted(ages, key=ages.__getitem__)[:-FILES]:
        with suppress(OSError):
            path.unlink()


def _mode(folder: Path) -> int:
    return 0o755 if folder.name == "__pycache__" else 0o700
