"""The thirteen points of the meaning, each worked by hand. `docs/semantics.md` states them."""

import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

import lunette as ln

NAN, INF = math.nan, math.inf


def same_bits(a, b):
    """Equal values, equal signs of zero, NaN where NaN."""
    a, b = np.asarray(a), np.asarray(b)
    return (
        a.shape == b.shape
        and np.array_equal(a, b, equal_nan=True)
        and (np.signbit(a) == np.signbit(b))[~np.isnan(a)].all()
    )


# -- 1: which axes are pooled, and the defaults --


def test_1_the_last_axes_are_pooled_and_leading_axes_are_batch():
    x = np.arange(24.0).reshape(2, 3, 4)
    assert (ln.max_pool(x, (2,)) == x[..., 1::2]).all()
    assert (ln.max_pool(x, (3, 4)) == x.max((1, 2), keepdims=True)).all()


@pytest.mark.parametrize("shape", [(0, 4), (3, 0, 4), (0, 0, 4)])
def test_1_a_batch_axis_may_have_length_zero(shape):
    x = np.zeros(shape)
    op = ln.AvgPool((2,))
    assert op(x).shape == (*shape[:-1], 2)
    assert op.jvp(x, x).shape == (*shape[:-1], 2)
    assert op.vjp(x, op(x)).shape == shape


def test_1_stride_defaults_to_the_kernel():
    assert ln.MaxPool((2, 3)).stride == (2, 3)
    assert ln.MaxPool((2, 3)) == ln.MaxPool((2, 3), stride=(2, 3))


# -- 2: output sizes --


@pytest.mark.parametrize(
    ("n", "arguments", "outputs"),
    [
        (7, {"kernel": (3,), "stride": 2}, 3),
        (8, {"kernel": (3,), "stride": 2}, 3),
        (8, {"kernel": (3,), "stride": 2, "ceil_mode": True}, 4),
        # The last window would start at 3 = n + before: past every position, so it is dropped.
        (2, {"kernel": (1,), "stride": 3, "padding": 1, "ceil_mode": True}, 1),
        (12, {"kernel": (1,), "stride": 2, "ceil_mode": True}, 6),
        (5, {"kernel": (3,), "stride": 1, "dilation": 2}, 1),
        # The only window is longer than the input, by less than a stride.
        (2, {"kernel": (3,), "stride": 2, "ceil_mode": True}, 1),
        (1, {"kernel": (2,), "stride": 7, "dilation": 6, "ceil_mode": True}, 1),
        (1, {"kernel": (9,), "ceil_mode": True}, 1),
        (112, {"kernel": (3,), "stride": 2, "padding": 1}, 56),
    ],
)
def test_2_output_sizes(n, arguments, outputs):
    assert ln.MaxPool(**arguments).out_shape((n,)) == (outputs,)


def test_2_a_window_that_ceil_mode_adds_reads_what_is_there():
    x = np.array([1.0, 2, 3, 4, 5])
    assert (ln.max_pool(x, (2,), ceil_mode=True) == [2, 4, 5]).all()
    assert (ln.avg_pool(x, (2,), ceil_mode=True) == [1.5, 3.5, 5]).all()


def test_2_the_only_window_may_be_cut_short_too():
    x = np.array([1.0, 3.0])
    assert ln.max_pool(x, (3,), stride=2, ceil_mode=True).tolist() == [3]
    assert ln.avg_pool(x, (3,), stride=2, ceil_mode=True).tolist() == [2], (
        "one cell is past the end"
    )
    # Padding before and after the two cells counts; the cell past it does not.
    assert ln.avg_pool(x, (5,), stride=2, padding=1, ceil_mode=True).tolist() == [1]
    op = ln.MaxPool((3,), 2, ceil_mode=True)
    assert op.vjp(x, np.array([5.0])).tolist() == [0, 5]


@pytest.mark.parametrize("kernel", range(3, 9))
@pytest.mark.parametrize("stride", range(1, 9))
def test_2_a_window_longer_by_a_stride_or_more_is_an_error(kernel, stride):
    op = ln.MaxPool((kernel,), stride, ceil_mode=True)
    if kernel - 2 < stride:
        assert op.out_shape((2,)) == (1,)
    else:
        with pytest.raises(ValueError, match=f"short by a stride .{stride}. or more"):
            op.out_shape((2,))
    with pytest.raises(ValueError, match="longer than the padded input"):
        ln.MaxPool((kernel,), stride).out_shape((2,))


