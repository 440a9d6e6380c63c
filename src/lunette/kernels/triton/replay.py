"""Calls recorded once and replayed: the launches of a verb with their arguments already in order.

Triton's own launch looks at every argument anew, finds the compiled kernel by the text of what it saw, and takes
several times as long as handing the kernel to the driver. What a verb launches depends on the op, and on shapes,
strides and dtypes alone. So its first call records which kernels it launched, on which of its tensors, and which
tensors it allocated; a replay allocates the same, and launches the compiled kernels directly.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple

import torch
import triton

__all__ = ["Replay", "aligned", "launch", "new", "paused", "record", "table"]

Tensor = Any
ALIGNED = 16
"""Bytes. Triton compiles a kernel for pointers that are multiples of it, and another for any pointer."""


TABLE = "_lunette_table"
"""The attribute of a tensor that is the same for every call."""


def table(values: Any, device: Any) -> Tensor:
    """Numbers that kernels look up, on the device; the same for every call."""
    tensor = torch.tensor(values, dtype=torch.int32, device=device)
    setattr(tensor, TABLE, True)
    return tensor


class _Launch(NamedTuple):
    """A compiled kernel, its grid, and its arguments in the order of its signature."""

    compiled: Any
    grid: tuple[int, ...]
    arguments: tuple[Any, ...]


class _Recorder:
    def __init__(self) -> None:
        self.launches: list[_Launch] = []
        self.allocated: list[Tensor] = []
        self.complete = True


class _State(threading.local):
    recorder: _Recorder | None = None


_state = _State()


def launch(kernel: Any, grid: tuple[int, ...], *arguments: Any, **constants: Any) -> None:
    """`kernel[grid](*arguments, **constants)`, noted where a call is recorded."""
    compiled = kernel[grid](*arguments, **constants)
    if _state.recorder is not None:
        _state.recorder.launches.append(
            _Launch(compiled, grid, _in_order(kernel, arguments, constants))
        )


def _in_order(
    kernel: Any, arguments: tuple[Any, ...], constants: dict[str, Any]
) -> tuple[Any, ...]:
    names = kernel.arg_names
    return (*arguments, *(constants[name] for name in names[len(arguments) :]))


def new(shape: Any, dtype: Any, device: Any) -> Tensor:
    """Unset memory on the device, noted where a call is recorded."""
    tensor = torch.empty(shape, dtype=dtype, device=device)
    if _state.recorder is not None:
        _state.recorder.allocated.append(tensor)
    return tensor


class paused:
    """What happens inside is not recorded; `final=False` says that a later call may choose otherwise."""

    def __init__(self, final: bool = True) -> None:
        self.final = final

    def __enter__(self) -> None:
        self.recorder, _state.recorder = _state.recorder, None
        if self.recorder is not None and not self.final:
            self.recorder.complete = False

    def __exit__(self, *_: object) -> None:
        _state.recorder = self.recorder


def record(verb: Callable[..., Any], *inputs: Tensor) -> tuple[Any, Replay | None]:
    """What `verb` gives for tensors, and a replay of it; None where it does more than launch."""
    recorder = _state.recorder = _Recorder()
    try:
        results = verb(*inputs)
    finally:
        _state.recorder = None
    return results, Replay.of(recorder, inputs, results)


class Replay:
    """A recorded call: takes tensors of the same shapes, strides, dtypes and device, gives what the verb would give."""

    __slots__ = ("_blocks", "_device", "_launches", "_one", "_results")

    def __init__(self, device: int, blocks: Any, launches: Any, results: Any, one: bool) -> None:
        self._device, self._blocks, self._launches = device, blocks, launches
        self._results, self._one = results, one

    @staticmethod
    def of(recorder: _Recorder, inputs: tuple[Tensor, ...], results: Any) -> Replay | None:
        """The replay of what was recorded; None where it holds tensors that nobody would make again."""
        one = not isinstance(results, tuple)
        given = (results,) if one else results
        if not recorder.complete or not recorder.launches or not replays():
            return None
        if len({t.data_ptr() for t in inputs}) < len(inputs):
            return None  # which of the two a launch read cannot be told apart
        blocks = [(tuple(t.shape), t.stride(), t.dtype) for t in recorder.allocated]
        places = {t.data_ptr(): ("block", i) for i, t in enumerate(recorder.allocated)}
        places |= {t.data_ptr(): ("input", i) for i, t in enumerate(inputs)}
        found = []
        for result in given:  # a view of a block: the block is allocated in the view's shape
            kind, place = places.get(result.data_ptr(), ("", 0))
            if kind != "block" or prod(result.shape) != prod(blocks[place][0]):
                return None
            blocks[place] = (tuple(result.shape), result.stride(), result.dtype)
            found.append(place)
        tensors = [a for entry in recorder.launches for a in entry.arguments if _is_tensor(a)]
        if not aligned((*inputs, *recorder.allocated, *tensors)):
            return None
        if not all(t.data_ptr() in places or hasattr(t, TABLE) for t in tensors):
            return None  # a copy that the verb made, say: nobody would make it again
        launches = [_prepared(entry, places) for entry in recorder.launches]
        made = _Single if (len(inputs), len(blocks), len(launches)) == (1, 1, 1) else Replay
        return made(inputs[0].device.index, tuple(blocks), tuple(launches), tuple(found), one)

    def __call__(self, *inputs: Tensor) -> Any:
        """The results; None where the tensors are not aligned, or not on the current device."""
        addresses = [tensor.data_ptr() for tensor in inputs]
        for address in addresses:
            if address & (ALIGNED - 1):
                return None
        if SEVERAL_DEVICES and not _is_current(inputs[0]):
            return None
        blocks = [allocate(*block) for block in self._blocks]
        stream = raw_stream(self._device)
        for run, head, tail, pointers, constants, from_inputs, from_blocks, _ in self._launches:
            arguments = pointers.copy()
            for at, i in from_inputs:
                arguments[at] = addresses[i]
            for at, i in from_blocks:
                arguments[at] = blocks[i].data_ptr()
            run(*head, stream, *tail, *arguments, *constants)
        if self._one:
            return blocks[self._results[0]]
        return tuple([blocks[i] for i in self._results])


class _Single(Replay):
    """One tensor, one launch, one result: what most calls are, without a loop."""

    __slots__ = ("_arguments", "_block", "_head", "_in", "_out", "_rest", "_run", "_tail")

    def __init__(self, device: int, blocks: Any, launches: Any, results: Any, one: bool) -> None:
        super().__init__(device, blocks, launches, results, one)
        ((self._run, self._head, self._tail, self._arguments, self._rest, inside, out, _),) = (
            launches
        )
        self._in, self._out = [at for at, _ in inside], [at for at, _ in out]
        (self._block,) = blocks

    def __call__(self, *inputs: Tensor) -> Any:
        (x,) = inputs
        address = x.data_ptr()
        if address & (ALIGNED - 1) or (SEVERAL_DEVICES and not _is_current(x)):
            return None
        y = allocate(*self._block)
        arguments = self._arguments.copy()
        for at in self._in:
            arguments[at] = address
        address = y.data_ptr()
        for at in self._out:
            arguments[at] = address
        self._run(*self._head, raw_stream(self._device), *self._tail, *arguments, *self._rest)
        return y


def _is_current(x: Tensor) -> bool:
    """Whether x lies on the current device, where launches go."""
    return bool(x.get_device() == torch.cuda.current_device())


def _prepared(entry: _Launch, places: dict[int, tuple[str, int]]) -> tuple[Any, ...]:
    """How to run a launch: the driver's function, what stands before and after the stream, and the arguments."""
    template: list[Any] = []
    tables: list[Tensor] = []  # kept alive with the launch
    slots: dict[str, list[tuple[int, int]]] = {"input": [], "block": []}
    for at, argument in enumerate(entry.arguments):
        kind, place = places.get(argument.data_ptr(), ("", 0)) if _is_tensor(argument) else ("", 0)
        if kind:
            slots[kind].append((at, place))
        template.append(argument.data_ptr() if _is_tensor(argument) else argument)
        if _is_tensor(argument) and not kind:
            tables.append(argument)
    grid = (*entry.grid, 1, 1)[:3]
    run, compiled = entry.compiled.run, entry.compiled
    tail: tuple[Any, ...] = (compiled.function, compiled.packed_metadata, None, None, None)
    if _skips_wrapper(run):
        cooperative, overlapped = run.launch_cooperative_grid, run.launch_pdl
        tail = (compiled.function, cooperative, overlapped, None, None, *tail[1:])
        run = run.launch
    last = 1 + max(
        at for kind in slots.values() for at, _ in kind
    )  # what comes after never changes
    places_ = tuple(slots["input"]), tuple(slots["block"])
    return run, grid, tail, template[:last], tuple(template[last:]), *places_, tables


