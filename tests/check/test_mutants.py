"""The checker finds every mutant of a right implementation, and nothing in the right one."""

from __future__ import annotations

import pytest

from lunette.check.run import run
from lunette.check.targets import find_target
from tests.brief import every
from tests.check.mutants import MUTANTS, adapter_name


def _target(name: str):
    target = find_target(f"tests.check.mutants:{name}")
    target.seconds = 3.0
    return target


def test_there_are_enough_mutants():
    assert len(set(MUTANTS)) == len(MUTANTS) >= 40


def test_the_right_implementation_has_no_finding():
    report = run(_target("right"), cases=1200)
    assert report.clean, [f.verdict.detail for f in report.findings]
    assert report.counts == {"agrees": 1200}


@pytest.mark.parametrize("wrong", every(3, MUTANTS))
def test_a_mutant_is_found_within_a_default_run(wrong):
    report = run(_target(adapter_name(wrong)), stop_at_first=True, shrinking=False)
    assert not report.clean
    assert report.findings
    (first, *_) = report.findings
    process = ("crash on one", "exit on one", "hang on one", "heap overrun")
    assert (first.verdict.kind == "crashed") == wrong.startswith(process)
