"""Memory is asked for ahead in one way on some processors and in another on others: results do not depend on it."""

import hashlib
import os
import subprocess
import sys

import pytest

import lunette as ln
from cases import values
from lunette.kernels.cpu.jit import processor as running_on
from lunette.kernels.cpu.simd import prefetch

SCRIPT = """
from lunette.kernels.cpu.simd import prefetch
from lunette.kernels.cpu.micro import reduce_rows
way = prefetch.policy_of({processor!r})
(prefetch.PAGE_INTERLEAVED, prefetch.EVERY_ACCESS, prefetch.DISTANCE, prefetch.ROWS_DISTANCE,
 prefetch.NEAR) = way
reduce_rows.PAGE_INTERLEAVED, reduce_rows.EVERY_ACCESS = way.by_blocks, way.always
from tests.agreement.test_asking import digest
print(digest())
"""

PROCESSORS = ("znver4", "znver5", "sapphirerapids")
"""One for each way to ask."""


def digest():
    """The bits of ops whose kernels ask: for planes, for rows with much to do, for windows side by side."""
    found = hashlib.sha256()
    for op, shape in (
        (ln.MaxPool((3, 3, 3), 2, 1), (2, 3, 9, 30, 40)),
        (ln.MaxPool((5, 5), 2), (2, 3, 60, 70)),
        (ln.AdaptiveMaxPool((3, 4)), (2, 3, 40, 90)),
    ):
        for kind in ("random", "nans"):
            found.update(op(values.filled(kind, shape, "float32")).tobytes())
    return found.hexdigest()


HERE = prefetch.policy_of(running_on.name())


@pytest.mark.parametrize("processor", [p for p in PROCESSORS if prefetch.policy_of(p) != HERE])
def test_any_way_to_ask_for_memory_gives_the_same_bits(processor, tmp_path):
    script = SCRIPT.format(processor=processor)
    there = {
        **os.environ,
        "NUMBA_CACHE_DIR": str(tmp_path),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    other = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=there, check=False
    )
    assert other.returncode == 0, other.stderr
    assert other.stdout.strip() == digest()


def test_the_processors_are_asked_in_different_ways():
    assert len({prefetch.policy_of(processor) for processor in PROCESSORS}) == len(PROCESSORS)
