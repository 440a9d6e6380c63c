"""Runs a piece of Python in a process of its own, with JAX as asked, and says how it ended."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).parents[2]

BEGIN = """
import faulthandler
faulthandler.dump_traceback_later(240, exit=True)
import jax, jax.numpy as jnp, numpy as np
import lunette as ln
from tests.jax.cases import CASES, array, same_bits
"""


def run(body, devices=1, **environment):
    """What the piece prints; it must end by itself, with status 0."""
    done = subprocess.run(
        [sys.executable, "-c", BEGIN + textwrap.dedent(body)],
        cwd=ROOT,
        env={
            **os.environ,
            "JAX_PLATFORMS": "cpu",
            "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}",
            **environment,
        },
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
