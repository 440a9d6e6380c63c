"""The tape by hand-worked examples: ids, gradients that add up, paths, release, looks."""

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

pytestmark = pytest.mark.filterwarnings("ignore::lunette.SlowPathWarning")


def exact(*numbers):
    return np.array([Fraction(n) for n in numbers], object)


# -- gradients --


def test_a_product_by_hand():
    tape = ln.Tape()
    a, b = tape.leaf(np.array(3.0)), tape.leaf(np.array(4.0))
    c = a * b + a
    gradients = tape.backward(c)
    assert tape.value(c) == 15.0
    assert gradients == {a: 5.0, b: 3.0}


def test_a_value_used_twice_adds_up():
    tape = ln.Tape()
    x = tape.leaf(exact(2, -3))
    y = x * x + x + x
    assert list(tape.backward(y, exact(1, 10))[x]) == [6, -40]


def test_the_winner_of_a_window_takes_the_gradient():
    # The window [[0, 0], [2, 1]] sees a wrong argmax that a ramp does not.
    tape = ln.Tape()
    x = tape.leaf(np.array([[[0.0, 0.0], [2.0, 1.0]]]))
    y = tape.max_pool2d(x, kernel=(2, 2), stride=2)
    assert tape.value(y).tolist() == [[[2.0]]]
    assert tape.backward(y)[x].tolist() == [[[0.0, 0.0], [1.0, 0.0]]]


def test_a_convolution_by_hand():
    tape = ln.Tape()
    kernel = tape.leaf(exact(1, 2).reshape(1, 1, 2))
    bias = tape.leaf(exact(5))
    x = tape.leaf(exact(1, 0, 3).reshape(1, 3))
    y = tape.conv(kernel, bias, x, stride=1, padding=0)
    assert tape.value(y).tolist() == [[6, 11]]
    gradients = tape.backward(y, exact(1, 100).reshape(1, 2))
    assert gradients[kernel].ravel().tolist() == [1, 300]
    assert gradients[bias].tolist() == [101]
    assert gradients[x].tolist() == [[1, 102, 200]]


def test_a_smooth_max_has_its_softmax_as_gradient():
    tape = ln.Tape()
    x = tape.leaf(np.array([[0.0, np.log(3.0)]]))
    y = tape.smooth_max_pool(x, 1.0, kernel=(2,), stride=2, padding=0)
    assert np.allclose(tape.value(y), np.log(4.0))
    assert np.allclose(tape.backward(y)[x], [[0.25, 0.75]])


def test_the_hessian_of_a_cube_by_hand():
    tape = ln.Tape()
    x, y = tape.leaf(exact(2)), tape.leaf(exact(5))
    out = tape.sum(x * x * x * y)
    # H = [[6xy, 3x²], [3x², 0]] = [[60, 12], [12, 0]]
    along_x = tape.hvp(out, {x: exact(1)})
    along_both = tape.hvp(out, {x: exact(1), y: exact(2)})
    assert (along_x[x][0], along_x[y][0]) == (60, 12)
    assert (along_both[x][0], along_both[y][0]) == (84, 12)


def test_a_max_is_locally_linear_for_hvp():
    tape = ln.Tape()
    x = tape.leaf(exact(1, 4))
    y = tape.max_pool(x * x, kernel=(2,), stride=2, padding=0)
    assert tape.hvp(y, {x: exact(7, 1)})[x].tolist() == [0, 2]
    z = tape.max_pool(x, kernel=(2,), stride=2, padding=0)
    assert tape.hvp(z, {x: exact(7, 1)})[x].tolist() == [0, 0]


def test_jvp_of_several_outputs_at_once():
    tape = ln.Tape()
    x, other = tape.leaf(exact(2, 3)), tape.leaf(exact(1))
    double, square = 2 * x, x * x
    dy, dz, dw = tape.jvp([double, square, other], {x: exact(1, 10)})
    assert (list(dy), list(dz), list(dw)) == ([2, 20], [4, 60], [0])


def test_nodes_that_need_no_gradient_are_skipped():
    tape = ln.Tape()
    data = tape.leaf(np.ones(3), requires_grad=False)
    weight = tape.leaf(np.ones(3))
    computed = tape.exp(data)
    out = tape.sum(computed * weight)
    assert set(tape.backward(out)) == {weight}
    assert set(tape.backward(out, keep=[computed])) == {weight}


def test_a_node_off_the_path_has_no_entry():
    tape = ln.Tape()
    a, b = tape.leaf(np.ones(2)), tape.leaf(np.ones(2))
    out = tape.sum(a)
    tape.sum(a * b)
    assert set(tape.backward(out)) == {a}


def test_intermediate_gradients_are_kept_on_request():
    tape = ln.Tape()
    a = tape.leaf(exact(3))
    square = a * a
    out = square * 5
    gradients = tape.backward(out, keep=[square, out])
    assert {k: v[0] for k, v in gradients.items()} == {a: 30, square: 5, out: 1}


def test_backward_leaves_the_tape_as_it_was():
    tape = ln.Tape()
    a = tape.leaf(exact(3))
    out = a * a
    assert tape.backward(out)[a] == tape.backward(out)[a] == 6
    assert tape.backward(out, exact(0))[a] == 0


def test_gradients_share_no_memory():
    tape = ln.Tape()
    a, b, c = (tape.leaf(np.ones(3)) for _ in range(3))
    out = a + b
    grad = np.ones(3)
    gradients = tape.backward(out, grad)
    gradients[a] += 1
    assert gradients[b].tolist() == grad.tolist() == [1, 1, 1]
    gradients = tape.backward(tape.sum(c))
    gradients[c] += 1  # a sum's gradient is stretched, but what is returned may be written
    move = np.ones(3)
    tangent = tape.jvp(c, {c: move})
    tangent += 1
    assert move.tolist() == [1, 1, 1]


