"""The verdict on one answer, by exact arithmetic."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from lunette.check.calls import Array, Call
from lunette.check.expected import Outcome, result_dtype
from lunette.check.policies import POLICIES, explained
from lunette.check.supervisor import Answer
from lunette.ops.base import is_float

__all__ = ["NOT_TRIED", "VERDICTS", "Verdict", "judge"]

VERDICTS = ("agrees", "differs by policy", "wrong", "refused", "crashed", "not offered")
NOT_TRIED = "not tried"
"""No verdict: time ran out before the call, or others kept the processor from it."""


@dataclass(frozen=True)
class Verdict:
    """One of `VERDICTS`; `symptom` is what was seen, `policy` the choice that explains it."""

    kind: str
    symptom: str = ""
    policy: str = ""
    detail: str = ""
    place: tuple[int, ...] | None = None

    @property
    def is_finding(self) -> bool:
        """Whether it makes a run fail."""
        return self.kind in ("wrong", "crashed")


def judge(
    call: Call,
    answer: Answer,
    outcomes: list[Outcome],
    policies: dict[str, str],
    complete: bool = False,
) -> Verdict:
    """What the answer is worth; `policies` are those that the target documents.

    Where it is `complete`, a refusal of a good call is wrong.
    """
    if answer.status == "starved":
        return Verdict(NOT_TRIED, detail=answer.text)
    if answer.status == "crashed":
        return Verdict("crashed", "crash", detail=answer.text)
    if answer.status == "unsupported":
        return Verdict("not offered", detail=answer.text)
    if call.bad:
        return _judge_bad(call, answer, policies)
    if answer.status == "error":
        return Verdict("wrong" if complete else "refused", "refused", detail=answer.text)
    return _judge_values(call, answer.arrays, outcomes, policies)


def _judge_bad(call: Call, answer: Answer, policies: dict[str, str]) -> Verdict:
    if answer.status == "error":
        return Verdict("agrees", detail=answer.text)
    for words in policies:
        if call.bad.startswith(words):
            return Verdict("differs by policy", "accepted", words)
    shapes = ", ".join(str(a.shape) for a in answer.arrays)
    return Verdict("wrong", "accepted", detail=f"{call.bad}: expected an error, got {shapes}")


def _judge_values(
    call: Call, actual: list[Array], outcomes: list[Outcome], policies: dict[str, str]
) -> Verdict:
    if len(actual) != len(outcomes):
        return Verdict("wrong", "count", detail=f"{len(actual)} results, expected {len(outcomes)}")
    used = []
    for i, (a, o) in enumerate(zip(actual, outcomes, strict=True)):
        if a.shape != o.values.shape:
            if "ceil windows" in policies and a.shape == _ceil_shape(call):
                actual[i] = a[tuple(slice(n) for n in o.values.shape)]
                used.append("ceil windows")
                continue
            detail = f"{o.name} has shape {a.shape}, expected {o.values.shape}"
            return Verdict("wrong", "shape", detail=detail)
        if a.dtype != result_dtype(call):
            detail = f"{o.name} has dtype {a.dtype}, expected {result_dtype(call)}"
            return Verdict("wrong", "dtype", detail=detail)
    masks = [o.differs(a) for o, a in zip(outcomes, actual, strict=True)]
    for policy in policies:
        if not any(m.any() for m in masks):
            break
        allowed = explained(policy, call, actual, outcomes)
        left = [m & ~e for m, e in zip(masks, allowed, strict=True)]
        if sum(int(m.sum()) for m in left) < sum(int(m.sum()) for m in masks):
            masks = left
            used.append(policy)
    if not any(m.any() for m in masks):
        if not used:
            return Verdict("agrees")
        return Verdict("differs by policy", "value", ", ".join(used))
    return _wrong(call, actual, outcomes, masks)


def _wrong(call: Call, actual: list[Array], outcomes: list[Outcome], masks: list[Array]) -> Verdict:
    which = next(i for i, m in enumerate(masks) if m.any())
    a, o, mask = actual[which], outcomes[which], masks[which]
    symptom = _symptom(call, a, o, mask)
    place = tuple(int(i) for i in np.argwhere(mask)[0])
    detail = f"{o.name}{list(place)} is {_show(a[place])}, expected {_show(o.values[place])}"
    if o.slack is not None and o.slack[place] > 0:
        detail += f" ± {float(o.slack[place]):.3g}"
    hints = []
    for policy, (words, _) in POLICIES.items():
        allowed = explained(policy, call, actual, outcomes)
        if all((~m | e).all() for m, e in zip(masks, allowed, strict=True)):
            hints.append(words)
            break
    if hints:
        detail += f" (as if: {hints[0]})"
    return Verdict("wrong", symptom, detail=detail, place=place)


def _symptom(call: Call, a: Array, o: Outcome, mask: Array) -> str:
    if call.verb == "indices":
        return "index"
    if not is_float(a.dtype):
        return "value"
    seen, meant = a[mask], o.values[mask]
    if np.isnan(meant).any() and (~np.isnan(seen[np.isnan(meant)])).any():
        return "NaN lost"
    if np.isnan(seen).any():
        return "NaN made"
    if ((seen == 0) & (meant == 0)).all():
        return "sign of zero"
    return "value"


def _show(value: Any) -> str:
    if isinstance(value, np.bool_):
        return str(bool(value))
    if np.asarray(value).dtype.kind in "iu":
        return str(int(value))
    number = float(value)
    return (
        repr(number) if not math.isfinite(number) or number != round(number, 3) else f"{number:g}"
    )


def _ceil_shape(call: Call) -> tuple[int, ...]:
    """The output's shape without the rule that drops windows past the input."""
    arguments = call.arguments
    if not arguments.get("ceil_mode"):
        return ()
    lengths = []
    columns = (arguments[k] for k in ("kernel", "stride", "padding", "dilation"))
    for n, k, s, (before, after), d in zip(call.pooled, *columns, strict=True):
        lengths.append(-(-(n + before + after - d * (k - 1) - 1) // s) + 1)
    return (*call.batch, *lengths)
