"""A run keeps to its time whatever the target does, and says what it left."""

from __future__ import annotations

import time
from itertools import islice

import pytest

from lunette.check.report import as_data, as_html
from lunette.check.run import run
from lunette.check.stream import stream
from lunette.check.targets import find_target

MARGIN = 8.0
"""Seconds for a loaded machine; what is cut here would otherwise take minutes."""


def _timed(name, seconds, **options):
    target = find_target(name)
    start = time.monotonic()
    report = run(target, seconds=seconds, **options)
    assert time.monotonic() - start < seconds + MARGIN
    return report


def test_a_slow_target_is_cut_and_what_was_left_is_counted():
    report = _timed("tests.check.accidents:slow", 4.0, cases=2000)
    assert 0 < report.cases < 100
    assert report.clean
    assert report.counts["not tried"] == 2000 - report.cases
    assert f"{2000 - report.cases} of 2000 calls were not tried" in report.cut
    untried = [op for op, row in report.matrix.items() if set(row["forward"]) == {"not tried"}]
    assert untried, "every op was reached in seconds"
    assert report.cut in as_html(report)
    assert as_data(report)["cut"] == report.cut


def test_calls_that_were_tried_do_not_depend_on_the_time():
    cut = _timed("tests.check.accidents:slow", 3.0, cases=2000)
    whole = run(find_target("tests.check.mutants:right"), cases=cut.cases)
    tried = {
        op: {p: counts["agrees"] for p, counts in row.items() if counts["agrees"]}
        for op, row in cut.matrix.items()
    }
    expected = {op: {p: c["agrees"] for p, c in row.items()} for op, row in whole.matrix.items()}
    assert {op: row for op, row in tried.items() if row} == expected
    assert whole.cut == ""


def test_shrinking_is_cut_too_and_says_so():
    report = _timed("tests.check.accidents:slow_and_wrong", 4.0, ops=["max"], cases=2000)
    assert report.counts["wrong"] > 0
    assert report.findings
    assert any(f.note == "not made smaller: time ran out" for f in report.findings)


def test_a_call_without_end_costs_a_tenth_of_the_run():
    report = _timed("tests.check.accidents:endless", 10.0, cases=50)
    assert report.counts["crashed"] >= 1
    assert report.counts["not tried"] == 50 - report.cases
    assert "no answer within 1 s" in report.findings[0].verdict.detail
    assert report.tried in as_html(report)


def test_bad_calls_take_turns_with_good_ones():
    """So a target that crashes on a bad call is tried on good ones, however short the run."""
    target = find_target("tests.check.mutants:right")
    calls = stream(target.ops, target.verbs, target.dtypes, target.layouts, 0)
    bad = [bool(call.bad) for call in islice(calls, 400)]
    assert not any(bad[:10]) and 20 < sum(bad) < 200


def test_a_call_without_end_is_a_crash_where_the_run_is_longer_than_its_patience():
    target = find_target("tests.check.accidents:endless")
    target.seconds = 1.0
    report = run(target, cases=1, seconds=30.0)
    assert report.counts["crashed"] == 1
    assert "no answer within 1 s" in report.findings[0].verdict.detail


@pytest.mark.parametrize("how", ["sleep", "die"])
def test_a_target_that_does_not_start_ends_the_run(how, monkeypatch):
    monkeypatch.setenv("LUNETTE_TEST_START", how)
    report = _timed("tests.check.slow_start:answer", 3.0, cases=50)
    assert report.cases == 0
    assert report.counts["not tried"] == 50
    if how == "die":
        assert not report.clean
        assert "does not start: killed by SIGABRT" in report.cut
    else:
        assert "3 s were not enough" in report.cut


def test_a_fault_that_needs_other_calls_before_it_is_noted():
    report = run(find_target("tests.check.accidents:remembering"), ["max"], ["forward"], 120)
    assert report.findings
    assert all("only after other calls" in f.note for f in report.findings)
