"""XLA's call of a handler, as Python reads it: places in memory, by the C interface that `jaxlib` ships as `xla/ffi/api/c_api.h`.

All but a few fields are words of eight bytes.
"""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from lunette.encoding import decode
from lunette.jax.verbs import Task

__all__ = ["DTYPES", "Frame", "failure"]

DTYPES = {
    1: np.dtype(np.bool_),
    2: np.dtype(np.int8),
    3: np.dtype(np.int16),
    4: np.dtype(np.int32),
    5: np.dtype(np.int64),
    6: np.dtype(np.uint8),
    7: np.dtype(np.uint16),
    8: np.dtype(np.uint32),
    9: np.dtype(np.uint64),
    10: np.dtype(np.float16),
    11: np.dtype(np.float32),
    12: np.dtype(np.float64),
    16: np.dtype(ml_dtypes.bfloat16),
}
"""XLA's number of a type → the type."""

EXTENSION, API, ARGUMENTS, ARGUMENT_ADDRESSES, RESULTS, RESULT_ADDRESSES, ATTRIBUTES = (
    1, 2, 7, 9, 12, 14, 20,
)  # fmt: skip
"""Words of a call: what extends it, XLA's functions, how many operands and where, results, and where attributes are."""

ERROR_CREATE = 6
"""The word of XLA's functions that makes an error."""

INTERNAL = 13
"""The code of an error that is nobody's fault but ours."""


class _ErrorArguments(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("extension", ctypes.c_void_p),
        ("message", ctypes.c_char_p),
        ("code", ctypes.c_int),
    ]


def _words(at: int, count: int) -> Any:
    return (ctypes.c_int64 * count).from_address(at)


class Buffer(NamedTuple):
    """An operand or a result: XLA's number of its type, its shape, and where its memory is."""

    kind: int
    shape: tuple[int, ...]
    at: int

    @classmethod
    def read(cls, address: int) -> Buffer:
        """The buffer that XLA describes at an address."""
        words = _words(address, 6)
        rank = words[4]
        return cls(words[2] & 0xFFFFFFFF, tuple(_words(words[5], rank) if rank else ()), words[3])

    @property
    def array(self) -> np.ndarray[Any, Any]:
        """Its memory as an array, for as long as the call lasts."""
        dtype, empty = DTYPES[self.kind], 0 in self.shape
        if empty or not self.at:
            return np.empty(self.shape, dtype)
        size = dtype.itemsize
        for n in self.shape:
            size *= n
        memory = (ctypes.c_uint8 * size).from_address(self.at)
        return np.frombuffer(memory, dtype).reshape(self.shape)


class Frame:
    """A call of the handler."""

    def __init__(self, at: int) -> None:
        self.words = _words(at, 21)

    @property
    def operands(self) -> list[Buffer]:
        """What is read."""
        words = self.words
        return self._buffers(words[ARGUMENTS], words[ARGUMENT_ADDRESSES])

    @property
    def results(self) -> list[Buffer]:
        """What is written."""
        words = self.words
        return self._buffers(words[RESULTS], words[RESULT_ADDRESSES])

    @staticmethod
    def _buffers(count: int, at: int) -> list[Buffer]:
        return [Buffer.read(address) for address in _words(at, count)]

    @property
    def text(self) -> bytes:
        """The task, as `write` wrote it: the second attribute, after its digest."""
        where, length = _words(_words(self.words[ATTRIBUTES], 2)[1], 2)
        return ctypes.string_at(where, length)

    @property
    def digest(self) -> int:
        """A number for the task; two tasks may have the same."""
        value: int = _words(_words(_words(self.words[ATTRIBUTES], 2)[0], 2)[1], 1)[0]
        return value

    def task(self) -> Task:
        """What is to be done; the shapes of results say the lengths of pooled axes."""
        verb, last, backend, op = self.text.decode().split(" ", 3)
        return Task(verb, decode(op), None, last == "last", backend.strip("-") or None)


def failure(at: int, message: str) -> int:
    """An error of XLA's, for its call at this address to return."""
    functions = _words(Frame(at).words[API], ERROR_CREATE + 1)
    create = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.POINTER(_ErrorArguments))
    arguments = _ErrorArguments(28, None, message.encode(), INTERNAL)
    error: int = create(functions[ERROR_CREATE])(ctypes.byref(arguments))
    return error
