"""Mode, min and rounded mean: laws, ties by hand, kernels against the specification, every library."""

from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lunette as ln
from tests.brief import every

INTEGERS = ["u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8"]
WIDTHS = [*INTEGERS, "?"]
BRIEF = ["u1", "i2", "u4", "i8", "?"]
"""Every width, and both signs; each of the others is a kernel more to compile."""


def brief(dtypes):
    """The others are left to the long run."""
    return [d if d in BRIEF else pytest.param(d, marks=pytest.mark.full) for d in dtypes]


def labels(shape, dtype, seed=0, values=4):
    """Few values, so that ties are common; the ends of the type among them."""
    rng = np.random.default_rng(seed)
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    limits = np.iinfo(dtype)
    palette = np.array([0, 1, limits.max, limits.min, 7, 3][:values], dtype)
    return palette[rng.integers(0, len(palette), shape)]


def test_ties_by_hand():
    x = np.array([[5, 5, 2, 2, 0, 0, 0, 9]])
    assert ln.mode_pool(x, (1, 4)).tolist() == [[2, 0]]
    assert ln.mode_pool(x, (1, 4), ties="first").tolist() == [[5, 0]]
    assert ln.mode_pool(x, (1, 4), sparse=True).tolist() == [[2, 9]]
    assert ln.mode_pool(np.zeros((1, 4), int), (1, 4), sparse=True).tolist() == [[0]]
    y = np.array([[3, -1], [-1, 3]])
    assert ln.mode_pool(y, (2, 2)).tolist() == [[-1]]
    assert ln.mode_pool(y, (2, 2), ties="first").tolist() == [[3]]


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("ties", ["smallest", "first"])
@pytest.mark.parametrize("dtype", brief(WIDTHS))
def test_pairs_of_cells_in_any_rank(dtype, ties, sparse):
    for shape in [(5, 7, 67), (4, 6, 34), (3, 131), (9,), (2, 3, 4, 5), (1, 3, 7), (3, 1)]:
        x = labels(shape, dtype, seed=len(shape))
        rank = min(3, len(shape))
        op = ln.ModePool((2,) * rank, ceil_mode=True, ties=ties, sparse=sparse)
        y = op(x)
        assert y.dtype == x.dtype
        np.testing.assert_array_equal(y, ln.forward(op, x, backend="spec"))


@given(data=st.data())
@settings(max_examples=80, deadline=None)
def test_any_windows_agree_with_the_specification(data):
    check_any_windows(data, BRIEF[1:4])


@pytest.mark.full
@given(data=st.data())
@settings(max_examples=1000, deadline=None)
def test_any_windows_of_any_type_agree_with_the_specification(data):
    check_any_windows(data, WIDTHS)


def check_any_windows(data, dtypes):
    rank = data.draw(st.integers(1, 3))
    sizes = st.tuples(*[st.integers(1, 4)] * rank)
    kernel, stride, dilation = (data.draw(sizes) for _ in range(3))
    padding, ceil_mode = data.draw(st.integers(0, 3)), data.draw(st.booleans())
    shape = data.draw(st.tuples(*[st.integers(1, 9)] * rank))
    dtype = data.draw(st.sampled_from(dtypes))
    x = labels(shape, dtype, data.draw(st.integers(0, 99)), values=data.draw(st.integers(1, 6)))
    if data.draw(st.booleans()):
        x = x[..., ::-1]
    window = {"stride": stride, "padding": padding, "dilation": dilation, "ceil_mode": ceil_mode}
    ops = [
        ln.ModePool(kernel, **window, ties=t, sparse=s)
        for t in ("smallest", "first")
        for s in (False, True)
    ]
    ops += [ln.MinPool(kernel, **window)]
    if dtype != "?":
        ops += [
            ln.AvgPool(kernel, **window, count_include_pad=p, dtype="same") for p in (True, False)
        ]
    for op in ops:
        try:
            op.out_shape(shape)
        except ValueError:
            return
        np.testing.assert_array_equal(op(x), ln.forward(op, x, backend="spec"))


