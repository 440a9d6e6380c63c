"""Each branch of the file that knows the operating systems, taken here by substitution."""

import ast
import ctypes
import io
import os
import subprocess
import sys
import types
from pathlib import Path

import pytest

import lunette
from lunette import platform
from lunette.scale.errors import ScaleError
from lunette.scale.locks import lock_path, locked

SOURCE = Path(lunette.__file__).parent
POSIX = pytest.mark.skipif(os.name != "posix", reason="the system under test is POSIX's")


class Windows:
    """As much of Windows as the file asks for: functions of kernel32 that fill what they are given."""

    def __init__(self, monkeypatch, kernel):
        monkeypatch.setattr(sys, "platform", "win32")
        monkeypatch.setattr(ctypes, "windll", types.SimpleNamespace(kernel32=kernel), raising=False)


def test_memory_of_the_machine_on_windows(monkeypatch):
    def status(pointer):
        assert (
            pointer._obj.dwLength == 64
        )  # the size that the documentation of MEMORYSTATUSEX gives
        pointer._obj.ullTotalPhys = 3 << 33
        return 1

    Windows(monkeypatch, types.SimpleNamespace(GlobalMemoryStatusEx=status))
    assert platform.machine_memory() == 3 << 33


def test_memory_of_the_machine_where_windows_fails(monkeypatch):
    Windows(monkeypatch, types.SimpleNamespace(GlobalMemoryStatusEx=lambda pointer: 0))
    assert platform.machine_memory() == platform.UNKNOWN


def test_memory_of_the_machine_without_sysconf(monkeypatch):
    monkeypatch.delattr(os, "sysconf", raising=False)
    assert platform.machine_memory() == platform.UNKNOWN


def test_memory_of_the_process_on_windows(monkeypatch):
    def information(process, pointer, size):
        assert size == ctypes.sizeof(pointer._obj) == 72
        pointer._obj.WorkingSetSize = 12345678
        return 1

    def current():
        return 2**64 - 1

    kernel = types.SimpleNamespace(GetCurrentProcess=current, K32GetProcessMemoryInfo=information)
    Windows(monkeypatch, kernel)
    assert platform.resident_memory() == 12345678


@POSIX
@pytest.mark.parametrize("system, unit", [("darwin", 1), ("freebsd", 1024)])
def test_the_peak_is_in_bytes_on_macos_and_in_kilobytes_elsewhere(monkeypatch, system, unit):
    import resource

    usage = types.SimpleNamespace(ru_maxrss=4321)
    monkeypatch.setattr(resource, "getrusage", lambda who: usage)
    monkeypatch.setattr(platform, "_statm", lambda: None)
    monkeypatch.setattr(sys, "platform", system)
    assert platform.resident_memory() == 4321 * unit


@POSIX
def test_resident_memory_grows_with_what_is_held():
    before = platform.resident_memory()
    block = bytearray(b"x") * (64 << 20)
    assert platform.resident_memory() - before > 32 << 20
    del block


def groups(tmp_path, monkeypatch, line, files):
    """A tree of control groups in which this process is."""
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(platform, "CONTROL_GROUPS", tmp_path)
    real = Path.read_text

    def read(self, *args, **options):
        if str(self) == "/proc/self/cgroup":
            return line
        return real(self, *args, **options)

    monkeypatch.setattr(Path, "read_text", read)


@pytest.mark.parametrize(
    "line, prefix, names",
    [
        ("0::/a/b\n", "", ("memory.max", "cpu.max", "150000 100000")),
        ("4:cpu,memory:/a/b\n", "memory/", ("memory.limit_in_bytes", None, None)),
    ],
)
def test_the_least_limit_of_memory_on_the_way_up(tmp_path, monkeypatch, line, prefix, names):
    files = {f"{prefix}a/b/{names[0]}": "max\n", f"{prefix}a/{names[0]}": "1073741824\n"}
    groups(tmp_path, monkeypatch, line, files | {f"{prefix}{names[0]}": "2147483648\n"})
    assert platform.container_memory() == 1 << 30


