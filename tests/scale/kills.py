"""Runs of the commands in processes that die: at the n-th thing they do to files, or at a random moment.

A run is a fork of this process, which has everything loaded, so that hundreds take a minute.
"""

import os
import signal
import sys
import time
from pathlib import Path

import lunette.scale.bounded_zarr  # noqa: F401
import lunette.scale.work  # noqa: F401
from lunette.cli import app

EVENTS = {
    *("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.truncate"),
    *("os.listdir", "os.scandir", "fcntl.flock", "mmap.__new__"),
}
"""What an audit hook hears of files; writes and syncs are counted by names of their own."""


def run(arguments, folder, kill_at=None, after=None):
    """(exit status, output, things done to files) of a run; the status is −9 if it was killed.

    Counted is what touches `folder`, or a file by its number.
    """
    log = Path(folder, "..", f"log-{Path(folder).name}").resolve()
    counter = log.with_suffix(".count")
    counter.write_bytes(b"")
    child = os.fork()
    if child == 0:
        _be_the_run([str(a) for a in arguments], str(folder), kill_at, log, counter)
    if after is not None:
        time.sleep(after)
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    return code, log.read_text(), counter.stat().st_size


def _be_the_run(arguments, folder, kill_at, log, counter):
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(out, 1)
    os.dup2(out, 2)
    sys.stdout = sys.stderr = os.fdopen(out, "w")  # pytest has put others in their place
    tally = os.open(counter, os.O_WRONLY | os.O_APPEND)
    write, count = os.write, [0]

    def one_more():
        count[0] += 1
        write(tally, b".")
        if kill_at is not None and count[0] >= kill_at:  # threads may count past it at once
            os.kill(os.getpid(), signal.SIGKILL)

    def hear(event, details):
        if event in EVENTS:
            first = str(details[0]) if details else ""
            if first.startswith(folder) or first.isdigit() or first == "-1":
                one_more()

    def counted(original):
        def call(*values, **options):
            one_more()
            return original(*values, **options)

        return call

    code = 70
    try:
        for name in ("write", "fsync", "ftruncate", "pwrite"):
            setattr(os, name, counted(getattr(os, name)))
        sys.addaudithook(hear)
        app(arguments, standalone_mode=True)
        code = 0
    except SystemExit as leaving:
        code = leaving.code or 0
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
