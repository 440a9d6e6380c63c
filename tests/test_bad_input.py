"""Bad input raises ValueError or TypeError by name, before any work."""

import math
from fractions import Fraction

import numpy as np
import pytest

import lunette as ln

X = np.arange(16.0).reshape(4, 4)
HUGE = 10**18

CASES = {
    # name: (what is called, the error, a part of its message)
    "kernel int": (
        lambda: ln.MaxPool(3),
        TypeError,
        r"kernel=3: expected a tuple.*kernel=\(3, 3\)",
    ),
    "kernel empty": (lambda: ln.MaxPool(()), ValueError, r"kernel=\(\): expected at least one"),
    "kernel zero": (lambda: ln.MaxPool((2, 0)), ValueError, "kernel=0 on axis 1"),
    "kernel negative": (lambda: ln.AvgPool((-1,)), ValueError, "kernel=-1 on axis 0"),
    "kernel float": (lambda: ln.MaxPool((2.0,)), TypeError, "kernel=2.0 on axis 0.*got float"),
    "kernel bool": (lambda: ln.MaxPool((True,)), TypeError, "kernel=True on axis 0.*not a bool"),
    "kernel numpy bool": (lambda: ln.MaxPool((np.True_,)), TypeError, "not a bool"),
    "kernel string": (lambda: ln.MaxPool("3"), TypeError, "kernel='3': expected a tuple"),
    "kernel None": (lambda: ln.MaxPool(None), TypeError, "kernel=None: expected a tuple"),
    "stride zero": (lambda: ln.MaxPool((2,), stride=0), ValueError, "stride=0"),
    "stride length": (
        lambda: ln.MaxPool((2, 2), stride=(1,)),
        ValueError,
        r"stride=\(1,\).*2 of them",
    ),
    "stride float": (lambda: ln.MaxPool((2,), stride=1.5), TypeError, "stride=1.5"),
    "stride bool": (lambda: ln.MaxPool((2,), stride=True), TypeError, "stride=True"),
    "dilation zero": (lambda: ln.MaxPool((2,), dilation=0), ValueError, "dilation=0"),
    "padding negative": (lambda: ln.MaxPool((2,), padding=-1), ValueError, "padding=-1"),
    "padding word": (
        lambda: ln.MaxPool((2,), padding="full"),
        ValueError,
        "padding='full'.*'same'",
    ),
    "padding length": (lambda: ln.MaxPool((2,), padding=(1, 1)), ValueError, r"padding=\(1, 1\)"),
    "padding triple": (lambda: ln.MaxPool((2,), padding=((1, 1, 1),)), ValueError, "pair"),
    "padding float": (lambda: ln.MaxPool((2,), padding=0.5), TypeError, "padding=0.5"),
    "ceil_mode int": (lambda: ln.MaxPool((2,), ceil_mode=1), TypeError, "ceil_mode=1"),
    "ties unknown": (lambda: ln.MaxPool((2,), ties="last"), ValueError, "ties='last'.*'first'"),
    "ties None": (lambda: ln.AdaptiveMaxPool((2,), ties=None), ValueError, "ties=None"),
    "include int": (
        lambda: ln.AvgPool((2,), count_include_pad=0),
        TypeError,
        "count_include_pad=0",
    ),
    "divisor zero": (
        lambda: ln.AvgPool((2,), divisor_override=0),
        ValueError,
        "divisor_override=0",
    ),
    "divisor float": (
        lambda: ln.AvgPool((2,), divisor_override=2.0),
        TypeError,
        "divisor_override",
    ),
    "beta zero": (lambda: ln.SmoothMaxPool((2,), 0.0), ValueError, "beta=0.0.*other than zero"),
    "beta nan": (lambda: ln.SmoothMaxPool((2,), math.nan), ValueError, "beta=nan.*finite"),
    "beta infinite": (lambda: ln.SmoothMaxPool((2,), -math.inf), ValueError, "beta=-inf"),
    "beta past floats": (lambda: ln.SmoothMaxPool((2,), 10**400), ValueError, "beta=1000"),
    "beta word": (lambda: ln.SmoothMaxPool((2,), "1"), TypeError, "beta='1'"),
    "beta bool": (lambda: ln.SmoothMaxPool((2,), True), TypeError, "beta=True"),
    "beta complex": (lambda: ln.SmoothMaxPool((2,), 1j), TypeError, "beta=1j"),
    "beta lost in float32": (
        lambda: ln.smooth_max_pool(X.astype(np.float32), (2, 2), 1e-60),
        ValueError,
        "beta=1e-60 rounds to 0.0 in float32",
    ),
    "beta too large for halves": (
        lambda: ln.smooth_max_pool(X.astype(np.float16), (2, 2), 1e60),
        ValueError,
        "beta=1e[+]60 rounds to inf",
    ),
    "output_size int": (lambda: ln.AdaptiveAvgPool(7), TypeError, r"output_size=\(7, 7\)"),
    "output_size zero": (lambda: ln.AdaptiveMaxPool((0,)), ValueError, "output_size=0 on axis 0"),
    "ndim zero": (lambda: ln.GlobalAvgPool(0), ValueError, "ndim=0"),
    "ndim tuple": (lambda: ln.GlobalMaxPool((2,)), TypeError, r"ndim=\(2,\)"),
    "ndim huge": (lambda: ln.GlobalMaxPool(HUGE), ValueError, "at most 64 axes"),
    "keepdims word": (lambda: ln.GlobalMaxPool(2, keepdims="no"), TypeError, "keepdims='no'"),
    "rank": (lambda: ln.MaxPool((2, 2, 2))(X), ValueError, r"last 3 axes; x of shape \(4, 4\)"),
    "scalar": (lambda: ln.MaxPool((2,))(3.0), ValueError, r"x of shape \(\)"),
    "window does not fit": (lambda: ln.MaxPool((5, 1))(X), ValueError, "axis 0.*longer than"),
    "dilated window": (
        lambda: ln.MaxPool((1, 3), dilation=2)(X),
        ValueError,
        "axis 1.*window of 5",
    ),
    "ceil does not make it fit": (
        lambda: ln.MaxPool((9, 9), 5, ceil_mode=True)(X),
        ValueError,
        r"axis 0.*longer than .*short by a stride \(5\) or more",
    ),
    "empty pooled axis": (lambda: ln.MaxPool((1,))(np.zeros((2, 0))), ValueError, "length 0"),
    "empty adaptive axis": (
        lambda: ln.adaptive_avg_pool(np.zeros((2, 0)), (3,)),
        ValueError,
        "axis 1",
    ),
    "empty global axis": (lambda: ln.global_max_pool(np.zeros((2, 0)), 1), ValueError, "axis 1"),
    "huge sizes": (
        lambda: ln.MaxPool((HUGE, HUGE), dilation=HUGE)(X),
        ValueError,
        "longer than the padded input",
    ),
    "huge output": (lambda: ln.max_pool(X, (1, 1), padding=HUGE), ValueError, "needs .* bytes"),
    "huge adaptive output": (
        lambda: ln.adaptive_max_pool(X, (HUGE, HUGE)),
        ValueError,
        "needs .* bytes",
    ),
    "complex array": (lambda: ln.max_pool(X + 1j, (2, 2)), TypeError, "dtype complex128"),
    "string array": (lambda: ln.max_pool(np.array(["a"]), (1,)), TypeError, "dtype <U1"),
    "date array": (
        lambda: ln.max_pool(np.array(["2020-01-01"], "M8[D]"), (1,)),
        TypeError,
        "dtype datetime64",
    ),
    "longdouble array": (
        lambda: ln.max_pool(X.astype(np.longdouble), (2, 2)),
        TypeError,
        "expected float16, bfloat16, float32, float64",
    ),
    "masked array": (lambda: ln.max_pool(np.ma.array(X), (2, 2)), TypeError, "masked array"),
    "structured array": (lambda: ln.max_pool(np.zeros(2, "i4,f4"), (2,)), TypeError, "dtype"),
    "two operands": (
        lambda: ln.forward(ln.MaxPool((2, 2)), X, X),
        TypeError,
        "takes one operand|one operand",
    ),
    "no operand": (lambda: ln.forward(ln.MaxPool((2, 2))), TypeError, "operand"),
    "ragged list": (lambda: ln.MaxPool((2,))([[1], [1, 2]]), ValueError, "inhomogeneous"),
    "tangent shape": (
        lambda: ln.MaxPool((2, 2)).jvp(X, X[:2]),
        ValueError,
        r"tangent of x has shape \(2, 4\); expected x's shape \(4, 4\)",
    ),
    "tangent dtype": (
        lambda: ln.MaxPool((2, 2)).jvp(X, X.astype(np.float32)),
        TypeError,
        "tangent of x has dtype float32; expected x's dtype float64",
    ),
    "tangent count": (lambda: ln.jvp(ln.MaxPool((2, 2)), (X,), (X, X)), ValueError, "2 tangents"),
    "no tangent": (lambda: ln.jvp(ln.MaxPool((2, 2)), (X,), ()), ValueError, "0 tangents"),
    "tangent of integers": (
        lambda: ln.MaxPool((2, 2)).jvp(X.astype(int), X.astype(int)),
        TypeError,
        "integers have no tangent",
    ),
    "gradient shape": (
        lambda: ln.MaxPool((2, 2)).vjp(X, X),
        ValueError,
        r"gradient has shape \(4, 4\); expected the output's \(2, 2\)",
    ),
    "gradient dtype": (
        lambda: ln.AvgPool((2, 2)).vjp(X, np.ones((2, 2), np.float32)),
        TypeError,
        "gradient has dtype float32",
    ),
    "gradient of exact by float": (
        lambda: ln.AvgPool((2,)).vjp(np.array([Fraction(1)] * 2, object), np.ones(1)),
        TypeError,
        "gradient has dtype float64",
    ),
    "indices of a mean": (
        lambda: ln.dispatch.forward_with_indices(ln.AvgPool((2, 2)), X),
        TypeError,
        "only a max has indices",
    ),
    "backend unknown": (
        lambda: ln.max_pool(X, (2, 2), backend="gpu"),
        ValueError,
        "backend='gpu'.*'spec'",
    ),
    "indices past the end": (
        lambda: ln.max_unpool(np.ones(2), np.array([0, 4]), (4,)),
        ValueError,
        "indices contain 4; expected −1 … 3",
    ),
    "indices before the start": (
        lambda: ln.max_unpool(np.ones(2), np.array([0, -2]), (4,)),
        ValueError,
        "indices contain -2",
    ),
    "indices that would wrap": (
        lambda: ln.max_unpool(np.ones(1), np.array([2**32]), (4,)),
        ValueError,
        "indices contain 4294967296",
    ),
    "indices dtype": (
        lambda: ln.max_unpool(np.ones(1), np.array([True]), (4,)),
        TypeError,
        "indices have dtype bool; expected an integer type",
    ),
    "indices shape": (
        lambda: ln.max_unpool(np.ones(2), np.array([0]), (4,)),
        ValueError,
        "indices have shape",
    ),
    "unpool rank": (
        lambda: ln.max_unpool(np.ones(2), np.zeros(2, int), (2, 2)),
        ValueError,
        "2 axes",
    ),
    "unpool size": (
        lambda: ln.max_unpool(np.ones(2), np.zeros(2, int), 4),
        TypeError,
        "output_size=4",
    ),
    "unpool huge": (
        lambda: ln.max_unpool(np.ones((1, 1)), np.zeros((1, 1), int), (HUGE, HUGE)),
        ValueError,
        "needs .* bytes",
    ),
    "pool of nothing": (lambda: ln.Pool((), ln.Max()), TypeError, "regions="),
    "pool of no reduction": (lambda: ln.Pool((ln.Global(),), "max"), TypeError, "reduction='max'"),
    "sliding axes cannot be dropped": (
        lambda: ln.Pool((ln.Sliding(2),), ln.Max(), keepdims=False),
        ValueError,
        "keepdims=False",
    ),
    "negative shape": (lambda: ln.MaxPool((1,)).out_shape((-1,)), ValueError, "shape=-1"),
    "shape of floats": (lambda: ln.MaxPool((1,)).out_shape((1.0,)), TypeError, "shape=1.0"),
    "shape int": (lambda: ln.MaxPool((1,)).out_shape(4), TypeError, "shape=4"),
    "region padding": (lambda: ln.Sliding(2, padding=(1, 2, 3)), ValueError, "padding="),
    "region padding word": (lambda: ln.Sliding(2, padding="full"), ValueError, "padding='full'"),
}


