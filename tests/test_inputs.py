"""Every entry × every odd kind of array: the answer for the plain values, or an error that names the operand."""

import os
import warnings

import dask.array as da
import ml_dtypes
import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

import lunette as ln
from lunette import offsets, spec, torchlean
from lunette.ops.base import is_float
from lunette.testing import check_adjoint, check_op
from tests.odd_arrays import REFUSED, SERVED, Held, Quantity
from tests.strategies import ops, shapes

EXAMPLES = int(os.environ.get("LUNETTE_INPUT_EXAMPLES", "40"))
BACKENDS = [None, "spec"] if "LUNETTE_INPUT_KERNELS" in os.environ else ["spec"]
"""Kernels for every layout take long to compile, so they take part when asked to."""

RNG = np.random.default_rng(11)
X = RNG.permutation(24).reshape(4, 6) / 4.0 - 3
GY = RNG.permutation(12).reshape(4, 3) / 4.0
MAX, MEAN, SMOOTH = ln.MaxPool((2,)), ln.AvgPool((2,)), ln.SmoothMaxPool((2,), 1.5)
W = X[:2, :4].reshape(1, 4, 2)  # one output channel of x's four
CONV = ln.Conv((2,))


def keyed(function, shape=X.shape):
    """An entry whose odd operand is to have this shape."""
    return function, shape


def on_tape(x):
    tape = ln.Tape()
    return tape.value(tape.apply(MAX, tape.leaf(x)))


def tape_gradient(grad):
    tape = ln.Tape()
    leaf = tape.leaf(np.asarray(X, _dtype_of(grad)))
    return tape.backward(tape.apply(MAX, leaf), grad)[leaf]


def tape_tangent(dx):
    tape = ln.Tape()
    leaf = tape.leaf(np.asarray(X, _dtype_of(dx)))
    return tape.jvp(tape.apply(MEAN, leaf), {leaf: dx})


def tape_sum(x):
    tape = ln.Tape()
    return tape.value(tape.leaf(x) + tape.leaf(x))


def _dtype_of(x):
    """The dtype that an operand's partner must have: that of the odd one, where that is a float."""
    found = np.asarray(getattr(x, "x", x)).dtype
    return found.newbyteorder("=") if is_float(found) else np.dtype(np.float64)


def like(plain, odd):
    return plain.astype(_dtype_of(odd))


KEPT = offsets.forward_with_offsets(MAX, X)[1]
INDICES = ln.max_pool(X, (2,), return_indices=True)[1]
LAYER, MEAN_LAYER = torchlean.MaxPoolSpec((2,), (2,), (0,)), torchlean.AvgPoolSpec((2,), (2,), (0,))

