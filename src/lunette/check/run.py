"""A whole run: calls to the worker, verdicts, findings made small, and the sums of it all."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from lunette.check.calls import Array, Call, NotOffered
from lunette.check.expected import Outcome, expected
from lunette.check.judge import Verdict, judge
from lunette.check.shrink import shrink
from lunette.check.stream import stream
from lunette.check.supervisor import Answer, Job, Supervisor
from lunette.check.targets.base import Target

__all__ = ["PROPERTIES", "Finding", "Report", "run"]

PROPERTIES = (
    "forward", "indices", "jvp", "vjp", "padding", "asymmetric", "ceil_mode", "dilation", "strides",
    "length", "groups", "default padding", "empty batch", "ties", "NaN", "infinity", "signed zeros",
    "extremes", "layout", "bad input",
)  # fmt: skip
"""Columns of the table: the verbs, then what geometries and inputs put to the test."""

BATCH = 40
MOST_FINDINGS = 30
PER_KIND = 3
"""How many failures that look alike are shrunk, in case they are not."""


@dataclass
class Finding:
    """A shrunk failure, or an example of a documented difference."""

    call: Call
    verdict: Verdict
    program: str
    expected: list[Outcome]
    actual: list[Array]
    count: int = 1


@dataclass
class Report:
    """What a run found. The same target, seed and numbers give the same report."""

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

    @property
    def clean(self) -> bool:
        """Whether nothing was wrong and nothing crashed."""
        return not (self.counts["wrong"] or self.counts["crashed"])


Progress = Callable[[Report, int], None]


def run(
    target: Target,
    ops: Sequence[str] | None = None,
    verbs: Sequence[str] | None = None,
    cases: int | None = None,
    seed: int = 0,
    seconds: float | None = None,
    command: str = "",
    progress: Progress = lambda report, total: None,
    stop_at_first: bool = False,
    shrinking: bool = True,
) -> Report:
    """Try `cases` calls (with `seconds`: as many as fit) and say what came of them."""
    chosen_ops = [o for o in target.ops if ops is None or o in ops]
    chosen_verbs = [v for v in target.verbs if verbs is None or v in verbs]
    total = target.cases if cases is None else cases
    deadline = None if seconds is None else time.monotonic() + seconds
    report = Report(target.name, target.versions(), seed, command)
    failures: dict[tuple[str, ...], list[tuple[Call, Verdict]]] = {}
    if not chosen_ops or not chosen_verbs:
        return report
    with Supervisor(target) as worker:
        calls = stream(
            chosen_ops, chosen_verbs, target.dtypes, target.layouts, seed, target.inputs, target.fit
        )
        for batch in _batches(target, calls, report, None if deadline else total):
            _try(target, worker, batch, report, failures)
            progress(report, total)
            if stop_at_first and failures:
                break
            if deadline is not None and time.monotonic() > deadline:
                break
        if worker.versions:
            report.versions = worker.versions
        report.findings = list(_findings(target, worker, failures, shrinking))
    return report


def _batches(
    target: Target, calls: Iterator[Call], report: Report, total: int | None
) -> Iterator[list[Job]]:
    """Calls in the target's own words; those it has no words for are counted and left out."""
    batch: list[Job] = []
    size = min(BATCH, max(4, target.cases // 20))
    for call in calls:
        for variant in target.variants:
            asked = replace(call, variant=variant)
            try:
                batch.append((asked, target.program(asked)))
            except NotOffered as reason:
                _count(report, asked, Verdict("not offered", detail=str(reason)))
            left = math.inf if total is None else total - report.cases
            if batch and len(batch) >= min(size, left):
                yield batch
                batch = []
                if total is not None and report.cases >= total:
                    return
        if report.counts["not offered"] > 20_000 + 30 * report.cases:
            break  # the target offers next to nothing of what was chosen
    if batch:
        yield batch


def _try(
    target: Target,
    worker: Supervisor,
    batch: list[Job],
    report: Report,
    failures: dict[tuple[str, ...], list[tuple[Call, Verdict]]],
) -> None:
    worker.submit(batch)
    # The specification works while the worker does.
    meanings = [[] if call.bad else expected(call) for call, _ in batch]
    for (call, program), outcomes, answer in zip(batch, meanings, worker.collect(), strict=True):
        verdict = judge(call, answer, outcomes, target.policies)
        report.cases += verdict.kind != "not offered"
        _count(report, call, verdict)
        if verdict.is_finding:
            key = (call.op, call.verb, verdict.kind, verdict.symptom, call.variant, call.bad)
            failures.setdefault(key, []).append((call, verdict))
        for policy in verdict.policy.split(", ") if verdict.policy else ():
            if policy not in report.policies:
                example = Finding(call, verdict, "", outcomes, answer.arrays, 0)
                example.program = program.body
                report.policies[policy] = (target.policies[policy], example)
            report.policies[policy][1].count += 1


def _count(report: Report, call: Call, verdict: Verdict) -> None:
    report.counts[verdict.kind] += 1
    if verdict.kind == "not offered":
        report.not_offered[verdict.detail.splitlines()[0][:120]] += 1
    if verdict.kind == "refused":
        report.refusals[verdict.detail.splitlines()[0][:160]] += 1
    row = report.matrix.setdefault(call.op, {})
    for name in (call.verb, *call.tags):
        row.setdefault(name, Counter())[verdict.kind] += 1


def _findings(
    target: Target,
    worker: Supervisor,
    failures: dict[tuple[str, ...], list[tuple[Call, Verdict]]],
    shrinking: bool,
) -> Iterator[Finding]:
    """One finding for each kind of failure, or more where shrinking shows them to differ."""
    seen: dict[tuple[str, ...], Finding] = {}
    for cases in failures.values():
        few: list[tuple[Call, Verdict]] = []
        tags: set[frozenset[str]] = set()
        for call, verdict in cases:
            if call.tags not in tags and len(few) < PER_KIND:
                few.append((call, verdict))
                tags.add(call.tags)
        shapes = set()
        for number, (call, verdict) in enumerate(few):
            if len(seen) >= MOST_FINDINGS:
                return
            finding = _small(target, worker, call, verdict, shrinking)
            small = finding.call
            shape = (small.op, small.verb, finding.verdict.symptom, str(small.arguments), small.bad)
            known = seen.get(shape)
            if known is not None:  # the same at another opset
                if small.variant and small.variant not in known.call.variant:
                    known.call = replace(
                        known.call, variant=f"{known.call.variant}, {small.variant}"
                    )
                    known.count += len(cases)
                continue
            if shape in shapes:
                continue
            shapes.add(shape)
            finding.count = len(cases) if number == 0 else 1
            seen[shape] = finding
            yield finding


def _small(
    target: Target, worker: Supervisor, call: Call, verdict: Verdict, shrinking: bool
) -> Finding:
    def tried(candidate: Call) -> tuple[Verdict, Answer, list[Outcome]]:
        try:
            program = target.program(candidate)
            outcomes = [] if candidate.bad else expected(candidate)
        except (NotOffered, ValueError, TypeError, OverflowError) as reason:
            return Verdict("not offered", detail=str(reason)), Answer("unsupported"), []
        answer = worker.ask((candidate, program))
        return judge(candidate, answer, outcomes, target.policies), answer, outcomes

    def fails(candidate: Call) -> bool:
        again = tried(candidate)[0]
        return (again.kind, again.symptom) == (verdict.kind, verdict.symptom)

    later = "later" in verdict.detail or "once" in verdict.detail
    small = call
    if shrinking and not later and "no answer" not in verdict.detail:
        slow = verdict.kind == "crashed" or target.inputs > 1
        small = shrink(call, fails, 14 if slow else 250)
    again, answer, outcomes = tried(small)
    if again.kind != verdict.kind:  # it does not fail alone: keep what was seen
        again, outcomes = verdict, ([] if call.bad else expected(call))
        small = call
    return Finding(small, again, target.snippet(small), outcomes, answer.arrays)
