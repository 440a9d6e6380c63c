"""What a processor can do: by its name in LLVM, and as Numba is told of it."""

import os
import subprocess
import sys
from pathlib import Path

import llvmlite.binding as llvm
import pytest

from lunette.kernels.cpu.jit.processor import Abilities, abilities, abilities_of

ROOT = Path(__file__).parents[1]
X86, ARM = "x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"


@pytest.mark.parametrize(
    "triple, processor, expected",
    [
        (X86, "x86-64", Abilities(16, False, False, False)),
        (X86, "x86-64-v2", Abilities(16, False, False, False)),
        (X86, "ivybridge", Abilities(32, False, True, False)),
        (X86, "haswell", Abilities(32, True, True, False)),
        (X86, "znver3", Abilities(32, True, True, False)),
        (X86, "skylake-avx512", Abilities(64, True, True, True)),
        (X86, "znver4", Abilities(64, True, True, True)),
        (ARM, "generic", Abilities(16, True, False, False)),
        (ARM, "neoverse-n1", Abilities(16, True, False, False)),
        ("arm64-apple-darwin23.0.0", "apple-m1", Abilities(16, True, False, False)),
    ],
)
def test_what_a_named_processor_can_do(triple, processor, expected):
    assert abilities_of(triple, processor, "") == expected


def test_a_feature_can_be_taken_away():
    assert not abilities_of(X86, "haswell", "-fma").fused
    assert abilities_of(X86, "x86-64-v2", "+avx,+fma").fused


def test_this_processor_by_its_features_and_by_what_is_compiled_for_it():
    name, features = llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()
    assert abilities() == abilities_of(llvm.get_process_triple(), name, features)


X86_HERE = pytest.mark.skipif(
    not llvm.get_process_triple().startswith("x86_64"), reason="names x86 processors"
)


def run(*arguments, told):
    """Python with kernels compiled for a processor of a name; what it prints."""
    done = subprocess.run(
        [sys.executable, *arguments],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
            "NUMBA_CPU_NAME": told,
            "NUMBA_CPU_FEATURES": "",
        },
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-2000:]
    return done.stdout


@X86_HERE
@pytest.mark.parametrize("told", ["haswell", "x86-64-v2"])
def test_kernels_compiled_for_less_agree(told):
    """AVX2 without masks of short lanes; SSE4.2 without any mask and without fused multiply-adds."""
    run("tests/arm/smoke.py", "--here", "--brief", told=told)


@X86_HERE
@pytest.mark.full
@pytest.mark.parametrize("told", ["haswell", "ivybridge", "x86-64-v2", "x86-64"])
def test_every_family_of_kernels_compiled_for_less_agrees(told):
    assert "agreed" in run("tests/arm/smoke.py", "--here", told=told)


@X86_HERE
@pytest.mark.full
@pytest.mark.parametrize("told", ["haswell", "x86-64-v2"])
@pytest.mark.parametrize("more", [["--count", "400"], ["--count", "400", "--small-sizes"]], ids=str)
def test_kernels_compiled_for_less_stay_within_guard_pages(told, more):
    lines = run("-m", "cases.guard", "--seed", "31", *more, told=told).splitlines()
    assert len(lines) == 800
    assert not [line for line in lines if not line.startswith(("begin", "end"))]


@X86_HERE
@pytest.mark.parametrize("loaded_first", [False, True])
def test_numba_is_told_of_another(loaded_first):
    code = (
        "import numba;" * loaded_first
        + "from lunette.kernels.cpu.jit.processor import abilities, name; print(name(), *abilities())"
    )
    assert run("-c", code, told="nehalem").split() == ["nehalem", "16", "False", "False", "False"]
