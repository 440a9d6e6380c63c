"""Ops and shapes that the tests of JAX share: every region, reduction and way of ties, with and without its axes."""

import numpy as np

import lunette as ln
from lunette.reductions import Max, Mean
from lunette.regions import Global, Sliding

CASES = {
    "max": (ln.MaxPool((3, 3), 2, 1), (2, 3, 9, 8)),
    "max-1d": (ln.MaxPool((4,), 1, (2,)), (3, 17)),
    "max-3d": (ln.MaxPool((2, 3, 2), (1, 2, 2), dilation=(2, 1, 1)), (2, 5, 7, 6)),
    "max-ceil": (ln.MaxPool((3, 2), 2, ceil_mode=True), (2, 2, 8, 9)),
    "max-same": (ln.MaxPool((4, 4), 3, "same"), (1, 2, 10, 7)),
    "max-all": (ln.MaxPool((2, 2), 1, ties="all"), (2, 2, 6, 6)),
    "max-split": (ln.MaxPool((3, 3), 1, 1, ties="split"), (2, 2, 6, 5)),
    "max-long": (ln.MaxPool((1, 300), 1, (0, 150)), (1, 1, 2, 310)),
    "max-empty": (ln.MaxPool((2, 2), 2, 2), (1, 2, 4, 4)),
    "adaptive": (ln.AdaptiveMaxPool((3, 5)), (2, 3, 8, 7)),
    "adaptive-mean": (ln.AdaptiveAvgPool((3, 9)), (2, 3, 8, 7)),
    "global": (ln.GlobalMaxPool(2), (2, 3, 5, 4)),
    "global-dropped": (ln.GlobalMaxPool(2, keepdims=False), (2, 3, 5, 4)),
    "global-first-dropped": (ln.Pool((Global(),), Max(), keepdims=False), (2, 3, 40)),
    "global-mean": (ln.GlobalAvgPool(2, keepdims=False), (2, 3, 5, 4)),
    "mean": (ln.AvgPool((2, 3), 2, 1), (2, 3, 8, 9)),
    "mean-real": (ln.AvgPool((3, 3), 2, 1, count_include_pad=False), (2, 3, 8, 9)),
    "mean-divisor": (ln.AvgPool((2, 2), divisor_override=3), (1, 2, 6, 6)),
    "mixed": (ln.Pool((Sliding(2, 2), Global()), Mean()), (2, 6, 5)),
    "smooth": (ln.SmoothMaxPool((2, 2), 1.5, 1, 1), (2, 2, 5, 6)),
    "smooth-real": (ln.SmoothMaxPool((3, 3), -2.0, 2, 1, count_include_pad=False), (2, 2, 7, 7)),
    "min": (ln.MinPool((3, 3), 2, 1), (2, 3, 9, 8)),
    "min-empty": (ln.MinPool((2, 2), 2, 2), (1, 2, 4, 4)),
}

DTYPES = ("float32", "float16", "bfloat16")


def array(shape, dtype, seed=0, ties=True):
    """Numbers of which some are equal, and of which some are zeros of either sign."""
    rng = np.random.default_rng(seed)
    x = rng.integers(-4, 5, shape) / 2 if ties else rng.standard_normal(shape)
    x = np.where(rng.random(shape) < 0.1, -0.0, x)
    return x.astype(np.dtype(dtype) if dtype != "bfloat16" else _bfloat16())


def _bfloat16():
    import ml_dtypes

    return ml_dtypes.bfloat16


def same_bits(found, expected):
    """Whether two arrays have one shape and dtype, and the same bits but for those of NaN."""
    found, expected = np.asarray(found), np.asarray(expected)
    if found.shape != expected.shape or found.dtype != expected.dtype:
        return False
    if expected.dtype.kind in "iub":
        return np.array_equal(found, expected)
    both = np.isnan(found) & np.isnan(expected)
    number = np.dtype(f"u{expected.dtype.itemsize}")
    return bool((both | (found.view(number) == expected.view(number))).all())
