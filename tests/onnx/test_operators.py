"""Every operator and attribute against onnxruntime; and derivatives of what was read."""

import os
from fractions import Fraction

import numpy as np
import pytest

import lunette as ln
from lunette.spec import Interval
from tests.onnx.cases import CASES
from tests.onnx.models import parsed, runtime, single

EXACT = ("Sigmoid", "Tanh", "Exp", "Log", "Softmax")
"""Operators that rational numbers have not."""


SMALL = [
    name for name, data in CASES.items() if np.prod(ln.onnx.loads(data).inputs[0].shape) <= 130
]
"""Cases with few cells: exact numbers go through plain loops."""


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


@pytest.mark.parametrize("name", SMALL)
def test_float64_and_exact_numbers_and_intervals_agree(name):
    """The same network over other numbers: each value lies where the others say it does."""
    net = ln.onnx.loads(CASES[name])
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


@pytest.mark.parametrize("name", [name for name in SMALL if name != "Cast to integers"])
def test_derivatives_are_those_of_differences(name):
    net = ln.onnx.loads(CASES[name])
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


OPSETS = range(8, 23)


@pytest.mark.parametrize("opset", OPSETS)
def test_every_case_under_every_version(opset):
    """What onnxruntime reads under another version is read alike, or refused; most is read."""
    read = both = 0
    for name, data in CASES.items():
        made = parsed(data)
        made.opset_import[0].version = opset
        changed = made.SerializeToString()
        try:
            x = point(ln.onnx.loads(data)).astype(np.float32)
            (expected,) = runtime(changed, x)
        except Exception:
            continue  # no such operator, attribute or input in that version
        read += 1
        try:
            y = ln.onnx.loads(changed)(x)
        except ln.onnx.ReadError:
            continue
        both += 1
        assert y.shape == expected.shape, name
        assert np.allclose(y, expected, rtol=1e-5, atol=1e-6), name
    assert both >= 0.95 * read >= 50


WINDOWS = int(os.environ.get("LUNETTE_ONNX_CASES", "150"))


def random_window(generator):
    """A window operator with attributes at random, some of them left out."""

    def some(low, high, count=None):
        return generator.integers(low, high + 1, count)

    op = str(generator.choice(["Conv", "ConvTranspose", "MaxPool", "AveragePool"]))
    axes, opset = int(some(1, 2)), int(some(8, 22))
    sizes, kernel = some(1, 9, axes).tolist(), some(1, 4, axes).tolist()
    attributes = {"strides": some(1, 3, axes).tolist()}
    dilated = "Conv" in op or opset >= (10 if op == "MaxPool" else 19)
    if dilated and some(0, 1):
        attributes["dilations"] = some(1, 3, axes).tolist()
    mode = str(
        generator.choice(["NOTSET", "NOTSET", "NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"])
    )
    if mode != "NOTSET":
        attributes["auto_pad"] = mode
    elif some(0, 3):
        attributes["pads"] = some(0, 2, 2 * axes).tolist()
    if "Pool" in op:
        attributes["kernel_shape"] = kernel
        if opset >= 10 and some(0, 1):
            attributes["ceil_mode"] = 1
        if op == "AveragePool" and some(0, 1):
            attributes["count_include_pad"] = 1
        return single(op, (1, 2, *sizes), opset=opset, **attributes)
    group = int(generator.choice([1, 1, 2]))
    shape = (4, 2 // group) if op == "Conv" else (2, 3)
    out = 4 if op == "Conv" else 3 * group
    attributes["group"] = group
    if op == "ConvTranspose" and some(0, 1):
        attributes["output_padding"] = some(0, 1, axes).tolist()
    weight = generator.normal(size=(*shape, *kernel)).astype(np.float32)
    bias = [generator.normal(size=out).astype(np.float32)] if some(0, 1) else []
    return single(op, (1, 2, *sizes), weight, *bias, opset=opset, **attributes)


def test_windows_with_attributes_at_random():
    generator = np.random.default_rng(0)
    read = both = 0
    for number in range(WINDOWS):
        data = random_window(generator)
        x = generator.normal(size=[d.dim_value for d in parsed(data).graph.input[0].type.tensor_type.shape.dim])  # fmt: skip
        x = x.astype(np.float32)
        try:
            (expected,) = runtime(data, x)
        except Exception:
            continue
        read += 1
        try:
            y = ln.onnx.loads(data)(x)
        except ln.onnx.ReadError:
            continue
        both += 1
        node = parsed(data).graph.node[0]
        assert y.shape == expected.shape, (number, node)
        assert np.allclose(y, expected, rtol=1e-4, atol=1e-5), (number, node)
    assert both >= 0.7 * read >= 0.3 * WINDOWS
