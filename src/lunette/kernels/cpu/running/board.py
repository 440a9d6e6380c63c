"""The numbers of the board by which a caller and its helpers share a call out: int64, each busy one on a line of its own."""

from __future__ import annotations

__all__ = [
    "ARGUMENTS",
    "AWAITED",
    "CLOSED",
    "EACH",
    "GIVE_WAY",
    "HELPERS",
    "INSIDE",
    "KERNEL",
    "LEAST",
    "NEXT",
    "OPEN",
    "PRESENT",
    "SHARE",
    "TURN",
    "UNITS",
    "WORDS",
]

OPEN, TURN, NEXT, INSIDE, PRESENT, CLOSED = range(0, 48, 8)
"""Whether there is a call; how many there have been; its next unit; helpers at work on it; helpers that look at the board; and whether
they are to leave for good."""

KERNEL, UNITS, SHARE, LEAST, HELPERS, GIVE_WAY = range(48, 54)
"""Of the call: its kernel's address, its units, how many times a range goes into the units that are left, the units of a
range at least, and the helpers that may take part. And the address of the system's function by which a thread lets others
have its core, 0 where there is none."""

ARGUMENTS, EACH = 56, 8
"""Where the kernel's first six arguments are, for the caller and then for each helper; and words for each."""

WORDS = ARGUMENTS
"""Words of a board, without the arguments."""

AWAITED = 1 << 14
"""Looks at the board by a caller that waits for helpers, before it lets others have its core: some 0.5 ms."""
