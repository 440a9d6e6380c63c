"""Every Triton kernel against the specification, in Triton's interpreter."""

import interpreted
import pytest
from triton_cases import GEOMETRIES, INTEGERS, LANED, LOOKS, RANKS, REDUCTIONS, with_reduction

import lunette as ln

PLACES = RANKS + GEOMETRIES
FEW = [1, 3, 4, 9, 12, 17, 19, 24]


def names(cases):
    return [f"{i}-{case[2]}" for i, case in enumerate(cases)]


MAXIMA = [(op, shape, *LOOKS[i % 6]) for i, (op, shape) in enumerate(PLACES)]
OTHERS = [
    (with_reduction(PLACES[at][0], reduction), PLACES[at][1], *LOOKS[(i + j) % 6])
    for i, at in enumerate(FEW)
    for j, reduction in enumerate(REDUCTIONS)
    if (i + j) % 3 == 0
]
WHOLE = [
    (ln.GlobalMaxPool(2), (2, 3, 5), "float32", "ties", "first"),
    (ln.GlobalMaxPool(2, ties="first"), (2, 3, 5), "float16", "special", "first"),
    (ln.GlobalMaxPool(1, ties="split"), (2, 13), "float64", "ties", "first"),
    (
        ln.Pool((ln.Global(), ln.Global()), ln.SmoothMax(-1.5)),
        (2, 3, 5),
        "float32",
        "normal",
        "first",
    ),
    (ln.GlobalAvgPool(2), (2, 3, 5), "bfloat16", "ties", "first"),
]
WHOLES = [
    (PLACES[at][0], PLACES[at][1], dtype, "ties", "first")
    for at, dtype in zip((1, 3, 4, 17, 19, 12), INTEGERS, strict=True)
]
CHANNELS = [
    (
        with_reduction(op, [op.reduction, *REDUCTIONS][i]),
        (*shape[: -op.rank - 1], 3, *(min(n, 7) for n in shape[-op.rank :])),
        *LOOKS[(i + i // 6) % 6][:2],
        "last",
    )
    for i, (op, shape) in enumerate(LANED[:8])
]


@pytest.mark.parametrize("case", MAXIMA, ids=names(MAXIMA))
def test_max(interpreter, case):
    interpreter(interpreted.check, *case)


@pytest.mark.parametrize("case", OTHERS, ids=names(OTHERS))
def test_other_reductions_and_ties(interpreter, case):
    interpreter(interpreted.check, *case)


FLATS = [
    (
        with_reduction(op, [op.reduction, *REDUCTIONS[:3]][i % 4]),
        shape,
        *LOOKS[(i // 4) % 6][:2],
        layout,
    )
    for i, (op, shape, layout) in enumerate(
        [(op, shape, "first") for op, shape in PLACES]
        + [(op, shape, "last") for op, shape in LANED[:8]]
    )
]


@pytest.mark.parametrize("case", FLATS, ids=names(FLATS))
def test_flat_kernels(interpreter, case):
    interpreter(interpreted.check_flat, *case)


@pytest.mark.parametrize("case", WHOLE, ids=names(WHOLE))
def test_whole_rows(interpreter, case):
    interpreter(interpreted.check, *case)


@pytest.mark.parametrize("case", CHANNELS, ids=names(CHANNELS))
def test_channels_innermost(interpreter, case):
    interpreter(interpreted.check, *case)


@pytest.mark.parametrize("case", WHOLES, ids=names(WHOLES))
def test_integers(interpreter, case):
    interpreter(interpreted.check, *case)


@pytest.mark.parametrize("seed", range(3))
def test_offsets_that_no_window_has_lead_nowhere(interpreter, seed):
    interpreter(interpreted.forged_offsets, seed)


def test_means_of_integers_are_float64(interpreter):
    interpreter(interpreted.check, ln.AvgPool((2, 2)), (2, 4, 6), "int32", "ties")


def test_large_windows_go_by_passes(interpreter):
    options = {"verbs": ("forward",)}
    op = ln.MaxPool((8, 9), 1, (4, 5))
    interpreter(_checked, op, (1, 9, 10), "float32", "special", "first", options)
    for op in (ln.AvgPool((8, 9), 1, (4, 5)), ln.AvgPool((9, 8), (2, 1), divisor_override=7)):
        for dtype, layout in (("float16", "first"), ("float64", "last")):
            interpreter(_checked, op, (2, 11, 10), dtype, "normal", layout, options)


def _checked(*arguments):
    *case, options = arguments
    interpreted.check(*case, **options)
