"""Whatever the arguments are, a call ends soon, in bounded memory, with an answer or an error that names its argument."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import lunette as ln
from tests import drawn_arguments

BRIEF = int(os.environ.get("LUNETTE_DRAWN_CALLS", "700"))


def drawn(seed, count):
    """What a process of its own finds, under a limit of address space."""
    finished = subprocess.run(
        [sys.executable, drawn_arguments.__file__, "--seed", str(seed), "--count", str(count)],
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
        cwd=Path(drawn_arguments.__file__).parent,
    )
    assert finished.returncode == 0, finished.stderr[-2000:]
    return json.loads(finished.stdout)


@pytest.mark.parametrize("seed", [1, 2])
def test_drawn_calls(seed):
    found = drawn(seed, BRIEF)
    assert not found["wrong"]
    assert min(found["answered"], found["refused"]) > BRIEF // 5  # the draws try both


@pytest.mark.full
@pytest.mark.parametrize("seed", range(100, 108))
def test_24000_drawn_calls(seed):
    assert not drawn(seed, 3000)["wrong"]


def test_every_public_name_is_drawn():
    """But those that take no argument, or another kind: the tape, modules, the verbs of an op, errors."""
    others = {"Global", "Op", "SlowPathWarning", "Tape", "get_num_threads", "backend_for"}
    others |= {"forward", "jvp", "vjp", "spec", "tape", "torchlean"}
    others |= {"Box", "Deployment", "bounds", "onnx"}  # see tests/bounds and tests/onnx
    others |= {"pyramid"}  # see tests/scale
    others |= {"check", "explain", "offsets", "testing", "warm"}  # see their tests
    assert set(ln.__all__) - others <= set(drawn_arguments.EVERY)
