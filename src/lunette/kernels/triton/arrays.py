"""What kernels are launched on: tensors of torch, or arrays that are only described, for programs that launch later.

The verbs do the same to both. On described arrays nothing runs: a launch is written down, with what it would have been given.
"""

from __future__ import annotations

import threading
from functools import cache
from importlib import import_module
from math import prod
from typing import Any, NamedTuple

import numpy as np

__all__ = [
    "DESCRIBED",
    "Described",
    "Launch",
    "as_type",
    "described",
    "launch",
    "launches_of",
    "name_of",
    "new",
    "seen_as",
    "table",
]

DESCRIBED = "described"
"""The device of arrays that are only described."""

SIZES = {"bool": 1, "uint8": 1, "int8": 1, "uint16": 2, "int16": 2, "float16": 2, "bfloat16": 2}
SIZES |= {"uint32": 4, "int32": 4, "float32": 4, "uint64": 8, "int64": 8, "float64": 8}
"""Name of a type → bytes of an element."""


class Described:
    """An array of a call that is only described: contiguous in memory, or with its channels last.

    `values` are those of a table. Views of an array have its `memory`, which is its own where nothing else is said.
    """

    device = DESCRIBED

    def __init__(
        self, shape: Any, dtype: str, values: Any = None, last: bool = False, memory: Any = None
    ) -> None:
        self.shape, self.dtype, self.values = tuple(shape), dtype, values
        self.last, self.memory = last, self if memory is None else memory

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def numel(self) -> int:
        return prod(self.shape)

    def element_size(self) -> int:
        return SIZES[self.dtype]

    def is_floating_point(self) -> bool:
        return "float" in self.dtype

    def is_contiguous(self) -> bool:
        return not self.last

    def contiguous(self) -> Described:
        assert not self.last
        return self

    def movedim(self, source: int, destination: int) -> Described:
        """Channels from where an op has them to where they lie, and back."""
        shape = list(self.shape)
        shape.insert(destination % self.ndim, shape.pop(source % self.ndim))
        return Described(shape, self.dtype, None, not self.last, self.memory)

    def reshape(self, shape: Any) -> Described:
        """The same cells in another shape: pooled axes of length one come and go."""
        if tuple(shape) == self.shape:
            return self
        assert prod(shape) == self.numel()
        return Described(shape, self.dtype, None, self.last, self.memory)

    def view(self, dtype: str) -> Described:
        """The same bytes as numbers of another type."""
        return Described(self.shape, dtype, self.values, self.last, self.memory)


class Launch(NamedTuple):
    """A kernel, its grid, and what it is given: described arrays and numbers in order, and constants by name."""

    kernel: Any
    grid: tuple[int, ...]
    arguments: tuple[Any, ...]
    constants: dict[str, Any]


class _Notes(threading.local):
    launches: list[Launch] | None = None
    devices: tuple[str, ...] = ()


_notes = _Notes()


def launches_of(
    verb: Any, *arguments: Any, devices: tuple[str, ...] = ()
) -> tuple[Any, list[Launch]]:
    """What a verb gives for described arrays, and what it would launch on GPUs of these names."""
    before = _notes.launches, _notes.devices
    _notes.launches, _notes.devices = [], devices
    try:
        return verb(*arguments), _notes.launches
    finally:
        _notes.launches, _notes.devices = before


def described() -> tuple[str, ...] | None:
    """The names of the GPUs for which launches are written down, or None where they are run."""
    return None if _notes.launches is None else _notes.devices


@cache
def _replay() -> Any:
    return import_module("lunette.kernels.triton.replay")


def launch(kernel: Any, grid: tuple[int, ...], *arguments: Any, **constants: Any) -> None:
    """`kernel[grid](*arguments, **constants)`, or a note of it."""
    if _notes.launches is None:
        _replay().launch(kernel, grid, *arguments, **constants)
    else:
        _notes.launches.append(Launch(kernel, grid, arguments, constants))


def new(shape: Any, dtype: Any, device: Any) -> Any:
    """Unset memory on the device, of a type or of the type of this name."""
    if device == DESCRIBED:
        return Described((shape,) if isinstance(shape, int) else shape, name_of(dtype))
    return _replay().new(shape, _of_torch(dtype), device)


def table(values: Any, device: Any) -> Any:
    """Numbers that kernels look up, on the device; the same for every call."""
    if device == DESCRIBED:
        numbers = np.asarray(values, np.int32)
        return Described(numbers.shape, "int32", numbers)
    return _replay().table(values, device)


def name_of(dtype: Any) -> str:
    """The name of a type, of torch's or a name already."""
    return str(dtype).removeprefix("torch.")


def as_type(x: Any, name: str) -> Any:
    """A tensor's numbers in another type. Whoever describes arrays does it before."""
    assert x.device != DESCRIBED
    return x.to(_of_torch(name))


def seen_as(x: Any, name: str) -> Any:
    """The same bytes as numbers of another type."""
    return x.view(name if isinstance(x, Described) else _of_torch(name))


def _of_torch(dtype: Any) -> Any:
    return getattr(import_module("torch"), dtype) if isinstance(dtype, str) else dtype