ENTRIES = {
    # name: (function of the odd operand, its shape)
    "max_pool": keyed(lambda x: ln.max_pool(x, (2,))),
    "max_pool indices": keyed(lambda x: ln.max_pool(x, (2,), return_indices=True)[1]),
    "avg_pool": keyed(lambda x: ln.avg_pool(x, (2,))),
    "smooth_max_pool": keyed(lambda x: ln.smooth_max_pool(x, (2,), 1.5, backend="spec")),
    "adaptive_max_pool": keyed(lambda x: ln.adaptive_max_pool(x, (4,), backend="spec")),
    "adaptive_avg_pool": keyed(lambda x: ln.adaptive_avg_pool(x, (4,), backend="spec")),
    "global_max_pool": keyed(lambda x: ln.global_max_pool(x, 2, backend="spec")),
    "global_avg_pool": keyed(lambda x: ln.global_avg_pool(x, 1, backend="spec")),
    "op": keyed(MAX),
    "jvp at": keyed(lambda x: MAX.jvp(x, like(X, x))),
    "jvp along": keyed(lambda dx: MAX.jvp(like(X, dx), dx)),
    "vjp at": keyed(lambda x: MAX.vjp(x, like(GY, x))),
    "vjp of": keyed(lambda gy: MAX.vjp(like(X, gy), gy), GY.shape),
    "conv of": keyed(lambda x: ln.conv(x, like(W, x), backend="spec")),
    "conv by": keyed(lambda w: ln.conv(like(X, w), w, backend="spec"), (1, 4, 2)),
    "conv bias": keyed(lambda b: ln.conv(like(X, b), like(W, b), b, backend="spec"), (1,)),
    "conv_transpose of": keyed(lambda x: ln.conv_transpose(x, like(W.swapaxes(0, 1), x), backend="spec")),
    "conv_transpose by": keyed(lambda w: ln.conv_transpose(like(X, w), w, backend="spec"), (4, 1, 2)),
    "conv jvp along": keyed(lambda dw: CONV.jvp((like(X, dw), like(W, dw)), (like(X, dw), dw)), (1, 4, 2)),
    "spec.forward": keyed(lambda x: spec.forward(MEAN, x)),
    "spec.forward_with_indices": keyed(lambda x: spec.forward_with_indices(MAX, x)[1]),
    "spec.jvp at": keyed(lambda x: spec.jvp(SMOOTH, x, like(X, x))),
    "spec.jvp along": keyed(lambda dx: spec.jvp(SMOOTH, like(X, dx), dx)),
    "spec.vjp of": keyed(lambda gy: spec.vjp(MAX, like(X, gy), gy), GY.shape),
    "spec.unpool": keyed(lambda y: spec.unpool(y, INDICES, (6,)), GY.shape),
    "max_unpool": keyed(lambda y: ln.max_unpool(y, INDICES, (6,)), GY.shape),
    "max_unpool by": keyed(lambda i: ln.max_unpool(GY, i, (6,)), GY.shape),
    "forward_with_offsets": keyed(lambda x: offsets.forward_with_offsets(MAX, x)[1]),
    "vjp_from_offsets": keyed(lambda gy: offsets.vjp_from_offsets(MAX, KEPT, gy, X.shape), GY.shape),
    "vjp_from_offsets by": keyed(lambda o: offsets.vjp_from_offsets(MAX, o, GY, X.shape), GY.shape),
    "jvp_from_offsets": keyed(lambda dx: offsets.jvp_from_offsets(MAX, KEPT, dx)),
    "torchlean max": keyed(lambda x: torchlean.max_pool_spec(LAYER, x)),
    "torchlean mean": keyed(lambda x: torchlean.avg_pool_spec(MEAN_LAYER, x)),
    "torchlean smooth max": keyed(lambda x: torchlean.smooth_max_pool_spec(LAYER, 1.5, x)),
    "torchlean backward": keyed(lambda gy: torchlean.max_pool_backward_spec(LAYER, like(X, gy), gy), GY.shape),
    "torchlean mean backward": keyed(
        lambda gy: torchlean.avg_pool_backward_spec(MEAN_LAYER, gy, input_shape=X.shape), GY.shape
    ),
    "torchlean one window": keyed(lambda x: torchlean.max_pool_value(x, (0, 1), (2, 2), (2, 2), (0, 0))),
    "torchlean padded cell": keyed(
        lambda x: torchlean.get_padded_average_input_val(x, (0, 1), (1, 1), (2, 2), (0, 0))
    ),
    "torchlean reduce": keyed(torchlean.channel_spatial_max),
    "torchlean unpad": keyed(lambda x: torchlean.unpad_image(x, 1)),
    "tape leaf": keyed(on_tape),
    "tape sum": keyed(tape_sum),
    "tape gradient": keyed(tape_gradient, GY.shape),
    "tape tangent": keyed(tape_tangent),
    "dask weight": keyed(
        lambda w: ln.conv(da.from_array(like(X, w), chunks=3), w, backend="spec").compute(), (1, 4, 2)
    ),
}  # fmt: skip

TAKES = {"max_unpool by": np.int64, "vjp_from_offsets by": np.uint8}
"""Entries whose operand is no float."""

MEANT = {
    ("conv bias", "None"),  # no bias
    ("conv bias", "list of quantities"),  # a bias has no rows
    ("conv bias", "list of masked arrays"),
    ("tape sum", "no axes"),
}
"""What is no mistake."""

RAW = ("torchlean padded cell", "torchlean unpad")
"""Entries that hand cells on as they are, and so take cells of any kind."""


