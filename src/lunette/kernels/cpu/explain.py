"""Which row of the table serves a call of pooling, why the rows above it do not, and the schedule of its program."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from lunette.explanation import Explanation
from lunette.kernels import threads
from lunette.kernels.cpu.jit import cache
from lunette.kernels.cpu.layout.split_axis import LONG, long_axis, long_outputs
from lunette.kernels.cpu.pooling import channels_to_rows
from lunette.kernels.cpu.schedule.plan import channel_axis
from lunette.kernels.cpu.schedule.slots import DIRECT, STREAM
from lunette.kernels.cpu.select import argmax, forward, vjp
from lunette.kernels.cpu.select.huge_windows import huge_max
from lunette.kernels.cpu.select.lse_pairs import is_huge
from lunette.kernels.cpu.select.questions import (
    in_bytes,
    in_elements,
    kept_shape,
    result_steps,
)
from lunette.kernels.cpu.select.table import Problem, Row, refused
from lunette.ops.pooling import Pooling
from lunette.reductions import Max, Mean, SmoothMax

__all__ = ["TABLES", "explain"]

Shape = tuple[int, ...]

TABLES: dict[str, tuple[Row, ...]] = {
    "forward": forward.ROWS,
    "forward_with_indices": argmax.INDEX_ROWS,
    "forward_with_offsets": argmax.TAP_ROWS,
    "jvp": argmax.JVP_ROWS,
    "vjp": vjp.ROWS,
}
"""The rows of each verb, in order of preference."""

KINDS = {"forward": "values", "jvp": "tangents", "vjp": "gradients"}


def explain(op: Pooling, verb: str, x: Any, other: Any = None) -> Explanation:
    """For a verb on an array of this shape, layout and dtype; `other` is the tangent or the gradient.

    Without it, a tangent lies as the input does, and a gradient as the result does. Cells are not looked at.
    """
    if verb == "jvp" and isinstance(op.reduction, Mean):
        verb, x = "forward", x if other is None else other  # linear
    kind = KINDS.get(verb, "winners")
    asked = f"{verb} of {op!r}, {x.dtype}{list(x.shape)}, strides {list(x.strides)} bytes"
    if not x.size:
        return Explanation(asked, (), "none", "an empty array: there is nothing to do", ())
    if huge_max(op, x.shape, kind) or is_huge(op, x.shape, kind):
        words = "windows that hold each cell thousands of times: whole axes at a time, by log steps"
        return Explanation(asked, (), "any-whole-axes", words, ())
    layout = []
    if (max(x.shape) > LONG and long_axis(op, x.shape)) or (
        verb != "vjp" and long_outputs(op, x.shape)
    ):
        words = "an axis of more than a million positions, or outputs: split, each part as below it"
        return Explanation(asked, (), "any-split-axis", words, ())
    given = _given(op, verb, x, other)
    turns = isinstance(op.reduction, SmoothMax if verb == "forward" else (Max, SmoothMax))
    if turns and channels_to_rows(op, x, given, kind):
        layout.append(("layout", "channels last transposed to rows, a part at a time"))
        x, given = (np.broadcast_to(x.dtype.type(0), a.shape) for a in (x, given))
        strides = (_in_order(x.shape, x.itemsize), _in_order(given.shape, x.itemsize))
    else:
        strides = (x.strides, given.strides)
    above, program, name = refused(TABLES[verb], Problem(verb, op, x.shape, *strides, x.dtype))
    serves = next((row.serves for row in TABLES[verb] if row.name == name), "no row serves")
    return Explanation(asked, tuple(above), name, serves, (*layout, *_schedule(program)))


def _given(op: Pooling, verb: str, x: Any, other: Any) -> Any:
    """The second array of a verb, with every pooled axis."""
    if verb != "vjp":
        return x if other is None or verb != "jvp" else other
    whole = kept_shape(op, x.shape)
    if other is None:
        lane = channel_axis(x.shape, in_elements(x.strides, x.dtype), op.rank)
        strides = in_bytes(result_steps(whole, lane), x.dtype)
        return np.lib.stride_tricks.as_strided(np.empty(1, x.dtype), whole, strides)
    return other.reshape(whole)


def _in_order(shape: Shape, size: int) -> Shape:
    return tuple(size * prod(shape[axis + 1 :]) for axis in range(len(shape)))


def _schedule(program: Any) -> list[tuple[str, str]]:
    """What a program runs: kernels, work items, scratch memory, threads, and how the result is stored."""
    if program is None:
        return []
    if inner := getattr(program, "inner", None):
        parts = f"{program.parts} parts of {program.part} items, interleaved"
        return [("layout", parts), *_schedule(inner)]
    if steps := getattr(program, "steps", None):
        return [line for kernel, tiling in steps for line in _stage(kernel, tiling, tiling, False)]
    calls = getattr(program, "calls", None) or (
        (program.winners, program.scatter) if hasattr(program, "winners") else (program,)
    )
    lines = []
    for call in calls:
        if hasattr(call, "kernel"):
            lines += _stage(call.kernel, call, call.plan, call.pieces is not None)
        else:
            lines += _schedule(call)
    return lines


def _name_of(kernel: Any) -> str:
    """The module, factory and arguments that made a kernel of this process."""
    return next(
        (" ".join(map(str, n)) for n, k in cache._kernels.items() if k is kernel), "unknown"
    )


def _stage(kernel: Any, stage: Any, plan: Any, staged: bool) -> list[tuple[str, str]]:
    """One kernel of a program."""
    cells = plan.cells_visited
    most = min(threads.get_num_threads(), stage.units, max(1, cells // threads.CELLS_AWAKE))
    streamed = int(plan.table[STREAM]) if hasattr(plan, "slabs") else 0
    store = "plain"
    if staged or streamed:
        store = "streaming, " + (
            "through a staging buffer" if staged else "direct" if streamed == DIRECT else "by lines"
        )
    return [
        ("kernel", _name_of(kernel)),
        ("tiles", f"{stage.units}, of {-(-cells // max(1, stage.units))} cells read each"),
        ("threads", str(most)),
        ("scratch", f"{stage.scratch} bytes a thread"),
        ("stores", store),
    ]
