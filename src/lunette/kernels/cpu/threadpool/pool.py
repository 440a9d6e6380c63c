"""The workers of callers: threads that take units of a call, and are awake for a while after it.

One caller has the pool at a time. Another who comes meanwhile shares its units out by the pool of `threads`, which
any number may use. Which of the two serves, and who takes which range, has no bearing on the result.

A caller may be interrupted anywhere, and may be a signal handler within another caller. So there is no lock here: a job is
made ready, and one call of a kernel takes the board, has the job done and gives the board back.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import threading
import time
from array import array
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np

from lunette.background import Workers, forever
from lunette.kernels import threads
from lunette.kernels.cpu.jit.cache import Kernels
from lunette.kernels.cpu.memory.scratchpad import Scratchpad, scratchpad
from lunette.kernels.cpu.threadpool import team
from lunette.kernels.cpu.threadpool.shared import (
    APART,
    CLOSED,
    DONE,
    LED,
    OPEN,
    PRESENT,
    WORDS,
    YIELD_CORE,
)

__all__ = ["share_out"]

attendance = Kernels("threadpool.worker")

CHUNK_DIVISOR, MIN_CHUNK = 4, 32
"""How many times a range goes into a thread's part of the units that are left, and at most of all units. So the last
ranges are short, and all threads end together, also where one comes late or is held up."""

SPIN_BEFORE_SLEEP = 5000
"""Looks at the board before a worker sleeps: 0.1 to 0.3 ms, about what it takes to wake one."""

MOST = 256
"""Threads of a pool, at most."""


Arguments = Callable[[Scratchpad], tuple[int, int, int, int, int, int]]
"""Gives the first six arguments of a kernel, for a thread with this memory."""


class Worker:
    """What a thread works in that looks at the board, and how it is woken when it sleeps."""

    def __init__(self) -> None:
        self.memory = Scratchpad()
        self.bell = threading.Lock()
        self.bell.acquire()
        self.asleep = False

    def sleep(self, pool: ThreadPool) -> None:
        self.asleep = True
        # Who opens a call between these two lines does without this worker.
        if not pool.board[OPEN]:
            self.bell.acquire()
        self.asleep = False

    def wake(self) -> None:
        if self.asleep and self.bell.locked():
            with suppress(RuntimeError):  # another caller has just rung
                self.bell.release()


class ThreadPool:
    """The workers, started on first use, and their board."""

    def __init__(self) -> None:
        self.states: dict[int, Worker] = {}
        self.workers = Workers("lunette-pool", self._worker_loop)
        memory = np.zeros(WORDS + APART, np.int64)
        skip = -memory.__array_interface__["data"][0] % (8 * APART) // 8
        self.board = memory[skip:]
        self.at: int = self.board.__array_interface__["data"][0]
        self.board[YIELD_CORE] = _address_of_yield()
        self.share: Any = None
        forever(self)

    def run(self, kernel: Any, arguments: Arguments, units: int, count: int) -> bool:
        """All units, on up to `count` threads; False where the pool is at another call."""
        if self.board[LED]:
            return False
        share = self.share = self.share or attendance.kernel()
        parallel = team.parallel(count)
        if not parallel:
            count = self.workers.have(min(count, MOST) - 1) + 1
        some = [self._worker(number) for number in range(1, count)]
        at = ctypes.cast(kernel, ctypes.c_void_p).value or 0
        own = scratchpad()
        job = array(
            "q",
            (
                at,
                units,
                count * CHUNK_DIVISOR,
                max(1, units // (count * MIN_CHUNK)),
                count - 1,
                0,
                0,
                self.at,
            ),
        )
        for memory in (own, *(h.memory for h in some)):
            job.extend((*arguments(memory), 0, 0))
        if parallel:
            part: Any = attendance.team_kernel()
            function = ctypes.cast(part, ctypes.c_void_p).value or 0
            share(self.at, -1, job.buffer_info()[0], parallel, function, 0, 0, 0)
            return bool(job[DONE])
        for worker in some:
            worker.wake()
        share(self.at, 0, job.buffer_info()[0], 0, 0, 0, 0, 0)
        return bool(job[DONE])

    def _worker(self, number: int) -> Worker:
        return self.states.get(number) or self.states.setdefault(number, Worker())

    def _worker_loop(self, number: int) -> None:
        worker = self._worker(number)
        while not self.board[CLOSED]:
            self.share(self.at, number, SPIN_BEFORE_SLEEP, 0, 0, 0, 0, 0)
            worker.sleep(self)

    def dismiss(self) -> None:
        """Have the workers leave the board; they look for a moment at most."""
        self.board[CLOSED] = 1
        for _ in range(1000):
            if not self.board[PRESENT]:
                return
            time.sleep(0.001)


def _address_of_yield() -> int:
    """Where the system's function is that lets another thread have the core; 0 where there is none."""
    function = getattr(ctypes.CDLL(None), "sched_yield", None) if os.name == "posix" else None
    return ctypes.cast(function, ctypes.c_void_p).value or 0 if function else 0


_pool = ThreadPool()


def share_out(kernel: Any, arguments: Arguments, units: int, cells: int) -> None:
    """`kernel(*arguments(memory), first, last)` over ranges that cover `0 … units`.

    On as many threads as a call that visits so many `cells` is worth: to wake one takes its time.
    """
    awake = int(_pool.board[PRESENT]) or team.parallel(2)
    count = min(threads.get_num_threads(), units, threads.worth(cells, awake))
    if count <= 1:
        if units:
            memory = scratchpad()
            kernel(*arguments(memory), 0, units)
    elif not _pool.run(kernel, arguments, units, count):

        def task(first: int, last: int) -> None:
            memory = scratchpad()
            kernel(*arguments(memory), first, last)

        threads.run(task, units, count)


def _forget_after_fork() -> None:
    """A child has the memory of its parent but none of its threads."""
    global _pool  # noqa: PLW0603
    _pool = ThreadPool()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_after_fork)


@atexit.register
def _dismiss() -> None:
    _pool.dismiss()
