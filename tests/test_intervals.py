"""Intervals contain every exact result of the points inside them: each operation, each way in."""

import math
import os
import sys
from decimal import Decimal
from fractions import Fraction

import flint
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lunette as ln
from lunette.spec import Interval
from tests.strategies import object_array

EXAMPLES = int(os.environ.get("LUNETTE_INTERVAL_EXAMPLES", "200"))
LARGEST, SMALLEST, INF = sys.float_info.max, math.ulp(0.0), math.inf

ANY_FLOAT = st.floats(allow_nan=False) | st.sampled_from(
    [
        0.0,
        -0.0,
        1.0,
        -1.0,
        LARGEST,
        -LARGEST,
        SMALLEST,
        -SMALLEST,
        2**-1022,
        1e154,
        1e-170,
        INF,
        -INF,
    ]
)
NUMBERS = (
    ANY_FLOAT
    | st.integers()
    | st.integers(-400, 400).map(lambda n: 10**n if n >= 0 else -(10**-n))
    | st.fractions()
    | st.integers(-1200, 1200).map(lambda n: Fraction(2) ** n / 3)
    | st.decimals(allow_nan=False)
    | st.sampled_from(
        [Decimal("1e999999"), Decimal("-1e-999999"), np.longdouble(1) / 3, np.float32(0.1)]
    )
)


@st.composite
def interval_and_point(draw):
    """An interval, maybe unbounded, and an exact rational inside it."""
    lo, hi = sorted([draw(ANY_FLOAT), draw(ANY_FLOAT)])
    if lo == hi and math.isinf(lo):
        lo, hi = (-INF, 0.0) if lo < 0 else (0.0, INF)
    low = (
        Fraction(lo)
        if math.isfinite(lo)
        else Fraction(min(hi, LARGEST)) - 10 ** draw(st.integers(0, 400))
    )
    high = Fraction(hi) if math.isfinite(hi) else low + 10 ** draw(st.integers(0, 400))
    t = Fraction(draw(st.integers(0, 8)), 8)
    point = low + t * (high - low)
    return Interval(lo, hi), point


@settings(max_examples=EXAMPLES)
@given(NUMBERS)
def test_an_interval_of_a_number_is_the_least_that_holds_it(value):
    x = Interval(value)
    assert x.lo <= value <= x.hi
    assert x.lo == x.hi or (math.nextafter(x.lo, INF) == x.hi and x.lo < value < x.hi)
    both = Interval(value, value)
    assert (both.lo, both.hi) == (x.lo, x.hi)
    assert value in x.scalars.from_real(value) or isinstance(value, Decimal)


@settings(max_examples=2 * EXAMPLES)
@given(interval_and_point(), interval_and_point())
def test_arithmetic_contains_the_exact_result_also_with_infinite_ends(a, b):
    (x, p), (y, q) = a, b
    assert p in x
    assert q in y
    assert p + q in x + y
    assert p - q in x - y
    assert p * q in x * y
    assert -p in -x
    assert max(p, q) in x.scalars.maximum(x, y)
    if not y.lo <= 0 <= y.hi:
        assert p / q in x / y


@settings(max_examples=EXAMPLES)
@given(interval_and_point(), NUMBERS.filter(lambda v: abs(v) != INF))
def test_numbers_beside_an_interval_are_enclosed(a, value):
    (x, p), exact = a, _exact(value)
    for found, meant in ((x + value, p + exact), (value + x, p + exact), (x - value, p - exact),
                         (value - x, exact - p), (x * value, p * exact), (value * x, p * exact)):  # fmt: skip
        assert meant in found


def _exact(value):
    if isinstance(value, Decimal) and abs(value.adjusted()) > 2000:
        # Past every float, and too long to write out: a number that rounds to the same ends.
        return Fraction(10) ** (400 if value.adjusted() > 0 else -400) * (1 if value > 0 else -1)
    return Fraction(*value.as_integer_ratio()) if not isinstance(value, Fraction) else value


@settings(max_examples=EXAMPLES)
@given(interval_and_point())
def test_exp_and_log_contain_the_exact_value(case):
    x, p = case
    if abs(p) < 10**6:
        with flint.ctx.workprec(256):
            ball = flint.arb(flint.fmpq(p.numerator, p.denominator)).exp()
            assert not ball < flint.arb(x.scalars.exp(x).lo)
            assert not ball > flint.arb(x.scalars.exp(x).hi)
    else:
        assert (x.scalars.exp(x).hi == INF) if p > 0 else x.scalars.exp(x).lo == 0
    assert x.scalars.exp(x).lo >= 0
    if x.lo < 0:
        with pytest.raises(ValueError, match="log of an interval that reaches"):
            x.scalars.log(x)
    elif p > 0:
        with flint.ctx.workprec(256):
            ball = flint.arb(flint.fmpq(p.numerator, p.denominator)).log()
            assert not ball < flint.arb(x.scalars.log(x).lo)
            assert not ball > flint.arb(x.scalars.log(x).hi)


def test_every_type_of_number():
    third = Fraction(1, 3)
    for value in (third, flint.fmpq(1, 3), np.longdouble(1) / 3, Decimal(1) / Decimal(3)):
        x = Interval(value)
        assert math.nextafter(x.lo, INF) == x.hi
        assert third in x
    assert flint.arb(Interval(flint.arb(1) / 3).lo) <= flint.arb(1) / 3 <= flint.arb(1)
    for value in (
        1,
        1.0,
        np.float32(1),
        np.int8(1),
        np.float16(1),
        ml_dtypes.bfloat16(1),
        True,
        flint.fmpz(1),
    ):
        assert Interval(value) == Interval(1.0)
    assert Interval(10**400) == Interval(LARGEST, INF)
    assert Interval(-(10**400)) == Interval(-INF, -LARGEST)
    assert Interval(0, 10**400) == Interval(0, INF)
    assert Interval(Fraction(1, 10**400)) == Interval(0.0, SMALLEST)
    assert 10**400 + 1 in Interval(1.0) + 10**400
    assert Interval(flint.arb("inf")) == Interval(INF)


