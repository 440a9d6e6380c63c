"""Values while a network is recorded: nodes of a tape, and arrays that are known beside it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from lunette.onnx.errors import ReadError
from lunette.onnx.graph import Step
from lunette.ops.base import Op, is_float
from lunette.spec import scalars
from lunette.tape import functions as fn
from lunette.tape.ids import Id
from lunette.tape.rules import RULES
from lunette.tape.tape import Tape
from lunette.tape.window import rule_of

__all__ = ["Recorder", "Value"]

MAX_ELEMENTS = 2**28
"""Elements that one value may have."""


class Value:
    """A node of the tape, or a known array; `depends` says whether the inputs have a say in it.

    Integers, bools and constants are known arrays: shapes and positions are computed with them.
    A constant joins the tape when a float meets it, in the number system of the inputs.
    """

    __slots__ = ("array", "depends", "id", "name")

    def __init__(self, array: Any, id: Id | None, depends: bool, name: str = "constant") -> None:
        self.array, self.id, self.depends, self.name = array, id, depends, name

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple((self.array if self.id is None else self.id).shape)

    @property
    def is_float(self) -> bool:
        return self.array is None or is_float(self.array.dtype)


class Recorder:
    """Records the steps of one network on one tape."""

    def __init__(self, tape: Tape, like: Any, dtype: Any) -> None:
        self.tape, self.like, self.dtype = tape, like, dtype
        self.decided: list[str] = []
        """Nodes that read an integer which the inputs decide: it stands on the tape as a constant."""

    # -- known arrays --

    def known(self, array: Any, *sources: Value) -> Value:
        """An array computed from these values beside the tape."""
        return Value(np.asarray(array), None, any(v.depends for v in sources))

    def array(self, step: Step, value: Value, what: str) -> Any:
        """A known array, read as a parameter of the step."""
        if value.array is None:
            raise step.error(f"{what} is computed from floats: not read here, expected a constant")
        self._decide(step, value)
        return value.array

    def ints(self, step: Step, value: Value, what: str) -> list[int]:
        """A known list of integers."""
        array = self.array(step, value, what)
        if array.dtype.kind not in "iu" or array.ndim > 1:
            raise step.error(
                f"{what} has dtype {array.dtype} and shape {array.shape}; expected a list of integers"
            )
        return [int(n) for n in array.reshape(-1)]

    def _decide(self, step: Step, value: Value) -> None:
        if value.depends and step.label not in self.decided:
            self.decided.append(step.label)

    # -- nodes --

    def node(self, step: Step, value: Value) -> Id:
        """The value on the tape; a constant becomes a leaf there, once."""
        if value.id is None:
            if not value.is_float:
                raise step.error(
                    f"{value.name} has dtype {value.array.dtype}: expected floats, or only integers"
                )
            if value.array.dtype != self.dtype:
                raise step.error(
                    f"{value.name} has dtype {value.array.dtype} in a network of {self.dtype}"
                )
            self._decide(step, value)
            value.id = self.tape.leaf(self.converted(value.array), value.name, False)
        return value.id

    def converted(self, array: Any) -> Any:
        """Constants in the number system and dtype of the inputs: exactly, as they are wider."""
        if fn.is_object(self.like):
            system, out = scalars.of_array(self.like), np.empty(array.shape, object)
            for i, v in np.ndenumerate(array):
                out[i] = system.from_real(float(v))
            return out
        if fn.library(self.like) is np:
            return array.astype(self.like.dtype, copy=False)
        module = fn.library(self.like)
        copied = module.asarray(array.copy(), device=self.like.device)
        return fn.conform(copied, self.like)

    def apply(self, step: Step, op: Op | str, *values: Value, **options: Any) -> Value:
        """A node of an op; its shape is checked, and bounded, before anything is computed."""
        ids = [self.node(step, value) for value in values]
        rule = rule_of(op) if isinstance(op, Op) else RULES[op]
        try:
            shape = rule.shape(*[tuple(i.shape) for i in ids], **options)
            self.bounded(step, shape)
            node = self.tape.apply(op, *ids, name=step.outputs[0] or step.op, **options)
        except ReadError:
            raise
        except (ValueError, TypeError) as error:
            if isinstance(error, (scalars.Undecided, scalars.MissingOperation)):
                error.add_note(f"in {step.label}")
                raise
            raise step.error(str(error)) from None
        return Value(None, node, any(v.depends for v in values))

    def bounded(self, step: Step, shape: Any) -> tuple[int, ...]:
        """The shape, if a value may be so large."""
        sizes = tuple(int(n) for n in shape)
        if math.prod(sizes) > MAX_ELEMENTS or min(sizes, default=0) < 0:
            raise step.error(
                f"gives shape {sizes}: expected at most {MAX_ELEMENTS} elements, and no negative size"
            )
        return sizes

    # -- elements moved about: one function of arrays serves known arrays and positions --

    def move(self, step: Step, value: Value, function: Callable[[Any], Any]) -> Value:
        """The elements elsewhere: `function` moves an array's elements and computes nothing."""
        if value.id is None:
            return self.known(function(value.array), value)
        positions = np.arange(math.prod(value.shape)).reshape(value.shape)
        return self.take(step, value, function(positions))

    def take(self, step: Step, value: Value, index: Any) -> Value:
        """A node of elements at positions."""
        self.bounded(step, index.shape)
        return self.apply(step, "take", value, index=np.array(index, np.int64, order="C"))

    def merge(self, step: Step, values: list[Value], index: Any) -> Value:
        """Elements of several values, by their positions when all are laid end to end."""
        self.bounded(step, index.shape)
        if all(v.id is None for v in values):
            ends = np.concatenate([v.array.reshape(-1) for v in values])
            return self.known(ends[index], *values)
        flat = [self.reshape(step, v, (-1,)) for v in values]
        return self.take(step, self.apply(step, "concatenate", *flat, axis=0), index)

    def reshape(self, step: Step, value: Value, shape: tuple[int, ...]) -> Value:
        """The same elements in row-major order."""
        if value.id is None:
            try:
                return self.known(value.array.reshape(shape), value)
            except ValueError:
                raise step.error(
                    f"shape {shape} does not hold the elements of {value.shape}"
                ) from None
        return self.apply(step, "reshape", value, shape=shape)

    def transpose(self, step: Step, value: Value, axes: tuple[int, ...]) -> Value:
        """The axes in another order."""
        if value.id is None:
            return self.known(value.array.transpose(axes), value)
        return self.apply(step, "transpose", value, axes=axes)

    # -- numbers --

    def constant(self, number: float) -> Value:
        """A float of the network, without axes."""
        return self.known(np.asarray(number, self.dtype))

    def decided_floats(self, value: Value) -> Any:
        """The elements of a float as they are, for what reads them beside the tape."""
        return value.array if value.id is None else value.id.value


def axis_of(step: Step, axis: Any, ndim: int, what: str = "axis") -> int:
    """An axis counted from 0."""
    number = int(axis)
    if not -ndim <= number < ndim:
        raise step.error(f"{what}={number}: there are {ndim} axes")
    return number % ndim


def axes_of(step: Step, axes: Any, ndim: int) -> tuple[int, ...]:
    """Axes counted from 0, each once."""
    found = tuple(axis_of(step, a, ndim, "axes") for a in axes)
    if len(set(found)) != len(found):
        raise step.error(f"axes={list(axes)}: expected each axis once")
    return found
