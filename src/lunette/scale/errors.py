"""What goes wrong with files, in words: names the argument or the chunk, and the remedy."""

__all__ = ["ScaleError"]


class ScaleError(Exception):
    """A message for the person at the terminal."""
