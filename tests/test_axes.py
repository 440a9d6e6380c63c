"""`axes=`: pooled axes that are not the last. The law: move them to the end, pool, and move them back."""

import copy
import pickle
from fractions import Fraction
from functools import partial
from itertools import permutations

import numpy as np
import pytest

import lunette as ln
from lunette import offsets
from lunette.encoding import decode
from lunette.testing import check_adjoint, check_op

MAKERS = {
    "MaxPool": lambda axes: ln.MaxPool((3, 2), 2, 1, axes=axes),
    "MaxPool split": lambda axes: ln.MaxPool((2, 3), 1, ties="split", ceil_mode=True, axes=axes),
    "MinPool": lambda axes: ln.MinPool((2, 2), 1, axes=axes),
    "ModePool": lambda axes: ln.ModePool((2, 3), axes=axes),
    "AvgPool": lambda axes: ln.AvgPool((2, 3), 2, "same", axes=axes),
    "AvgPool same": lambda axes: ln.AvgPool((2, 3), dtype="same", axes=axes),
    "SmoothMaxPool": lambda axes: ln.SmoothMaxPool((2, 3), 2.0, padding=(0, 1), axes=axes),
    "AdaptiveAvgPool": lambda axes: ln.AdaptiveAvgPool((2, 3), axes=axes),
    "AdaptiveMaxPool": lambda axes: ln.AdaptiveMaxPool((None, 3), axes=axes),
    "GlobalAvgPool": lambda axes: ln.GlobalAvgPool(2, axes=axes),
    "GlobalMaxPool": lambda axes: ln.GlobalMaxPool(2, keepdims=False, axes=axes),
    "Pool": lambda axes: ln.Pool((ln.Adaptive(2), ln.Sliding(2, 1)), ln.Max(), axes=axes),
}
INTEGERS = {"ModePool", "AvgPool same"}


def drawn(name, shape, seed=0):
    """Few different numbers, so that ties are many."""
    found = np.random.default_rng(seed).integers(-3, 4, shape)
    return found.astype(np.int16 if name in INTEGERS else np.float32)


def there(x, axes):
    return np.moveaxis(x, axes, range(-len(axes), 0))


def back(y, axes, op):
    return np.moveaxis(y, range(-len(axes), 0), axes) if op.keepdims else y


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("axes", [*permutations((0, 1, 2), 2), (1, -1), (-3, 1)])
def test_the_law(name, axes):
    """Over the specification, which moves axes as the kernels' callers do."""
    check_law(name, axes, "spec", np.testing.assert_array_equal)


@pytest.mark.parametrize("name", ["MaxPool", "AvgPool"])
def test_the_law_by_kernels(name):
    same = np.testing.assert_array_equal
    check_law(name, (0, 2), None, same if name == "MaxPool" else close)


def close(found, expected):
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def check_law(name, axes, backend, same):
    x = drawn(name, (5, 6, 4))
    op, plain = MAKERS[name](axes), MAKERS[name](None)
    expected = back(ln.spec.forward(plain, there(x, axes)), axes, op)
    found = ln.forward(op, x, backend=backend)
    same(found, expected)
    assert found.shape == op.out_shape(x.shape) and found.dtype == expected.dtype
    np.testing.assert_array_equal(ln.spec.forward(op, x), expected)
    if name in INTEGERS:
        return
    dx, gy = drawn(name, x.shape, 1), drawn(name, expected.shape, 2)
    expected = back(ln.spec.jvp(plain, there(x, axes), there(dx, axes)), axes, op)
    same(ln.jvp(op, x, dx, backend=backend), expected)
    np.testing.assert_array_equal(ln.spec.jvp(op, x, dx), expected)
    grad = there(gy, axes) if op.keepdims else gy
    expected = np.moveaxis(ln.spec.vjp(plain, there(x, axes), grad), (-2, -1), axes)
    same(ln.vjp(op, x, gy, backend=backend), expected)
    np.testing.assert_array_equal(ln.spec.vjp(op, x, gy), expected)


