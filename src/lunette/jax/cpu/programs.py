"""Prepared calls in the words that the handler reads, and the table by which it finds them."""

from __future__ import annotations

import threading
from math import prod
from typing import Any

import numpy as np

from lunette.background import forever
from lunette.jax.cpu.frame import DTYPES, Frame
from lunette.jax.cpu.kernels import (
    FLAGS,
    PAGE,
    XLA,
    Number,
    Steps,
    Temporary,
    prepared,
    threads_for,
)
from lunette.kernels import threads
from lunette.kernels.cpu.xla.words import (
    AGAIN,
    CHAIN,
    EACH,
    ENTRY,
    FLAG_BYTES,
    HEAD,
    HUGE,
    KINDS,
    SLOTS,
    STATE_WORDS,
    STEP,
    STEPS,
    TABLE,
    TEMP_BYTES,
)

__all__ = ["Programs"]

LINE = 64

APART = 16 * PAGE
"""Bytes between the scratch memories of threads: nearer ones disturb each other."""

FIRST = 64
"""Entries of the first table."""

LARGE = 4 << 20
"""Bytes of a result from which huge pages are worth asking for."""

NOBODY = -1
"""In the place of the program for flagged numbers: there is none."""


def _at(array: Any) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


class Programs:
    """All programs of this process, and the state that the handler reads. Nothing of it is ever freed: threads of XLA may read it."""

    def __init__(self) -> None:
        self.state = np.zeros(STATE_WORDS, np.int64)
        self.lock = threading.Lock()
        self.kept: list[Any] = []
        self.slots: dict[int, Any] = {}
        self.again: dict[int, Any] = {}
        self.known: dict[Any, int] = {}
        self.table = np.zeros(1 + ENTRY * FIRST, np.int64)
        self.table[0] = FIRST
        self.kept.append(self.table)
        self.state[TABLE] = _at(self.table)
        forever(self)

    # -- what Python is asked for --

    def prepare(self, frame: Frame) -> None:
        """Find out how a call is done that was never seen, and put it into the table."""
        task = frame.task()
        operands, results = (
            [(b.shape, DTYPES[b.kind]) for b in buffers]
            for buffers in (frame.operands, frame.results)
        )
        steps = prepared(task, operands, results)
        program = (
            0
            if steps is None
            else self._program(steps, len(operands), len(results), _sizes(results))
        )
        self._insert(frame, program)

    def prepare_again(self, frame: Frame) -> None:
        """Find out how a call is done whose kernels met numbers that they do not serve."""
        program = self.known.get(self._key(frame), 0)
        make, count = self.again.pop(program, (None, (0, 0, ())))
        if not program:
            return
        steps = make() if make else None
        found = NOBODY if steps is None else self._program(steps, *count)
        self._publish(program + 8 * AGAIN, found)

    # -- programs --

    def _program(self, steps: Steps, operands: int, results: int, sizes: Any) -> int:
        """The address of the words of a program."""
        table = np.zeros(HEAD + STEP * len(steps.steps), np.int64)
        start = -(-steps.flags // LINE) * LINE
        places, end = [], start
        for size in steps.temporary:
            places.append(KINDS + end)
            end += -(-size // LINE) * LINE + LINE
        each = max(step.scratch for step in steps.steps)
        table[STEPS], table[FLAG_BYTES], table[TEMP_BYTES] = (
            len(steps.steps),
            steps.flags,
            end - steps.flags,
        )
        table[HUGE : HUGE + len(sizes)] = sizes
        table[SLOTS], table[EACH] = self._slots(each) if each else 0, each

        def code(place: Any) -> int:
            if isinstance(place, Temporary):
                return places[place.number]
            if isinstance(place, Number):
                return -1 - int(place)
            return KINDS if place == FLAGS else int(place)

        for number, step in enumerate(steps.steps):
            begin = HEAD + STEP * number
            table[begin : begin + 8] = (
                step.kernel,
                step.table,
                step.units,
                threads_for(step.units, step.cells),
                *map(code, step.places),
                code(step.flags),
            )
            if step.chain is not None:
                words, patches = step.chain
                list_ = np.array([(word, code(place)) for word, place in patches], np.int64)
                self.kept.append(list_)
                table[begin + CHAIN : begin + CHAIN + 3] = words, len(patches), _at(list_)
        self.kept.append((table, steps))
        program = _at(table)
        self.again[program] = steps.again, (operands, results, sizes)
        return program

    def _slots(self, each: int) -> int:
        """The address of slots of scratch memory of at least this size: how many, bytes of each, then for each whether it is taken, and where it is."""
        size = 1 << max(16, (each - 1).bit_length())
        with self.lock:
            if size not in self.slots:
                count = 2 * threads.get_num_threads() + 2
                memory = np.empty(count * (size + APART) + PAGE, np.uint8)
                first = -(-_at(memory) // PAGE) * PAGE
                table = np.zeros(2 + 2 * count, np.int64)
                table[:2] = count, size
                table[3::2] = first + np.arange(count) * (size + APART)
                self.slots[size] = table, memory
            return _at(self.slots[size][0])

    # -- the table --

    def _key(self, frame: Frame) -> Any:
        operands, results = frame.operands, frame.results
        arrays = tuple((b.kind, b.shape) for b in (*operands, *results))
        return frame.digest, frame.text, len(operands), arrays

    def _insert(self, frame: Frame, program: int) -> None:
        key = self._key(frame)
        with self.lock:
            if key in self.known:  # another thread was asked the same
                return
            digest, text, count, arrays = key
            bytes_ = np.frombuffer(text + b" ", np.uint8).copy()
            words = [count, len(arrays) - count, len(text), _at(bytes_)]
            for kind, shape in arrays:
                words += [kind, len(shape), *shape]
            signature = np.array(words, np.int64)
            self.kept.append((bytes_, signature))
            if 2 * (len(self.known) + 1) > self.table[0]:
                self._grow()
            self._put(self.table, (_hash(digest, arrays), _at(signature), program, 0))
            self.known[key] = program

    def _grow(self) -> None:
        """A table of twice the room; whoever reads the old one may go on."""
        old, count = self.table, 2 * int(self.table[0])
        new = np.zeros(1 + ENTRY * count, np.int64)
        new[0] = count
        for entry in old[1:].reshape(-1, ENTRY):
            if entry[0]:
                self._put(new, tuple(map(int, entry)))
        self.kept.append(new)
        self.table = new
        self._publish(_at(self.state) + 8 * TABLE, _at(new))

    def _put(self, table: Any, entry: tuple[int, ...]) -> None:
        """An entry into the first place that is free from where its hash says; the hash is written last."""
        count = int(table[0])
        place = entry[0] & (count - 1)
        while table[1 + place * ENTRY]:
            place = (place + 1) & (count - 1)
        begin = 1 + place * ENTRY
        table[begin + 1 : begin + ENTRY] = entry[1:]
        self._publish(_at(table) + 8 * begin, entry[0])

    @staticmethod
    def _publish(at: int, value: int) -> None:
        XLA.publish_kernel()(at, value, 0, 0, 0, 0, 0, 0)


def _sizes(results: Any) -> list[int]:
    """Bytes of the first two results, where they are large."""
    sizes = [prod(shape) * dtype.itemsize for shape, dtype in results[:2]]
    return [size if size >= LARGE else 0 for size in sizes]


MASK = (1 << 64) - 1


def _mix(h: int, value: int) -> int:
    h = ((h ^ value) * 0x100000001B3) & MASK
    signed = h - (1 << 64) if h >> 63 else h
    return (h ^ ((signed >> 29) & 0x7FFFFFFFF)) & MASK


def _hash(digest: int, arrays: Any) -> int:
    """The hash of a call, as the handler reckons it."""
    h = digest & MASK
    for kind, shape in arrays:
        h = _mix(h, kind * 64 + len(shape))
        for n in shape:
            h = _mix(h, n)
    h |= 1
    return h - (1 << 64) if h >> 63 else h
