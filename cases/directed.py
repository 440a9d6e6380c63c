"""Small, pointed checks of the CPU kernels, by name: each gives the disagreements that it finds.

They are the agreement tests at their smallest: a handful of geometries and values, chosen so that
a wrong line in a kernel shows. The mutation tests run them on kernels that are wrong on purpose.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import lunette as ln
from cases import elementary, values
from cases.agreement import (
    TIES,
    bounded_errors,
    differing_bits,
    direction,
    max_disagreements,
    pool,
    run,
)
from cases.channels_last import (
    LARGE_WINDOWS,
    SMALL_WINDOWS,
    channels_last,
    long_rows_of_channels,
    turned,
    turned_parts,
)
from cases.directed_windows import (
    LARGE,
    LARGE_APART,
    LINES,
    NARROW,
    OTHERS,
    PAIRS,
    PLANES,
    WIDE,
)
from cases.drawn import numbers
from cases.guard import watch
from cases.large_smooth import LARGE_SMOOTH, in_any_order, smooth_bounds
from cases.small_items import SHAPES, small_items
from cases.ties import ties_that_count
from lunette.reductions import Mean, Reduction, SmoothMax
from lunette.regions import Global, Sliding

__all__ = [
    "CHECKS",
    "around_the_limit",
    "one_by_one",
]


def _max(cases: Any, dtype: str, ties: tuple[str, ...], verbs: tuple[str, ...]) -> list[str]:
    found = []
    for lengths, regions in cases:
        for kind in values.kinds_of(dtype)[:6] if dtype in values.FLOATS else ("ties", "extremes"):
            x = values.filled(kind, (2, *lengths), dtype)
            found += max_disagreements(regions, x, ties=ties, verbs=verbs)
    return found


def _max_of_nothing() -> list[str]:
    """Indices and tangents where every cell is −inf: the first real cell wins, never the padding."""
    found = []
    for lengths, regions in (*PAIRS, *OTHERS, *LARGE, *LARGE_APART):
        x = np.full((2, *lengths), -np.inf, np.float32)
        found += max_disagreements(
            regions, x, ties=("first",), verbs=("forward_with_indices", "jvp")
        )
    return found


def _bounded(cases: Any, dtype: str, reductions: tuple[Reduction, ...], verb: str) -> list[str]:
    found = []
    for lengths, regions in cases:
        for reduction in reductions:
            op, x = pool(regions, reduction), values.filled("random", lengths, dtype)
            shape = op.out_shape(x.shape) if verb == "vjp" else x.shape
            along = None if verb == "forward" else direction(shape, x.dtype)
            ratio = bounded_errors(op, verb, x, along)
            if not ratio <= 1:
                found.append(f"{verb} of {op!r}: error/bound {ratio}")
    return found


def _threads() -> list[str]:
    found = []
    for op, shape in (
        (ln.MaxPool((3, 3), stride=2, padding=1), (4, 16, 64, 64)),
        (ln.MaxPool((3, 3), stride=1, padding=1), (1, 1, 301, 302)),
    ):
        x = values.filled("random", shape, "float32")
        grad = direction(op.out_shape(shape), x.dtype)
        for verb, along in (("forward", None), ("vjp", grad)):
            ln.set_num_threads(1)
            expected = run(op, verb, x, along)
            ln.set_num_threads(2)
            found.append(differing_bits(run(op, verb, x, along), expected))
    return [difference for difference in found if difference]


def _past_the_caches() -> list[str]:
    """Results of more than 8 MB: in pieces, by lines of rows that end within one, and rows of whole lines."""
    found = []
    for columns, cells in ((243, 9), (243, 2), (257, 2)):
        x = values.filled("random", (40, 231, columns), "float32")
        y = ln.MaxPool((2, cells), stride=1)(x)
        along = np.lib.stride_tricks.sliding_window_view(x, cells, axis=2).max(axis=3)
        difference = differing_bits(y, np.maximum(along[:, 1:], along[:, :-1]))
        found += [difference] if difference else []
    return found


def _wide_gradients() -> list[str]:
    found = _max(WIDE, "float32", TIES, ("vjp",))
    x = values.filled("ties", (1, 2, 33000), "float32")  # more than a slab
    return found + max_disagreements((Global(), Global()), x, ties=("all",), verbs=("vjp",))


def _short_rows() -> list[str]:
    """One pooled axis, of many short rows: more than are taken together."""
    found = []
    for regions in ((Sliding(3, 2, 1),), (Sliding(2, 2),)):
        x = values.filled("random", (2 * 4099, 9), "float32")
        found += max_disagreements(regions, x, ties=("first",), verbs=("forward", "vjp"))
    return found


def _layouts() -> list[str]:
    found = []
    x = values.filled("random", (2, 3, 6, 19), "float32")
    for op in (
        ln.MaxPool((3, 3), stride=2, padding=1),
        ln.AvgPool((2, 2)),
        ln.AvgPool((3, 3, 3), stride=2, padding=1),
        ln.GlobalMaxPool(2),
        ln.GlobalAvgPool(2),
    ):
        expected = run(op, "forward", x)
        grad = direction(expected.shape, x.dtype)
        gradient = run(op, "vjp", x, grad)
        for name, view in values.layouts(x):
            for verb, along, wanted in (("forward", None, expected), ("vjp", grad, gradient)):
                difference = differing_bits(run(op, verb, view, along), wanted)
                if difference:
                    found.append(f"{verb} of {op!r}, {name}: {difference}")
    many, op = values.filled("random", (3, 17, 5, 7), "float32"), ln.GlobalAvgPool(2)
    difference = differing_bits(run(op, "forward", turned(many)), run(op, "forward", many))
    return [*found, f"{op!r} of many items: {difference}"] if difference else found


def _parts() -> list[str]:
    found = []
    x = values.filled("random", (2, 9, 60), "float32")
    for regions in ((Sliding(3, 1, 1), Sliding(25, 1, 12)), (Sliding(9, 1, 4), Sliding(3, 2, 1))):
        for reduction in (Mean(), SmoothMax(1.5)):
            whole = run(pool(regions, reduction), "forward", x)
            cut = whole.shape[-1] // 3
            part = regions[1].part(60, cut, whole.shape[-1])
            piece = run(
                pool((regions[0], part), reduction), "forward", x[..., slice(*part.slab_range)]
            )
            found.append(differing_bits(piece, whole[..., cut:]))
    return [difference for difference in found if difference]


def _zeros_of_both_signs() -> list[str]:
    """−0 at every place of a window's first row, then +0 at every place of its second."""
    places = np.arange(33)
    x = np.full((33, 33, 2, 33), -1.0, np.float32)
    x[places, :, 0, places] = -0.0
    x[:, places, 1, places] = 0.0
    y = run(pool((Global(), Global()), ln.Max()), "forward", x)
    return [] if (np.signbit(y) & (y == 0)).all() else ["a zero is not the first one"]


