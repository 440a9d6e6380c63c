"""Laws of the tape: adjoint, symmetric, and the same over rationals, balls, intervals and floats."""

from __future__ import annotations

from fractions import Fraction

import flint
import numpy as np
import pytest

import lunette as ln
from lunette.spec import Dual, Interval, MissingOperation
from lunette.tape import check_gradient
from tests.tape_cases import CASES, converted, fractions, values

pytestmark = pytest.mark.filterwarnings("ignore::lunette.SlowPathWarning")

RATIONAL = [case for case in CASES if case.rational]


def name_of(case):
    return case.name


def run(case, arrays):
    """A tape with the case's program, its leaves and its output."""
    tape = ln.Tape()
    ids = [tape.leaf(a, f"leaf {i}") for i, a in enumerate(arrays)]
    return tape, ids, case.program(tape, *ids)


def inner(arrays, others):
    pairs = [
        (u, v)
        for a, b in zip(arrays, others, strict=True)
        for u, v in zip(a.flat, b.flat, strict=True)
    ]
    return sum((u * v for u, v in pairs), Fraction(0))


@pytest.mark.parametrize("case", RATIONAL, ids=name_of)
def test_backward_is_the_adjoint_of_jvp_exactly(case):
    tape, ids, out = run(case, values(case))
    generator = np.random.default_rng(1)
    moves = [fractions(i.shape, generator) for i in ids]
    grad = fractions(out.shape, generator)
    gradients = tape.backward(out, grad)
    tangent = tape.jvp(out, dict(zip(ids, moves, strict=True)))
    assert tangent.shape == out.shape
    assert all(type(v) is Fraction for i in ids for v in gradients[i].flat)
    assert inner([grad], [tangent]) == inner([gradients[i] for i in ids], moves)


@pytest.mark.parametrize("case", RATIONAL, ids=name_of)
def test_each_leaf_alone_has_its_own_adjoint(case):
    # Rules have one function per operand; together they could hide an error in one of them.
    tape, ids, out = run(case, values(case))
    generator = np.random.default_rng(2)
    grad = fractions(out.shape, generator)
    gradients = tape.backward(out, grad)
    for i in ids:
        move = fractions(i.shape, generator)
        assert inner([grad], [tape.jvp(out, {i: move})]) == inner([gradients[i]], [move])


@pytest.mark.parametrize("case", RATIONAL, ids=name_of)
def test_hvp_is_what_dual_numbers_give_and_symmetric(case):
    # The same program over numbers a + b·ε: the gradient's ε-part is the Hessian times the b's.
    arrays = values(case)
    tape, ids, out = run(case, arrays)
    generator = np.random.default_rng(3)
    moves, others = ([fractions(i.shape, generator) for i in ids] for _ in range(2))
    grad = fractions(out.shape, generator)
    product = tape.hvp(out, dict(zip(ids, moves, strict=True)), grad)
    mirrored = tape.hvp(out, dict(zip(ids, others, strict=True)), grad)
    assert inner([product[i] for i in ids], others) == inner([mirrored[i] for i in ids], moves)
    for i, expected in zip(ids, dual_gradients(case, arrays, moves, grad), strict=True):
        assert np.array_equal(product[i], expected), i


def dual_gradients(case, arrays, moves, grad):
    """The ε-parts of the gradients of a case over dual numbers."""
    pairs = [np.vectorize(Dual, otypes=[object])(a, m) for a, m in zip(arrays, moves, strict=True)]
    tape, ids, out = run(case, pairs)
    zero = grad.reshape(-1)[0] * 0
    gradients = tape.backward(out, converted(grad, lambda v: Dual(v, zero)))
    return [converted(gradients[i], lambda v: v.tangent) for i in ids]


@pytest.mark.parametrize("case", [c for c in CASES if not c.rational], ids=name_of)
def test_hvp_of_transcendental_rules_is_what_dual_numbers_give(case):
    arrays = [a.astype(float) for a in values(case)]
    tape, ids, out = run(case, arrays)
    generator = np.random.default_rng(3)
    moves = [generator.normal(size=i.shape) for i in ids]
    grad = generator.normal(size=out.shape)
    product = tape.hvp(out, dict(zip(ids, moves, strict=True)), grad)
    objects = [converted(a, float) for a in arrays], [converted(m, float) for m in moves]
    expected = dual_gradients(case, *objects, converted(np.asarray(grad), float))
    for i, e in zip(ids, expected, strict=True):
        assert np.allclose(product[i], e.astype(float), rtol=1e-11, atol=1e-12), i


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_float_derivatives_agree_with_differences(case):
    check_gradient(case.program, *(a.astype(float) for a in values(case)))


@pytest.mark.parametrize("case", RATIONAL, ids=name_of)
def test_the_checker_holds_over_rationals(case):
    check_gradient(case.program, *values(case))


@pytest.mark.parametrize("case", CASES, ids=name_of)
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_gradients_keep_the_dtype_and_come_near_the_exact_ones(case, dtype):
    arrays = [a.astype(dtype) for a in values(case)]
    tape, ids, out = run(case, arrays)
    grad = np.ones(out.shape, dtype)
    gradients = tape.backward(out, grad)
    wide, wide_ids, wide_out = run(case, [a.astype(np.float64) for a in arrays])
    expected = wide.backward(wide_out, grad.astype(np.float64))
    assert out.dtype == dtype
    for i, j in zip(ids, wide_ids, strict=True):
        assert gradients[i].dtype == dtype
        scale = max(1.0, float(abs(expected[j]).max()))
        assert abs(gradients[i] - expected[j]).max() <= 40 * np.finfo(dtype).eps * scale


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_balls_and_intervals_enclose_the_gradients(case):
    arrays = [a.astype(float) for a in values(case)]
    balls, ball_ids, ball_out = run(case, [converted(a, flint.arb) for a in arrays])
    boxes, box_ids, box_out = run(case, [converted(a, Interval) for a in arrays])
    ones = np.ones(ball_out.shape)
    exact = balls.backward(ball_out, converted(ones, flint.arb))
    around = boxes.backward(box_out, converted(ones, Interval))
    for i, j in zip(ball_ids, box_ids, strict=True):
        for ball, box in zip(exact[i].flat, around[j].flat, strict=True):
            assert box.lo <= ball.mid() <= box.hi
            assert ball.rad() < 1e-9 and box.hi - box.lo < 1e-9


@pytest.mark.parametrize("case", [c for c in CASES if not c.rational], ids=name_of)
def test_an_operation_that_rationals_lack_raises_by_name(case):
    with pytest.raises(MissingOperation, match=r"exp|log"):
        run(case, values(case))


def test_relu_over_intervals_decides_only_what_is_decided():
    tape = ln.Tape()
    x = tape.leaf(np.array([Interval(-1, 2), Interval(1, 2)], object))
    y = tape.relu(x)
    assert y.value[0] == Interval(0, 2)
    with pytest.raises(ln.spec.Undecided):
        tape.backward(y, np.array([Interval(1), Interval(1)], object))


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_the_checker_finds_a_wrong_rule(case, monkeypatch):
    """Every op of the tape is checked by breaking it: twice the gradient must be noticed."""
    tape, _, out = run(case, [a.astype(float) for a in values(case)])
    rule = type(tape._nodes[out].rule)
    pull = rule.pull
    monkeypatch.setattr(
        rule, "pull", lambda *args: [None if g is None else g + g for g in pull(*args)]
    )
    with pytest.raises(AssertionError):
        check_gradient(case.program, *(a.astype(float) for a in values(case)))
