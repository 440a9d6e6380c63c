"""The helpers of callers: threads that take units of a call, and are awake for a while after it.

One caller has the crew at a time. Another who comes meanwhile shares its units out by the pool of `threads`, which
any number may use. Which of the two serves, and who takes which range, has no bearing on the result.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

import numpy as np

from lunette.kernels import threads
from lunette.kernels.cpu.compiling.library import Kernels
from lunette.kernels.cpu.memory.working_memory import Memory, of_this_thread
from lunette.kernels.cpu.plans.sizes import CELLS_EACH, LINE
from lunette.kernels.cpu.running.board import (
    ARGUMENTS,
    CLOSED,
    EACH,
    GIVE_WAY,
    HELPERS,
    KERNEL,
    LEAST,
    NEXT,
    OPEN,
    PRESENT,
    SHARE,
    UNITS,
    WORDS,
)

__all__ = ["share_out"]

attendance = Kernels("running.attendance")

SHARE_EACH, SHORTEST = 4, 32
"""How many times a range goes into a thread's part of the units that are left, and at most of all units. So the last
ranges are short, and all threads end together, also where one comes late or is held up."""

PATIENCE = 5000
"""Looks at the board before a helper sleeps: 0.1 to 0.3 ms, about what it takes to wake one."""

MOST = 256
"""Threads of a crew, at most."""


Arguments = Callable[[Memory], tuple[int, int, int, int, int, int]]
"""Gives the first six arguments of a kernel, for a thread with this memory."""


class _Helper:
    """A thread that looks at the board, or sleeps until it is woken."""

    def __init__(self, crew: _Crew, number: int) -> None:
        self.crew, self.number, self.memory = crew, number, Memory()
        self.calls: SimpleQueue[None] = SimpleQueue()
        self.asleep = False
        name = f"lunette-crew-{number}"
        threading.Thread(target=self._attend, name=name, daemon=True).start()

    def _attend(self) -> None:
        crew = self.crew
        while not crew.board[CLOSED]:
            crew.share(crew.at, self.number, PATIENCE, 0, 0, 0, 0, 0)
            self.asleep = True
            # Who opens a call between these two lines does without this helper.
            if not crew.board[OPEN]:
                self.calls.get()
            self.asleep = False

    def wake(self) -> None:
        if self.asleep:
            self.asleep = False
            self.calls.put(None)


class _Crew:
    """The helpers, started on first use, and their board."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.helpers: list[_Helper] = []
        memory = np.zeros(WORDS + EACH * (MOST + 1) + LINE // 8, np.int64)
        # Helpers may look at it until the process is gone.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(memory))
        skip = -memory.__array_interface__["data"][0] % LINE // 8
        self.board = memory[skip:]
        self.at: int = self.board.__array_interface__["data"][0]
        self.board[GIVE_WAY] = _address_of_yield()
        self.share: Any = None

    def run(self, kernel: Any, arguments: Arguments, units: int, count: int) -> bool:
        """All units, on `count` threads; False where the crew is at another call."""
        if not self.lock.acquire(blocking=False):
            return False
        try:
            self.share = self.share or attendance.kernel()
            board, count = self.board, min(count, MOST)
            while len(self.helpers) < count - 1:
                self.helpers.append(_Helper(self, len(self.helpers) + 1))
            board[KERNEL] = ctypes.cast(kernel, ctypes.c_void_p).value or 0
            board[UNITS], board[HELPERS], board[NEXT] = units, count - 1, 0
            board[SHARE], board[LEAST] = count * SHARE_EACH, max(1, units // (count * SHORTEST))
            some = self.helpers[: count - 1]
            for number, memory in enumerate((of_this_thread(), *(h.memory for h in some))):
                board[ARGUMENTS + EACH * number :][:6] = arguments(memory)
            for helper in some:
                helper.wake()
            self.share(self.at, 0, 0, 0, 0, 0, 0, 0)
        finally:
            self.lock.release()
        return True

    def dismiss(self) -> None:
        """Have the helpers leave the board before the code that they run is gone; they look for a moment at most."""
        self.board[CLOSED] = 1
        for _ in range(1000):
            if not self.board[PRESENT]:
                return
            time.sleep(0.001)


def _address_of_yield() -> int:
    """Where the system's function is that lets another thread have the core; 0 where there is none."""
    function = getattr(ctypes.CDLL(None), "sched_yield", None) if os.name == "posix" else None
    return ctypes.cast(function, ctypes.c_void_p).value or 0 if function else 0


_crew = _Crew()


def share_out(kernel: Any, arguments: Arguments, units: int, cells: int) -> None:
    """`kernel(*arguments(memory), first, last)` over ranges that cover `0 … units`.

    On as many threads as a call that visits so many `cells` is worth: to wake one takes its time.
    """
    count = min(threads.get_num_threads(), units, max(1, cells // CELLS_EACH))
    if count <= 1:
        if units:
            kernel(*arguments(of_this_thread()), 0, units)
    elif not _crew.run(kernel, arguments, units, count):

        def task(first: int, last: int) -> None:
            kernel(*arguments(of_this_thread()), first, last)

        threads.run(task, units, count)


def _forget_after_fork() -> None:
    """A child has the memory of its parent but none of its threads."""
    global _crew  # noqa: PLW0603
    _crew = _Crew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_after_fork)


@atexit.register
def _dismiss() -> None:
    _crew.dismiss()
