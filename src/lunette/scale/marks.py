"""What bears our mark, and may therefore be removed: nothing else ever is.

Every folder that the commands make holds a file `.lunette` with a text that no other program
writes. A folder is removed name by name, and only names that the commands give: whatever else lies
in it is a stranger, and a folder with a stranger is left alone.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from lunette.platform import BINARY, NO_FOLLOW, NONBLOCK
from lunette.scale.errors import ScaleError

__all__ = ["MARK", "check_ours", "discard", "mark", "marked", "names_token"]

MARK = ".lunette"
"""The name of the file that marks a folder. Zarr does not look for such a name in an array."""

TEXT = (
    "This folder was made by `lunette pool` or `lunette pyramid`, which may replace it.\n"
    "2d5d1c1e-7a35-4d0e-9a3f-lunette-output\n"
)

_TORN = r"\.[0-9a-f]{32}\.partial"
_CHUNK = re.compile(rf"(c|(c\.)?\d+(\.\d+)*|(\d+-\d+_){{2}}\d+-\d+)({_TORN})?")
_METADATA = rf"\.lunette|zarr(\.json|{_TORN})|\.z(array|attrs|group|metadata)({_TORN})?"
_FOLDERS = {
    "partial": re.compile(r"[0-9a-f]{12}"),
    "work": re.compile(r"zarr|replaced"),
    "zarr": re.compile(r"\d+|c|labels"),
    "array": re.compile(r"\d+|c"),
    "chunks": re.compile(r"\d+"),
    "labels": re.compile(r"\w[\w .-]*"),
    "label": re.compile(r"\w[\w .-]*"),
}
_FILES = {
    "partial": re.compile(r"\.lunette"),
    "work": re.compile(r"level-\d+\.npy|made-\d+\.\w+(\.new)?"),
    "zarr": re.compile(rf"{_METADATA}|info({_TORN})?"),
    "array": re.compile(rf"{_METADATA}|{_CHUNK.pattern}"),
    "chunks": _CHUNK,
    "labels": re.compile(_METADATA),
    "label": re.compile(rf"{_METADATA}|{_CHUNK.pattern}"),
}
"""Names that the commands give: `partial` is OUT.partial, `work` a folder in it, `zarr` an output."""


def mark(folder: Path, token: str = "") -> None:
    """Mark a folder that we have just made; of a workspace, with the token of its journal."""
    text = (TEXT + f"{token}\n" * bool(token)).encode()
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | NO_FOLLOW | BINARY
    handle = os.open(folder / MARK, flags, 0o666)
    try:
        os.write(handle, text)
    finally:
        os.close(handle)


def marked(folder: Path, token: str | None = None) -> bool:
    """Whether a folder bears our mark, of this token where one is asked for."""
    text = _mark_of(folder)
    if text is None:
        return False
    return text.startswith(TEXT) if token is None else text == TEXT + f"{token}\n"


def names_token(folder: Path, token: str) -> bool:
    """Whether a workspace is that of a journal: marked for it, or killed before it could be marked."""
    if marked(folder, token):
        return True
    entries = sorted(e.name for e in os.scandir(folder))
    torn = _mark_of(folder)
    begun = entries == [MARK] and torn is not None and (TEXT + f"{token}\n").startswith(torn)
    return not entries or begun


def _mark_of(folder: Path) -> str | None:
    """The text of the mark; None where there is none, or what is there is no file."""
    try:
        handle = os.open(folder / MARK, os.O_RDONLY | NO_FOLLOW | NONBLOCK | BINARY)
    except OSError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            return None
        return os.read(handle, 4096).decode(errors="replace")
    finally:
        os.close(handle)


def check_ours(folder: Path, kind: str, name: str) -> None:
    """Refuse a folder that is not wholly ours: `kind` is `partial`, or `zarr` for a finished output."""
    remedy = "nothing was removed; move it away or choose another OUT"
    if folder.is_symlink() or not folder.is_dir():
        raise ScaleError(f"{name}: {str(folder)!r} is no folder of lunette's; {remedy}")
    if os.path.ismount(folder):
        raise ScaleError(f"{name}: {str(folder)!r} is a mount point; {remedy}")
    arrays = [folder]
    if kind == "zarr" and not marked(folder):
        arrays = [Path(e) for e in os.scandir(folder) if e.name.isdigit()]
    if not arrays or not all(marked(a) for a in arrays):
        raise ScaleError(
            f"{name}: {str(folder)!r} was not made by lunette, for it lacks the mark {MARK}; {remedy}"
        )
    for path in _strangers(folder, _whole(folder, kind)):
        raise ScaleError(
            f"{name}: {str(folder)!r} was made by lunette, but {str(path)!r} was not; {remedy}"
        )


def discard(folder: Path, kind: str) -> None:
    """Remove a folder of ours, name by name; a stranger stays, and so do the folders around it.

    The mark goes last, so that a folder that is half removed is still known.
    """
    if not os.path.lexists(folder):
        return
    kind = _whole(folder, kind)
    entries = sorted(os.scandir(folder), key=lambda e: e.name == MARK)
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            if _FOLDERS[kind].fullmatch(entry.name) and _known(entry, kind):
                discard(Path(entry.path), _below(kind, entry.name))
        elif entry.is_file(follow_symlinks=False) and _FILES[kind].fullmatch(entry.name):
            os.unlink(entry.path)
    try:
        os.rmdir(folder)
    except OSError as error:
        raise ScaleError(
            f"cannot remove {str(folder)!r}, which was made by lunette: {error}"
        ) from error


def _whole(folder: Path, kind: str) -> str:
    """An output that is marked itself is an array; a group of levels is not."""
    return "array" if kind == "zarr" and marked(folder) else kind


def _known(entry: os.DirEntry[str], kind: str) -> bool:
    """Whether a folder of any name, or one that others make too, bears our mark."""
    named = (kind == "zarr" and entry.name == "labels") or kind == "labels"
    return not named or marked(Path(entry.path))


def _below(kind: str, name: str) -> str:
    """The kind of a folder in a folder."""
    if kind == "partial":
        return "work"
    if kind == "work":
        return "zarr"
    if kind in ("labels", "label"):
        return "label"
    if name == "labels":
        return "labels"
    return "chunks" if name == "c" or kind in ("chunks", "array") else "array"


def _strangers(folder: Path, kind: str) -> Iterator[Path]:
    """Whatever has no name that the commands give, or is no plain file or folder."""
    for entry in sorted(os.scandir(folder), key=lambda e: e.name):
        folders = entry.is_dir(follow_symlinks=False) and _FOLDERS[kind].fullmatch(entry.name)
        if folders and _known(entry, kind):
            if os.path.ismount(entry.path):
                yield Path(entry.path)
            yield from _strangers(Path(entry.path), _below(kind, entry.name))
        elif not (entry.is_file(follow_symlinks=False) and _FILES[kind].fullmatch(entry.name)):
            yield Path(entry.path)