@pytest.mark.parametrize("name", ["MaxPool", "AvgPool", "GlobalMaxPool", "SmoothMaxPool"])
def test_the_checkers_take_such_ops(name):
    op = MAKERS[name]((2, 0))
    assert check_op(partial(ln.forward, op, backend="spec"), op) > 5
    vjp = partial(ln.vjp, op, backend="spec")
    assert check_op(vjp, op, verb="vjp") > 5
    if name != "SmoothMaxPool":  # rationals have no exponential
        assert check_adjoint(partial(ln.jvp, op, backend="spec"), vjp, op) > 5
    with pytest.raises(AssertionError, match="axes"):
        check_op(lambda x: np.zeros_like(ln.spec.forward(op, x)), op)


@pytest.mark.parametrize("axes", [(1, 2), (2, 1), (-3, -2), (0, 3)])
@pytest.mark.parametrize("transposed", [False, True])
def test_convolution_has_its_channels_on_the_last_of_the_other_axes(axes, transposed):
    kind = ln.ConvTranspose if transposed else ln.Conv
    op, plain = kind((2, 3), 2, 1, axes=axes), kind((2, 3), 2, 1)
    rng = np.random.default_rng(0)
    x, bias = rng.normal(size=(5, 6, 5, 6)).astype("f"), rng.normal(size=4).astype("f")
    channels = there(x, axes).shape[1]
    weight = rng.normal(size=(channels, 4, 2, 3) if transposed else (4, channels, 2, 3)).astype("f")
    operands, moved = (x, weight, bias), (there(x, axes), weight, bias)
    y, expected = op(*operands), there(plain(*moved), range(4))
    np.testing.assert_allclose(y, back(expected, axes, ln.MaxPool((1, 1))), rtol=1e-5, atol=1e-5)
    assert y.shape == op.out_shape(*(a.shape for a in operands))
    gy = rng.normal(size=y.shape).astype("f")
    gx, *others = op.vjp(operands, gy)
    ex, *expected = plain.vjp(moved, there(gy, axes))
    np.testing.assert_allclose(there(gx, axes), ex, rtol=1e-4, atol=1e-5)
    for found, other in zip(others, expected, strict=True):
        np.testing.assert_allclose(found, other, rtol=1e-4, atol=1e-4)
    dy = op.jvp(operands, operands)
    np.testing.assert_allclose(there(dy, axes), plain.jvp(moved, moved), rtol=1e-4, atol=1e-4)


def test_functions_take_axes():
    x = np.arange(2 * 6 * 6 * 3.0).reshape(2, 6, 6, 3)
    last = np.moveaxis(x, 3, 1)
    calls = [
        (ln.max_pool, ((2, 2),)),
        (ln.min_pool, ((2, 2),)),
        (ln.avg_pool, ((2, 2),)),
        (ln.smooth_max_pool, ((2, 2), 1.0)),
        (ln.adaptive_avg_pool, ((2, None),)),
        (ln.adaptive_max_pool, ((None, 4),)),
        (ln.global_avg_pool, (2,)),
        (ln.global_max_pool, (2,)),
    ]
    for function, arguments in calls:
        expected = np.moveaxis(function(last, *arguments, backend="spec"), 1, 3)
        found = function(x, *arguments, backend="spec", axes=(1, 2))
        np.testing.assert_array_equal(found, expected)
    labels = x.astype(np.uint8)
    found = ln.mode_pool(labels, (2, 2), backend="spec", axes=(1, 2))
    expected = ln.mode_pool(np.moveaxis(labels, 3, 1), (2, 2), backend="spec")
    np.testing.assert_array_equal(found, np.moveaxis(expected, 1, 3))
    weight = np.ones((4, 3, 2, 2))
    for function, w in ((ln.conv, weight), (ln.conv_transpose, weight.swapaxes(0, 1))):
        expected = np.moveaxis(function(last, w, backend="spec"), 1, 3)
        np.testing.assert_allclose(function(x, w, backend="spec", axes=(1, 2)), expected)
    assert ln.global_avg_pool(x, axes=(1, 2), keepdims=False, backend="spec").shape == (2, 3)
    assert ln.global_max_pool(x, axes=-1, backend="spec").shape == (2, 6, 6, 1)


