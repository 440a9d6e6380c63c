"""What goes wrong with files, in words: names the argument or the chunk, and the remedy."""

from __future__ import annotations

__all__ = ["ScaleError", "one_line"]

LONGEST = 800
"""Characters of a message; a file may have put a megabyte of its own into one."""


class ScaleError(Exception):
    """A message for the person at the terminal."""


def one_line(error: BaseException) -> str:
    """A message in one line of printable characters; of an error that we did not foresee, its kind too."""
    text = " ".join("".join(c if c.isprintable() else " " for c in str(error)).split())
    if len(text) > LONGEST:
        text = f"{text[: LONGEST - 200]} … {text[-190:]}"
    return text if isinstance(error, ScaleError) else f"{type(error).__name__}: {text}"
