"""Counterexamples: replayed by other arithmetic, and written as VNN-COMP writes them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from lunette.onnx import Network
from lunette.spec.scalars import MissingOperation
from lunette.verify.problems import Array, Problem

__all__ = ["Counterexample", "Runtime", "confirmed"]

EXACT_WORK = 40_000
"""Elements of a tape up to which a counterexample is replayed in exact rationals."""


@dataclass(frozen=True)
class Counterexample:
    """An input and what the network makes of it. `replays` says what others make of it.

    Keys of `replays` are `"onnxruntime"` and `"exact"`; the value says whether the output is unsafe
    there too. An exact network may differ: its floats are what is deployed.

    Parameters
    ----------
    inputs : numpy.ndarray
        A point of the property's box.
    outputs : numpy.ndarray
        What the network gives there.
    replays : dict of str to bool
        Whether others find the output unsafe too.

    Examples
    --------
    >>> import numpy as np
    >>> from lunette.verify import Counterexample
    >>> Counterexample(np.zeros(1), np.ones(1), {"exact": True}).replays
    {'exact': True}
    """

    inputs: Array
    outputs: Array
    replays: dict[str, bool]

    def text(self) -> str:
        """As VNN-COMP's results files want it: one pair for each input, then each output."""
        pairs = [f"(X_{i} {_digits(v)})" for i, v in enumerate(self.inputs.reshape(-1))]
        pairs += [f"(Y_{j} {_digits(v)})" for j, v in enumerate(self.outputs.reshape(-1))]
        return "(" + "\n".join(pairs) + ")"


def _digits(value: Any) -> str:
    """A decimal that reads back as the same float, also as float64."""
    return repr(float(value))


class Runtime:
    """onnxruntime, where it is installed: the network as it will run."""

    def __init__(self, data: bytes | None) -> None:
        self.session: Any = None
        if data is None:
            return
        try:
            import onnxruntime
        except ImportError:
            return
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 4
        try:
            self.session = onnxruntime.InferenceSession(
                data, options, providers=["CPUExecutionProvider"]
            )
        except Exception:  # it has its own limits; the counterexample stands without it
            self.session = None

    def outputs(self, x: Array) -> Array | None:
        """What it makes of an input; None where it is not there."""
        if self.session is None:
            return None
        (given,) = self.session.get_inputs()
        return np.asarray(self.session.run(None, {given.name: x})[0])


def confirmed(problem: Problem, x: Array, runtime: Runtime) -> Counterexample | None:
    """The counterexample at a point; None where onnxruntime does not find it unsafe."""
    replays: dict[str, bool] = {}
    outputs = problem.net(x)
    theirs = runtime.outputs(x)
    if theirs is not None:
        replays["onnxruntime"] = problem.violated(theirs)
        if not replays["onnxruntime"]:
            return None
        outputs = theirs
    exact = _exact(problem.net, x)
    if exact is not None:
        values = exact.reshape(-1).tolist()
        replays["exact"] = any(
            all(problem.constraints[k].holds(values) for k in every) for every in problem.every
        )
    return Counterexample(x, outputs, replays)


def _exact(net: Network, x: Array) -> Array | None:
    """The network over rationals, where it is small and has no exponentials."""
    tape = net.record(x).tape
    if sum(math.prod(node.shape) for node in tape._nodes) > EXACT_WORK:
        return None
    exact = np.empty(x.shape, object)
    for i, v in np.ndenumerate(x):
        exact[i] = Fraction(float(v))
    try:
        return np.asarray(net(exact))
    except MissingOperation:
        return None