@pytest.mark.parametrize("ties", ["smallest", "first"])
def test_large_windows(ties):
    x = labels((2, 40, 31), "i4", values=6)
    for op in (
        ln.ModePool((17, 9), 5, ties=ties, sparse=True),
        ln.Pool((ln.Global(), ln.Global()), ln.Mode(ties), keepdims=False),
        ln.Pool((ln.Adaptive(3), ln.Adaptive(2)), ln.Mode(ties)),
    ):
        np.testing.assert_array_equal(op(x), ln.forward(op, x, backend="spec"))


def test_the_mode_is_a_label_of_its_window_and_no_other_has_more_votes():
    x = labels((12, 18), "u4", values=6)
    y = ln.mode_pool(x, (3, 3))
    for i in np.ndindex(y.shape):
        votes = Counter(x[3 * i[0] : 3 * i[0] + 3, 3 * i[1] : 3 * i[1] + 3].ravel().tolist())
        assert votes[int(y[i])] == max(votes.values())


@pytest.mark.parametrize("dtype", every(2, ["f4", "f2", "f8"]))
def test_min_is_a_max_turned_around_with_derivatives(dtype):
    rng = np.random.default_rng(0)
    x = rng.integers(-3, 3, (2, 9, 8)).astype(dtype)
    x[0, 0, 0] = np.nan
    for ties in ("first", "all", "split"):
        op, other = ln.MinPool((3, 2), 2, 1, ties=ties), ln.MaxPool((3, 2), 2, 1, ties=ties)
        y, index = ln.min_pool(x, (3, 2), 2, 1, ties=ties, return_indices=True)
        np.testing.assert_array_equal(y, -other(-x))
        np.testing.assert_array_equal(index, ln.spec.forward_with_indices(op, x)[1])
        dx, gy = rng.normal(size=x.shape).astype(dtype), rng.normal(size=y.shape).astype(dtype)
        np.testing.assert_array_equal(op.jvp(x, dx), other.jvp(-x, dx))
        np.testing.assert_array_equal(op.vjp(x, gy), other.vjp(-x, gy))
        small = ln.spec.jvp(op, x, dx)
        np.testing.assert_allclose(op.jvp(x, dx), small, rtol=0.02)


@pytest.mark.parametrize("dtype", brief(INTEGERS))
def test_the_mean_in_the_same_type_is_rounded_half_to_even(dtype):
    rng = np.random.default_rng(3)
    limits = np.iinfo(dtype)
    wide = rng.integers(limits.min, limits.max, (5, 6, 7), dtype=dtype, endpoint=True)
    for x in (wide, labels((5, 6, 7), dtype)):
        y = ln.avg_pool(x, (2, 2, 2), dtype="same", ceil_mode=True)
        assert y.dtype == x.dtype
        for i in np.ndindex(y.shape):
            cells = x[tuple(slice(2 * a, 2 * a + 2) for a in i)].ravel().tolist()
            assert int(y[i]) == round(Fraction(sum(cells), len(cells)))
    floats = rng.normal(size=(4, 6))
    np.testing.assert_array_equal(
        ln.avg_pool(floats, (2, 2), dtype="same"), ln.avg_pool(floats, (2, 2))
    )


def test_what_is_refused():
    with pytest.raises(TypeError, match="float32: a mode counts equal values"):
        ln.mode_pool(np.ones((4, 4), np.float32), (2, 2))
    with pytest.raises(TypeError, match="no derivative"):
        ln.ModePool((2,)).vjp(np.ones(4, int), np.ones(2, int))
    with pytest.raises(TypeError, match="only a max"):
        ln.spec.forward_with_indices(ln.ModePool((2,)), np.ones(4, int))
    with pytest.raises(ValueError, match=r"ties='last'.*'smallest', 'first'"):
        ln.ModePool((2,), ties="last")
    with pytest.raises(TypeError, match="sparse"):
        ln.ModePool((2,), sparse="yes")
    with pytest.raises(ValueError, match="dtype='int8'"):
        ln.AvgPool((2,), dtype="int8")
    with pytest.raises(TypeError, match="bool"):
        ln.avg_pool(np.ones(4, bool), (2,), dtype="same")


def test_an_op_is_a_value():
    op = ln.ModePool((2, 3), stride=1, ties="first", sparse=True)
    assert repr(op) == "ModePool((2, 3), stride=1, ties='first', sparse=True)"
    assert eval(repr(op), vars(ln)) == op
    assert repr(ln.AvgPool((2,), dtype="same")) == "AvgPool((2,), dtype='same')"


