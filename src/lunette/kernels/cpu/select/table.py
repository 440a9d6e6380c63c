"""The table of kernels: for each verb its rows in order of preference, the reference last, and how one is selected.

A row is asked for a problem and answers with a program, or says in words why it refuses. The first that answers serves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from lunette.cached import cached_property
from lunette.kernels.cpu.schedule.nhwc import NhwcPlan, nhwc_plan
from lunette.kernels.cpu.schedule.plan import Plan, channel_axis
from lunette.kernels.cpu.schedule.slots import MAX, MEAN, SMOOTH
from lunette.kernels.cpu.schedule.tiling import Tiling
from lunette.kernels.cpu.select.canonical import ANY_LENGTH, SameWork, canonical, collapse_axes
from lunette.kernels.cpu.select.lse_nhwc import channels_of
from lunette.kernels.cpu.select.questions import (
    few_and_long,
    in_elements,
    kept_shape,
    kind_of,
    real_dtype,
    result_steps,
    small_argmax,
    tiling_of,
)
from lunette.ops.base import is_float
from lunette.ops.pooling import Pooling

__all__ = ["FINITE", "SMALL_ITEMS", "Problem", "Row", "Verdict", "refused", "select"]

Shape = tuple[int, ...]

SMALL_ITEMS = "items are few or large, or do not lie one after the other"
FINITE = "a second run, of items that were flagged: takes cells to be finite"
NOT_MAX, NOT_MEAN, NOT_LSE = "not a max", "not a mean", "not a log-sum-exp"


@dataclass(frozen=True)
class Problem:
    """What a kernel is asked for: the key of a program. Strides are in bytes.

    `other` has the strides of the tangent, or of the gradient. A problem that is not `speculative` has items with NaN,
    infinities or zeros of both signs; the result of one `as_it_lies` has its axes in the order of the input's.
    """

    verb: str
    op: Pooling
    shape: Shape
    strides: Shape
    other: Shape
    dtype: Any
    speculative: bool = True
    as_it_lies: bool = False

    @cached_property
    def kind(self) -> int:
        return kind_of(self.op.reduction)

    @property
    def ties(self) -> str:
        """Which winners of a max count; nothing for other reductions."""
        return str(getattr(self.op.reduction, "ties", ""))

    @cached_property
    def out(self) -> Shape:
        """The shape of the result with every pooled axis kept."""
        return kept_shape(self.op, self.shape)

    def not_a(self, kind: int) -> str | None:
        """Why a row for one reduction refuses another."""
        why = {MAX: NOT_MAX, MEAN: NOT_MEAN, SMOOTH: NOT_LSE}[kind]
        return None if self.kind == kind else why

    @cached_property
    def lse_nhwc(self) -> tuple[NhwcPlan, int] | None:
        """The plan of a log-sum-exp over channels, and their axis."""
        return channels_of(self.op, self.shape, self.strides, self.other, self.dtype)

    @cached_property
    def max_nhwc(self) -> tuple[NhwcPlan, int] | None:
        """The plan of a max over channels whose first winners count, and their axis."""
        if self.ties != "first" and self.verb != "forward_with_indices":
            return None
        return nhwc_plan(self.op, self.shape, self.strides, self.other, self.dtype)

    # -- on rows --

    @cached_property
    def same(self) -> SameWork:
        """The same work on other axes, where kernels that go along rows find longer or more of them."""
        op, shape, size = self.op, self.shape, self.dtype.itemsize
        if self.as_it_lies or self.lse_nhwc:
            outputs = (self.other,) if self.verb == "vjp" else ()
            return SameWork(op, shape, (self.strides, self.other), outputs)
        if self.verb == "vjp":
            return canonical(op, shape, (self.strides,), (self.other,), size, self.kind == MEAN)
        if self.verb == "forward_with_indices":
            whole = collapse_axes(op, shape, (self.strides,), (), size, ANY_LENGTH)
            return whole or SameWork(op, shape, (self.strides,), ())
        both = (self.strides, self.other)
        inputs = both if self.verb == "jvp" else both[:1]
        return canonical(op, shape, inputs, (), size, values=self.verb == "forward")

    @cached_property
    def steps(self) -> Shape:
        """The input's strides there, in elements."""
        return in_elements(self.same.inputs[0], self.dtype)

    @cached_property
    def lane(self) -> int:
        """The axis of channels where these are contiguous, else −1: values of max and mean, and derivatives by the reference."""
        if self.verb == "forward" and self.kind != SMOOTH:
            return channel_axis(self.same.shape, self.steps, self.same.op.rank)
        return self.lse_nhwc[1] if self.lse_nhwc else -1

    @cached_property
    def arrays(self) -> tuple[Shape, Shape, Shape]:
        """Strides in elements of the three arrays of the verb, in the order in which kernels take them."""
        if self.verb == "vjp":
            there = in_elements(self.same.outputs[0], self.dtype)
            return self.steps, there, result_steps(self.same.shape, self.lane)
        made = result_steps(kept_shape(self.same.op, self.same.shape), self.lane)
        if self.verb == "jvp":
            return self.steps, made, in_elements(self.same.inputs[1], self.dtype)
        return self.steps, made, made

    @cached_property
    def plan(self) -> Plan:
        """Strides and windows."""
        op, shape = self.same.op, self.same.shape
        if self.verb == "forward":
            plan = Plan(op, shape, self.arrays, self.lane, by_columns=self.kind == MEAN)
            if self.kind == MEAN:
                plan.divide_as(real_dtype(self.dtype))
            return plan
        return Plan(op, shape, self.arrays)

    @cached_property
    def mean_gradient(self) -> tuple[Plan, int]:
        """The plan of the gradient of a mean, and the axis of channels where these are contiguous, else −1."""
        op, shape, _, (grad,) = self.same
        lane = channel_axis(shape, self.steps, op.rank)
        arrays = (self.steps, in_elements(grad, self.dtype), result_steps(shape, lane))
        return Plan(op, shape, arrays, lane, True), lane

    @cached_property
    def tiling(self) -> Tiling | None:
        """Tiles of small windows that lie alike."""
        op, shape = self.same.op, self.same.shape
        return tiling_of(op, shape, self.arrays, self.dtype, in_turn=self.kind == SMOOTH)

    def not_small(self, most: int | None = None) -> str | None:
        """Why windows are not taken by tiles of rows, each beside its neighbours; more than `most` outputs may be long."""
        op, shape = self.same.op, self.same.shape
        if not self.speculative:
            return FINITE
        if self.verb != "forward_with_indices" and not is_float(self.dtype):
            return "integers have no derivatives"
        if self.ties not in ("first", "") and self.verb != "forward_with_indices":
            return "all winners count, not the first alone"
        if not small_argmax(op, shape, self.dtype):
            return "windows have too many taps to look at each"
        if few_and_long(op, shape, *([] if most is None else [most])):
            return "few windows along a row, long and disjoint"
        return None


Program = Any
"""What serves a problem: it makes the array of the result, and runs."""

Verdict = Any
"""A program, or a string: why there is none."""


class Row(NamedTuple):
    """A kernel, or several in a program: what it serves, and a function that gives the program or a refusal."""

    name: str
    serves: str
    program: Callable[[Problem], Verdict]


def select(rows: tuple[Row, ...], problem: Problem) -> Program | None:
    """The program of the first row that serves; None where none does."""
    return refused(rows, problem)[1]


def refused(
    rows: tuple[Row, ...], problem: Problem
) -> tuple[list[tuple[str, str]], Program | None, str]:
    """The rows above the one that serves with their refusals, its program, and its name."""
    above: list[tuple[str, str]] = []
    for row in rows:
        verdict = row.program(problem)
        if not isinstance(verdict, str):
            return above, verdict, row.name
        above.append((row.name, verdict))
    return above, None, ""
