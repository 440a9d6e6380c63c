"""Laws of the meaning, over exact rationals: what must hold for every op, tie rule and padding."""

from fractions import Fraction

import flint
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lunette as ln
from lunette.spec import Dual
from tests.strategies import TIES, fraction_arrays, ops, ops_and_arrays, shapes, sliding_arguments


def inner(a, b):
    return sum((p * q for p, q in zip(a.flat, b.flat, strict=True)), 0)


def balls(x):
    to_ball = np.frompyfunc(lambda v: flint.arb(flint.fmpq(v.numerator, v.denominator)), 1, 1)
    return to_ball(x)


@settings(max_examples=2500)
@given(data=st.data())
def test_vjp_is_the_adjoint_of_jvp(data):
    op, x, dx = data.draw(ops_and_arrays(count=2))
    gy = data.draw(fraction_arrays(op.out_shape(x.shape)))
    assert inner(op.jvp(x, dx), gy) == inner(dx, op.vjp(x, gy))


@settings(max_examples=250)
@given(data=st.data())
def test_smooth_vjp_is_the_adjoint_of_jvp_over_balls(data):
    shape, rank = data.draw(shapes(2))
    op = data.draw(ops(shape, rank, smooth=True))
    x, dx = (balls(data.draw(fraction_arrays(shape))) for _ in range(2))
    gy = balls(data.draw(fraction_arrays(op.out_shape(shape))))
    left, right = inner(op.jvp(x, dx), gy), inner(dx, op.vjp(x, gy))
    assert (flint.arb(0) + left).overlaps(flint.arb(0) + right)
    assert abs(left - right) < flint.arb(1) / 10**12


@settings(max_examples=400)
@given(ops_and_arrays(count=3), st.integers(-3, 3))
def test_jvp_is_linear_in_the_tangent(case, factor):
    op, x, a, b = case
    combined = op.jvp(x, a * factor + b)
    assert (combined == op.jvp(x, a) * factor + op.jvp(x, b)).all()


@settings(max_examples=400)
@given(ops_and_arrays(count=2))
def test_max_and_mean_are_monotone(case):
    op, x, step = case
    assert (op(x) <= op(x + abs(step))).all()


@settings(max_examples=400)
@given(data=st.data(), shift=st.integers(-3, 3))
def test_max_and_mean_commute_with_adding_a_constant_where_no_padding_counts(data, shift):
    shape, rank = data.draw(shapes())
    pooled = shape[len(shape) - rank :]
    arguments = data.draw(sliding_arguments(pooled))
    op = data.draw(
        st.sampled_from([ln.MaxPool(**arguments), ln.AvgPool(**arguments, count_include_pad=False)])
    )
    x = data.draw(fraction_arrays(shape))
    has_cells = op(np.ones(shape)) > 0
    assert (op(x + shift)[has_cells] == (op(x) + shift)[has_cells]).all()
    assert (op(x)[~has_cells] == 0).all()


@settings(max_examples=250)
@given(data=st.data())
def test_smooth_max_lies_between_max_and_max_plus_log_n_over_beta(data):
    shape, rank = data.draw(shapes(2))
    arguments = data.draw(sliding_arguments(shape[len(shape) - rank :]))
    beta = data.draw(st.sampled_from([0.25, 1.0, 8.0]))
    x = balls(data.draw(fraction_arrays(shape)))
    op = ln.SmoothMaxPool(beta=beta, count_include_pad=False, **arguments)
    smooth, hard = op(x), ln.MaxPool(**arguments)(x)
    cells = ln.AvgPool(divisor_override=1, **arguments)(np.full(shape, Fraction(1), object))
    for s, m, n in zip(smooth.flat, hard.flat, cells.flat, strict=True):
        if n == 0:
            assert s == 0
            continue
        tolerance = flint.arb(1) / 10**12
        assert m - tolerance < s < m + flint.arb(int(n)).log() / flint.arb(beta) + tolerance


