"""TorchLean's vocabulary: every name, its parameters, its page and a value worked out another way."""

import ast
import inspect
import math
import re
from dataclasses import FrozenInstanceError
from fractions import Fraction
from pathlib import Path

import flint
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lunette as ln
from lunette import torchlean as tl
from tests.cells import balls, fractions, sample
from tests.torchlean_table import (
    AVG2D,
    AVGND,
    BETA,
    DIMG,
    DSPACE,
    G2D,
    GAVG,
    GMAX,
    IMG,
    MAX2D,
    MAXND,
    ND,
    SPACE,
    VOCABULARY,
    VOL,
    X,
)

PAGE = Path(__file__).parents[1] / "docs" / "torchlean.md"

every_name = pytest.mark.parametrize("row", VOCABULARY, ids=lambda row: row.name)


def assert_same(got, expected):
    """Equal in shape and value: Fractions to the last digit, balls overlapping and tiny."""
    if not isinstance(expected, np.ndarray):
        assert got == expected and type(got) is type(expected)
        return
    assert isinstance(got, np.ndarray) and got.shape == expected.shape
    for a, b in zip(got.flat, expected.flat, strict=True):
        assert type(a) is type(b)
        if isinstance(a, flint.arb):
            assert a.overlaps(b) and a.rad() < 1e-10 and b.rad() < 1e-10
        else:
            assert a == b


# -- the whole table --


def test_the_table_is_the_module():
    assert sorted(row.name for row in VOCABULARY) == sorted(tl.__all__)
    assert all(hasattr(tl, name) for name in tl.__all__)


@every_name
def test_the_name_is_leans_in_snake_case(row):
    lean = row.lean.rstrip("?'")
    snake = lean if lean[0].isupper() else re.sub("[A-Z]", lambda c: "_" + c[0].lower(), lean)
    assert row.name == snake


@every_name
def test_the_parameters_are_as_stated(row):
    parameters, seen_star = [], False
    for p in inspect.signature(getattr(tl, row.name)).parameters.values():
        if p.kind is p.KEYWORD_ONLY and not seen_star:
            parameters.append("*")
            seen_star = True
        parameters.append(p.name)
        assert p.default is p.empty
    assert f"{row.name}({', '.join(parameters)})" == row.signature


@every_name
def test_the_page_says_where_it_lives(row):
    rows = [line.split("|")[1:4] for line in PAGE.read_text().splitlines() if line.startswith("|")]
    found = [r for r in rows if len(r) == 3 and r[0].strip().split(".")[-1].strip("`") == row.lean]
    assert len(found) == 1
    assert found[0][1].strip() == f"`{row.signature}`"
    assert found[0][2].strip()


@every_name
def test_the_value_is_right(row):
    assert_same(row.call(), row.expected)


