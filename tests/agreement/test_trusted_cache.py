"""Machine code is loaded only where nobody else could have put it, and no file on disk can stop a call."""

import ctypes
import errno
import os
import shutil
import stat
import subprocess
import sys
import threading
import warnings
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from lunette.kernels.cpu.jit import cache as kernel_cache
from lunette.kernels.cpu.jit import compile as compilation
from lunette.kernels.cpu.jit import settings, storage

KERNEL = ("conv.packing", "pack_kernel", "float32")
SOMEBODY = 54321
ROOT = hasattr(os, "geteuid") and os.geteuid() == 0
posix = pytest.mark.skipif(os.name != "posix", reason="Windows has no owners and modes")
as_root = pytest.mark.skipif(not ROOT, reason="only root can give a file to another user")


def works(kernel):
    """Whether a kernel packs two rows of three weights as it should."""
    weights, offsets = np.arange(6, dtype=np.float32).reshape(2, 3), np.arange(3)
    packed = np.full(3 * 4, -1, np.float32)
    told = np.array(
        [packed.ctypes.data, weights.ctypes.data, 3, 6, offsets.ctypes.data, 3, 1, 2, 1, 4]
    )
    kernel(told.ctypes.data, 0, 0, 0, 0, 0, 0, 1)
    return packed.reshape(3, 4).tolist() == [[0, 3, 0, 0], [1, 4, 0, 0], [2, 5, 0, 0]]


class Cache:
    """A folder of kernels of this test alone, and how often one was compiled."""

    def __init__(self, folder, code):
        self.folder, self.code, self.compiled = folder, code, 0

    def compile(self, function):
        self.compiled += 1
        return self.code

    def load(self):
        """The kernel as a new process would find or make it."""
        return kernel_cache._loaded_or_compiled(*KERNEL)

    @property
    def file(self):
        return self.folder / kernel_cache._digest(KERNEL)[1]

    def found(self):
        """Whether a kernel is taken from disk; it must work in either case."""
        before = self.compiled
        with warnings.catch_warnings(action="ignore", category=storage.KernelCacheWarning):
            assert works(self.load())
        return self.compiled == before


@pytest.fixture(scope="module")
def code():
    made = getattr(kernel_cache.import_module(f"lunette.kernels.cpu.{KERNEL[0]}"), KERNEL[1])(
        *KERNEL[2:]
    )
    return compilation.machine_code(made.py_func)


@pytest.fixture
def cache(tmp_path, code, monkeypatch):
    made = Cache(tmp_path / "kernels" / "lunette", code)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(made.folder.parent))
    monkeypatch.setattr(compilation, "machine_code", made.compile)
    monkeypatch.setattr(kernel_cache, "_warned", [])
    kernel_cache._circumstances.cache_clear()
    yield made
    kernel_cache._circumstances.cache_clear()


def test_a_kernel_is_kept_and_found_in_folders_of_ones_own(cache):
    assert not cache.found() and cache.found()
    if os.name == "posix":
        for folder in (cache.folder, cache.folder.parent):
            assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert not cache.file.stat().st_mode & 0o022


# -- whom to trust --


@posix
@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777, 0o1777])
def test_nothing_is_taken_from_a_folder_that_others_can_write(cache, mode):
    assert not cache.found()
    cache.folder.chmod(mode)
    with pytest.warns(storage.KernelCacheWarning, match=r"others can write .*chmod go-w"):
        assert works(cache.load())
    assert cache.compiled == 2
    with warnings.catch_warnings(action="error"):  # it is said once
        assert works(cache.load())
    cache.folder.chmod(0o700)
    assert cache.found()


@posix
@pytest.mark.parametrize(
    ("mode", "trusted"), [(0o777, False), (0o775, False), (0o1777, True), (0o755, True)]
)
def test_folders_above_count_too(cache, mode, trusted):
    assert not cache.found()
    cache.folder.parent.chmod(mode)
    assert cache.found() == trusted


@posix
@as_root
def test_code_that_another_user_planted_is_not_run(cache, code, tmp_path):
    """A kernel of another's making under the right name, with the right checksum."""
    key, file = kernel_cache._digest(KERNEL)
    for place in ("file", "folder", "above", "link"):
        shutil.rmtree(cache.folder.parent, ignore_errors=True)
        storage.write(cache.folder, file, key, b"machine code of somebody")
        if place == "file":
            os.chown(cache.file, SOMEBODY, SOMEBODY)
        elif place == "folder":
            os.chown(cache.folder, SOMEBODY, SOMEBODY)
        elif place == "above":
            os.chown(cache.folder.parent, SOMEBODY, SOMEBODY)
        else:
            elsewhere = tmp_path / "elsewhere"
            cache.folder.rename(elsewhere)
            cache.folder.symlink_to(elsewhere)
            os.lchown(cache.folder, SOMEBODY, SOMEBODY)
        assert not cache.found(), place


