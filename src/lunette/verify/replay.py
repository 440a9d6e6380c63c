"""Replays a certificate of a verified property: boxes that cover, rows that refute, bounds that hold.

Nothing that the producer computed is believed. The bounds of each leaf go to `lunette.bounds.check`.
"""

from __future__ import annotations

import json
import re
from fractions import Fraction
from typing import Any

import numpy as np

from lunette.bounds import Box, Deployment
from lunette.bounds import check as checker
from lunette.bounds.certificate import certificate as bounds_certificate
from lunette.onnx import Network, Property
from lunette.verify.certificates import FORMAT, case_record, network_part, output_cells
from lunette.verify.problems import Problem

__all__ = ["Rejected", "recheck"]

NUMBER = re.compile(r"-?\d{1,1000}(/[1-9]\d{0,999})?", re.ASCII)


class Rejected(ValueError):
    """The certificate does not prove what it says.

    Examples
    --------
    >>> from lunette.verify import Rejected, recheck
    >>> try:
    ...     recheck("{}")
    ... except (Rejected, ValueError):
    ...     print("no proof")
    no proof
    """


def recheck(
    text: str,
    net: Network | None = None,
    prop: Property | None = None,
) -> str:
    """What was proved, in a line. With the network and the property, that it is of these.

    Parameters
    ----------
    text : str
        A certificate, as JSON.
    net : Network, optional
        The network that it must be of.
    prop : Property, optional
        The property that it must be of.

    Returns
    -------
    str
        A line.

    Raises
    ------
    Rejected
        Where it does not prove what it says.

    Examples
    --------
    >>> from lunette.verify import Rejected, recheck
    >>> try:
    ...     recheck("{}")
    ... except (Rejected, ValueError):
    ...     print("no proof")
    no proof
    """
    document = _parsed(text)
    cases = document.get("cases")
    if document.get("format") != FORMAT or not isinstance(cases, list) or not cases:
        raise Rejected(f"field 'format' or 'cases': expected a certificate {FORMAT}")
    if prop is not None:
        told = ("lower", "upper", "unsafe")
        theirs = [{k: case.get(k) for k in told} for case in map(_record, cases)]
        if theirs != [case_record(case) for case in prop.cases]:
            raise Rejected("field 'cases': they are not those of the property")
    networks: list[Any] = []
    leaves = 0
    for number, case in enumerate(cases):
        where = f"case {number}"
        for leaf in _leaves(_record(case), where):
            leaves += 1
            outputs = _outputs(case.get("outputs"), where)
            _check_leaf(leaf, _unsafe(case, where), outputs, f"{where}, leaf {leaves}")
            networks.append((network_part(leaf.bounds), leaf.bounds.get("arithmetic")))
            if networks[-1] != networks[0]:
                raise Rejected(
                    f"{where}, leaf {leaves}: another network than that of the first leaf"
                )
            del networks[1:]
    if net is not None and prop is not None:
        _check_network(net, prop, cases, networks[0])
    of = "of this network" if net is not None and prop is not None else "of the network in it"
    return f"{len(cases)} cases, {leaves} boxes, {of}"


class _Leaf:
    """A box in exact numbers, and the bounds that refute it."""

    def __init__(self, lower: list[Fraction], upper: list[Fraction], bounds: Any) -> None:
        self.lower, self.upper, self.bounds = lower, upper, bounds


def _leaves(case: Any, where: str) -> Any:
    """The leaves of a tree, each with the box that its cuts leave."""
    lower, upper = (
        _numbers(case.get(side), f"{where}: field {side!r}") for side in ("lower", "upper")
    )
    if len(lower) != len(upper):
        raise Rejected(f"{where}: fields 'lower' and 'upper' have several lengths")
    stack = [(case.get("proof"), lower, upper)]
    while stack:
        node, lo, hi = stack.pop()
        node = _record(node)
        if "bounds" in node:
            yield _Leaf(lo, hi, _record(node["bounds"]))
            continue
        axis, halves = node.get("axis"), node.get("halves")
        if type(axis) is not int or not 0 <= axis < len(lo):
            raise Rejected(f"{where}: field 'axis': expected an input")
        if not isinstance(halves, list) or len(halves) != 2:
            raise Rejected(f"{where}: field 'halves': expected two")
        (at,) = _scaled(node.get("at"), 1, f"{where}: field 'at'")
        low_end, high_end = list(hi), list(lo)
        low_end[axis] = high_end[axis] = at
        stack += [(halves[0], lo, low_end), (halves[1], high_end, hi)]


def _check_leaf(leaf: _Leaf, unsafe: list[Any], outputs: dict[int, int], where: str) -> None:
    replay: Any = checker.check  # a program of its own, without types
    said: str = replay(json.dumps(leaf.bounds))
    if not said.startswith("verified"):
        raise Rejected(f"{where}: {said}")
    inputs = [step for step in leaf.bounds["steps"] if step["op"] == "input"]
    if len(inputs) != 1:
        raise Rejected(f"{where}: expected one input, found {len(inputs)}")
    lo, hi = (
        _scaled({"int": inputs[0][side], "exp": leaf.bounds["exp"]}, len(leaf.lower), where)
        for side in ("lo", "hi")
    )
    for i, (a, b) in enumerate(zip(leaf.lower, leaf.upper, strict=True)):
        if not (lo[i] <= a and b <= hi[i]) and a <= b:  # a cut outside of the box leaves nothing
            raise Rejected(f"{where}: input {i} is bounded on less than the box")
    proved = []
    for claim in leaf.bounds["rows"]:
        row = zip(claim["cells"], _scaled(claim["row"], len(claim["cells"]), where), strict=True)
        proved.append(({i: v for i, v in row if v}, _scaled(claim["least"], 1, where)[0]))
    unsafe = [[_by_cell(one, outputs) for one in every] for every in unsafe]
    for number, every in enumerate(unsafe):
        if not any(_refutes(row, least, *one) for one in every for row, least in proved):
            raise Rejected(f"{where}: conjunction {number} is not refuted")


