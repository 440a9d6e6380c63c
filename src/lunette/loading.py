"""Modules are loaded and kernels compiled in a thread of their own, which nothing interrupts.

Signal handlers run in the main thread, between any two of its steps. An import or a compilation that a handler breaks off
leaves half a module behind, and one that a handler enters again finds half a module. So the thread that needs something
asks for it and waits. If the wait is interrupted, the work goes on, and whoever asks next finds it done.

A fork waits for what is under way, for the child would have its locks but not its thread.
"""

from __future__ import annotations

import atexit
import logging  # noqa: F401  # before our hooks: its own takes a lock, which an import that a fork waits for may need
import os
import sys
import threading
import time
from collections.abc import Callable
from importlib import import_module
from queue import SimpleQueue
from typing import Any

from lunette.background import Workers, ending

__all__ = ["compiles_here", "load", "uninterrupted"]

LONGEST, SHORTEST = 60.0, 1.0
"""Seconds that a fork waits for a compilation or an import, at most; and where it comes from within one."""

OURS = ("lunette", "numba", "llvmlite")
"""Packages whose imports a fork waits for."""


class _Request:
    """A function to be called by the loader, and what came of it."""

    __slots__ = ("arguments", "done", "error", "function", "result")

    def __init__(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        self.function, self.arguments = function, arguments
        self.result: Any = None
        self.error: BaseException | None = None
        self.done = threading.Lock()
        self.done.acquire()

    def serve(self) -> None:
        try:
            self.result = self.function(*self.arguments)
        except BaseException as error:
            self.error = error
        finally:
            self.done.release()


class _Loader:
    """The thread, started on first use, and the queue that it takes requests from."""

    def __init__(self) -> None:
        self.requests: SimpleQueue[_Request] = SimpleQueue()
        self.turn = threading.RLock()  # held by whoever loads
        self.thread = 0
        self.workers = Workers("lunette-loader", self._serve)

    def _serve(self, number: int) -> None:
        self.thread = threading.get_ident()
        while True:
            request = self.requests.get()
            with self.turn:
                request.serve()
            del request  # with all that it holds

    def idle(self, seconds: float) -> None:
        """Wait for what was asked for before, but no longer than so."""
        if self.workers.count and self.thread != threading.get_ident():
            request = _Request(tuple, ())
            self.requests.put(request)
            request.done.acquire(timeout=seconds)


_loader = _Loader()


def uninterrupted(function: Callable[..., Any], *arguments: Any) -> Any:
    """`function(*arguments)`, in the thread that loads. Must be such that nothing is lost if nobody takes its result."""
    loader = _loader
    if loader.thread == threading.get_ident() or _holds_locks() or _outlasts_loader():
        return function(*arguments)
    if not loader.workers.have(1):
        with loader.turn:
            return function(*arguments)
    request = _Request(function, arguments)
    loader.requests.put(request)
    request.done.acquire()
    try:
        if request.error is not None:
            raise request.error
        return request.result
    finally:
        del request  # it holds the error, which holds this frame


def load(name: str) -> Any:
    """A module, as `import_module` gives it, but never half of one."""
    module = sys.modules.get(name)
    if module is None or _half(module):
        return uninterrupted(import_module, name)
    return module


def _half(module: Any) -> bool:
    return bool(getattr(getattr(module, "__spec__", None), "_initializing", False))


def _holds_locks() -> bool:
    """Whether this thread may hold what the loader would have to wait for."""
    return compiles_here() or _imports_here()


def _outlasts_loader() -> bool:
    """Whether the loader has done its work. A daemon is to wait for it all the same, until the process is gone."""
    return ending() and not threading.current_thread().daemon


def compiles_here() -> bool:
    """Whether this thread holds the lock of a compiler: it is in the midst of a compilation."""
    return any(getattr(owner, name)._is_owned() for owner, name in _compilers())


def _imports_here() -> bool:
    """Whether this thread is in the midst of an import."""
    frame: Any = sys._getframe()
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False


def _compilers() -> list[tuple[Any, str]]:
    """Where the locks of Numba and of LLVM are, as owners and names, in the order in which they are taken."""
    numba = sys.modules.get("numba.core.compiler_lock")
    llvm = sys.modules.get("llvmlite.binding.ffi")
    library = getattr(llvm, "lib", None)
    owners = getattr(numba, "global_compiler_lock", None), getattr(library, "_lock", None)
    return [(owner, "_lock") for owner in owners if hasattr(owner, "_lock")]


# -- the end of the process --


@atexit.register
def _finish() -> None:
    """A compiler that is at work while the process takes itself down would find its memory gone.

    So it finishes what it is at, and begins nothing more.
    """
    _loader.idle(LONGEST)
    _loader.turn.acquire(timeout=LONGEST)


# -- forks --

_module_locks: dict[str, Any] = getattr(import_module("importlib._bootstrap"), "_module_locks", {})
"""References to the locks of the modules that are being imported, by name."""

_taken: dict[int, list[tuple[Any, str, bool]]] = {}
"""For each thread that forks: locks as owners and names, and whether they were to be had."""


def _before_fork() -> None:
    within = _holds_locks()
    end = time.monotonic() + (SHORTEST if within else LONGEST)
    _take_locks(end)
    while not within and _imported_elsewhere() and time.monotonic() < end:
        # Whoever imports may need the locks.
        _release_locks(child=False)
        _loader.idle(LONGEST)
        time.sleep(0.001)
        _take_locks(end)


def _imported_elsewhere() -> list[str]:
    """Modules that are being imported by other threads, which are also at one of ours."""
    owners = {}
    for name, reference in list(_module_locks.items()):
        owner = getattr(reference(), "owner", None)
        if owner not in (None, threading.get_ident()):
            owners[name] = owner
    threads = {owner for name, owner in owners.items() if name.startswith(OURS)}
    return [name for name, owner in owners.items() if owner in threads]


def _take_locks(end: float) -> None:
    taken = _taken[threading.get_ident()] = []
    for owner, name in [(_loader, "turn"), *_compilers()]:
        left = max(0.0, end - time.monotonic())
        taken.append((owner, name, getattr(owner, name).acquire(timeout=left)))


def _release_locks(child: bool) -> None:
    for owner, name, had in reversed(_taken.pop(threading.get_ident(), [])):
        if had:
            getattr(owner, name).release()
        elif child:
            setattr(owner, name, threading.RLock())  # whoever holds the other is not here


def _after_fork_in_child() -> None:
    global _loader  # noqa: PLW0603
    for name in _imported_elsewhere():
        # It began just before the fork, and nobody is here to go on with it.
        _module_locks.pop(name, None)
        if _half(sys.modules.get(name)):
            del sys.modules[name]
    _release_locks(child=True)
    _taken.clear()
    _loader = _Loader()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=lambda: _release_locks(child=False),
        after_in_child=_after_fork_in_child,
    )
