"""Number systems: sound intervals, balls, rationals, duals; a missing operation raises by name."""

import math
import sys
from fractions import Fraction

import flint
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lunette as ln
from lunette.spec import Dual, Interval, MissingOperation, Undecided, scalars
from tests.strategies import fraction_arrays, object_array, ops, shapes

FLOATS = st.floats(-1e6, 1e6) | st.sampled_from([0.0, -0.0, 1e-320, 1e308, -1e308, 2**-1074])


@st.composite
def intervals_with_points(draw):
    """An interval and an exact rational inside it."""
    lo, hi = sorted([draw(FLOATS), draw(FLOATS)])
    t = Fraction(draw(st.integers(0, 8)), 8)
    return Interval(lo, hi), Fraction(lo) + t * (Fraction(hi) - Fraction(lo))


@settings(max_examples=500)
@given(intervals_with_points(), intervals_with_points())
def test_interval_arithmetic_contains_every_exact_result(a, b):
    (x, p), (y, q) = a, b
    assert p + q in x + y
    assert p - q in x - y
    assert p * q in x * y
    if not y.lo <= 0 <= y.hi:
        assert p / q in x / y
    assert -p in -x
    assert max(p, q) in x.scalars.maximum(x, y)


@settings(max_examples=300)
@given(intervals_with_points())
def test_interval_exp_and_log_contain_the_ball_of_every_point(case):
    x, p = case
    ball = flint.arb(flint.fmpq(p.numerator, p.denominator))
    for name in ("exp", "log"):
        if name == "log" and x.lo < 0:
            continue
        result, exact = getattr(x.scalars, name)(x), getattr(ball, name)()
        if name == "log" and p == 0:
            assert result.lo == -math.inf
            continue
        assert not exact < flint.arb(result.lo) or result.lo == -math.inf
        assert result.hi == math.inf or not exact > flint.arb(result.hi)


def test_interval_ends_are_the_nearest_enclosing_floats():
    system = Interval(1.0).scalars
    e = system.exp(Interval(1.0))
    assert e.lo <= math.e <= e.hi
    assert math.nextafter(e.lo, math.inf) == e.hi
    assert system.exp(Interval(-math.inf, 0.0)) == Interval(0.0, 1.0)
    assert system.log(Interval(0.0, math.inf)) == Interval(-math.inf, math.inf)
    assert system.exp(Interval(1000.0)) == Interval(sys.float_info.max, math.inf)


@settings(max_examples=200)
@given(data=st.data())
def test_every_op_over_intervals_contains_the_exact_result_of_every_point(data):
    """Forward of every op: sound under padding, ties and empty windows."""
    shape, rank = data.draw(shapes(2))
    smooth = data.draw(st.booleans())
    op = data.draw(ops(shape, rank, smooth=smooth))
    points = data.draw(fraction_arrays(shape))
    radii = data.draw(fraction_arrays(shape))
    below, above = points - abs(radii), points + abs(radii) * 2
    enclose = np.frompyfunc(lambda a, b: Interval(_down(a), _up(b)), 2, 1)
    result = op(enclose(below, above))
    for t in (Fraction(0), Fraction(1), Fraction(data.draw(st.integers(0, 16)), 16)):
        inside = below + (above - below) * t
        if smooth:
            to_ball = np.frompyfunc(
                lambda v: flint.arb(flint.fmpq(v.numerator, v.denominator)), 1, 1
            )
            for interval, ball in zip(result.flat, op(to_ball(inside)).flat, strict=True):
                assert not ball < flint.arb(interval.lo)
                assert not ball > flint.arb(interval.hi)
                assert interval.hi - interval.lo < 1e3
        else:
            for interval, exact in zip(result.flat, op(inside).flat, strict=True):
                assert exact in interval


def _down(value):
    near = float(value)
    return near if near <= value else math.nextafter(near, -math.inf)


def _up(value):
    return -_down(-value)


def test_the_interval_of_a_max_is_the_max_of_the_ends():
    x = np.array([Interval(0, 5), Interval(2, 3)], object)
    assert ln.max_pool(x, (2,))[0] == Interval(2, 5)
    assert ln.max_pool(x, (1,), stride=2, padding=1)[0] == Interval(0)


def test_intervals_refuse_nonsense():
    for bad in [(2, 1), (math.nan, 1), (0, math.nan)]:
        with pytest.raises(ValueError, match="lo ≤ hi"):
            Interval(*bad)
    with pytest.raises(ZeroDivisionError, match="contains zero"):
        Interval(1) / Interval(-1, 1)
    with pytest.raises(ValueError, match="log"):
        Interval(1).scalars.log(Interval(-1, 1))