def test_indices_count_in_the_pooled_axes_and_go_back_with_unpool():
    x = np.random.default_rng(0).normal(size=(2, 6, 8, 3))
    y, indices = ln.max_pool(x, (2, 2), return_indices=True, axes=(1, 2))
    _, expected = ln.max_pool(np.moveaxis(x, 3, 1), (2, 2), return_indices=True)
    np.testing.assert_array_equal(indices, np.moveaxis(expected, 1, 3))
    found = ln.max_unpool(y, indices, (6, 8), axes=(1, 2))
    np.testing.assert_array_equal(found[found != 0], x[found != 0])
    assert found.shape == x.shape and (found != 0).sum() == y.size


def test_winners_that_are_kept():
    op = ln.MaxPool((3, 2), 2, 1, axes=(1, 2))
    x = np.random.default_rng(0).normal(size=(2, 6, 8, 3)).astype(np.float32)
    y, kept = offsets.forward_with_offsets(op, x)
    np.testing.assert_array_equal(y, op(x))
    gy = np.random.default_rng(1).normal(size=y.shape).astype(np.float32)
    np.testing.assert_array_equal(offsets.vjp_from_offsets(op, kept, gy, x.shape), op.vjp(x, gy))
    np.testing.assert_array_equal(offsets.jvp_from_offsets(op, kept, x), op.jvp(x, x))
    indices = offsets.indices_of(op, x.shape, kept)
    np.testing.assert_array_equal(indices, ln.dispatch.forward_with_indices(op, x)[1])
    np.testing.assert_array_equal(offsets.offsets_of(op, x.shape, indices), kept)


def test_exact_numbers_and_the_tape():
    x = np.array([Fraction(i * 7 % 11, 3) for i in range(2 * 4 * 3)], object).reshape(4, 2, 3)
    op = ln.AvgPool((2, 3), axes=(0, 2))
    np.testing.assert_array_equal(op(x), np.moveaxis(ln.avg_pool(there(x, (0, 2)), (2, 3)), 0, 1))
    tape = ln.Tape()
    leaf = tape.leaf(x)
    loss = tape.sum(tape.apply(op, leaf) * tape.apply(op, leaf))
    gradient = tape.backward(loss)[leaf]
    np.testing.assert_array_equal(gradient, 2 * op.vjp(x, op(x)))
    with pytest.raises(ValueError, match=r"axes=\(0, 5\): axis 5"):
        tape.apply(ln.AvgPool((2, 3), axes=(0, 5)), leaf)


@pytest.mark.full
def test_second_derivatives_on_the_tape():
    """Smooth max bends, so its curvature goes through the axes too."""
    x, direction = np.random.default_rng(0).normal(size=(2, 4, 5, 3))
    for axes, moved in (((0, 1), True), (None, False)):
        tape = ln.Tape()
        array, way = (x, direction) if moved else (there(x, (0, 1)), there(direction, (0, 1)))
        leaf = tape.leaf(array)
        pooled = tape.apply(ln.SmoothMaxPool((2, 2), 3.0, axes=axes), leaf)
        product = tape.hvp(tape.sum(pooled * pooled), {leaf: way})[leaf]
        product = there(product, (0, 1)) if moved else product
        if moved:
            expected = product
    np.testing.assert_allclose(product, expected, rtol=1e-12)


def test_channels_last_is_read_and_written_as_it_lies():
    """The kernels serve that layout: the result lies in memory as the input does, and x is not copied."""
    x = np.random.default_rng(0).normal(size=(2, 32, 32, 64)).astype(np.float32)
    for op in (ln.MaxPool((3, 3), 2, 1, axes=(1, 2)), ln.AvgPool((2, 2), axes=(1, 2))):
        assert ln.backend_for(op, x) == "cpu"
        y = op(x)
        assert y.flags.c_contiguous
        assert op.vjp(x, y).flags.c_contiguous


