"""The numbers by which Python and the handler of XLA's calls understand each other: int64, at addresses that never change.

The *state* is one for all calls. The *table* has an entry for each prepared call, found by a hash and told apart by a
signature: the text of its task, and the type and shape of each operand and result. A *program* says what kernels to run.
"""

from __future__ import annotations

__all__ = [
    "AGAIN",
    "ASKED",
    "CHAIN",
    "CLOSED",
    "EACH",
    "ENTRY",
    "FLAG_BYTES",
    "FREE",
    "GONE",
    "HEAD",
    "HUGE",
    "INSIDE",
    "KINDS",
    "MADVISE",
    "MALLOC",
    "PREPARE",
    "PROGRAM",
    "PYTHON",
    "SERVED",
    "SIGNATURE",
    "SLOTS",
    "STATE_WORDS",
    "STEP",
    "STEPS",
    "STRANGE",
    "TABLE",
    "TASK",
    "TEMP_BYTES",
    "YIELD",
]

TABLE, PYTHON, CLOSED, INSIDE, TASK, MALLOC, FREE, YIELD, GONE, SERVED, ASKED, MADVISE = range(12)
"""Of the state: the table; the function to ask in Python; whether Python is on its way out; threads that are asking it; the entry
of helpers; functions of the system; the arguments of the error that Python is gone; calls served by programs, and by Python; the
function that asks for huge pages, or zero where nobody wants them."""

STATE_WORDS = 16

ENTRY = 4
"""Words of an entry: a hash, never zero; a signature; a program, or zero where only Python knows the call. The table's first
word is how many entries it has room for, a power of two."""

SIGNATURE, PROGRAM = 1, 2

STEPS, FLAG_BYTES, TEMP_BYTES, SLOTS, EACH, AGAIN, HUGE = range(7)
"""Of a program: how many steps; bytes for flags, zero before it begins, and for arrays between its steps; slots of scratch
memory, and bytes of each; the program for what the kernels should not have taken on trust, or zero; of the first two results, the bytes for which
huge pages are worth asking, or zero."""

HEAD, STEP = 8, 12
"""Words of a program before its steps, and of a step: kernel, table, units, threads, three places, the flags' place, a chain's
words, its patches, and the address of these.

A place is an operand, a result after these, or a byte of temporary memory; see `KINDS`."""

CHAIN = 8

KINDS = 1 << 10
"""Places below this are operands and results; from this on, bytes of temporary memory."""

PREPARE, STRANGE = 1, 2
"""Why Python is asked: the call was never seen, or kernels met numbers that they do not serve. Zero: only Python knows it."""
