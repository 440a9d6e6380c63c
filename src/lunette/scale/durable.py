"""What has to be on the disk before the next step may be: files, names in a folder, trees."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from lunette.platform import flush_to_disk

__all__ = ["sync_file", "sync_folder", "sync_tree"]


def sync_file(path: Path | str) -> None:
    """The bytes of a file."""
    flush_to_disk(path)


def sync_folder(path: Path | str) -> None:
    """The names in a folder; some file systems cannot say, and then have nothing to wait for."""
    with suppress(OSError):
        sync_file(path)


def sync_tree(root: Path) -> None:
    """Every file and folder below, and the folder itself. Side by side, so that commits are shared."""
    with ThreadPoolExecutor(16, "lunette-sync") as pool:
        for folder, _, names in os.walk(root):
            for _ in pool.map(sync_file, [os.path.join(folder, n) for n in names]):
                pass
            sync_folder(folder)
