"""The numbers of the board by which a caller and its workers share a call out: int64, each busy one on a line of its own.

The call itself is a *job*: numbers that its caller has, and that nobody changes while somebody may look at them.
"""

from __future__ import annotations

__all__ = [
    "APART",
    "ARGUMENTS",
    "BOARD",
    "CLOSED",
    "DONE",
    "EACH",
    "EPOCH",
    "INSIDE",
    "JOB",
    "KERNEL",
    "LEAST",
    "LED",
    "NEXT",
    "OPEN",
    "PRESENT",
    "SHARE",
    "SPIN_BEFORE_YIELD",
    "TICKET",
    "UNITS",
    "WANTED",
    "WORDS",
    "WORKERS",
    "YIELD_CORE",
]

APART = 16
"""Words from one busy number to the next, 128 bytes: a line of Apple's processors, and two of others', which fetch lines in pairs."""

LED, OPEN, EPOCH, NEXT, INSIDE, PRESENT, CLOSED = range(0, 7 * APART, APART)
"""Whether a caller has the board; whether there is a call; how many there have been; its next unit; workers at work on it; workers
that look at the board; and whether they are to leave for good."""

JOB, YIELD_CORE, WANTED = range(7 * APART, 7 * APART + 3)
"""The address of the call's job; of the system's function by which a thread lets others have its core, 0 where there
is none; and the workers that may take part."""

WORDS = 8 * APART
"""Words of a board."""

KERNEL, UNITS, SHARE, LEAST, WORKERS, DONE, TICKET, BOARD = range(8)
"""Of a job: its kernel's address, its units, how many times a range goes into the units that are left, the units of a
range at least, the workers that may take part, and whether it has been done: it has not if another caller had the board. For a
team of OpenMP's, which has no numbers: how many have come, and the address of the board."""

ARGUMENTS, EACH = 8, 8
"""Where in a job the kernel's first six arguments are, for the caller and then for each worker; and words for each."""

SPIN_BEFORE_YIELD = 1 << 14
"""Looks at the board by a caller that waits for workers, before it lets others have its core: some 0.5 ms."""