def _far_apart() -> list[str]:
    """Cells so far apart that any other pivot overflows."""
    op = pool((Sliding(3, 1, 1),), SmoothMax(-2.0, count_include_pad=False))
    ratio = bounded_errors(op, "forward", np.linspace(-300, 300, 9, dtype=np.float32))
    return [f"{op!r}: error/bound {ratio}"] if not ratio <= 1 else []


def around_the_limit(shape: tuple[int, ...], beta: float, dtype: str, seed: int = 0) -> Any:
    """Cells near zero, and here and there one where powers of beta end, just before, just past, or far."""
    rng = np.random.default_rng(seed)
    limit = (300.0 if dtype == "float64" else 40.0) / abs(beta)
    x = rng.standard_normal(shape) * limit / 8
    edges = limit * rng.choice([0.9999999, 1.0, 1.0000002, 1.001, 8.0, -1.0, -1.0000002], shape)
    largest = 65504.0 if dtype == "float16" else np.inf
    return np.where(rng.random(shape) < 0.06, edges, x).clip(-largest, largest).astype(dtype)


def _mixed(verb: str) -> list[str]:
    """Windows that share powers beside windows about their own pivots."""
    found = []
    for lengths, regions in PAIRS:
        for reduction in SMOOTHS:
            op, x = pool(regions, reduction), around_the_limit(lengths, reduction.beta, "float32")
            shape = op.out_shape(x.shape)
            along = None if verb == "forward" else direction(shape, x.dtype)
            ratio = bounded_errors(op, verb, x, along)
            if not ratio <= 1:
                found.append(f"{verb} of {op!r}: error/bound {ratio}")
    return found


