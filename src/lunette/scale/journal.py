"""Which tiles are done: a line each, appended after the tile's last chunk was written."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from lunette.scale.errors import ScaleError
from lunette.scale.plan import Job
from lunette.scale.stores import Source

__all__ = ["Journal", "fingerprint"]


def fingerprint(job: Job) -> str:
    """A digest of the job, whatever its passes, and of the input as it is now."""
    digest = hashlib.sha256(repr(replace(job, passes=(), run="")).encode())
    digest.update(_state(job.source).encode())
    return digest.hexdigest()


def _state(source: Source) -> str:
    """Size and time of a file, or the text of a Zarr array's metadata."""
    path = Path(source.path)
    if path.is_file():
        status = path.stat()
        return f"{status.st_size} {status.st_mtime_ns}"
    files = [path / source.inner / name for name in ("zarr.json", ".zarray")]
    return "".join(f.read_text() for f in files if f.exists())


class Journal:
    """A text file beside the output: a header, then `pass tile` lines. A torn last line is no line."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.done: set[tuple[int, int]] = set()
        self._file: Any = None

    def start(self, job: Job, plan: Any) -> None:
        """A new journal; the plan is kept so that a run in other circumstances can go on with it."""
        header = {"job": fingerprint(job), "plan": plan}
        temporary = self.path.with_name(self.path.name + ".new")
        temporary.write_text(json.dumps(header) + "\n")
        temporary.replace(self.path)
        self._file = open(self.path, "a", buffering=1)  # noqa: SIM115

    def resume(self, job: Job) -> Any:
        """The plan of the run to go on with; a journal of another job is refused."""
        if not self.path.exists():
            raise ScaleError(
                f"--resume: there is no journal {str(self.path)!r}; the output is finished or was "
                "never begun"
            )
        text = self.path.read_text()
        *lines, torn = text.split("\n")
        header = json.loads(lines[0]) if lines else {}
        if header.get("job") != fingerprint(job):
            raise ScaleError(
                f"--resume: {str(self.path)!r} is the journal of another job, or the input has "
                "changed; use the same arguments, or --force to begin again"
            )
        for line in lines[1:]:
            number, tile = line.split()
            self.done.add((int(number), int(tile)))
        if torn:
            with open(self.path, "r+") as file:
                file.truncate(len(text) - len(torn))
        self._file = open(self.path, "a", buffering=1)  # noqa: SIM115
        return header["plan"]

    def add(self, number: int, tile: int) -> None:
        """Tile `tile` of pass `number` is written."""
        self.done.add((number, tile))
        self._file.write(f"{number} {tile}\n")

    def close(self) -> None:
        """Make sure that the lines are on the disk."""
        if self._file is not None:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            self._file = None

    def finish(self) -> None:
        """The output is whole: no journal any more."""
        self.close()
        self.path.unlink(missing_ok=True)
