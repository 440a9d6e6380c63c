"""Threads that are started when they are first wanted and work until the process ends."""

from __future__ import annotations

import atexit
import ctypes
import threading
from collections.abc import Callable
from typing import Any

__all__ = ["Workers", "ending", "forever"]

_ending: list[bool] = []


@atexit.register
def _end() -> None:
    _ending.append(True)


def ending() -> bool:
    """Whether the interpreter is about to stop: no new thread would ever run, and nobody may wait for one."""
    return bool(_ending)


def forever(thing: Any) -> None:
    """Keep a thing until the process is gone: threads that use it may outlast the interpreter."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


class Workers:
    """Numbered threads, each of which runs `work(number)`, which does not return as a rule.

    A caller may be interrupted anywhere, and may be a signal handler within another caller. So there is no lock to be
    left behind: a place belongs to the thread that takes it, and a thread that finds its place taken ends.
    """

    def __init__(self, name: str, work: Callable[[int], None]) -> None:
        self.name, self.work = name, work
        self.count = 0
        self.places: dict[int, threading.Lock] = {}

    def have(self, wanted: int) -> int:
        """Start threads until there are as many as wanted, or the system gives no more; how many there are."""
        if self.count >= wanted:
            return wanted
        for number in range(1, wanted + 1):
            place = self.places.setdefault(number, threading.Lock())
            if not place.locked() and not self._start(number, place):
                return number - 1
        self.count = wanted
        # One may have ended meanwhile, and one that has just been started may not have its place yet.
        if not all(self.places[number].locked() for number in range(1, wanted + 1)):
            self.count = 0
        return wanted

    def _start(self, number: int, place: threading.Lock) -> bool:
        if ending():
            return False
        thread = threading.Thread(
            target=self._run, args=(number, place), name=f"{self.name}-{number}", daemon=True
        )
        try:
            thread.start()
        except (RuntimeError, MemoryError):  # no more threads for this user, or no memory for one
            return False
        return True

    def _run(self, number: int, place: threading.Lock) -> None:
        if not place.acquire(blocking=False):
            return
        try:
            self.work(number)
        finally:
            place.release()
            self.count = 0  # who wants threads next looks at each place again
