"""An axis that is cut into parts has the bits of one that is not."""

import numpy as np
import pytest

import lunette as ln
from cases.agreement import run
from lunette.kernels.cpu import pooling
from lunette.kernels.cpu.layout import split_axis

CASES = [
    ((2, 300), lambda f: f((3,), stride=2, padding=1)),
    ((300,), lambda f: f((5,), stride=1, dilation=2, padding=4)),
    ((2, 301), lambda f: f((2,), stride=7, padding=1)),
    ((3, 200, 9), lambda f: f((3, 3), stride=(2, 1), padding=1)),
    ((2, 6, 257), lambda f: f((2, 4), stride=(1, 3), ceil_mode=True)),
    ((150, 170), lambda f: f((2, 3), stride=2, padding=(1, 1))),
]
REDUCTIONS = {
    "max": ln.MaxPool,
    "mean": lambda *a, **k: ln.AvgPool(*a, count_include_pad=False, **k),
    "smooth": lambda *a, **k: ln.SmoothMaxPool(*a, beta=-0.7, **k),
}


def cells(shape, seed):
    return np.random.default_rng(seed).integers(-9, 9, shape).astype(np.float32)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("case", range(len(CASES)))
def test_every_verb_has_the_same_bits_in_parts(monkeypatch, reduction, case):
    shape, make = CASES[case]
    op, x = make(REDUCTIONS[reduction]), cells(shape, 0)
    asked = {
        "forward": None,
        "jvp": cells(shape, 1),
        "vjp": cells(op.out_shape(shape), 2),
        **({"forward_with_indices": None} if reduction == "max" else {}),
    }
    whole = {verb: run(op, verb, x, along, backend="cpu") for verb, along in asked.items()}
    monkeypatch.setattr(split_axis, "LONG", 64)
    monkeypatch.setattr(pooling, "LONG", 64)
    assert split_axis.long_axis(op, shape) is not None
    for verb, along in asked.items():
        parts = run(op, verb, x, along, backend="cpu")
        for a, b in zip(np.atleast_1d(parts), np.atleast_1d(whole[verb]), strict=True):
            assert a.tobytes() == b.tobytes(), (op, verb)


def test_parts_within_the_axis_are_one_op():
    op = ln.MaxPool((3,), stride=2, padding=1)
    axis = split_axis.long_axis(op, (5 * split_axis.LONG,))
    parts = [axis._part(first, last)[0] for first, last, _ in axis._output_ranges()]
    assert len(set(parts[1:-1])) == 1 and len(parts) > 3


def test_windows_as_long_as_the_axis_are_not_cut():
    assert split_axis.long_axis(ln.GlobalMaxPool(1), (1 << 30,)) is None
    assert split_axis.long_axis(ln.MaxPool((1 << 20,)), (1 << 30,)) is None
