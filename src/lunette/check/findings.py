"""Failures of a run: a few of each kind are kept, made small and run once more in a fresh process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from lunette.check.calls import Array, Call, NotOffered
from lunette.check.expected import Outcome, expected
from lunette.check.judge import Verdict, judge
from lunette.check.shrink import shrink
from lunette.check.supervisor import Stopped, Supervisor
from lunette.check.targets.base import Target

__all__ = ["Failures", "Finding"]

MOST = 30
"""How many findings a report shows; what is left out is counted."""
PER_KIND = 3
"""How many failures that look alike are made small, in case they are not."""


@dataclass
class Finding:
    """A failure, or an example of a documented difference; `note` says what else is to be known."""

    call: Call
    verdict: Verdict
    program: str
    expected: list[Outcome]
    actual: list[Array]
    count: int = 1
    note: str = ""
    variants: tuple[str, ...] = ()


@dataclass
class Kind:
    """Failures that look alike: how many, and a few that put different things to the test."""

    count: int = 0
    examples: list[Finding] = field(default_factory=list)

    def add(self, finding: Finding) -> None:
        """Count one more, and keep it if it is of its own."""
        self.count += 1
        new = all(finding.call.tags != e.call.tags for e in self.examples)
        if new and len(self.examples) < PER_KIND:
            self.examples.append(finding)


class Failures:
    """The failures of a run, by kind."""

    def __init__(self) -> None:
        self._kinds: dict[tuple[str, ...], Kind] = {}

    def __len__(self) -> int:
        return len(self._kinds)

    def add(self, finding: Finding) -> None:
        """One more failed call."""
        call, verdict = finding.call, finding.verdict
        key = (call.op, call.verb, verdict.kind, verdict.symptom, call.variant, call.bad)
        self._kinds.setdefault(key, Kind()).add(finding)

    def small(
        self,
        target: Target,
        worker: Supervisor,
        shrinking: bool = True,
        progress: Callable[[], None] = lambda: None,
    ) -> tuple[list[Finding], int]:
        """One finding for each kind, or more where shrinking shows them to differ.

        With them, how many failed calls are of kinds that are left out.
        """
        found: dict[tuple[str, ...], Finding] = {}
        left_out = 0
        for kind in self._kinds.values():
            if len(found) >= MOST:
                left_out += kind.count
                continue
            for number, example in enumerate(kind.examples):
                finding = _small(target, worker, example) if shrinking else example
                call = finding.call
                shape = (call.op, call.verb, finding.verdict.symptom, str(call.arguments), call.bad)
                known = found.setdefault(shape, finding)
                if known is finding:
                    finding.count = kind.count if number == 0 else 1
                    finding.variants = (call.variant,) if call.variant else ()
                    finding.program = target.snippet(call)
                elif call.variant and call.variant not in known.variants:  # another opset
                    known.variants += (call.variant,)
                    known.count += kind.count
                progress()
        if shrinking:
            _confirm(target, worker, list(found.values()))
        return list(found.values()), left_out


def _small(target: Target, worker: Supervisor, seen: Finding) -> Finding:
    """The smallest call found that fails as this one does."""
    best = seen

    def fails(candidate: Call) -> bool:
        nonlocal best
        tried = _try_again(target, worker, candidate)
        if tried is None:
            return False
        as_seen = (seen.verdict.kind, seen.verdict.symptom)
        if (tried.verdict.kind, tried.verdict.symptom) != as_seen:
            return False
        best = tried
        return True

    words = seen.verdict.detail
    if not any(w in words for w in ("later", "once", "no answer")):
        slow = seen.verdict.kind == "crashed" or target.inputs > 1
        shrink(seen.call, fails, 14 if slow else 250)
        if worker.stopped:
            best = replace(best, note="not made smaller: time ran out")
    return replace(best, call=replace(best.call, tags=frozenset()))


def _try_again(target: Target, worker: Supervisor, call: Call) -> Finding | None:
    """What comes of the call now; None where the target has none such, or time ran out."""
    if worker.stopped:
        return None
    try:
        program = target.program(call)
        outcomes = [] if call.bad else expected(call)
        answer = worker.ask((call, program))
    except Stopped as reason:
        worker.stopped = str(reason)
        return None
    except (NotOffered, ValueError, TypeError, OverflowError):
        return None
    verdict = judge(call, answer, outcomes, target.policies, target.complete)
    return Finding(call, verdict, "", outcomes, answer.arrays)


def _confirm(target: Target, worker: Supervisor, findings: list[Finding]) -> None:
    """Note which findings need the calls before them: their lines, pasted, would show nothing."""
    worker.stop()
    for finding in findings:
        if finding.verdict.kind == "crashed":  # narrowed down in fresh processes already
            continue
        again = _try_again(target, worker, finding.call)
        if again is not None and again.verdict.kind != finding.verdict.kind:
            finding.note = "only after other calls: not in a fresh process"
