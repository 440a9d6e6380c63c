"""Units of a call shared out without the interpreter: the caller puts a call on the board, workers who look at it take part.

To wake a thread takes as long as pooling a megabyte, and longer on virtual machines. So a worker looks at the board for a while
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

from lunette.kernels.cpu.jit import intrinsics
from lunette.kernels.cpu.jit.intrinsics import compiled, pointer
from lunette.kernels.cpu.jit.processor import is_arm
from lunette.kernels.cpu.threadpool.indirect import call
from lunette.kernels.cpu.threadpool.shared import (
    ARGUMENTS,
    BOARD,
    CLOSED,
    DONE,
    EACH,
    EPOCH,
    INSIDE,
    JOB,
    KERNEL,
    LEAST,
    LED,
    NEXT,
    OPEN,
    PRESENT,
    SHARE,
    SPIN_BEFORE_YIELD,
    TICKET,
    UNITS,
    WANTED,
    WORKERS,
    YIELD_CORE,
)

__all__ = ["kernel"]

ORDER = "seq_cst"
"""All see these loads and stores in one order: a worker enters before it looks whether the call is open, and a
caller closes it before it looks who is inside, so one of the two knows of the other. x86 would let a load pass an earlier
store, and ARM lets any two accesses change places, so no weaker order will do.

A job and the arrays of a call need no order of their own. What its caller wrote before it stored OPEN, a worker that
loads OPEN as 1 reads; what a worker wrote before it took itself off INSIDE, a caller that loads INSIDE as 0 reads. Stores
past the caches are outside of this order on x86: a kernel ends with a fence after them."""


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
def pause(context: Any) -> Any:
    """Wait a moment, and leave the core's other thread what it needs."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word = ir.IntType(32)
        if is_arm():  # ARM's own hint, `yield`, does nothing on most of its processors; a barrier takes some time
            kind = ir.FunctionType(ir.VoidType(), [word])
            pause = cgutils.get_or_insert_function(builder.module, kind, "llvm.aarch64.isb")
            builder.call(pause, [ir.Constant(word, 15)])
        elif platform.machine().lower() in ("x86_64", "amd64"):
            kind = ir.FunctionType(ir.VoidType(), [])
            pause = cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.sse2.pause")
            builder.call(pause, [])
        return context.get_dummy_value()

    return types.void(), generate


@intrinsic  # type: ignore[untyped-decorator]
def yield_core(context: Any, at: Any) -> Any:
    """Let another thread have the core, by the system's function at an address."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(ir.IntType(32), [])
        builder.call(builder.inttoptr(arguments[0], kind.as_pointer()), [])
        return context.get_dummy_value()

    return types.void(types.int64), generate


@intrinsic  # type: ignore[untyped-decorator]
def run_team(context: Any, at: Any, function: Any, data: Any) -> Any:
    """Have every thread of OpenMP's team call a function with an address, by `GOMP_parallel`; they are done when this ends."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        at, function, data = arguments
        long, number = ir.IntType(64), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [long, long, number, number])
        as_many_as_there_are = ir.Constant(number, 0)
        parallel = builder.inttoptr(at, kind.as_pointer())
        builder.call(parallel, [function, data, as_many_as_there_are, as_many_as_there_are])
        return context.get_dummy_value()

    return types.void(at, function, data), generate


@cache
def claiming() -> Any:
    """The loop of all who take part in a call."""

    @compiled
    def claim_chunks(board, job, number):
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

    return claim_chunks


@cache
def team_kernel() -> Any:
    """What each thread of a team of OpenMP's calls. It is given the job alone: nothing else is read of its arguments."""
    claim_chunks = claiming()

    @intrinsics.kernel
    def take_part(job_at, _a, _b, _c, _d, _e, _f, _g):
        job = pointer(job_at, types.int64)
        number = add(job, TICKET, 1)
        if number <= job[WORKERS]:
            claim_chunks(pointer(job[BOARD], types.int64), job, number)

    return take_part


@cache
def kernel() -> Any:
    """The kernel of whom `number` says: the caller is 0, and has a job; workers count from 1, and leave after so many looks at the board;
    −1 is a caller who has a team of OpenMP's."""
    claim_chunks = claiming()

    @compiled
    def run_caller(board, job_at):
        """Open a call, take part, close it, and wait for those inside: they write to the caller's arrays.

        All of it without the interpreter, so no exception can come before the end. Nothing where another has the board.
        """
        if replace(board, LED, 0, 1) == 0:
            job = pointer(job_at, types.int64)
            write(board, JOB, job_at)
            write(board, NEXT, 0)
            write(board, WANTED, job[WORKERS])
            write(board, OPEN, 1)
            add(board, EPOCH, 1)
            claim_chunks(board, job, 0)
            write(board, OPEN, 0)
            looks = 0
            while look(board, INSIDE) != 0:
                pause()
                looks += 1
                if (looks > SPIN_BEFORE_YIELD) & (
                    board[YIELD_CORE] != 0
                ):  # a worker may have lost its core
                    yield_core(board[YIELD_CORE])
            job[DONE] = 1
            write(board, LED, 0)

    @compiled
    def worker_loop(board, number, patience):
        """Take part in calls, until none has come for a while."""
        add(board, PRESENT, 1)
        seen, looks = -1, 0
        while (looks < patience) & (look(board, CLOSED) == 0):
            turn = look(board, EPOCH)
            if turn == seen:
                pause()
                looks += 1
                continue
            seen, looks = turn, 0
            if look(board, WANTED) < number:  # the fewer write to the board, the sooner
                continue
            add(board, INSIDE, 1)
            if look(board, OPEN) == 1:  # its job is there until this worker leaves
                job = pointer(look(board, JOB), types.int64)
                if number <= job[WORKERS]:
                    claim_chunks(board, job, number)
            add(board, INSIDE, -1)
        add(board, PRESENT, -1)

    @compiled
    def run_by_team(board, job_at, parallel_at, function_at):
        """`run_caller` by OpenMP: it ends when all of its threads have come and gone."""
        if replace(board, LED, 0, 1) == 0:
            job = pointer(job_at, types.int64)
            write(board, NEXT, 0)
            run_team(parallel_at, function_at, job_at)
            job[DONE] = 1
            write(board, LED, 0)

    @intrinsics.kernel
    def share(board_at, number, job_or_patience, parallel_at, function_at, nil, first, last):
        board = pointer(board_at, types.int64)
        if number < 0:
            run_by_team(board, job_or_patience, parallel_at, function_at)
        elif number == 0:
            run_caller(board, job_or_patience)
        else:
            worker_loop(board, number, job_or_patience)

    return share
