"""Adapters: every program is Python, none needs the target's library to be written."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

import lunette as ln
from lunette.check import OPS, VERBS, Call, NotOffered
from lunette.check.inputs import LAYOUTS, dtype_of, in_layout
from lunette.check.run import run
from lunette.check.stream import stream
from lunette.check.targets import TARGETS, find_target

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", TARGETS)
def test_every_call_is_a_program_or_is_not_offered(name):
    target = find_target(name)
    seen = Counter()
    calls = stream(target.ops, target.verbs, target.dtypes, target.layouts, 0, fit=target.fit)
    for call in islice(calls, 600):
        for variant in target.variants:
            asked = replace(call, variant=variant)
            try:
                program = target.program(asked)
            except NotOffered as reason:
                assert str(reason)
                seen["not offered"] += 1
                continue
            compile(program.setup, "setup", "exec")
            compile(program.body, "body", "exec")
            if asked.x.size < 100:
                compile(target.snippet(asked), "snippet", "exec")
            seen["offered"] += 1
    assert seen["offered"] > 20


def test_the_stream_is_the_same_for_the_same_seed_and_covers_every_op_and_verb():
    def first(seed):
        calls = islice(stream(list(OPS), VERBS, ["float32", "int8"], ["contiguous"], seed), 700)
        return [(c.op, c.verb, c.key if c.x.size < 10**6 else "") for c in calls]

    assert first(4) == first(4)
    assert first(4) != first(5)
    pairs = {(op, verb) for op, verb, _ in first(4)}
    assert {op for op, _ in pairs} == set(OPS)
    assert ("max", "indices") in pairs
    assert ("conv", "vjp") in pairs


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_layout_changes_memory_and_not_values(layout):
    x = np.arange(24.0).reshape(2, 3, 4)
    placed = in_layout(x, layout)
    np.testing.assert_array_equal(placed, x)
    if layout not in ("contiguous", "offset"):
        assert not placed.flags.c_contiguous


def test_the_ten_line_adapter_of_the_guide_works():
    target = find_target(f"{ROOT / 'examples' / 'check_adapter.py'}:pool")
    report = run(target, cases=250)
    assert report.clean, [f.verdict.detail for f in report.findings]
    assert report.counts["agrees"] > 200
    assert report.counts["not offered"] > 200


def test_torch_is_called_in_its_own_words():
    arguments = {
        "kernel": (3, 3), "stride": (2, 2), "padding": ((1, 1), (1, 1)), "dilation": (1, 1),
        "ceil_mode": True, "ties": "first",
    }  # fmt: skip
    call = Call("max", arguments, "vjp", (np.ones((1, 1, 4, 4), np.float32),))
    body = find_target("torch").program(call).body
    assert "F.max_pool2d(x, (3, 3), (2, 2), (1, 1), (1, 1), ceil_mode=True)" in body
    assert "torch.autograd.grad" in body
    uneven = replace(call, arguments={**arguments, "padding": ((1, 0), (0, 0))})
    with pytest.raises(NotOffered, match="padding before and after"):
        find_target("torch").program(uneven)


def test_the_guide_shows_the_example_as_it_is():
    guide = (ROOT / "docs" / "check.md").read_text()
    example = (ROOT / "examples" / "check_adapter.py").read_text()
    code = example.partition('"""\n\n')[2]
    assert code in guide


def test_triton_kernels_refuse_a_result_past_all_memory_before_any_work():
    torch = pytest.importorskip("torch")
    from lunette.torch.library import triton_kernels

    op = ln.AdaptiveMaxPool((2**60,))
    with pytest.raises(ValueError, match="this machine has"):
        triton_kernels(op, "forward", None, torch.zeros(1, 1, 4))


def test_triton_offers_without_a_gpu_what_its_interpreter_keeps(monkeypatch):
    arguments = {"ndim": 1, "keepdims": True}
    half = dtype_of("bfloat16")
    target = find_target("triton")
    mean = Call("global-mean", arguments, "forward", (np.ones((1, 3), half),))
    largest = replace(mean, op="global-max", arguments={**arguments, "ties": "first"})
    monkeypatch.setattr("os.path.exists", lambda path: False)
    target.program(largest)
    with pytest.raises(NotOffered, match="interpreter"):
        target.program(mean)
    with pytest.raises(NotOffered, match="interpreter"):
        target.program(replace(largest, operands=(np.full((1, 3), 2.0**-130, half),)))
    monkeypatch.setattr("os.path.exists", lambda path: path == "/dev/nvidia0")
    target.program(mean)
