"""Compiled kernels are found on disk by the next process, which then needs no compiler."""

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import lunette
from lunette.kernels.cpu.jit import sources
from lunette.kernels.cpu.jit.sources import HERE
from tests.brief import every

PROGRAM = """
import sys
import numpy as np, lunette as ln
x = np.arange(192, dtype=np.float32).reshape(1, 3, 8, 8)
op = ln.MaxPool((2, 2), ties="all")
gx = op.vjp(x, np.ones((1, 3, 4, 4), np.float32))
dy = op.jvp(x, x)
print(float(gx.sum()), float(dy.sum()), "compiled" if "numba" in sys.modules else "found")
"""
SUMS = "48.0 4800.0"
"""The last cell of each of 48 windows wins: at rows and columns 1, 3, 5, 7 of each plane."""


def run(program, folder=None, **environment):
    """What a program prints, in a process that keeps its kernels in `folder`."""
    kept = {"NUMBA_CACHE_DIR": str(folder)} if folder else {}
    inherited = {k: v for k, v in os.environ.items() if k != "NUMBA_CACHE_DIR"}
    finished = subprocess.run(
        [sys.executable, "-c", program],
        env={**inherited, **kept, "NUMBA_OPT": "1", **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr[-2000:]
    return finished.stdout.strip()


def kernels(folder):
    return {path: path.read_bytes() for path in sorted(folder.rglob("*.kernel"))}


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """A folder with the kernels that the program needs; tests that change it take a copy."""
    folder = tmp_path_factory.mktemp("kernels")
    assert run(PROGRAM, folder) == f"{SUMS} compiled"
    assert len(kernels(folder)) == 2
    return folder


@pytest.fixture
def copied(compiled, tmp_path):
    return Path(shutil.copytree(compiled, tmp_path / "kernels"))


def test_a_second_process_compiles_nothing_and_does_not_load_numba(compiled):
    before = kernels(compiled)
    assert run(PROGRAM, compiled) == f"{SUMS} found"
    assert kernels(compiled) == before


def shortened(content):
    return content[: len(content) // 2]


def emptied(content):
    return b""


def changed(content):
    return content[:-100] + bytes([content[-100] ^ 1]) + content[-99:]


@pytest.mark.parametrize("damage", [shortened, emptied, changed])
def test_a_damaged_kernel_is_replaced(copied, damage):
    before = kernels(copied)
    broken, _ = before
    broken.write_bytes(damage(before[broken]))
    assert run(PROGRAM, copied) == f"{SUMS} compiled"
    assert kernels(copied).keys() == before.keys()
    assert run(PROGRAM, copied) == f"{SUMS} found"


def test_a_kernel_under_the_name_of_another_is_not_taken_for_it(copied):
    before = kernels(copied)
    one, other = before
    one.write_bytes(before[other])
    assert run(PROGRAM, copied) == f"{SUMS} compiled"


@pytest.mark.parametrize(
    ("edited", "said"),
    [
        ("simd/ir_helpers.py", "compiled"),  # imported by what a kernel's module imports
        ("jit/storage.py", "compiled"),
        ("loops/lse_pairs.py", "found"),  # has nothing to do with a max
    ],
)
def test_a_kernel_of_other_sources_is_not_taken(compiled, tmp_path, edited, said):
    """One more comment in a source that kernels are made of is another digest."""
    package = Path(lunette.__file__).parent
    ignored = shutil.ignore_patterns("__pycache__")
    copy = Path(shutil.copytree(package, tmp_path / "lunette", ignore=ignored))
    folder = Path(shutil.copytree(compiled, tmp_path / "kernels"))
    file = copy / "kernels" / "cpu" / edited
    file.write_text(file.read_text() + "# another line\n")
    assert run(PROGRAM, folder, PYTHONPATH=str(tmp_path)) == f"{SUMS} {said}"


def imported(path):
    """The modules of the CPU kernels that a file imports, as Python reads it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(
            "lunette.kernels.cpu"
        ):
            yield from (node.module, *(f"{node.module}.{name.name}" for name in node.names))
        elif isinstance(node, ast.Import):
            yield from (name.name for name in node.names)


def test_the_sources_of_a_kernel_are_all_that_its_module_imports():
    """For every module: what the text of its imports says is what Python makes of them."""
    paths = {
        ".".join(["lunette", "kernels", "cpu", *path.relative_to(HERE).with_suffix("").parts]): path
        for path in HERE.rglob("*.py")
        if path.name != "__init__.py"
    }
    compiler = {path for path in paths.values() if path.parent.name == "jit"}
    for name, path in paths.items():
        found, waiting = set(), [path, *compiler]
        while waiting:
            file = waiting.pop()
            if file not in found:
                found.add(file)
                waiting += [paths[module] for module in imported(file) if module in paths]
        read = sources.files(name.removeprefix("lunette.kernels.cpu."))
        assert {file for file in read if file.name != "__init__.py"} == found, name


def test_kernels_lie_beside_the_sources_where_nothing_is_said(tmp_path):
    package = Path(lunette.__file__).parent
    ignored = shutil.ignore_patterns("__pycache__")
    copy = Path(shutil.copytree(package, tmp_path / "lunette", ignore=ignored))
    assert run(PROGRAM, PYTHONPATH=str(tmp_path)) == f"{SUMS} compiled"
    assert kernels(copy / "kernels" / "cpu" / "__pycache__")
    assert run(PROGRAM, PYTHONPATH=str(tmp_path)) == f"{SUMS} found"


def test_a_read_only_installation_keeps_them_with_the_user(tmp_path):
    package = Path(lunette.__file__).parent
    ignored = shutil.ignore_patterns("__pycache__")
    copy = Path(shutil.copytree(package, tmp_path / "lunette", ignore=ignored))
    # Even the system's administrator cannot write in a folder that is a file.
    (copy / "kernels" / "cpu" / "__pycache__").write_text("not a folder")
    home = {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    assert run(PROGRAM, PYTHONPATH=str(tmp_path), **home) == f"{SUMS} compiled"
    assert run(PROGRAM, PYTHONPATH=str(tmp_path), **home) == f"{SUMS} found"


def test_kernels_run_where_nothing_can_be_kept(tmp_path):
    """A folder that cannot be written: the kernels are compiled for this process alone."""
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    assert run(PROGRAM, blocked / "inside") == f"{SUMS} compiled"


def test_several_processes_may_compile_the_same_kernels_at_once(tmp_path):
    command = [sys.executable, "-c", PROGRAM]
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "NUMBA_OPT": "1"}
    both = [
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    for process in both:
        output, _ = process.communicate(timeout=300)
        assert process.returncode == 0
        assert output.strip() == f"{SUMS} compiled"
    assert all(path.suffix == ".kernel" for path in (tmp_path / "lunette").iterdir())
    assert run(PROGRAM, tmp_path) == f"{SUMS} found"


def test_kernels_from_disk_serve_many_threads_and_forked_children(compiled):
    program = """
import os, sys
from concurrent.futures import ThreadPoolExecutor
import numpy as np, lunette as ln
op = ln.MaxPool((2, 2), ties="all")
x = np.arange(192, dtype=np.float32).reshape(1, 3, 8, 8)

def total(_):
    return float(op.jvp(x, x).sum())

def in_child():
    child = os.fork()
    if child == 0:
        os._exit(0 if total(0) == 4800 and "numba" not in sys.modules else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

assert in_child() == 0  # before the parent has loaded a kernel
with ThreadPoolExecutor(8) as pool:
    assert set(pool.map(total, range(64))) == {4800.0}
assert in_child() == 0  # and after
print("numba" in sys.modules)
"""
    assert run(program, compiled, PYTHONWARNINGS="ignore::DeprecationWarning") == "False"


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


def test_machine_code_of_other_versions_does_not_pile_up(compiled, tmp_path):
    """A compilation that is kept leaves the newest few of its kernel's files, and all of others'."""
    folder = tmp_path / "kernels"
    shutil.copytree(compiled, folder)
    first = next(iter(kernels(folder)))
    name = first.name.rpartition("-")[0]
    for age in range(6):
        older = first.with_name(f"{name}-{age:016x}.kernel")
        older.write_bytes(b"of another version")
        os.utime(older, (1_000_000 - age, 1_000_000 - age))
    other = first.with_name(f"another-{name}-{0:016x}.kernel")
    other.write_bytes(b"of another kernel")
    first.unlink()
    assert run(PROGRAM, folder) == f"{SUMS} compiled"
    left = sorted(path.name for path in first.parent.glob(f"{name}-*.kernel"))
    assert left == sorted([first.name, *(f"{name}-{age:016x}.kernel" for age in range(3))])
    assert other.exists()


NEIGHBOUR = """
import threading
import numba, numpy as np, lunette as ln

def norm(values):
    kept = {}
    for i, v in enumerate(sorted(values)):
        kept[i] = v
    return np.linalg.norm(np.array([kept[i] for i in range(len(kept))])) + len(str(len(kept)))

def strict(values):
    if len(values) != 2:
        raise ValueError("expected two values")
    return values[0] + values[1]

results = {}

def ours():
    op, x = ln.MaxPool((2, 2), ties="all"), np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)
    results["ours"] = float(op.jvp(x, x).sum())

def theirs():
    results["theirs"] = float(numba.njit(norm)(np.array([4.0, 3.0])))

order = {order!r}
if order == "together":
    threads = [threading.Thread(target=work) for work in (ours, theirs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
else:
    for work in (ours, theirs) if order == "ours first" else (theirs, ours):
        work()
try:
    numba.njit(strict)((1, 2, 3))
    raised = False
except ValueError:
    raised = True
print(results["ours"], results["theirs"], numba.njit(strict)((1, 2)), raised)
"""


@pytest.mark.parametrize("order", every(2, ["together", "ours first", "theirs first"]))
def test_other_code_compiles_with_numba_as_if_we_were_not_there(order, tmp_path):
    printed = run(NEIGHBOUR.replace("{order!r}", repr(order)), tmp_path)
    assert printed == "40.0 6.0 3 True"
