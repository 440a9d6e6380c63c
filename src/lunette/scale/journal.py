"""What has been done of a job: the first file that a run makes, and the last that it removes.

A header names the job, its plan and its workspace. Then comes a line for each event: `levels` when
the empty levels are there, `number tile` after a tile's last chunk was written, `whole` when all that
is left is to give the output its name. A line without an end was never written.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

from lunette.platform import BINARY, NO_FOLLOW
from lunette.scale.durable import sync_folder
from lunette.scale.errors import ScaleError
from lunette.scale.plan import Job
from lunette.scale.stores import Source

__all__ = ["Journal", "fingerprint", "state_of"]

FIRST = b'{"lunette journal": 2, '
"""How every journal begins; one that was killed while it wrote this may have less."""

LARGEST = 1 << 32
"""Bytes of a journal, of some two hundred million tiles."""


def fingerprint(job: Job) -> str:
    """A digest of the job, whatever its passes, and of the input as it is now."""
    digest = hashlib.sha256(repr(replace(job, passes=(), run="")).encode())
    digest.update(state_of(job.source).encode())
    return digest.hexdigest()


def state_of(source: Source) -> str:
    """Size and time of a file, or the text of a Zarr array's metadata."""
    path = Path(source.path)
    if path.is_file():
        status = path.stat()
        return f"{status.st_size} {status.st_mtime_ns}"
    files = [path / source.inner / name for name in ("zarr.json", ".zarray")]
    return "".join(f.read_text(encoding="utf-8") for f in files if f.exists())


class Journal:
    """A text file beside the output.

    `state` is `none`, `foreign` (not a journal of ours), `torn` (killed before the header was whole,
    so that nothing else was made), `damaged`, or `begun`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.done: set[tuple[int, int]] = set()
        self.levels = self.whole = False
        self.header: dict[str, Any] = {}
        self.trouble = ""
        self._handle: int | None = None
        self._length = 0
        self.state = self._read()

    # -- what is there --

    def _read(self) -> str:
        try:
            status = os.stat(self.path, follow_symlinks=False)
        except FileNotFoundError:
            return "none"
        if not stat.S_ISREG(status.st_mode) or status.st_size > LARGEST:
            return "foreign"
        data = self.path.read_bytes()
        if not data.startswith(FIRST):
            return "torn" if FIRST.startswith(data) else "foreign"
        first, newline, rest = data.partition(b"\n")
        if not newline:
            return "torn"
        try:
            header = json.loads(first)
            digest = header.pop("digest")
            if digest != _digest(header):
                raise ValueError("its first line was changed")
            self.header = header
            *lines, torn = rest.split(b"\n")
            self._length = len(data) - len(torn)
            for number, line in enumerate(lines, 2):
                self._take(line.decode("ascii"), number)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            self.trouble = str(error)
            return "damaged"
        return "begun"

    def _take(self, line: str, number: int) -> None:
        if line in ("levels", "whole"):
            setattr(self, line, True)
            return
        words = line.split(" ")
        if len(words) != 2 or not all(w.isdecimal() and len(w) < 20 for w in words):
            raise ValueError(f"line {number} is no line of a journal")
        self.done.add((int(words[0]), int(words[1])))

    @property
    def token(self) -> str:
        """The name of the workspace."""
        return str(self.header["token"])

    @property
    def force(self) -> bool:
        """Whether the run was allowed to replace an output."""
        return bool(self.header["force"])

    # -- going on, or beginning --

    def resume(self, job: Job) -> Any:
        """The plan of the run to go on with; a journal of another job is refused."""
        if self.header["job"] != fingerprint(job):
            raise ScaleError(
                f"--resume: {str(self.path)!r} is the journal of another job, or the input has "
                "changed; use the same arguments, or --force to begin again"
            )
        return self.header["plan"]

    def reopen(self) -> None:
        """Append to the journal that is there, after its last whole line."""
        self._handle = os.open(self.path, os.O_WRONLY | os.O_APPEND | NO_FOLLOW | BINARY)
        os.ftruncate(self._handle, self._length)

    def start(self, job: Job, plan: Any, token: str, force: bool) -> None:
        """A new journal; the plan is kept so that a run in other circumstances can go on with it."""
        header = {"job": fingerprint(job), "plan": plan, "token": token, "force": force}
        header["from"] = job.source.inner
        header = {"lunette journal": 2, **header}
        line = json.dumps({**header, "digest": _digest(header)}) + "\n"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | BINARY
        self._handle = os.open(self.path, flags, 0o666)
        self._length, self.header, self.state = 0, header, "begun"
        self.done, self.levels, self.whole = set(), False, False
        try:
            self._append(line)
            os.fsync(self._handle)
        except OSError:
            self.remove()
            raise
        sync_folder(self.path.parent)

    def _append(self, line: str) -> None:
        """A whole line or none of it: a full disk may take a part."""
        assert self._handle is not None
        data = line.encode()
        try:
            written = os.write(self._handle, data)
            while written < len(data):
                written += os.write(self._handle, data[written:])
        except OSError:
            os.ftruncate(self._handle, self._length)
            raise
        self._length += len(data)

    def add(self, number: int, tile: int) -> None:
        """Tile `tile` of pass `number` is written."""
        self._append(f"{number} {tile}\n")
        self.done.add((number, tile))

    def note(self, event: str) -> None:
        """The levels are there (`levels`), or the output lacks only its name (`whole`)."""
        self._append(f"{event}\n")
        assert self._handle is not None
        os.fsync(self._handle)
        setattr(self, event, True)

    def close(self) -> None:
        """Make sure that the lines are on the disk."""
        if self._handle is not None:
            handle, self._handle = self._handle, None
            try:
                os.fsync(handle)
            finally:
                os.close(handle)

    def remove(self) -> None:
        """No journal any more."""
        self.close()
        self.path.unlink(missing_ok=True)
        self.state = "none"


def _digest(header: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(header, sort_keys=True).encode()).hexdigest()