@posix
def test_a_file_that_others_can_write_is_replaced(cache):
    assert not cache.found()
    cache.file.chmod(0o666)
    assert not cache.found() and cache.found()
    assert not cache.file.stat().st_mode & 0o022


@posix
def test_whom_a_folder_is_trusted_by(tmp_path):
    """The rule itself, for users that this test is not run by."""
    me = os.geteuid()
    folder = tmp_path / "a" / "b"
    folder.mkdir(parents=True)
    assert storage.reason_against(folder) is None
    assert storage.reason_against(folder / "missing" / "too") is None
    assert storage.reason_against(Path("/")) is None
    assert storage.reason_against(folder / ".." / "b" / ".") is None
    if ROOT:
        os.chown(folder, SOMEBODY, SOMEBODY)
        assert "another user" in storage.reason_against(folder)
        assert storage.reason_against(folder, SOMEBODY) is None  # above it all is root's
        assert "another user" in storage.reason_against(folder / "missing", SOMEBODY + 1)
        os.chown(folder, me, me)
        assert storage.reason_against(folder, SOMEBODY) is None
    else:
        assert "another user" in storage.reason_against(folder, me + 1)
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    assert "too many links" in storage.reason_against(tmp_path / "loop")
    (tmp_path / "way").symlink_to("a/../a")
    assert storage.reason_against(tmp_path / "way" / "b") is None
    (tmp_path / "a").chmod(0o777)
    assert "others can write" in storage.reason_against(tmp_path / "way" / "b")


@posix
def test_an_installation_of_the_administrators_is_read_and_the_users_folder_written(
    cache, tmp_path, monkeypatch
):
    """Of several folders the first that has the kernel is read, and the first that can be written is."""
    installed, own = tmp_path / "installed", tmp_path / "own"
    monkeypatch.setattr(kernel_cache, "_folders", lambda: iter((installed, own)))
    installed.mkdir(mode=0o777)
    installed.chmod(0o777)
    with warnings.catch_warnings(action="error"):  # there is another place
        assert works(cache.load())
    assert list(own.iterdir()) and not list(installed.iterdir())
    for path in own.iterdir():
        shutil.copy(path, installed)
        path.unlink()
    installed.chmod(0o755)
    assert cache.found()


# -- damage --


def replaced(path, make):
    def damage():
        path.unlink()
        make(path)

    return damage


def big(path):
    path.touch()
    os.truncate(path, 10 << 30)


def linked(path):
    other = path.with_name("copy")
    other.write_bytes(b"")
    path.symlink_to(other)


def device(path):
    try:
        os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, 5))
    except OSError:
        path.symlink_to("/dev/zero")


KINDS = {
    "empty": Path.touch,
    "a folder": Path.mkdir,
    "a link to nothing": lambda path: path.symlink_to("nowhere"),
    "a link to itself": lambda path: path.symlink_to(path),
    "a link to a file": linked,
    "a link to a device": lambda path: path.symlink_to("/dev/zero"),
    "a device": device,
    "a pipe": os.mkfifo if hasattr(os, "mkfifo") else Path.touch,
    "very large": big,
}


@posix
@pytest.mark.parametrize("kind", KINDS)
def test_whatever_lies_in_a_kernels_place_the_call_works(cache, kind):
    assert not cache.found()
    replaced(cache.file, KINDS[kind])()
    done = []
    thread = threading.Thread(target=lambda: done.append(cache.found()), daemon=True)
    thread.start()
    thread.join(60)
    assert done == [False], "a reader waits, or takes what is not a kernel"
    assert cache.found() or kind == "a folder"