def operand(name, dtype):
    """The plain array of an entry's odd operand."""
    shape = ENTRIES[name][1]
    if name in TAKES:
        return (INDICES if name == "max_unpool by" else KEPT).astype(TAKES[name])
    values = X.reshape(-1)[: np.prod(shape, dtype=int)].reshape(shape)
    return values.astype(dtype)


def agree(name, kind, dtype):
    call, plain = ENTRIES[name][0], operand(name, dtype)
    expected = np.asarray(call(plain.copy()))
    odd = SERVED[kind](plain)
    before = plain.tobytes()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        if isinstance(odd, list):
            plain = np.asarray(odd)  # float64, or int64
            if plain.dtype != dtype and name not in TAKES:
                return
            if name == "vjp_from_offsets by":
                with pytest.raises(TypeError, match="uint8"):
                    call(odd)
                return
        found = call(odd)
    found = np.asarray(found)
    assert found.dtype == expected.dtype
    assert found.tobytes() == expected.tobytes()
    assert plain.tobytes() == before or isinstance(odd, list), "an operand was written to"


@pytest.mark.parametrize("kind", SERVED)
def test_the_same_values_give_the_same_bits(kind):
    """In float64, every entry."""
    for name in ENTRIES:
        agree(name, kind, np.float64)


@pytest.mark.full
@pytest.mark.parametrize("dtype", ["float16", "float32", ml_dtypes.bfloat16])
@pytest.mark.parametrize("kind", SERVED)
def test_the_same_values_give_the_same_bits_in_every_type(kind, dtype):
    if dtype == ml_dtypes.bfloat16 and kind == "array interface":
        return  # it has no word for that type
    for name in ENTRIES:
        agree(name, kind, np.dtype(dtype))


NAMES = (
    "x ", "x:", "tangent", "gradient", "grad", "weight", "bias", "values", "indices", "offsets",
    "input", "value", "channel_data", "img", "an object array", "element", "elements",
)  # fmt: skip
"""What an error may call the operand."""


@pytest.mark.parametrize("kind", REFUSED)
def test_what_is_no_plain_array_of_numbers_is_refused(kind):
    """By name, with TypeError or ValueError, at every entry."""
    for name, (call, _) in ENTRIES.items():
        if name in RAW and kind not in ("masked array", "quantity", "quantity that is no array"):
            continue
        if (name, kind) in MEANT:
            continue
        plain = operand(name, np.int64 if name in TAKES else np.float64)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            odd = REFUSED[kind](plain)
        try:
            call(odd)
        except (TypeError, ValueError) as error:
            text = str(error)
            assert any(word in text for word in NAMES), (name, text)
        else:
            pytest.fail(f"{name} took {kind}")


@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")
def test_a_matrix_is_its_array_of_two_axes():
    matrix = np.matrix(X)
    assert type(MAX(matrix)) is np.ndarray
    assert (MAX(matrix) == MAX(X)).all()
    assert MAX(np.matrix(X[0])).shape == (1, 3)
    tape = ln.Tape()
    square = tape.leaf(np.matrix(X[:, :4]))
    assert (tape.value(square * square) == X[:, :4] ** 2).all()  # and no product of matrices


def test_results_of_other_implementations_are_plain_too():
    """A checker compares no values under a mask, and takes any class that adds nothing."""
    for fn in (lambda x: np.ma.array(MAX(x)), lambda x: MAX(x).view(Quantity)):
        with pytest.raises(TypeError, match="the result is a"):
            check_op(fn, MAX)
        with pytest.raises(TypeError, match="the result of jvp is a"):
            check_adjoint(lambda x, dx, fn=fn: fn(dx), MAX.vjp, MAX)
    assert check_op(lambda x: MAX(x).view(np.recarray), MAX) > 0
    for dtype in (">f4", ">f8", ">i2"):
        assert check_op(MAX, MAX, dtype=dtype) > 0
    for dtype in ("c8", "M8[s]", "g", "V4", "words"):
        with pytest.raises(TypeError, match="dtype"):
            check_op(MAX, MAX, dtype=dtype)
    with pytest.raises(AssertionError, match=">f8"):
        check_op(lambda x: MAX(x).astype(">f8"), MAX)


