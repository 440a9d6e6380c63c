"""Pooling of Dask arrays: the bits of the unchunked answer for any chunking, from exact slabs."""

import dask.array as da
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lunette as ln
from lunette import dispatch
from lunette.adapters import dask as adapter
from tests.scale.chunkings import axis_chunks, chunked, float_arrays, same_bits
from tests.strategies import ops, shapes

FAMILIES = [
    {"kinds": ("max",)},
    {"kinds": ("mean",)},
    {"smooth": True},
]


@pytest.mark.parametrize("family", FAMILIES, ids=["max", "mean", "smooth"])
@given(data=st.data())
@settings(max_examples=60)
def test_every_verb_has_the_same_bits_for_any_chunking(family, data):
    shape, rank = data.draw(shapes())
    op = data.draw(ops(shape, rank, **family))
    x, dx = data.draw(float_arrays(shape)), data.draw(float_arrays(shape))
    lazy = data.draw(chunked(x))
    y = op(x)
    same_bits(op(lazy), y)
    same_bits(op.jvp(lazy, data.draw(chunked(dx))), op.jvp(x, dx))
    gy = data.draw(float_arrays(y.shape))
    same_bits(op.vjp(lazy, data.draw(chunked(gy))), op.vjp(x, gy))
    if isinstance(op.reduction, ln.Max):
        lazy_pair, pair = (dispatch.forward_with_indices(op, a) for a in (lazy, x))
        for a, b in zip(lazy_pair, pair, strict=True):
            same_bits(a, b)


@given(data=st.data())
@settings(max_examples=25)
def test_chunks_of_the_result_may_be_asked_for(data):
    op = ln.MaxPool(
        (3, 2), stride=(2, 1), padding=((1, 2), (0, 1)), dilation=(1, 3), ceil_mode=True
    )
    x = data.draw(float_arrays((2, 9, 8)))
    y = op(x)
    asked = tuple(data.draw(axis_chunks(n)) for n in y.shape)
    lazy = adapter.forward(op, (data.draw(chunked(x)),), chunks=asked)
    assert lazy.chunks == asked
    same_bits(lazy, y)


@pytest.mark.parametrize("dtype", ["float16", "float64", "int64", "uint8"])
def test_dtypes(dtype):
    x = np.random.default_rng(5).integers(0, 2 if dtype == "bool" else 9, (11, 7)).astype(dtype)
    lazy = da.from_array(x, chunks=(4, 3))
    for op in (ln.MaxPool((3, 3), 2, 1), ln.AvgPool((3, 3), 2, 1), ln.AdaptiveAvgPool((4, 9))):
        same_bits(op(lazy), op(x))


def test_bytes_in_any_order():
    x = np.random.default_rng(5).normal(size=(11, 7))
    lazy = da.from_array(x.astype(">f8"), chunks=(4, 3))
    op = ln.MaxPool((3, 3), 2, 1)
    gy = np.ones(op.out_shape(x.shape))
    same_bits(op(lazy), op(x))
    same_bits(op.vjp(lazy, gy), op.vjp(x, gy))


def test_chunks_without_cells():
    x = np.random.default_rng(5).normal(size=(11,)).astype("f4")
    lazy = da.from_array(x, chunks=((4, 0, 1, 6, 0),), name=False)
    for op in (ln.MaxPool((3,), 2, 1), ln.AvgPool((3,), 2, 1), ln.AdaptiveAvgPool((20,))):
        same_bits(op(lazy), op(x))
        same_bits(op.vjp(lazy, op(x)), op.vjp(x, op(x)))


def test_exact_rationals_go_through_the_specification():
    from tests.cells import sample

    x = sample((7, 6), 3)
    lazy = da.from_array(x, chunks=(2, 4), name=False)
    op = ln.AvgPool((3, 2), stride=2, padding=1)
    gy = sample(op.out_shape(x.shape), 4)
    same_bits(op(lazy), op(x))
    same_bits(op.vjp(lazy, da.from_array(gy, chunks=1, name=False)), op.vjp(x, gy))