def test_an_empty_batch_gives_empty_results_and_zero_gradients():
    tape = ln.Tape()
    x = tape.leaf(np.zeros((0, 1, 4, 4)))
    kernel, bias = tape.leaf(np.ones((2, 1, 3, 3))), tape.leaf(np.ones(2))
    weight = tape.leaf(np.ones((3, 2)))
    h = tape.max_pool(tape.relu(tape.conv(kernel, bias, x)), kernel=(2, 2), stride=2, padding=0)
    loss = tape.softmax_cross_entropy(tape.linear(tape.flatten(h), weight), np.zeros(0, int))
    gradients = tape.backward(loss)
    assert h.shape == (0, 2, 1, 1) and tape.value(loss) == 0
    assert {k: (v.shape, float(abs(v).sum())) for k, v in gradients.items()} == {
        n: (n.shape, 0.0) for n in (x, kernel, bias, weight)
    }


def test_an_empty_batch_of_exact_numbers_keeps_their_number_system():
    tape = ln.Tape()
    x, weight = tape.leaf(np.zeros((0, 2), object)), tape.leaf(exact(1, 2, 3, 4).reshape(2, 2))
    out = tape.sum(tape.linear(x, weight))
    assert [type(v) for v in tape.backward(out)[weight].flat] == [Fraction] * 4


def test_nan_in_weights_travels():
    tape = ln.Tape()
    x, kernel = tape.leaf(np.ones((1, 3))), tape.leaf(np.array([[[np.nan, 1.0]]]))
    y = tape.relu(tape.conv(kernel, None, x))
    assert np.isnan(tape.value(y)).all()
    assert np.isnan(tape.backward(tape.sum(y * y))[x]).any()


def test_extreme_floats_stay_finite():
    tape = ln.Tape()
    x = tape.leaf(np.array([-1000.0, -40.0, 0.0, 1000.0]))
    with np.errstate(all="raise", under="ignore"):
        s = tape.sigmoid(x)
        loss = tape.softmax_cross_entropy(tape.reshape(x, (1, 4)), np.array([1]))
        gradient = tape.backward(loss)[x]
        tape.backward(tape.sum(s))
    assert tape.value(s)[1] == pytest.approx(np.exp(-40.0), rel=1e-15)  # not rounded off to 0
    assert tape.value(loss) == 1040.0
    assert gradient.tolist() == [0.0, -1.0, 0.0, 1.0]


def test_a_large_label_set_is_a_softmax():
    generator = np.random.default_rng(0)
    z, labels = generator.normal(size=(5, 7)), generator.integers(0, 7, 5)
    tape = ln.Tape()
    logits = tape.leaf(z)
    loss = tape.softmax_cross_entropy(logits, labels)
    softmax = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    assert tape.value(loss) == pytest.approx(-np.log(softmax[range(5), labels]).mean())
    assert np.allclose(tape.backward(loss)[logits], (softmax - np.eye(7)[labels]) / 5)


# -- torch's tensors travel through the same rules --


def test_tensors_in_tensors_out():
    import torch

    generator = np.random.default_rng(0)
    arrays = [generator.normal(size=s) for s in ((4, 3), (5, 3), (5,), (4, 5))]

    def program(tape, x, w, b, target):
        h = tape.tanh(tape.linear(x, w, b))
        h = tape.concatenate([tape.sigmoid(h), tape.relu(h), h - 0.5], axis=1)
        h = tape.reshape(tape.transpose(h), (3, 5, 4)) / 2
        h = tape.transpose(tape.mean(h, axis=0)) @ tape.exp(tape.leaf(target.value.T))
        return tape.softmax_cross_entropy(h, target.value.argmax(1)[:4] % 4) + tape.mse(h, h * h)

    results = []
    for convert in (np.asarray, torch.from_numpy):
        tape = ln.Tape()
        ids = [tape.leaf(convert(a.copy())) for a in arrays]
        out = program(tape, *ids)
        moves = {i: convert(np.cos(a)) for i, a in zip(ids, arrays, strict=True)}
        gradients, products = tape.backward(out), tape.hvp(out, moves)
        kind = type(tape.value(ids[0]))
        assert all(type(v) is kind for v in [*gradients.values(), *products.values()])
        results.append([tape.value(out), tape.jvp(out, moves)])
        results[-1] += [g[i] for g in (gradients, products) for i in ids[:3]]
    for a, b in zip(*results, strict=True):
        assert np.allclose(a, np.asarray(b), rtol=1e-12, atol=1e-14)


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
    x = tape.leaf(np.ones((2, 1, 4, 4), np.float32), "images", requires_grad=False)
    k = tape.leaf(np.ones((2, 1, 3, 3), np.float32), 'kernel "k" <&>')
    h = tape.max_pool(tape.relu(tape.conv(k, None, x)), kernel=(2, 2), stride=1, padding=0)
    w = tape.leaf(np.ones((3, 2), np.float32), "weights")
    loss = tape.softmax_cross_entropy(tape.linear(tape.flatten(h), w), np.array([0, 2]))
    return tape, loss + tape.mean(k * k)


def test_print_gives_a_table():
    tape, _ = network()
    text = str(tape)
    lines = text.splitlines()
    assert lines[0].split() == ["node", "name", "op", "from", "shape", "dtype", "bytes"]
    assert len(lines) == len(tape) + 4
    assert lines[2].split() == ["0", "images", "·", "leaf", "2×1×4×4", "float32", "128", "B"]
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