def test_a_repr_pastes_back_and_equal_axes_make_equal_ops():
    for name, make in MAKERS.items():
        for axes in (None, (0, 2), (-1, 1)):
            op = make(axes)
            assert eval(repr(op), vars(ln)) == op, name
            assert pickle.loads(pickle.dumps(op)) == op == copy.deepcopy(op)
            assert hash(op) == hash(make(axes)) and op.axes == axes
    assert repr(ln.MaxPool((2, 2), axes=(1, 2))) == "MaxPool((2, 2), axes=(1, 2))"
    assert ln.MaxPool((2, 2), axes=(-2, -1)) == ln.MaxPool((2, 2))
    assert ln.MaxPool((2, 2), axes=[0, 1]) != ln.MaxPool((2, 2))
    assert ln.GlobalAvgPool(axes=1) == ln.GlobalAvgPool(1, axes=(1,))
    assert ln.Conv((3,), axes=1).axes == (1,)


def test_none_keeps_an_adaptive_axis():
    x = np.arange(24.0).reshape(2, 3, 4)
    for function in (ln.adaptive_max_pool, ln.adaptive_avg_pool):
        pool = partial(function, x, backend="spec")
        np.testing.assert_array_equal(pool((None, 2)), pool((3, 2)))
        np.testing.assert_array_equal(pool((2, None)), pool((2, 4)))
    op = ln.AdaptiveAvgPool((None, 2))
    assert repr(op) == "AdaptiveAvgPool((None, 2))" and decode(repr(op)) == op
    assert op.out_shape((5, 7, 9)) == (5, 7, 2)
    with pytest.raises(ValueError, match="output_size=0 on axis 1"):
        ln.AdaptiveAvgPool((None, 0))
    with pytest.raises(TypeError, match="output_size=None"):
        ln.AdaptiveAvgPool(None)


REFUSED = [
    (lambda x: ln.MaxPool((2, 2), axes=(1, 1)), ValueError, r"axes=\(1, 1\): expected different"),
    (
        lambda x: ln.forward(ln.MaxPool((2, 2), axes=(1, -2)), x),
        ValueError,
        r"axes=\(1, -2\): two of them are one",
    ),
    (
        lambda x: ln.forward(ln.MaxPool((2, 2), axes=(0, 3)), x),
        ValueError,
        r"axis 3 is none of an array of 3",
    ),
    (lambda x: ln.forward(ln.MaxPool((2, 2), axes=(-4, 0)), x), ValueError, r"axis -4 is none"),
    (lambda x: ln.MaxPool((2, 2), axes=1), ValueError, r"axes=1: expected 2 of them"),
    (lambda x: ln.MaxPool((2,), axes=1.0), TypeError, r"axes=1.0: expected integers"),
    (lambda x: ln.MaxPool((2,), axes=True), TypeError, r"axes=True: expected integers"),
    (lambda x: ln.MaxPool((2,), axes="y"), TypeError, r"axes='y': expected integers"),
    (lambda x: ln.MaxPool((2,), axes=()), ValueError, r"axes=\(\): expected 1 of them"),
    (lambda x: ln.MaxPool((2,), axes=1 << 80), ValueError, r"from −64 to 63"),
    (lambda x: ln.GlobalAvgPool(axes=()), ValueError, r"axes=\(\)"),
    (lambda x: ln.GlobalAvgPool(), TypeError, r"ndim=None"),
    (lambda x: ln.GlobalAvgPool(3, axes=(0, 1)), ValueError, r"axes=\(0, 1\): expected 3"),
    (
        lambda x: ln.forward(ln.MaxPool((9, 2), axes=(0, 1)), x),
        ValueError,
        r"axis 0 of shape \(2, 3, 4\)",
    ),
    (
        lambda x: ln.MaxPool((2,), axes=0).vjp(x, x),
        ValueError,
        r"expected the output's \(1, 3, 4\)",
    ),
    (
        lambda x: ln.MaxPool((2,), axes=0).jvp(x, x[:1]),
        ValueError,
        r"expected x's shape \(2, 3, 4\)",
    ),
    (
        lambda x: ln.conv(x, np.ones((1, 2, 3)), axes=1),
        ValueError,
        r"channels on axis 1; expected 4",
    ),
    (lambda x: ln.max_unpool(x, x.astype(int), (9,), axes=5), ValueError, r"axis 5 is none"),
    (lambda x: decode("MaxPool((2,), axes=(0,))"), ValueError, r"over the last axes"),
]


