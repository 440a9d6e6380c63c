"""Units of a call shared out without the interpreter: the caller puts a call on the board, helpers who look at it take part.

To wake a thread takes as long as pooling a megabyte, and longer on virtual machines. So a helper looks at the board for a while
after its last call, and sleeps only then. Everyone takes the next range until there is none.
"""

# Numba types the kernels, not mypy.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

import platform
from functools import cache
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from lunette.kernels.cpu.compiling import machine
from lunette.kernels.cpu.compiling.machine import compiled, pointer
from lunette.kernels.cpu.running.board import (
    ARGUMENTS,
    AWAITED,
    CLOSED,
    DONE,
    EACH,
    GIVE_WAY,
    HELPERS,
    INSIDE,
    JOB,
    KERNEL,
    LEAST,
    LED,
    NEXT,
    OPEN,
    PRESENT,
    SHARE,
    TURN,
    UNITS,
)
from lunette.kernels.cpu.running.streams import call

__all__ = ["kernel"]

ORDER = "seq_cst"
"""All see these loads and stores in one order: a helper enters before it looks whether the call is open, and a
caller closes it before it looks who is inside, so one of the two knows of the other."""


@intrinsic  # type: ignore[untyped-decorator]
def look(context: Any, board: Any, word: Any) -> Any:
    """A number of the board."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load_atomic(builder.gep(arguments[0], [arguments[1]]), ORDER, 8)

    return types.int64(board, types.int64), generate


@intrinsic  # type: ignore[untyped-decorator]
def write(context: Any, board: Any, word: Any, value: Any) -> Any:
    """Put a number on the board."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        board, word, value = arguments
        builder.store_atomic(value, builder.gep(board, [word]), ORDER, 8)
        return context.get_dummy_value()

    return types.void(board, types.int64, types.int64), generate


@intrinsic  # type: ignore[untyped-decorator]
def add(context: Any, board: Any, word: Any, value: Any) -> Any:
    """Add to a number of the board; gives what it was."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        board, word, value = arguments
        return builder.atomic_rmw("add", builder.gep(board, [word]), value, ORDER)

    return types.int64(board, types.int64, types.int64), generate


@intrinsic  # type: ignore[untyped-decorator]
def replace(context: Any, board: Any, word: Any, old: Any, new: Any) -> Any:
    """Put a number on the board if `old` is still there; gives what was."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        board, word, old, new = arguments
        found = builder.cmpxchg(builder.gep(board, [word]), old, new, ORDER, ORDER)
        return builder.extract_value(found, 0)

    return types.int64(board, types.int64, types.int64, types.int64), generate


@intrinsic  # type: ignore[untyped-decorator]
def breathe(context: Any) -> Any:
    """Wait a moment, and leave the core's other thread what it needs."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if platform.machine().lower() in ("x86_64", "amd64"):
            kind = ir.FunctionType(ir.VoidType(), [])
            pause = cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.sse2.pause")
            builder.call(pause, [])
        return context.get_dummy_value()

    return types.void(), generate


@intrinsic  # type: ignore[untyped-decorator]
def give_way(context: Any, at: Any) -> Any:
    """Let another thread have the core, by the system's function at an address."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(ir.IntType(32), [])
        builder.call(builder.inttoptr(arguments[0], kind.as_pointer()), [])
        return context.get_dummy_value()

    return types.void(types.int64), generate


@cache
def kernel() -> Any:
    """The kernel of whom `number` says: the caller is 0, and has a job; helpers count from 1, and leave after so many looks at the board."""

    @compiled
    def take_ranges(board, job, number):
        """Ranges of the call that is open, until there is none left; the longest come first."""
        units, share, least = job[UNITS], job[SHARE], job[LEAST]
        a = ARGUMENTS + EACH * number
        first = look(board, NEXT)
        while first < units:
            last = min(units, first + max(least, (units - first) // share))
            found = replace(board, NEXT, first, last)
            if found == first:
                call(
                    job[KERNEL],
                    job[a],
                    job[a + 1],
                    job[a + 2],
                    job[a + 3],
                    job[a + 4],
                    job[a + 5],
                    first,
                    last,
                )
                found = look(board, NEXT)
            first = found

    @compiled
    def lead(board, job_at):
        """Open a call, take part, close it, and wait for those inside: they write to the caller's arrays.

        All of it without the interpreter, so no exception can come before the end. Nothing where another has the board.
        """
        if replace(board, LED, 0, 1) == 0:
            job = pointer(job_at, types.int64)
            write(board, JOB, job_at)
            write(board, NEXT, 0)
            write(board, OPEN, 1)
            add(board, TURN, 1)
            take_ranges(board, job, 0)
            write(board, OPEN, 0)
            looks = 0
            while look(board, INSIDE) != 0:
                breathe()
                looks += 1
                if (looks > AWAITED) & (board[GIVE_WAY] != 0):  # a helper may have lost its core
                    give_way(board[GIVE_WAY])
            job[DONE] = 1
            write(board, LED, 0)

    @compiled
    def attend(board, number, patience):
        """Take part in calls, until none has come for a while."""
        add(board, PRESENT, 1)
        seen, looks = -1, 0
        while (looks < patience) & (look(board, CLOSED) == 0):
            turn = look(board, TURN)
            if turn == seen:
                breathe()
                looks += 1
                continue
            seen, looks = turn, 0
            add(board, INSIDE, 1)
            if look(board, OPEN) == 1:  # its job is there until this helper leaves
                job = pointer(look(board, JOB), types.int64)
                if number <= job[HELPERS]:
                    take_ranges(board, job, number)
            add(board, INSIDE, -1)
        add(board, PRESENT, -1)

    @machine.kernel
    def share(board_at, number, job_or_patience, zero, nought, nil, first, last):
        board = pointer(board_at, types.int64)
        if number == 0:
            lead(board, job_or_patience)
        else:
            attend(board, number, job_or_patience)

    return share
