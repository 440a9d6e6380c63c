"""No call touches memory that is not its own: every array and every block of working memory ends at a page that faults.

`LUNETTE_GUARD_DRAWS` and `LUNETTE_GUARD_SEED` give more draws, or others.
"""

import os
import subprocess
import sys

import pytest

from cases.guard import pages, watch

DRAWS = int(os.environ.get("LUNETTE_GUARD_DRAWS", "0"))
SEED = int(os.environ.get("LUNETTE_GUARD_SEED", "0"))

pytestmark = pytest.mark.skipif(
    not pages.SUPPORTED, reason="this system lets no page be protected, so nothing would be found"
)

BESIDE = """
import ctypes, sys
import numpy as np
from cases.guard import faults, pages

faults.report_faults()
with pages.guarded(sys.argv[1]):
    x = np.ones(7, np.float32)
    at = x.ctypes.data + int(sys.argv[2])
    if sys.argv[3] == "read":
        ctypes.c_uint8.from_address(at).value
    else:
        ctypes.c_uint8.from_address(at).value = 3
    if sys.argv[4] == "free":
        del x
    pages.check()
"""


def beside(*arguments):
    """What comes of touching a byte beside an array of 28."""
    command = [sys.executable, "-c", BESIDE, *map(str, arguments)]
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=600, cwd=watch.ROOT
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("side", "place", "verb", "words"),
    [
        ("end", 28, "read", "read 0 bytes past the end of a block of 28 bytes"),
        ("end", 91, "write", "written 63 bytes past the end of a block of 28 bytes"),
        ("start", -1, "read", "read 1 bytes before a block of 28 bytes"),
        ("start", -64, "write", "written 64 bytes before a block of 28 bytes"),
    ],
)
def test_a_fault_is_told_with_its_block_and_distance(side, place, verb, words):
    status, errors = beside(side, place, verb, "keep")
    assert status != 0
    if sys.platform.startswith("linux") and os.uname().machine == "x86_64":
        assert f"guard page: {words}" in errors


@pytest.mark.parametrize("then", ["keep", "free"])
@pytest.mark.parametrize(("side", "place"), [("end", -1), ("start", 28)])
def test_a_write_into_what_is_left_of_a_page_is_found(side, place, then):
    status, errors = beside(side, place, "write", then)
    assert status == 1 and "a write beside 1 blocks, the last of 28 bytes" in errors


def test_what_is_inside_is_no_finding():
    assert beside("end", 27, "write", "free") == (0, "")


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
