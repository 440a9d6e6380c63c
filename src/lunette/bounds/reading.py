"""A tape's graph as steps: what depends on a boxed leaf, in order, with its constants folded in."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from lunette.bounds import affine
from lunette.bounds.affine import Shape, Step
from lunette.bounds.box import LARGEST, Array, Box
from lunette.bounds.deployed import Deployment
from lunette.bounds.network import Input, Network
from lunette.bounds.windows import Curve, Jump, Maximum, Smooth, Softmax, counted_padding, table_of
from lunette.ops.convolution import Convolution
from lunette.ops.pooling import Pooling
from lunette.reductions import Max, Mean, SmoothMax

__all__ = ["network_of"]

EXACT = ("reshape", "transpose", "concatenate", "neg", "take", "maximum")
"""Rules that round nothing: constants may have come about by them."""

MAX_CLASSES = 2048
"""Numbers of one softmax: each reads all of them."""


def network_of(tape: Any, output: Any, boxes: Any, deployment: Deployment | None) -> Network:
    """The steps between boxed leaves and an output of a tape."""
    from lunette.tape import Tape

    if not isinstance(tape, Tape):
        raise TypeError(f"tape={tape!r}: expected a lunette.Tape")
    if deployment is not None and not isinstance(deployment, Deployment):
        raise TypeError(f"deployment={deployment!r}: expected a Deployment, or None")
    if tape._released:
        raise ValueError("tape is released: its values are gone; record it again")
    number = tape._number(output)
    return _Reader(tape, _checked(tape, boxes), deployment).read(number)


def _checked(tape: Any, boxes: Any) -> dict[int, Box]:
    if not isinstance(boxes, dict) or not boxes:
        raise TypeError(f"boxes={boxes!r}: expected a dict of leaf → Box, with at least one")
    found = {}
    for key, box in boxes.items():
        number = tape._number(key)
        node = tape._nodes[number]
        if node.rule is not None:
            raise ValueError(f"node {number} {node.name!r} is no leaf; boxes are of leaves")
        if not isinstance(box, Box):
            raise TypeError(f"box of node {number} {node.name!r}: expected a Box, got {box!r}")
        if box.shape not in ((), node.shape):
            raise ValueError(
                f"box of node {number} {node.name!r} has shape {box.shape}; expected {node.shape}"
            )
        found[number] = Box(
            np.broadcast_to(box.lo, node.shape), np.broadcast_to(box.hi, node.shape)
        )
    return found


class _Reader:
    """Reads nodes in order; a node becomes a step, or a constant where no boxed leaf is behind it."""

    def __init__(self, tape: Any, boxes: dict[int, Box], deployment: Deployment | None) -> None:
        self.tape, self.boxes, self.deployment = tape, boxes, deployment
        self.steps: list[Step] = []
        self.at: dict[int, int] = {}

    def read(self, output: int) -> Network:
        for number in self._ancestors(output):
            node = self.tape._nodes[number]
            if number in self.boxes:
                self._keep(number, Input(node.shape, self._about(number), self.boxes[number]))
            elif any(p in self.at for p in node.parents):
                self._keep(number, self._step(number, node))
        if output not in self.at:
            raise ValueError(f"{self._about(output)} depends on no leaf that has a box")
        return self._pruned(self.at[output])

    def _pruned(self, output: int) -> Network:
        """Only the steps that the output reads: a relu that joined its max pooling is gone."""
        needed = {output}
        for k in range(output, -1, -1):
            if k in needed:
                needed.update(self.steps[k].parents)
        place = {k: i for i, k in enumerate(sorted(needed))}
        steps = [self.steps[k] for k in sorted(needed)]
        for step in steps:
            step.parents = tuple(place[p] for p in step.parents)
        return Network(steps, {n: place[k] for n, k in self.at.items() if k in place})

    def _ancestors(self, output: int) -> list[int]:
        seen, waiting = {output}, [output]
        while waiting:
            number = waiting.pop()
            if number in self.boxes:
                continue
            for p in self.tape._nodes[number].parents:
                if p not in seen:
                    seen.add(p)
                    waiting.append(p)
        return sorted(seen)

    def _keep(self, number: int, step: Step) -> None:
        self.at[number] = len(self.steps)
        self.steps.append(step)

    def _about(self, number: int) -> str:
        node = self.tape._nodes[number]
        kind = node.op if isinstance(node.op, str) else repr(node.op)
        return f"node {number} {node.name!r} ({kind})"

    def _shape(self, number: int) -> Shape:
        return tuple(self.tape._nodes[number].shape)

    def _constant(self, number: int, role: str, reader: int) -> Array:
        """The value of a node with no boxed leaf behind it, exactly as it stands."""
        about = f"{self._about(reader)}: {role}, node {number} {self.tape._nodes[number].name!r}"
        for p in self._ancestors(number):
            node = self.tape._nodes[p]
            if node.rule is not None and node.op not in EXACT:
                raise ValueError(
                    f"{about} was computed, with rounding, by {self._about(p)}; "
                    "give its value as a leaf"
                )
        value = self.tape._nodes[number].value
        value = value.detach().cpu().numpy() if hasattr(value, "detach") else np.asarray(value)
        if value.dtype.kind not in "fiu" and value.dtype.name != "bfloat16":
            raise TypeError(f"{about} has dtype {value.dtype}: expected floats")
        exact = np.asarray(value, np.float64)
        if not np.isfinite(exact).all():
            raise ValueError(
                f"{about} holds {float(exact[~np.isfinite(exact)][0])!r}: no bound holds"
            )
        if exact.size and np.abs(exact).max() > LARGEST:
            raise ValueError(f"{about} holds numbers past 2**400")
        if self.deployment is not None:
            self.deployment.check_constant(exact, self._about(reader), role)
        return np.ascontiguousarray(exact)

    def _step(self, number: int, node: Any) -> Step:
        if isinstance(node.op, Convolution):
            return self._convolution(number, node)
        if isinstance(node.op, Pooling):
            return self._pooling(number, node)
        reader: Callable[[int, Any], Step] | None = getattr(self, f"rule_{node.op}", None)
        if reader is None:
            raise ValueError(
                f"{self._about(number)}: no bounds of this op are known; known are the poolings, the "
                f"convolutions, {', '.join(SERVED)}"
            )
        return reader(number, node)

    def _sides(self, node: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Operands that are steps, as steps; and the places of those that are constants."""
        steps = tuple(self.at[p] for p in node.parents if p in self.at)
        return steps, tuple(i for i, p in enumerate(node.parents) if p not in self.at)

    def _only_first(self, number: int, node: Any) -> int:
        for place, p in enumerate(node.parents):
            if (p in self.at) != (place == 0):
                raise ValueError(
                    f"{self._about(number)}: operand {place}, {self._about(p)}, "
                    + ("is a constant" if place == 0 else "depends on a box")
                    + "; bounds need weights that are constants"
                )
        return self.at[node.parents[0]]

    # -- ops --

    def _convolution(self, number: int, node: Any) -> Step:
        parent = self._only_first(number, node)
        weight = self._constant(node.parents[1], "weight", number)
        x = self._shape(node.parents[0])
        step = affine.Convolved((parent,), node.shape, self._about(number), node.op, x, weight)
        if len(node.parents) > 2:
            step.bias = self._constant(node.parents[2], "bias", number)
        return step

    def _pooling(self, number: int, node: Any) -> Step:
        x, parent = self._shape(node.parents[0]), self.at[node.parents[0]]
        about, op = self._about(number), node.op
        if isinstance(op.reduction, Mean):
            return affine.Pooled((parent,), node.shape, about, op, x)
        table = table_of(op, x)
        if isinstance(op.reduction, SmoothMax):
            zeros = np.zeros(len(table), np.int64)
            if op.reduction.count_include_pad:
                zeros = counted_padding(op, x)
            beta = float(op.reduction.beta)
            if self.deployment is not None and self.deployment.dtype == "float32":
                beta = self._float32(beta, about)
            return Smooth((parent,), node.shape, about, x, table, zeros, beta)
        assert isinstance(op.reduction, Max)
        zero = np.zeros(len(table), bool)
        before = self.steps[parent]
        if isinstance(before, Maximum) and _is_relu(before):  # one max over the cells and 0
            parent, zero = before.parents[0], np.ones(len(table), bool)
        return Maximum((parent,), node.shape, about, x, table, zero)

    def _float32(self, beta: float, about: str) -> float:
        if float(np.float32(beta)) != beta:
            raise ValueError(f"{about}: beta={beta!r} is no float32 number; round it first")
        return beta

    def rule_relu(self, number: int, node: Any) -> Step:
        parent, shape = self.at[node.parents[0]], node.shape
        before, about = self.steps[parent], self._about(number)
        if isinstance(before, Maximum):
            zero = np.ones(len(before.table), bool)
            return Maximum(before.parents, shape, about, before.x, before.table, zero)
        table = np.arange(math.prod(shape))[:, None]
        return Maximum((parent,), shape, about, shape, table, np.ones(len(table), bool))

    def rule_tanh(self, number: int, node: Any) -> Step:
        return Curve(
            (self.at[node.parents[0]],),
            node.shape,
            self._about(number),
            "tanh",
            np.tanh,
            lambda x: 1 - np.tanh(x) ** 2,
        )

    def rule_sigmoid(self, number: int, node: Any) -> Step:
        from lunette.tape.functions import sigmoid

        return Curve(
            (self.at[node.parents[0]],),
            node.shape,
            self._about(number),
            "sigmoid",
            sigmoid,
            lambda x: sigmoid(x) * sigmoid(-x),
        )

    def rule_sign(self, number: int, node: Any) -> Step:
        about = self._about(number)
        if self.deployment is not None and self.deployment.flush_subnormals:
            raise ValueError(f"{about}: the sign of a number that may be flushed is not known")
        return Jump((self.at[node.parents[0]],), node.shape, about)

    def rule_softmax(self, number: int, node: Any) -> Step:
        about = self._about(number)
        if node.shape[-1] > MAX_CLASSES:
            raise ValueError(f"{about}: {node.shape[-1]} classes; expected at most {MAX_CLASSES}")
        return Softmax((self.at[node.parents[0]],), node.shape, about)

    def rule_maximum(self, number: int, node: Any) -> Step:
        """Of two operands laid end to end, each window is one cell of either."""
        _, constants = self._sides(node)
        same = constants == (1,) and self._shape(node.parents[0]) == tuple(node.shape)
        if same and not self._constant(node.parents[1], "operand 1", number).any():
            return self.rule_relu(number, node)
        parent = self._laid_end_to_end(number, node)
        places = [np.arange(a, a + math.prod(s)).reshape(s) for a, s in self._extents(node)]
        table = np.stack([np.broadcast_to(p, node.shape).reshape(-1) for p in places], axis=1)
        x = self.steps[parent].shape
        zero = np.zeros(len(table), bool)
        return Maximum((parent,), node.shape, self._about(number), x, table, zero)

    # -- element by element --

    def rule_add(self, number: int, node: Any) -> Step:
        return self._sum(number, node, 1.0)

    def rule_sub(self, number: int, node: Any) -> Step:
        return self._sum(number, node, -1.0)

    def _sum(self, number: int, node: Any, sign: float) -> Step:
        about, shapes = self._about(number), [self._shape(p) for p in node.parents]
        steps, constants = self._sides(node)
        if not constants:
            return affine.Joined(steps, node.shape, about, (shapes[0], shapes[1]), sign)
        place = constants[0]
        shift = self._shift(node.parents[place], f"operand {place}", number)
        scale, shift = (1.0, sign * shift) if place == 1 else (sign, shift)
        return affine.Scaled(steps, node.shape, about, shapes[1 - place], scale, shift)

    def _shift(self, number: int, role: str, reader: int) -> Array:
        """A constant that is added, or a product of two: exact in float64 where they are float32.

        Two roundings are charged to an addition, and it has one; the other is that of the product.
        """
        node = self.tape._nodes[number]
        narrow = all(self.tape._nodes[p].value.dtype == np.float32 for p in node.parents)
        if node.op != "mul" or not narrow:
            return self._constant(number, role, reader)
        first, second = (self._constant(p, role, reader) for p in node.parents)
        return first * second

    def rule_mul(self, number: int, node: Any) -> Step:
        return self._product(number, node)

    def rule_div(self, number: int, node: Any) -> Step:
        if node.parents[1] in self.at:
            raise ValueError(f"{self._about(number)}: no bounds of a division by a number in a box")
        return self._product(number, node)

    def _product(self, number: int, node: Any) -> Step:
        steps, constants = self._sides(node)
        if not constants:
            raise ValueError(
                f"{self._about(number)}: no bounds of a product of two numbers in boxes are known; "
                "one of them must be a constant"
            )
        place = constants[0]
        factor = self._constant(node.parents[place], f"operand {place}", number)
        x, about = self._shape(node.parents[1 - place]), self._about(number)
        if node.op != "div":
            return affine.Scaled(steps, node.shape, about, x, factor)
        if (np.abs(factor) < 1 / LARGEST).any():
            raise ValueError(f"{about}: operand 1 holds 0 or a number below 2**-400")
        return affine.Scaled(steps, node.shape, about, x, 1 / factor, divisor=factor)

    def rule_neg(self, number: int, node: Any) -> Step:
        steps, _ = self._sides(node)
        return affine.Scaled(steps, node.shape, self._about(number), node.shape, -1.0)

    # -- matrices and sums --

    def rule_linear(self, number: int, node: Any) -> Step:
        parent = self._only_first(number, node)
        weight = self._constant(node.parents[1], "weight", number)
        bias = None
        if len(node.parents) > 2:
            bias = self._constant(node.parents[2], "bias", number)
        return affine.Linear((parent,), node.shape, self._about(number), weight, bias)

    def rule_matmul(self, number: int, node: Any) -> Step:
        steps, constants = self._sides(node)
        if not constants:
            raise ValueError(
                f"{self._about(number)}: no bounds of a product of two matrices in boxes are known"
            )
        place = constants[0]
        matrix = self._constant(node.parents[place], f"operand {place}", number)
        x = self._shape(node.parents[1 - place])
        return affine.Matrix(steps, node.shape, self._about(number), matrix, x, left=place == 0)

    def rule_sum(self, number: int, node: Any) -> Step:
        return self._total(number, node, divide=False)

    def rule_mean(self, number: int, node: Any) -> Step:
        return self._total(number, node, divide=True)

    def _total(self, number: int, node: Any, divide: bool) -> Step:
        x, axes = self._shape(node.parents[0]), tuple(node.options["axis"])
        count = (math.prod(x[i] for i in axes) or 1) if divide else 1
        steps, _ = self._sides(node)
        return affine.Summed(steps, node.shape, self._about(number), x, axes, count)

    # -- the same numbers elsewhere --

    def rule_reshape(self, number: int, node: Any) -> Step:
        return self._moved(number, node, lambda x: x.reshape(node.shape))

    def rule_transpose(self, number: int, node: Any) -> Step:
        return self._moved(number, node, lambda x: x.transpose(node.options["axes"]))

    def _moved(self, number: int, node: Any, move: Callable[[Array], Array]) -> Step:
        x = self._shape(node.parents[0])
        index = move(np.arange(math.prod(x)).reshape(x)).reshape(-1)
        steps, _ = self._sides(node)
        return affine.Moved(steps, node.shape, self._about(number), [x], index)

    def rule_take(self, number: int, node: Any) -> Step:
        index = np.asarray(node.options["index"])
        return self._moved(number, node, lambda x: x.reshape(-1)[index])

    def rule_concatenate(self, number: int, node: Any) -> Step:
        places = [np.arange(a, a + math.prod(s)).reshape(s) for a, s in self._extents(node)]
        index = np.concatenate(places, axis=node.options["axis"]).reshape(-1)
        return self._joined(number, node, node.shape, index)

    def _extents(self, node: Any) -> list[tuple[int, Shape]]:
        """Where each operand begins when all are laid end to end, and its shape."""
        shapes = [self._shape(p) for p in node.parents]
        begins = np.cumsum([0, *map(math.prod, shapes)])
        return [(int(a), s) for a, s in zip(begins, shapes, strict=False)]

    def _laid_end_to_end(self, number: int, node: Any) -> int:
        count = sum(math.prod(s) for _, s in self._extents(node))
        self.steps.append(self._joined(number, node, (count,), np.arange(count)))
        return len(self.steps) - 1

    def _joined(self, number: int, node: Any, shape: Shape, index: Array) -> Step:
        """The operands' cells at an index; those of constants are constants of the step."""
        about, (steps, constants) = self._about(number), self._sides(node)
        extents = self._extents(node)
        if not constants:
            return affine.Moved(steps, shape, about, [s for _, s in extents], index)
        local = np.full(sum(math.prod(s) for _, s in extents), -1)
        fixed = np.zeros(len(local))
        count = 0
        for place, (a, s) in enumerate(extents):
            n = math.prod(s)
            if place in constants:
                value = self._constant(node.parents[place], f"operand {place}", number)
                fixed[a : a + n] = value.reshape(-1)
            else:
                local[a : a + n] = np.arange(count, count + n)
                count += n
        shapes = [s for place, (_, s) in enumerate(extents) if place not in constants]
        return affine.Filled(steps, shape, about, shapes, local[index], fixed[index].reshape(shape))


SERVED = sorted(name.removeprefix("rule_") for name in vars(_Reader) if name.startswith("rule_"))
"""The rules of a tape that have bounds."""


def _is_relu(step: Maximum) -> bool:
    """Whether a max is that of each cell and 0."""
    return step.table.shape[1] == 1 and bool(step.zero.all()) and step.x == step.shape
