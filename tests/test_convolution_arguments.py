"""Convolution: what is refused, and that edges (empty batches, NaN) are served."""

import pickle

import numpy as np
import pytest

import lunette as ln


def ones(*shape, dtype=np.float64):
    return np.ones(shape, dtype)


BAD_OPS = [
    (lambda: ln.Conv(3), TypeError, r"kernel=3: expected a tuple"),
    (lambda: ln.Conv(()), ValueError, r"kernel=\(\)"),
    (lambda: ln.Conv((0,)), ValueError, r"kernel=0 on axis 0"),
    (lambda: ln.Conv((3,), stride=0), ValueError, r"stride=0"),
    (lambda: ln.Conv((3,), stride=None), TypeError, r"stride=None"),
    (lambda: ln.Conv((3, 3), stride=(1,)), ValueError, r"stride=\(1,\).*2 of them"),
    (lambda: ln.Conv((3,), padding=-1), ValueError, r"padding=-1"),
    (lambda: ln.Conv((3,), padding="full"), ValueError, r"padding='full'"),
    (lambda: ln.Conv((3,), dilation=0), ValueError, r"dilation=0"),
    (lambda: ln.Conv((3,), groups=0), ValueError, r"groups=0"),
    (lambda: ln.Conv((3,), groups=2.0), TypeError, r"groups=2.0"),
    (lambda: ln.ConvTranspose((3,), output_padding=1), ValueError, r"output_padding=1 on axis 0"),
    (
        lambda: ln.ConvTranspose((3, 3), (3, 2), 0, (2, 2)),
        ValueError,
        r"output_padding=2 on axis 1: expected less than the stride 2 or the dilation 1",
    ),
    (lambda: ln.ConvTranspose((3,), 2, 0, -1), ValueError, r"output_padding=-1"),
    (lambda: ln.ConvTranspose((3,), padding="same"), ValueError, r"padding='same'"),
]


@pytest.mark.parametrize("make, error, message", BAD_OPS)
def test_a_bad_op_is_refused_when_made(make, error, message):
    with pytest.raises(error, match=message):
        make()


C, T = ln.Conv((3,)), ln.ConvTranspose((3,))
G, TG = ln.Conv((3,), groups=2), ln.ConvTranspose((3,), groups=2)
BAD_OPERANDS = [
    (C, [(2, 4, 9)], TypeError, r"takes x, weight and maybe a bias; got 1"),
    (C, [(2, 4, 9), (5, 4, 3), (5,), (5,)], TypeError, r"got 4 operands"),
    (C, [(9,), (5, 4, 3)], ValueError, r"x of shape \(9,\) has 1 axes"),
    (C, [(2, 4, 9), (5, 4)], ValueError, r"weight has shape \(5, 4\).*out, in/groups, 3"),
    (C, [(2, 4, 9), (5, 4, 3, 3)], ValueError, r"weight has shape \(5, 4, 3, 3\)"),
    (C, [(2, 4, 9), (5, 4, 2)], ValueError, r"weight has shape \(5, 4, 2\).*kernel \(3,\)"),
    (C, [(2, 4, 9), (5, 3, 3)], ValueError, r"3 channels on axis 1; expected 4"),
    (T, [(2, 4, 9), (3, 5, 3)], ValueError, r"3 channels on axis 0; expected 4"),
    (T, [(2, 4, 9), (4, 5)], ValueError, r"in, out/groups, 3"),
    (
        G,
        [(2, 5, 9), (4, 2, 3)],
        ValueError,
        r"5 channels on axis 1; expected a multiple of groups=2",
    ),
    (
        G,
        [(2, 4, 9), (5, 2, 3)],
        ValueError,
        r"5 channels on axis 0; expected a multiple of groups=2",
    ),
    (G, [(2, 4, 9), (4, 4, 3)], ValueError, r"4 channels on axis 1; expected 2"),
    (TG, [(2, 5, 9), (5, 2, 3)], ValueError, r"5 channels on axis 1; expected a multiple"),
    (C, [(2, 0, 9), (4, 0, 3)], ValueError, r"no channel on axis 1"),
    (C, [(2, 4, 9), (0, 4, 3)], ValueError, r"no channel on axis 0"),
    (C, [(2, 4, 9), (5, 4, 3), (4,)], ValueError, r"bias has shape \(4,\); expected \(5,\)"),
    (C, [(2, 4, 9), (5, 4, 3), (5, 1)], ValueError, r"bias has shape \(5, 1\)"),
    (TG, [(2, 4, 9), (4, 3, 3), (3,)], ValueError, r"bias has shape \(3,\); expected \(6,\)"),
    (C, [(2, 4, 2), (5, 4, 3)], ValueError, r"axis 2 of shape \(2, 4, 2\).*longer than"),
    (C, [(2, 4, 0), (5, 4, 3)], ValueError, r"axis 2 of shape \(2, 4, 0\)"),
    (T, [(2, 4, 0), (4, 5, 3)], ValueError, r"axis 2 of shape \(2, 4, 0\)"),
    (ln.ConvTranspose((1,), 1, 2), [(1, 1, 4), (1, 1, 1)], ValueError, r"gives 0 outputs"),
]


@pytest.mark.parametrize("op, shapes, error, message", BAD_OPERANDS)
def test_bad_operands_are_refused(op, shapes, error, message):
    with pytest.raises(error, match=message):
        op(*(ones(*s) for s in shapes))
    with pytest.raises(error, match=message):
        op.out_shape(*shapes)
    with pytest.raises(error, match=message):
        op.vjp(tuple(ones(*s) for s in shapes), ones(1))


