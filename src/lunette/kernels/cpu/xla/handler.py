"""The handler of XLA's calls: finds the program of a call and runs it, on XLA's own threads, without the interpreter.

Python is asked where a call was never seen, where no kernel serves it, and where kernels met numbers that they do not serve.
"""

# Numba types the kernels, not mypy.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

from functools import cache
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from lunette.kernels.cpu.jit import intrinsics
from lunette.kernels.cpu.jit.intrinsics import compiled, pointer
from lunette.kernels.cpu.threadpool.worker import add, look, replace
from lunette.kernels.cpu.xla.words import (
    AGAIN,
    ASKED,
    CHAIN,
    CLOSED,
    EACH,
    ENTRY,
    FLAG_BYTES,
    FREE,
    GONE,
    HEAD,
    HUGE,
    INSIDE,
    KINDS,
    MADVISE,
    MALLOC,
    PREPARE,
    PROGRAM,
    PYTHON,
    SERVED,
    SIGNATURE,
    SLOTS,
    STEP,
    STEPS,
    STRANGE,
    TABLE,
    TASK,
    TEMP_BYTES,
    YIELD,
)

__all__ = ["handler_kernel", "narrow_kernel", "publish_kernel", "task_kernel"]

EXTENSION, API, CONTEXT, ARGUMENTS, OPERANDS, RETURNS, RESULTS, ATTRIBUTES = (
    1,
    2,
    3,
    7,
    9,
    12,
    14,
    20,
)
"""Words of XLA's call."""

METADATA = 1
"""The kind of extension by which XLA asks what a handler is."""

ERROR_CREATE, SCHEDULE = 6, 17
"""Words of XLA's functions."""

LINE = 64

SMALL_PAGE, HUGE_ADVICE = 4096, 14
"""Bytes of a page, and Linux's number of the advice that memory be in huge ones."""

NEXT, DONE, HOLDERS = 0, 8, 16
KERNEL, A, B, C, FLAGS, PLAN, CHAINED, UNITS, SHARE, LEAST, POOL, ROOM, STATE = range(24, 37)
JOB_WORDS = 40
"""Of a job, which several threads share: each busy word is on a line of its own."""

PATIENCE = 1 << 14
"""Looks at a job by its caller before it lets others have its core."""


