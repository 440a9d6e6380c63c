"""The same bits for any number of threads; safe from many Python threads and after a fork."""

import ctypes
import itertools
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import lunette as ln
from cases import oracle, values
from cases.agreement import differing_bits, direction, run
from lunette.kernels.cpu.jit.cache import PARAMETERS
from lunette.kernels.cpu.threadpool.pool import share_out

# Large enough that a kernel has reason to share the work among threads.
CASES = (
    (ln.MaxPool((3, 3), stride=2, padding=1), (4, 16, 112, 112)),
    (ln.MaxPool((3, 3), stride=1, padding=1, ties="split"), (1, 3, 300, 301)),
    (ln.MaxPool((13, 13), stride=1, padding=6), (1, 1, 500, 517)),
    (ln.AvgPool((2, 2)), (4, 16, 112, 112)),
    (ln.AvgPool((3, 3), stride=1, padding=1), (1, 1, 700, 701)),
    (ln.AvgPool((25,), stride=1), (3, 60_001)),
    (ln.AvgPool((25,), stride=1), (300_003,)),
    (ln.SmoothMaxPool((3, 3), 2.0, stride=2, padding=1), (2, 8, 112, 112)),
    (ln.AdaptiveAvgPool((7, 7)), (2, 16, 112, 112)),
    (ln.GlobalAvgPool(2), (2, 3, 600, 601)),
    (ln.GlobalAvgPool(1), (1_000_003,)),
    (ln.GlobalMaxPool(1), (1_000_003,)),
    (ln.MaxPool((2, 2, 2, 2)), (1, 2, 20, 20, 20, 20)),
)


@pytest.fixture
def threads():
    """Sets the number of threads and puts it back."""
    before = ln.get_num_threads()
    yield ln.set_num_threads
    ln.set_num_threads(before)


@pytest.mark.parametrize(("op", "shape"), CASES, ids=repr)
def test_same_bits_for_any_number_of_threads(backend, threads, op, shape):
    x = values.filled("random", shape, "float32")
    for verb in ("forward", "jvp", "vjp"):
        like = op.out_shape(shape) if verb == "vjp" else shape
        along = None if verb == "forward" else direction(like, x.dtype)
        threads(1)
        expected = run(op, verb, x, along, backend)
        for count in (2, 3, 8):
            threads(count)
            assert not differing_bits(run(op, verb, x, along, backend), expected), (verb, count)


def test_threaded_max_is_the_oracle_bit_for_bit(backend, threads):
    op, shape = ln.MaxPool((3, 3), stride=2, padding=1), (4, 16, 112, 112)
    x, grad = values.filled("nans", shape, "float32"), direction(op.out_shape(shape), np.float32)
    threads(2)
    y, indices = oracle.forward_with_indices(op, x)
    assert not differing_bits(run(op, "forward", x, None, backend), y)
    assert not differing_bits(run(op, "forward_with_indices", x, None, backend)[1], indices)
    assert not differing_bits(run(op, "vjp", x, grad, backend), oracle.vjp(op, x, grad), True)


