"""A whole run: calls to the worker, verdicts, findings made small, and the sums of it all."""

from __future__ import annotations

import math
import platform
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice

from lunette import __version__
from lunette.check.calls import Call, NotOffered
from lunette.check.expected import expected
from lunette.check.findings import Failures, Finding
from lunette.check.judge import NOT_TRIED, Verdict, judge
from lunette.check.stream import stream
from lunette.check.supervisor import TIME_RAN_OUT, Job, Supervisor
from lunette.check.targets.base import Target

__all__ = ["PROPERTIES", "Report", "run"]

PROPERTIES = (
    "forward", "indices", "jvp", "vjp", "padding", "asymmetric", "ceil_mode", "dilation", "strides",
    "length", "groups", "default padding", "empty batch", "ties", "NaN", "infinity", "signed zeros",
    "extremes", "layout", "bad input",
)  # fmt: skip
"""Columns of the table: the verbs, then what geometries and inputs put to the test."""

BATCH = 40
MINUTE = 60.0
"""Seconds of a run for which neither a number of calls nor a time is given."""
TRYING = 0.85
"""Share of the time for calls; what is left is for making findings small."""
EAGER = 20.0
"""A target whose calls may take longer than these seconds compiles in them."""
LONG_WAIT = 5.0
"""A call that is cut off after so many seconds is named."""


@dataclass
class Report:
    """What a run found. The same target, seed and numbers give the same report.

    `cut` is empty where every call was tried; else it says what was left, and calls that time did
    not allow are counted as not tried.
    """

    target: str
    versions: dict[str, str]
    seed: int
    command: str
    cases: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    matrix: dict[str, dict[str, Counter[str]]] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    policies: dict[str, tuple[str, Finding]] = field(default_factory=dict)
    refusals: Counter[str] = field(default_factory=Counter)
    not_offered: Counter[str] = field(default_factory=Counter)
    cut: str = ""
    left_out: int = 0

    @property
    def tried(self) -> str:
        """How many calls were tried, and how many were not, in words."""
        return f"{self.cases} calls tried, {self.counts[NOT_TRIED]} not tried"

    def _repr_html_(self) -> str:
        """The report for a notebook, in a frame of its own so that no style leaves it."""
        from html import escape

        from lunette.check.report import as_html

        page = escape(as_html(self), quote=True)
        return f'<iframe srcdoc="{page}" style="width:100%;height:40em;border:0"></iframe>'

    @property
    def clean(self) -> bool:
        """Whether nothing was wrong and nothing crashed."""
        return not (self.counts["wrong"] or self.counts["crashed"])


Progress = Callable[[Report, int | None, str], None]
"""Told the report so far, how many calls there will be (None: as many as fit), and what goes on."""


