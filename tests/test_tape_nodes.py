"""The tape seen from outside: ids, rules of one's own, pictures, release, threads."""

from __future__ import annotations

import copy
import gc
import pickle
import threading
import weakref
from fractions import Fraction
from xml.etree import ElementTree

import numpy as np
import pytest

import lunette as ln
from lunette.tape import RULES, Each, Rule, check_gradient, elementwise, functions, register
from tests.tape_cases import exact

pytestmark = pytest.mark.filterwarnings("ignore::lunette.SlowPathWarning")


# -- ids --


def test_ids_are_numbers_that_know_their_node():
    tape = ln.Tape()
    x = tape.leaf(np.ones((2, 3), np.float32), name="pixels")
    y = tape.neg(x)
    assert (x, y) == (0, 1) and int(y) == 1 and hash(y) == hash(1) and x < y
    assert {x: "a"}[0] == "a" and [10, 20][y] == 20
    assert (x.shape, x.dtype, x.name) == ((2, 3), np.float32, "pixels")
    assert repr(x) == "<0 pixels: (2, 3) float32>"
    assert tape.value(0) is tape.value(x) is x.value
    assert copy.deepcopy({x: 1}) == {x: 1}


def test_operators_record_nodes():
    tape = ln.Tape()
    a, b = tape.leaf(exact(1, 2)), tape.leaf(exact(3, 4))
    results = [a + b, a - b, a * b, a / b, a @ b, -a, 1 + a, 1 - a, 2 * a, 1 / a, a - 1, a / 2]
    expected = [
        [4, 6], [-2, -2], [3, 8], [Fraction(1, 3), Fraction(1, 2)], 11, [-1, -2],
        [2, 3], [0, -1], [2, 4], [1, Fraction(1, 2)], [0, 1], [Fraction(1, 2), 1],
    ]  # fmt: skip
    assert [tape.value(r).tolist() for r in results] == expected
    array = exact(10, 20)
    assert tape.value(array + a).tolist() == [11, 22]
    assert tape.value(array * a).tolist() == [10, 40]
    assert tape.value(array @ a) == 50
    assert type(tape.value(a * 0.5)[0]) is Fraction  # a float joins the exact numbers exactly


