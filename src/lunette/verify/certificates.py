"""Certificates of verified properties: a tree of boxes, and bounds that refute each leaf of it."""

from __future__ import annotations

import hashlib
from fractions import Fraction
from typing import Any

import numpy as np

from lunette.bounds import Box, Deployment
from lunette.bounds.certificate import certificate as bounds_certificate
from lunette.bounds.certificate import dyadic, least_values
from lunette.onnx import Case, Network, Property
from lunette.verify.engine import Part, Verdict
from lunette.verify.problems import Array, Problem

__all__ = ["FORMAT", "case_record", "certificate", "digest", "network_part", "output_cells"]

FORMAT = "lunette-verify-1"
MAX_LEAVES = 4096
"""Boxes of one certificate: each carries the network."""


def certificate(
    net: Network, prop: Property, verdict: Verdict, network_data: bytes, property_data: bytes
) -> dict[str, Any]:
    """What `lunette recheck` replays; ready for `json.dump`. ValueError where there can be none.

    Parameters
    ----------
    net : Network
        The network.
    prop : Property
        The property.
    verdict : Verdict
        What `verify` found.
    network_data : bytes
        The file of the network.
    property_data : bytes
        The file of the property.

    Returns
    -------
    dict
        The certificate.

    Raises
    ------
    ValueError
        Where there can be none, and why.

    Examples
    --------
    >>> import json
    >>> import lunette as ln
    >>> from lunette.verify import certificate, recheck, verify
    >>> from onnx import TensorProto, helper
    >>> port = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1]) for n in "xy"]
    >>> graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", port[:1], port[1:])
    >>> model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    >>> data = model.SerializeToString()
    >>> text = ("(declare-const X_0 Real)(declare-const Y_0 Real)"
    ...     "(assert (<= X_0 1.0))(assert (>= X_0 0.0))(assert (<= Y_0 -1.0))")
    >>> net, prop = ln.onnx.loads(data), ln.onnx.loads_property(text)
    >>> proof = certificate(net, prop, verify(net, prop), data, text.encode())
    >>> "of this network" in recheck(json.dumps(proof), net, prop)
    True
    """
    if verdict.result != "unsat":
        raise ValueError(
            f"the result is {verdict.result}: only a verified property has a certificate"
        )
    if verdict.boxes > MAX_LEAVES:
        raise ValueError(
            f"the proof has {verdict.boxes} boxes; a certificate has at most {MAX_LEAVES}"
        )
    cases = []
    for case, root in zip(prop.cases, verdict.proofs, strict=True):
        writer = _Writer(Problem(net, case))
        record = {**case_record(case), "proof": writer.node(root)}
        cases.append({**record, "outputs": [[j, c] for j, c in sorted(writer.outputs.items())]})
    return {
        "format": FORMAT,
        "network": digest(network_data),
        "property": digest(property_data),
        "cases": cases,
    }


def digest(data: bytes) -> str:
    """SHA-256 of a file's bytes, unpacked."""
    return hashlib.sha256(data).hexdigest()


def case_record(case: Case) -> dict[str, Any]:
    """A case in exact numbers."""
    return {
        "lower": [str(v) for v in case.lower],
        "upper": [str(v) for v in case.upper],
        "unsafe": [
            [
                {
                    "coefficients": [[j, str(c)] for j, c in one.coefficients],
                    "bound": str(one.bound),
                }
                for one in every
            ]
            for every in case.unsafe
        ],
    }


def network_part(document: dict[str, Any]) -> list[dict[str, Any]]:
    """The steps of a certificate of bounds without its box and what was found on it."""
    boxed = ("relax", "lo", "hi")
    return [
        {name: value for name, value in step.items() if name not in boxed}
        for step in document["steps"]
    ]


def output_cells(rows: Array, document: dict[str, Any]) -> dict[int, int]:
    """Which cell of a certificate of bounds is which output, of those that its rows read."""
    found: dict[int, int] = {}
    for row, claim in zip(rows, document["rows"], strict=True):
        found.update(zip(np.flatnonzero(row.reshape(-1)).tolist(), claim["cells"], strict=True))
    return found


class _Writer:
    """The tree of one case; `outputs` says which cell of its leaves is which output."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.recording = problem.net.record(problem.center().astype(problem.net.dtype))
        self.deployment = Deployment(np.dtype(problem.net.dtype).name)
        self.outputs: dict[int, int] = {}

    def node(self, root: Part) -> dict[str, Any]:
        """The tree, children before parents; no recursion."""
        made: dict[int, dict[str, Any]] = {}
        stack = [root]
        while stack:
            part = stack[-1]
            missing = [half for half in part.halves if id(half) not in made]
            if missing:
                stack += missing
                continue
            stack.pop()
            if part.halves and part.axis is None:
                raise ValueError("the proof cuts numbers inside of the network, not inputs alone")
            if part.halves:
                halves = [made.pop(id(half)) for half in part.halves]
                made[id(part)] = {"axis": part.axis, "at": dyadic([part.at]), "halves": halves}
            else:
                made[id(part)] = {"bounds": self._leaf(part)}
        return made[id(root)]

    def _leaf(self, part: Part) -> dict[str, Any]:
        for method in ("crown", "tight"):
            for rows in self._choices(part):
                document = self._document(part, rows, method)
                least = np.full(len(self.problem.rows), -np.inf)
                least[rows] = least_values(document)
                if all(self._refuted(least)):
                    self.outputs |= output_cells(self.problem.rows[rows], document)
                    return document
        raise ValueError(
            "the numbers of a certificate are shorter than those of the proof, and do not decide"
        )

    def _refuted(self, least: Array) -> list[bool]:
        never = [
            bool(np.isfinite(v)) and Fraction(float(v)) > limit
            for v, limit in zip(least, self.problem.limits, strict=True)
        ]
        return [any(never[k] for k in every) for every in self.problem.every]

    def _choices(self, part: Part) -> list[list[int]]:
        """One row for each conjunction, that with the widest margin; then all rows."""
        everything = list(range(len(self.problem.rows)))
        from lunette.bounds import lower_bounds

        boxes = {self.recording.input: Box(part.lo, part.hi)}
        least = lower_bounds(
            self.recording.tape,
            self.recording.output,
            boxes,
            self.problem.rows,
            deployment=self.deployment,
        )
        gaps = [
            float(v) - float(limit) for v, limit in zip(least, self.problem.limits, strict=True)
        ]
        chosen = sorted({max(every, key=lambda k: gaps[k]) for every in self.problem.every})
        return [chosen] if chosen == everything else [chosen, everything]

    def _document(self, part: Part, rows: list[int], method: str) -> dict[str, Any]:
        return bounds_certificate(
            self.recording.tape,
            self.recording.output,
            {self.recording.input: Box(part.lo, part.hi)},
            self.problem.rows[rows],
            method=method,
            deployment=self.deployment,
        )
