"""Chunkings of arrays for the tests, and what it means that two arrays have the same bits."""

import dask.array as da
import numpy as np
from hypothesis import strategies as st

from lunette.ops.base import is_float


@st.composite
def axis_chunks(draw, n):
    """A random partition of `n`; 1-cell chunks are common."""
    chunks = []
    while sum(chunks) < n:
        chunks.append(draw(st.integers(1, n - sum(chunks))))
    return tuple(chunks) or (0,)


@st.composite
def chunked(draw, x):
    """`x` as a Dask array in random chunks."""
    chunks = tuple(draw(axis_chunks(n)) for n in x.shape)
    return da.from_array(x, chunks=chunks, name=False)


@st.composite
def float_arrays(draw, shape, dtype=np.float32):
    """Few distinct values, so that there are ties; now and then NaN, infinities and −0."""
    size = int(np.prod(shape, dtype=int))
    pool = np.array([0, 1, -1, 2, 0.1, 1 / 3, -0.7, 3e-5, 1e4, -0.0], dtype)
    if draw(st.integers(0, 3)) == 0:
        pool = np.append(pool, np.array([np.nan, np.inf, -np.inf], dtype))
    choices = draw(st.binary(min_size=size, max_size=size))
    return np.array([pool[c % len(pool)] for c in choices], dtype).reshape(shape)


def same_bits(lazy, expected):
    """Shape, dtype and every bit, NaNs' signs and payloads aside."""
    assert isinstance(lazy, da.Array)
    assert lazy.shape == expected.shape
    assert lazy.dtype == expected.dtype
    actual = lazy.compute(scheduler="sync")
    assert actual.shape == expected.shape
    assert actual.dtype == expected.dtype
    if actual.dtype.kind == "O":
        assert (actual == expected).all()
        return
    if is_float(actual.dtype):
        nan = np.isnan(expected)
        assert (np.isnan(actual) == nan).all()
        zero = np.zeros((), actual.dtype)
        actual, expected = np.where(nan, zero, actual), np.where(nan, zero, expected)
    assert np.ascontiguousarray(actual).tobytes() == np.ascontiguousarray(expected).tobytes()
