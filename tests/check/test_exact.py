"""Exact numbers with a bound: exact values, and bounds that hold for any order and are not idle."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lunette as ln
from lunette.check import Call
from lunette.check.exact import arithmetic, number_type
from lunette.check.expected import expected

SINGLE = number_type("float32")


def _sum(values):
    total = SINGLE.from_int(0)
    for v in values:
        total = total + SINGLE.from_number(float(v))
    return total


floats32 = st.floats(-1e6, 1e6, width=32)


@settings(deadline=None, max_examples=200)
@given(st.lists(floats32, min_size=1, max_size=12), st.randoms(use_true_random=False))
def test_a_sum_in_any_order_lies_within_its_bound(values, random):
    exact = _sum(values)
    assert exact.value == sum(map(Fraction, values))
    random.shuffle(values)
    total = np.float32(0)
    for v in values:
        total = np.float32(total + np.float32(v))
    assert abs(Fraction(float(total)) - exact.value) <= Fraction(exact.slack())


def test_one_term_has_no_slack_and_two_have():
    assert _sum([0.1]).slack() == 0
    one_third = _sum([1.0]) / _sum([3.0])
    assert one_third.value == Fraction(1, 3)
    assert 0 < one_third.slack() < 4 * arithmetic("float32").unit
    assert 0 < _sum([1.0, 2.0]).slack() <= 3 * 1.001 * arithmetic("float32").unit


@pytest.mark.parametrize(
    "values, expected_value",
    [([math.inf, 1.0], math.inf), ([math.inf, -math.inf], math.nan), ([math.nan, 1.0], math.nan)],
)
def test_infinities_and_nan_follow_the_rules_of_floats(values, expected_value):
    value = _sum(values).value
    assert value == expected_value or (math.isnan(value) and math.isnan(expected_value))


@settings(deadline=None, max_examples=60)
@given(st.floats(-30, 30), st.floats(0.01, 50))
def test_exp_and_log_are_right_to_sixteen_digits(a, b):
    number = number_type("float64")
    assert float(number.exp(number.from_number(a)).value) == pytest.approx(math.exp(a), rel=1e-15)
    assert float(number.log(number.from_number(b)).value) == pytest.approx(
        math.log(b), rel=1e-14, abs=1e-15
    )


def test_a_mean_may_be_off_by_rounding_and_no_more():
    x = np.array([1.0, 2.0, 4.0], np.float32)
    arguments = {"kernel": (3,), "stride": (3,), "padding": ((0, 0),), "dilation": (1,)}
    (outcome,) = expected(Call("mean", arguments, "forward", (x,)))
    right = np.array([7 / 3], np.float32)
    assert not outcome.differs(right).any()
    assert not outcome.differs(np.nextafter(right, np.float32(9))).any()
    assert outcome.differs(right + np.float32(1e-5)).all()
    assert outcome.differs(np.array([np.nan], np.float32)).all()


def test_half_types_round_once_at_the_end():
    x = np.array([2048.0] + [1.0] * 7, np.float16)  # in float16, 2048 + 1 is 2048
    arguments = {"kernel": (8,), "stride": (8,), "padding": ((0, 0),), "dilation": (1,)}
    call = Call("mean", arguments, "forward", (x,))
    dropped = np.array([2048 / 8], np.float16)
    assert expected(call)[0].differs(dropped).all()
    assert not expected(call, accumulate="float16")[0].differs(dropped).any()


def test_an_overflow_on_the_way_is_no_fault_and_a_needless_one_is():
    x = np.array([3e38, 3e38, -3e38], np.float32)
    arguments = {"kernel": (3,), "stride": (3,), "padding": ((0, 0),), "dilation": (1,)}
    (outcome,) = expected(Call("mean", arguments, "forward", (x,)))
    assert not outcome.differs(np.array([np.inf], np.float32)).any()
    (small,) = expected(Call("mean", arguments, "forward", (x / 1e6,)))
    assert small.differs(np.array([np.inf], np.float32)).all()


def test_a_max_must_match_bit_for_bit():
    x = np.array([-0.0, 0.0], np.float32)
    arguments = {"kernel": (2,), "stride": (2,), "padding": ((0, 0),), "dilation": (1,)}
    (outcome,) = expected(Call("max", arguments, "forward", (x,)))
    assert not outcome.differs(np.array([-0.0], np.float32)).any()
    assert outcome.differs(np.array([0.0], np.float32)).all()


def test_the_meaning_is_the_specifications():
    rng = np.random.default_rng(5)
    x, gy = rng.standard_normal((1, 2, 7)), rng.standard_normal((1, 2, 4))
    arguments = {"kernel": (3,), "stride": (2,), "padding": ((1, 1),), "dilation": (1,)}
    for name, op in [
        ("mean", ln.AvgPool((3,), 2, 1)),
        ("smooth-max", ln.SmoothMaxPool((3,), 2.0, 2, 1)),
    ]:
        more = {"beta": 2.0} if name == "smooth-max" else {}
        (outcome,) = expected(Call(name, {**arguments, **more}, "vjp", (x,), gradient=gy))
        assert not outcome.differs(ln.spec.vjp(op, x, gy)).any()
        assert np.all(outcome.slack < 1e-13)
