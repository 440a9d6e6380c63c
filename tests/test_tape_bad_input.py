"""What a tape refuses: before anything is computed, with the node, the op and the shapes named."""

from __future__ import annotations

import re
from fractions import Fraction

import numpy as np
import pytest

import lunette as ln
from lunette.tape import RULES, Rule, check_gradient, elementwise, register

pytestmark = pytest.mark.filterwarnings("ignore::lunette.SlowPathWarning")


@pytest.fixture
def tape():
    return ln.Tape()


def ones(*shape):
    return np.ones(shape)


SHAPES = [
    # op, operands' shapes, what the message says besides
    ("add", [(2, 3), (4,)], "lengths 3 and 4"),
    ("mul", [(2, 3), (2,)], "broadcast"),
    ("div", [(0, 3), (2, 3)], "lengths 0 and 2"),
    ("matmul", [(2, 3), (4, 2)], "3 is not 4"),
    ("matmul", [(2, 2, 3), (5, 3, 2)], "broadcast"),
    ("matmul", [(), (3,)], "at least one axis"),
    ("linear", [(2, 3), (4, 2)], "last axis of 2"),
    ("linear", [(2, 3), (3,)], r"\(out, in\)"),
    ("linear", [(2, 3), (4, 3), (3,)], r"bias of shape \(3,\): expected \(4,\)"),
    ("mse", [(2, 3), (2, 1)], "one shape for both"),
    ("softmax_cross_entropy", [(2, 3), (3,)], r"labels of shape \(2,\)"),
    ("softmax_cross_entropy", [(2, 0), (2,)], "at least one class"),
]


@pytest.mark.parametrize(("op", "shapes", "message"), SHAPES)
def test_shapes_that_do_not_fit_name_node_op_and_shapes(tape, op, shapes, message, monkeypatch):
    ids = [tape.leaf(ones(*shape), f"leaf{i}") for i, shape in enumerate(shapes)]
    rule = RULES[op]
    quiet = Rule(rule.shape, lambda *args, **options: pytest.fail("computed"), (), ())
    monkeypatch.setitem(RULES, op, quiet)
    with pytest.raises(ValueError, match=message) as error:
        tape.apply(op, *ids, name="mine")
    text = str(error.value)
    assert f"node {len(ids)} 'mine', {op} of" in text
    for i, shape in enumerate(shapes):
        assert f"{i} 'leaf{i}' of shape {shape}" in text
    assert len(tape) == len(ids)


def test_a_window_that_does_not_fit(tape):
    x = tape.leaf(ones(1, 2, 2), "image")
    with pytest.raises(
        ValueError, match=r"node 1 'max_pool', MaxPool.*0 'image' of shape \(1, 2, 2\)"
    ):
        tape.max_pool(x, kernel=(3, 3), stride=1, padding=0)


CONVOLUTIONS = [
    # kernel, bias, x, options, message
    ((4, 3, 3, 3), None, (2, 8, 8), {}, "3 channels on axis 1; expected 2"),
    ((4, 1, 3, 3), None, (3, 8, 8), {"groups": 2}, "multiple of groups=2"),
    ((3, 1, 3, 3), None, (2, 8, 8), {"groups": 2}, "multiple of groups=2"),
    ((4, 2, 3, 3), (3,), (2, 8, 8), {}, r"bias has shape \(3,\); expected \(4,\)"),
    ((4, 2, 3, 3), None, (8, 8), {}, "needs x of shape"),
    ((4, 2), None, (2, 8, 8), {}, "two axes of channels"),
    ((4, 2, 9, 9), None, (2, 8, 8), {}, "node 2 'conv'"),
    ((4, 2, 3, 3), None, (2, 8, 8), {"stride": 0}, "stride=0"),
    ((4, 2, 3, 3), None, (2, 8, 8), {"padding": -1}, "padding=-1"),
]


@pytest.mark.parametrize(("kernel", "bias", "x", "options", "message"), CONVOLUTIONS)
def test_convolutions_that_do_not_fit(tape, kernel, bias, x, options, message):
    kernel, x = tape.leaf(ones(*kernel)), tape.leaf(ones(*x))
    bias = None if bias is None else tape.leaf(ones(*bias))
    with pytest.raises(ValueError, match=message):
        tape.conv(kernel, bias, x, **options)


def test_output_padding_is_smaller_than_stride_or_dilation(tape):
    kernel, x = tape.leaf(ones(2, 1, 3)), tape.leaf(ones(2, 4))
    with pytest.raises(ValueError, match="output_padding=2"):
        tape.conv_transpose(kernel, None, x, stride=2, output_padding=2)


def test_two_axes_are_asked_of_the_2d_methods(tape):
    kernel, x = tape.leaf(ones(2, 1, 3)), tape.leaf(ones(1, 4))
    for method in (tape.conv2d, tape.conv_transpose2d):
        with pytest.raises(ValueError, match="2 axes of the kernel"):
            method(kernel, None, x, stride=1, padding=0)
    with pytest.raises(ValueError, match="two sizes"):
        tape.max_pool2d(x, kernel=(2,), stride=1)