def test_bad_dtypes_are_refused():
    with pytest.raises(TypeError, match=r"x has dtype int64.*float type.*object array"):
        C(ones(1, 4, dtype=np.int64), ones(1, 1, 3, dtype=np.int64))
    with pytest.raises(TypeError, match=r"weight has dtype float32, x has float64"):
        C(ones(1, 4), ones(1, 1, 3, dtype=np.float32))
    with pytest.raises(TypeError, match=r"bias has dtype float16, x has float64"):
        C(ones(1, 4), ones(1, 1, 3), ones(1, dtype=np.float16))
    with pytest.raises(TypeError, match="complex128"):
        C(ones(1, 4, dtype=complex), ones(1, 1, 3, dtype=complex))


def test_bad_tangents_and_gradients_are_refused():
    operands = ones(1, 4), ones(1, 1, 3)
    with pytest.raises(ValueError, match="2 operands but 1 tangents"):
        C.jvp(operands, (ones(1, 4),))
    with pytest.raises(ValueError, match=r"tangent of weight has shape \(1, 1, 2\)"):
        C.jvp(operands, (ones(1, 4), ones(1, 1, 2)))
    with pytest.raises(TypeError, match="tangent of x has dtype float32"):
        C.jvp(operands, (ones(1, 4, dtype=np.float32), ones(1, 1, 3)))
    with pytest.raises(
        ValueError, match=r"gradient has shape \(1, 3\); expected the output's \(1, 2\)"
    ):
        C.vjp(operands, ones(1, 3))
    with pytest.raises(TypeError, match="gradient has dtype float32"):
        C.vjp(operands, ones(1, 2, dtype=np.float32))


def test_bad_calls_of_the_functions_are_refused():
    with pytest.raises(ValueError, match=r"weight has shape \(2, 3\)"):
        ln.conv(ones(3, 4), ones(2, 3))
    with pytest.raises(ValueError, match="output_padding=1"):
        ln.conv_transpose(ones(1, 4), ones(1, 1, 2), output_padding=1)
    with pytest.raises(ValueError, match="backend='gpu'"):
        ln.conv(ones(1, 4), ones(1, 1, 2), backend="gpu")


@pytest.mark.parametrize(
    "op", [C, T, ln.Conv((2, 3), 2, "same"), ln.ConvTranspose((2, 3), 2, 1, 1)]
)
@pytest.mark.parametrize("backend", ["spec", None])
def test_an_empty_batch_gives_empty_results_and_zero_gradients(op, backend):
    x, w, b = ones(0, 3, *(4,) * op.rank), ones(3, 3, *op.kernel), ones(3)
    y = ln.forward(op, x, w, b, backend=backend)
    assert y.shape == op.out_shape(x.shape, w.shape) and y.size == 0
    assert ln.jvp(op, (x, w, b), (x, w, b), backend=backend).shape == y.shape
    gx, gw, gb = ln.vjp(op, (x, w, b), y, backend=backend)
    assert gx.shape == x.shape
    assert gw.shape == w.shape and not gw.any()
    assert gb.shape == b.shape and not gb.any()


@pytest.mark.parametrize("backend", ["spec", None])
def test_nan_propagates_to_what_it_touches(backend):
    x, w = ones(1, 2, 5), ones(3, 2, 3)
    w[1, 0, 0] = np.nan
    y = ln.forward(ln.Conv((3,), padding=1), x, w, backend=backend)
    assert np.isnan(y).any((0, 2)).tolist() == [False, True, False]
    assert np.isnan(y[:, 1]).all()  # padding is zeros, and zero times NaN is NaN
    x[0, 0, 0] = np.inf
    y = ln.forward(ln.Conv((3,)), x, ones(3, 2, 3), backend=backend)
    assert np.isinf(y[0, 0]).tolist() == [True, False, False]
    gx, gw = ln.vjp(ln.Conv((3,), padding=1), (ones(1, 2, 5), w), ones(1, 3, 5), backend=backend)
    # Cell p is read by window p + 1 with the first weight; the last cell is not.
    assert np.isnan(gx[0]).tolist() == [[True] * 4 + [False], [False] * 5]
    assert np.isfinite(gw).all()


@pytest.mark.parametrize("backend", ["spec", None])
def test_nan_in_a_transposed_weight_reaches_its_outputs_alone(backend):
    w = ones(1, 1, 2)
    w[0, 0, 1] = np.nan
    y = ln.forward(ln.ConvTranspose((2,), 2), ones(1, 3), w, backend=backend)
    assert np.isnan(y[0]).tolist() == [False, True] * 3


@pytest.mark.parametrize(
    "op",
    [
        ln.Conv((3,)),
        ln.Conv((3, 2), (2, 1), ((1, 0), 2), 3, groups=4),
        ln.Conv((3, 3), padding="same"),
        ln.ConvTranspose((3, 2), 2, 1, (1, 0), groups=2),
    ],
)
def test_an_op_is_a_value(op):
    names = {"Conv": ln.Conv, "ConvTranspose": ln.ConvTranspose}
    again = eval(repr(op), names)
    assert again == op and hash(again) == hash(op) and pickle.loads(pickle.dumps(op)) == op
    assert op != ln.Conv((5, 5))


def test_a_max_alone_has_indices():
    with pytest.raises(TypeError, match="only a max has indices"):
        ln.dispatch.forward_with_indices(C, ones(1, 4), ones(1, 1, 3))