def test_numpy_functions_of_an_id_are_refused():
    tape = ln.Tape()
    x = tape.leaf(np.ones(2))
    for function in (np.exp, np.sqrt):
        with pytest.raises(TypeError):
            function(x)
    for operate in (lambda: x**2, lambda: x // 2, lambda: x % 2, lambda: 2**x):
        with pytest.raises(TypeError, match="no such op"):
            operate()
    with pytest.raises(TypeError, match="belongs to its tape"):
        pickle.dumps(x)


# -- a rule of one's own --


@pytest.fixture
def rules():
    before = dict(RULES)
    yield
    RULES.clear()
    RULES.update(before)


def test_a_registered_op_has_every_derivative(rules):
    register(
        "swish",
        elementwise(
            lambda x: x * functions.sigmoid(x),
            jvp=lambda t, out, x: t * slope(out, x),
            vjp=lambda g, out, x: g * slope(out, x),
        ),
    )

    def slope(out, x):
        s = functions.sigmoid(x)
        return s + out - out * s

    tape = ln.Tape()
    assert tape.value(tape.swish(tape.leaf(np.zeros(2)))).tolist() == [0, 0]
    check_gradient(lambda t, x: t.apply("swish", x), np.linspace(-3, 3, 7))


def test_a_rule_with_options_and_numpy_functions(rules):
    register(
        "softplus",
        Rule(
            shape=lambda x, sharpness: x,
            forward=lambda x, sharpness: np.log(1 + np.exp(sharpness * x)) / sharpness,
            jvp=lambda t, out, x, sharpness: t / (1 + np.exp(-sharpness * x)),
            vjp=lambda g, out, x, sharpness: g / (1 + np.exp(-sharpness * x)),
        ),
    )
    check_gradient(lambda t, x: t.softplus(x, sharpness=2.0), np.linspace(-1, 1, 5))


def test_a_rule_of_any_number_of_operands(rules):
    register(
        "total",
        Rule(
            shape=lambda *shapes: shapes[0],
            forward=lambda *inputs: sum(inputs[1:], inputs[0]),
            jvp=Each(lambda i, t, out, *inputs: t),
            vjp=Each(lambda i, g, out, *inputs: g),
        ),
    )
    check_gradient(lambda t, a, b, c: t.total(a, b, c), *(exact(1, 2) for _ in range(3)))


def test_a_rule_with_a_wrong_gradient_is_found(rules):
    register(
        "cube",
        elementwise(
            lambda x: x * x * x,
            jvp=lambda t, out, x: t * (x * x) * 3,
            vjp=lambda g, out, x: g * (x * x) * 2,
        ),
    )
    with pytest.raises(AssertionError, match="adjoint"):
        check_gradient(lambda t, x: t.cube(x), exact(1, 2))


def test_a_rule_that_gives_a_wrong_shape_is_found(rules):
    register(
        "bad",
        Rule(
            shape=lambda x: x,
            forward=lambda x: x,
            jvp=lambda t, out, x: t,
            vjp=lambda g, out, x: g.sum(),
        ),
    )
    tape = ln.Tape()
    y = tape.bad(tape.leaf(np.ones(3)))
    with pytest.raises(ValueError, match=r"vjp of node 1 'bad'.*shape \(\); expected \(3,\)"):
        tape.backward(y, np.ones(3))


# -- looking, releasing, threads --


def network():
    tape = ln.Tape()
    x = tape.leaf(np.ones((2, 1, 4, 4)), "images", requires_grad=False)
    k = tape.leaf(np.ones((2, 1, 3, 3)), 'kernel "k" <&>')
    h = tape.max_pool(tape.relu(tape.conv(k, None, x)), kernel=(2, 2), stride=1, padding=0)
    w = tape.leaf(np.ones((3, 2)), "weights")
    loss = tape.softmax_cross_entropy(tape.linear(tape.flatten(h), w), np.array([0, 2]))
    return tape, loss + tape.mean(k * k)


def test_print_gives_a_table():
    tape, _ = network()
    text = str(tape)
    lines = text.splitlines()
    assert lines[0].split() == ["node", "name", "op", "from", "shape", "dtype", "bytes"]
    assert len(lines) == len(tape) + 4
    assert lines[2].split() == ["0", "images", "·", "leaf", "2×1×4×4", "float64", "256", "B"]
    assert "MaxPool((2, 2), stride=1)" in text and "view" in text
    assert f"{len(tape)} nodes" in lines[-1] and f"{tape.nbytes} B" in lines[-1]
    assert repr(tape) == f"<Tape of {len(tape)} nodes, {tape.nbytes} B>"


def test_nbytes_counts_every_value_once():
    tape = ln.Tape()
    x = tape.leaf(np.ones((2, 3)))
    tape.transpose(tape.reshape(x, (3, 2)))
    tape.exp(x)
    assert tape.nbytes == 2 * 48


def test_the_picture_is_one_svg_file_with_every_node(tmp_path):
    tape, _ = network()
    tape.draw(tmp_path / "net.svg")
    root = ElementTree.parse(tmp_path / "net.svg").getroot()
    texts = ["".join(e.itertext()) for e in root.iter() if e.tag.endswith("text")]
    assert {f"{n} {tape._nodes[n].name}" for n in range(len(tape))} <= set(texts)
    boxes = [
        tuple(float(e.get(k)) for k in ("x", "y", "width", "height"))
        for e in root.iter()
        if e.tag.endswith("rect") and e.get("x") is not None
    ]
    assert len(boxes) == len(tape)
    width, height = float(root.get("width")), float(root.get("height"))
    for i, (x, y, w, h) in enumerate(boxes):
        assert x >= 0 and x + w <= width and y + h <= height
        for x2, y2, w2, h2 in boxes[:i]:
            assert x + w <= x2 or x2 + w2 <= x or y + h <= y2 or y2 + h2 <= y
    with pytest.raises(ValueError, match=r"\.svg"):
        tape.draw(tmp_path / "net.png")


def test_an_empty_tape_can_be_looked_at(tmp_path):
    tape = ln.Tape()
    tape.draw(tmp_path / "empty.svg")
    assert "0 nodes" in str(tape) and "digraph" in tape.to_dot() and tape


def test_dot_has_every_arrow():
    tape, _ = network()
    text = tape.to_dot()
    assert text.startswith("digraph tape {") and text.rstrip().endswith("}")
    arrows = [line for line in text.splitlines() if "->" in line]
    assert len(arrows) == sum(len(node.parents) for node in tape._nodes)
    assert '\\"k\\"' in text


def test_release_frees_the_values():
    value = np.ones(1000)
    freed = weakref.ref(value)
    with ln.Tape() as tape:
        x = tape.leaf(value)
        y = tape.exp(x)
    del value
    gc.collect()
    assert freed() is None
    assert y.shape == (1000,) and "released" in str(tape) and tape.nbytes == 0
    for use in (
        lambda: tape.value(x),
        lambda: tape.backward(y),
        lambda: tape.jvp(y, {}),
        lambda: tape.hvp(y, {}),
        lambda: tape.leaf(1.0),
        lambda: tape.exp(x),
        lambda: x + 1,
        tape.__enter__,
    ):
        with pytest.raises(RuntimeError, match="released"):
            use()
    tape.release()


def test_threads_may_take_derivatives_of_one_tape():
    tape = ln.Tape()
    x = tape.leaf(np.linspace(0, 1, 500))
    y = x
    for _ in range(20):
        y = tape.tanh(y * x)
    out = tape.sum(y)
    expected = tape.backward(out)[x]
    results = []
    threads = [
        threading.Thread(target=lambda: results.append(tape.backward(out)[x])) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 8 and all(np.array_equal(r, expected) for r in results)
