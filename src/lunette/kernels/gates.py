"""Locks that one call into C waits for, so that no exception comes between: Python's own break off for signal handlers.

A signal handler, and an exception that another thread sends, come in between steps of the interpreter. A wait that is one
step of the interpreter is over when what it waits for is.
"""

from __future__ import annotations

import ctypes
from itertools import repeat

__all__ = ["close", "enter", "leave", "new_gates"]

_python = ctypes.pythonapi

_new = ctypes.PYFUNCTYPE(ctypes.c_void_p)(("PyThread_allocate_lock", _python))
_free = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(("PyThread_free_lock", _python))
_acquire = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_longlong, ctypes.c_int)(
    ("PyThread_acquire_lock_timed", _python)  # a lock, microseconds, whether signals end it
)

leave = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(("PyThread_release_lock", _python))
"""Leave a gate by which one went in; once more does no harm."""


class _Gates(tuple[int, ...]):
    """Their addresses; they are gone with the last reference."""

    __slots__ = ()

    def __del__(self, free: object = _free) -> None:
        any(map(free, self))  # type: ignore[call-overload]


def new_gates(count: int) -> tuple[int, ...]:
    """So many open gates, each for one who goes in, at most."""
    found = _Gates(_new() for _ in range(count))
    if not all(found):
        raise MemoryError("no memory for a lock")
    return found


def enter(gate: int) -> bool:
    """Go in, unless the gate is closed."""
    return bool(_acquire(gate, 0, 0))


def close(gates: tuple[int, ...]) -> map[int]:
    """Closes gates as it is iterated over: each when nobody is inside. What is left of it may be iterated over later."""
    return map(_acquire, gates, repeat(-1), repeat(0))
