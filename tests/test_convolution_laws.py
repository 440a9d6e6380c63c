"""Convolution: laws over exact rationals, agreement with torch, and examples worked by hand."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest

import lunette as ln
from lunette.check.bounds import of_products

F = Fraction


def rationals(seed, *shape):
    """Small fractions, all of them different enough to tell one cell from another."""
    generator = np.random.default_rng(seed)
    out = np.empty(shape, object)
    for i in np.ndindex(shape):
        out[i] = F(int(generator.integers(-999, 1000)), int(generator.integers(1, 8)))
    return out


def inner(a, b):
    assert a.shape == b.shape
    return sum((u * v for u, v in zip(a.flat, b.flat, strict=True)), F(0))


def zero_like(a):
    return np.full(a.shape, F(0), object)


# -- the transpose is the adjoint in x --


def transposes():
    """Every small 1-D transposed convolution that exists, with `output_padding`."""
    margins = list(product(range(3), range(3)))
    for n, k, s, d, pad in product((1, 2, 4), (1, 2, 3), (1, 2, 3), (1, 2, 3), margins):
        for extra in range(max(s, d)):
            op = ln.ConvTranspose((k,), s, (pad,), extra, d)
            if (n - 1) * s - sum(pad) + d * (k - 1) + extra + 1 >= 1:
                yield n, op


def test_transpose_is_the_adjoint_of_convolution_for_every_small_geometry():
    seen = 0
    for n, op in transposes():
        conv = ln.Conv(op.kernel, op.stride, op.padding, op.dilation)
        weight, small = rationals(seen, 2, 1, *op.kernel), rationals(seen + 1, 2, n)
        large = rationals(seen + 2, *op.out_shape(small.shape, weight.shape))
        # An output_padding of a stride or more leaves room for windows beyond the last.
        values = conv(large, weight)[:, :n]
        assert inner(values, small) == inner(large, op(small, weight)), (n, op)
        seen += 1
    assert seen == 1547


@pytest.mark.parametrize(
    "op, shape",
    [
        (ln.ConvTranspose((2, 3), (2, 1), (0, 1), (1, 0), (1, 2), groups=2), (2, 4, 2, 3)),
        (ln.ConvTranspose((2, 1, 2), 2, ((0, 1), 0, 0), 1), (4, 2, 1, 2)),
        (ln.ConvTranspose((1, 2, 2, 1), 1, 0, 1, 2, groups=4), (1, 1, 4, 1, 2, 1, 2)),
    ],
)
def test_transpose_is_the_adjoint_in_more_dimensions_and_groups(op, shape):
    conv = ln.Conv(op.kernel, op.stride, op.padding, op.dilation, op.groups)
    weight = rationals(0, 4, 2, *op.kernel)
    small = rationals(1, *shape)
    large = rationals(2, *op.out_shape(shape, weight.shape))
    lengths = tuple(slice(n) for n in shape[-op.rank :])
    assert inner(conv(large, weight)[(..., *lengths)], small) == inner(large, op(small, weight))
    # With all positions read, the convolution's own gradient is the transpose.
    if conv(large, weight).shape == shape:
        assert (conv.vjp((large, weight), small)[0] == op(small, weight)).all()


# -- derivatives --

CASES = [
    (ln.Conv((3,), padding=1), (2, 5), (3, 2, 3)),
    (ln.Conv((2, 3), (2, 1), ((1, 0), (0, 2)), (1, 2), groups=2), (2, 4, 4, 5), (2, 2, 2, 3)),
    (ln.Conv((2, 2), 2, "same"), (3, 1, 1, 3, 3), (2, 1, 2, 2)),
    (ln.Conv((2, 1, 2), 1, 1), (1, 2, 2, 1, 3), (1, 2, 2, 1, 2)),
    (ln.Conv((1, 2, 1, 2), dilation=2, groups=3), (3, 1, 3, 2, 4), (3, 1, 1, 2, 1, 2)),
    (ln.ConvTranspose((3,), 2, 1, 1), (2, 3), (2, 3, 3)),
    (ln.ConvTranspose((2, 3), (2, 1), (0, 1), 1, (1, 2), 2), (2, 4, 2, 3), (4, 1, 2, 3)),
    (ln.ConvTranspose((2, 2), 1, 0, 2, 3), (2, 1, 1, 2, 2), (1, 2, 2, 2)),
    (ln.ConvTranspose((2, 1, 2, 1), 2), (1, 2, 2, 2, 1, 1), (2, 1, 2, 1, 2, 1)),
]


@pytest.mark.parametrize("op, x_shape, weight_shape", CASES, ids=repr)
@pytest.mark.parametrize("with_bias", [False, True])
def test_vjp_is_the_adjoint_of_jvp_in_every_operand(op, x_shape, weight_shape, with_bias):
    shapes = [x_shape, weight_shape]
    out_shape = op.out_shape(*shapes)
    if with_bias:
        shapes.append((out_shape[-op.rank - 1],))
    operands = tuple(rationals(i, *s) for i, s in enumerate(shapes))
    tangents = tuple(rationals(10 + i, *s) for i, s in enumerate(shapes))
    grad = rationals(20, *out_shape)
    gradients = op.vjp(operands, grad)
    assert [g.shape for g in gradients] == [o.shape for o in operands]
    total = F(0)
    for i, tangent in enumerate(tangents):
        alone = tuple(t if i == j else zero_like(t) for j, t in enumerate(tangents))
        pushed = inner(grad, op.jvp(operands, alone))
        assert pushed == inner(gradients[i], tangent), op.operand_names[i]
        total += pushed
    assert inner(grad, op.jvp(operands, tangents)) == total


@pytest.mark.parametrize("op, x_shape, weight_shape", CASES, ids=repr)
def test_jvp_is_the_first_order_of_a_polynomial_of_degree_two(op, x_shape, weight_shape):
    x, w = rationals(0, *x_shape), rationals(1, *weight_shape)
    dx, dw = rationals(2, *x_shape), rationals(3, *weight_shape)
    b, db = (rationals(4 + i, op.out_shape(x_shape, weight_shape)[-op.rank - 1]) for i in range(2))
    step = F(1, 3)
    moved = op(x + step * dx, w + step * dw, b + step * db)
    expected = op(x, w, b) + step * op.jvp((x, w, b), (dx, dw, db)) + step**2 * op(dx, dw)
    assert (moved == expected).all()


# -- convolutions that are something else --


@pytest.mark.parametrize(
    "kernel, stride, padding, dilation",
    [((3,), 2, 1, 1), ((2, 3), (1, 2), ((1, 0), (2, 2)), (2, 1)), ((2, 2, 2), 1, "same", 1)],
)
def test_mean_pooling_is_a_grouped_convolution_with_a_constant_kernel(
    kernel, stride, padding, dilation
):
    x = rationals(0, 2, 3, *(4,) * len(kernel))
    weight = np.full((3, 1, *kernel), F(1, int(np.prod(kernel))), object)
    means = ln.AvgPool(kernel, stride, padding, dilation)(x)
    assert (ln.Conv(kernel, stride, padding, dilation, groups=3)(x, weight) == means).all()


@pytest.mark.parametrize("rank", [1, 2, 3, 4])
def test_a_kernel_of_one_cell_is_a_matrix_product(rank):
    x, matrix = rationals(0, 2, 3, *range(1, rank + 1)), rationals(1, 4, 3)
    flat = x.reshape(2, 3, -1)
    expected = np.stack([matrix.dot(image) for image in flat]).reshape(2, 4, *x.shape[2:])
    kernel = (1,) * rank
    assert (ln.Conv(kernel)(x, matrix.reshape(4, 3, *kernel)) == expected).all()
    assert (ln.ConvTranspose(kernel)(x, matrix.T.reshape(3, 4, *kernel)) == expected).all()


def test_groups_are_convolutions_side_by_side():
    x, weight, bias = rationals(0, 2, 4, 5), rationals(1, 6, 2, 3), rationals(2, 6)
    parts = [
        ln.conv(x[:, 2 * g : 2 * g + 2], weight[3 * g : 3 * g + 3], bias[3 * g : 3 * g + 3])
        for g in range(2)
    ]
    assert (ln.conv(x, weight, bias, groups=2) == np.concatenate(parts, 1)).all()
    weight = rationals(3, 4, 3, 2)
    parts = [
        ln.conv_transpose(x[:, 2 * g : 2 * g + 2], weight[2 * g : 2 * g + 2]) for g in range(2)
    ]
    assert (ln.conv_transpose(x, weight, groups=2) == np.concatenate(parts, 1)).all()


def test_batch_axes_are_independent():
    x, weight = rationals(0, 2, 3, 2, 4), rationals(1, 3, 2, 2)
    y = ln.conv(x, weight)
    for i in np.ndindex(2, 3):
        assert (y[i] == ln.conv(x[i], weight)).all()


# -- examples worked by hand --


def test_examples_by_hand():
    x = np.array([[F(1), F(2), F(3)]], object)
    weight = np.array([[[F(10), F(1)]]], object)
    assert ln.conv(x, weight).tolist() == [[12, 23]]  # 1·10 + 2·1, 2·10 + 3·1: no flip
    assert ln.conv(x, weight, padding=1).tolist() == [[1, 12, 23, 30]]
    assert ln.conv(x, weight, padding=((0, 1),), stride=2).tolist() == [[12, 30]]
    assert ln.conv(x, weight, dilation=2).tolist() == [[13]]
    assert ln.conv(x, weight, padding="same").tolist() == [[12, 23, 30]]
    assert ln.conv(x, weight, np.array([F(100)], object)).tolist() == [[112, 123]]
    # 10·x spread from each start, plus x one further.
    assert ln.conv_transpose(x, weight).tolist() == [[10, 21, 32, 3]]
    assert ln.conv_transpose(x, weight, stride=2).tolist() == [[10, 1, 20, 2, 30, 3]]
    assert ln.conv_transpose(x, weight, padding=1).tolist() == [[21, 32]]
    assert ln.conv_transpose(x, weight, stride=2, output_padding=1).tolist() == [
        [10, 1, 20, 2, 30, 3, 0]
    ]
    assert ln.conv_transpose(x, weight, dilation=3).tolist() == [[10, 20, 30, 1, 2, 3]]


def test_gradients_by_hand():
    x = np.array([[1.0, 2.0, 3.0]])
    weight, bias = np.array([[[10.0, 1.0]]]), np.array([7.0])
    gx, gw, gb = ln.Conv((2,)).vjp((x, weight, bias), np.array([[1.0, 100.0]]))
    assert gx.tolist() == [[10.0, 1001.0, 100.0]]
    assert gw.tolist() == [[[201.0, 302.0]]]  # 1·1 + 2·100, 2·1 + 3·100
    assert gb.tolist() == [101.0]


def test_two_dimensions_by_hand():
    x = np.array([[[1.0, 2.0], [3.0, 4.0]]])
    weight = np.array([[[[1.0, 10.0], [100.0, 1000.0]]]])
    assert ln.conv(x, weight).tolist() == [[[4321.0]]]
    assert ln.conv(x, weight, padding=1)[0, 0].tolist() == [1000.0, 2100.0, 200.0]


# -- number systems --


def test_integers_among_fractions_join_them_and_mixed_systems_are_refused():
    x = np.array([[1, 2]], object)
    assert ln.conv(x, np.array([[[F(1, 2)]]], object)).tolist() == [[F(1, 2), F(1)]]
    with pytest.raises(TypeError, match="several types"):
        ln.conv(np.array([[1.5, F(2)]], object), np.array([[[F(1, 2)]]], object))


def test_intervals_hold_the_exact_value():
    x, weight = rationals(0, 2, 4), rationals(1, 1, 2, 3)
    wide = np.vectorize(lambda v: ln.spec.Interval(v - 1, v + 1), otypes=[object])
    bounds = ln.conv(wide(x), wide(weight))
    for bound, value in zip(bounds.flat, ln.conv(x, weight).flat, strict=True):
        assert bound.lo <= value <= bound.hi


def test_dual_numbers_carry_the_jvp():
    op = ln.ConvTranspose((2,), 2)
    x, w, dx, dw = (rationals(i, *s) for i, s in enumerate([(1, 3), (1, 1, 2)] * 2))
    dual = np.vectorize(ln.spec.Dual, otypes=[object])
    y = op(dual(x, dx), dual(w, dw))
    assert [v.tangent for v in y.flat] == list(op.jvp((x, w), (dx, dw)).flat)


def test_the_fold_is_left_to_right_in_the_dtype():
    x = np.array([[1.0, 2.0**-24, 2.0**-24]], np.float32)
    y = ln.spec.forward(ln.Conv((3,)), x, np.ones((1, 1, 3), np.float32))
    assert y.dtype == np.float32 and y[0, 0] == 1.0  # each small term is lost in turn
    reversed_y = ln.spec.forward(
        ln.Conv((3,)), x[:, ::-1], np.ones((1, 1, 3), np.float32), np.zeros(1, np.float32)
    )
    assert reversed_y[0, 0] > 1.0


def test_halves_are_summed_in_float32_and_rounded_once():
    x = np.array([[1.0, 2.0**-11, 2.0**-11]], np.float16)
    y = ln.spec.forward(ln.Conv((3,)), x, np.ones((1, 1, 3), np.float16))
    assert y.dtype == np.float16 and y[0, 0] == 1.0 + 2.0**-10


# -- agreement with torch --


def bound(op, x, weight, bias):
    """Twice the bound: each side is within it of the exact value."""
    size = ln.spec.forward(op, *(abs(a).astype(np.float64) for a in (x, weight, bias)))
    return 2 * of_products(int(np.prod(weight.shape)), size, x.dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize(
    "stride, padding, dilation, groups", [(1, 0, 1, 1), (2, 1, 1, 2), (1, 2, 2, 1), (3, 1, 2, 2)]
)
def test_agrees_with_torch(dtype, rank, stride, padding, dilation, groups):
    torch = pytest.importorskip("torch")
    generator = np.random.default_rng(rank)

    def normal(*shape):
        return generator.standard_normal(shape).astype(dtype)

    x, kernel = normal(2, 4, *(5, 4, 5)[:rank]), (2, 3, 2)[:rank]
    functional, tensor = torch.nn.functional, torch.from_numpy
    arguments = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}

    weight, b = normal(6, 4 // groups, *kernel), normal(6)
    op = ln.Conv(kernel, stride, padding, dilation, groups)
    peer = getattr(functional, f"conv{rank}d")(tensor(x), tensor(weight), tensor(b), **arguments)
    value = ln.spec.forward(op, x, weight, b)
    assert value.dtype == dtype and value.shape == tuple(peer.shape)
    assert (abs(value - peer.numpy()) <= bound(op, x, weight, b)).all()

    weight, extra = normal(4, 3, *kernel), max(stride, dilation) - 1
    b = normal(3 * groups)
    op = ln.ConvTranspose(kernel, stride, padding, extra, dilation, groups)
    peer = getattr(functional, f"conv_transpose{rank}d")(
        tensor(x), tensor(weight), tensor(b), output_padding=extra, **arguments
    )
    value = ln.spec.forward(op, x, weight, b)
    assert value.dtype == dtype and value.shape == tuple(peer.shape)
    assert (abs(value - peer.numpy()) <= bound(op, x, weight, b)).all()