@pytest.mark.parametrize(("call", "kind", "message"), REFUSED)
def test_errors_name_axes(call, kind, message):
    with pytest.raises(kind, match=message):
        call(np.arange(24.0).reshape(2, 3, 4))


# -- other libraries --


@pytest.mark.parametrize("name", ["MaxPool", "GlobalMaxPool"])
def test_torch(name):
    torch = pytest.importorskip("torch")
    op, x = MAKERS[name]((0, 2)), drawn(name, (5, 6, 4))
    t = torch.from_numpy(x).requires_grad_()
    y = op(t)
    np.testing.assert_array_equal(y.detach().numpy(), op(x))
    gy = drawn(name, y.shape, 1)
    y.backward(torch.from_numpy(gy))
    np.testing.assert_array_equal(t.grad.numpy(), op.vjp(x, gy))
    found = op.vjp(t.detach(), torch.from_numpy(gy))
    np.testing.assert_array_equal(found.numpy(), op.vjp(x, gy))
    np.testing.assert_array_equal(op.jvp(t.detach(), t.detach()).numpy(), op.jvp(x, x))
    with pytest.raises(ValueError, match=r"axis 2 is none of an array of 2 axes"):
        op(t[:, :, 0])


def test_torch_programs_and_modules():
    torch = pytest.importorskip("torch")
    from torch.fx import symbolic_trace

    from lunette.torch import nn

    x = torch.randn(2, 6, 8, 3)
    last = x.permute(0, 3, 1, 2)
    modules = [
        (nn.MaxPool, ((2, 2),)),
        (nn.AvgPool, ((2, 2),)),
        (nn.SmoothMaxPool, ((2, 2), 2.0)),
        (nn.AdaptiveAvgPool, ((None, 2),)),
        (nn.AdaptiveMaxPool, ((3, None),)),
        (nn.GlobalAvgPool, (2,)),
        (nn.GlobalMaxPool, (2,)),
    ]
    for kind, arguments in modules:
        module = kind(*arguments, axes=(1, 2))
        torch.testing.assert_close(module(x), kind(*arguments)(last).permute(0, 2, 3, 1))
        assert torch.equal(symbolic_trace(module)(x), module(x))
    learned = nn.SmoothMaxPool((2, 2), 2.0, learnable=True, axes=(1, 2))
    learned(x).sum().backward()
    assert learned.beta.grad is not None
    y, indices = nn.MaxPool((2, 2), return_indices=True, axes=(1, 2))(x)
    assert torch.equal(ln.max_unpool(y, indices, (6, 8), axes=(1, 2)).amax(), x.amax())
    op = ln.MaxPool((2, 2), axes=(1, 2))
    compiled = torch.compile(lambda x: op(x) * 2, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(x), op(x) * 2)
    assert torch.equal(torch.vmap(op)(x[None]), op(x)[None])


@pytest.mark.parametrize("name", ["MaxPool", "GlobalMaxPool"])
def test_dask_and_xarray(name):
    da, xr = pytest.importorskip("dask.array"), pytest.importorskip("xarray")
    op, x = MAKERS[name]((2, 0)), drawn(name, (5, 6, 4))
    lazy = da.from_array(x, chunks=(2, 3, 2))
    y = op(x)
    np.testing.assert_array_equal(op(lazy).compute(), y)
    np.testing.assert_array_equal(op.vjp(lazy, da.from_array(y)).compute(), op.vjp(x, y))
    named = xr.DataArray(x, dims=("a", "b", "c"), coords={"a": np.arange(5.0)})
    found = op(named)
    np.testing.assert_array_equal(found.data, y)
    assert found.dims == (("a", "b", "c") if op.keepdims else ("b",))
    assert ("a" in found.coords) == op.keepdims
    np.testing.assert_array_equal(op.vjp(named, y).data, op.vjp(x, y))
    turned = op.vjp(named, found.transpose(*found.dims[::-1]))
    np.testing.assert_array_equal(turned.data, op.vjp(x, y))
    with pytest.raises(TypeError, match="give one of both"):
        ln.max_pool(named, {"a": 2}, axes=0)
