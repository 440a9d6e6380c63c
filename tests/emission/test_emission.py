"""Kernels emitted for systems that this is not: they ask nothing of them that they lack."""

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

import lunette as ln
from lunette.warmup import Call, typical_calls
from tests.emission.symbols import undefined

ROOT = Path(__file__).parents[2]

SYSTEMS = {
    ("x86_64-apple-darwin23.0.0", "haswell"): {"memset_pattern16", "__bzero"},
    ("arm64-apple-darwin23.0.0", "apple-m1"): {"memset_pattern16", "bzero"},
    ("x86_64-pc-windows-msvc", "haswell"): {"__chkstk", "_fltused"},
}
"""What each system has besides what all have: macOS in libSystem; Windows in ntdll, and `_fltused` in LLVM's own list."""

EVERYWHERE = {"memset", "memcpy", "memmove"}

IMAGE = ((2, 3, 20, 24),)
MAX = Call(ln.MaxPool((3, 3), stride=2, padding=1), IMAGE, "<f4", "forward")
INTEGERS = [
    Call(op, IMAGE, dtype, "forward")
    for op in (ln.MaxPool((2, 2)), ln.MaxPool((9, 9)), ln.AvgPool((3, 3), stride=1))
    for dtype in ("|u1", "<i8", "|b1")
]


def run(module, *arguments, given):
    """A module of this folder in a process of its own, on what it is given; what it prints."""
    done = subprocess.run(
        [sys.executable, "-m", f"tests.emission.{module}", *arguments],
        input=given,
        capture_output=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    return json.loads(done.stdout)


def check(calls, triple, cpu, most=None):
    names = run("names", given=pickle.dumps(calls))[:most]
    found = run("elsewhere", triple, cpu, given=json.dumps(names).encode())
    assert len(found) == len(names) > 0
    lacking = {name: set(s) - EVERYWHERE - SYSTEMS[triple, cpu] for name, s in found.items()}
    assert not {name: s for name, s in lacking.items() if s}


def test_a_max_on_macos():
    """LLVM makes `memset_pattern16` of its loops that fill memory."""
    check([MAX], *next(iter(SYSTEMS)), most=1)


@pytest.mark.full
@pytest.mark.parametrize("triple, cpu", SYSTEMS)
def test_kernels_of_common_networks_elsewhere(triple, cpu):
    dtypes, verbs = ["<f4", "<f2", "<f8"], ["forward", "jvp", "vjp"]
    check([MAX, *typical_calls(dtypes, verbs), *INTEGERS], triple, cpu)


SOURCE = """
target triple = "{triple}"
declare double @elsewhere(double)
declare double @llvm.sin.f64(double)
define double @here(double %x) {{
    %y = call double @elsewhere(double %x)
    %z = call double @llvm.sin.f64(double %y)
    ret double %z
}}
"""


@pytest.mark.parametrize("triple", [*(t for t, _ in SYSTEMS), "x86_64-unknown-linux-gnu"])
def test_undefined_symbols_are_found(triple):
    """What a module declares, and what LLVM makes of an intrinsic when it emits it."""
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple(triple).create_target_machine()
    code = machine.emit_object(llvm.parse_assembly(SOURCE.format(triple=triple)))
    assert undefined(code) - {"_fltused", "_GLOBAL_OFFSET_TABLE_"} == {"elsewhere", "sin"}
