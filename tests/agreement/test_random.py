"""Beyond the tables: ops, shapes and values that Hypothesis makes up."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cases import values
from cases.agreement import bounded_errors, direction, max_disagreements, pool
from cases.workloads import dtype_named
from lunette.reductions import Mean, SmoothMax
from lunette.regions import Adaptive, Global, Sliding

RELAXED = settings(
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@st.composite
def axes(draw, longest=24, kernel=12):
    """A length and a region that fits it."""
    n = draw(st.integers(1, longest))
    kind = draw(st.sampled_from(["sliding"] * 6 + ["adaptive", "global"]))
    if kind == "adaptive":
        return n, Adaptive(draw(st.integers(1, 2 * longest)))
    if kind == "global":
        return n, Global()
    k, dilation = draw(st.integers(1, kernel)), draw(st.integers(1, 4))
    before, after = draw(st.integers(0, 9)), draw(st.integers(0, 9))
    stride, ceil_mode = draw(st.integers(1, 7)), draw(st.booleans())
    # Under ceil_mode the edge may cut a window short by less than a stride.
    spared = stride - 1 if ceil_mode else 0
    after += max(0, dilation * (k - 1) + 1 - n - before - after - spared)
    return n, Sliding(k, stride, (before, after), dilation, ceil_mode)


@st.composite
def geometries(draw, longest, kernel, most):
    picked = draw(st.lists(axes(longest, kernel), min_size=1, max_size=most))
    return tuple(n for n, _ in picked), tuple(region for _, region in picked)


@st.composite
def arrays(draw, lengths, dtypes, kinds=None):
    dtype = draw(st.sampled_from(dtypes))
    kind = draw(st.sampled_from(kinds or values.kinds_of(dtype)))
    batch = tuple(draw(st.lists(st.integers(1, 3), max_size=2)))
    x = values.filled(kind, batch + lengths, dtype, draw(st.integers(0, 1000)))
    view = draw(st.sampled_from(["as it is", "reversed", "transposed"]))
    if view == "reversed":
        return x[..., ::-1]
    return np.asfortranarray(x) if view == "transposed" else x


@settings(RELAXED, max_examples=150)
@given(data=st.data())
def test_max(backend, data):
    check_max(backend, data, ("float32",))


@pytest.mark.full
@settings(RELAXED, max_examples=1500)
@given(data=st.data())
def test_max_of_every_dtype(backend, data):
    check_max(backend, data, values.DTYPES)


def check_max(backend, data, dtypes):
    lengths, regions = data.draw(geometries(24, 12, 2) | geometries(6, 4, 4))
    x = data.draw(arrays(lengths, dtypes))
    assert not max_disagreements(regions, x, backend=backend)


@settings(RELAXED, max_examples=40)
@given(data=st.data())
def test_mean_and_smooth_max(backend, data):
    check_bounds(backend, data, ("float32",))


@pytest.mark.full
@settings(RELAXED, max_examples=400)
@given(data=st.data())
def test_mean_and_smooth_max_of_every_float(backend, data):
    check_bounds(backend, data, values.FLOATS)


def check_bounds(backend, data, dtypes):
    lengths, regions = data.draw(geometries(20, 12, 1) | geometries(5, 3, 3))
    kinds = ("random", "ties", "negative", "huge", "denormal")
    x = data.draw(arrays(lengths, dtypes, kinds))
    include = data.draw(st.booleans())
    beta = data.draw(st.sampled_from([-50.0, -0.3, 0.01, 1.0, 7.5, 200.0]))
    mean = Mean(include, data.draw(st.none() | st.integers(1, 9)))
    op = pool(regions, data.draw(st.sampled_from([mean, SmoothMax(beta, include)])))
    grad = direction(op.out_shape(x.shape), dtype_named(x.dtype.name))
    assert bounded_errors(op, "forward", x, None, backend) <= 1
    assert bounded_errors(op, "jvp", x, direction(x.shape, x.dtype, 3), backend) <= 1
    assert bounded_errors(op, "vjp", x, grad, backend) <= 1
