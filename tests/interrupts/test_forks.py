"""Children that are forked while other threads import, compile or compute: they pool, convolve and compile."""

import os
from pathlib import Path

import pytest

import lunette
from tests.interrupts.processes import program

FORKS = """
    import os, random, signal, sys, threading, time
    import numpy as np, lunette as ln
    chance = random.Random({seed})
    x = np.random.default_rng(0).standard_normal((2, 8, 112, 112), dtype=np.float32)
    weight = np.ones((8, 8, 3, 3), np.float32)
    ln.set_num_threads(3)
    stop = False

    def work():
        for k in range(2, 5):
            for op in (ln.MaxPool((k, k)), ln.AvgPool((k, k)), ln.SmoothMaxPool((k, k), 2.0)):
                if stop:
                    return
                op.vjp(x, op(x))
        ln.conv(x, weight)

    def imports():
        import numba, lunette.kernels.cpu.convolution
        work()

    thread = threading.Thread(target={what})
    thread.start()
    for number in range({forks}):
        time.sleep(chance.uniform(0, {pause}))
        child = os.fork()
        if child == 0:
            failed = 1
            signal.alarm(200)  # it must not hang
            try:
                first = ln.max_pool(x, (3, 3), 2, 1)
                ln.set_num_threads(1)
                assert (first == ln.max_pool(x, (3, 3), 2, 1)).all()
                assert ln.avg_pool(x, (2 + number, 1)).shape[1] == 8  # which may have to be compiled
                failed = 0
            except BaseException:
                sys.excepthook(*sys.exc_info())
            finally:
                os._exit(failed)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0, os.waitstatus_to_exitcode(status)
    stop = True
    thread.join()
    print("agreed")
"""

SEED = int(os.environ.get("LUNETTE_SEED", "0"))

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")


@pytest.mark.parametrize("what", ["work", "imports"])
def test_forks_while_another_thread_loads(what):
    """Every kernel is on disk or soon will be; the fork comes while modules and kernels are loaded."""
    text = FORKS.format(seed=SEED, what=what, forks=3, pause=0.3)
    assert program(text) == "agreed"


def test_forks_while_another_thread_compiles(tmp_path):
    text = FORKS.format(seed=SEED, what="work", forks=1, pause=1.5)
    assert program(text, NUMBA_CACHE_DIR=str(tmp_path)) == "agreed"


def test_a_fork_while_another_thread_computes_an_attribute():
    """In the child nobody goes on with it; the same attribute of another object is computed all the same."""
    text = """
    import os, signal, threading
    from lunette.cached import cached_property

    began, go_on = threading.Event(), threading.Event()

    class Problem:
        @cached_property
        def program(self):
            if threading.current_thread() is not threading.main_thread():
                began.set()
                go_on.wait()
            return "found"

    thread = threading.Thread(target=lambda: Problem().program)
    thread.start()
    began.wait()
    child = os.fork()
    if child == 0:
        signal.alarm(20)  # it must not hang
        os._exit(Problem().program != "found")
    _, status = os.waitpid(child, 0)
    go_on.set()
    thread.join()
    print(os.waitstatus_to_exitcode(status))
    """
    assert program(text) == "0"


def test_no_attribute_is_computed_under_a_lock():
    """As those of functools are before Python 3.12."""
    sources = Path(lunette.__file__).parent.rglob("*.py")
    assert not [path for path in sources if "functools import cached_property" in path.read_text()]


def test_a_fork_by_a_handler_in_the_midst_of_a_call():
    """Both go on with the call."""
    text = """
    import os, signal, numpy as np, lunette as ln
    x = np.random.default_rng(0).standard_normal((4, 16, 112, 112), dtype=np.float32)
    ln.set_num_threads(3)
    expected = ln.max_pool(x, (3, 3), 2, 1).tobytes()
    parent, children = os.getpid(), []

    def handle(number, frame):
        if os.getpid() == parent:
            children.append(os.fork())

    signal.signal(signal.SIGALRM, handle)
    while len(children) < 8 and os.getpid() == parent:
        signal.setitimer(signal.ITIMER_REAL, 0.0005 * (1 + len(children)))
        for _ in range(10):
            right = ln.max_pool(x, (3, 3), 2, 1).tobytes() == expected
            if os.getpid() != parent:
                os._exit(0 if right else 1)
            assert right
    for child in children:
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
    print("agreed")
    """
    assert program(text) == "agreed"


@pytest.mark.full
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("what", ["work", "imports"])
def test_many_forks_while_another_thread_loads(what, seed):
    text = FORKS.format(seed=1000 * SEED + seed, what=what, forks=5, pause=0.25)
    assert program(text) == "agreed"


@pytest.mark.full
@pytest.mark.parametrize("seed", range(4))
def test_many_forks_while_another_thread_compiles(tmp_path, seed):
    text = FORKS.format(seed=1000 * SEED + seed, what="imports", forks=5, pause=2.0)
    assert program(text, NUMBA_CACHE_DIR=str(tmp_path)) == "agreed"
