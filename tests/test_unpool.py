"""max_unpool over every library: one answer, lazy where arrays are, labelled where they are."""

import dask
import dask.array as da
import numpy as np
import pytest
import torch
import xarray as xr
from torch.func import grad, jvp, vmap

import lunette as ln
from lunette import spec

X = np.random.default_rng(3).permutation(5 * 3 * 36).reshape(5, 3, 6, 6) / 4.0
OP = ln.MaxPool((2, 2), stride=2, padding=1, dilation=2)  # some windows read padding alone
Y, INDICES = ln.dispatch.forward_with_indices(OP, X)
Y, INDICES = Y.copy(), INDICES.copy()
INDICES[0, 0, 0, 0], INDICES[1, 1] = -1, 7  # one that goes nowhere, and many at one place
BACK = ln.max_unpool(Y, INDICES, (6, 6))


def unpool(values, indices):
    return ln.max_unpool(values, indices, (6, 6))


def test_each_value_is_at_its_index_and_the_last_of_equals_stays():
    expected = np.zeros_like(X)
    for place in np.ndindex(Y.shape):
        if INDICES[place] >= 0:
            expected[place[:2]].flat[INDICES[place]] = Y[place]
    assert (expected == BACK).all()
    assert BACK[1, 1].flat[7] == Y[1, 1].flat[-1]


@pytest.mark.parametrize("dtype", [">i8", "i4", ">i2", "i1", ">u8", "u4", ">u2", "u1"])
def test_indices_of_any_integer_type(dtype):
    indices = INDICES if np.dtype(dtype).kind == "i" else np.maximum(INDICES, 0)
    expected = unpool(Y, indices)
    assert (unpool(Y, indices.astype(dtype)) == expected).all()
    assert (spec.unpool(Y, indices.astype(dtype), (6, 6)) == expected).all()
    tensors = torch.tensor(Y), torch.tensor(indices.astype(np.dtype(dtype).newbyteorder("=")))
    assert (unpool(*tensors).numpy() == expected).all()
    lazy = da.from_array(indices.astype(dtype), chunks=2)
    assert (unpool(da.from_array(Y, chunks=3), lazy).compute() == expected).all()


def test_indices_that_are_no_integers_or_no_places():
    past = np.full(Y.shape, 2**64 - 1, np.uint64)  # as int64 it would be −1
    for library in (np.asarray, torch.tensor):
        for bad in (INDICES > 0, INDICES.astype(float)):
            with pytest.raises(
                TypeError, match=r"indices have dtype \w+; expected an integer type"
            ):
                unpool(library(Y), library(bad))
        with pytest.raises(ValueError, match="indices contain 18446744073709551615"):
            unpool(library(Y), library(past))
        with pytest.raises(ValueError, match="indices contain 36; expected −1 … 35"):
            unpool(library(Y), library(np.where(INDICES == 7, 36, INDICES)))
    for dtype in (complex, "M8[s]", "U4", np.longdouble):
        with pytest.raises(TypeError, match="values has dtype"):
            unpool(Y.astype(dtype), INDICES)


# -- Dask --


@pytest.mark.parametrize("chunks", [(2, 1, 2, 3), -1, (5, 3, 1, 1), (1, 2, -1, 2)])
def test_dask_arrays_stay_lazy(chunks):
    def never(block):
        raise AssertionError("computed")

    values, indices = da.from_array(Y, chunks=chunks), da.from_array(INDICES, chunks=(3, 3, 2, 2))
    unready = values.map_blocks(never, dtype=Y.dtype, meta=np.empty((0,) * 4))
    assert unpool(unready, indices).shape == X.shape
    lazy = unpool(values, indices)
    assert isinstance(lazy, da.Array)
    assert lazy.chunks[:2] == values.chunks[:2]
    assert lazy.chunks[2:] == ((6,), (6,))
    for scheduler in ("synchronous", "threads"):
        assert lazy.compute(scheduler=scheduler).tobytes() == BACK.tobytes()
    assert unpool(values, INDICES).compute().tobytes() == BACK.tobytes()
    assert unpool(Y, indices).compute().tobytes() == BACK.tobytes()
    assert dask.base.tokenize(lazy) == dask.base.tokenize(unpool(values, indices))


def test_dask_checks_shapes_at_once_and_indices_when_computed():
    values, indices = da.from_array(Y, chunks=2), da.from_array(INDICES, chunks=2)
    with pytest.raises(ValueError, match="indices have shape"):
        unpool(values, indices[1:])
    with pytest.raises(TypeError, match="indices have dtype float64"):
        unpool(values, indices.astype(float))
    with pytest.raises(ValueError, match=r"indices contain \d+; expected"):
        unpool(values, indices + 72).compute()
    with pytest.raises(TypeError, match="indices is a masked array"):
        unpool(values, da.ma.masked_greater(indices, 3))


# -- xarray --


def labelled(data, **coordinates):
    return xr.DataArray(data, dims=("b", "c", "y", "x"), name="image", attrs={"units": "K"},
                        coords={"b": list("abcde"), "band": ("c", [4, 5, 6]), **coordinates})  # fmt: skip


def test_labels_are_kept():
    x = labelled(X, y=np.arange(6) * 10)
    values, indices = ln.max_pool(x, {"y": 2, "x": 2}, return_indices=True)
    back = unpool(values, indices)
    assert back.dims == x.dims
    assert set(back.coords) == {"b", "band"}  # those of pooled dimensions are not known any more
    assert (back.name, back.attrs) == ("image", {"units": "K"})
    assert (back.values == unpool(values.values, indices.values)).all()
    by_name = ln.max_unpool(values, indices, {"x": 6, "y": 6})
    assert by_name.identical(back)
    lazy = unpool(values.chunk({"b": 2}), indices.chunk({"b": 2}))
    assert isinstance(lazy.data, da.Array)
    assert lazy.compute().identical(back)


