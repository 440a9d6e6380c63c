"""Ops are values: they paste back, compare, hash, pickle and cannot be changed."""

import dataclasses
import pickle
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lunette as ln
from tests.strategies import ops, shapes

NAMES = {name: getattr(ln, name) for name in ln.__all__}


@settings(max_examples=300)
@given(data=st.data())
def test_repr_pastes_back_and_values_survive_a_pickle(data):
    shape, rank = data.draw(shapes())
    op = data.draw(ops(shape, rank, smooth=data.draw(st.booleans())))
    again = eval(repr(op), NAMES)
    assert again == op
    assert hash(again) == hash(op)
    assert pickle.loads(pickle.dumps(op)) == op


@pytest.mark.parametrize(
    ("op", "text"),
    [
        (ln.MaxPool((3, 3), stride=2, padding=1), "MaxPool((3, 3), stride=2, padding=1)"),
        (ln.MaxPool((3, 3), stride=(3, 3)), "MaxPool((3, 3))"),
        (ln.AvgPool([2, 3], padding=((1, 2), (1, 2))), "AvgPool((2, 3), padding=((1, 2), (1, 2)))"),
        (ln.AvgPool((2, 3), padding=((1, 1), (0, 0))), "AvgPool((2, 3), padding=(1, 0))"),
        (ln.MaxPool((2,), padding="valid"), "MaxPool((2,))"),
        (ln.MaxPool((2,), padding="same", ties="all"), "MaxPool((2,), padding='same', ties='all')"),
        (ln.SmoothMaxPool((2,), 3), "SmoothMaxPool((2,), beta=3.0)"),
        (ln.AdaptiveAvgPool((7, 7)), "AdaptiveAvgPool((7, 7))"),
        (ln.GlobalMaxPool(2, keepdims=False), "GlobalMaxPool(2, keepdims=False)"),
        (
            ln.Pool((ln.Global(),), ln.Mean(False)),
            "Pool((Global(),), reduction=Mean(count_include_pad=False, divisor_override=None))",
        ),
    ],
)
def test_repr_is_short(op, text):
    assert repr(op) == text
    assert eval(text, NAMES) == op


def test_equal_arguments_make_equal_ops():
    assert ln.MaxPool((3, 3), 2, 1) == ln.MaxPool((np.int64(3), 3), (2, 2), ((1, 1), (1, 1)))
    assert ln.MaxPool((3,)) != ln.AvgPool((3,))
    assert ln.MaxPool((3,)) != ln.MaxPool((3,), ties="all")
    assert len({ln.MaxPool((3,)), ln.MaxPool((3,)), ln.MaxPool((2,))}) == 2


def test_ops_are_frozen():
    op = ln.MaxPool((3,))
    with pytest.raises(dataclasses.FrozenInstanceError):
        op.kernel = (5,)


def test_a_hash_does_not_travel_to_another_process():
    op = ln.MaxPool((3,), ties="all")
    hash(op)
    program = (
        "import pickle, sys; op = pickle.loads(sys.stdin.buffer.read()); "
        "import lunette as ln; assert op in {ln.MaxPool((3,), ties='all')}"
    )
    subprocess.run([sys.executable, "-c", program], input=pickle.dumps(op), check=True)


def test_the_general_pool_means_what_the_named_ops_mean():
    x = np.arange(12.0).reshape(3, 4)
    op = ln.Pool((ln.Sliding(2, 1), ln.Global()), ln.Max())
    assert (op(x) == [[7], [11]]).all()
    mixed = ln.Pool((ln.Adaptive(2), ln.Sliding(2)), ln.Mean())
    assert (mixed(x) == [[2.5, 4.5], [6.5, 8.5]]).all()