OPS = [
    ln.ModePool((3, 2), 2, 1, sparse=True),
    ln.MinPool((3, 2), 2, 1),
    ln.AvgPool((2, 2), dtype="same", ceil_mode=True),
]


@pytest.mark.parametrize("op", OPS, ids=repr)
@pytest.mark.parametrize("library", ["dask", "xarray", "torch"])
def test_every_library(library, op):
    x = labels((3, 13, 11), "i4", values=6)
    expected = op(x)
    if library == "dask":
        da = pytest.importorskip("dask.array")
        result = op(da.from_array(x, chunks=(2, 4, 5))).compute()
    elif library == "xarray":
        xr = pytest.importorskip("xarray")
        found = op(xr.DataArray(x, dims=("t", "y", "x"), coords={"x": np.arange(11.0)}))
        assert found.dims == ("t", "y", "x")
        result = found.values
    else:
        torch = pytest.importorskip("torch")
        found = op(torch.from_numpy(x))
        assert found.dtype == torch.int32
        result = found.numpy()
    assert result.dtype == x.dtype
    np.testing.assert_array_equal(result, expected)


def test_min_of_tensors_has_gradients_and_mode_none():
    torch = pytest.importorskip("torch")
    x = torch.randn(2, 8, 9, dtype=torch.float64, requires_grad=True)
    y = ln.min_pool(x, (2, 3))
    y.sum().backward()
    expected = ln.MinPool((2, 3)).vjp(x.detach().numpy(), np.ones(y.shape))
    np.testing.assert_array_equal(x.grad.numpy(), expected)
    with pytest.raises(TypeError, match="mode"):
        ln.mode_pool(x, (2, 3))
    with pytest.raises(TypeError, match="no derivative"):
        ln.ModePool((2, 3)).vjp(x, y)


FAR = [
    ln.Sliding(2**70, 2**70, 2**70),
    ln.Sliding(2**40, 1, (2**40 - 3, 2)),
    ln.Sliding(2, 2**62),
    ln.Sliding(3, 2, (2**62 + 4, 2**62 + 4), 2**62),
    ln.Sliding(300, 1, (300, 2)),
    ln.Sliding(20, 3, (5, 40), 2),
    ln.Sliding(33, 1, (40, 0)),
]
"""Windows, steps and counts past int64, past the type of the cells, and past the length from which sums run along."""


@pytest.mark.parametrize("region", FAR, ids=repr)
@pytest.mark.parametrize(
    "reduction",
    [ln.RoundedMean(), ln.RoundedMean(False), ln.Mode(), ln.Mode("first", True), ln.Min()],
    ids=repr,
)
@pytest.mark.parametrize("dtype", ["uint8", "int64"])
def test_windows_that_reach_far(region, reduction, dtype):
    info = np.iinfo(dtype)
    x = np.array([info.max, info.max - 1, info.min, 3, 3, 0, info.max], dtype)
    x = np.resize(x, 7 if region.extent > 60 else 40)
    op = ln.Pool((region,), reduction)
    expected, found = ln.spec.forward(op, x), op(x)
    np.testing.assert_array_equal(found, expected)
    assert found.dtype == x.dtype
    if isinstance(reduction, ln.Min):
        found, indices = ln.dispatch.forward_with_indices(op, x)
        np.testing.assert_array_equal(found, expected)
        np.testing.assert_array_equal(indices, ln.spec.forward_with_indices(op, x)[1])


def test_cells_that_count_on_several_axes():
    """The product of the counts is past int64."""
    op = ln.AvgPool((2**40, 2**40), padding=2**40 - 1, stride=2**40, dtype="same")
    x = np.array([[2**62, -(2**62)], [3, 2**62]])
    np.testing.assert_array_equal(op(x), ln.spec.forward(op, x))


def test_a_tensor_that_is_lazily_negative():
    torch = pytest.importorskip("torch")
    x = torch._neg_view(torch.tensor([1, 2, 3, 4], dtype=torch.int16))
    for op in (ln.ModePool((2,)), ln.MinPool((2,)), ln.AvgPool((1,), 2, dtype="same")):
        np.testing.assert_array_equal(op(x).numpy(), op(np.array([-1, -2, -3, -4], np.int16)))
