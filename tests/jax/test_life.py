"""Threads, the end of the process, one core, forks."""

import os
import sys
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lunette as ln

from .cases import CASES, array, same_bits
from .child import run

LARGE = "x = np.random.default_rng(0).standard_normal((8, 16, 64, 64)).astype(np.float32)\n"


def test_eight_threads_at_once():
    names = ["max", "mean", "smooth", "max-1d", "global", "adaptive", "max-ceil", "max-all"]
    wrong = []

    def work(name):
        op, shape = CASES[name]
        x = array(shape, "float32", ties=False)
        expected = op(x), op.vjp(x, op(x))
        step = jax.jit(lambda x: (op(x), jax.vjp(op, x)[1](op(x))[0]))
        try:
            for _ in range(20):
                found = step(x)
                if not all(map(same_bits, found, expected)):
                    wrong.append(name)
        except Exception as error:
            wrong.append((name, error))

    for _ in range(2):
        threads = [threading.Thread(target=work, args=(name,)) for name in names]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    assert not wrong


def test_eight_threads_meet_at_the_first_call():
    """In a process that has registered nothing yet."""
    run(
        """
import threading
op, shape = CASES["max"]
x, together, right = array(shape, "float32"), threading.Barrier(8), []

def work():
    together.wait()
    right.append(same_bits(jax.jit(lambda x: op(x))(x), op(x)))

threads = [threading.Thread(target=work) for _ in range(8)]
[t.start() for t in threads]
[t.join() for t in threads]
assert right == [True] * 8, right
"""
    )


@pytest.mark.parametrize("threads", [1, 3])
def test_large_calls_on_any_number_of_threads(threads):
    """XLA's threads take ranges; more than there are, and one alone."""
    run(
        LARGE
        + f"""
ln.set_num_threads({threads})
for op in (ln.MaxPool((3, 3), 2, 1), ln.AvgPool((2, 2)), ln.SmoothMaxPool((2, 2), 1.5)):
    y = op(x)
    step = jax.jit(lambda x, gy, op=op: (op(x), jax.vjp(op, x)[1](gy)[0]))
    for _ in range(4):
        value, gradient = step(x, y)
        assert same_bits(value, y) and same_bits(gradient, op.vjp(x, y))
"""
    )


@pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity"), reason="the system binds no process to a core"
)
def test_one_core():
    run(
        "import os\nos.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
        + LARGE
        + """
op = ln.MaxPool((3, 3), 2, 1)
spec = ln.MinPool((2, 2))
step = jax.jit(lambda x: (op(x), spec(x)))
for _ in range(5):
    value, least = step(x)
    assert same_bits(value, op(x)) and same_bits(least, spec(x))
"""
    )


@pytest.mark.parametrize("asks", [False, True], ids=["machine code", "Python"])
def test_the_end_with_work_in_flight(asks):
    op = "ln.MinPool((3, 3))" if asks else "ln.MaxPool((3, 3), 1, 1)"
    run(
        LARGE
        + f"""
op = {op}
step = jax.jit(op)
step(x).block_until_ready()
for _ in range(30):
    step(x)
"""
    )


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_fork_after_numpy_calls_alone():
    run(
        """
import os, sys, warnings
op, shape = CASES["max"]
x = array(shape, "float32")
y = op(x)
child = os.fork()
if child == 0:
    right = same_bits(jax.jit(op)(x), y) and same_bits(jax.jit(op)(x), y)
    os._exit(0 if right else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""
    )


def test_a_busy_interpreter_does_not_hold_machine_code_up():
    """A call that is prepared needs no interpreter: it ends while another thread keeps it."""
    op = ln.MaxPool((3, 3), 1, 1)
    x = jnp.asarray(array((4, 8, 32, 32), "float32", ties=False))
    step = jax.jit(op)
    for _ in range(3):
        step(x).block_until_ready()
    from lunette.jax.cpu.handler import counts

    before, interval = counts(), sys.getswitchinterval()
    done = threading.Event()

    def busy():
        while not done.is_set():
            sum(range(1000))

    other = threading.Thread(target=busy)
    sys.setswitchinterval(0.2)
    other.start()
    try:
        found = step(x)
        found.block_until_ready()
    finally:
        done.set()
        other.join()
        sys.setswitchinterval(interval)
    assert counts() == (before[0] + 1, before[1])
    assert same_bits(found, op(np.asarray(x)))
