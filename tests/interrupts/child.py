"""Programs for processes of their own: `python -m tests.interrupts.child MODE THREADS SEED COUNT [NAME …]`.

Each prints a line of JSON when all went well, and fails otherwise. A process that hangs says where.
"""

import ctypes
import faulthandler
import json
import random
import signal
import sys
import threading
import time
from itertools import count

import lunette as ln
from lunette.kernels import threads as pool
from lunette.kernels.cpu.jit.cache import PARAMETERS
from lunette.kernels.cpu.threadpool import pool as workers
from tests.interrupts.arena import Arena
from tests.interrupts.injecting import AROUND, POOLS, RUNNING, Injector, interrupt
from tests.interrupts.work import numpy_calls, torch_calls


class Prepared:
    """The calls, what they give, and how long they take."""

    def __init__(self, number, names):
        self.calls = torch_calls() if names == ["torch"] else numpy_calls()
        self.names = [n for n in self.calls if names in ([], ["torch"]) or n in names]
        assert self.names, names
        ln.set_num_threads(1)
        self.expected = {name: self.calls[name]() for name in self.names}
        ln.set_num_threads(number)
        self.arena, self.seconds = Arena(), {}
        for name in self.names:
            self.right(name)
            start = time.perf_counter()
            self.right(name)
            self.seconds[name] = time.perf_counter() - start

    def right(self, name):
        assert self.calls[name]() == self.expected[name], f"{name}: wrong"


def nobody_is_at_work():
    assert not workers._pool.board[workers.LED], "a call is still under way"