# -- ids --


def test_ids_that_do_not_exist(tape):
    tape.leaf(ones(2))
    for bad in (1, -1, 99):
        for use in (tape.value, tape.exp, tape.backward, lambda i: tape.jvp(i, {})):
            with pytest.raises(
                ValueError, match=re.escape(f"no node {bad} on this tape; it has 1")
            ):
                use(bad)
    with pytest.raises(ValueError, match="no node True"):
        tape.value(True)
    for bad in ("0", None, 0.0):
        with pytest.raises(TypeError, match="expected an id"):
            tape.value(bad)


def test_an_id_of_another_tape(tape):
    other = ln.Tape()
    mine, theirs = tape.leaf(ones(2)), other.leaf(ones(2), "theirs")
    for use in (
        lambda: tape.value(theirs),
        lambda: tape.exp(theirs),
        lambda: mine + theirs,
        lambda: tape.add(mine, theirs),
        lambda: tape.backward(theirs, ones(2)),
        lambda: tape.jvp(mine, {theirs: ones(2)}),
        lambda: tape.backward(mine, ones(2), keep=[theirs]),
    ):
        with pytest.raises(ValueError, match="belongs to another tape"):
            use()
    with pytest.raises(TypeError, match="is a node already"):
        tape.leaf(mine)
    assert mine != theirs


def test_operands_are_ids_or_arrays(tape):
    x = tape.leaf(ones(2))
    for bad in (2.0, "x", None, [1.0, 2.0]):
        with pytest.raises(TypeError, match="expected an id or an array"):
            tape.add(x, bad)
    for bad in ("x", None, [1.0]):
        with pytest.raises(TypeError, match="expected a number"):
            x + bad
    with pytest.raises(TypeError, match="expected 2 operands, got 1"):
        tape.apply("add", x)
    with pytest.raises(ValueError, match=r"op='nothing'.*softmax_cross_entropy"):
        tape.apply("nothing", x)
    with pytest.raises(AttributeError, match="nothing"):
        tape.nothing(x)
    assert len(tape) == 1


def test_a_failed_node_leaves_no_constant_behind(tape):
    x = tape.leaf(ones(2))
    with pytest.raises(ValueError, match="broadcast"):
        tape.add(x, ones(3))
    with pytest.raises(ValueError, match="labels 5 … 5"):
        tape.softmax_cross_entropy(tape.reshape(x, (1, 2)), np.array([5]))
    assert len(tape) == 2


# -- values --


def test_leaves_are_numbers(tape):
    for bad in (np.array(["a"]), np.array([1j]), np.array([object()], object)):
        with pytest.raises(TypeError):
            tape.leaf(bad)
    with pytest.raises(TypeError, match="masked"):
        tape.leaf(np.ma.masked_array([1.0], [True]))
    with pytest.raises(TypeError, match="requires_grad"):
        tape.leaf(1.0, requires_grad=1)
    with pytest.raises(TypeError, match="name"):
        tape.leaf(1.0, name=3)
    assert len(tape) == 0


def test_floats_do_not_slip_among_exact_numbers(tape):
    x = tape.leaf(np.array([Fraction(1, 3)], object))
    with pytest.raises(TypeError, match=r"node 2 'add'.*floats among exact numbers"):
        x + np.array([0.1])


def test_labels(tape):
    logits = tape.leaf(ones(2, 3))
    for bad in ([0, 3], [-1, 0]):
        with pytest.raises(ValueError, match=r"expected 0 … 2, for 3 classes"):
            tape.softmax_cross_entropy(logits, np.array(bad))
    with pytest.raises(TypeError, match="labels are integers"):
        tape.softmax_cross_entropy(logits, np.array([0.0, 1.0]))


def test_axes_and_shapes(tape):
    x = tape.leaf(ones(2, 3))
    for call, message in [
        (lambda: tape.sum(x, axis=2), "axis 2 does not exist"),
        (lambda: tape.mean(x, axis=-3), "axis=-3"),
        (lambda: tape.sum(x, axis=(0, -2)), "each axis once"),
        (lambda: tape.reshape(x, (4, -1)), r"node 1 'reshape'.*does not hold the 6 elements"),
        (lambda: tape.reshape(x, (-1, -1)), "at most one -1"),
        (lambda: tape.reshape(x, (0, -1)), "does not hold"),
        (lambda: tape.transpose(x, (0,)), "all 2 axes"),
        (lambda: tape.transpose(x, (0, 0)), "each axis once"),
        (lambda: tape.flatten(x, 3), "start=3"),
        (lambda: tape.concatenate([x, x], axis=2), "axis 2 does not exist"),
        (lambda: tape.concatenate([x, tape.leaf(ones(3, 2))], axis=0), "every axis but 0"),
    ]:
        with pytest.raises(ValueError, match=message):
            call()
    for call, message in [
        (lambda: tape.sum(x, axis=0.5), "expected an integer"),
        (lambda: tape.sum(x, keepdims=1), "keepdims=1"),
        (lambda: tape.reshape(x, (2.0, 3)), "expected an integer"),
        (lambda: tape.concatenate([]), "at least one id"),
        (lambda: tape.concatenate(x), "expected a list"),
    ]:
        with pytest.raises(TypeError, match=message):
            call()