# -- 3: padding --


def test_3_padding_may_exceed_half_the_kernel():
    x = np.array([-1.0, -2, -3])
    assert (ln.max_pool(x, (2,), stride=1, padding=2) == [0, -1, -1, -2, -3, 0]).all()


def test_3_asymmetric_and_same_padding():
    x = np.arange(1.0, 6)
    assert (ln.max_pool(x, (2,), stride=1, padding=((1, 0),)) == [1, 2, 3, 4, 5]).all()
    assert (ln.max_pool(x, (2,), stride=1, padding=((0, 1),)) == [2, 3, 4, 5, 5]).all()
    # ceil(5/2) = 3 outputs; of the one padding cell needed, the odd one stands at the end.
    assert (ln.avg_pool(x, (2,), stride=2, padding="same") == [1.5, 3.5, 2.5]).all()
    assert (ln.avg_pool(x, (2,), stride=2, padding="valid") == [1.5, 3.5]).all()


# -- 4: who sees padding --


def test_4_max_never_sees_padding_and_mean_counts_it_while_asked_to():
    x = np.array([-4.0, -2])
    arguments = {"kernel": (2,), "stride": 1, "padding": 1}
    assert (ln.max_pool(x, **arguments) == [-4, -2, -2]).all()
    assert (ln.avg_pool(x, **arguments) == [-2, -3, -1]).all()
    assert (ln.avg_pool(x, **arguments, count_include_pad=False) == [-4, -3, -2]).all()


def test_4_cells_that_ceil_mode_adds_past_the_padding_never_count():
    # Positions −1 … 4 are counted; the last window has cells 3, 4 and 5, and 5 lies past them.
    x = np.array([6.0, 6, 6, 6])
    y = ln.avg_pool(x, (3,), stride=2, padding=1, ceil_mode=True)
    assert (y == [4, 6, 3]).all()


def test_4_the_corner_that_implementations_disagree_on():
    # A 4×4 input, k3 s2 p1, ceil, padding counted (pytorch/pytorch#183528): the last corner is 4.
    x = np.arange(1.0, 17).reshape(4, 4)
    y = ln.avg_pool(x, (3, 3), stride=2, padding=1, ceil_mode=True)
    assert y[2, 2] == 16 / 4


def test_4_smooth_max_counts_padding_as_zeros():
    x = np.array([0.0])
    two_zeros = ln.smooth_max_pool(x, (2,), 1.0, stride=1, padding=1)
    assert two_zeros == pytest.approx([math.log(2)] * 2)
    alone = ln.smooth_max_pool(x, (2,), 1.0, stride=1, padding=1, count_include_pad=False)
    assert (alone == [0, 0]).all()


# -- 5: windows without a cell --


def test_5_a_window_of_padding_alone():
    x, dx = np.array([3.0]), np.array([1.0])
    arguments = {"kernel": (2,), "stride": 3, "padding": ((3, 1),)}  # cells −3, −2 and 0, 1
    beta = 2.0
    for op, value in [
        (ln.MaxPool(**arguments), 0),
        (ln.AvgPool(**arguments), 0),
        (ln.AvgPool(**arguments, count_include_pad=False), 0),
        (ln.AvgPool(**arguments, divisor_override=7), 0),
        (ln.SmoothMaxPool(beta=beta, **arguments), math.log(2) / beta),
        (ln.SmoothMaxPool(beta=beta, **arguments, count_include_pad=False), 0),
    ]:
        assert op(x)[0] == pytest.approx(value)
        assert op.jvp(x, dx)[0] == 0
        assert op.vjp(x, np.array([1.0, 0.0])) == [0]
    _, indices = ln.max_pool(x, **arguments, return_indices=True)
    assert (indices == [-1, 0]).all()


# -- 6: the mean's divisor --


def test_6_mean_divides_by_cells_counted_or_by_the_override():
    x = np.array([[1.0, 2], [3, 4]])
    assert ln.avg_pool(x, (2, 2)) == 2.5
    assert ln.avg_pool(x, (2, 2), divisor_override=5) == 2
    assert (ln.AvgPool((2, 2), divisor_override=5).vjp(x, np.array([[1.0]])) == 0.2).all()


# -- 7: smooth max --