def test_defaults_align_the_result_to_the_chunks_of_the_input():
    x = da.zeros((4, 64, 60), chunks=(2, 16, 20), dtype="f4")
    assert ln.max_pool(x, (2, 2)).chunks == ((2, 2), (8,) * 4, (10,) * 3)
    assert ln.max_pool(x, (3, 3), 2, 1).chunks == ((2, 2), (8,) * 4, (10,) * 3)
    assert ln.global_avg_pool(x, 2).chunks == ((2, 2), (1,), (1,))


def test_an_axis_of_length_zero_in_the_batch():
    x = np.zeros((0, 5), np.float32)
    same_bits(ln.max_pool(da.from_array(x, chunks=2), (2,)), ln.max_pool(x, (2,)))


# -- slabs and graphs --


class Store:
    """An array that notes what is read of it."""

    def __init__(self, x):
        self.x, self.shape, self.dtype, self.ndim, self.reads = x, x.shape, x.dtype, x.ndim, []

    def __getitem__(self, index):
        self.reads.append(tuple((s.start, s.stop) for s in index))
        return self.x[index]


def test_a_task_reads_its_slab_from_the_store_and_nothing_else():
    x = np.arange(20.0).reshape(20)
    store = Store(x)
    lazy = da.from_array(store, chunks=5, asarray=True)
    y = ln.max_pool(lazy, (3,), stride=2, padding=1)
    assert y.chunks == ((2, 3, 2, 3),)
    store.reads.clear()
    np.testing.assert_array_equal(y.compute(scheduler="sync"), ln.max_pool(x, (3,), 2, 1))
    # Outputs 0–1, 2–4, 5–6, 7–9 read positions 2i−1 … 2i+1.
    assert sorted(store.reads) == [((0, 4),), ((3, 10),), ((9, 14),), ((13, 20),)]


def test_the_gradient_of_a_mean_reads_no_input_and_no_gradient_twice():
    x = Store(np.zeros(12))
    lazy = da.from_array(x, chunks=4)
    gy = Store(np.arange(6.0))
    gx = ln.AvgPool((2,)).vjp(lazy, da.from_array(gy, chunks=3))
    x.reads.clear()
    gy.reads.clear()
    np.testing.assert_array_equal(gx.compute(scheduler="sync"), np.repeat(np.arange(6.0), 2) / 2)
    assert x.reads == []
    assert sorted(gy.reads) == [((0, 2),), ((2, 4),), ((4, 6),)]


@pytest.mark.parametrize("n", [40, 400])
def test_the_graph_has_one_task_for_each_chunk_of_the_result(n):
    lazy = da.zeros((n, 30), chunks=(10, 10), dtype="f4")
    y = ln.avg_pool(lazy, (3, 3), stride=2, padding=1)
    layer = y.dask.layers[y.name]
    assert len(layer) == y.npartitions == n // 10 * 3
    assert len(y.dask) == len(lazy.dask) + y.npartitions


# -- blocks of other libraries --


class Device(np.lib.mixins.NDArrayOperatorsMixin):
    """A NumPy-like array on a device, in the manner of CuPy: it becomes NumPy's by `get` alone."""

    def __init__(self, x):
        self.x = np.asarray(x)

    shape = property(lambda self: self.x.shape)
    dtype = property(lambda self: self.x.dtype)
    ndim = property(lambda self: self.x.ndim)

    def __array__(self, *args, **kwargs):
        raise TypeError("this array is on a device")

    def __getitem__(self, index):
        return Device(self.x[index])

    def __setitem__(self, index, value):
        self.x[index] = value.x

    def get(self):
        return self.x

    def astype(self, dtype, **kwargs):
        return Device(self.x.astype(dtype))

    def sum(self, **kwargs):
        return Device(self.x.sum(**kwargs))

    def __array_function__(self, function, types, args, kwargs):
        kwargs = {k: v for k, v in kwargs.items() if k != "like"}
        return Device(function(*map(_off, args), **kwargs))

    def __array_ufunc__(self, function, method, *args, **kwargs):
        assert not any(isinstance(a, np.ndarray) for a in args), "a mixture with NumPy's"
        return Device(getattr(function, method)(*map(_off, args), **kwargs))


