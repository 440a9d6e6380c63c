"""Described launches compiled ahead: machine-independent code for a GPU that need not be here, and what a launcher gives it.

A launcher of another library gives a kernel its arrays first, what is read before what is written. Kernels name their parameters, so
these are put into that order in the code's head, and those that no instruction reads are left out.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from lunette.kernels.triton.arrays import Described, Launch

__all__ = ["Compiled", "compiled"]

NAMES = {"bool": "u8", "uint8": "u8", "uint16": "u16", "uint32": "u32", "uint64": "u64"}
NAMES |= {"int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64"}
NAMES |= {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32", "float64": "fp64"}
"""Name of a type → Triton's."""

WARP = 32

DIVISIBLE = 16
"""What Triton relies on where an address or a number is a multiple of it."""


class Compiled(NamedTuple):
    """A kernel for one launch: arrays that it reads, arrays that it writes, then numbers with Triton's names of their types."""

    name: str
    text: str
    grid: tuple[int, ...]
    warps: int
    shared: int
    reads: tuple[Described, ...]
    writes: tuple[Described, ...]
    numbers: tuple[tuple[Any, str], ...]


def compiled(launch: Launch, written: Any, capability: int) -> Compiled:
    """The kernel of a launch for GPUs of a compute capability, as 90; `written` says whether memory was filled before."""
    kernel, grid, arguments, given = launch
    constants = dict(given)
    options = {"num_warps": constants.pop("num_warps")}
    signature: dict[str, str] = {}
    known: dict[tuple[int, ...], Any] = {}
    attributes: dict[tuple[int, ...], Any] = {}
    passed: list[tuple[Any, str]] = []
    values = (*arguments, *(constants[name] for name in kernel.arg_names[len(arguments) :]))
    for place, (parameter, value) in enumerate(zip(kernel.params, values, strict=True)):
        special = not parameter.do_not_specialize
        kind = "constexpr" if parameter.is_constexpr else _kind(value, special)
        signature[parameter.name] = kind
        if kind == "constexpr":
            known[place,] = value
            continue
        passed.append((value, kind))
        whole = isinstance(value, int) and value % DIVISIBLE == 0
        if special and (whole or isinstance(value, Described)):
            attributes[place,] = [["tt.divisibility", DIVISIBLE]]
    source = ASTSource(kernel, signature, known, attributes)
    made = triton.compile(source, target=GPUTarget("cuda", capability, WARP), options=options)
    about = made.metadata
    if any(getattr(about, f"{kind}_scratch_size", 0) for kind in ("global", "profile")):
        raise NotImplementedError(f"{about.name} wants memory of its own, which no launcher gives")
    text = _without_places(made.asm["ptx"])
    names, used = _parameters(text, about.name)
    read: list[tuple[Any, str]] = []
    write: list[tuple[Any, str]] = []
    numbers: list[tuple[Any, str, str]] = []
    for name, (value, kind) in zip(names, passed, strict=False):
        if name not in used:
            continue
        if not isinstance(value, Described):
            numbers.append((value, kind, name))
        elif value.values is not None or written(value.memory):
            read.append((value, name))
        else:
            write.append((value, name))
    assert len({id(v.memory) for v, _ in write}) == len(write)
    order = [name for _, name in (*read, *write)] + [name for *_, name in numbers]
    return Compiled(
        about.name,
        _in_order(text, about.name, order),
        (*grid, 1, 1)[:3],
        about.num_warps,
        about.shared,
        tuple(v for v, _ in read),
        tuple(v for v, _ in write),
        tuple((v, kind) for v, kind, _ in numbers),
    )


def _kind(value: Any, special: bool) -> str:
    """Triton's name of what a launch passes; ones are constants where kernels are made for special values."""
    if isinstance(value, Described):
        return f"*{NAMES[value.dtype]}"
    if isinstance(value, float):
        return "fp32"
    if special and value == 1:
        return "constexpr"
    if -(1 << 31) <= value < 1 << 31:
        return "i32"
    return "i64" if value < 1 << 63 else "u64"


def _without_places(text: str) -> str:
    """The code without what debuggers read of it: where its source lay, which no two machines agree on."""
    text = re.sub(r"\t\.section\t\.debug_\w+\s*\{.*?\}", "", text, flags=re.DOTALL)
    return re.sub(r"^\s*\.(?:loc|file)\b.*\n", "", text, flags=re.MULTILINE)


def _head(text: str, name: str) -> re.Match[str]:
    found = re.search(rf"\.entry {re.escape(name)}\((.*?)\)", text, re.DOTALL)
    assert found is not None, f"{name}: no entry"
    return found


def _declared(text: str, name: str) -> dict[str, str]:
    """Name of each parameter → its declaration."""
    lines = [line.strip() for line in _head(text, name)[1].split(",")]
    return {line.split()[-1]: line for line in lines}


def _parameters(text: str, name: str) -> tuple[list[str], set[str]]:
    """The parameters of a kernel in order, and those that an instruction reads."""
    body = text[_head(text, name).end() :]
    return list(_declared(text, name)), set(re.findall(r"\[(\w+_param_\d+)\]", body))


def _in_order(text: str, name: str, order: list[str]) -> str:
    """The code with these parameters alone, in this order."""
    declared, head = _declared(text, name), _head(text, name)
    lines = ",\n\t".join(declared[parameter] for parameter in order)
    return f"{text[: head.start(1)]}\n\t{lines}\n{text[head.end(1) :]}"
