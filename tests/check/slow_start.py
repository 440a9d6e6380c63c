"""An adapter whose worker does not get past its import: it sleeps, or it ends."""

from __future__ import annotations

import os
import sys
import time

if "lunette.check.worker" in sys.argv[0] or "worker" in os.path.basename(sys.argv[0]):
    if os.environ.get("LUNETTE_TEST_START") == "die":
        os.abort()
    time.sleep(600)


def answer(call):
    """Never reached."""
    raise AssertionError