def test_the_argmax_of_overlapping_intervals_or_balls_is_undecided():
    overlapping = np.array([Interval(0, 2), Interval(1, 3)], object)
    apart = np.array([Interval(0, 1), Interval(2, 3)], object)
    op, one = ln.MaxPool((2,)), np.array([Interval(1)], object)
    with pytest.raises(Undecided, match="overlap"):
        op.vjp(overlapping, one)
    gradient = op.vjp(apart, one)
    assert gradient[0] == Interval(0)
    assert 1 in gradient[1]
    beaten = np.array([Interval(0, 2), Interval(1, 3), Interval(4, 5), Interval(0, 4)], object)
    assert ln.max_pool(beaten, (4,), return_indices=True)[1] == 2
    touching = np.array([Interval(0, 4), Interval(4, 5)], object)
    nested = np.array([Interval(0, 10), Interval(1, 2)], object)
    below = np.array([Interval(5, 10), Interval(0, 6)], object)
    for x in (overlapping, touching, nested, below):
        with pytest.raises(Undecided):
            ln.max_pool(x, (2,), return_indices=True)
    with pytest.raises(Undecided):
        ln.max_pool(overlapping, (2,), return_indices=True)
    third = flint.arb(1) / 3
    with pytest.raises(Undecided, match="balls overlap"):
        op.vjp(np.array([third, third], object), np.array([flint.arb(1)], object))


@pytest.mark.parametrize("exact", [Fraction, flint.fmpq], ids=["Fraction", "fmpq"])
def test_rationals_have_no_exp_and_no_log(exact):
    x = object_array([exact(1, 3), exact(1, 2)], (2,))
    assert ln.avg_pool(x, (2,))[0] == exact(5, 12)
    assert (ln.MaxPool((2,)).vjp(x, object_array([exact(1)], (1,))) == [0, 1]).all()
    with pytest.raises(MissingOperation, match="have no exp"):
        ln.smooth_max_pool(x, (2,), 1.0)
    system = scalars.of_value(exact(1))
    with pytest.raises(MissingOperation, match="have no log"):
        system.log(exact(2))


@settings(max_examples=100)
@given(data=st.data())
def test_fmpq_and_fractions_agree(data):
    shape, rank = data.draw(shapes())
    op = data.draw(ops(shape, rank))
    x = data.draw(fraction_arrays(shape))
    to_fmpq = np.frompyfunc(lambda v: flint.fmpq(v.numerator, v.denominator), 1, 1)
    assert [Fraction(int(v.p), int(v.q)) for v in op(to_fmpq(x)).flat] == list(op(x).flat)


def test_integers_have_an_order_and_nothing_else():
    system = scalars.of_array(np.array([1, 2]))
    assert system.greater(np.int64(2), np.int64(1))
    for operation in (system.exp, system.log, system.from_real):
        with pytest.raises(MissingOperation, match="int64"):
            operation(1)


def test_float32_rounds_once_per_operation():
    system = scalars.of_array(np.zeros(1, np.float32))
    assert type(system.exp(np.float32(1))) is np.float32
    assert system.exp(np.float32(1)) == np.float32(math.e)
    assert system.exp(np.float32(1000)) == np.inf
    assert system.log(np.float32(0)) == -np.inf
    assert np.isnan(system.log(np.float32(-1)))
    assert system.from_int(10**400) == np.inf
    assert system.from_int(-(10**400)) == -np.inf


def test_balls_of_any_precision():
    x = np.array([flint.arb(0), flint.arb(1)], object)
    with flint.ctx.workprec(400):
        fine = ln.smooth_max_pool(x, (2,), 1.0)[0]
        exact = (1 + flint.arb(1).exp()).log()
        assert fine.overlaps(exact)
        assert fine.rad() < flint.arb(10) ** -110


def test_duals_of_duals_give_second_derivatives():
    # d²/dx² log(1 + eˣ) at 0 is 1/4.
    def twice(v, d):
        return Dual(Dual(flint.arb(v), flint.arb(d)), Dual(flint.arb(d), flint.arb(0)))

    x = np.array([twice(0, 1), twice(0, 0)], object)
    second = ln.smooth_max_pool(x, (2,), 1.0)[0].tangent.tangent
    assert second.overlaps(flint.arb(1) / 4)


def test_dual_arithmetic():
    a, b = Dual(Fraction(3), Fraction(1)), Dual(Fraction(2), Fraction(5))
    assert a * b == Dual(Fraction(6), Fraction(17))
    assert a / b == Dual(Fraction(3, 2), Fraction(-13, 4))
    assert a - b == Dual(Fraction(1), Fraction(-4))
    assert -a == Dual(Fraction(-3), Fraction(-1))
    with pytest.raises(MissingOperation, match="Fraction numbers have no exp"):
        a.scalars.exp(a)


def test_object_arrays_of_several_types_are_refused():
    with pytest.raises(TypeError, match=r"several types: Fraction, float"):
        ln.avg_pool(np.array([Fraction(1), 2.0], object), (2,))
    with pytest.raises(TypeError, match="element 'a' of type str"):
        ln.max_pool(np.array(["a", "b"], object), (2,))
    with pytest.raises(TypeError, match="complex"):
        ln.max_pool(np.array([1j], object), (1,))


def test_ints_in_object_arrays_join_their_neighbours():
    assert ln.avg_pool(np.array([1, Fraction(1, 2)], object), (2,))[0] == Fraction(3, 4)
    assert ln.avg_pool(np.array([1, 2], object), (2,))[0] == Fraction(3, 2)
    assert ln.avg_pool(np.array([1, Interval(2)], object), (2,))[0].lo <= 1.5


def test_empty_object_arrays_pool_to_empty_ones():
    assert ln.avg_pool(np.empty((0, 4), object), (2,)).shape == (0, 2)
