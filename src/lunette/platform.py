"""What the operating system gives: memory, limits, locks, processes, terminals. The only file that asks which one it is.

| | Linux | macOS | Windows |
|---|---|---|---|
| memory of the machine | `sysconf` | `sysconf` | `GlobalMemoryStatusEx` |
| memory of this process | `/proc/self/statm` | the peak, `getrusage` in bytes | `GetProcessMemoryInfo` |
| limits of containers (memory, cores) | control groups | none | none |
| limits of the process | `setrlimit` | `setrlimit` | none |
| a lock on a file | `flock` | `flock` | `msvcrt.locking` |
| an open file can be removed | yes | yes | no |
| processor time of a child | `/proc/PID/stat` | unknown | unknown |
| waiting for a pipe | `select` | `select` | `PeekNamedPipe` |

What a system lacks is answered by the value that promises least: no limit is known, no time was worked.
Nothing here imports more than the standard library.
"""

from __future__ import annotations

import os
import stat
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

__all__ = [
    "BINARY",
    "NONBLOCK",
    "NO_FOLLOW",
    "UNKNOWN",
    "AlreadyLocked",
    "address_space_left",
    "allocations_limited",
    "begin_to_flush",
    "can_remove_open_files",
    "container_memory",
    "flush_to_disk",
    "lock_exclusively",
    "machine_memory",
    "no_core_dumps",
    "printable",
    "processor_time",
    "read_at",
    "resident_memory",
    "set_address_space_left",
    "unlock",
    "usable_cores",
    "wait_readable",
    "waits_for_processor",
    "write_at",
]

UNKNOWN = 1 << 46
"""Bytes where the system does not say what it has."""

NO_FOLLOW: int = getattr(os, "O_NOFOLLOW", 0)
NONBLOCK: int = getattr(os, "O_NONBLOCK", 0)
BINARY: int = getattr(os, "O_BINARY", 0)
"""Flags of `os.open`; 0 where the system has no such flag."""

CONTROL_GROUPS = Path("/sys/fs/cgroup")


class AlreadyLocked(OSError):
    """Another process holds the lock."""


# -- memory --


def machine_memory() -> int:
    """Bytes of physical memory."""
    if sys.platform == "win32":
        return _windows_memory("ullTotalPhys")
    try:
        physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return UNKNOWN
    return physical if physical > 0 else UNKNOWN


def container_memory() -> int:
    """The least limit of the control groups that this process is in, of either version."""
    least = UNKNOWN
    for root, place in _groups("memory"):
        for folder in _up(root, place):
            for name in ("memory.max", "memory.limit_in_bytes"):
                words = _words(folder / name)
                if words and words[0].isdigit():
                    least = min(least, int(words[0]))
    return least


def _groups(controller: str) -> Iterator[tuple[Path, str]]:
    """The control groups of this process that may limit something: their root, and the place below it."""
    try:
        lines = Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        controllers, _, place = line.partition(":")[2].partition(":")
        if controllers == "":  # version 2 has one tree
            yield CONTROL_GROUPS, place
        elif controller in controllers.split(","):
            yield CONTROL_GROUPS / controller, place


def _up(root: Path, place: str) -> Iterator[Path]:
    """A group's folder and those above it; inside a container the path may not be there."""
    group = root / place.lstrip("/")
    for folder in (group, *group.parents):
        yield folder
        if folder == root:
            return


