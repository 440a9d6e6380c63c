"""A bound on what the process may allocate while it reads what others wrote of their files."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["at_most"]

_one = threading.RLock()


@contextmanager
def at_most(more: int) -> Iterator[None]:
    """A MemoryError for what would take `more` bytes than the process has now; on Linux.

    Libraries build lists as long as a header says. The system's own bound stops that, whatever the
    library. It holds for the whole process, so it is set for a moment alone.
    """
    try:
        import resource

        with open("/proc/self/status") as file:
            data = next(line for line in file if line.startswith("VmData:"))
        limit = int(data.split()[1]) * 1024 + more
    except (ImportError, OSError, StopIteration):
        yield
        return
    with _one:
        soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
        bounds = [b for b in (limit, soft, hard) if b != resource.RLIM_INFINITY]
        resource.setrlimit(resource.RLIMIT_DATA, (min(bounds), hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
