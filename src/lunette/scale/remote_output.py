"""A Zarr output on the network: chunks are sent to their names, and what makes them an image comes last.

Stores of objects cannot rename, so levels are written where they will stay. The journal and the lock lie in
the folder where the command runs:

    OUT-….lock, OUT-….journal   on this machine, for as long as the work is not done
    OUT/.lunette                 the mark, sent first: it says who writes, then that it was us
    OUT/0, OUT/1, …              the levels
    OUT/zarr.json                sent last; an array alone has no other metadata
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any

from lunette.scale import marks
from lunette.scale.containers import Remote, container_of
from lunette.scale.errors import ScaleError
from lunette.scale.workspace import Workspace

__all__ = ["RemoteWorkspace", "check_remote", "stand_in"]

OURS = re.compile(
    r"\.lunette|(\d+/)?(zarr\.json|\.z(array|attrs|group|metadata))|(\d+/)?(c/)?\d+([./]\d+)*"
)
"""Names below an output of ours."""


def stand_in(url: str) -> Path:
    """The name on this machine that the journal and the lock of an output have."""
    name = re.sub(r"[^\w.-]", "_", url.rstrip("/").rpartition("/")[2])
    digest = hashlib.sha256(url.rstrip("/").encode()).hexdigest()[:8]
    return Path.cwd() / f"{name}-{digest}"


def check_remote(source: str, url: str) -> None:
    """Nothing that is written may lie in the input, nor around it."""
    a, b = f"{source.rstrip('/')}/", f"{url.rstrip('/')}/"
    if a.startswith(b) or b.startswith(a):
        raise ScaleError(f"OUT={url!r} and IN={source!r} lie in each other; choose another place")


class RemoteWorkspace(Workspace):
    """See the module. What `--force` replaces is removed before the work begins, object by object."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        super().__init__(stand_in(self.url), "zarr", [])
        container = container_of(self.url)
        assert isinstance(container, Remote)
        self.container = container

    def root(self, token: str) -> Any:
        """Where levels are written: where they will stay."""
        self.token = token
        return self.url

    def examine(self, resume: bool, force: bool) -> bool:
        """Whether there is a run to go on with; refuse what is not ours, or was not asked for."""
        if resume and force:
            raise ScaleError("--resume goes on and --force begins again; expected one of them")
        state, path = self.journal.state, str(self.journal.path)
        if state in ("foreign", "damaged") and not (force and state == "damaged"):
            raise ScaleError(f"{path!r} is no whole journal of lunette's; move it away")
        mark = self.container.read(marks.MARK, None, 1 << 12)
        if resume and state == "begun":
            ours = mark == self._mark(self.journal.token) or (
                mark == marks.TEXT.encode() and self.journal.whole
            )
            if not ours and (mark is not None or self.journal.levels):
                raise ScaleError(
                    f"--resume: {self.url!r} is not what the journal {path!r} began; begin again with "
                    "--force"
                )
            return True
        if state == "begun" and not force:
            raise ScaleError(
                f"OUT={self.url!r} was begun and not finished; go on with --resume or begin again with "
                "--force"
            )
        names = self.container.names()
        if not names:
            if resume and state == "none":
                raise ScaleError(
                    f"--resume: there is no journal {path!r}; go on from the folder where the work began"
                )
            return False
        if not force:
            raise ScaleError(
                f"OUT={self.url!r} exists, or is being written; write over it with --force"
            )
        strangers = sorted(n for n in names if not OURS.fullmatch(n))
        if mark is None or not mark.startswith(marks.TEXT.encode()) or strangers:
            what = f"holds {strangers[0]!r}" if strangers else f"lacks the mark {marks.MARK}"
            raise ScaleError(
                f"--force: {self.url!r} was not made by lunette alone, for it {what}; nothing was "
                "removed; choose another OUT"
            )
        return False

    def clear(self) -> None:
        """Take away what was there; `examine` has found that it is ours, and allowed."""
        if self.journal.state != "none":
            self.journal.remove()
        names = self.container.names()
        for name in sorted(names, key=lambda n: (not n.endswith("zarr.json"), n == marks.MARK)):
            self.container.delete(name)

    def make(self) -> Any:
        """The mark, which also shows whether the store takes what is sent."""
        self.container.write(marks.MARK, self._mark(self.journal.token))
        return self.url

    def publish(self, made: list[Path]) -> None:
        """All is in its place; the mark says no more that it is being written."""
        self.container.write(marks.MARK, marks.TEXT.encode())

    def remove(self) -> None:
        """Nothing is left to do."""
        self.journal.remove()

    def _mark(self, token: str) -> bytes:
        return f"{marks.TEXT}{token}\n".encode()
