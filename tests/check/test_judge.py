"""Verdicts worked by hand, and what policies do and do not excuse."""

from __future__ import annotations

import numpy as np
import pytest

from lunette.check import Call
from lunette.check.expected import expected
from lunette.check.judge import judge
from lunette.check.supervisor import Answer

PLAIN = {"kernel": (2,), "stride": (2,), "padding": ((0, 0),), "dilation": (1,)}


def _verdict(call, *arrays, policies=(), status="ok", text="", complete=False):
    outcomes = [] if call.bad else expected(call)
    documented = dict.fromkeys(policies, "documented")
    return judge(call, Answer(status, list(arrays), text), outcomes, documented, complete)


def _f(*values):
    return np.array(values, np.float32)


def test_each_verdict():
    call = Call("max", PLAIN, "forward", (_f(1, 2, 3, 4),))
    assert _verdict(call, _f(2, 4)).kind == "agrees"
    assert _verdict(call, _f(2, 3)).kind == "wrong"
    assert _verdict(call, _f(2)).symptom == "shape"
    assert _verdict(call, _f(2, 4).astype(np.float64)).symptom == "dtype"
    assert _verdict(call, status="error").kind == "refused"
    assert _verdict(call, status="error", complete=True).kind == "wrong"
    assert _verdict(call, status="unsupported").kind == "not offered"
    assert _verdict(call, status="crashed").kind == "crashed"


def test_a_bad_call_wants_an_error():
    call = Call("max", {**PLAIN, "stride": (0,)}, "forward", (_f(1, 2),), bad="stride 0")
    assert _verdict(call, status="error").kind == "agrees"
    assert _verdict(call, _f(2)).kind == "wrong"
    assert _verdict(call, _f(2), policies=["stride 0"]).kind == "differs by policy"
    assert _verdict(call, status="crashed").kind == "crashed"


X = _f(1, 1, np.nan, 3)


@pytest.mark.parametrize(
    "policy, call, given",
    [
        ("ties", Call("max", PLAIN, "indices", (X[:2],)), np.array([1])),
        ("ties", Call("max", PLAIN, "vjp", (X[:2],), gradient=_f(4)), _f(0, 4)),
        ("ties", Call("max", PLAIN, "vjp", (X[:2],), gradient=_f(4)), _f(2, 2)),
        ("NaN ignored", Call("max", PLAIN, "forward", (X,)), _f(1, 3)),
        ("NaN undefined", Call("max", PLAIN, "forward", (X,)), _f(1, -7)),
        ("which NaN", Call("max", PLAIN, "indices", (_f(np.nan, np.nan),)), np.array([1])),
        ("NaN derivative", Call("max", PLAIN, "jvp", (X,), (_f(1, 2, 3, 4),)), _f(1, np.nan)),
        ("sign of zero", Call("max", PLAIN, "forward", (_f(-0.0, 0.0),)), _f(0.0)),
        (
            "empty window",
            Call("max", {**PLAIN, "padding": ((2, 0),)}, "forward", (_f(1, 2),)),
            _f(-np.inf, 2),
        ),
        (
            "default padding",
            Call("mean", {**PLAIN, "padding": ((1, 1),)}, "forward", (_f(1, 2),)),
            _f(1, 2),
        ),
        (
            "ceil windows",
            Call(
                "max", {**PLAIN, "kernel": (1,), "stride": (2,), "ceil_mode": True}, "forward",
                (_f(1, 2, 3, 4),),
            ),
            _f(1, 3, -np.inf),
        ),
        ("denormals", Call("max", PLAIN, "forward", (_f(1e-45, -1),)), _f(0)),
        (
            "lowest padding",
            Call("max", {**PLAIN, "padding": ((1, 1),)}, "forward", (_f(-np.inf, 1),)),
            _f(np.finfo(np.float32).min, 1),
        ),
    ],
)  # fmt: skip
def test_a_policy_excuses_only_what_it_names_and_only_where_documented(policy, call, given):
    assert _verdict(call, given).kind == "wrong"
    verdict = _verdict(call, given, policies=[policy])
    assert (verdict.kind, verdict.policy) == ("differs by policy", policy)
    spoilt = given + np.ones((), given.dtype) * 100
    assert _verdict(call, spoilt, policies=[policy]).kind in ("wrong", "differs by policy")
    if policy not in ("NaN undefined", "NaN derivative", "empty window", "ceil windows"):
        assert _verdict(call, spoilt, policies=[policy]).kind == "wrong"


def test_a_finding_says_where_and_what():
    call = Call("mean", PLAIN, "forward", (_f(1, 2, 3, 5),))
    verdict = _verdict(call, _f(1.5, 3))
    assert verdict.place == (1,)
    assert "y[1] is 3, expected 4" in verdict.detail
