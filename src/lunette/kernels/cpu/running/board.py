"""The numbers of the board by which a caller and its helpers share a call out: int64, each busy one on a line of its own.

The call itself is a *job*: numbers that its caller has, and that nobody changes while somebody may look at them.
"""

from __future__ import annotations

__all__ = [
    "ARGUMENTS",
    "AWAITED",
    "CLOSED",
    "DONE",
    "EACH",
    "GIVE_WAY",
    "HELPERS",
    "INSIDE",
    "JOB",
    "KERNEL",
    "LEAST",
    "LED",
    "NEXT",
    "OPEN",
    "PRESENT",
    "SHARE",
    "TURN",
    "UNITS",
    "WORDS",
]

LED, OPEN, TURN, NEXT, INSIDE, PRESENT, CLOSED = range(0, 56, 8)
"""Whether a caller has the board; whether there is a call; how many there have been; its next unit; helpers at work on it; helpers
that look at the board; and whether they are to leave for good."""

JOB, GIVE_WAY = 56, 57
"""The address of the call's job; and of the system's function by which a thread lets others have its core, 0 where there
is none."""

WORDS = 64
"""Words of a board."""

KERNEL, UNITS, SHARE, LEAST, HELPERS, DONE = range(6)
"""Of a job: its kernel's address, its units, how many times a range goes into the units that are left, the units of a
range at least, the helpers that may take part, and whether it has been done: it has not if another caller had the board."""

ARGUMENTS, EACH = 8, 8
"""Where in a job the kernel's first six arguments are, for the caller and then for each helper; and words for each."""

AWAITED = 1 << 14
"""Looks at the board by a caller that waits for helpers, before it lets others have its core: some 0.5 ms."""
