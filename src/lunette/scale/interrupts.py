"""Ctrl-C as a request: noted at once, obeyed where nothing is half done, with no words of libraries.

A KeyboardInterrupt that strikes inside another library leaves tasks and locks of its own behind. So
signals only leave a note, and `check` raises it between tiles and between steps. A second signal
ends the process on the spot, which the journal allows at any moment.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["STOPPED", "Stopped", "check", "noted"]

STOPPED = "stopped; go on with --resume"


class Stopped(KeyboardInterrupt):
    """A signal that was noted; `code` is the exit status that shells give to it."""

    def __init__(self, number: int) -> None:
        super().__init__(STOPPED)
        self.code = 128 + number


_pending: list[int] = []


def check() -> None:
    """Raise the signal that was noted, once."""
    if _pending:
        raise Stopped(_pending.pop())


@contextmanager
def noted() -> Iterator[None]:
    """Note SIGINT and SIGTERM while this is open; only the main thread can ask for it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    seen: list[int] = []

    def note(number: int, frame: Any) -> None:
        if seen:
            os.write(2, f"\n{STOPPED}\n".encode())
            os._exit(128 + number)
        seen.append(number)
        _pending.append(number)

    before = {n: signal.signal(n, note) for n in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        _pending.clear()
        for number, handler in before.items():
            signal.signal(number, handler)