def _words(path: Path) -> list[str]:
    """The words of a small file; none where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8").split()
    except (OSError, ValueError):
        return []


def address_space_left() -> int:
    """Bytes that `ulimit -v` leaves; it may be set at any time, so it is asked each time."""
    try:
        import resource

        limit, _ = resource.getrlimit(resource.RLIMIT_AS)
        if limit == resource.RLIM_INFINITY or limit < 0:
            return UNKNOWN
    except (ImportError, AttributeError, ValueError, OSError):
        return UNKNOWN
    return max(0, limit - (_mapped() or 0))


def resident_memory() -> int:
    """Bytes of memory that this process holds now; its peak where the system says no more."""
    if sys.platform == "win32":
        return _windows_working_set()
    pages = _statm()
    if pages:
        return pages[1] * os.sysconf("SC_PAGE_SIZE")
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # macOS counts bytes, others kilobytes


def _mapped() -> int | None:
    """Bytes of address space that this process has, where the system says."""
    pages = _statm()
    return pages[0] * os.sysconf("SC_PAGE_SIZE") if pages else None


def _statm() -> list[int] | None:
    """Pages mapped and resident, on Linux."""
    try:
        return [int(n) for n in Path("/proc/self/statm").read_text(encoding="utf-8").split()]
    except (OSError, ValueError):
        return None


def _windows_memory(name: str) -> int:
    import ctypes

    sizes = ("ullTotalPhys", "ullAvailPhys", "ullTotalPageFile", "ullAvailPageFile")
    virtual = ("ullTotalVirtual", "ullAvailVirtual", "ullAvailExtendedVirtual")
    head = [("dwLength", ctypes.c_uint32), ("dwMemoryLoad", ctypes.c_uint32)]
    fields = head + [(field, ctypes.c_uint64) for field in (*sizes, *virtual)]
    status: Any = type("MEMORYSTATUSEX", (ctypes.Structure,), {"_fields_": fields})()
    status.dwLength = ctypes.sizeof(status)
    windows: Any = ctypes
    if not windows.windll.kernel32.GlobalMemoryStatusEx(ctypes.byref(status)):
        return UNKNOWN
    return int(getattr(status, name))


def _windows_working_set() -> int:
    import ctypes

    sizes = (
        "PeakWorkingSetSize",
        "WorkingSetSize",
        "QuotaPeakPagedPoolUsage",
        "QuotaPagedPoolUsage",
    )
    more = (
        "QuotaPeakNonPagedPoolUsage",
        "QuotaNonPagedPoolUsage",
        "PagefileUsage",
        "PeakPagefileUsage",
    )
    head = [("cb", ctypes.c_uint32), ("PageFaultCount", ctypes.c_uint32)]
    fields = head + [(field, ctypes.c_size_t) for field in (*sizes, *more)]
    counters: Any = type("PROCESS_MEMORY_COUNTERS", (ctypes.Structure,), {"_fields_": fields})()
    counters.cb = ctypes.sizeof(counters)
    windows: Any = ctypes
    kernel = windows.windll.kernel32
    kernel.GetCurrentProcess.restype = ctypes.c_void_p  # a handle is as wide as an address
    process = ctypes.c_void_p(kernel.GetCurrentProcess())
    found = kernel.K32GetProcessMemoryInfo(process, ctypes.byref(counters), counters.cb)
    return int(counters.WorkingSetSize) if found else 0


# -- limits --

_one_limit = threading.RLock()


@contextmanager
def allocations_limited(more: int) -> Iterator[None]:
    """A MemoryError for what would take `more` bytes than the process has now; on Linux.

    It holds for the whole process, so it is set for a moment alone.
    """
    try:
        import resource

        with open("/proc/self/status", encoding="utf-8") as file:
            data = next(line for line in file if line.startswith("VmData:"))
        limit = int(data.split()[1]) * 1024 + more
    except (ImportError, OSError, StopIteration):
        yield
        return
    with _one_limit:
        soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
        bounds = [b for b in (limit, soft, hard) if b != resource.RLIM_INFINITY]
        resource.setrlimit(resource.RLIMIT_DATA, (min(bounds), hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def set_address_space_left(limit: int) -> None:
    """Allow `limit` bytes of address space beyond what is mapped, for good; where the system can."""
    mapped = _mapped()
    if mapped is None:
        return
    with suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (mapped + limit, mapped + limit))


def no_core_dumps() -> None:
    """A crash of this process leaves no file behind."""
    with suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


# -- processors and processes --


def usable_cores() -> int:
    """Cores that this process may use: of its affinity mask and its container's share, the fewer."""
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    return max(1, min(cores, _container_cores()))