@pytest.mark.parametrize("name", CASES)
def test_bad_input(name):
    call, error, message = CASES[name]
    with pytest.raises(error, match=message):
        call()


def test_nothing_is_computed_before_the_check():
    """A bad gradient is refused although its array could never be read."""

    class Unreadable:
        def __array__(self, *_, **__):
            raise AssertionError("read before the check")

    with pytest.raises(ValueError, match="stride=0"):
        ln.max_pool(Unreadable(), (2,), stride=0)


NO_OP = [2, "MaxPool((2,))", None, slice(2), ln.MaxPool, (2, 2)]


@pytest.mark.parametrize("bad", NO_OP, ids=repr)
@pytest.mark.parametrize(
    "call",
    [
        lambda op: ln.forward(op, X),
        lambda op: ln.explain(op, X),
        lambda op: ln.spec.forward(op, X),
        lambda op: ln.spec.forward_with_indices(op, X),
        lambda op: ln.spec.jvp(op, X, X),
        lambda op: ln.spec.vjp(op, X, X),
        lambda op: ln.offsets.forward_with_offsets(op, X),
        lambda op: ln.offsets.vjp_from_offsets(op, X, X, (4, 4)),
        lambda op: ln.offsets.jvp_from_offsets(op, X, X),
        lambda op: ln.offsets.offsets_of(op, (4, 4), X),
        lambda op: ln.offsets.indices_of(op, (4, 4), X),
    ],
)
def test_what_is_no_op_is_refused_by_every_verb(call, bad):
    with pytest.raises(TypeError, match=r"op=.*expected an op"):
        call(bad)