def _function(count: int, results: int) -> Any:
    """What calls a function at an address, of so many words, which gives one of so many bits."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(ir.IntType(results), [ir.IntType(64)] * count)
        found = builder.call(builder.inttoptr(arguments[0], kind.as_pointer()), arguments[1:])
        return found if results == 64 else context.get_constant(types.int64, 0)

    return types.int64(*[types.int64] * (count + 1)), generate


@intrinsic  # type: ignore[untyped-decorator]
def call1(context: Any, at: Any, a: Any) -> Any:
    """A function of one word."""
    return _function(1, 64)


@intrinsic  # type: ignore[untyped-decorator]
def call2(context: Any, at: Any, a: Any, b: Any) -> Any:
    """A function of two words."""
    return _function(2, 64)


@intrinsic  # type: ignore[untyped-decorator]
def call3(context: Any, at: Any, a: Any, b: Any, c: Any) -> Any:
    """A function of three words."""
    return _function(3, 64)


@intrinsic  # type: ignore[untyped-decorator]
def call8(
    context: Any, at: Any, a: Any, b: Any, c: Any, d: Any, e: Any, f: Any, g: Any, h: Any
) -> Any:
    """A kernel."""
    return _function(8, 32)


@compiled
def words_at(address):
    """Words of eight bytes at an address."""
    return pointer(address, types.int64)


@compiled
def run_range(job, scratch, first, last):
    """Units of a job, on this thread."""
    if job[CHAINED] != 0:
        call8(job[KERNEL], job[A], scratch, 0, 0, 0, 0, first, last)
    else:
        call8(job[KERNEL], job[A], job[B], job[C], scratch, job[PLAN], job[FLAGS], first, last)


@compiled
def take_ranges(job):
    """Ranges of units until there is none left, in scratch memory that nobody else has."""
    state = words_at(job[STATE])
    units, share, least = job[UNITS], job[SHARE], job[LEAST]
    first = look(job, NEXT)
    if first >= units:
        return
    slot, scratch, own = -1, 0, 0
    if job[ROOM] > 0:
        slots = words_at(job[POOL])
        for i in range(slots[0]):
            if (look(slots, 2 + 2 * i) == 0) and (replace(slots, 2 + 2 * i, 0, 1) == 0):
                slot = i
                break
        if slot >= 0:
            scratch = slots[3 + 2 * slot]
        else:
            own = call1(state[MALLOC], job[ROOM] + 4096)
            scratch = (own + 4095) // 4096 * 4096
    while first < units:
        last = min(units, first + max(least, (units - first) // share))
        found = replace(job, NEXT, first, last)
        if found == first:
            run_range(job, scratch, first, last)
            add(job, DONE, last - first)
            found = look(job, NEXT)
        first = found
    if slot >= 0:
        replace(words_at(job[POOL]), 2 + 2 * slot, 1, 0)
    if own != 0:
        call1(state[FREE], own)


@cache
def task_kernel() -> Any:
    """The kernel of a helper: takes part in a job, which is freed by the last who holds it."""

    @intrinsics.kernel
    def help_out(job_at, zero, nought, nil, none, empty, blank, void):
        job = words_at(job_at)
        take_ranges(job)
        free = words_at(job[STATE])[FREE]
        if add(job, HOLDERS, -1) == 1:
            call1(free, job_at)

    return help_out


@cache
def narrow_kernel(source: str, target: str) -> Any:
    """The kernel that copies an array into one of a narrower type. Its table: elements of the array, and of a unit."""
    read, write = getattr(types, source), getattr(types, target)

    @intrinsics.kernel
    def narrow(source_at, target_at, same_at, scratch, table_at, flags_at, first, last):
        source, target = pointer(source_at, read), pointer(target_at, write)
        table = words_at(table_at)
        for i in range(first * table[1], min(table[0], last * table[1])):
            target[i] = write(source[i])

    return narrow


@cache
def publish_kernel() -> Any:
    """The kernel that writes a word after all that was written before: who sees it sees that, too."""

    @intrinsics.kernel
    def publish(at, value, zero, nought, nil, none, empty, blank):
        words = words_at(at)
        replace(words, 0, words[0], value)

    return publish


@cache
def handler_kernel() -> Any:
    """The kernel that serves a call of XLA's: its frame, the state, and where to put XLA's error, or zero."""

    @compiled
    def mix(h, value):
        h = (h ^ value) * 0x100000001B3
        return h ^ ((h >> 29) & 0x7FFFFFFFF)

    @compiled
    def mix_buffer(h, at):
        """The type and the shape of an array."""
        buffer = words_at(at)
        dims = words_at(buffer[5])
        h = mix(h, (buffer[2] & 0xFFFFFFFF) * 64 + buffer[4])
        for axis in range(buffer[4]):
            h = mix(h, dims[axis])
        return h

    @compiled
    def hash_of(frame):
        h = words_at(words_at(words_at(frame[ATTRIBUTES])[0])[1])[0]
        operands, results = words_at(frame[OPERANDS]), words_at(frame[RESULTS])
        for i in range(frame[ARGUMENTS]):
            h = mix_buffer(h, operands[i])
        for i in range(frame[RETURNS]):
            h = mix_buffer(h, results[i])
        return h | 1

    @compiled
    def same_buffer(at, signature, k):
        """The place after an array's words in a signature, or −1 where it is another array."""
        buffer = words_at(at)
        dims = words_at(buffer[5])
        if (signature[k] != (buffer[2] & 0xFFFFFFFF)) | (signature[k + 1] != buffer[4]):
            return -1
        for axis in range(buffer[4]):
            if signature[k + 2 + axis] != dims[axis]:
                return -1
        return k + 2 + buffer[4]

    @compiled
    def same(frame, signature):
        """Whether this is the call of a signature: arrays, then the text of its task."""
        if (signature[0] != frame[ARGUMENTS]) | (signature[1] != frame[RETURNS]):
            return False
        operands, results, k = words_at(frame[OPERANDS]), words_at(frame[RESULTS]), 4
        for i in range(frame[ARGUMENTS]):
            k = same_buffer(operands[i], signature, k)
            if k < 0:
                return False
        for i in range(frame[RETURNS]):
            k = same_buffer(results[i], signature, k)
            if k < 0:
                return False
        text = words_at(words_at(frame[ATTRIBUTES])[1])
        if text[1] != signature[2]:
            return False
        given, own = pointer(text[0], types.uint8), pointer(signature[3], types.uint8)
        for i in range(signature[2]):  # noqa: SIM110
            if given[i] != own[i]:
                return False
        return True

    @compiled
    def find(frame, state):
        """The program of a call; 0 where only Python knows it, −1 where it was never seen."""
        table = words_at(look(state, TABLE))
        count, h = table[0], hash_of(frame)
        i = h & (count - 1)
        for _ in range(count):
            e = 1 + i * ENTRY
            found = look(table, e)
            if found == 0:
                return -1
            if (found == h) and same(frame, words_at(table[e + SIGNATURE])):
                return look(table, e + PROGRAM)
            i = (i + 1) & (count - 1)
        return -1

    @compiled
    def ask_python(frame_at, state, why):
        """Never once the interpreter is on its way out: this would wait for a lock that nobody gives back."""
        add(state, ASKED, 1)
        add(state, INSIDE, 1)
        if look(state, CLOSED) != 0:
            functions = words_at(words_at(frame_at)[API])
            error = call1(functions[ERROR_CREATE], state[GONE])
        else:
            error = call2(state[PYTHON], frame_at, why)
        add(state, INSIDE, -1)
        return error

    @compiled
    def place(code, frame, temporary):
        """The address of a place."""
        if code >= KINDS:
            return temporary + (code - KINDS)
        if code < frame[ARGUMENTS]:
            return words_at(words_at(frame[OPERANDS])[code])[3]
        return words_at(words_at(frame[RESULTS])[code - frame[ARGUMENTS]])[3]

    @compiled
    def share_out(job, job_at, frame, threads):
        """A job with XLA's threads. It lies on the heap: a helper may come when all is done and this caller is gone."""
        state = words_at(job[STATE])
        functions = words_at(frame[API])
        request = words_at(job_at + 8 * JOB_WORDS)
        for _ in range(threads - 1):
            request[0] = 40
            request[1] = 0
            request[2] = frame[CONTEXT]
            request[3] = state[TASK]
            request[4] = job_at
            error = call1(functions[SCHEDULE], job_at + 8 * JOB_WORDS)
            if error != 0:  # no pool: this thread does it all
                add(job, HOLDERS, -1)
        take_ranges(job)
        looks = 0
        while look(job, DONE) != job[UNITS]:
            looks += 1
            if (looks > PATIENCE) & (state[YIELD] != 0):
                call1(state[YIELD], 0)

    @compiled
    def step(frame, state, state_at, program, s, temporary):
        q = words_at(s)
        threads = q[3]
        job_at = call1(state[MALLOC], 8 * JOB_WORDS + 40)
        job = words_at(job_at)
        job[NEXT] = 0
        job[DONE] = 0
        job[HOLDERS] = threads
        job[KERNEL] = q[0]
        job[PLAN] = q[1]
        job[UNITS] = q[2]
        job[A] = place(q[4], frame, temporary)
        job[B] = place(q[5], frame, temporary)
        job[C] = place(q[6], frame, temporary)
        # Flags may be numbers that a kernel was made with, memory of this call, or another array.
        job[FLAGS] = place(q[7], frame, temporary) if q[7] >= 0 else -(q[7] + 1)
        job[CHAINED] = q[CHAIN]
        job[STATE] = state_at
        job[POOL] = program[SLOTS]
        job[ROOM] = program[EACH]
        if q[CHAIN] != 0:  # a copy of its table, with this call's addresses
            chain, source = words_at(job[B]), words_at(q[1])
            for i in range(q[CHAIN]):
                chain[i] = source[i]
            patches = words_at(q[10])
            for i in range(q[9]):
                chain[patches[2 * i]] = place(patches[2 * i + 1], frame, temporary)
            job[A] = job[B]
        if threads == 1:
            job[SHARE] = 1
            job[LEAST] = q[2]
            take_ranges(job)
        else:
            job[SHARE] = 4 * threads
            job[LEAST] = max(1, q[2] // (32 * threads))
            share_out(job, job_at, frame, threads)
        if add(job, HOLDERS, -1) == 1:
            call1(state[FREE], job_at)

    @compiled
    def ask_for_huge_pages(frame, state, program):
        """Large results are fresh memory, whose every page costs a fault. Advice that is not taken changes nothing."""
        for i in range(min(2, frame[RETURNS])):
            if program[HUGE + i] > 0:
                at = words_at(words_at(frame[RESULTS])[i])[3]
                first = (at + SMALL_PAGE - 1) // SMALL_PAGE * SMALL_PAGE
                pages = (at + program[HUGE + i] - first) // SMALL_PAGE
                call3(state[MADVISE], first, pages * SMALL_PAGE, HUGE_ADVICE)

    @compiled
    def run(frame_at, state, state_at, program_at):
        """All steps of a program; whether an item was flagged."""
        frame, program = words_at(frame_at), words_at(program_at)
        if look(state, MADVISE) != 0:
            ask_for_huge_pages(frame, state, program)
        room, own, temporary, strange = program[FLAG_BYTES] + program[TEMP_BYTES], 0, 0, 0
        if room > 0:
            own = call1(state[MALLOC], room + LINE)
            temporary = (own + LINE - 1) // LINE * LINE
            flags = pointer(temporary, types.uint8)
            for i in range(program[FLAG_BYTES]):
                flags[i] = 0
        for s in range(program[STEPS]):
            step(frame, state, state_at, program, program_at + 8 * (HEAD + s * STEP), temporary)
        if program[FLAG_BYTES] > 0:
            flags = pointer(temporary, types.uint8)
            for i in range(program[FLAG_BYTES]):
                strange |= flags[i]
        if own != 0:
            call1(state[FREE], own)
        return strange

    @compiled
    def serve(frame_at, state_at):
        state = words_at(state_at)
        program_at = find(words_at(frame_at), state)
        if program_at <= 0:
            return ask_python(frame_at, state, PREPARE if program_at < 0 else 0)
        if run(frame_at, state, state_at, program_at) != 0:
            again = look(words_at(program_at), AGAIN)
            if again <= 0:
                return ask_python(frame_at, state, STRANGE if again == 0 else 0)
            if run(frame_at, state, state_at, again) != 0:
                return ask_python(frame_at, state, 0)
        add(state, SERVED, 1)
        return 0

    @intrinsics.kernel
    def handle(frame_at, state_at, error_at, zero, nought, nil, none, empty):
        frame, error = words_at(frame_at), words_at(error_at)
        error[0] = 0
        asked = False
        if frame[EXTENSION] != 0:
            extension = words_at(frame[EXTENSION])
            if (extension[1] & 0xFFFFFFFF) == METADATA:
                told = pointer(extension[3] + 24, types.int32)
                told[0] = 0
                told[1] = 1
                told[2] = 0
                if frame[API] != 0:  # older versions ask without their functions
                    version = pointer(frame[API] + 32, types.int32)
                    told[0] = version[0]
                    told[1] = version[1]
                asked = True
        if not asked:
            error[0] = serve(frame_at, state_at)

    return handle
