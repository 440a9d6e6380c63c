"""Which sources a kernel is made of: its module and all that it imports, read from the text alone.

A kernel's key on disk has a digest of them, so an edit compiles anew only what the edited file can
have changed. No module is loaded to find this out.
"""

from __future__ import annotations

import hashlib
import re
from functools import cache
from pathlib import Path

__all__ = ["HERE", "digest", "files"]

HERE = Path(__file__).resolve().parents[1]
"""The folder of the CPU kernels."""

IMPORT = re.compile(rb"from lunette\.kernels\.cpu([.\w]*) import (\([^)]*\)|[^\n]*)")
"""An import, wherever it stands: at the head of a module or within a function."""

NAME = re.compile(rb"\w+")


def digest(module: str) -> str:
    """A digest of the sources that make the kernels of a module of `HERE`, such as "loops.reduce_window"."""
    found = hashlib.sha256()
    for path in sorted(files(module)):
        found.update(f"{path.relative_to(HERE).as_posix()} {_read(path)[0]}\n".encode())
    return found.hexdigest()


def files(module: str) -> set[Path]:
    """A module's file, those of all that it imports from `HERE`, and the compiler's."""
    found: set[Path] = set()
    waiting = [*HERE.joinpath("jit").glob("*.py"), *_file(module)]
    while waiting:
        path = waiting.pop()
        if path not in found:
            found.add(path)
            waiting.extend(file for name in _read(path)[1] for file in _file(name))
    return found


@cache
def _read(path: Path) -> tuple[str, tuple[str, ...]]:
    """A digest of a file, and all that may be a module of ours among the names in its imports."""
    text, found = path.read_bytes(), []
    for package, names in IMPORT.findall(text):
        plain = re.sub(rb"#[^\n]*|\bas\s+\w+", b"", names)
        found += [package, *(package + b"." + name for name in NAME.findall(plain))]
    return hashlib.sha256(text).hexdigest(), tuple(name.decode()[1:] for name in found)


@cache
def _file(name: str) -> tuple[Path, ...]:
    """The file of a module of ours, or none where the name is not a module's."""
    path = HERE.joinpath(*name.split("."))
    return tuple(file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file())
