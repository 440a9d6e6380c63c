"""Compiled kernels are found on disk by the next process: it compiles nothing again."""

import os
import subprocess
import sys

PROGRAM = """
import numpy as np, lunette as ln
x = np.ones((1, 3, 8, 8), np.float32)
y = ln.MaxPool((3, 3), stride=2, padding=1)(x)
ln.AvgPool((2, 2)).vjp(x, ln.AvgPool((2, 2))(x))
"""


def compiled_files(folder):
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(folder)}
    subprocess.run([sys.executable, "-c", PROGRAM], check=True, env=environment, timeout=300)
    return sorted(path.name for path in folder.rglob("*.nbc"))


def test_a_second_process_adds_no_compiled_code(tmp_path):
    first = compiled_files(tmp_path)
    assert first
    assert compiled_files(tmp_path) == first


def test_kernels_run_where_nothing_can_be_kept(tmp_path):
    """A folder that cannot be written: the kernels are compiled for this process alone."""
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(blocked / "inside")}
    program = "import numpy as np, lunette as ln; print(ln.AvgPool((2,))(np.arange(4.0)))"
    finished = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        timeout=300,
        check=False,
        capture_output=True,
        text=True,
    )
    assert finished.returncode == 0, finished.stderr[-2000:]
    assert finished.stdout.strip() == "[0.5 2.5]"


SIGNS = """
import sys
import numpy as np, lunette as ln
x = np.array([[1.0, 2, 3, 4]], np.float32)
for beta in map(float, sys.argv[1:]):
    print(round(ln.SmoothMaxPool((4,), beta)(x).item(), 2))
"""


def test_kernels_of_one_factory_are_not_taken_for_one_another(tmp_path):
    """Compiled by two processes, loaded by a third: machine code is found by name."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}

    def values(*betas):
        command = [sys.executable, "-c", SIGNS, *betas]
        output = subprocess.check_output(command, env=environment, timeout=300, text=True)
        return [float(line) for line in output.split()]

    alone = values("1"), values("-1")
    assert alone == ([4.44], [0.56])
    assert values("1", "-1") == [4.44, 0.56]
