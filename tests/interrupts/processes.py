"""Programs in processes of their own: a crash shows as their exit status, a hang as an error."""

import json
import os
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor

HANG = 600
"""Seconds after which a process is taken to hang."""

ENVIRONMENT = {"PYTHONWARNINGS": "ignore::DeprecationWarning"}  # of forks where there are threads


def run(*command, **environment):
    """The standard output of a program that ends well."""
    finished = subprocess.run(
        [sys.executable, "-X", "faulthandler", *command],
        capture_output=True,
        text=True,
        timeout=HANG,
        check=False,
        env={**os.environ, **ENVIRONMENT, **environment},
    )
    assert finished.returncode == 0, (command, finished.returncode, finished.stderr[-3000:])
    return finished.stdout.strip()


def program(text, **environment):
    """Run a program; gives what it printed, and nothing may have gone wrong silently."""
    return run("-c", textwrap.dedent(text), **environment)


def children(*commands):
    """What modes of `child` found, two at a time; each command is a list of its arguments."""

    def one(arguments):
        return json.loads(run("-m", "tests.interrupts.child", *map(str, arguments)))

    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(one, commands))
