"""A process ends well, whatever is under way: exit status 0, no crash, no hang."""

import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from tests.interrupts.processes import program

PREPARE = """
    import atexit, sys, threading, time
    import numpy as np, lunette as ln
    random = np.random.default_rng(0)
    x = random.standard_normal((4, 16, 112, 112), dtype=np.float32)
    weight = random.standard_normal((8, 16, 3, 3), dtype=np.float32)
    op = ln.MaxPool((3, 3), stride=2, padding=1)
    ln.set_num_threads(3)

    def work():
        return op(x).tobytes(), ln.conv(x[:1, :, :40, :40], weight).tobytes()
"""


@pytest.mark.parametrize("seconds", [0, 0.01])
def test_daemons_in_the_midst_of_calls(seconds):
    program(
        PREPARE
        + f"""
    work()

    def forever():
        while True:
            work()

    for _ in range(4):
        threading.Thread(target=forever, daemon=True).start()
    time.sleep({seconds})
    """
    )


def test_threads_that_go_on_after_the_main_program():
    found = program(
        PREPARE
        + """
    expected = work()

    def later():
        time.sleep(0.05)
        for _ in range(3):
            assert work() == expected
        print("right", flush=True)

    for _ in range(3):
        threading.Thread(target=later).start()
    """
    )
    assert found.count("right") == 3


@pytest.mark.parametrize("known", [True, False])
def test_calls_when_the_program_is_over(known):
    """By functions that are registered before and after Lunette is loaded, and by a finalizer."""
    found = program(
        """
    import atexit
    atexit.register(lambda: print("before", work() == again(), flush=True))
    """
        + PREPARE
        + f"""
    atexit.register(lambda: print("after", work() == again(), flush=True))

    def again():
        ln.set_num_threads(1)
        try:
            return work()
        finally:
            ln.set_num_threads(3)

    class Last:
        def __del__(self, forward=ln.forward, op=op, x=x):
            forward(op, x)  # Python may refuse it by now

    if {known}:
        work()
    last = Last()
    """
    )
    assert found.split() == ["after", "True", "before", "True"]


def test_daemons_that_compile(tmp_path):
    """A compiler may not be at work when its memory is taken down."""
    program(
        PREPARE
        + """
    def forever():
        for k in range(2, 40):
            ln.AvgPool((k, k + 1), stride=k)(x)
            ln.smooth_max_pool(x, (k, 2), 1.0)

    threading.Thread(target=forever, daemon=True).start()
    time.sleep(1.2)
    """,
        NUMBA_CACHE_DIR=str(tmp_path),
    )


def test_ctrl_c_while_a_kernel_is_compiled(tmp_path):
    """Ends the program as it should, and leaves nothing behind that the next one stumbles over."""
    text = """
        import sys, numpy as np, lunette as ln
        x = np.arange(64, dtype=np.float32).reshape(1, 8, 8)
        print("ready", flush=True)
        print(ln.smooth_max_pool(x, (3, 3), 2.0).sum(), flush=True)
    """
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-X", "faulthandler", "-c", textwrap.dedent(text)]
    process = subprocess.Popen(command, stdout=-1, stderr=-1, text=True, env=environment)
    assert process.stdout.readline().strip() == "ready"
    time.sleep(1.0)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=300)
    assert process.returncode in (-signal.SIGINT, 0, 1), errors  # 0: it was done by then
    assert "Fatal Python error" not in errors
    assert program(text, NUMBA_CACHE_DIR=str(tmp_path)).split()[0] == "ready"