def _skips_wrapper(run: Any) -> bool:
    """Whether the launcher's wrapper only adds what is known here: no scratch memory, in a version whose order we know."""
    version = tuple(int(part) for part in triton.__version__.split(".")[:2])
    sizes = [getattr(run, name, None) for name in ("global_scratch_size", "profile_scratch_size")]
    return version == (3, 6) and sizes == [0, 0] and hasattr(run, "launch_pdl")


def aligned(tensors: tuple[Tensor, ...]) -> bool:
    """Whether every tensor begins where recorded kernels may read."""
    return all(tensor.data_ptr() % ALIGNED == 0 for tensor in tensors)


def _is_tensor(argument: Any) -> bool:
    return isinstance(argument, torch.Tensor)


def replays() -> bool:
    """Whether calls can be replayed here: kernels are compiled, and nobody listens to launches."""
    knobs = triton.knobs.runtime
    return not knobs.interpret and not _listened_to(knobs)


def _listened_to(knobs: Any) -> bool:
    hooks = (knobs.launch_enter_hook, knobs.launch_exit_hook)
    return any(getattr(hook, "calls", hook) for hook in hooks)


def _allocate(shape: Any, stride: Any, dtype: Any) -> Tensor:
    return torch.empty_strided(shape, stride, dtype=dtype, device="cuda")


allocate: Any = getattr(torch._C._dynamo.guards, "_empty_strided_cuda", _allocate)
"""Memory on the current device; torch.compile's own way in costs a third of the public one."""

SEVERAL_DEVICES = torch.cuda.device_count() > 1

raw_stream: Any = getattr(torch._C, "_cuda_getCurrentRawStream", None)
