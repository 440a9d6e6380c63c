"""No call touches memory that is not its own: every array and every block of working memory ends at a page that faults.

`LUNETTE_GUARD_DRAWS` and `LUNETTE_GUARD_SEED` give more draws, or others.
"""

import json
import os
import subprocess
import sys

import pytest

from cases.guard import pages, watch
from lunette.kernels.cpu.memory import scratchpad

DRAWS = int(os.environ.get("LUNETTE_GUARD_DRAWS", "0"))
SEED = int(os.environ.get("LUNETTE_GUARD_SEED", "0"))

pytestmark = pytest.mark.skipif(
    not pages.SUPPORTED, reason="this system lets no page be protected, so nothing would be found"
)

BESIDE = """
import ctypes, json, os, sys, tempfile
import numpy as np
from cases.guard import faults, pages

faults.report_faults()
with pages.guarded():
    np.ones(7)  # compiled once for all


def touch(side, place, verb, then):
    with pages.guarded(side):
        x = np.ones(7, np.float32)
        at = x.ctypes.data + place
        if verb == "read":
            ctypes.c_uint8.from_address(at).value
        else:
            ctypes.c_uint8.from_address(at).value = 3
        if then == "free":
            del x
        pages.check()


found = []
for case in json.loads(sys.argv[1]):
    with tempfile.TemporaryFile("w+") as errors:
        child = os.fork()
        if child == 0:
            os.dup2(errors.fileno(), 2)
            try:
                touch(*case)
                os._exit(0)
            except AssertionError as error:
                os.write(2, str(error).encode())
                os._exit(1)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        errors.seek(0)
        found.append((status, errors.read()))
print(json.dumps(found))
"""

FAULTS = {
    ("end", 28, "read", "keep"): "read 0 bytes past the end of a block of 28 bytes",
    ("end", 91, "write", "keep"): "written 63 bytes past the end of a block of 28 bytes",
    ("start", -1, "read", "keep"): "read 1 bytes before a block of 28 bytes",
    ("start", -64, "write", "keep"): "written 64 bytes before a block of 28 bytes",
}
"""What is touched beside an array of 28 bytes, and what is said of it."""

TRACES = [(*place, "write", then) for place in (("end", -1), ("start", 28)) for then in ("keep", "free")]  # fmt: skip
INSIDE = [("end", 27, "write", "free"), ("start", 0, "read", "keep")]


@pytest.fixture(scope="module")
def touched():
    """What came of each touch: a status, and the words of its process."""
    cases = [*FAULTS, *TRACES, *INSIDE]
    done = subprocess.run(
        [sys.executable, "-c", BESIDE, json.dumps(cases)],
        check=True,
        capture_output=True,
        text=True,
        timeout=600,
        cwd=watch.ROOT,
    )
    return dict(zip(cases, json.loads(done.stdout), strict=True))


@pytest.mark.parametrize("touch", FAULTS)
def test_a_fault_is_told_with_its_block_and_distance(touched, touch):
    status, errors = touched[touch]
    assert status != 0
    if sys.platform.startswith("linux") and os.uname().machine == "x86_64":
        assert f"guard page: {FAULTS[touch]}\n" in errors


@pytest.mark.parametrize("touch", TRACES)
def test_a_write_into_what_is_left_of_a_page_is_found(touched, touch):
    assert touched[touch] == [1, "a write beside 1 blocks, the last of 28 bytes"]


@pytest.mark.parametrize("touch", INSIDE)
def test_what_is_inside_is_no_finding(touched, touch):
    assert touched[touch] == [0, ""]


def test_calls_that_once_left_their_memory():
    found = watch.directed()
    assert not found.findings and found.calls > 100


@pytest.mark.parametrize("seed", [SEED, SEED + 1])
def test_draws_of_pooling(seed):
    """Some nine calls each."""
    draws = DRAWS or 60
    found = watch.sweep(seed, draws, ("float32",), share=0.0)
    assert not found.findings and found.calls > 6 * draws


@pytest.mark.full
@pytest.mark.parametrize("seed", range(SEED + 2, SEED + 16))
def test_a_hundred_thousand_calls(seed):
    """Of every dtype, convolutions among them."""
    draws = DRAWS or 1000
    found = watch.sweep(seed, draws)
    assert not found.findings and found.calls > 7 * draws


def test_a_block_of_a_call_stays_while_another_call_is_prepared(monkeypatch):
    """Two callers may ask the memory of one helper for room, and only then one of them has the helper."""
    monkeypatch.setattr(scratchpad, "_exact", False)
    monkeypatch.setattr(scratchpad, "_exact_blocks", [])
    scratchpad.be_exact()
    scratch = scratchpad.Scratchpad().scratch
    addresses = [scratch(64), scratch(128)]
    kept = scratchpad._exact_blocks
    assert [block.__array_interface__["data"][0] for block in kept] == addresses
    assert [block.size for block in kept] == [64, 128]
    scratchpad.be_exact()
    assert not kept
