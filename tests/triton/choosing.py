"""What the tests of kept choices run where Triton is loaded: three cuts, of which the second is the fastest."""

import json
import os
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

CUTS = ["slow", "fast", "middling"]
TIMES = {"slow": 3.0, "fast": 1.0, "middling": 2.0}


def inside(folder, name, *arguments):
    """Call one of these functions as a process with that folder for its kernels would."""
    with process(folder):
        return globals()[f"_{name}"](*arguments)


@contextmanager
def process(folder):
    import torch

    from lunette.kernels.triton import choices, tiles

    def milliseconds(run):
        measured.append(run.args[0])
        return TIMES[run.args[0]]

    measured.clear()
    with (
        mock.patch.dict(os.environ, NUMBA_CACHE_DIR=folder),
        mock.patch.object(tiles, "_milliseconds", milliseconds),
        mock.patch.object(tiles, "_BEST", {}),
        mock.patch.object(torch.cuda, "is_available", lambda: True),
        mock.patch.object(torch.cuda, "is_current_stream_capturing", lambda: False),
    ):
        choices._known.cache_clear()
        yield
    choices._known.cache_clear()


measured: list[str] = []


def _measure(key="a shape", size=1 << 20):
    from lunette.kernels.triton import tiles

    ran = []
    tiles.best_tile((key, size), CUTS, ran.append, size)
    return ran[-1]


def _measured(size):
    ran, first = _measure(size=size), len(measured)
    _measure(size=size)
    return {"measured": first, "ran": ran, "again": len(measured) - first}


def _path():
    from lunette.kernels.triton import choices

    return Path(os.environ["NUMBA_CACHE_DIR"]) / "lunette" / choices._file()[0]


def _new_process():
    from lunette.kernels.triton import choices

    choices._known.cache_clear()
    _measure()
    return len(measured)


def _damage(text, signed):
    from lunette.kernels.cpu.jit import storage
    from lunette.kernels.triton import choices

    if signed:
        storage.write(_path().parent, *choices._file(), text)
    else:
        _path().write_bytes(text)
    return _new_process()


def _chosen(place):
    from lunette.kernels.triton import choices

    name = choices._name(("a shape", 1 << 20), CUTS)
    return _damage(json.dumps({name: place}).encode(), True)


def _opened(what, mode):
    path = _path()
    (path.parent if what == "folder" else path).chmod(mode)
    try:
        return _new_process()
    finally:
        path.parent.chmod(0o700)


def _many(count):
    from lunette.kernels.cpu.jit import storage
    from lunette.kernels.triton import choices

    with mock.patch.object(choices, "MOST", 10):
        for number in range(count):
            _measure(f"shape {number}")
        choices._known.cache_clear()
        kept = set(choices._known())
    newest = choices._name((f"shape {count - 1}", 1 << 20), CUTS) in kept
    for number in range(6):
        storage.write(_path().parent, f"triton-{number:016}.choices", b"", b"{}")
    _measure("another")
    files = len(list(_path().parent.glob("*.choices")))
    return {"kept": len(kept), "newest": newest, "files": files}
