"""The processor that kernels are compiled for, and what it can do.

It is this one, or the one that NUMBA_CPU_NAME and NUMBA_CPU_FEATURES name, as Numba reads them. What a named one can do
follows from its name in LLVM alone, so LLVM is asked to compile a few lines for it, and the result is looked at.
"""

from __future__ import annotations

import os
import platform
import re
import sys
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import llvmlite.binding as llvm

from lunette.kernels.cpu.jit.settings import CONFIG, FILE

__all__ = ["Abilities", "abilities", "abilities_of", "is_arm", "name"]


class Abilities(NamedTuple):
    """Bytes of a vector register; whether a·b + c is one instruction; whether lanes are read and written under a mask."""

    vector_bytes: int
    fused: bool
    masks_words: bool  # lanes of 32 and 64 bits
    masks_halves: bool  # lanes of 8 and 16 bits


def _told() -> tuple[str | None, str | None]:
    """The processor's name and features that Numba is told, as its own configuration has them."""
    if CONFIG not in sys.modules and Path(FILE).exists():
        import_module(CONFIG)
    config = sys.modules.get(CONFIG)
    if config is not None:
        return config.CPU_NAME, config.CPU_FEATURES
    name, features = os.environ.get("NUMBA_CPU_NAME"), os.environ.get("NUMBA_CPU_FEATURES")
    if features is None and str(name).lower() == "generic":
        features = ""
    return name, features


def name() -> str:
    """LLVM's name of the processor."""
    return _told()[0] or str(llvm.get_host_cpu_name())


def is_arm() -> bool:
    """Whether it is an ARM of 64 bits."""
    return platform.machine().lower() in ("aarch64", "arm64")


@cache
def abilities() -> Abilities:
    """What the processor can do."""
    told, features = _told()
    if features is not None:
        return abilities_of(llvm.get_process_triple(), told or llvm.get_host_cpu_name(), features)
    if is_arm():  # every one has NEON; LLVM lists no features of Apple's
        return Abilities(16, True, False, False)
    has = llvm.get_host_cpu_features().get
    wide = has("avx512f")
    return Abilities(
        64 if wide else 32 if has("avx") else 16,
        bool(wide or has("fma")),
        bool(has("avx")),
        bool(has("avx512bw") and has("avx512vl")),
    )


TRIAL = """
target triple = "{triple}"
declare <8 x float> @llvm.fma.v8f32(<8 x float>, <8 x float>, <8 x float>)
declare void @llvm.masked.store.v8f32.p0(<8 x float>, ptr, i32, <8 x i1>)
declare void @llvm.masked.store.v8i16.p0(<8 x i16>, ptr, i32, <8 x i1>)
define void @lunette_wide(ptr %p) {{
    %a = load <16 x float>, ptr %p
    %b = fadd <16 x float> %a, %a
    store <16 x float> %b, ptr %p
    ret void
}}
define void @lunette_fused(ptr %p) {{
    %a = load <8 x float>, ptr %p
    %b = call <8 x float> @llvm.fma.v8f32(<8 x float> %a, <8 x float> %a, <8 x float> %a)
    store <8 x float> %b, ptr %p
    ret void
}}
define void @lunette_words(ptr %p, <8 x i1> %mask, <8 x float> %a) {{
    call void @llvm.masked.store.v8f32.p0(<8 x float> %a, ptr %p, i32 4, <8 x i1> %mask)
    ret void
}}
define void @lunette_halves(ptr %p, <8 x i1> %mask, <8 x i16> %a) {{
    call void @llvm.masked.store.v8i16.p0(<8 x i16> %a, ptr %p, i32 2, <8 x i1> %mask)
    ret void
}}
"""

CALLS = re.compile(r"^\s+(call\w*|bl|blr)\s", re.M)
JUMPS = re.compile(r"^\s+(j[a-z]+|tbn?z|cbn?z|b\.\w+)\s", re.M)
"""A product that is not fused is a call of the C library; a mask that is tested lane by lane has branches."""


def abilities_of(triple: str, processor: str, features: str) -> Abilities:
    """What a processor of a system can do, from what LLVM compiles for it."""
    _initialize()
    machine: Any = llvm.Target.from_triple(triple).create_target_machine(processor, features, 1)
    text = machine.emit_assembly(llvm.parse_assembly(TRIAL.format(triple=triple)))
    parts = re.split(r"^_?lunette_(\w+):", text, flags=re.M)
    made = dict(zip(parts[1::2], parts[2::2], strict=True))
    widths = {"zmm": 64, "ymm": 32}
    return Abilities(
        next((width for word, width in widths.items() if word in made["wide"]), 16),
        not CALLS.search(made["fused"]),
        not JUMPS.search(made["words"]),
        not JUMPS.search(made["halves"]),
    )


@cache
def _initialize() -> None:
    """Let LLVM write assembly for every processor that it was built for."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