def _container_cores() -> int:
    """Whole cores' worth of time that the control groups of this process grant, rounded up."""
    least = UNKNOWN
    for root, place in _groups("cpu"):
        for folder in _up(root, place):
            quota, period = _quota(folder)
            if quota > 0 and period > 0:
                least = min(least, -(-quota // period))
    return least


def _quota(folder: Path) -> tuple[int, int]:
    """Microseconds of processor time in a period, of either version; (0, 0) where there is no limit."""
    words = _words(folder / "cpu.max")
    if not words:
        words = _words(folder / "cpu.cfs_quota_us") + _words(folder / "cpu.cfs_period_us")
    if len(words) == 2 and all(word.isdigit() for word in words):
        return int(words[0]), int(words[1])
    return 0, 0


def processor_time(pid: int) -> float:
    """Seconds that a process has worked; 0 where the system does not say."""
    fields = _stat(Path(f"/proc/{pid}/stat"))
    if fields is None:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def waits_for_processor(pid: int) -> bool:
    """Whether some thread of a process runs or waits for a core; False where the system does not say."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return False
    found = (_stat(Path(f"/proc/{pid}/task/{thread}/stat")) for thread in threads)
    return any(fields is not None and fields[0] in "RD" for fields in found)


def _stat(path: Path) -> list[str] | None:
    """The fields after the name, which may itself hold spaces and brackets."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return None


def wait_readable(descriptor: int, seconds: float) -> bool:
    """Whether a pipe has bytes, or its end, within so many seconds."""
    if sys.platform == "win32":
        return _poll_pipe(descriptor, seconds)
    import select

    return bool(select.select([descriptor], [], [], seconds)[0])


def _poll_pipe(descriptor: int, seconds: float) -> bool:
    import ctypes
    import msvcrt

    windows: Any = ctypes
    runtime: Any = msvcrt
    handle = ctypes.c_void_p(runtime.get_osfhandle(descriptor))
    waiting = ctypes.c_uint32()
    end = time.monotonic() + seconds
    while True:
        peek = windows.windll.kernel32.PeekNamedPipe
        alive = peek(handle, None, 0, None, ctypes.byref(waiting), None)
        if not alive or waiting.value:  # a pipe that is closed reads as its end
            return True
        if time.monotonic() >= end:
            return False
        time.sleep(0.005)


# -- files --


def can_remove_open_files() -> bool:
    """Whether a file may lose its name while somebody has it open."""
    return sys.platform != "win32"


def lock_exclusively(handle: int) -> None:
    """Lock an open file until it is closed or its process ends; `AlreadyLocked` where another has it."""
    if sys.platform == "win32":
        import msvcrt

        runtime: Any = msvcrt
        os.lseek(handle, _LOCKED_BYTE, os.SEEK_SET)
        try:
            runtime.locking(handle, runtime.LK_NBLCK, 1)
        except OSError as error:
            raise AlreadyLocked(*error.args) from None
        return
    import fcntl

    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise AlreadyLocked(*error.args) from None


_LOCKED_BYTE = 1 << 30
"""Windows locks bytes, not files: one that nobody reads, so that the holder's name can be read."""


def unlock(handle: int) -> None:
    """Give a lock back before the file is closed; only Windows needs it."""
    if sys.platform == "win32":
        import msvcrt

        runtime: Any = msvcrt
        os.lseek(handle, _LOCKED_BYTE, os.SEEK_SET)
        with suppress(OSError):
            runtime.locking(handle, runtime.LK_UNLCK, 1)


_one_position = threading.Lock()
"""Where reads have no position of their own, they share the file's."""


def read_at(handle: int, size: int, offset: int) -> bytes:
    """Bytes of an open file from an offset, as `os.pread`."""
    if hasattr(os, "pread"):
        return os.pread(handle, size, offset)
    with _one_position:
        os.lseek(handle, offset, os.SEEK_SET)
        return os.read(handle, size)


def write_at(handle: int, data: bytes, offset: int) -> int:
    """Write bytes into an open file at an offset, as `os.pwrite`."""
    if hasattr(os, "pwrite"):
        return os.pwrite(handle, data, offset)
    with _one_position:
        os.lseek(handle, offset, os.SEEK_SET)
        return os.write(handle, data)


def begin_to_flush(handle: int) -> None:
    """Have what was written to a file go to the disk by and by, where the system can be asked to.

    Without it all of it waits for the flush at the end, when nothing is left to do meanwhile.
    """
    flush = _sync_file_range()
    if flush is not None:
        flush(handle, 0, 0, 2)  # SYNC_FILE_RANGE_WRITE: begin, and do not wait


@lru_cache(maxsize=1)
def _sync_file_range() -> Any:
    """The system's call of that name, on Linux."""
    if sys.platform != "linux":
        return None
    import ctypes

    try:
        found = ctypes.CDLL(None).sync_file_range
    except (OSError, AttributeError):
        return None
    found.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    return found


def flush_to_disk(path: Path | str) -> None:
    """The bytes of a file, or the names in a folder, are on the disk when this returns."""
    if sys.platform == "win32" and stat.S_ISDIR(os.stat(path).st_mode):
        return  # names are the file system's own business there
    mode = os.O_RDWR if sys.platform == "win32" else os.O_RDONLY
    handle = os.open(path, mode | BINARY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# -- terminals --


def printable() -> None:
    """Let standard output and error take every character: one that their encoding lacks becomes '?'."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        encoding = (getattr(stream, "encoding", None) or "").lower().replace("-", "")
        if reconfigure is not None and encoding != "utf8":
            reconfigure(errors="replace")
