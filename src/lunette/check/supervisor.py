"""Runs calls in a worker process, outlives its crashes, and finds the call that caused them."""

from __future__ import annotations

import math
import os
import pickle
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from lunette.check.calls import Array, Call
from lunette.check.targets.base import Program, Target
from lunette.check.worker import write_frame
from lunette.platform import processor_time, wait_readable, waits_for_processor

__all__ = ["TIME_RAN_OUT", "Answer", "Job", "Stopped", "Supervisor"]

STARTUP = 180.0
"""Seconds that a target may take to be imported."""
TIME_RAN_OUT = "time ran out"


@dataclass(frozen=True)
class Answer:
    """What became of a call: `ok` with arrays; `error`, `unsupported`, `crashed` or `starved` with words."""

    status: str
    arrays: list[Array] = field(default_factory=list)
    text: str = ""


class Died(Exception):
    """The worker ended, or had to be ended; the text says how."""


class Starved(Died):
    """The worker had to be ended, but others had kept it from working: nothing is known of the call."""


class Stopped(Exception):
    """No more answers will come; the text says why: time ran out, or the target does not start."""


Job = tuple[Call, Program]


class Patience:
    """Whether a process has had its time: that of its own work, not of a machine that is busy.

    Past `seconds` of wall time it has, if it has worked that long, or does not work at all; a process
    that others keep from working may take ten times as long, or if `strict` no longer.
    """

    def __init__(self, pid: int, seconds: float, strict: bool = False) -> None:
        self.pid, self.seconds, self.strict = pid, seconds, strict
        self._start, self._idle_since = time.monotonic(), 0.0
        self._work = processor_time(self.pid)

    @property
    def waited(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self._start

    def ended(self) -> bool:
        """Ask now and then; the answer may be late by a second or two."""
        now = time.monotonic()
        if now - self._start <= self.seconds:
            return False
        if (
            self.strict
            or now - self._start > 10 * self.seconds
            or processor_time(self.pid) - self._work > self.seconds
        ):
            return True
        if waits_for_processor(self.pid):
            self._idle_since = 0.0
            return False
        self._idle_since = self._idle_since or now
        return now - self._idle_since > 1.5

    @property
    def starved(self) -> bool:
        """Whether the process wants to work, and had less than half of the time for it."""
        worked = processor_time(self.pid) - self._work
        return waits_for_processor(self.pid) and worked < self.seconds / 2


class Supervisor:
    """One target's worker. Use as a context manager.

    A call may take `seconds`, of wall time if `strict`. Past `deadline` (of `time.monotonic`) the worker is ended, whatever it
    does; `stopped` says so, and `waited` how long the call in flight had run.
    """

    def __init__(self, target: Target, seconds: float | None = None, strict: bool = False) -> None:
        self.target, self.strict = target, strict
        self.seconds = target.seconds if seconds is None else seconds
        self.deadline = math.inf
        self.stopped = ""
        self.waited = 0.0
        self.versions: dict[str, str] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._stderr: Any = None
        self._history: list[Job] = []
        self._pending: list[Job] = []
        self._early: Died | Stopped | None = None

    def __enter__(self) -> Supervisor:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # -- batches --

    def submit(self, jobs: Sequence[Job]) -> None:
        """Hand over a batch; the worker starts while the caller does something else."""
        self._pending = list(jobs)
        self._hand_over(0)

    def collect(self) -> list[Answer]:
        """The answers to the batch, in order; once `stopped`, those to its first calls."""
        answers: dict[int, Answer] = {}
        first = 0
        while first < len(self._pending) and not self.stopped:
            try:
                if self._early is not None:
                    raise self._early
                for number in range(first, len(self._pending)):
                    answers[number] = self._receive()
                    first = number + 1
                    self._history.append(self._pending[number])
                self._receive_done()
            except Starved as reason:
                answers[first] = Answer("starved", text=str(reason))
                first += 1
                self._history = []
                if first < len(self._pending):
                    self._hand_over(first)
            except Died as death:
                if first == len(self._pending):  # all answered: the heap was found broken after
                    first -= 1
                    self._history.pop()
                culprit, text, answer = self._narrow(self._pending[first], str(death))
                place = first if culprit is None else culprit
                if answer is not None:
                    answers[first] = answer
                if place >= 0:
                    answers[place] = Answer("crashed", text=text)
                first += 1
                self._history = []
                if first < len(self._pending):
                    self._hand_over(first)
            except Stopped as reason:
                self.stopped = str(reason)
        return [answers[i] for i in range(first)]

    def _hand_over(self, first: int) -> None:
        """Send the batch from this call on; what goes wrong is kept for `collect`."""
        self._early = None
        try:
            self._send(self._pending[first:])
        except (Died, Stopped) as reason:
            self._early = reason

    def ask(self, job: Job) -> Answer:
        """The answer to one call; a crash is an answer, and is not narrowed. May raise `Stopped`."""
        try:
            self._send([job])
            answer = self._receive()
            self._receive_done()
            return answer
        except Starved as reason:
            return Answer("starved", text=str(reason))
        except Died as death:
            return Answer("crashed", text=str(death))

    def alone(self, jobs: Sequence[Job]) -> tuple[list[Answer], str]:
        """Run these in a fresh worker that then ends by itself; how it died, or ''."""
        self.stop()
        answers = []
        try:
            self._send(jobs)
            for _ in jobs:
                answers.append(self._receive())
            self._receive_done()
            self._finish()
        except Died as death:
            return answers, str(death)
        finally:
            self.stop()
        return answers, ""

    def _narrow(self, job: Job, death: str) -> tuple[int | None, str, Answer | None]:
        """Which call of the batch is to blame: its place (None: the one in flight), and how.

        The place is −1 where the blame falls on a call of an earlier batch, whose verdict stands;
        the words then say so.
        """
        earlier = self._history[:]
        if "no answer" in death:
            return None, death, None
        try:
            return self._search(job, death, earlier)
        except Stopped as reason:
            self.stopped, self.waited = str(reason), 0.0
            return None, f"{death}; {reason} before it was known which call is to blame", None

    def _search(
        self, job: Job, death: str, earlier: list[Job]
    ) -> tuple[int | None, str, Answer | None]:
        answers, again = self.alone([job])
        if again:
            return None, again, None
        innocent = answers[0] if answers else None
        if not earlier or not self.alone([*earlier, job])[1]:
            return None, f"{death}; once, and not when run again, after {len(earlier)} calls", None
        low, high = 0, len(earlier) - 1
        while low < high:  # the latest start from which the crash still comes
            middle = (low + high + 1) // 2
            if self.alone([*earlier[middle:], job])[1]:
                low = middle
            else:
                high = middle - 1
        text = f"{death}; the process died only later, in another call"
        in_batch = [id(j) for j in self._pending]
        if id(earlier[low]) in in_batch:
            return in_batch.index(id(earlier[low])), text, innocent
        return None, f"{death}; after an earlier call, {earlier[low][0].op}", None

    # -- the process --

    def start(self) -> None:
        """Start a worker and wait until its target is imported; `Stopped` if that fails."""
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([p or "." for p in sys.path if p != ""] + ["."]),
            "MALLOC_PERTURB_": "165",  # fresh memory is not zero, so a cell left unwritten shows
            "OMP_NUM_THREADS": "2",
            **self.target.environment,
        }
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 — it outlives this call
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "lunette.check.worker",
                self.target.name,
                str(self.target.memory),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            env=environment,
        )
        self._history = []
        try:
            word, *rest = self._read(STARTUP)
        except Died as death:
            raise Stopped(f"the target does not start: {death}") from None
        assert word == "ready"
        self.versions = rest[0]

    def stop(self) -> None:
        """End the worker."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout, self._stderr):
                pipe.close()  # type: ignore[union-attr]
            self._process = None

    def _finish(self) -> None:
        """Let the worker end by itself: a broken heap often shows only there."""
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.close()
        try:
            code = self._process.wait(30)
        except subprocess.TimeoutExpired:
            raise Died("no end within 30 s after the last call") from None
        if code:
            raise Died(self._death(code))

    def _send(self, jobs: Sequence[Job]) -> None:
        if time.monotonic() > self.deadline:
            self.stop()
            raise Stopped(TIME_RAN_OUT)
        if self._process is None:
            self.start()
        assert self._process is not None and self._process.stdin is not None
        try:
            numbered = [(n, call, program) for n, (call, program) in enumerate(jobs)]
            write_frame(self._process.stdin, numbered)
        except BrokenPipeError:
            raise self._dead() from None

    def _receive(self) -> Answer:
        _, status, content = self._read(self.seconds)
        return Answer(status, content) if status == "ok" else Answer(status, text=content)

    def _receive_done(self) -> None:
        self._read(self.seconds)

    def _read(self, seconds: float) -> Any:
        assert self._process is not None and self._process.stdout is not None
        strict = self.strict and seconds == self.seconds  # a start takes as long as it takes
        patience = Patience(self._process.pid, seconds, strict)
        size = struct.unpack("<Q", self._bytes(8, patience))[0]
        return pickle.loads(self._bytes(size, patience))

    def _bytes(self, size: int, patience: Patience) -> bytes:
        assert self._process is not None and self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        chunks, missing = [], size
        while missing:
            if time.monotonic() > self.deadline:
                self.waited = patience.waited
                self.stop()
                raise Stopped(TIME_RAN_OUT)
            if not wait_readable(descriptor, 0.25):
                if not patience.ended():
                    continue
                starved = patience.strict and patience.starved
                self.stop()
                kind = Starved if starved else Died
                raise kind(f"no answer within {patience.seconds:g} s")
            chunk = os.read(descriptor, min(missing, 1 << 20))
            if not chunk:
                raise self._dead()
            chunks.append(chunk)
            missing -= len(chunk)
        return b"".join(chunks)

    def _dead(self) -> Died:
        assert self._process is not None
        try:
            code = self._process.wait(20)
        except subprocess.TimeoutExpired:
            code = 0
        words = self._death(code)
        self.stop()
        return Died(words)

    def _death(self, code: int) -> str:
        if code < 0:
            words = f"killed by {signal.Signals(-code).name}"
        else:
            words = f"ended with exit status {code}"
        self._stderr.seek(0)
        lines = self._stderr.read().decode(errors="replace").strip().splitlines()
        return f"{words}: {lines[-1][:200]}" if lines else words