def test_a_kernel_cut_or_changed_anywhere_is_compiled_anew(cache):
    assert not cache.found()
    whole = cache.file.read_bytes()
    places = sorted(
        {0, 1, 31, 32, 33, 64, len(whole) // 2, len(whole) - 1, *range(0, len(whole), 997)}
    )
    for place in places:
        cache.file.write_bytes(whole[:place])
        assert not cache.found(), f"cut at {place}"
        cache.file.write_bytes(whole[:place] + bytes([whole[place] ^ 0x80]) + whole[place + 1 :])
        assert not cache.found(), f"changed at {place}"
    cache.file.write_bytes(whole + b"\0")
    assert not cache.found()
    assert cache.found()


@pytest.mark.parametrize(
    "number", [errno.ENOSPC, errno.EROFS, errno.EIO, errno.EDQUOT, errno.EMFILE]
)
def test_a_disk_that_takes_nothing_more_stops_no_call(cache, monkeypatch, number):
    class Full:
        def __enter__(self):
            return self

        def __exit__(self, *_):
            raise OSError(number, os.strerror(number))

        def write(self, content):
            return len(content) // 2

    opened = []

    def fdopen(descriptor, mode):
        opened.append(descriptor)
        os.close(descriptor)
        return Full()

    with monkeypatch.context() as patched:
        patched.setattr(storage.os, "fdopen", fdopen)
        assert not cache.found()
    assert opened and not list(cache.folder.iterdir()), "nothing is left behind"
    assert not cache.found() and cache.found()


@pytest.mark.parametrize("name", ["mkdir", "open", "replace"])
def test_a_folder_that_vanishes_or_cannot_be_written_stops_no_call(cache, monkeypatch, name):
    def refuse(*_, **__):
        shutil.rmtree(cache.folder.parent, ignore_errors=True)
        raise PermissionError(errno.EACCES, "not here")

    with monkeypatch.context() as patched:
        patched.setattr(Path if name == "replace" else storage.os, name, refuse)
        assert not cache.found()
    assert not cache.found() and cache.found()


@posix
@as_root
@pytest.mark.full
def test_a_full_file_system_stops_no_call(cache, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8k,mode=700", "none", disk], check=False
    )
    if mounted.returncode:
        pytest.skip("no file system can be mounted here")
    try:
        os.environ["NUMBA_CACHE_DIR"] = str(disk)  # the fixture puts it back
        (disk / "lunette").mkdir(mode=0o700)
        with suppress(OSError):
            (disk / "other").write_bytes(bytes(16 << 10))
        assert not cache.found() and not cache.found()
        assert not list((disk / "lunette").iterdir())
    finally:
        subprocess.run(["umount", disk], check=True)


# -- the key --


def test_numbas_version_and_settings_are_in_the_key(cache, tmp_path, monkeypatch):
    import numba.core.config

    def file():
        kernel_cache._circumstances.cache_clear()
        return cache.file.name

    monkeypatch.chdir(tmp_path)
    plain = file()
    assert file() == plain
    (tmp_path / ".numba_config.yaml").write_text("opt: 0\n")
    with_file = file()
    (tmp_path / ".numba_config.yaml").unlink()
    monkeypatch.setenv("NUMBA_SLP_VECTORIZE", "1")
    with_variable = file()
    monkeypatch.delenv("NUMBA_SLP_VECTORIZE")
    monkeypatch.setattr(numba.core.config, "LOOP_VECTORIZE", 17)
    assert settings.changed() == (("LOOP_VECTORIZE", "17"),)
    changed = file()
    monkeypatch.undo()
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(cache.folder.parent))
    monkeypatch.setattr(settings, "_version", lambda: "another")
    other = file()
    assert len({plain, with_file, with_variable, changed, other}) == 5
    assert settings.changed() == ()


@posix
def test_a_file_of_settings_that_is_a_pipe_is_not_waited_for(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.mkfifo(settings.FILE)
    thread = threading.Thread(target=settings.given, daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()


# -- convolution, in processes of their own --


PROGRAM = """
import sys
import numpy as np, lunette as ln
x = np.arange(75, dtype=np.float32).reshape(1, 3, 5, 5)
w = np.ones((2, 3, 3, 3), np.float32)
print(ln.conv(x, w).sum(), "compiled" if "numba" in sys.modules else "found")
"""
SUM = "17982.0"
"""Each of 9 windows of two channels sums 27 cells, whose mean over all windows is 37."""


def run(folder):
    environment = {
        **os.environ,
        "NUMBA_CACHE_DIR": str(folder),
        "NUMBA_OPT": "1",
        "PYTHONWARNINGS": "error",
    }
    command = [sys.executable, "-c", PROGRAM]
    finished = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert finished.returncode == 0, finished.stderr[-2000:]
    return finished.stdout.strip()


def test_convolutions_are_kept_found_and_mended_as_all_kernels(tmp_path):
    assert run(tmp_path) == f"{SUM} compiled"
    assert {path.suffix for path in tmp_path.rglob("*") if path.is_file()} == {".kernel"}
    assert run(tmp_path) == f"{SUM} found"
    for path in (tmp_path / "lunette").iterdir():
        content = path.read_bytes()
        path.write_bytes(content[:-100] + bytes([content[-100] ^ 1]) + content[-99:])
    assert run(tmp_path) == f"{SUM} compiled"
    assert run(tmp_path) == f"{SUM} found"


@pytest.mark.full
def test_no_cache_of_convolutions_can_be_damaged_so_that_a_call_fails(tmp_path):
    run(tmp_path)
    files = sorted((tmp_path / "lunette").iterdir())
    whole = {path: path.read_bytes() for path in files}
    random = np.random.default_rng(1)
    for path in files:
        for _ in range(6):
            content = bytearray(whole[path])
            for place in random.integers(0, len(content), 3):
                content[place] ^= int(random.integers(1, 256))
            path.write_bytes(
                content[: random.integers(0, len(content))] if random.random() < 0.5 else content
            )
            assert run(tmp_path) == f"{SUM} compiled"


def test_machine_code_is_run_by_address():
    """What `works` relies on: a kernel is a plain C function of eight integers."""
    assert kernel_cache.PARAMETERS == 8 and isinstance(
        kernel_cache._kernel(*KERNEL), ctypes._CFuncPtr
    )
