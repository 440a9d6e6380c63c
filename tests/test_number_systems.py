"""One number system in a call: mixtures are refused by the names of their types, and integers join any."""

from fractions import Fraction

import flint
import numpy as np
import pytest

import lunette as ln
from lunette import offsets, spec
from lunette.spec import Dual, Interval, scalars
from tests.strategies import object_array

ONES = {
    "float": 1.0,
    "float32": np.float32(1),
    "Fraction": Fraction(1),
    "fmpq": flint.fmpq(1),
    "arb": flint.arb(1),
    "Interval": Interval(1),
    "Dual": Dual(Fraction(1), Fraction(0)),
}
PAIRS = [(a, b) for a in ONES for b in ONES if a != b]
OPS = [ln.MaxPool((2,)), ln.AvgPool((2,)), ln.SmoothMaxPool((2,), 1.0), ln.GlobalMaxPool(1)]


def of(name, *shape):
    return object_array([ONES[name]] * int(np.prod(shape, dtype=int)), shape)


def integers(*shape):
    return object_array(range(int(np.prod(shape, dtype=int))), shape)


def in_tape(value, other, use):
    tape = ln.Tape()
    leaf = tape.leaf(value)
    return use(tape, leaf, other)


MIXTURES = {
    "jvp": lambda op, a, b: op.jvp(of(a, 4), of(b, 4)),
    "vjp": lambda op, a, b: op.vjp(of(a, 4), of(b, *op.out_shape((4,)))),
    "spec.jvp": lambda op, a, b: spec.jvp(op, of(a, 4), of(b, 4)),
    "spec.vjp": lambda op, a, b: spec.vjp(op, of(a, 4), of(b, *op.out_shape((4,)))),
    "tape gradient": lambda op, a, b: in_tape(
        of(a, 4), of(b, *op.out_shape((4,))), lambda t, x, g: t.backward(t.apply(op, x), g)
    ),
    "tape tangent": lambda op, a, b: in_tape(
        of(a, 4), of(b, 4), lambda t, x, dx: t.jvp(t.apply(op, x), {x: dx})
    ),
    "tape hvp": lambda op, a, b: in_tape(
        of(a, 4), of(b, 4), lambda t, x, dx: t.hvp(t.sum(t.apply(op, x)), {x: dx})
    ),
    "tape sum": lambda op, a, b: in_tape(of(a, 4), of(b, 4), lambda t, x, y: t.apply(op, x + y)),
    "one array": lambda op, a, b: op(object_array([ONES[a], ONES[b]], (2,))),
}


@pytest.mark.parametrize("name", MIXTURES)
def test_mixtures_are_refused_by_name(name):
    for op in OPS:
        for a, b in PAIRS:
            if isinstance(op.reduction, ln.SmoothMax) and name.startswith("tape") and a != "arb":
                continue  # rationals have no exp
            with pytest.raises(TypeError) as error:
                MIXTURES[name](op, a, b)
            assert type(ONES[a]).__name__ in str(error.value)
            assert type(ONES[b]).__name__ in str(error.value)


@pytest.mark.parametrize("a, b", PAIRS)
def test_a_convolution_refuses_them_too(a, b):
    op, x, w = ln.Conv((2,)), (1, 4), (1, 1, 2)
    y = op.out_shape(x, w)
    for call in (
        lambda: op(of(a, *x), of(b, *w)),
        lambda: op(of(a, *x), of(a, *w), of(b, 1)),
        lambda: op.jvp((of(a, *x), of(a, *w)), (of(a, *x), of(b, *w))),
        lambda: op.vjp((of(a, *x), of(a, *w)), of(b, *y)),
    ):
        with pytest.raises(TypeError, match=r"elements of several types: .* in .*, .* in "):
            call()


@pytest.mark.parametrize("name", ONES)
def test_integers_join_any_system(name):
    """In the operand, in its tangent or gradient, and in both; of Python's type or NumPy's."""
    kind = type(scalars.of_value(ONES[name]).from_int(1))
    for op in OPS[:2]:
        for numbers in (
            integers,
            lambda *s: object_array(map(np.int16, range(int(np.prod(s)))), s),
        ):
            results = [
                op(object_array([ONES[name], numbers(1)[0]], (2,))),
                op.jvp(of(name, 2), numbers(2)),
                op.jvp(numbers(2), of(name, 2)),
                op.vjp(object_array([ONES[name], 0], (2,)), numbers(1)),
                op.vjp(numbers(2), of(name, 1)),
            ]
            for result in results:
                assert {type(v) for v in result.flat} == {kind}
        tape = ln.Tape()
        leaf = tape.leaf(object_array([ONES[name], 0], (2,)))
        gradient = tape.backward(tape.apply(op, leaf), [1])[leaf]
        assert {type(v) for v in gradient.flat} == {kind}


