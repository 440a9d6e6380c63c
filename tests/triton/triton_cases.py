"""Geometries chosen so that every Triton kernel and every special path is met; no Triton here."""

import lunette as ln

RANKS = [
    (ln.MaxPool((3,), 2, 1), (2, 11)),
    (ln.MaxPool((3, 3), 2, 1), (2, 7, 10)),
    (ln.MaxPool((2, 2)), (3, 6, 8)),
    (ln.MaxPool((3, 3), 1, 1), (2, 5, 9)),
    (ln.MaxPool((2, 3, 3), (1, 2, 1), (0, 1, 1)), (2, 3, 5, 6)),
    (ln.MaxPool((2, 2, 2, 2), (1, 2, 1, 2), (1, 0, 1, 0)), (1, 2, 3, 4, 5)),
    (ln.MaxPool((3, 1), (2, 1), (1, 0)), (2, 7, 5)),
    (ln.MaxPool((1, 1)), (2, 3, 4)),
    (ln.MaxPool((2, 1, 1), 1), (2, 3, 2, 3)),
]
GEOMETRIES = [
    (ln.MaxPool((3, 4), (2, 3), ((1, 2), (0, 3)), (2, 1)), (2, 9, 11)),
    (ln.MaxPool((2, 3), (3, 4), 0), (2, 8, 13)),
    (ln.MaxPool((3, 3), 2, 0, ceil_mode=True), (2, 6, 8)),
    (ln.MaxPool((3, 2), 2, 4), (2, 3, 4)),
    (ln.MaxPool((2, 2), 2, 3, dilation=5), (1, 4, 3)),
    (ln.MaxPool((4, 5), (1, 4), "same"), (1, 6, 9)),
    (ln.MaxPool((5, 6), 1, (2, 3)), (1, 5, 6)),
    (ln.MaxPool((18, 3), (5, 2), (9, 1)), (1, 20, 7)),
    (ln.AdaptiveMaxPool((3, 4)), (2, 7, 9)),
    (ln.AdaptiveMaxPool((2, 4)), (2, 6, 8)),
    (ln.AdaptiveMaxPool((2, 3)), (2, 6, 12)),
    (ln.MaxPool((3, 4)), (2, 8, 14)),
    (ln.AdaptiveMaxPool((5, 3)), (1, 3, 2)),
    (ln.AdaptiveMaxPool((2, 3, 2)), (1, 3, 4, 5)),
    (ln.GlobalMaxPool(2), (3, 2, 5)),
    (ln.GlobalMaxPool(1, keepdims=False), (2, 3, 7)),
    (ln.Pool((ln.Sliding(2, 1, 1), ln.Global()), ln.Max("first")), (2, 4, 5)),
    (
        ln.Pool((ln.Sliding(3, 1, 1).part(9, 2, 6), ln.Adaptive(3).part(7, 1, 3)), ln.Max()),
        (2, 6, 5),
    ),
    (ln.MaxPool((3, 3), 2, 0, ceil_mode=True), (2, 2, 2)),
    (ln.MaxPool((5, 3), (4, 2), 1, ceil_mode=True), (2, 1, 9)),
    (ln.MaxPool((4,), 3, ceil_mode=True), (2, 2)),
]
LARGER = [
    (ln.MaxPool((3, 3), 2, 1), (3, 37, 150)),
    (ln.MaxPool((3, 3), 1, 1), (2, 19, 70)),
    (ln.MaxPool((2, 2)), (5, 20, 64)),
    (ln.MaxPool((9, 13), 1, (4, 6)), (1, 21, 40)),
    (ln.MaxPool((7, 6), 1, (3, 3)), (1, 8, 9)),
    (ln.MaxPool((3, 3, 3), 2, 1), (1, 5, 9, 34)),
    (ln.MaxPool((5,), 1, 2), (3, 130)),
    (ln.AdaptiveMaxPool((7, 7)), (2, 28, 30)),
]
WHOLE = [
    (ln.GlobalMaxPool(2), (2, 18, 20)),
    (ln.GlobalMaxPool(2, ties="first"), (2, 18, 20)),
    (ln.GlobalMaxPool(1, ties="split"), (2, 300)),
    (ln.Pool((ln.Global(), ln.Global()), ln.SmoothMax(-1.5)), (2, 18, 20)),
    (ln.GlobalAvgPool(2), (2, 18, 20)),
    (ln.GlobalMaxPool(1), (2, 20000)),
    (ln.GlobalMaxPool(1, ties="split"), (1, 20000)),
    (ln.Pool((ln.Global(),), ln.SmoothMax(1.5)), (1, 20000)),
]
LANED = [
    (ln.MaxPool((3, 3), 2, 1), (2, 16, 9, 10)),
    (ln.MaxPool((2, 2)), (1, 32, 7, 8)),
    (ln.MaxPool((3, 2), 1, (1, 0)), (1, 48, 5, 6)),
    (ln.MaxPool((2, 3, 3), (1, 2, 1), (0, 1, 1)), (1, 16, 3, 5, 6)),
    (ln.AdaptiveMaxPool((2, 4)), (2, 16, 6, 8)),
    (ln.AdaptiveMaxPool((3, 5)), (1, 20, 7, 8)),
    (ln.MaxPool((2,)), (2, 16, 9)),
    (ln.GlobalMaxPool(2), (2, 16, 18, 20)),
    (ln.GlobalMaxPool(2, ties="first"), (2, 3, 18, 20)),
]
"""Channels innermost, as many as vectors want, or few."""
REDUCTIONS = [
    ln.Mean(),
    ln.Mean(False),
    ln.Mean(True, 3),
    ln.SmoothMax(1.5),
    ln.SmoothMax(-2.0, False),
    ln.Max("all"),
    ln.Max("split"),
]
LOOKS = [
    ("float32", "special", "first"),
    ("bfloat16", "ties", "last"),
    ("float16", "special", "first"),
    ("float64", "ties", "strided"),
    ("bfloat16", "special", "first"),
    ("float32", "normal", "last"),
]
INTEGERS = ["int8", "int32", "int64", "uint8", "bool", "int16"]


def with_reduction(op, reduction):
    """The same regions under another reduction."""
    return ln.Pool(op.regions, reduction, op.keepdims)
