"""Calls shared out among torch's OpenMP threads: when they are, the same bits, and what ends it."""

import os
import signal
import threading

import numpy as np
import pytest
import torch

import lunette as ln
from lunette.kernels.cpu.threadpool import pool, team

X = np.random.default_rng(0).standard_normal((8, 32, 56, 56)).astype(np.float32)
WEIGHT = np.random.default_rng(1).standard_normal((8, 32, 3, 3)).astype(np.float32)
CALLS = [
    lambda: ln.max_pool(X, (2, 2)),
    lambda: ln.avg_pool(X, (3, 3), 1, 1),
    lambda: ln.conv(X, WEIGHT, padding=1),
    lambda: ln.MaxPool((3, 3), 2, 1)(torch.from_numpy(X)).numpy(),
]


@pytest.fixture(autouse=True)
def threads():
    before, ours = torch.get_num_threads(), ln.get_num_threads()
    yield
    torch.set_num_threads(before)
    ln.set_num_threads(ours)


@pytest.fixture
def teams(monkeypatch):
    """How many calls went to a team."""
    if not team.parallel(1):
        pytest.skip("no OpenMP of GNU's in this process")
    found = []
    asked = team.parallel

    def parallel(count):
        address = asked(count)
        if count > 2 and address:
            found.append(count)
        return address

    monkeypatch.setattr(pool.team, "parallel", parallel)
    return found


@pytest.mark.parametrize("count", [3, 8, 16])
def test_a_team_gives_the_same_bits(count, teams):
    ln.set_num_threads(1)
    alone = [call() for call in CALLS]
    torch.set_num_threads(count)
    ln.set_num_threads(count)
    for _ in range(5):
        for call, expected in zip(CALLS, alone, strict=True):
            assert np.array_equal(call(), expected)
            torch.nn.functional.relu(torch.from_numpy(X))  # its threads look for work after it
    assert len(teams) >= 5 * len(CALLS)


def test_whoever_may_not_have_it_has_threads_of_our_own(teams):
    ln.set_num_threads(1)
    expected = CALLS[0]()
    torch.set_num_threads(3)
    ln.set_num_threads(3)
    found = []
    other = threading.Thread(target=lambda: found.append(CALLS[0]()))
    other.start()
    other.join()
    assert np.array_equal(found[0], expected)
    assert not teams  # OpenMP would start a team for that thread
    torch.set_num_threads(1)
    ln.set_num_threads(4)
    assert np.array_equal(CALLS[0](), expected)
    assert not teams  # torch has fewer threads than were asked for


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_child_has_no_team(teams):
    torch.set_num_threads(3)
    ln.set_num_threads(3)
    expected = CALLS[0]()
    child = os.fork()
    if child == 0:
        same = np.array_equal(CALLS[0](), expected) and not team.parallel(1)
        os._exit(0 if same else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert team.parallel(1)


def test_a_signal_handler_may_pool_within_a_call(teams):
    torch.set_num_threads(3)
    ln.set_num_threads(3)
    expected, within = CALLS[0](), []
    before = signal.signal(signal.SIGALRM, lambda *_: within.append(CALLS[0]()))
    try:
        for _ in range(40):
            signal.setitimer(signal.ITIMER_REAL, 0.001)
            assert np.array_equal(CALLS[0](), expected)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert all(np.array_equal(y, expected) for y in within)
    assert not pool._pool.board[pool.LED]
