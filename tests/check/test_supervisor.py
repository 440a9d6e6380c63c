"""A worker's death is an answer, the call to blame is found, and the run goes on."""

from __future__ import annotations

import numpy as np
import pytest

from lunette.check import Call
from lunette.check.supervisor import Supervisor
from lunette.check.targets import find_target


def _jobs(target, strides):
    x = np.arange(8, dtype=np.float32).reshape(1, 1, 8)
    jobs = []
    for s in strides:
        arguments = {
            "kernel": (2,), "stride": (s,), "padding": ((0, 0),), "dilation": (1,),
            "ceil_mode": False,
        }  # fmt: skip
        call = Call("max", arguments, "forward", (x,))
        jobs.append((call, target.program(call)))
    return jobs


def _answers(name, strides, seconds=20.0):
    target = find_target(f"tests.check.accidents:{name}")
    with Supervisor(target, seconds=seconds) as worker:
        worker.submit(_jobs(target, strides))
        return worker.collect()


def test_a_crash_that_comes_late_is_blamed_on_its_cause():
    answers = _answers("late", [1, 2, 7, 3, 4, 5])
    assert [a.status for a in answers] == ["ok", "ok", "crashed", "ok", "ok", "ok"]
    assert "later" in answers[2].text
    assert "SIGABRT" in answers[2].text


def test_a_hang_is_cut_off_and_the_rest_is_answered():
    answers = _answers("sleepy", [1, 7, 2], seconds=2.0)
    assert [a.status for a in answers] == ["ok", "crashed", "ok"]
    assert "no answer within 2 s" in answers[1].text
    np.testing.assert_array_equal(answers[2].arrays[0], [[[1, 3, 5, 7]]])


def test_memory_is_limited():
    (answer,) = _answers("greedy", [1])
    assert answer.status == "error"
    assert "Memory" in answer.text


def test_what_a_target_prints_does_no_harm():
    (answer,) = _answers("talkative", [2])
    np.testing.assert_array_equal(answer.arrays[0], [[[1, 3, 5, 7]]])


def test_a_target_that_cannot_be_imported_is_an_error_before_any_work():
    with pytest.raises(ValueError, match="no_such_module"):
        find_target("no_such_module:function")
    with pytest.raises(ValueError, match="expected one of"):
        find_target("nobody")