# -- derivatives --


def test_gradients_and_tangents_of_the_wrong_shape(tape):
    x = tape.leaf(ones(2, 3), "x")
    y = tape.exp(x)
    with pytest.raises(ValueError, match=r"node 1 'exp' has shape \(2, 3\): pass grad"):
        tape.backward(y)
    with pytest.raises(
        ValueError, match=r"grad of node 1 'exp' has shape \(3,\); expected \(2, 3\)"
    ):
        tape.backward(y, ones(3))
    with pytest.raises(ValueError, match=r"tangent of node 0 'x' has shape \(2, 1\)"):
        tape.jvp(y, {x: ones(2, 1)})
    with pytest.raises(ValueError, match="is no leaf"):
        tape.jvp(y, {y: ones(2, 3)})
    with pytest.raises(ValueError, match=r"tangent of node 0 'x'"):
        tape.hvp(y, {x: ones(1)}, ones(2, 3))
    with pytest.raises(TypeError, match="dict"):
        tape.jvp(y, [x])
    with pytest.raises(TypeError, match="holds objects"):
        tape.backward(y, np.full((2, 3), Fraction(1), object))
    with pytest.raises(TypeError, match="complex"):
        tape.backward(y, np.full((2, 3), 1j))


def test_an_output_without_a_gradient(tape):
    whole = tape.leaf(np.array([1, 2, 3]))
    data = tape.leaf(ones(1), requires_grad=False)
    for out in (tape.sum(whole), tape.mean(whole), tape.exp(data)):
        with pytest.raises(ValueError, match="no leaf that requires a gradient"):
            tape.backward(out)
    with pytest.raises(TypeError, match="no tangent"):
        tape.jvp(whole, {whole: np.array([1, 1, 1])})


def test_rules_that_cannot_be(tape):
    good = elementwise(lambda x: x, jvp=lambda t, out, x: t, vjp=lambda g, out, x: g)
    for name in ("add", "backward", "conv"):
        with pytest.raises(ValueError, match="already"):
            register(name, good)
    with pytest.raises(ValueError, match="Python name"):
        register("two words", good)
    with pytest.raises(TypeError, match=r"expected a lunette\.tape\.Rule"):
        register("fresh", lambda x: x)
    with pytest.raises(TypeError, match="one function per operand"):
        Rule(lambda x: x, lambda x: x, jvp=[1], vjp=[None])
    with pytest.raises(ValueError, match="no value requires a gradient"):
        check_gradient(lambda t, x: t.neg(x), np.array([1]))


LONG = 10**5000
ENDLESS = iter(int, 1)


class Endless(list):
    """Its own way to iterate has no end."""

    def __iter__(self):
        return iter(int, 1)


@pytest.mark.parametrize(
    "call, word",
    [
        (lambda tape, x: tape.add(x, LONG), "node"),
        (lambda tape, x: tape.value(LONG), "node"),
        (lambda tape, x: tape.leaf(ones(2), LONG), "name"),
        (lambda tape, x: tape.apply(LONG, x), "op"),
        (lambda tape, x: tape.jvp(x, LONG), "tangents"),
        (lambda tape, x: tape.backward(x, ones(2), keep=ENDLESS), "keep"),
        (lambda tape, x: tape.backward(x, ones(2), keep=0), "keep"),
        (lambda tape, x: tape.concatenate(LONG), "operands"),
        (lambda tape, x: tape.concatenate([x], range(2)), "axis"),
        (lambda tape, x: tape.concatenate([x], LONG), "axis"),
        (lambda tape, x: tape.sum(x, range(10**12)), "axis"),
        (lambda tape, x: tape.transpose(x, range(10**12)), "axes"),
        (lambda tape, x: tape.reshape(x, (1,) * 100_000), "shape"),
        (lambda tape, x: tape.flatten(x, name=ones(2)), "name"),
        (lambda tape, x: tape.draw(ENDLESS), "path"),
        (lambda tape, x: tape.take(x, np.ma.array([0, 1], mask=[True, False])), "index"),
    ],
)
def test_whatever_is_given_is_refused_by_name(tape, call, word):
    x = tape.leaf(ones(2))
    with pytest.raises((ValueError, TypeError), match=rf"\b{word}\b") as caught:
        call(tape, x)
    assert len(str(caught.value)) < 500


def test_a_list_is_what_it_holds(tape):
    x = tape.leaf(ones(2))
    assert tape.value(tape.concatenate(Endless([x, x]))).shape == (4,)
    assert tape.value(tape.sum(x, Endless([0]))) == 2
    assert set(tape.backward(tape.sum(x), keep=Endless([x]))) == {x}
    assert tape.jvp(Endless([x]), {x: ones(2)})[0].shape == (2,)
