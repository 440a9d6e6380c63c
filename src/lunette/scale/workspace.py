"""Where an output is made, and how it gets its name: beside OUT, marked, and moved when it is whole.

    OUT.lock        held while the command runs
    OUT.journal     made first, removed last
    OUT.partial/    marked; in it a folder named by the journal's token holds the levels
    OUT             appears when it is whole; what --force replaces is there until then

Whatever stands at these names and is not ours is refused before anything is made or removed.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

from lunette.scale import marks
from lunette.scale.durable import sync_folder
from lunette.scale.errors import ScaleError
from lunette.scale.journal import Journal

__all__ = ["Workspace", "folder_of", "journal_of"]


def folder_of(out: Path) -> Path:
    """Where an output is kept until it is whole."""
    return out.with_name(out.name + ".partial")


def journal_of(out: Path) -> Path:
    """The journal of an output."""
    return out.with_name(out.name + ".journal")


class Workspace:
    """The places of one output. `finals` are the names that it will have, a folder's if `kind` is zarr."""

    def __init__(self, out: Path, kind: str, finals: list[Path]) -> None:
        self.out, self.kind, self.finals = out, kind, finals
        self.folder = folder_of(out)
        self.journal = Journal(journal_of(out))
        self.token = ""

    def root(self, token: str) -> Path:
        """The folder of a run's levels. No two runs share it, so that a late writer finds no place."""
        self.token = token
        return self.folder / token

    # -- what may be done with what is there --

    def examine(self, resume: bool, force: bool) -> bool:
        """Whether there is a run to go on with; refuse what is not ours, or was not asked for."""
        if resume and force:
            raise ScaleError("--resume goes on and --force begins again; expected one of them")
        for path in self.finals:
            _check_plain(path, self.kind)
        state = self.journal.state
        if state == "foreign" and not (force and marks.marked(self.folder)):
            raise ScaleError(
                f"{str(self.journal.path)!r} is no journal of lunette's; move it away or choose "
                "another OUT"
            )
        if resume:
            return self._examine_resumed(state)
        if force:
            self._examine_forced()
            return False
        if state != "none":
            raise ScaleError(
                f"OUT={str(self.out)!r} was begun and not finished; go on with --resume or begin "
                "again with --force"
            )
        if os.path.lexists(self.folder):
            marks.check_ours(self.folder, "partial", "OUT.partial")
            raise ScaleError(
                f"OUT={str(self.out)!r} was begun, but there is no journal; begin again with --force"
            )
        for path in self.finals:
            if os.path.lexists(path):
                raise ScaleError(f"OUT: {str(path)!r} exists; write over it with --force")
        return False

    def _examine_resumed(self, state: str) -> bool:
        there = [p for p in (self.folder, *self.finals) if os.path.lexists(p)]
        if state in ("none", "torn"):
            if state == "none" and there:
                raise ScaleError(
                    f"--resume: there is no journal {str(self.journal.path)!r}; the output is "
                    "finished, or was never begun"
                )
            if there:
                raise ScaleError(
                    f"--resume: nothing was begun, and {str(there[0])!r} exists; --force begins again"
                )
            return False
        if state == "damaged":
            raise ScaleError(
                f"--resume: the journal {str(self.journal.path)!r} is damaged, "
                f"{self.journal.trouble}; begin again with --force"
            )
        journal = self.journal
        if os.path.lexists(self.folder):
            real = self.folder.is_dir() and not self.folder.is_symlink()
            if not real or not marks.names_token(self.folder, journal.token):
                raise ScaleError(
                    f"--resume: {str(self.folder)!r} is not the folder of this journal; move it away, "
                    "or begin again with --force"
                )
        elif journal.levels and not journal.whole:
            raise ScaleError(
                f"--resume: {str(self.folder)!r} is gone, and with it what was done; begin again with "
                "--force"
            )
        if not journal.whole:
            for path in self.finals:
                if os.path.lexists(path):
                    self._check_replaceable(path)
        return True

    def _examine_forced(self) -> None:
        if os.path.lexists(self.folder):
            begun = self.journal.state == "begun" and self.folder.is_dir()
            if not (begun and not os.listdir(self.folder)):
                marks.check_ours(self.folder, "partial", "--force")
        for path in self.finals:
            if os.path.lexists(path) and self.kind == "zarr":
                marks.check_ours(path, "zarr", "--force")

    def _check_replaceable(self, path: Path) -> None:
        """Refuse to replace what a run that was begun was not asked to, or what is not ours."""
        if not self.journal.force:
            raise ScaleError(
                f"OUT: {str(path)!r} exists, and did not when the work was begun; move it away, then "
                "go on with --resume"
            )
        _check_plain(path, self.kind)
        if self.kind == "zarr":
            marks.check_ours(path, "zarr", "--force")

    # -- from nothing to a name --

    def clear(self) -> None:
        """Take away what an unfinished run left; `examine` has found that it is ours."""
        marks.discard(self.folder, "partial")
        if self.journal.state == "foreign":  # beside a folder of ours, so it may have been one
            aside = self.journal.path.with_name(self.journal.path.name + ".broken")
            if os.path.lexists(aside):
                raise ScaleError(f"{str(aside)!r} exists; move it away")
            self.journal.path.rename(aside)
        elif self.journal.state != "none":
            self.journal.remove()

    def make(self) -> Path:
        """An empty folder for the levels, marked. What a run that was killed here left is cleared."""
        token = self.journal.token
        root = self.root(token)
        with suppress(FileExistsError):
            self.folder.mkdir()
        if not marks.marked(self.folder, token):
            marks.mark(self.folder, token)
        marks.discard(root, "work")
        root.mkdir()
        sync_folder(self.folder)
        sync_folder(self.folder.parent)
        return root

    def publish(self, made: list[Path]) -> None:
        """Give what was made its names; what has moved already was moved before an interruption."""
        for path, final in zip(made, self.finals, strict=True):
            if os.path.lexists(path):
                self._move(path, final)
        sync_folder(self.out.parent)

    def _move(self, path: Path, final: Path) -> None:
        if os.path.lexists(final):
            if not final.is_symlink() and os.path.samefile(path, final):
                path.unlink()  # killed between the two names
                return
            self._check_replaceable(final)
            if self.kind == "zarr":
                replaced = path.with_name("replaced")
                if os.path.lexists(replaced):
                    marks.discard(replaced, "zarr")
                final.rename(replaced)
            else:
                path.replace(final)
                return
        if self.kind == "zarr":
            path.rename(final)  # onto a folder that is not empty, this fails
            return
        try:
            os.link(path, final, follow_symlinks=False)
        except FileExistsError:
            self._check_replaceable(final)
        except OSError:  # a file system without links
            path.replace(final)
        else:
            path.unlink()

    def remove(self) -> None:
        """Nothing is left to do: take away the folder, then the journal."""
        with suppress(ScaleError):  # a stranger in it is left where it is
            marks.discard(self.folder, "partial")
        self.journal.remove()


def _check_plain(path: Path, kind: str) -> None:
    """Refuse a name that is taken by something that is no output at all."""
    try:
        mode = os.stat(path, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return
    what = None
    if stat.S_ISLNK(mode):
        what = f"a symbolic link to {os.readlink(path)!r}; name its target instead"
    elif stat.S_ISDIR(mode) and os.path.ismount(path):
        what = "a mount point; name a folder below it"
    elif stat.S_ISDIR(mode) and kind != "zarr":
        what = "a folder, where a file is to be; choose another OUT"
    elif stat.S_ISREG(mode) and kind == "zarr":
        what = "a file, where a folder is to be; move it away or choose another OUT"
    elif not stat.S_ISDIR(mode) and not stat.S_ISREG(mode):
        what = "no plain file or folder; choose another OUT"
    if what:
        raise ScaleError(f"OUT: {str(path)!r} is {what}")