@pytest.mark.parametrize(
    "line, files",
    [
        ("0::/a\n", {"a/cpu.max": "250000 100000\n"}),
        (
            "3:cpu,cpuacct:/a\n",
            {"cpu/a/cpu.cfs_quota_us": "250000\n", "cpu/a/cpu.cfs_period_us": "100000\n"},
        ),
    ],
)
def test_a_container_with_two_and_a_half_cores_gives_three(tmp_path, monkeypatch, line, files):
    groups(tmp_path, monkeypatch, line, files)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(16)), raising=False)
    assert platform.usable_cores() == 3


@pytest.mark.parametrize("text", ["max 100000\n", "-1 100000\n", "", "junk", "0 0"])
def test_no_share_is_no_limit(tmp_path, monkeypatch, text):
    groups(tmp_path, monkeypatch, "0::/a\n", {"a/cpu.max": text})
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(16)), raising=False)
    assert platform.usable_cores() == 16


def test_cores_without_an_affinity_mask(monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 7)
    monkeypatch.setattr(platform, "_container_cores", lambda: platform.UNKNOWN)
    assert platform.usable_cores() == 7


@pytest.mark.parametrize(
    "text, expected", [("1", 1), ("1,2", 1), ("0", None), ("x", None), ("9999", None)]
)
def test_omp_num_threads_is_a_limit(text, expected):
    environment = {k: v for k, v in os.environ.items() if k != "LUNETTE_NUM_THREADS"}
    code = "import lunette; print(lunette.get_num_threads())"
    run = subprocess.run(
        [sys.executable, "-c", code],
        env={**environment, "OMP_NUM_THREADS": text},
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(run.stdout) == (expected or platform.usable_cores())


class Runtime:
    """`msvcrt` with its locks: a byte of a file, held by one handle."""

    LK_NBLCK, LK_UNLCK = 2, 0

    def __init__(self):
        self.held = {}

    def locking(self, handle, mode, size):
        key = (os.fstat(handle).st_ino, os.lseek(handle, 0, os.SEEK_CUR))
        assert size == 1
        if mode == self.LK_UNLCK:
            self.held.pop(key)
        elif self.held.setdefault(key, handle) != handle:
            raise PermissionError(13, "Permission denied")

    def get_osfhandle(self, descriptor):
        return descriptor


def test_locks_on_windows(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "msvcrt", Runtime())
    monkeypatch.setitem(sys.modules, "fcntl", None)
    monkeypatch.setattr(sys, "platform", "win32")
    out = tmp_path / "out.zarr"
    with locked([out]):
        with (
            pytest.raises(ScaleError, match=f"is being written by process {os.getpid()}"),
            locked([out]),
        ):
            pass
        assert lock_path(out).exists()
    assert not lock_path(out).exists()
    with locked([out]):
        pass


def test_pipes_on_windows(monkeypatch):
    answers = iter([(1, 0), (1, 0), (1, 5), (1, 0), (0, 0)])

    def peek(handle, buffer, size, read, waiting, left):
        alive, waiting._obj.value = next(answers)
        return alive

    monkeypatch.setitem(sys.modules, "msvcrt", Runtime())
    Windows(monkeypatch, types.SimpleNamespace(PeekNamedPipe=peek))
    assert platform.wait_readable(0, 10)  # bytes come
    assert platform.wait_readable(0, 10)  # the other end is closed


def test_a_pipe_without_bytes_is_not_waited_for_longer(monkeypatch):
    def peek(handle, buffer, size, read, waiting, left):
        return 1

    monkeypatch.setitem(sys.modules, "msvcrt", Runtime())
    Windows(monkeypatch, types.SimpleNamespace(PeekNamedPipe=peek))
    assert not platform.wait_readable(0, 0.02)


@POSIX
def test_pipes_on_posix():
    source, sink = os.pipe()
    try:
        assert not platform.wait_readable(source, 0.01)
        os.write(sink, b"x")
        assert platform.wait_readable(source, 5)
    finally:
        os.close(source)
        os.close(sink)


@pytest.mark.parametrize("positioned", [True, False])
def test_reads_and_writes_at_an_offset(tmp_path, monkeypatch, positioned):
    if not positioned:
        monkeypatch.delattr(os, "pread", raising=False)
        monkeypatch.delattr(os, "pwrite", raising=False)
    handle = os.open(tmp_path / "f", os.O_RDWR | os.O_CREAT | platform.BINARY)
    try:
        assert platform.write_at(handle, b"abcdef\r\n", 0) == 8
        assert platform.write_at(handle, b"XY", 2) == 2
        assert platform.read_at(handle, 4, 1) == b"bXYe"
    finally:
        os.close(handle)


def test_a_folder_has_nothing_to_flush_on_windows(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setattr(os, "open", lambda *a: pytest.fail("a folder cannot be opened there"))
    platform.flush_to_disk(tmp_path)


def test_processes_where_the_system_says_nothing(monkeypatch):
    monkeypatch.setattr(platform, "_stat", lambda path: None)
    assert platform.processor_time(os.getpid()) == 0
    assert not platform.waits_for_processor(os.getpid())


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
def test_processes_where_it_does():
    assert platform.processor_time(os.getpid()) > 0
    assert platform.waits_for_processor(os.getpid())  # this very thread


def test_limits_that_the_system_lacks_are_not_set(monkeypatch):
    monkeypatch.setitem(sys.modules, "resource", None)
    platform.no_core_dumps()
    platform.set_address_space_left(1 << 20)
    with platform.allocations_limited(1 << 20):
        held = bytes(4 << 20)
    assert len(held) == 4 << 20
    assert platform.address_space_left() == platform.UNKNOWN


def test_a_terminal_of_few_letters(monkeypatch):
    stream = io.TextIOWrapper(io.BytesIO(), encoding="cp1252")
    monkeypatch.setattr(sys, "stdout", stream)
    with pytest.raises(UnicodeEncodeError):
        stream.write("λ → ▸")
    platform.printable()
    stream.write("λ → ▸ é")
    stream.flush()
    assert stream.buffer.getvalue().endswith("? ? ? é".encode("cp1252"))


@pytest.mark.parametrize("command", [["tour"], ["--help"], ["check", "--help"]])
def test_commands_on_a_terminal_of_few_letters(command):
    run = subprocess.run(
        [sys.executable, "-m", "lunette", *command],
        env={**os.environ, "PYTHONIOENCODING": "cp1252", "PYTHONUTF8": "0"},
        capture_output=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-500:]


ONLY_HERE = {"resource", "fcntl", "msvcrt", "select", "pwd", "grp", "termios"}


def test_no_other_file_asks_the_operating_system():
    """Modules that not every system has, and `os.sysconf`, stand in one file."""
    for path in SOURCE.rglob("*.py"):
        if path.name == "platform.py" and path.parent == SOURCE:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                assert not ONLY_HERE & {a.name for a in node.names}, path
            if isinstance(node, ast.Attribute) and node.attr in (
                "sysconf",
                "pread",
                "pwrite",
                "O_NOFOLLOW",
            ):
                assert not (isinstance(node.value, ast.Name) and node.value.id == "os"), path


def test_every_text_file_has_an_encoding():
    """A text that is read or written without one depends on the system's."""
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            name = (
                node.func.attr
                if isinstance(node.func, ast.Attribute)
                else getattr(node.func, "id", "")
            )
            binary = any(
                isinstance(a, ast.Constant) and "b" in str(a.value) for a in node.args[1:2]
            )
            text = name in ("read_text", "write_text") or (
                isinstance(node.func, ast.Name) and name == "open"
            )
            if text and not binary:
                assert "encoding" in {k.arg for k in node.keywords}, (path, node.lineno)