def test_7_smooth_max_and_smooth_min():
    x = np.array([0.0, math.log(3)])
    assert ln.smooth_max_pool(x, (2,), 1.0)[0] == pytest.approx(math.log(4))
    assert ln.smooth_max_pool(x, (2,), -1.0)[0] == pytest.approx(-math.log(1 + 1 / 3))
    op = ln.SmoothMaxPool((2,), 1.0)
    assert op.vjp(x, np.array([1.0])) == pytest.approx([0.25, 0.75])
    assert op.jvp(x, np.array([4.0, 8.0]))[0] == pytest.approx(0.25 * 4 + 0.75 * 8)


@pytest.mark.parametrize("beta", [1e-3, 1.0, 1e30, -1.0, -1e30])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_7_no_finite_input_overflows(beta, dtype):
    largest = np.finfo(dtype).max
    x = np.array([largest, -largest, 0, largest], dtype)
    op = ln.SmoothMaxPool((4,), beta)
    if abs(beta) < 1:
        x /= 4  # log(4)/beta must itself fit
    assert np.isfinite(op(x)).all()
    assert np.isfinite(op.vjp(x, np.ones(1, dtype))).all()


def test_7_infinite_cells_give_the_limit():
    assert ln.smooth_max_pool(np.array([1.0, INF]), (2,), 2.0) == INF
    assert ln.smooth_max_pool(np.array([-INF, -1000.0]), (2,), 2.0) == -1000
    assert ln.smooth_max_pool(np.array([-INF, -INF]), (2,), 2.0) == -INF
    assert np.isnan(ln.smooth_max_pool(np.array([NAN, INF]), (2,), 2.0))


# -- 8: ties --


@pytest.mark.parametrize(
    ("ties", "gradient", "derivative"),
    [
        ("first", [0, 6, 0, 0], 10),
        ("all", [0, 6, 6, 6], 10 + 20 + 30),
        ("split", [0, 2, 2, 2], 20),
    ],
)
def test_8_ties(ties, gradient, derivative):
    x = np.array([1.0, 5, 5, 5])
    op = ln.MaxPool((4,), ties=ties)
    assert (op.vjp(x, np.array([6.0])) == gradient).all()
    assert op.jvp(x, np.array([0.0, 10, 20, 30])) == derivative


def test_8_defaults_of_ties():
    assert ln.MaxPool((2,)).ties == "first"
    assert ln.AdaptiveMaxPool((2,)).ties == "first"
    assert ln.GlobalMaxPool(1).ties == "all"


def test_8_first_is_row_major_in_two_dimensions():
    # The window that tells a row-major first winner from a fold of row winners.
    x = np.array([[0.0, 0], [2, 1]])
    assert (ln.MaxPool((2, 2)).vjp(x, np.ones((1, 1))) == [[0, 0], [1, 0]]).all()
    tied = np.array([[0.0, 2], [2, 1]])
    assert (ln.MaxPool((2, 2)).vjp(tied, np.ones((1, 1))) == [[0, 1], [0, 0]]).all()


def test_8_gradients_add_where_windows_overlap():
    x = np.array([0.0, 9, 0, 0])
    assert (ln.MaxPool((2,), stride=1).vjp(x, np.array([1.0, 10, 100])) == [0, 11, 100, 0]).all()


# -- 9: NaN and the zeros --


@pytest.mark.parametrize("position", range(5))
def test_9_a_nan_anywhere_wins(position):
    x = np.array([1.0, INF, -INF, 3, 2])
    x[position] = NAN
    y, indices = ln.max_pool(x, (5,), return_indices=True)
    assert np.isnan(y)
    assert indices == position
    assert np.isnan(ln.avg_pool(x, (5,)))


def test_9_the_first_nan_wins_and_nans_tie_with_each_other():
    x = np.array([4.0, NAN, 5, NAN])
    gradients = {"first": [0, 1, 0, 0], "all": [0, 1, 0, 1], "split": [0, 0.5, 0, 0.5]}
    for ties, gradient in gradients.items():
        assert (ln.MaxPool((4,), ties=ties).vjp(x, np.array([1.0])) == gradient).all()


@pytest.mark.parametrize("x", [[-0.0, 0.0], [0.0, -0.0]])
def test_9_zeros_tie_and_the_first_keeps_its_sign(x):
    assert same_bits(ln.max_pool(np.array(x), (2,)), [x[0]])
    assert (ln.MaxPool((2,), ties="split").vjp(np.array(x), np.array([1.0])) == 0.5).all()


