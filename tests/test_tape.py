"""The tape by hand-worked examples: gradients that add up, paths, empty batches, tensors."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import lunette as ln
from tests.tape_cases import exact

pytestmark = pytest.mark.filterwarnings("ignore::lunette.SlowPathWarning")


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
    x = tape.leaf(exact(0, 0, 2, 1).reshape(1, 2, 2))
    y = tape.max_pool2d(x, kernel=(2, 2), stride=2)
    assert tape.value(y).tolist() == [[[2]]]
    assert tape.backward(y)[x].tolist() == [[[0, 0], [1, 0]]]


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


def test_a_convolution_computes_no_gradient_that_nobody_needs(monkeypatch):
    from lunette.kernels.cpu import convolution

    asked = []
    vjp_of = convolution.vjp_of
    monkeypatch.setattr(convolution, "vjp_of", lambda *a: asked.append(a[3]) or vjp_of(*a))
    generator = np.random.default_rng(0)
    arrays = [generator.normal(size=s) for s in ((2, 1, 3, 3), (2,), (1, 1, 5, 5))]
    everything = []
    for needs in [
        (True, True, True),
        (True, True, False),
        (False, True, False),
        (False, False, True),
    ]:
        tape = ln.Tape()
        ids = [tape.leaf(a, requires_grad=n) for a, n in zip(arrays, needs, strict=True)]
        gradients = tape.backward(tape.sum(tape.conv(*ids)))
        everything = everything or [gradients[i] for i in ids]
        for i, needed, expected in zip(ids, needs, everything, strict=True):
            assert (i in gradients) == needed
            assert not needed or np.array_equal(gradients[i], expected)
    kernel, bias, x = 1, 2, 0  # the op's operands are x, the kernel and the bias
    assert [(a[kernel], a[bias], a[x]) for a in asked[1:]] == [
        (True, True, False),
        (False, True, False),
        (False, False, True),
    ]


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