@pytest.mark.parametrize("units", [2, 7, 64, 1000, 12345])
def test_ranges_cover_each_unit_once_and_the_last_are_short(threads, units):
    """So that all threads end together."""
    taken = []

    @ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_int64] * PARAMETERS)
    def kernel(*arguments):
        taken.append(arguments[-2:])
        return 0

    threads(3)
    share_out(kernel, lambda memory: (0,) * (PARAMETERS - 2), units, cells=1 << 30)
    taken.sort()
    assert [first for first, _ in taken] == [0, *(last for _, last in taken[:-1])]
    assert taken[-1][1] == units
    sizes = [last - first for first, last in taken]
    assert sizes[0] <= max(1, units // 3)
    assert all(a >= b for a, b in itertools.pairwise(sizes)), sizes
    assert sizes[-1] <= max(1, units // 64), sizes


@pytest.mark.parametrize("count", [0, -1, 1.5, True, "2"])
def test_a_number_of_threads_is_a_positive_integer(count):
    with pytest.raises((ValueError, TypeError), match="n="):
        ln.set_num_threads(count)


def in_a_process(program, **environment):
    """Run a program by itself, so that an abort shows as its exit status."""
    import os

    finished = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        env={**os.environ, **environment},
    )
    assert finished.returncode == 0, finished.stderr[-3000:] or finished.stdout[-3000:]
    return finished.stdout.strip()


PREPARE = """
    import numpy as np, lunette as ln
    from concurrent.futures import ThreadPoolExecutor
    ops = [
        ln.MaxPool((3, 3), stride=2, padding=1),
        ln.AvgPool((2, 2)),
        ln.MaxPool((9, 9), stride=1, padding=4),
        ln.SmoothMaxPool((3, 3), 2.0, stride=2, padding=1),
    ]
    x = np.random.default_rng(0).standard_normal((4, 16, 112, 112), dtype=np.float32)

    def work(op):
        y = op(x)
        return y.tobytes(), op.vjp(x, y).tobytes()
"""


def test_many_python_threads_call_at_once():
    """Two threads that enter Numba's default threading layer together abort the process."""
    program = (
        PREPARE
        + """
    ln.set_num_threads(2)
    expected = [work(op) for op in ops]
    with ThreadPoolExecutor(8) as pool:
        for _ in range(3):
            results = list(pool.map(work, ops * 4))
            assert results == expected * 4
    print("agreed")
    """
    )
    assert in_a_process(program) == "agreed"


def test_many_python_threads_make_the_first_call_at_once():
    """Compiling, loading the cache and starting workers are shared too."""
    program = (
        PREPARE
        + """
    ln.set_num_threads(2)
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(work, ops * 4))
    assert results == [work(op) for op in ops] * 4
    print("agreed")
    """
    )
    assert in_a_process(program) == "agreed"


def test_a_forked_child_works_and_so_does_its_parent():
    program = (
        PREPARE
        + """
    import os, threading
    ln.set_num_threads(2)
    expected = [work(op) for op in ops]  # the workers of the parent are running now

    def check_in_child():
        child = os.fork()
        if child == 0:
            ok = False
            try:
                with ThreadPoolExecutor(4) as pool:
                    ok = list(pool.map(work, ops * 2)) == expected * 2
            finally:
                os._exit(0 if ok else 1)
        return child

    children = [check_in_child() for _ in range(2)]
    assert [work(op) for op in ops] == expected
    # A fork while other threads compute: the child may find locks that nobody will release.
    with ThreadPoolExecutor(4) as pool:
        running = [pool.submit(work, op) for op in ops * 4]
        children += [check_in_child() for _ in range(2)]
        assert [r.result() for r in running] == expected * 4
    for child in children:
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
    print("agreed")
    """
    )
    assert in_a_process(program, PYTHONWARNINGS="ignore::DeprecationWarning") == "agreed"


def test_helpers_that_sleep_look_and_lose_their_cores(threads):
    # More threads than cores; calls at once, after a while in which helpers go to sleep, and about then.
    import time

    op, x = ln.GlobalAvgPool(2), values.filled("random", (40, 16, 40, 41), "float32")
    threads(1)
    expected = op(x)
    threads(6)
    for number in range(300):
        assert not differing_bits(op(x), expected), number
        time.sleep((0, 0, 0.0001, 0.0002, 0.0004, 0.005)[number % 6])


def test_interrupted_calls_are_whole_and_leave_nobody_at_work():
    program = (
        PREPARE
        + """
    import os, signal, threading, time
    ln.set_num_threads(3)
    expected = [work(op) for op in ops]

    armed = stopped = False

    def handle(number, frame):
        global armed
        if armed:
            armed = False
            raise KeyboardInterrupt

    def interrupt():
        while not stopped:
            time.sleep(0.003)
            os.kill(os.getpid(), signal.SIGINT)

    signal.signal(signal.SIGINT, handle)
    threading.Thread(target=interrupt, daemon=True).start()
    end, seen, whole = time.time() + 1.5, 0, 0
    while time.time() < end or (min(seen, whole) <= 10 and time.time() < end + 100):
        try:
            armed = True
            for op, results in zip(ops, expected):
                assert work(op) == results
                whole += 1
            armed = False
        except KeyboardInterrupt:
            seen += 1
    stopped = True
    assert seen > 10 and whole > 10, (seen, whole)
    assert [work(op) for op in ops] == expected
    print("agreed")
    """
    )
    assert in_a_process(program) == "agreed"


def test_a_process_may_end_right_after_a_call():
    program = (
        PREPARE
        + """
    ln.set_num_threads(4)
    ops[0](x)
    """
    )
    for _ in range(8):
        assert in_a_process(program) == ""


def test_the_environment_variable_sets_the_number_of_threads():
    program = "import lunette as ln; print(ln.get_num_threads())"
    assert in_a_process(program, LUNETTE_NUM_THREADS="3") == "3"


def test_importing_loads_neither_numba_nor_the_peers():
    program = """
    import sys, lunette
    heavy = {"numba", "torch", "triton", "jax", "dask", "flint", "typer", "scipy"}
    print(sorted(heavy & set(sys.modules)))
    """
    assert in_a_process(program) == "[]"