def _small_gradients() -> list[str]:
    """Gradients so small or so large that those over a sum of powers would leave the range."""
    op = pool(*((Sliding(3, 2, 1), Sliding(3, 2, 1)), SmoothMax(2.0)))
    found = []
    for cell in (-18.0, 18.0):
        x = np.full((6, 37), cell, np.float32) + values.filled("random", (6, 37), "float32")
        for size in (1e-36, 1e-30, 1e24, 1e36):
            grad = (direction(op.out_shape(x.shape), x.dtype) * size).astype(np.float32)
            ratio = bounded_errors(op, "vjp", x, grad)
            if not ratio <= 1:
                found.append(f"vjp of {op!r} on gradients of {size}: error/bound {ratio}")
    return found


def one_by_one(verb: str, op: Any, x: Any, along: Any) -> Any:
    """A verb by the kernel that serves items with NaN, window by window."""
    from lunette.kernels.cpu.select.forward import forward_call
    from lunette.kernels.cpu.select.vjp import gradient_call

    if verb == "forward":
        call = forward_call(op, x.shape, x.strides, x.dtype, False)
        y = call.new()
        call.run(x, y, y)
        return y
    call = gradient_call(op, x.shape, x.strides, along.strides, x.dtype, False)
    gx = call.new()
    call.run(x, along, gx)
    return gx


def _one_by_one(verb: str) -> list[str]:
    """A window's bits are the same side by side with others and by itself."""
    found = []
    for lengths, regions in PAIRS:
        for reduction in (*SMOOTHS, SmoothMax(0.3)):
            op = pool(regions, reduction)
            x = around_the_limit((2, *lengths), reduction.beta, "float32", 1)
            along = direction(op.out_shape(x.shape), x.dtype)
            actual = run(op, verb, x, None if verb == "forward" else along)
            difference = differing_bits(np.asarray(actual), one_by_one(verb, op, x, along))
            if difference:
                found.append(f"{verb} of {op!r}: {difference}")
    return found


def _half_tangents() -> list[str]:
    """Sums of tied tangents, which round once to a half type."""
    return _max(PAIRS[:2], "float16", ("all",), ("jvp",))


def _elementary(name: str) -> list[str]:
    error, where = elementary.worst_error(name, elementary.arguments(name, 500))
    return [f"{name}({where}) is {error} units off"] if not error <= 1.5 else []


MEANS = (Mean(), Mean(count_include_pad=False), Mean(divisor_override=5))
SMOOTHS = (SmoothMax(1.5), SmoothMax(-2.0, count_include_pad=False))
ALL = (*PAIRS, *LARGE, *OTHERS)


