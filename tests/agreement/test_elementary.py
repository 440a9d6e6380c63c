"""The kernels' exp and log keep their written error, and half types round once, to nearest even."""

import numpy as np
import pytest

from cases import elementary, values
from cases.agreement import differing_bits, run
from lunette import MaxPool

WRITTEN = 1.5
"""Units of the last place, as written in `lunette.kernels.cpu.simd.scalar_math`."""

FUNCTIONS = ("exp32", "log32", "exp64", "log64")
VECTORS = tuple(elementary.VECTORS)


@pytest.mark.parametrize("name", FUNCTIONS + VECTORS)
def test_error_of_exp_and_log(name):
    error, where = elementary.worst_error(name, elementary.arguments(name, 3000))
    assert error <= WRITTEN, (name, error, where)


@pytest.mark.full
@pytest.mark.parametrize("name", FUNCTIONS + VECTORS)
def test_error_of_exp_and_log_at_many_arguments(name):
    error, where = elementary.worst_error(name, elementary.arguments(name, 400_000, seed=1))
    assert error <= WRITTEN, (name, error, where)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_exp_and_log_at_the_ends(name):
    dtype = np.float32 if name.endswith("32") else np.float64
    inf, nan = np.inf, np.nan
    ends = {
        "exp": ([nan, inf, -inf, 0], [nan, inf, 0, 1]),
        "log": ([nan, inf, 0, 1], [nan, inf, -inf, 0]),
    }
    x, expected = (np.array(row, dtype) for row in ends[name[:3]])
    assert np.array_equal(elementary.applied(name, x), expected, equal_nan=True)


@pytest.mark.parametrize(("vector", "scalar"), [("exp_down_32", "exp32"), ("exp_down_64", "exp64")])
def test_vectors_have_the_bits_of_single_numbers(vector, scalar):
    """Also where results are subnormal or nothing: a window may go to either kernel."""
    x = -np.geomspace(1e-30, 1e4, 4000).astype(np.float32 if "32" in vector else np.float64)
    assert not differing_bits(elementary.applied(vector, x), elementary.applied(scalar, x))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_types_round_once_to_nearest_even(dtype):
    assert not elementary.half_rounding_disagreements(dtype)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_every_half_number_survives_a_max(backend, dtype):
    patterns = np.arange(1 << 16, dtype=np.uint16).view(values.filled("random", (1,), dtype).dtype)
    x = np.where(np.isnan(patterns.astype(np.float32)), np.zeros(1, patterns.dtype), patterns)
    for op in (MaxPool((1,)), MaxPool((1,), stride=2)):
        expected = x[:: op.stride[0]]
        assert not differing_bits(run(op, "forward", x, backend=backend), expected)
