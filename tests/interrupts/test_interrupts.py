"""Interrupts at any moment: no crash, no hang, no memory given back under somebody who is at work, right results afterwards.

`LUNETTE_INTERRUPTS` multiplies how many there are, `LUNETTE_SEED` moves them to other moments.
"""

import gc
import os
import signal
import threading
import weakref

import numpy as np
import pytest

import lunette as ln
from lunette import background, loading
from lunette.kernels import threads
from lunette.kernels.cpu.threadpool import pool, team
from tests.interrupts.processes import children

TIMES, SEED = (
    int(os.environ.get("LUNETTE_INTERRUPTS", "1")),
    int(os.environ.get("LUNETTE_SEED", "0")),
)


def test_interrupts_at_random_moments():
    signals, through_torch, sent, handled = children(
        ("signals", 3, SEED, 120 * TIMES),
        ("signals", 2, SEED + 1, 60 * TIMES, "torch"),
        ("sent", 8, SEED, 60 * TIMES),
        ("handled", 3, SEED, 60 * TIMES),
    )
    assert signals["interrupted"] >= 120
    assert through_torch["interrupted"] >= 60
    assert sent["interrupted"] >= 60
    assert handled["entered"] >= 60


def test_interrupts_at_every_step():
    """Of the pools, instruction by instruction; of whole calls, line by line; and of the helpers."""
    pools, whole, within, helpers = children(
        ("protocol", 3, 0, 1),
        ("steps", 3, 0, -1, "conv", "max large", "smooth last"),
        ("entered", 3, 0, -1, "max strange", "smooth last", "conv gradient"),
        ("helpers", 3, 0, 7, "conv"),
    )
    assert min(pools.values()) > 100, pools
    assert min(whole.values()) > 50, whole
    assert min(within.values()) > 50, within
    assert set(helpers) == {"conv"}  # how many of them came in time is up to the system


@pytest.mark.full
@pytest.mark.parametrize("number", [2, 3, 8])
def test_many_interrupts_at_random_moments(number):
    """Some ten thousand in all."""
    found = children(
        ("signals", number, SEED, 2000 * TIMES),
        ("signals", number, SEED + 1, 600 * TIMES, "torch"),
        ("sent", number, SEED, 500 * TIMES),
        ("handled", number, SEED, 500 * TIMES),
    )
    assert sum(map(sum, (f.values() for f in found))) >= 3600


@pytest.mark.full
@pytest.mark.parametrize("number", [2, 3, 8])
def test_interrupts_at_every_instruction(number):
    """Of calls of every kind."""
    names = ("max large gradient", "mean large", "smooth strange", "max items", "conv", "conv half")
    whole, within, gradient, helpers = children(
        ("steps", number, 0, 1, *names),
        ("entered", number, 0, 1, *names),
        ("steps", number, 0, 3, "conv gradient", "smooth last"),
        ("helpers", number, 0, 1, "conv", "max large"),
    )
    assert min(whole.values()) > 200, whole
    assert min(within.values()) > 200, within
    assert min(gradient.values()) > 200, gradient
    assert set(helpers) == {"conv", "max large"}


# -- errors, and threads that are not to be had --


@pytest.fixture
def fresh(monkeypatch):
    """Pools without threads, and three threads to be used."""
    before = ln.get_num_threads()
    monkeypatch.setattr(threads, "_pool", threads._Pool())
    monkeypatch.setattr(pool, "_pool", pool.ThreadPool())
    monkeypatch.setattr(loading, "_loader", loading._Loader())
    monkeypatch.setattr(team._Team, "address", 0)  # torch's threads are not ours to refuse
    ln.set_num_threads(3)
    yield
    ln.set_num_threads(before)


@pytest.mark.parametrize("to_be_had", [0, 1])
def test_no_thread_is_to_be_had(fresh, monkeypatch, to_be_had):
    """The work is done by fewer threads, and by the caller alone if need be."""
    start, left = threading.Thread.start, [to_be_had]

    def limited(thread):
        if not left[0]:
            raise RuntimeError("can't start new thread")
        left[0] -= 1
        start(thread)

    x = np.random.default_rng(0).standard_normal((4, 16, 112, 112), dtype=np.float32)
    weight = np.ones((4, 16, 3, 3), np.float32)
    small = x[:1, :, :30, :30]
    ln.set_num_threads(1)
    expected = ln.max_pool(x, (3, 3), 2, 1), ln.conv(small, weight)
    ln.set_num_threads(3)
    monkeypatch.setattr(threading.Thread, "start", limited)
    for _ in range(3):
        assert (ln.max_pool(x, (3, 3), 2, 1) == expected[0]).all()
        assert (ln.conv(small, weight) == expected[1]).all()
    assert loading.uninterrupted(sum, [1, 2]) == 3
    monkeypatch.setattr(threading.Thread, "start", start)
    assert (ln.max_pool(x, (3, 3), 2, 1) == expected[0]).all()
    assert len(pool._pool.workers.places) == 2  # as soon as there are threads again


def test_an_error_in_a_task_is_raised_when_all_have_left(fresh):
    inside, done = set(), []

    def task(first, last):
        me = object()
        inside.add(me)
        try:
            if first == 5:
                raise ArithmeticError("of unit 5")
            threading.Event().wait(0.002)
            done.append(first)
        finally:
            inside.discard(me)

    for _ in range(20):
        with pytest.raises(ArithmeticError, match="of unit 5"):
            threads.run(task, 12, 3)
        assert not inside
    done.clear()
    threads.run(lambda first, last: done.append((first, last)), 12, 3)
    assert sorted(done) == [(i, i + 1) for i in range(12)]


def test_an_error_keeps_nothing_alive(fresh):
    """The call and what it held is gone with the error, without a search for cycles."""

    class Held:
        pass

    held = Held()
    known = weakref.ref(held)
    gc.collect()
    gc.disable()
    try:
        with pytest.raises(ZeroDivisionError):
            threads.run(lambda first, last: 1 / 0, 12, 3, held)
        threads.run(lambda first, last: None, 12, 3)  # helpers have looked at the other by now
        del held
        assert known() is None
    finally:
        gc.enable()


def test_an_interrupted_wait_leaves_the_work_to_be_finished(fresh):
    """Whoever asks next finds it done."""
    go, found = threading.Event(), []

    def slow():
        go.wait(60)
        found.append(threading.current_thread().name)
        return "made"

    class Stop(BaseException):
        pass

    def handle(number, frame):
        raise Stop

    before = signal.signal(signal.SIGALRM, handle)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(Stop):
            loading.uninterrupted(slow)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert not found
    go.set()
    assert loading.uninterrupted(len, found) == 1
    assert found == ["lunette-loader-1"]


def test_workers_that_die_are_replaced():
    died, lives = threading.Event(), threading.Event()

    def work(number):
        if not died.is_set():
            died.set()
            return
        lives.set()
        threading.Event().wait(60)

    workers = background.Workers("test", work)
    assert workers.have(1) == 1
    assert died.wait(60)
    while not lives.wait(0.01):
        assert workers.have(1) == 1