def test_ints_among_floats():
    mean = ln.avg_pool(np.array([1, 0.5], object), (2,))
    assert mean[0] == 0.75
    assert type(mean[0]) is np.float64
    assert ln.max_pool(np.array([1, 0.5], object), (2,))[0] == 1
    assert ln.avg_pool(np.array([0.5, np.float64(1.5)], object), (2,))[0] == 1
    with pytest.raises(ValueError, match="an integer of 1329 bits among float64"):
        ln.avg_pool(np.array([0.5, 10**400], object), (2,))
    assert 10**400 / Fraction(2) in ln.avg_pool(np.array([Interval(0), 10**400], object), (2,))[0]


def test_duals_of_several_systems_are_refused():
    exact, inexact = Dual(Fraction(1), Fraction(0)), Dual(1.0, 0.0)
    with pytest.raises(TypeError, match="several types: Fraction, float"):
        ln.avg_pool(object_array([exact, inexact], (2,)), (2,))
    with pytest.raises(TypeError, match="several types: Fraction, float"):
        ln.max_pool(object_array([Dual(Fraction(1), 0.5)] * 2, (2,)), (2,))
    mean = ln.avg_pool(object_array([Dual(1, 0), Dual(2, 1)], (2,)), (2,))[0]
    assert mean == Dual(Fraction(3, 2), Fraction(1, 2))  # and no float division of ints
    assert ln.avg_pool(object_array([Dual(1, 0), inexact], (2,)), (2,))[0] == Dual(1.0, 0.0)


def test_a_class_that_only_looks_like_a_number_is_refused():
    class Pretender:
        dtype = np.float32

    for value in (
        Pretender(),
        None,
        "1",
        b"1",
        1j,
        np.longdouble(1),
        np.datetime64(1, "s"),
        [1.0],
        {},
    ):
        with pytest.raises(TypeError, match=r"element .* of type"):
            ln.max_pool(object_array([value], (1,)), (1,))


def test_a_tape_takes_no_floats_among_exact_numbers():
    tape = ln.Tape()
    leaf = tape.leaf(of("Fraction", 2))
    out = tape.apply(ln.AvgPool((2,)), leaf)
    for grad in (np.array([0.5]), [0.5], np.array([0.5], np.float32)):
        with pytest.raises(TypeError, match=r"grad of node 1 .*float"):
            tape.backward(out, grad)
    with pytest.raises(TypeError, match=r"tangent of node 0 .*float64"):
        tape.jvp(out, {leaf: np.ones(2)})
    with pytest.raises(TypeError, match=r"Fraction.*Interval|Interval.*Fraction"):
        leaf * Interval(1)
    assert tape.backward(out, [2])[leaf][0] == 1
    assert tape.value(leaf * 0.5)[0] == Fraction(1, 2)  # a bare number is read exactly


def test_winners_kept_of_exact_numbers():
    op, x = ln.MaxPool((2,), padding=((0, 2),)), object_array([Fraction(1, 3), 2, 0, 1], (4,))
    found, kept = offsets.forward_with_offsets(op, x)
    assert list(found) == list(op(x))
    grad = object_array([1, Fraction(1, 2), 7], (3,))
    for a, b in (
        (offsets.vjp_from_offsets(op, kept, grad, x.shape), op.vjp(x, grad)),
        (offsets.jvp_from_offsets(op, kept, x), op.jvp(x, x)),
    ):
        assert list(a) == list(b)
        assert {type(v) for v in a} == {Fraction}


def test_numbers_past_the_floats():
    system = scalars.of_array(np.zeros(1))
    assert system.from_real(Fraction(10**400)) == np.inf
    assert system.from_real(-Fraction(10**400)) == -np.inf


def test_integers_join_exact_numbers_on_a_tape():
    third, large = of("Fraction", 1), np.array([2**62])
    third[0] = Fraction(1, 3)
    tape = ln.Tape()
    for operation, expected in (
        ("maximum", Fraction(2**62)),
        ("mul", Fraction(2**62, 3)),
        ("add", Fraction(2**62) + Fraction(1, 3)),
    ):
        for operands in ((third, large), (large, third)):
            (found,) = tape.value(tape.apply(operation, *operands))
            assert found == expected and type(found) is Fraction
    square = tape.maximum(third, large)
    assert tape.value(tape.mul(square, square))[0] == 2**124  # no int64 is left in it
    for name in ("matmul", "linear"):
        (found,) = tape.value(tape.apply(name, third[None], large[None])).ravel()
        assert found == Fraction(2**62, 3)
    x = tape.leaf(third)
    assert tape.backward(tape.matmul(x, large))[x][0] == 2**62