class Own(tuple):
    """A tuple with methods of its own."""

    __slots__ = ()

    def __iter__(self):
        raise ZeroDivisionError

    __len__ = __getitem__ = __iter__


def test_axes_are_what_a_tuple_holds():
    assert ln.MaxPool((2, 2), axes=Own((0, 1))) == ln.MaxPool((2, 2), axes=(0, 1))
    with pytest.raises(ValueError, match="axes"):
        ln.AdaptiveMaxPool((1,), axes=Own((2, 2)))


OP = ln.MaxPool((3,), stride=2, padding=1, dilation=2)
"""On 7 cells its windows are cells 1 and 3, 1, 3 and 5, 3 and 5."""


@pytest.mark.parametrize(
    "indices, error, words",
    [
        ([1, 3, 7], ValueError, r"indices: 7 at \(2,\)"),
        ([1, 3, -2], ValueError, r"indices: -2 at \(2,\)"),
        ([0, 3, 5], ValueError, r"indices: 0 at \(0,\)"),
        ([-1, 3, 5], ValueError, r"255 at \(0,\)"),
        ([1, 3], ValueError, "indices have shape"),
        ([1.0, 3.0, 5.0], TypeError, "indices have dtype"),
    ],
)
def test_indices_that_an_op_cannot_have_given(indices, error, words):
    np.testing.assert_array_equal(ln.offsets.offsets_of(OP, (7,), [1, 3, 5]), [1, 1, 1])
    with pytest.raises(error, match=words):
        ln.offsets.offsets_of(OP, (7,), indices)