def interrupted(error):
    """Whether this is an interrupt, or what a context manager of torch's makes of one."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is not None


def signals(prepared, seed, times):
    """Interrupts by a timer at random moments of random calls."""
    chance, seen, whole = random.Random(seed), 0, 0
    armed = False

    def handle(number, frame):
        nonlocal armed
        if armed:
            armed = False
            raise KeyboardInterrupt

    signal.signal(signal.SIGALRM, handle)
    while seen < times:
        name = chance.choice(prepared.names)
        delay = chance.uniform(2e-5, 1.2 * prepared.seconds[name] + 1e-4)
        try:
            armed = True
            signal.setitimer(signal.ITIMER_REAL, delay)
            found = prepared.calls[name]()
            armed = False
            assert found == prepared.expected[name], f"{name}: wrong"
            whole += 1
        except BaseException as error:
            if not interrupted(error):
                raise
            seen += 1
            nobody_is_at_work()
            prepared.arena.check()
            prepared.right(chance.choice(prepared.names))
    prepared.arena.check()
    return {"interrupted": seen, "whole": whole}


class Sent(BaseException):
    """What one thread sends another."""


def sent(prepared, seed, times):
    """Exceptions that another thread sends, at random moments."""
    chance, failures, seen = random.Random(seed), [], [0]

    def loop():
        while seen[0] < times and not failures:
            try:
                name = chance.choice(prepared.names)
                prepared.right(name)
            except Sent:
                seen[0] += 1
                try:
                    prepared.arena.check()
                except AssertionError as error:
                    failures.append(error)
            except BaseException as error:
                failures.append(error)

    def work():
        while seen[0] < times and not failures:
            try:
                loop()
            except Sent:  # it came between
                seen[0] += 1

    thread = threading.Thread(target=work)
    thread.start()
    send = ctypes.pythonapi.PyThreadState_SetAsyncExc
    while thread.is_alive() and seen[0] < times and not failures:
        time.sleep(chance.uniform(1e-4, 4e-3))
        send(ctypes.c_ulong(thread.ident), ctypes.py_object(Sent))
    thread.join()
    assert not failures, failures
    for name in prepared.names:
        prepared.right(name)
    prepared.arena.check()
    return {"interrupted": seen[0]}


def steps(prepared, seed, every):
    """A KeyboardInterrupt at every step, or at every so many, of the code that shares out."""
    found = {}
    opcodes = every > 0
    injector = Injector(POOLS + RUNNING + AROUND, opcodes)
    for name in prepared.names:
        seen = missed = 0
        for target in count(1 + seed, abs(every)):
            try:
                result = injector.during(prepared.calls[name], target, interrupt)
                assert result == prepared.expected[name], f"{name}, step {target}: wrong"
            except KeyboardInterrupt:
                seen += 1
            nobody_is_at_work()
            prepared.arena.check()
            prepared.right(name)
            missed += not injector.acted
            if missed == 2:
                break
        found[name] = seen
    return found


def entered(prepared, seed, every):
    """A call at every step of another, as a signal handler or a finalizer would make it."""
    found = {}
    injector = Injector(POOLS + RUNNING + AROUND, every > 0)
    names = prepared.names
    for name in names:
        done = missed = 0
        for target in count(1 + seed, abs(every)):
            other = names[(target + done) % len(names)]
            result = injector.during(
                prepared.calls[name], target, lambda other=other: prepared.right(other)
            )
            assert result == prepared.expected[name], f"{other} within {name}, step {target}: wrong"
            prepared.arena.check()
            if injector.acted:
                done += 1
            else:
                missed += 1
            if missed == 2:
                break
        found[name] = done
    return found


def handled(prepared, seed, times):
    """A signal handler that makes calls of its own, at random moments of others."""
    chance, done = random.Random(seed), 0

    def handle(number, frame):
        nonlocal done
        prepared.right(chance.choice(prepared.names))
        done += 1

    signal.signal(signal.SIGALRM, handle)
    while done < times:
        name = chance.choice(prepared.names)
        signal.setitimer(signal.ITIMER_REAL, chance.uniform(2e-5, 1.2 * prepared.seconds[name]))
        prepared.right(name)
        signal.setitimer(signal.ITIMER_REAL, 0)
    prepared.arena.check()
    return {"entered": done}


def helpers(prepared, seed, every):
    """A KeyboardInterrupt at every step of the helpers."""
    injector, found = Injector(POOLS + RUNNING), {}
    for name in prepared.names:
        seen = missed = 0
        for target in count(1 + seed, every):
            injector.in_new_threads(target, interrupt)
            workers._forget_after_fork()
            workers._forget_after_fork()
            for _ in range(3):
                try:
                    assert prepared.calls[name]() == prepared.expected[name], f"{name}: wrong"
                except KeyboardInterrupt:
                    seen += 1
            threading.settrace(None)
            prepared.right(name)
            missed += not injector.acted
            if missed == 4:
                break
        found[name] = seen
    return found


def protocol(number, seed, every):
    """A KeyboardInterrupt at every instruction of both pools, while a helper is slow: nobody is at work afterwards."""
    inside, main_thread, found = set(), threading.get_ident(), {}

    def work():
        me = object()
        inside.add(me)
        time.sleep(0 if threading.get_ident() == main_thread else 0.003)
        inside.discard(me)

    @ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_int64] * PARAMETERS)
    def kernel(*arguments):
        work()
        return 0

    def by_pool():
        pool.run(lambda first, last: work(), 2 * number, number)

    def by_crew():
        workers.share_out(kernel, lambda memory: (0,) * (PARAMETERS - 2), 2 * number, 1 << 30)

    for name, call in (("pool", by_pool), ("crew", by_crew)):
        call()
        injector = Injector((*POOLS, *RUNNING))
        seen = missed = 0
        for target in count(1 + seed, every):
            try:
                injector.during(call, target, interrupt)
            except KeyboardInterrupt:
                seen += 1
            assert not inside, f"{name}, step {target}: somebody is at work"
            missed += not injector.acted
            if missed == 3:
                break
        found[name] = seen
    return found


MODES = {f.__name__: f for f in (signals, sent, steps, entered, handled, helpers)}


def main():
    mode, number, seed, times, *names = sys.argv[1:]
    faulthandler.dump_traceback_later(580, exit=True)
    sys.unraisablehook = lambda _: None  # an interrupt within a finalizer ends there
    threading.excepthook = lambda _: None  # one that ends a helper, too
    if mode == "protocol":
        ln.set_num_threads(int(number))
        print(json.dumps(protocol(int(number), int(seed), int(times))))
        return
    prepared = Prepared(int(number), names)
    print(json.dumps(MODES[mode](prepared, int(seed), int(times))))


if __name__ == "__main__":
    main()