def test_dimensions_go_by_name():
    x = labelled(X).transpose("y", "b", "x", "c")
    values, indices = ln.max_pool(x, {"y": 2, "x": 2}, return_indices=True)
    back = ln.max_unpool(values, indices.transpose("c", "x", "y", "b"), {"y": 6, "x": 6})
    assert back.dims == x.dims
    expected = unpool(*ln.max_pool(X, (2, 2), return_indices=True))
    assert (back.transpose("b", "c", "y", "x").values == expected).all()


def test_labels_that_differ_are_refused():
    values, indices = labelled(Y), labelled(INDICES)
    with pytest.raises(ValueError, match="other labels"):
        unpool(values, indices.assign_coords(b=list("bacde")))
    with pytest.raises(ValueError, match="dimensions"):
        unpool(values, indices.rename(x="z"))
    with pytest.raises(ValueError, match="dimension 'z'"):
        ln.max_unpool(values, indices, {"z": 6})
    with pytest.raises(TypeError, match="expected values as an xarray DataArray"):
        ln.max_unpool(Y, INDICES, {"y": 6})


def test_tangents_and_gradients_of_labelled_arrays_go_by_dimension():
    """A tangent in another order of dimensions is turned; one with others is refused."""
    x, dx = labelled(X), labelled(X[::-1].copy())
    op = ln.AvgPool((2, 2))
    assert op.jvp(x, dx.transpose("x", "y", "b", "c")).identical(op.jvp(x, dx))
    gy = op(x)
    assert op.vjp(x, gy.transpose(..., "b")).identical(op.vjp(x, gy))
    with pytest.raises(ValueError, match="tangent of x has dimensions"):
        op.jvp(x, dx.rename(x="z"))
    with pytest.raises(ValueError, match="gradient has dimensions"):
        op.vjp(x, gy.rename(b="z"))


# -- torch --

TY, TI = torch.tensor(Y), torch.tensor(INDICES)


@pytest.mark.parametrize("dims", [(0, 0), (1, 1), (-1, -1), (0, None), (None, 1)])
def test_vmap(dims):
    flat = TY.flatten(2), TI.flatten(2)  # one pooled axis of nine values, six cells each side
    values, indices = (
        t if d is not None else t.select(1 if 1 in dims else 0, 0)
        for t, d in zip(flat, dims, strict=True)
    )

    def one(v, i):
        return ln.max_unpool(v, i, (36,))

    if -1 in dims:  # the mapped axis is the last: the batch has two others
        values, indices = values.movedim(0, -1), indices.movedim(0, -1)
    found = vmap(one, in_dims=dims)(values, indices)
    count = next(t.shape[d] for t, d in zip((values, indices), dims, strict=True) if d is not None)
    for sample in range(count):
        picked = [
            t if d is None else t.select(d, sample)
            for t, d in zip((values, indices), dims, strict=True)
        ]
        assert torch.equal(found[sample], one(*picked))


def test_vmap_nests_with_derivatives():
    assert torch.equal(vmap(vmap(unpool))(TY, TI), torch.tensor(BACK))
    square = lambda v, i: (unpool(v, i) ** 2).sum()  # noqa: E731
    slopes = vmap(grad(square))(TY, TI)
    assert torch.equal(slopes, grad(square)(TY, TI))
    pushed = jvp(lambda v: vmap(unpool)(v, TI), (TY,), (TY,))[1]
    assert torch.equal(pushed, torch.tensor(BACK))


def test_vmap_and_compile_check_the_indices():
    with pytest.raises(ValueError, match="indices contain 107"):
        vmap(unpool)(TY, TI + 72)
    compiled = torch.compile(unpool, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(TY, TI), torch.tensor(BACK))
    with pytest.raises(ValueError, match="indices contain 107"):
        compiled(TY, TI + 72)


def test_tensors_without_data():
    assert unpool(TY.to("meta"), TI.to("meta")).shape == X.shape
    torch.library.opcheck(torch.ops.lunette.unpool_targets.default, (TI, (6, 6)))


ODD_TENSORS = {
    "complex64": lambda x: x.to(torch.complex64),
    "float8_e4m3fn": lambda x: x.to(torch.float8_e4m3fn),
    "nested": lambda x: torch.nested.nested_tensor(list(x)),
    "masked": lambda x: torch.masked.masked_tensor(x, x > 1),
    "to_dense": lambda x: x.to_sparse(),
    "quantised": lambda x: torch.quantize_per_tensor(x.float(), 0.1, 0, torch.qint8),
}


@pytest.mark.parametrize("word", ODD_TENSORS)
@pytest.mark.filterwarnings("ignore")
def test_tensors_that_are_no_plain_numbers_are_refused(word):
    odd, plain = ODD_TENSORS[word](TY), TY.float() if word == "quantised" else TY
    pool = ln.MaxPool((2, 2), stride=1)
    for call in (
        lambda: pool(odd),
        lambda: ln.max_pool(odd, (2, 2), return_indices=True),
        lambda: pool.jvp(plain, odd),
        lambda: pool.vjp(plain, odd),
        lambda: ln.conv(odd, plain[:1, :, :2, :2]),
        lambda: ln.conv(plain, odd),
        lambda: unpool(odd, TI),
        lambda: unpool(plain, odd),
        lambda: ln.Tape().leaf(odd),
    ):
        with pytest.raises(TypeError, match=word):
            call()
