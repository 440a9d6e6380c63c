"""The search for a proof or a counterexample: bounds on a box, then on its halves."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from lunette.bounds import Box, Deployment, split
from lunette.bounds.attack import descents
from lunette.bounds.network import Network as Bounded
from lunette.bounds.outputs import least_of
from lunette.bounds.reading import network_of
from lunette.onnx import Network, Property
from lunette.verify.attack import FEW, STEPS, candidates, gradient
from lunette.verify.counterexamples import Counterexample, Runtime, confirmed
from lunette.verify.problems import Array, Problem, check_shapes
from lunette.verify.questions import asked

__all__ = ["Part", "Progress", "Verdict", "verify"]


FEW_INPUTS = 8
"""Inputs up to which boxes are halved; of more, numbers inside of the network are cut."""

SLOW = 2.0
"""Seconds of the first bounds from which those of parts go backward at the end alone."""

DESCENTS = 4
"""Rounds of descents, each for every constraint."""

DEPLOYED = ("float32", "float64")
"""The float types whose rounding the bounds know."""


@dataclass
class Progress:
    """Where a search stands: `open` sub-problems wait, `closed` ones are proved.

    Parameters
    ----------
    case : int
        Which case of the property.
    cases : int
        Of how many.
    open : int
        Sub-problems that wait.
    closed : int
        Sub-problems that are proved.

    Examples
    --------
    >>> from lunette.verify import Progress
    >>> Progress(1, 2, 3, 4).closed
    4
    """

    case: int
    cases: int
    open: int
    closed: int


@dataclass
class Part:
    """A box of inputs: refuted by its own bounds, or cut in two along one input, at a float.

    `cuts` bound numbers inside of the network; where a part is cut by one of them, `axis` is None.
    """

    lo: Array
    hi: Array
    axis: int | None = None
    at: float = 0.0
    halves: tuple[Any, ...] = ()
    cuts: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Verdict:
    """`result` is VNN-COMP's word: unsat (verified), sat (falsified), unknown or timeout.

    Parameters
    ----------
    result : {"unsat", "sat", "unknown", "timeout"}
        The answer.
    counterexample : Counterexample, optional
        Of "sat".
    reason : str
        Of "unknown".
    boxes : int
        How many boxes were bounded.
    proofs : tuple of Part
        What a certificate is written from.

    Examples
    --------
    >>> from lunette.verify import Verdict
    >>> Verdict("timeout").counterexample is None
    True
    """

    result: str
    counterexample: Counterexample | None = None
    reason: str = ""
    boxes: int = 0
    proofs: tuple[Part, ...] = ()


def verify(
    net: Network,
    prop: Property,
    *,
    timeout: float = 60.0,
    data: bytes | None = None,
    progress: Callable[[Progress], None] | None = None,
    seed: int = 0,
) -> Verdict:
    """Whether no input of the property's boxes leads to an unsafe output, as deployed.

    The network is that of its own float type, summed in any order. `data` are the bytes of its file,
    with which onnxruntime, where installed, confirms a counterexample.

    Parameters
    ----------
    net : Network
        From `lunette.onnx.load`.
    prop : Property
        From `lunette.onnx.load_property`.
    timeout : float, default 60
        Seconds.
    data : bytes, optional
        The file of the network, for onnxruntime.
    progress : callable, optional
        Called with a `Progress` now and then.
    seed : int, default 0
        For the search of counterexamples.

    Returns
    -------
    Verdict
        With the answer, and a counterexample where it is "sat".

    Raises
    ------
    ValueError
        For a property that does not fit the network.

    Examples
    --------
    >>> import lunette as ln
    >>> from lunette.verify import verify
    >>> from onnx import TensorProto, helper
    >>> port = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1]) for n in "xy"]
    >>> graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", port[:1], port[1:])
    >>> model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    >>> prop = ln.onnx.loads_property("(declare-const X_0 Real)(declare-const Y_0 Real)"
    ...     "(assert (<= X_0 1.0))(assert (>= X_0 0.0))(assert (<= Y_0 -1.0))")
    >>> verify(ln.onnx.loads(model.SerializeToString()), prop).result
    'unsat'
    """
    if not isinstance(net, Network) or not isinstance(prop, Property):
        raise TypeError("expected a lunette.onnx.Network and a lunette.onnx.Property")
    if not timeout > 0:
        raise ValueError(f"timeout={timeout!r}: expected more than 0 seconds")
    deadline = time.monotonic() + timeout
    if np.dtype(net.dtype).name not in DEPLOYED:
        return Verdict(
            "unknown", reason=f"the network computes in {net.dtype}: no bounds are known"
        )
    check_shapes(net, prop.inputs, prop.outputs)
    runtime, boxes, unknown = Runtime(data), 0, ""
    proofs: list[Part] = []
    for number, case in enumerate(prop.cases):
        problem = Problem(net, case)

        def report(waiting: int, closed: int, number: int = number) -> None:
            if progress is not None:
                progress(Progress(number, len(prop.cases), waiting, closed))

        search = _Search(problem, runtime, deadline, report, seed)
        verdict = search.run()
        boxes += verdict.boxes
        if verdict.result in ("sat", "timeout"):
            return Verdict(verdict.result, verdict.counterexample, verdict.reason, boxes)
        if verdict.result == "unknown":
            unknown = verdict.reason
        proofs += verdict.proofs
    if unknown:
        return Verdict("unknown", None, unknown, boxes)
    return Verdict("unsat", None, "", boxes, tuple(proofs))


class _Search:
    """One case: an attack on the whole box, then bounds, halves and small attacks."""

    def __init__(
        self, problem: Problem, runtime: Runtime, deadline: float, report: Any, seed: int
    ) -> None:
        self.problem, self.runtime, self.deadline = problem, runtime, deadline
        self.report, self.seed = report, seed
        self.deployment = Deployment(np.dtype(problem.net.dtype).name)
        self.network: Bounded
        self.rows: Array
        self.limits: list[Fraction] = problem.limits
        self.first: Any = None
        self.quick = True

    def run(self) -> Verdict:
        problem = self.problem
        self.report(1, 0)
        share = min(10.0, max(0.0, (self.deadline - time.monotonic()) / 5))
        found = self._attack(problem.inner_lo, problem.inner_hi, share, 64)
        if found is not None:
            return Verdict("sat", found)
        recording = problem.net.record(problem.center().astype(problem.net.dtype))
        if recording.decided:
            why = f"{recording.decided[0]}: the inputs decide an integer"
            return Verdict("unknown", reason=why)
        root = Part(problem.lo, problem.hi)
        boxes = {recording.input: Box(root.lo, root.hi)}
        try:
            whole = network_of(recording.tape, recording.output, boxes, self.deployment)
        except (ValueError, TypeError) as error:
            return Verdict("unknown", reason=str(error))
        self.network, self.rows, self.limits = asked(whole, problem, self.deployment)
        found = self._descend()
        if found is not None:
            return Verdict("sat", found)
        return self._split(root)

    def _split(self, root: Part) -> Verdict:
        """Bounds on the whole box, then on parts of it until none is open."""
        waiting, closed = [root], 0
        while waiting:
            part = waiting.pop()
            try:
                enclosure, least = self._bounded(part)
            except TimeoutError:
                return Verdict("timeout", reason=f"{len(waiting) + 1} boxes are open", boxes=closed)
            except (ValueError, TypeError) as error:
                return Verdict("unknown", reason=str(error), boxes=closed)
            refuted = [] if least is None else self.problem.refuted(least, self.limits)
            if all(refuted):  # also where the cuts leave nothing of a part
                closed += 1
            else:
                found = self._attack(*self._inside(part), 1.0, 1)
                if found is not None:
                    return Verdict("sat", found, boxes=closed)
                if not self._cut(part, enclosure, least, refuted):
                    why = "a box is as small as floats allow, and its bounds do not decide"
                    return Verdict("unknown", reason=why, boxes=closed)
                waiting += part.halves
            self.report(len(waiting), closed)
        return Verdict("unsat", boxes=closed, proofs=(root,))

    def _bounded(self, part: Part) -> tuple[Any, Array | None]:
        """Bounds on every number of the network; None where the cuts leave no input.

        Where the first bounds took long, those of parts start from them and go backward at the end
        alone. Rows that stay open get relaxations of their own.
        """
        if time.monotonic() > self.deadline:
            raise TimeoutError
        begin = time.monotonic()
        (k,) = self.network.inputs
        enclosure = split.enclosed(
            self.network.boxed({k: (part.lo, part.hi)}),
            self.deployment,
            part.cuts,
            self.deadline,
            self.first,
            inner=self.quick,
        )
        if enclosure is None:
            return None, None
        if self.first is None:
            self.first, self.quick = enclosure, time.monotonic() - begin < SLOW
        least = least_of(enclosure, self.rows, "crown")
        if not all(self.problem.refuted(least, self.limits)):
            least = np.maximum(least, least_of(enclosure, self.rows, "tight"))
        return enclosure, least

    def _descend(self) -> Counterexample | None:
        """Descents on the network of the bounds, many points at once; a sign has a slope there."""
        (k,) = self.network.inputs
        now = time.monotonic()
        end = now + min(20.0, (self.deadline - now) / 4)
        lo, hi = self.problem.inner_lo, self.problem.inner_hi
        boxed = self.network.boxed({k: (lo.astype(np.float64), hi.astype(np.float64))})
        order = np.argsort(self.problem.margins(self.problem.net(self.problem.middle())))
        for turn in range(DESCENTS):
            for row in order:
                if time.monotonic() > end:
                    return None
                seed = self.seed + 1000 * turn + int(row)
                for value, point in descents(boxed, self.rows[row], seed=seed):
                    if value > float(self.limits[row]) or time.monotonic() > end:
                        continue
                    x = np.clip(point[k].astype(lo.dtype), lo, hi)
                    if self.problem.violated(self.problem.net(x)):
                        found = confirmed(self.problem, x, self.runtime)
                        if found is not None:
                            return found
        return None

    def _attack(self, lo: Array, hi: Array, seconds: float, descents: int) -> Counterexample | None:
        end = min(self.deadline, time.monotonic() + seconds)
        steps = STEPS if descents > 1 else FEW
        for x in candidates(self.problem, lo, hi, end, self.seed, descents, steps):
            found = confirmed(self.problem, x, self.runtime)
            if found is not None:
                return found
        return None

    def _inside(self, part: Part) -> tuple[Array, Array]:
        """The floats of the property's box in this part; at least one, near it."""
        dtype = self.problem.inner_lo.dtype
        lo = np.clip(part.lo.astype(dtype), self.problem.inner_lo, self.problem.inner_hi)
        hi = np.clip(part.hi.astype(dtype), self.problem.inner_lo, self.problem.inner_hi)
        return lo, np.maximum(lo, hi)

    def _cut(self, part: Part, enclosure: Any, least: Any, refuted: list[bool]) -> bool:
        """Cut a box in two; False where no float lies between the ends of any input.

        Of many inputs one says little: there a maximum that is open is cut, by who wins.
        """
        if (part.lo < part.hi).sum() > FEW_INPUTS:
            gaps = least - np.array([float(v) for v in self.limits])
            left = [e for e, done in zip(self.problem.every, refuted, strict=True) if not done]
            row = max(left[0], key=lambda n: gaps[n])  # what is nearest to a proof
            cuts = split.most_open(enclosure, self.rows[row])
            if cuts is not None:
                part.halves = tuple(Part(part.lo, part.hi, cuts=(*part.cuts, c)) for c in cuts)
                return True
        return self._halve(part, refuted)

    def _halve(self, part: Part, refuted: list[bool]) -> bool:
        """Halve the box along the input that matters most."""
        width = (part.hi - part.lo).reshape(-1)
        middle = (part.lo / 2 + part.hi / 2).reshape(-1)
        can = (part.lo.reshape(-1) < middle) & (middle < part.hi.reshape(-1))
        if not can.any():
            return False
        order = np.where(can, width * (self._slopes(part, refuted) + 1e-9), -1.0)
        axis = int(np.argmax(order))
        part.axis, part.at = axis, float(middle[axis])
        low_end, high_end = part.hi.copy().reshape(-1), part.lo.copy().reshape(-1)
        low_end[axis] = high_end[axis] = part.at
        part.halves = (
            Part(part.lo, low_end.reshape(part.hi.shape), cuts=part.cuts),
            Part(high_end.reshape(part.lo.shape), part.hi, cuts=part.cuts),
        )
        return True

    def _slopes(self, part: Part, refuted: list[bool]) -> Array:
        """How much the constraints that are left move with each input, about the middle."""
        left = {
            k
            for every, done in zip(self.problem.every, refuted, strict=True)
            if not done
            for k in every
        }
        row = self.problem.rows[sorted(left)].sum(axis=0)
        middle = (part.lo / 2 + part.hi / 2).astype(self.problem.net.dtype)
        found = gradient(self.problem.net.record(middle), row)
        return np.ones(part.lo.size) if found is None else np.abs(found).reshape(-1)