def _refutes(row: Any, least: Fraction, coefficients: dict[int, Fraction], bound: Fraction) -> bool:
    """Whether a row that is never below `least` is a positive multiple of what must be below."""
    if row.keys() != coefficients.keys() or not row:
        return False
    j = next(iter(row))
    scale = row[j] / coefficients[j]
    same = all(row[k] == scale * c for k, c in coefficients.items())
    return scale > 0 and same and least > scale * bound


def _outputs(pairs: Any, where: str) -> dict[int, int]:
    """Output → cell, each once."""
    if not isinstance(pairs, list) or not all(
        isinstance(p, list) and len(p) == 2 and all(type(n) is int for n in p) for p in pairs
    ):
        raise Rejected(f"{where}: field 'outputs': expected pairs of an output and a cell")
    found = dict(pairs)
    if len(found) != len(pairs) or len(set(found.values())) != len(pairs):
        raise Rejected(f"{where}: field 'outputs': an output or a cell stands twice")
    return found


def _by_cell(one: Any, outputs: dict[int, int]) -> tuple[dict[int, Fraction], Fraction]:
    """A constraint in cells; empty, and so never refuted, where one of its outputs has no cell."""
    coefficients, bound = one
    if not coefficients.keys() <= outputs.keys():
        return {}, bound
    return {outputs[j]: c for j, c in coefficients.items()}, bound


def _check_network(net: Network, prop: Property, cases: list[Any], found: Any) -> None:
    """The steps and outputs are those of the network, as a certificate writes them."""
    for case, record in zip(prop.cases, cases, strict=True):
        problem = Problem(net, case)
        recording = net.record(problem.center().astype(net.dtype))
        if recording.decided:
            raise Rejected(f"{recording.decided[0]}: the inputs decide an integer")
        document = bounds_certificate(
            recording.tape,
            recording.output,
            {recording.input: Box(problem.lo, problem.hi)},
            problem.rows,
            method="crown",
            deployment=Deployment(np.dtype(net.dtype).name),
        )
        own = output_cells(problem.rows, document)
        if any(own.get(j) != cell for j, cell in record["outputs"]):
            raise Rejected("field 'outputs': the cells are not the network's outputs")
        written = json.loads(json.dumps(document))
        if found != (network_part(written), written["arithmetic"]):
            raise Rejected("the steps are not those of the network")


def _unsafe(case: Any, where: str) -> list[Any]:
    """The conjunctions of a case, each a list of (coefficients, bound)."""
    unsafe, found = case.get("unsafe"), []
    if not isinstance(unsafe, list) or not unsafe:
        raise Rejected(f"{where}: field 'unsafe': expected a list of conjunctions")
    for every in unsafe:
        if not isinstance(every, list):
            raise Rejected(f"{where}: field 'unsafe': expected lists")
        found.append([_constraint(_record(one), where) for one in every])
    return found


def _constraint(one: Any, where: str) -> tuple[dict[int, Fraction], Fraction]:
    pairs = one.get("coefficients")
    if not isinstance(pairs, list) or not all(
        isinstance(p, list) and len(p) == 2 and type(p[0]) is int for p in pairs
    ):
        raise Rejected(f"{where}: field 'coefficients'")
    values = _numbers([p[1] for p in pairs], f"{where}: field 'coefficients'")
    (bound,) = _numbers([one.get("bound")], f"{where}: field 'bound'")
    coefficients = {p[0]: v for p, v in zip(pairs, values, strict=True) if v}
    if len(coefficients) != len(pairs):
        raise Rejected(f"{where}: field 'coefficients': an output stands twice, or with 0")
    return coefficients, bound


def _numbers(values: Any, where: str) -> list[Fraction]:
    if not isinstance(values, list) or not all(
        isinstance(v, str) and NUMBER.fullmatch(v) for v in values
    ):
        raise Rejected(f"{where}: expected exact numbers as texts")
    return [Fraction(v) for v in values]


def _scaled(record: Any, count: int | None, where: str) -> list[Fraction]:
    """Integers times a power of two."""
    record = _record(record)
    ints, power = record.get("int"), record.get("exp")
    fits = isinstance(ints, list) and all(type(v) is int for v in ints)
    if not fits or type(power) is not int or abs(power) > 2000 or count not in (None, len(ints)):
        raise Rejected(f"{where}: expected {count} integers and one power of two")
    return [Fraction(v) * Fraction(2) ** power for v in ints]


def _record(value: Any) -> Any:
    if not isinstance(value, dict):
        raise Rejected("expected a record where there is none")
    return value


def _parsed(text: str) -> Any:
    def once(pairs: Any) -> Any:
        record = dict(pairs)
        if len(record) != len(pairs):
            raise Rejected("a field stands twice")
        return record

    def refuse(number: str) -> Any:
        raise Rejected(f"{number[:20]}: expected integers only")

    try:
        found = json.loads(text, object_pairs_hook=once, parse_float=refuse, parse_constant=refuse)
    except Rejected:
        raise
    except (ValueError, RecursionError) as error:
        raise Rejected(f"not a certificate: {str(error)[:200]}") from None
    return _record(found)