@settings(max_examples=150)
@given(data=st.data(), ties=st.sampled_from(TIES))
def test_global_is_adaptive_to_one_is_sliding_by_the_whole_axis(data, ties):
    shape, rank = data.draw(shapes())
    pooled = shape[len(shape) - rank :]
    x, dx = (data.draw(fraction_arrays(shape)) for _ in range(2))
    maxima = [
        ln.GlobalMaxPool(rank, ties=ties),
        ln.AdaptiveMaxPool((1,) * rank, ties=ties),
        ln.MaxPool(pooled, ties=ties),
    ]
    means = [ln.GlobalAvgPool(rank), ln.AdaptiveAvgPool((1,) * rank), ln.AvgPool(pooled)]
    for first, *others in (maxima, means):
        gy = data.draw(fraction_arrays(first.out_shape(shape)))
        for op in others:
            assert op.out_shape(shape) == first.out_shape(shape)
            assert (op(x) == first(x)).all()
            assert (op.jvp(x, dx) == first.jvp(x, dx)).all()
            assert (op.vjp(x, gy) == first.vjp(x, gy)).all()


@settings(max_examples=150)
@given(ops_and_arrays(count=1))
def test_keepdims_false_only_drops_axes(case):
    _, x = case
    for make in (ln.GlobalAvgPool, ln.GlobalMaxPool):
        kept, dropped = make(x.ndim), make(x.ndim, keepdims=False)
        assert kept(x).shape == (1,) * x.ndim
        assert dropped(x).shape == ()
        assert kept(x).item() == dropped(x).item()
        assert (
            kept.vjp(x, np.full(kept.out_shape(x.shape), Fraction(2), object))
            == dropped.vjp(x, np.array(Fraction(2), object))
        ).all()


@settings(max_examples=250)
@given(ops_and_arrays(count=2))
def test_out_shape_is_the_shape_of_every_verb(case):
    op, x, dx = case
    shape = op.out_shape(x.shape)
    assert op(x).shape == shape
    assert op.jvp(x, dx).shape == shape
    assert op.vjp(x, np.full(shape, Fraction(1), object)).shape == x.shape


@settings(max_examples=250)
@given(data=st.data())
def test_dual_numbers_reproduce_jvp(data):
    shape, rank = data.draw(shapes())
    op = data.draw(ops(shape, rank))
    if isinstance(op.reduction, ln.Max) and op.reduction.ties != "first":
        op = ln.Pool(op.regions, ln.Max("first"), op.keepdims)
    x, dx = (data.draw(fraction_arrays(shape)) for _ in range(2))
    duals = np.frompyfunc(Dual, 2, 1)(x, dx)
    out = op(duals) if x.ndim else np.array(op(duals), object)
    assert [d.primal for d in out.flat] == list(op(x).flat)
    assert [d.tangent for d in out.flat] == list(op.jvp(x, dx).flat)


@settings(max_examples=150)
@given(data=st.data())
def test_dual_balls_reproduce_the_smooth_jvp(data):
    shape, rank = data.draw(shapes(2))
    op = data.draw(ops(shape, rank, smooth=True))
    x, dx = (balls(data.draw(fraction_arrays(shape))) for _ in range(2))
    out = op(np.frompyfunc(Dual, 2, 1)(x, dx))
    for dual, expected in zip(out.flat, op.jvp(x, dx).flat, strict=True):
        assert dual.tangent.overlaps(flint.arb(0) + expected)
        assert abs(dual.tangent - expected) < flint.arb(1) / 10**12


@settings(max_examples=150)
@given(data=st.data())
def test_the_first_winner_is_where_indices_point(data):
    shape, rank = data.draw(shapes())
    op = ln.MaxPool(**data.draw(sliding_arguments(shape[len(shape) - rank :])))
    x = data.draw(fraction_arrays(shape))
    y, indices = ln.max_pool(
        x, op.kernel, op.stride, op.padding, op.dilation, op.ceil_mode, return_indices=True
    )
    flat = x.reshape(*x.shape[: x.ndim - rank], -1)
    for place in np.ndindex(y.shape):
        if indices[place] >= 0:
            assert flat[(*place[: len(place) - rank], indices[place])] == y[place]
        else:
            assert y[place] == 0


@pytest.mark.parametrize("ties", TIES)
def test_unpool_of_max_pool_puts_winners_back(ties):
    x = np.array([[1.0, 5, 2, 0], [3, 4, 9, 8]])
    y, indices = ln.max_pool(x, (2, 2), ties=ties, return_indices=True)
    assert (ln.max_unpool(y, indices, (2, 4)) == [[0, 5, 0, 0], [0, 0, 9, 0]]).all()
    assert (ln.max_pool(ln.max_unpool(y, indices, (2, 4)), (2, 2)) == y).all()