def test_9_all_minus_infinity():
    x = np.full(3, -INF)
    y, indices = ln.max_pool(x, (3,), return_indices=True)
    assert y == -INF
    assert indices == 0


# -- 10: types --


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
def test_10_floats_keep_their_type_in_every_verb(dtype):
    x = np.array([1, 2, 4, 3], dtype)
    for op in (ln.MaxPool((2,)), ln.AvgPool((2,)), ln.SmoothMaxPool((2,), 1.0)):
        assert op(x).dtype == dtype
        assert op.jvp(x, x).dtype == dtype
        assert op.vjp(x, op(x)).dtype == dtype


@pytest.mark.parametrize(
    "dtype",
    [
        *("bool", "uint8", "int16", "int32", "uint64"),
        *(pytest.param(d, marks=pytest.mark.full) for d in ("int8", "uint16", "uint32", "int64")),
    ],
)
def test_10_integers_have_max_and_indices_and_float64_means(dtype):
    x = np.array([0, 1, 1, 0], dtype)
    y, indices = ln.max_pool(x, (2,), return_indices=True)
    assert y.dtype == dtype
    assert (y == 1).all()
    assert (indices == [1, 2]).all()
    assert ln.avg_pool(x, (4,)).dtype == np.float64
    assert ln.avg_pool(x, (4,)) == 0.5
    assert ln.smooth_max_pool(x, (4,), 1.0).dtype == np.float64
    with pytest.raises(TypeError, match="integers have no tangent"):
        ln.MaxPool((2,)).vjp(x, y)


def test_10_integer_extremes_are_exact():
    x = np.array([2**63 - 1, 2**63 - 2, -(2**63)], np.int64)
    assert ln.max_pool(x, (3,)) == 2**63 - 1
    assert ln.max_pool(np.array([2**64 - 1, 2**64 - 2], np.uint64), (2,)) == 2**64 - 1


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_10_half_types_accumulate_in_float32_and_round_once(dtype):
    # 4096 ones sum to 2048 in float16 and to 256 in bfloat16, if each step rounds.
    x = np.ones(4096, dtype)
    assert ln.avg_pool(x, (4096,), divisor_override=1).astype(float) == 4096
    # A gradient too: 4096 windows read the one cell.
    op = ln.MaxPool((4096,), stride=1, padding=4095)
    assert op.out_shape((1,)) == (4096,)
    assert op.vjp(x[:1], x).astype(float) == 4096


# -- 11: adaptive bins --


def test_11_uneven_bins_overlap_by_one():
    x = np.arange(1.0, 8)  # seven cells in three bins: [0, 3), [2, 5), [4, 7)
    assert (ln.adaptive_max_pool(x, (3,)) == [3, 5, 7]).all()
    assert (ln.adaptive_avg_pool(x, (3,)) == [2, 4, 6]).all()


def test_11_more_bins_than_cells():
    x = np.array([10.0, 20])  # five bins over two cells: 0, 0, both, 1, 1
    assert (ln.adaptive_max_pool(x, (5,)) == [10, 10, 20, 20, 20]).all()
    assert (ln.adaptive_avg_pool(x, (5,)) == [10, 10, 15, 20, 20]).all()
    gradient = ln.AdaptiveAvgPool((5,)).vjp(x, np.ones(5))
    assert (gradient == [2.5, 2.5]).all()


# -- 13: errors (12 is convolution's: test_convolution_laws.py) --


def test_13_an_error_names_the_argument_its_value_the_axis_and_what_was_expected():
    with pytest.raises(ValueError, match=r"stride=0 on axis 1: expected an integer of at least 1"):
        ln.MaxPool((2, 2), stride=(1, 0))
    with pytest.raises(
        ValueError, match=r"axis 2 of shape \(3, 8, 2\).*longer than the padded input"
    ):
        ln.MaxPool((3, 3))(np.zeros((3, 8, 2)))


def test_sums_fold_left_to_right_in_the_arrays_own_type():
    # In float32, ((1 + 2²⁴) + 1) − 2²⁴ loses both ones; any other order keeps one of them.
    x = np.array([1, 2**24, 1, -(2**24)], np.float32)
    assert ln.avg_pool(x, (4,), divisor_override=1, backend="spec") == 0


def test_exact_rationals_stay_exact():
    x = np.array([Fraction(1, 3), Fraction(1, 7), 2], object)
    assert ln.avg_pool(x, (3,))[0] == Fraction(1, 3) * (Fraction(1, 3) + Fraction(1, 7) + 2)
