"""Nothing is wrong with our own backends: a short run of each that is registered."""

from __future__ import annotations

import pytest

from lunette.check.run import run
from lunette.check.targets import find_target
from lunette.dispatch import BACKENDS


@pytest.mark.parametrize("name", ["spec", *BACKENDS])
def test_our_backends_mean_what_they_say(name):
    target = find_target(name)
    if name != "spec":  # every further dtype is compiled anew; long runs take them all
        target.dtypes = ("float32",)
    report = run(target, cases=500)
    assert report.clean, [(f.verdict.detail, f.program) for f in report.findings]
    assert report.counts["agrees"] == 500
    assert not report.refusals