def test_nothing_but_the_meaning_is_called():
    for file in Path(tl.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            modules = (
                [node.module] if isinstance(node, ast.ImportFrom)
                else [a.name for a in node.names] if isinstance(node, ast.Import) else []
            )  # fmt: skip
            for module in modules:
                assert not re.match(r"lunette\.(dispatch|functional|kernels|adapters)", module)


# -- worked by hand --


def nested_argmax(window):
    """The older fold: within a row it compares with the best of the rows before, not of this row."""
    best = (0, 0)
    for i, row in enumerate(window):
        best_in_row = best
        for j, v in enumerate(row):
            if v > window[best[0]][best[1]]:
                best_in_row = (i, j)
        best = best_in_row
    return best


def test_the_window_that_tells_the_two_argmaxes_apart():
    window, layer = fractions([[0, 0], [2, 1]]), tl.MaxPool2DSpec(2, 2, 1)
    assert nested_argmax(window) == (1, 1)
    assert_same(tl.max_pool2d_spec(layer, window), fractions([[2]]))
    tangent = fractions([[10, 20], [30, 40]])
    assert_same(tl.max_pool2d_jvp_spec(layer, window, tangent), fractions([[30]]))
    gradient = fractions([[0, 0], [7, 0]])
    assert_same(tl.max_pool2d_backward_spec(layer, window, fractions([[7]])), gradient)
    spatial = tl.MaxPoolSpec((2, 2), (1, 1), (0, 0))
    assert_same(tl.max_pool_spatial_backward_spec(spatial, window, fractions([[7]])), gradient)


def test_the_first_of_equals_in_row_major_order():
    x, layer = fractions([[1, 3], [3, 3]]), tl.MaxPool2DSpec(2, 2, 1)
    gradient = tl.max_pool2d_backward_spec(layer, x, fractions([[1]]))
    assert_same(gradient, fractions([[0, 1], [0, 0]]))


def test_padding_is_nothing_to_max_and_zero_to_mean_and_smooth_max():
    x = np.array([-1.0, -1.0])
    assert tl.max_pool_value(x, (0,), (2,), (1,), (1,)) == -1
    assert tl.avg_pool_value(x, (0,), (2,), (1,), (1,)) == -0.5
    smooth = tl.smooth_max_pool_value(1.0, x, (0,), (2,), (1,), (1,))
    assert math.isclose(smooth, math.log(math.exp(-1) + 1))
    # The window of output 0 lies in the padding alone.
    assert tl.max_pool_value(x, (0,), (2,), (1,), (2,)) == 0
    assert tl.max_pool_jvp_value(x, x, (0,), (2,), (1,), (2,)) == 0
    assert math.isclose(tl.smooth_max_pool_value(2.0, x, (0,), (2,), (1,), (2,)), math.log(2) / 2)
    assert tl.smooth_max_pool_jvp_value(2.0, x, x, (0,), (2,), (1,), (2,)) == 0


def test_smooth_max_of_equal_cells():
    layer, x = tl.MaxPool2DSpec(2, 2, 2), np.full((2, 2), 5.0)
    assert np.isclose(tl.smooth_max_pool2d_spec(layer, 0.5, x), 5 + math.log(4) / 0.5).all()
    quarter = tl.smooth_max_pool2d_backward_spec(layer, 0.5, x, np.array([[8.0]]))
    assert np.array_equal(quarter, np.full((2, 2), 2.0))


def test_names_with_a_question_mark_give_none():
    assert tl.padded_coords((1,), (0, 0), (1, 1)) is None
    assert tl.padded_coords((), (), ()) == ()
    assert tl.unpad_coords((0, 3), (1, 1)) is None
    assert tl.unpad_coords((0, 3), (0,)) is None
    lookup = tl.get_padded_max_input_val
    assert lookup([1.0, 2.0], (0,), (0,), (1,), (1,)) is None
    assert lookup([1.0, 2.0], (0,), (1,), (1,), (1,)) == 1.0
    assert lookup([1.0, 2.0], (0,), (3,), (1,), (1,)) is None
    assert lookup([1.0, 2.0], (0, 0), (0, 0), (1, 1), (0, 0)) is None


def test_arrays_are_anything_numpy_takes():
    layer = tl.MaxPool2DSpec(2, 2, 2)
    assert tl.max_pool2d_spec(layer, [[1, 2], [3, 4]]).tolist() == [[4]]
    assert tl.max_pool2d_spec(layer, ((True, False), (False, False))).dtype == bool
    mean = tl.avg_pool2d_spec(tl.AvgPool2DSpec(2, 2, 2), [[1, 2], [3, 4]])
    assert mean.dtype == np.float64 and mean.tolist() == [[2.5]]
    halves = np.ones((2, 2), np.float16)
    assert tl.max_pool2d_jvp_spec(layer, halves, halves).dtype == np.float16
    zero = tl.get_padded_average_input_val(halves, (0, 0), (0, 0), (1, 1), (1, 1))
    assert type(zero) is np.float16
    image = tl.adaptive_max_pool2d_spec(tl.AdaptiveMaxPool2DSpec(1, 1), [[1.0, 2.0]])
    assert image.tolist() == [[2.0]]
    element = np.array(Fraction(1, 3), object)
    assert_same(tl.broadcast_scalar1x1(element), fractions([["1/3"]]))
    assert tl.global_max_pool2d_flat_spec(GMAX, np.zeros((0, 2, 2))).shape == (0,)


def test_unpadding_gives_a_new_array():
    image = np.zeros((3, 3))
    tl.unpad_image(image, 0)[...] = 1
    assert not image.any()


# -- laws --

thirds = st.integers(-3, 3).map(lambda n: Fraction(n, 3))


def tensors(*shape):
    count = math.prod(shape)
    flat = st.lists(thirds, min_size=count, max_size=count)
    return flat.map(lambda values: np.array(values, object).reshape(shape))


def inner(a, b):
    return sum((u * v for u, v in zip(a.flat, b.flat, strict=True)), a.flat[0] * 0)


def jvp_of(op):
    """jvp of an op that the vocabulary gives no jvp for."""
    return lambda x, dx: ln.spec.jvp(op, x, dx)


# (jvp(x, dx), backward(x, g), shape of x, shape of g)
ADJOINT = {
    "max_pool2d": (lambda x, d: tl.max_pool2d_jvp_spec(MAX2D, x, d), lambda x, g: tl.max_pool2d_backward_spec(MAX2D, x, g), (4, 5), (2, 2)),
    "max_pool2d_multi": (lambda x, d: tl.max_pool2d_multi_jvp_spec(MAX2D, x, d), lambda x, g: tl.max_pool2d_multi_backward_spec(MAX2D, x, g), (2, 4, 5), (2, 2, 2)),
    "max_pool2d_multi_pad": (lambda x, d: tl.max_pool2d_multi_jvp_spec_pad(MAX2D, x, d, padding=2), lambda x, g: tl.max_pool2d_multi_backward_spec_pad(MAX2D, x, g, padding=2), (1, 3, 3), (1, 3, 3)),
    "max_pool_spatial": (lambda x, d: tl.max_pool_spatial_jvp_spec(MAXND, x, d), lambda x, g: tl.max_pool_spatial_backward_spec(MAXND, x, g), (2, 2, 2), (5, 1, 1)),
    "max_pool": (lambda x, d: tl.max_pool_jvp_spec(MAXND, x, d), lambda x, g: tl.max_pool_backward_spec(MAXND, x, g), (2, 2, 2, 2), (2, 5, 1, 1)),
    "avg_pool2d": (lambda _, d: tl.avg_pool2d_spec(AVG2D, d), lambda x, g: tl.avg_pool2d_backward_spec(AVG2D, g, input_shape=x.shape), (4, 5), (2, 2)),
    "avg_pool2d_multi": (lambda _, d: tl.avg_pool2d_multi_spec(AVG2D, d), lambda x, g: tl.avg_pool2d_multi_backward_spec(AVG2D, g, input_shape=x.shape), (2, 4, 5), (2, 2, 2)),
    "avg_pool2d_multi_pad": (lambda _, d: tl.avg_pool2d_multi_spec_pad(AVG2D, d, padding=2), lambda x, g: tl.avg_pool2d_multi_backward_spec_pad(AVG2D, g, padding=2, input_shape=x.shape), (1, 3, 3), (1, 3, 3)),
    "avg_pool_spatial": (lambda _, d: tl.avg_pool_spatial_spec(AVGND, d), lambda x, g: tl.avg_pool_spatial_backward_spec(AVGND, g, input_shape=x.shape), (2, 2, 2), (5, 1, 1)),
    "avg_pool": (lambda _, d: tl.avg_pool_spec(AVGND, d), lambda x, g: tl.avg_pool_backward_spec(AVGND, g, input_shape=x.shape), (2, 2, 2, 2), (2, 5, 1, 1)),
    "global_avg": (lambda _, d: tl.global_avg_pool2d_spec(GAVG, d), lambda x, g: tl.global_avg_pool2d_backward_spec(GAVG, g, input_shape=x.shape), (2, 2, 3), (2, 1, 1)),
    "global_avg_flat": (lambda _, d: tl.global_avg_pool2d_flat_spec(GAVG, d), lambda x, g: tl.global_avg_pool2d_flat_backward_spec(GAVG, g, input_shape=x.shape), (2, 2, 3), (2,)),
    "global_max": (jvp_of(ln.GlobalMaxPool(2)), lambda x, g: tl.global_max_pool2d_backward_spec(GMAX, x, g), (2, 2, 3), (2, 1, 1)),
    "global_max_flat": (jvp_of(ln.GlobalMaxPool(2, keepdims=False)), lambda x, g: tl.global_max_pool2d_flat_backward_spec(GMAX, x, g), (2, 2, 3), (2,)),
    "global_max_distributed": (jvp_of(ln.GlobalMaxPool(2, ties="split")), lambda x, g: tl.global_max_pool2d_backward_distributed_spec(GMAX, x, g), (2, 2, 3), (2, 1, 1)),
}  # fmt: skip

SMOOTH_ADJOINT = {
    "smooth_max_pool2d": (lambda x, d: tl.smooth_max_pool2d_jvp_spec(MAX2D, BETA, x, d), lambda x, g: tl.smooth_max_pool2d_backward_spec(MAX2D, BETA, x, g), (4, 5), (2, 2)),
    "smooth_max_pool2d_multi": (lambda x, d: tl.smooth_max_pool2d_multi_jvp_spec(MAX2D, BETA, x, d), lambda x, g: tl.smooth_max_pool2d_multi_backward_spec(MAX2D, BETA, x, g), (2, 4, 5), (2, 2, 2)),
    "smooth_max_pool_spatial": (lambda x, d: tl.smooth_max_pool_spatial_jvp_spec(MAXND, BETA, x, d), lambda x, g: tl.smooth_max_pool_spatial_backward_spec(MAXND, BETA, x, g), (2, 2, 2), (5, 1, 1)),
    "smooth_max_pool": (lambda x, d: tl.smooth_max_pool_jvp_spec(MAXND, BETA, x, d), lambda x, g: tl.smooth_max_pool_backward_spec(MAXND, BETA, x, g), (2, 2, 2, 2), (2, 5, 1, 1)),
}  # fmt: skip


@pytest.mark.parametrize("family", ADJOINT)
@given(data=st.data())
@settings(max_examples=15, deadline=None)
def test_backward_is_the_adjoint_of_jvp(family, data):
    push_forward, pull_back, x_shape, g_shape = ADJOINT[family]
    x, dx, g = (data.draw(tensors(*shape)) for shape in (x_shape, x_shape, g_shape))
    assert inner(push_forward(x, dx), g) == inner(dx, pull_back(x, g))


@pytest.mark.parametrize("family", SMOOTH_ADJOINT)
def test_smooth_backward_is_the_adjoint_of_jvp(family):
    push_forward, pull_back, x_shape, g_shape = SMOOTH_ADJOINT[family]
    x, dx, g = balls(sample(x_shape, 1)), balls(sample(x_shape, 2)), balls(sample(g_shape, 3))
    forwards, backwards = inner(push_forward(x, dx), g), inner(dx, pull_back(x, g))
    assert forwards.overlaps(backwards) and (forwards - backwards).rad() < 1e-10


def test_every_backward_has_its_law():
    laws = {**ADJOINT, **SMOOTH_ADJOINT}
    assert len(laws) == sum("backward" in row.name for row in VOCABULARY)


# -- bad input --


def test_records_are_frozen_and_hashable():
    assert hash(tl.MaxPoolSpec((2,), (1,), (0,))) == hash(tl.MaxPoolSpec([2], 1, 0))
    with pytest.raises(FrozenInstanceError):
        MAX2D.kH = 5
    with pytest.raises(FrozenInstanceError):
        MAXND.kernel = (1, 1, 1)


SMALL = np.zeros((2, 2))
BAD = [
    (lambda: tl.MaxPool2DSpec(0, 2, 1), ValueError, "kH=0"),
    (lambda: tl.MaxPool2DSpec(2, 0, 1), ValueError, "kW=0"),
    (lambda: tl.MaxPool2DSpec(2, 2, 0), ValueError, "stride=0"),
    (lambda: tl.AvgPool2DSpec(2, -1, 1), ValueError, "kW=-1"),
    (lambda: tl.AvgPool2DSpec(2, 2, 0), ValueError, "stride=0"),
    (lambda: tl.AvgPool2DSpec(2.0, 2, 1), TypeError, "kH=2.0"),
    (lambda: tl.MaxPool2DSpec(True, 2, 1), TypeError, "kH=True"),
    (lambda: tl.AdaptiveAvgPool2DSpec(0, 1), ValueError, "outH=0"),
    (lambda: tl.AdaptiveMaxPool2DSpec(1, 0), ValueError, "outW=0"),
    (lambda: tl.MaxPoolSpec((2, 0), (1, 1), (0, 0)), ValueError, "kernel=0 on axis 1"),
    (lambda: tl.MaxPoolSpec((2, 2), (0, 1), (0, 0)), ValueError, "stride=0 on axis 0"),
    (lambda: tl.AvgPoolSpec((2,), (1,), (-1,)), ValueError, "padding=-1"),
    (lambda: tl.AvgPoolSpec((2,), (1,), ((0, 1),)), TypeError, "padding"),
    (lambda: tl.AvgPoolSpec((2,), (1, 1), (0,)), ValueError, "stride"),
    (lambda: tl.MaxPoolSpec(2, 1, 0), TypeError, r"kernel=\(2,\)"),
    (lambda: tl.MaxPoolSpec((), (), ()), ValueError, "kernel"),
    (lambda: tl.pool2d_out_shape(2, 5, 3, 2, 1), ValueError, "longer than the padded input"),
    (lambda: tl.pool2d_out_shape(5, 5, 0, 2, 1), ValueError, "kH=0"),
    (lambda: tl.pool2d_out_shape_pad(1, 5, 4, 2, 1, 1), ValueError, "longer than the padded input"),
    (lambda: tl.pool_out_spatial((2, 2), (3, 1), (1, 1)), ValueError, "longer than the padded"),
    (lambda: tl.pool_out_spatial((2,), (1, 1), (1, 1)), ValueError, "in_spatial"),
    (lambda: tl.pool_multi_out_shape(-1, (2,), (1,), (1,)), ValueError, "inC=-1"),
    (lambda: tl.max_pool2d_spec(tl.MaxPool2DSpec(3, 1, 1), SMALL), ValueError, "longer than"),
    (lambda: tl.avg_pool_spatial_spec(tl.AvgPoolSpec((5, 1), 1, 1), SMALL), ValueError, "longer"),
    (lambda: tl.max_pool_value(SMALL, (0, 0), (3, 3), (1, 1), (0, 0)), ValueError, "longer than"),
    (lambda: tl.max_pool2d_spec(MAX2D, np.zeros((1, 5, 6))), ValueError, r"expected \(H, W\)"),
    (lambda: tl.max_pool2d_multi_spec(MAX2D, SMALL), ValueError, r"expected \(C, H, W\)"),
    (lambda: tl.max_pool_spec(MAXND, np.zeros((4, 4, 4))), ValueError, r"\(C, n0, n1, n2\)"),
    (lambda: tl.max_pool2d_spec(AVG2D, IMG), TypeError, "expected the record MaxPool2DSpec"),
    (lambda: tl.avg_pool_spec(MAXND, VOL), TypeError, "expected the record AvgPoolSpec"),
    (lambda: tl.global_max_pool2d_spec(GAVG, X), TypeError, "expected the record GlobalMaxPool2DSpec"),
    (lambda: tl.max_pool2d_jvp_spec(MAX2D, IMG, DIMG[1:]), ValueError, "tangent"),
    (lambda: tl.max_pool_jvp_value(SPACE, DSPACE[1:], (0, 0, 0), *ND), ValueError, "tangent"),
    (lambda: tl.max_pool2d_backward_spec(MAX2D, IMG, IMG), ValueError, "gradient"),
    (lambda: tl.avg_pool2d_backward_spec(AVG2D, G2D[0], input_shape=(9, 9)), ValueError, "gradient"),
    (lambda: tl.avg_pool2d_backward_spec(AVG2D, G2D, input_shape=(2, 5, 6)), ValueError, "input_sh"),
    (lambda: tl.avg_pool2d_backward_spec(AVG2D, [[1]], input_shape=(2, 3)), TypeError, "integers"),
    (lambda: tl.max_pool2d_multi_spec_pad(MAX2D, X, padding=-1), ValueError, "padding=-1"),
    (lambda: tl.max_pool2d_multi_spec_pad(MAX2D, X, padding=(1, 1)), TypeError, "padding"),
    (lambda: tl.unpad_image(SMALL, 2), ValueError, "padding=2"),
    (lambda: tl.adaptive_start(5, 0, 0), ValueError, "out_size=0"),
    (lambda: tl.adaptive_end(5, 2, 2), ValueError, "i=2"),
    (lambda: tl.adaptive_start(0, 2, 0), ValueError, "in_size=0"),
    (lambda: tl.max_pool_value(SPACE, (6, 0, 0), *ND), ValueError, "out_idxs"),
    (lambda: tl.max_pool_value(SPACE, (0, 0), *ND), ValueError, "out_idxs"),
    (lambda: tl.padded_coords((0,), (0,), (0,)), ValueError, "stride=0"),
    (lambda: tl.padded_coords((-1,), (0,), (1,)), ValueError, "out_idxs=-1"),
    (lambda: tl.get_padded_average_input_val(IMG, (0,), (0,), (1,), (0,)), ValueError, "2 axes"),
    (lambda: tl.tensor_of_dims((2,), lambda i: [1, 2]), ValueError, "f gave arrays"),
    (lambda: tl.global_avg_pool2d_spec(GAVG, np.zeros((2, 0, 3))), ValueError, "length 0"),
    (lambda: tl.channel_spatial_max(np.zeros((0, 3))), ValueError, "length 0"),
    (lambda: tl.smooth_max_pool2d_spec(MAX2D, 0.0, SMALL), ValueError, "beta=0.0"),
    (lambda: tl.smooth_max_pool2d_spec(MAX2D, BETA, IMG), ln.spec.MissingOperation, "exp"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "error", "message"), BAD)
def test_bad_input_is_refused_by_name(call, error, message):
    with pytest.raises(error, match=message):
        call()