def _one_cell_of_an_item() -> list[str]:
    """A NaN, alone in its item, at every place; then a −0 at one place and a +0 at every other."""
    found = []
    for regions in (
        (Sliding(2, 2), Sliding(2, 2)),
        (Sliding(3, 2, 1), Sliding(3, 2, 1)),
        (Sliding(3, 1, 1), Sliding(3, 1, 1)),
        (Sliding(4, 3), Sliding(4, 3)),
    ):
        nan = np.full((48, 4, 12), -1.0, np.float32)
        nan[np.arange(48), np.arange(48) // 12, np.arange(48) % 12] = np.nan
        zeros = np.full((16, 16, 4, 4), -1.0, np.float32)
        places = np.arange(16)
        zeros[places, :, places // 4, places % 4] = -0.0
        zeros[:, places, places // 4, places % 4] = 0.0
        for x in (nan, *zeros):  # a few items at a time: many would be interleaved
            found += max_disagreements(regions, x, ties=(), verbs=("forward",))
    return found


def _one_cell_of_many_channels() -> list[str]:
    """A NaN in one cell of one channel, at every place; channels are last."""
    places = np.arange(48)
    x, found = np.full((48, 16, 4, 12), -1.0, np.float32), []
    x[places, places % 16, places // 12, places % 12] = np.nan
    for window, *how in (((2, 2), 2, 1), ((3, 3), 2, 1), ((4, 2), 2, 1), ((3, 3), 1, (0, 1))):
        op = ln.MaxPool(window, *how)
        difference = differing_bits(run(op, "forward", turned(x)), run(op, "forward", x))
        found += [f"{op!r}: {difference}"] if difference else []
    return found


def _planes() -> list[str]:
    """Windows of several planes; a NaN in any of them, and a −0 and a +0 in any two."""
    regions = (Sliding(2, 2),) * 3
    nan = np.full((32, 4, 2, 4), -1.0, np.float32)
    nan.reshape(32, 32)[np.arange(32), np.arange(32)] = np.nan
    zeros = np.full((16, 16, 2, 2, 4), -1.0, np.float32)
    zeros.reshape(16, 16, 16)[np.arange(16), :, np.arange(16)] = -0.0
    zeros.reshape(16, 16, 16)[:, np.arange(16), np.arange(16)] = 0.0
    found = _max(PLANES, "float32", (), ("forward",))
    for x in (nan, *zeros):  # a few items at a time: many would be interleaved
        found += max_disagreements(regions, x, ties=(), verbs=("forward",))
    return found


def _one_window_each() -> list[str]:
    """Items with one window each: the same bits as one item after the other, and the right maxima."""
    found = []
    for items, rows, columns in ((37, 7, 7), (19, 5, 70), (21, 6, 14), (3, 4, 33), (16, 2, 8)):
        x, nans, zeros = (
            values.filled(kind, (items, rows, columns), "float32")
            for kind in ("random", "nans", "zeros")
        )
        for cells in (x, nans, np.where(x > 1, zeros, np.float32(-1))):
            found += max_disagreements((Global(), Global()), cells)
        tied = values.filled("ties", x.shape, "float32")
        found += max_disagreements((Global(), Global()), np.where(x > 1, tied, -np.inf))
        found += max_disagreements((Global(), Global()), np.full_like(x, -np.inf))
        op = ln.GlobalAvgPool(2)
        each = np.stack([run(op, "forward", item) for item in x])
        difference = differing_bits(run(op, "forward", x), each)
        found += [f"{op!r} of {x.shape}: {difference}"] if difference else []
        ratio = bounded_errors(op, "forward", x)
        found += [] if ratio <= 1 else [f"{op!r} of {x.shape}: error/bound {ratio}"]
    return found


def _order_of_sums() -> list[str]:
    """Long windows, one to a row: their sums by layout."""
    op = pool((Sliding(17, 3, 7), Sliding(4, 100, 3)), Mean())
    x = numbers(np.random.default_rng(0), (1, 5, 53, 48), "float32")
    found = differing_bits(run(op, "forward", np.asfortranarray(x)), run(op, "forward", x))
    return [f"{op!r} of {x.shape}: {found}"] if found else []


CHECKS: dict[str, Callable[[], list[str]]] = {
    "order of sums": _order_of_sums,
    **watch.CHECKS,
    "zeros": _zeros_of_both_signs,
    "one cell": _one_cell_of_an_item,
    "max forward": lambda: _max((*PAIRS, *OTHERS), "float32", (), ("forward",)),
    "max indices": lambda: _max((*PAIRS, *OTHERS), "float32", (), ("forward_with_indices",)),
    "max of −inf": _max_of_nothing,
    "one cell of many channels": _one_cell_of_many_channels,
    "planes": _planes,
    "one window each": _one_window_each,
    "ties that count": lambda: ties_that_count("float32"),
    "large max": lambda: _max(LARGE, "float32", (), ("forward",)),
    "large indices": lambda: _max((*LARGE, *LARGE_APART), "float32", (), ("forward_with_indices",)),
    "large indices int8": lambda: _max(LARGE[2:], "int8", (), ("forward_with_indices",)),
    "large jvp": lambda: _max(LARGE_APART, "float32", ("first",), ("jvp",)),
    "max jvp first": lambda: _max((*PAIRS, *OTHERS[4:]), "float32", ("first",), ("jvp",)),
    "max jvp split": lambda: _max(PAIRS, "float32", ("split",), ("jvp",)),
    "max vjp first": lambda: _max((*PAIRS, *OTHERS), "float32", ("first",), ("vjp",)),
    "wide indices": lambda: _max(WIDE, "float32", (), ("forward", "forward_with_indices")),
    "wide jvp": lambda: _max(WIDE, "float32", TIES, ("jvp",)),
    "wide vjp": _wide_gradients,
    "large vjp": lambda: _max((*LARGE, *LARGE_APART), "float32", ("first",), ("vjp",)),
    "max vjp all": lambda: _max(PAIRS, "float32", ("all",), ("vjp",)),
    "max vjp split": lambda: _max(PAIRS, "float32", ("split",), ("vjp",)),
    "max float16": lambda: _max((*PAIRS, *OTHERS), "float16", (), ("forward",)),
    "max bfloat16": lambda: _max((*PAIRS, *OTHERS), "bfloat16", (), ("forward",)),
    "max int8": lambda: _max((*PAIRS, *OTHERS), "int8", (), ("forward",)),
    "mean forward": lambda: _bounded((*PAIRS, *OTHERS), "float32", MEANS, "forward"),
    "narrow mean": lambda: _bounded(NARROW, "float32", MEANS, "forward"),
    "mean along a row": lambda: _bounded(LINES, "float32", MEANS, "forward"),
    "large mean": lambda: _bounded(LARGE[:2], "float32", MEANS, "forward"),
    "mean jvp": lambda: _bounded(PAIRS, "float32", MEANS, "jvp"),
    "mean vjp": lambda: _bounded((*PAIRS, *OTHERS), "float32", MEANS, "vjp"),
    "mean float16": lambda: _bounded(PAIRS, "float16", MEANS, "forward"),
    "mean bfloat16": lambda: _bounded(PAIRS, "bfloat16", MEANS, "forward"),
    "smooth forward": lambda: _bounded((*PAIRS, *OTHERS), "float32", SMOOTHS, "forward"),
    "large smooth": lambda: _bounded(LARGE[:2], "float32", SMOOTHS, "forward"),
    "smooth in pairs": lambda: (
        smooth_bounds("float32", LARGE_SMOOTH[:4]) + in_any_order("float32", LARGE_SMOOTH[:5])
    ),
    "smooth float64": lambda: _bounded(PAIRS[:2], "float64", SMOOTHS, "forward"),
    "smooth jvp": lambda: _bounded(PAIRS, "float32", SMOOTHS, "jvp"),
    "smooth vjp": lambda: _bounded(PAIRS, "float32", SMOOTHS, "vjp"),
    "smooth far apart": _far_apart,
    "smooth mixed": lambda: _mixed("forward"),
    "smooth mixed vjp": lambda: _mixed("vjp"),
    "smooth small gradients": _small_gradients,
    "smooth one by one": lambda: _one_by_one("forward"),
    "smooth one by one vjp": lambda: _one_by_one("vjp"),
    "powers": lambda: _elementary("exp_power_32"),
    "float16 tangents": _half_tangents,
    "exp32": lambda: _elementary("exp32"),
    "log32": lambda: _elementary("log32"),
    "exp64": lambda: _elementary("exp64"),
    "log64": lambda: _elementary("log64"),
    "float16 rounding": lambda: elementary.half_rounding_disagreements("float16"),
    "bfloat16 rounding": lambda: elementary.half_rounding_disagreements("bfloat16"),
    "threads": _threads,
    "past the caches": _past_the_caches,
    "layouts": _layouts,
    "turned": turned_parts,
    "long rows of channels": long_rows_of_channels,
    "channels last": lambda: [
        line
        for n in (5, 70)
        for line in channels_last(
            n, "float32", 37, (ln.Max(),), (*SMALL_WINDOWS[::3], SMALL_WINDOWS[-1])
        )
    ],
    "means of many channels last": lambda: channels_last(
        52, "float32", 20, (Mean(), Mean(count_include_pad=False)), SMALL_WINDOWS[:5]
    ),
    "large channels last": lambda: channels_last(70, "float32", 200, (ln.Max(),), LARGE_WINDOWS),
    "smooth channels last": lambda: channels_last(
        20,
        "float32",
        37,
        (SmoothMax(1.5), SmoothMax(-30.0)),
        (*SMALL_WINDOWS[:2], SMALL_WINDOWS[3]),
    ),
    "short rows": _short_rows,
    "small items": lambda: small_items("float32", SHAPES[:1], (ln.Max(),)),
    "parts": _parts,
}
