"""Every operator and attribute against onnxruntime; and derivatives of what was read."""

from fractions import Fraction

import numpy as np
import pytest

import lunette as ln
from lunette.spec import Interval
from tests.onnx.cases import CASES
from tests.onnx.models import runtime, single

EXACT = ("Sigmoid", "Tanh", "Exp", "Log", "Softmax")
"""Operators that rational numbers have not."""


def shape_of(net):
    return net.inputs[0].shape


def point(net, seed=0):
    """Numbers with few digits and no ties."""
    generator = np.random.default_rng(seed)
    count = int(np.prod(shape_of(net)))
    return ((generator.permutation(count) - count / 2 + 0.25) / 16).reshape(shape_of(net))


@pytest.mark.parametrize("name", CASES)
def test_agrees_with_onnxruntime(name):
    net = ln.onnx.loads(CASES[name])
    for seed in range(3):
        x = point(net, seed).astype(np.float32)
        y, (expected,) = net(x), runtime(CASES[name], x)
        assert y.shape == expected.shape and y.dtype == expected.dtype
        assert np.allclose(y, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_float64_and_exact_numbers_and_intervals_agree(name):
    """The same network over other numbers: each value lies where the others say it does."""
    net = ln.onnx.loads(CASES[name])
    if int(np.prod(shape_of(net))) > 130:
        pytest.skip(
            "too many cells for plain loops; the operators of this case are in smaller ones"
        )
    x = point(net)
    y = net(x)
    assert y.dtype == np.float64
    boxes = net(np.vectorize(Interval, otypes=[object])(x))
    assert all(b.lo <= v <= b.hi for b, v in zip(boxes.flat, y.flat, strict=True))
    if not any(op in net.operators for op in EXACT):
        exact = net(np.vectorize(Fraction, otypes=[object])(x))
        assert exact.shape == y.shape
        assert all(type(v) is Fraction for v in exact.flat)
        assert np.allclose(exact.astype(float), y, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", CASES)
def test_derivatives_are_those_of_differences(name):
    net = ln.onnx.loads(CASES[name])
    if int(np.prod(shape_of(net))) > 130 or name == "Cast to integers":
        pytest.skip("large, or with jumps at these points")
    ln.tape.check_gradient(lambda tape, x: net(x), point(net), hessian=False)


def test_an_id_gives_an_id_and_the_tape_is_there():
    net = ln.onnx.loads(single("Relu", (2, 3)))
    tape = ln.Tape()
    x = tape.leaf(np.ones((2, 3), np.float32))
    y = net(x * 2)
    assert y.tape is tape and np.array_equal(y.value, np.full((2, 3), 2))
    recording = net.record(np.ones((2, 3), np.float32))
    assert recording.input.name == "x" and recording.output.shape == (2, 3)
    assert recording.decided == ()


def test_integers_that_the_input_decides_are_named():
    net = ln.onnx.loads(CASES["ArgMax"])
    assert any("Mul" in label for label in net.record(point(net).astype(np.float32)).decided)
    with pytest.raises(ln.spec.Undecided):
        net(np.full((3, 4), Interval(0, 1), object))


def test_an_average_over_fractions_is_exact():
    net = ln.onnx.loads(single("AveragePool", (1, 1, 3), kernel_shape=[3]))
    x = np.array([[[Fraction(1), Fraction(1), Fraction(2)]]], object)
    assert net(x)[0, 0, 0] == Fraction(4, 3)


@pytest.mark.parametrize("kind, dtype", [(11, np.float64), (10, np.float16)])
def test_other_float_types(kind, dtype):
    weight = np.linspace(-1, 1, 12).reshape(3, 4).astype(dtype)
    data = single("MatMul", (2, 3), weight, kind=kind)
    x = np.linspace(0, 1, 6).reshape(2, 3).astype(dtype)
    (expected,) = runtime(data, x)
    y = ln.onnx.loads(data)(x)
    assert y.dtype == dtype and np.allclose(y, expected, rtol=8 * np.finfo(dtype).eps, atol=1e-3)