def run(
    target: Target,
    ops: Sequence[str] | None = None,
    verbs: Sequence[str] | None = None,
    cases: int | None = None,
    seed: int = 0,
    seconds: float | None = None,
    *,
    command: str = "",
    progress: Progress = lambda report, total, doing: None,
    stop_at_first: bool = False,
    shrinking: bool = True,
) -> Report:
    """Try `cases` calls, for `seconds` at most from start to end, and say what came of them.

    With `seconds` alone, as many calls as fit; with `cases` alone, however long they take; with
    neither, the target's own number of calls, for a minute at most.
    """
    start = time.monotonic()
    chosen_ops = [o for o in target.ops if ops is None or o in ops]
    chosen_verbs = [v for v in target.verbs if verbs is None or v in verbs]
    total = target.cases if cases is None and seconds is None else cases
    limit = math.inf if cases is not None else MINUTE
    limit = limit if seconds is None else seconds
    report = Report(target.name, _versions(target.versions()), seed, command)
    failures = Failures()
    if not chosen_ops or not chosen_verbs:
        return report
    # A call that does not end must be seen to hang while there is time for others. What compiles may take longer.
    compiles = target.seconds > EAGER
    patience = max(10.0, limit / 2) if compiles else max(1.0, limit / 10)
    with Supervisor(target, min(target.seconds, patience), strict=not compiles) as worker:
        calls = stream(
            chosen_ops, chosen_verbs, target.dtypes, target.layouts, seed, target.inputs, target.fit
        )
        jobs = _jobs(target, calls, report)
        worker.deadline = start + TRYING * limit
        progress(report, total, "starting")
        size = min(BATCH, max(4, target.cases // 20))
        while True:
            batch = list(islice(jobs, size if total is None else min(size, total - report.cases)))
            if not batch:
                break
            answered = _try(target, worker, batch, report, failures)
            progress(report, total, "")
            if worker.stopped:
                _say_what_is_left(worker, chain(batch[answered:], jobs), report, total, limit)
            if worker.stopped or (stop_at_first and failures):
                break
        report.versions = _versions(worker.versions) if worker.versions else report.versions
        worker.deadline, worker.stopped = start + limit, ""
        progress(report, total, "making findings small")
        report.findings, report.left_out = failures.small(
            target, worker, shrinking, lambda: progress(report, total, "making findings small")
        )
    return report


def _versions(of_target: dict[str, str]) -> dict[str, str]:
    """The target's, our own and Python's: what a reader needs to see the same."""
    return {**of_target, "lunette": __version__, "python": platform.python_version()}


def _jobs(target: Target, calls: Iterator[Call], report: Report) -> Iterator[Job]:
    """Calls in the target's own words; those it has no words for are counted and left out."""
    for call in calls:
        for variant in target.variants:
            asked = replace(call, variant=variant)
            try:
                yield asked, target.program(asked)
            except NotOffered as reason:
                _count(report, asked, Verdict("not offered", detail=str(reason)))
        if report.counts["not offered"] > 20_000 + 30 * report.cases:
            return  # the target offers next to nothing of what was chosen


def _try(
    target: Target, worker: Supervisor, batch: list[Job], report: Report, failures: Failures
) -> int:
    """Judge the calls of a batch; how many, fewer than all where the worker has stopped."""
    worker.submit(batch)
    meanings = []
    for call, _ in batch:  # the specification works while the worker does
        if time.monotonic() > worker.deadline:
            break
        meanings.append([] if call.bad else expected(call))
    answers = worker.collect()
    for (call, program), outcomes, answer in zip(batch, meanings, answers, strict=False):
        verdict = judge(call, answer, outcomes, target.policies, target.complete)
        report.cases += verdict.kind not in ("not offered", NOT_TRIED)
        _count(report, call, verdict)
        if verdict.is_finding:
            failures.add(Finding(call, verdict, "", outcomes, answer.arrays))
        for policy in verdict.policy.split(", ") if verdict.policy else ():
            if policy not in report.policies:
                example = Finding(call, verdict, program.body, outcomes, answer.arrays, 0)
                report.policies[policy] = (target.policies[policy], example)
            report.policies[policy][1].count += 1
    if len(meanings) < len(batch):
        worker.stopped = worker.stopped or TIME_RAN_OUT
    return min(len(meanings), len(answers))


def _say_what_is_left(
    worker: Supervisor, left: Iterator[Job], report: Report, total: int | None, limit: float
) -> None:
    """Why the run ends here, and which calls it leaves: by op and property, as those it has tried."""
    jobs = iter(left)
    in_flight = next(jobs, None)
    if total is not None:
        rest = chain([in_flight] if in_flight else [], jobs)
        for call, _ in islice(rest, total - report.cases):
            _count(report, call, Verdict(NOT_TRIED))
    words = []
    if worker.stopped != TIME_RAN_OUT:
        report.counts["crashed"] += 1
        words.append(worker.stopped)
    if total is not None:
        reason = f"{limit:g} s were not enough: " if worker.stopped == TIME_RAN_OUT else ""
        words.append(f"{reason}{report.counts[NOT_TRIED]} of {total} calls were not tried")
    if in_flight is not None and worker.waited > LONG_WAIT:
        call = in_flight[0]
        words.append(
            f"{call.op} {call.verb} of {call.dtype}{list(call.x.shape)} with {call.arguments} "
            f"had not answered after {worker.waited:.0f} s"
        )
    report.cut = "; ".join(words)


def _count(report: Report, call: Call, verdict: Verdict) -> None:
    report.counts[verdict.kind] += 1
    if verdict.kind == "not offered":
        report.not_offered[verdict.detail.splitlines()[0][:120]] += 1
    if verdict.kind == "refused":
        report.refusals[verdict.detail.splitlines()[0][:160]] += 1
    row = report.matrix.setdefault(call.op, {})
    for name in (call.verb, *call.tags):
        row.setdefault(name, Counter())[verdict.kind] += 1
