"""A small pool of threads that share out the units of one call; any thread may call, also after a fork.

Kernels release the interpreter lock, so plain threads run them side by side. A call cuts its units
into ranges; the caller works too and takes ranges like any helper, so a call always gets done even
when every helper is busy with other calls, or there is none. Which thread takes a range has no bearing on the result.

A call is over when nobody is at it, also if it is interrupted: its arrays may be gone then.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from itertools import count
from queue import SimpleQueue
from time import perf_counter_ns
from typing import Any

from lunette.arguments import size
from lunette.background import Workers, forever
from lunette.kernels.gates import close, enter, leave, new_gates
from lunette.loading import compiles_here
from lunette.platform import usable_cores

__all__ = ["get_num_threads", "limited", "run", "set_num_threads", "worth"]

RANGES_PER_THREAD = 4
"""More ranges than threads, so that a thread that was held up leaves its share to others."""


CELLS_ASLEEP = 1 << 18
"""Cells that a call visits for each of its threads, at least, where they sleep: to wake one takes as long as some of them."""

CELLS_AWAKE = 1 << 15
"""The same where they look for work: to hand some to one takes a microsecond or two."""

SOON = 200_000
"""Nanoseconds after a call within which another is one of many: then it wakes as many as if they were awake."""

_last = [0]


def worth(cells: int, awake: int) -> int:
    """How many threads a call that visits so many cells is worth, where so many look for work."""
    now = perf_counter_ns()
    last, _last[0] = _last[0], now
    share = CELLS_AWAKE if awake or now - last < SOON else CELLS_ASLEEP
    return max(1, cells // share)


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
    first = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    if first.isdecimal() and int(first):  # what the user said to every library of this process
        return min(int(first), usable_cores())
    return usable_cores()


class _Call:
    """One kernel over `units`, cut into ranges that whoever is free takes. Helper k comes and goes by gate k."""

    __slots__ = ("cut", "error", "gates", "held", "numbers", "ranges", "task")

    def __init__(self, task: Callable[[int, int], Any], units: int, ranges: int, held: Any) -> None:
        self.task: Any = task
        self.held = held
        self.ranges = ranges
        self.cut = [units * i // ranges for i in range(ranges + 1)]
        self.numbers = count()
        self.gates: tuple[int, ...] = ()
        self.error: BaseException | None = None

    def work(self) -> None:
        for i in self.numbers:  # next() on a count is atomic
            if i >= self.ranges or self.error is not None:
                return
            try:
                self.task(self.cut[i], self.cut[i + 1])
            except BaseException as error:
                self.error = error

    def help(self, number: int) -> None:
        gate = self.gates[number]
        try:
            self._help(gate)
        finally:
            leave(gate)

    def _help(self, gate: int) -> None:
        try:
            if enter(gate):
                self.work()
        except BaseException as error:  # also one that came between ranges: a range may be lost
            self.error = error
        finally:
            leave(gate)


class _Pool:
    """The helpers, started on first use, and the queue they take calls from."""

    def __init__(self) -> None:
        self.calls: SimpleQueue[tuple[_Call, int]] = SimpleQueue()
        self.workers = Workers("lunette", self._help)
        forever(self)

    def share(self, call: _Call, helpers: int) -> None:
        """Do the call with so many helpers. Nobody is at it any more when this ends, in whichever way."""
        call.gates = new_gates(helpers)
        closing = close(call.gates)
        try:
            self._share(call, closing)
        finally:
            all(closing)
            # Some helpers may not have looked yet.
            call.task = call.held = None

    def _share(self, call: _Call, closing: Iterator[int]) -> None:
        try:
            for number in range(len(call.gates)):
                self.calls.put((call, number))
            call.work()
        except BaseException:
            call.ranges = 0  # the others need not go on
            raise
        finally:
            # One step of the interpreter. Another exception may come before it, so the caller does it again:
            # that does the rest of what is to be done, if there is any.
            all(closing)

    def _help(self, _: int) -> None:
        while True:
            call, number = self.calls.get()
            call.help(number)
            del call


_pool = _Pool()
_threads = 0


def _forget_after_fork() -> None:
    """A child has the memory of its parent but none of its threads."""
    global _pool  # noqa: PLW0603
    _pool = _Pool()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_after_fork)


def set_num_threads(n: int) -> None:
    """Use up to `n` threads in each call, from now on; results do not depend on it.

    Parameters
    ----------
    n : int
        1 or more.

    Raises
    ------
    ValueError, TypeError
        For another number, or none.

    Examples
    --------
    >>> import lunette as ln
    >>> before = ln.get_num_threads()
    >>> ln.set_num_threads(1)
    >>> ln.get_num_threads()
    1
    >>> ln.set_num_threads(before)
    """
    global _threads  # noqa: PLW0603
    _threads = size(n, "n", 1)


def get_num_threads() -> int:
    """Threads that a large call uses: set by hand, by LUNETTE_NUM_THREADS, or one per core.

    Returns
    -------
    int
        1 or more.

    Raises
    ------
    ValueError
        For a LUNETTE_NUM_THREADS that is no such number.

    Examples
    --------
    >>> import lunette as ln
    >>> ln.get_num_threads() >= 1
    True
    """
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


def run(task: Callable[[int, int], Any], units: int, threads: int = 0, held: Any = None) -> None:
    """`task(first, last)` over ranges that cover `0 … units`, on up to `threads` threads.

    `held` is what the task reads and writes by its address alone; it lives as long as somebody may be at the task.
    No exception ends this, also no interrupt, before all threads have left the task. Then the first one is raised.
    """
    threads = min(threads or get_num_threads(), units)
    if threads > 1 and not compiles_here():  # a helper might have to wait for that compiler
        helpers = _pool.workers.have(threads - 1)
        if helpers:
            ranges = min(units, (helpers + 1) * RANGES_PER_THREAD)
            call = _Call(task, units, ranges, held)
            _pool.share(call, helpers)
            error, call.error = call.error, None  # its traceback holds the call
            if error is not None:
                try:
                    raise error
                finally:
                    del error
            return
    if units:
        task(0, units)
