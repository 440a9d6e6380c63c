"""A small pool of threads that share out the units of one call; any thread may call, also after a fork.

Kernels release the interpreter lock, so plain threads run them side by side. A call cuts its units
into ranges; the caller works too and takes ranges like any helper, so a call always gets done even
when every helper is busy with other calls. Which thread takes a range has no bearing on the result.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from itertools import count
from queue import SimpleQueue
from typing import Any

from lunette.arguments import size

__all__ = ["get_num_threads", "limited", "run", "set_num_threads"]

RANGES_PER_THREAD = 4
"""More ranges than threads, so that a thread that was held up leaves its share to others."""


def _default() -> int:
    text = os.environ.get("LUNETTE_NUM_THREADS", "")
    if text:
        try:
            number = int(text)
        except ValueError:
            number = 0
        if number < 1:
            raise ValueError(
                f"LUNETTE_NUM_THREADS={text!r}: expected the number of threads, 1 or more"
            )
        return number
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class _Pool:
    """The helpers, started on first use, and the queue they take calls from."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.calls: SimpleQueue[_Call] = SimpleQueue()
        self.helpers = 0

    def call(self, call: _Call, helpers: int) -> None:
        with self.lock:
            while self.helpers < helpers:
                self.helpers += 1
                name = f"lunette-{self.helpers}"
                threading.Thread(target=self._help, name=name, daemon=True).start()
        for _ in range(helpers):
            self.calls.put(call)

    def _help(self) -> None:
        while True:
            self.calls.get().help()


class _Call:
    """One kernel over `units`, cut into ranges that whoever is free takes."""

    __slots__ = ("cut", "done", "error", "joined", "left", "lock", "numbers", "ranges", "task")

    def __init__(self, task: Callable[[int, int], Any], units: int, ranges: int) -> None:
        self.task, self.ranges = task, ranges
        self.cut = [units * i // ranges for i in range(ranges + 1)]
        self.numbers = count()
        self.lock = threading.Lock()
        self.done = threading.Event()
        self.joined = self.left = 0
        self.error: BaseException | None = None

    def work(self) -> None:
        for i in self.numbers:  # next() on a count is atomic
            if i >= self.ranges or self.error is not None:
                return
            try:
                self.task(self.cut[i], self.cut[i + 1])
            except BaseException as error:
                self.error = error

    def help(self) -> None:
        with self.lock:
            if self.done.is_set():
                return
            self.joined += 1
        self.work()
        with self.lock:
            self.left += 1
            if self.left == self.joined:  # no range is left, and nobody is at one
                self.done.set()

    def finish(self) -> None:
        """Wait for the helpers that joined; those that come later find the call done."""
        with self.lock:
            if self.left == self.joined:
                self.done.set()
        self.done.wait()
        if self.error is not None:
            raise self.error


_pool = _Pool()
_threads = 0


def _forget_after_fork() -> None:
    """A child has the memory of its parent but none of its threads."""
    global _pool  # noqa: PLW0603
    _pool = _Pool()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_after_fork)


def set_num_threads(n: int) -> None:
    """Use up to `n` threads in each call, from now on; results do not depend on it."""
    global _threads  # noqa: PLW0603
    _threads = size(n, "n", 1)


def get_num_threads() -> int:
    """Threads that a large call uses: set by hand, by LUNETTE_NUM_THREADS, or one per core."""
    global _threads  # noqa: PLW0603
    if not _threads:
        _threads = _default()
    return min(_threads, _own.most)


class _Limit(threading.local):
    """The most threads that calls of this thread may use."""

    most = 1 << 30


_own = _Limit()


class limited:
    """While in it, calls of this thread use `n` threads at most: as many as the library whose arrays these are."""

    __slots__ = ("before", "n")

    def __init__(self, n: int) -> None:
        self.n = n

    def __enter__(self) -> None:
        self.before = _own.most
        _own.most = min(self.n, self.before)

    def __exit__(self, *_: Any) -> None:
        _own.most = self.before


def run(task: Callable[[int, int], Any], units: int, threads: int = 0) -> None:
    """`task(first, last)` over ranges that cover `0 … units`, on up to `threads` threads."""
    threads = min(threads or get_num_threads(), units)
    if threads <= 1:
        if units:
            task(0, units)
        return
    call = _Call(task, units, min(units, threads * RANGES_PER_THREAD))
    _pool.call(call, threads - 1)
    call.work()
    call.finish()
