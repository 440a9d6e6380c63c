"""Compiled kernels by name: from disk where they are, else compiled and kept; Numba loads for the latter alone.

A kernel is a function of eight integers. `Kernels("loops.reduce_window").kernel("float32", "winners", "first")` is what
the factory `kernel` of `loops/reduce_window.py` makes of these arguments. Its machine
code is kept under a digest of everything that could change it, with a checksum, so a file that is
damaged, or of another version or processor, counts as none; so does one that another user could write.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any

from lunette.background import forever
from lunette.kernels.cpu.jit import settings, sources, storage
from lunette.kernels.cpu.jit.sources import HERE
from lunette.loading import uninterrupted

__all__ = ["ENTRY", "HERE", "PARAMETERS", "Kernels"]

ENTRY = "lunette_kernel"
"""The one function that a piece of machine code offers: eight int64 in, a status out, 0 if all is well."""

PARAMETERS = 8

_kernels: dict[tuple[Any, ...], Callable[..., int]] = {}
_warned: list[bool] = []


class Kernels:
    """The kernels of a module of `HERE`, by the names of its factories; the module is not loaded."""

    def __init__(self, module: str) -> None:
        self.module = module

    def __getattr__(self, factory: str) -> Callable[..., Callable[..., int]]:
        if not factory.endswith("kernel"):
            raise AttributeError(
                f"{factory!r}: expected the name of a factory, which ends in 'kernel'"
            )
        return partial(_kernel, self.module, factory)


def _kernel(module: str, factory: str, *arguments: Any) -> Callable[..., int]:
    """A kernel, ready to call. The arguments are strings, numbers and booleans, and name it on disk."""
    name = module, factory, *arguments
    found = _kernels.get(name)
    return uninterrupted(_made_once, name) if found is None else found


def _made_once(name: tuple[Any, ...]) -> Callable[..., int]:
    """The kernel that another caller has just asked for, or a new one."""
    found = _kernels.get(name)
    if found is None:
        found = _kernels[name] = _loaded_or_compiled(*name)
    return found


def _loaded_or_compiled(module: str, factory: str, *arguments: Any) -> Callable[..., int]:
    name = module, factory, *arguments
    key, file = _digest(name)
    for folder in _folders():
        code = storage.read(folder, file, key)
        if code is not None:
            return _callable(code)
    compilation = import_module("lunette.kernels.cpu.jit.compile")
    made = getattr(import_module(f"lunette.kernels.cpu.{module}"), factory)(*arguments)
    code = compilation.machine_code(made.py_func)
    _keep(name, code)
    return _callable(code)


def _digest(name: tuple[Any, ...]) -> tuple[bytes, str]:
    """The key of a kernel in these circumstances, and the name of its file."""
    parts = sources.digest(str(name[0])), _circumstances(), settings.changed(), name
    key = hashlib.sha256(repr(parts).encode()).digest()
    return key, "-".join([*map(str, name), key.hex()[:16]]) + ".kernel"


def _keep(name: tuple[Any, ...], code: bytes) -> None:
    """Write machine code where it can be; a warning, once, if others could write everywhere else."""
    key, file = _digest(name)  # Numba is loaded by now, perhaps with other settings
    refused = []
    for folder in _folders():
        mode = 0o755 if folder.parent == HERE else 0o700  # an installation is for all users to read
        try:
            storage.write(folder, file, key, code, mode)
        except storage.Untrusted as why:
            refused.append(str(why))
        except OSError:
            continue
        else:
            storage.prune(folder, file)
            return
    if refused and not _warned:
        _warned.append(True)
        warnings.warn(
            f"kernels are not kept on disk, and compile in every process: {'; '.join(refused)}",
            storage.KernelCacheWarning,
            stacklevel=2,
        )


# -- machine code in this process --


def _callable(code: bytes) -> Callable[..., int]:
    """The entry of a piece of machine code; a call of it releases the interpreter lock."""
    import llvmlite.binding as llvm

    _start()
    machine = llvm.Target.from_default_triple().create_target_machine(jit=True)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    signature = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_int64] * PARAMETERS)
    function: Any = signature(engine.get_function_address(ENTRY))
    function.engine = engine  # the code lies in the engine's memory
    forever(function)
    return function  # type: ignore[no-any-return]


@cache
def _start() -> None:
    """Make LLVM ready; its newer versions need less of it."""
    import llvmlite.binding as llvm

    with suppress(RuntimeError):
        llvm.initialize()
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()


# -- machine code on disk --


@cache
def _circumstances() -> tuple[Any, ...]:
    """All that machine code depends on besides name and sources: processor, compiler, settings."""
    import llvmlite
    import llvmlite.binding as llvm

    return (
        sys.platform,
        llvm.get_process_triple(),
        llvm.get_host_cpu_name(),
        llvm.get_host_cpu_features().flatten(),
        llvmlite.__version__,
        llvm.llvm_version_info,
        settings.given(),
    )


def _folders() -> Iterator[Path]:
    """Where machine code may lie, the best place first; any may be missing or read-only."""
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    if chosen:
        yield Path(chosen) / "lunette"
        return
    yield HERE / "__pycache__"
    with suppress(RuntimeError):  # raised where there is no home
        yield _user_folder() / "lunette"


def _user_folder() -> Path:
    if sys.platform == "win32" and os.environ.get("LOCALAPPDATA"):
        return Path(os.environ["LOCALAPPDATA"])
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    chosen = os.environ.get("XDG_CACHE_HOME")
    return Path(chosen) if chosen else Path.home() / ".cache"