@pytest.mark.parametrize("wrap", [lambda x: da.from_array(x, chunks=3), xr.DataArray])
def test_arrays_that_hold_arrays(wrap):
    """What a Dask array or a DataArray holds is looked at too, at every entry."""
    odd = wrap(Held(X))
    for call in (MAX, lambda x: spec.forward(MAX, x), on_tape, lambda x: MAX.vjp(x, wrap(GY))):
        with pytest.raises(TypeError, match=r"(x|value) is a tests.Held with units 'm'.*magnitude"):
            call(odd)


def test_numbers_that_a_type_cannot_hold():
    tape = ln.Tape()
    for value in (np.ones(2, np.float32), np.ones(2, int)):
        with pytest.raises(ValueError, match=r"a number that .* cannot hold"):
            tape.leaf(value) * 10**400


DTYPES = ["float64", "float32", "float16", "int8", "uint16", "int64", "bool"]


@settings(max_examples=EXAMPLES)
@given(data=st.data())
def test_any_op_of_any_kind_of_array(data):
    """Every verb of random ops, each operand in a guise of its own, on a backend and in `lunette.spec`."""
    shape, rank = data.draw(shapes())
    op = data.draw(ops(shape, rank, smooth=data.draw(st.booleans())))
    dtype = np.dtype(data.draw(st.sampled_from(DTYPES)))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))

    def some(shape, dtype):
        return rng.integers(0, 2 if dtype.kind == "b" else 9, shape).astype(dtype)

    def odd(x):
        kind = data.draw(st.sampled_from([k for k in SERVED if k != "list"]))
        return SERVED[kind](x)

    backend = data.draw(st.sampled_from(BACKENDS))
    x, dx = some(shape, dtype), some(shape, dtype)
    y = ln.forward(op, x, backend=backend)
    same(ln.forward(op, odd(x), backend=backend), y)
    same(spec.forward(op, odd(x)), spec.forward(op, x))
    if isinstance(op.reduction, ln.Max):
        for a, b in zip(
            ln.dispatch.forward_with_indices(op, odd(x), backend=backend),
            ln.dispatch.forward_with_indices(op, x, backend=backend),
            strict=True,
        ):
            same(a, b)
    if dtype.kind == "f":
        gy = some(y.shape, dtype)
        same(ln.jvp(op, odd(x), odd(dx), backend=backend), ln.jvp(op, x, dx, backend=backend))
        same(ln.vjp(op, odd(x), odd(gy), backend=backend), ln.vjp(op, x, gy, backend=backend))
        same(spec.vjp(op, odd(x), odd(gy)), spec.vjp(op, x, gy))


def same(found, expected):
    assert type(found) is np.ndarray
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    assert found.tobytes() == expected.tobytes()


# -- lists whose own methods lie --


class Endless(list):
    def __iter__(self):
        while True:
            yield 1.0

    def __len__(self):
        return 1 << 40


class Failing(tuple):
    __slots__ = ()

    def __iter__(self):
        raise ZeroDivisionError("iter")

    def __len__(self):
        raise ZeroDivisionError("len")


POOL = ln.MaxPool((2, 2))
IMAGE = [[1.0, 2.0], [3.0, 4.0]]


@pytest.mark.parametrize(
    "rows", [Endless(IMAGE), [Endless(r) for r in IMAGE], Endless(map(Failing, IMAGE))]
)
def test_a_list_is_what_it_holds(rows):
    assert POOL(rows) == 4
    assert ln.spec.forward(POOL, rows) == 4
    np.testing.assert_array_equal(POOL.vjp(np.array(IMAGE), Endless([[1.0]])), [[0, 0], [0, 1]])
    values, taps = offsets.forward_with_offsets(POOL, rows)
    assert (values, taps) == (4, 3)


def test_a_tuple_of_operands_is_what_it_holds():
    gradients = ln.Conv((1, 1)).vjp(Failing((np.ones((1, 1, 1, 1)),) * 2), np.ones((1, 1, 1, 1)))
    assert [g.item() for g in gradients] == [1, 1]


def test_a_list_that_holds_itself():
    rows = []
    rows.append(rows)
    with pytest.raises(TypeError, match="x is nested in more than 64 lists"):
        POOL(rows)
