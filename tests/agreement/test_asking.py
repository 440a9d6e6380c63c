"""Memory is asked for ahead in one way on some processors and in another on others: results do not depend on it."""

import hashlib
import os
import subprocess
import sys

import lunette as ln
from cases import values
from lunette.kernels.cpu.vectors import asking

SCRIPT = """
from lunette.kernels.cpu.vectors import asking
from lunette.kernels.cpu.maxima import bands
asking.BY_BLOCKS = bands.BY_BLOCKS = {by_blocks}
from tests.agreement.test_asking import digest
print(digest())
"""


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


def test_either_way_to_ask_for_memory_gives_the_same_bits(tmp_path):
    script = SCRIPT.format(by_blocks=not asking.BY_BLOCKS)
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