def test_what_is_no_number_is_refused():
    for value in ("1", 1j, None, [1], np.ones(1), Interval(1), np.complex128(1)):
        with pytest.raises(TypeError, match=r"expected a float, an int, a Fraction"):
            Interval(value)
    for bad in ((math.nan,), (Decimal("NaN"),), (flint.arb("nan"),), (1, math.nan), (2, 1)):
        with pytest.raises(ValueError, match="lo ≤ hi"):
            Interval(*bad)
    tiny = Fraction(1, 10**30)
    with pytest.raises(ValueError, match="lo ≤ hi"):  # although both round to the same gap
        Interval(Fraction(1, 3) + tiny, Fraction(1, 3))
    with pytest.raises(TypeError):
        Interval(1) + "1"


def test_arrays_take_an_operation_over():
    x = Interval(1, 2) * object_array([Interval(3), 4], (2,))
    assert isinstance(x, np.ndarray)
    assert 3 in x[0]
    assert 8 in x[1]


def test_exact_operations_add_no_width():
    x = Interval(-3.0, 5.0)
    for same in (x + 0, x - 0, x * 1, 1 * x, x / 1):
        assert same == x
    assert x * 0 == Interval(0)
    assert x * -1 == x / -1 == Interval(-5.0, 3.0)
    assert Interval(INF) + 1 == Interval(INF)


# -- smooth max by the ends --


def smooth(beta, *ends):
    return ln.smooth_max_pool(
        object_array([Interval(*e) for e in ends], (len(ends),)), (len(ends),), beta
    )[0]


@pytest.mark.parametrize("beta", [8.0, -8.0, 1e-3, 1e6, -1e6])
def test_smooth_max_of_wide_intervals(beta):
    """About one pivot the sum would reach below zero, and have no logarithm."""
    for ends in ((-100.0, 100.0), (-1e8, 1e8), (-LARGEST / 4, LARGEST / 4)):
        found = smooth(beta, ends, ends)
        lift = math.log(2) / beta
        for end, at in zip(ends, (found.lo, found.hi), strict=True):
            assert at == pytest.approx(end + lift, rel=1e-12)
        assert found.lo <= ends[0] + lift
        assert found.hi >= ends[1] + lift or math.isclose(found.hi, ends[1] + lift)


def test_smooth_max_of_infinite_ends():
    assert smooth(2.0, (-INF, INF), (0, 1)).hi == INF
    assert smooth(2.0, (-INF, INF), (0, 1)).lo == pytest.approx(0)
    assert smooth(2.0, (-INF, -INF), (-INF, -INF)).lo == -INF
    assert smooth(2.0, (INF, INF), (0, 1)) == Interval(INF)
    assert smooth(-2.0, (-INF, INF), (0, 1)).lo == -INF


@st.composite
def boxes(draw):
    """Intervals, and for each a fraction of the way through it."""
    count = draw(st.integers(1, 4))
    ends = st.floats(-1e3, 1e3) | st.floats(-2, 2)
    cells = [tuple(sorted([draw(ends), draw(ends)])) for _ in range(count)]
    return cells, [Fraction(draw(st.integers(0, 4)), 4) for _ in cells]


@settings(max_examples=EXAMPLES)
@given(boxes(), st.sampled_from([1.0, -1.0, 8.0, -8.0, 0.1]), st.integers(0, 2), st.booleans())
def test_smooth_max_and_its_derivatives_contain_those_of_every_point(box, beta, padding, counts):
    cells, ways = box
    n = len(cells)
    op = ln.SmoothMaxPool(
        (n + padding,), beta, stride=n + padding, padding=((0, padding),), count_include_pad=counts
    )
    x = object_array([Interval(*c) for c in cells], (n,))
    points = [
        Fraction(a) + t * (Fraction(b) - Fraction(a)) for (a, b), t in zip(cells, ways, strict=True)
    ]
    with flint.ctx.workprec(8000):
        balls = object_array(
            [flint.arb(flint.fmpq(p.numerator, p.denominator)) for p in points], (n,)
        )
        inside(op(x)[0], op(balls)[0])
        moves = [Interval(k - 1, k) for k in range(n)]
        dx, exact_dx = (
            object_array(moves, (n,)),
            object_array([flint.arb(k) - 0.5 for k in range(n)], (n,)),
        )
        inside(op.jvp(x, dx)[0], op.jvp(balls, exact_dx)[0])
        one = object_array([Interval(2)], (1,)), object_array([flint.arb(2)], (1,))
        for found, meant in zip(op.vjp(x, one[0]), op.vjp(balls, one[1]), strict=True):
            inside(found, meant)
            assert 0 <= found.lo <= found.hi <= 2.0000001


def inside(interval, ball):
    assert not ball < flint.arb(interval.lo)
    assert not ball > flint.arb(interval.hi)


def test_log_sum_exp_on_a_tape_of_wide_intervals():
    tape = ln.Tape()
    logits = tape.leaf(object_array([Interval(-100, 100)] * 3, (1, 3)))
    loss = tape.value(tape.softmax_cross_entropy(logits, np.array([0])))
    assert loss[()].lo <= math.log(3) <= loss[()].hi