def _off(x):
    """Off the device; in lists too, as `concatenate` has them."""
    if isinstance(x, list):
        return [_off(a) for a in x]
    return x.x if isinstance(x, Device) else x


def on_device(x, chunks):
    empty = Device(x[(slice(0, 0),) * x.ndim])
    return da.from_array(Device(x), chunks=chunks, asarray=False, meta=empty)


def same_on_device(lazy, expected):
    actual = lazy.compute(scheduler="sync")
    assert type(actual) is Device
    np.testing.assert_array_equal(actual.x, expected)


@pytest.mark.parametrize(
    "op",
    [ln.MaxPool((3, 3), 2, 1), ln.AvgPool((3, 3), 2, 1), ln.SmoothMaxPool((2, 2), beta=1.0)],
    ids=["max", "mean", "smooth"],
)
def test_blocks_of_a_numpy_like_library_come_back_as_they_were(op):
    x, dx = np.random.default_rng(0).normal(size=(2, 6, 9)).astype("f4")
    gy = np.random.default_rng(1).normal(size=op.out_shape(x.shape)).astype("f4")
    stored = on_device(x, (3, 4))
    for lazy in (stored, stored + 0):  # slabs from a store, and slabs put together from chunks
        same_on_device(op(lazy), op(x))
        same_on_device(op.jvp(lazy, on_device(dx, 5)), op.jvp(x, dx))
        same_on_device(op.vjp(lazy, on_device(gy, 2)), op.vjp(x, gy))


def test_convolution_of_blocks_of_a_numpy_like_library():
    rng = np.random.default_rng(0)
    x, weight, bias, gy = (
        rng.integers(-4, 5, shape).astype("f4")
        for shape in ((2, 7, 8), (3, 2, 3, 3), (3,), (3, 5, 6))
    )
    op = ln.Conv((3, 3))
    lazy = on_device(x, (2, 3, 4))
    same_on_device(ln.forward(op, lazy, weight, bias), ln.forward(op, x, weight, bias))
    gradients = ln.vjp(op, (lazy, weight, bias), on_device(gy, (3, 2, 2)))
    for gradient, expected in zip(gradients, ln.vjp(op, (x, weight, bias), gy), strict=True):
        same_on_device(gradient, expected)  # sums of small integers are exact in any order


# -- what is refused --


def test_chunks_of_unknown_size_are_refused():
    x = da.from_array(np.arange(10.0), chunks=5)
    unknown = x[x > 3]
    with pytest.raises(
        ValueError, match=r"x has chunks of unknown size on axis 0.*compute_chunk_sizes"
    ):
        ln.max_pool(unknown, (2,))
    with pytest.raises(ValueError, match="gradient has chunks of unknown size"):
        ln.MaxPool((2,)).vjp(x, unknown)


def test_what_an_op_refuses_it_refuses_before_any_work():
    def fail(block):
        raise AssertionError("computed")

    x = da.ones((6, 6), chunks=3).map_blocks(fail, dtype="f8", meta=np.empty((0, 0)))
    with pytest.raises(ValueError, match=r"longer than the padded input"):
        ln.max_pool(x, (7, 7))
    with pytest.raises(TypeError, match="only a max has indices"):
        dispatch.forward_with_indices(ln.AvgPool((2, 2)), x)
    with pytest.raises(ValueError, match="backend='gpu'"):
        ln.max_pool(x, (2, 2), backend="gpu")
    with pytest.raises(ValueError, match="tangent of x has shape"):
        ln.MaxPool((2, 2)).jvp(x, x[:3])
    with pytest.raises(ValueError, match="gradient has shape"):
        ln.MaxPool((2, 2)).vjp(x, x)
    with pytest.raises(TypeError, match="integers have no tangent"):
        ln.MaxPool((2,)).vjp(da.ones(4, dtype="i4"), da.ones(2, dtype="i4"))
    with pytest.raises(TypeError, match="x is a masked array"):
        ln.max_pool(da.ma.masked_greater(x, 1), (2, 2))
    with pytest.raises(TypeError, match="masked array"):
        ln.MaxPool((2,)).jvp(da.ones(4), np.ma.masked_array(np.ones(4)))
