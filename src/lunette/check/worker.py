"""The process that runs a target's programs: `python -m lunette.check.worker TARGET MEMORY`.

Frames of pickled data come in on standard input and go out on what was standard output; what the
target itself prints goes to standard error. A call that ends the process ends no more than that.
"""

from __future__ import annotations

import gc
import os
import pickle
import struct
import sys
import warnings
from typing import IO, Any

import numpy as np

from lunette.check.calls import Call, NotOffered
from lunette.platform import no_core_dumps, set_address_space_left

__all__ = ["read_frame", "write_frame"]

SETUPS = 64
"""How many setups are kept: a compiled model or session may serve the next call too."""


def write_frame(stream: IO[bytes], data: Any) -> None:
    """Send one pickled object."""
    payload = pickle.dumps(data, protocol=5)
    stream.write(struct.pack("<Q", len(payload)) + payload)
    stream.flush()


def read_frame(stream: IO[bytes]) -> Any:
    """Receive one pickled object; EOFError at the end of the stream."""
    header = stream.read(8)
    if len(header) < 8:
        raise EOFError
    return pickle.loads(stream.read(struct.unpack("<Q", header)[0]))


def main(name: str, memory: int) -> None:
    """Serve programs until the end of input."""
    source, sink = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    no_core_dumps()
    warnings.simplefilter("ignore")
    from lunette.check.targets import find_target

    target = find_target(name)
    target.warm()
    set_address_space_left(memory)
    write_frame(sink, ("ready", target.versions()))
    spaces: dict[str, dict[str, Any]] = {}
    while True:
        try:
            jobs = read_frame(source)
        except EOFError:
            return
        for number, call, program in jobs:
            write_frame(sink, (number, *_run(target, spaces, call, program)))
        _shake()
        write_frame(sink, ("done",))


def _run(target: Any, spaces: dict[str, Any], call: Call, program: Any) -> tuple[str, Any]:
    try:
        if program.setup not in spaces:
            target.prepare()
            if len(spaces) >= SETUPS:
                spaces.clear()
            space: dict[str, Any] = {}
            exec(compile(program.setup, "<setup>", "exec"), space)
            spaces[program.setup] = space
        bound = {}
        for name, a in call.arrays().items():
            main_operand = name in ("x", "values")
            bound[name] = target.bind(name, a, call.layout if main_operand else "contiguous")
        space = {**spaces[program.setup], **bound}
        if "call" in program.body:
            space["call"] = call.with_arrays(bound)
        exec(compile(program.body, "<call>", "exec"), space)
        return "ok", target.unbind(space[program.result])
    except NotOffered as reason:
        return "unsupported", str(reason)
    except MemoryError as error:
        return "error", f"MemoryError: {error}"
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        plain = isinstance(error, NotImplementedError) and not call.bad
        if plain or any(words in text for words in target.unsupported):
            return "unsupported", text
        return "error", text


def _shake() -> None:
    """Use the heap a little, so that a block overrun by a call above shows itself here."""
    blocks = [np.empty(size, np.uint8) for size in range(1, 4000, 37) for _ in range(2)]
    del blocks[::3]
    blocks += [np.empty(size * 3, np.uint8) for size in range(1, 2000, 61)]
    del blocks
    gc.collect(0)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
