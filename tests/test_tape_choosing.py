"""The rules that choose: worked examples, their limits, and arrays of other libraries."""

from fractions import Fraction

import numpy as np
import pytest

import lunette as ln
from lunette.spec import Dual, Interval, Undecided


def gradients(op, *values, grad=None, **options):
    tape = ln.Tape()
    ids = [tape.leaf(v) for v in values]
    out = getattr(tape, op)(*ids, **options)
    grad = np.ones(out.shape, out.dtype) if grad is None else grad
    found = tape.backward(out, grad)
    return [tape.value(out), *(found[i] for i in ids)]


def test_take_adds_what_goes_to_one_element():
    out, gx = gradients("take", np.array([[1.0, 2.0], [3.0, 4.0]]), index=[[3, 0], [3, 3]])
    assert np.array_equal(out, [[4, 1], [4, 4]]) and np.array_equal(gx, [[1, 0], [0, 3]])


def test_take_of_a_position_without_axes():
    tape = ln.Tape()
    assert tape.value(tape.take(tape.leaf(np.arange(3.0)), 2)).shape == ()


@pytest.mark.parametrize(
    "index, match", [([3], "3 … 3"), ([-1], "-1"), ([0.5], "float64"), ([True], "bool")]
)
def test_take_outside(index, match):
    tape = ln.Tape()
    with pytest.raises((ValueError, TypeError), match=match):
        tape.take(tape.leaf(np.arange(3.0)), index)


def test_the_first_of_equals_has_the_gradient():
    a, b = np.array([1.0, 2.0, 5.0, 0.0]), np.array([1.0, 3.0, 4.0, -0.0])
    out, ga, gb = gradients("maximum", a, b)
    assert np.array_equal(out, [1, 3, 5, 0])
    assert np.array_equal(ga, [1, 0, 1, 1]) and np.array_equal(gb, [0, 1, 0, 0])


def test_a_nan_is_the_larger():
    out, ga, gb = gradients(
        "maximum", np.array([np.nan, 1.0, np.nan]), np.array([1.0, np.nan, np.nan])
    )
    assert np.isnan(out).all()
    assert np.array_equal(ga, [1, 0, 1]) and np.array_equal(gb, [0, 1, 0])


def test_intervals():
    tape = ln.Tape()
    x = tape.leaf(
        np.array([Interval(-1, 2), Interval(-3, -1), Interval(0, 0), Interval(0, 1)], object)
    )
    assert list(tape.value(tape.sign(x))) == [
        Interval(-1, 1),
        Interval(-1),
        Interval(0),
        Interval(0, 1),
    ]
    y = tape.maximum(x, tape.leaf(np.array(Interval(0, 1), object)))
    assert list(tape.value(y)) == [Interval(0, 2), Interval(0, 1), Interval(0, 1), Interval(0, 1)]
    with pytest.raises(Undecided):
        tape.backward(y, np.full(4, Interval(1), object))


def test_sign_of_other_numbers():
    tape = ln.Tape()
    exact = tape.leaf(np.array([Fraction(-1, 3), Fraction(0), Fraction(7)], object))
    assert list(tape.value(tape.sign(exact))) == [-1, 0, 1]
    assert next(iter(tape.backward(tape.sign(exact), tape.value(exact)).values())).tolist() == [
        0,
        0,
        0,
    ]
    dual = tape.leaf(np.array([Dual(Fraction(-2), Fraction(5))], object))
    assert tape.value(tape.sign(dual))[0] == Dual(Fraction(-1), Fraction(0))
    floats = tape.value(tape.sign(tape.leaf(np.array([-0.0, np.nan, -np.inf]))))
    assert np.isnan(floats[1]) and floats[2] == -1 and not np.signbit(floats[0])


def test_balls():
    flint = pytest.importorskip("flint")
    tape = ln.Tape()
    x = tape.leaf(np.array([flint.arb(0, 1), flint.arb(-2, 0.5)], object))
    about, below = tape.value(tape.sign(x))
    assert about.contains(flint.arb(-1)) and about.contains(flint.arb(1)) and below == -1


def test_softmax_of_large_numbers():
    out, gx = gradients(
        "softmax",
        np.array([[1000.0, 1000.0], [0.0, -1e5]]),
        grad=np.array([[1.0, 0.0], [1.0, 0.0]]),
    )
    assert np.array_equal(out, [[0.5, 0.5], [1, 0]])
    assert np.array_equal(gx, [[0.25, -0.25], [0, 0]])
    tape = ln.Tape()
    with pytest.raises(ValueError, match="last axis"):
        tape.softmax(tape.leaf(np.zeros((2, 0))))


@pytest.mark.parametrize("module", ["torch", "jax.numpy"])
def test_other_libraries(module):
    library = pytest.importorskip(module)
    x = np.array([[0.5, -2.0, 0.0], [1.0, 1.0, 3.0]], np.float32)
    y = np.float32([[1.0], [0.5]])
    for op, values, options in (
        ("take", [x], {"index": [[5, 5], [0, 1]]}),
        ("maximum", [x, y], {}),
        ("sign", [x], {}),
        ("softmax", [x], {}),
    ):
        expected = gradients(op, *values, **options)
        tape = ln.Tape()
        ids = [tape.leaf(library.asarray(v)) for v in values]
        out = getattr(tape, op)(*ids, **options)
        found = tape.backward(out, library.ones_like(tape.value(out)))
        for a, b in zip(expected, [tape.value(out), *(found[i] for i in ids)], strict=True):
            assert np.allclose(a, np.asarray(b), rtol=1e-6)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint64", "bool"])
def test_integers_become_floats_before_they_are_subtracted(dtype):
    x = np.array([[100, 0, 1], [-100, 100, 1]] if dtype == "int8" else [[100, 0, 1]]).astype(dtype)
    wide, tape = x.astype(float), ln.Tape()
    for name in ("softmax", "sigmoid", "exp", "tanh"):
        found = tape.value(tape.apply(name, x))
        assert found.dtype == np.float64
        np.testing.assert_array_equal(found, tape.value(tape.apply(name, wide)))
    other = x[:, ::-1].copy()
    found, expected = (tape.mse(a, b) for a, b in ((x, other), (wide, other.astype(float))))
    assert tape.value(found) == tape.value(expected)
    labels = np.zeros(len(x), int)
    found, expected = (tape.softmax_cross_entropy(z, labels) for z in (x, wide))
    assert tape.value(found) == tape.value(expected)
    signs = tape.value(tape.sign(x))
    assert signs.dtype == x.dtype
    np.testing.assert_array_equal(signs, np.sign(wide).astype(dtype))
