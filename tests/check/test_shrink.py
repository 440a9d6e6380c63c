"""Findings come out small, deterministic, and as lines that fail again when pasted."""

from __future__ import annotations

import contextlib
import io
from dataclasses import replace

import numpy as np
import pytest

from lunette.check import Call
from lunette.check.run import run
from lunette.check.shrink import shrink
from lunette.check.targets import find_target
from tests.check.mutants import adapter_name


def test_shrinking_keeps_the_failure_and_nothing_else():
    x = np.arange(2 * 3 * 7 * 6, dtype=np.float64).reshape(2, 3, 7, 6)
    arguments = {
        "kernel": (3, 2), "stride": (2, 1), "padding": ((1, 1), (0, 0)), "dilation": (1, 1),
        "ceil_mode": True, "ties": "all",
    }  # fmt: skip
    call = Call("max", arguments, "forward", (x,), layout="strided")

    def fails(candidate):  # any two cells in a window, and a padded axis
        a = candidate.arguments
        return max(a["kernel"]) > 1 and any(map(any, a["padding"]))

    small = shrink(call, fails, 300)
    assert fails(small)
    assert small.x.size == 1
    assert (small.rank, small.layout, small.dtype) == (1, "contiguous", "float32")
    assert small.arguments["ceil_mode"] is False
    assert small.arguments["ties"] == "first"
    assert small.arguments["stride"] == (1,)
    assert np.all(small.x == 0)


def test_a_bad_call_is_small_already():
    call = Call("max", {"stride": (0,)}, "forward", (np.ones(3),), bad="stride 0")
    assert shrink(call, lambda c: True, 50) == replace(call, tags=frozenset())


@pytest.mark.parametrize(
    "wrong",
    ["padding is zero", "last output of seventeen", "gradient overwritten", "kernel flipped"],
)
def test_the_printed_lines_show_the_fault_when_pasted(wrong):
    target = find_target(f"tests.check.mutants:{adapter_name(wrong)}")
    report = run(target, stop_at_first=True)
    finding = report.findings[0]
    assert finding.call.x.size <= 20
    assert max(len(line) for line in finding.program.splitlines()) < 400
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(finding.program, {})
    shown = printed.getvalue().replace("[", " ").replace("]", " ").replace(",", " ").split()
    numbers = [float(w) for w in shown if w.lstrip("-")[:1].isdigit() or w in ("nan", "inf")]
    flat = np.concatenate([a.astype(float).ravel() for a in finding.actual])
    np.testing.assert_allclose(numbers, flat, rtol=1e-6)


def test_a_crash_is_shrunk_too():
    target = find_target(f"tests.check.mutants:{adapter_name('crash on one geometry')}")
    report = run(target, stop_at_first=True)
    finding = report.findings[0]
    assert finding.verdict.kind == "crashed"
    assert finding.call.arguments["kernel"] == (3, 3)
    assert "tests.check.mutants" in finding.program
