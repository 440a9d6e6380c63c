"""Properties of networks from VNN-LIB: boxes of inputs, and the outputs that must not occur."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import Any

from lunette.onnx.errors import ReadError
from lunette.onnx.files import limit_of, read_bytes
from lunette.onnx.vnnlib import Atom, Form, Linear, Variables, forms, formula, unreadable

__all__ = ["Case", "Constraint", "Property", "load_property", "loads_property"]

MAX_BYTES = 2**28
MAX_TERMS = 200_000
"""Conjunctions that the disjunctions of a property may multiply to."""

MAX_VARIABLES = 10_000_000
NAMED = re.compile(r"([XY])_(0|[1-9]\d{0,8})", re.ASCII)


@dataclass(frozen=True)
class Constraint:
    """`Σ coefficients[j] · Y_j ≤ bound`, in exact numbers.

    Parameters
    ----------
    coefficients : tuple of (int, Fraction)
        Which output, times what.
    bound : Fraction
        What the sum does not pass.

    Examples
    --------
    >>> from fractions import Fraction
    >>> import lunette as ln
    >>> ln.onnx.Constraint(((0, Fraction(1)), (1, Fraction(-1))), Fraction(0)).bound
    Fraction(0, 1)
    """

    coefficients: tuple[tuple[int, Fraction], ...]
    bound: Fraction

    def holds(self, outputs: Sequence[Any]) -> bool:
        """Whether these outputs satisfy it; floats are taken as the exact numbers they are."""
        total = sum((c * Fraction(outputs[j]) for j, c in self.coefficients), Fraction(0))
        return total <= self.bound


@dataclass(frozen=True)
class Case:
    """A box of inputs, and the outputs that must not occur there: an "or" of "and"s.

    Parameters
    ----------
    lower : tuple of Fraction
        The lower end of every input.
    upper : tuple of Fraction
        The upper end of every input.
    unsafe : tuple of tuple of Constraint
        The outputs that must not occur.

    Examples
    --------
    >>> from fractions import Fraction
    >>> import lunette as ln
    >>> safe = ln.onnx.Constraint(((0, Fraction(1)),), Fraction(0))
    >>> ln.onnx.Case((Fraction(0),), (Fraction(1),), ((safe,),)).upper
    (Fraction(1, 1),)
    """

    lower: tuple[Fraction, ...]
    upper: tuple[Fraction, ...]
    unsafe: tuple[tuple[Constraint, ...], ...]

    def holds(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> bool:
        """Whether this input, with these outputs of the network, is a counterexample."""
        inside = all(
            lo <= Fraction(x) <= hi
            for lo, x, hi in zip(self.lower, inputs, self.upper, strict=True)
        )
        return inside and any(all(c.holds(outputs) for c in every) for every in self.unsafe)


@dataclass(frozen=True)
class Property:
    """The cases of a file. It holds where no case has a counterexample.

    Parameters
    ----------
    inputs : int
        How many numbers go in.
    outputs : int
        How many come out.
    cases : tuple of Case
        What is asked.

    Examples
    --------
    >>> import lunette as ln
    >>> text = '''
    ... (declare-const X_0 Real)
    ... (declare-const Y_0 Real)
    ... (assert (>= X_0 0.0))
    ... (assert (<= X_0 1.0))
    ... (assert (<= Y_0 -1.0))
    ... '''
    >>> prop = ln.onnx.loads_property(text)
    >>> prop.inputs, prop.outputs, len(prop.cases)
    (1, 1, 1)
    """

    inputs: int
    outputs: int
    cases: tuple[Case, ...]


def load_property(path: Any, *, max_bytes: int = MAX_BYTES) -> Property:
    """The property of a `.vnnlib` file, which may be gzipped.

    Parameters
    ----------
    path : path-like
        The file.
    max_bytes : int
        How long the text may be. Default: 256 MiB.

    Returns
    -------
    Property
        Its cases.

    Raises
    ------
    ReadError
        With what is not understood, and where.

    Examples
    --------
    >>> import lunette as ln
    >>> with open("zero.vnnlib", "w") as file:
    ...     _ = file.write("(declare-const X_0 Real)(declare-const Y_0 Real)"
    ...                    "(assert (<= X_0 1.0))(assert (>= X_0 0.0))(assert (<= Y_0 -1.0))")
    >>> ln.onnx.load_property("zero.vnnlib").cases[0].upper
    (Fraction(1, 1),)
    """
    data = read_bytes(path, limit_of(max_bytes))
    try:
        return loads_property(data.decode())
    except UnicodeDecodeError:
        raise ReadError(f"{path}: not a text in UTF-8") from None
    except ReadError as error:
        raise ReadError(f"{path}: {error}") from None


def loads_property(text: str) -> Property:
    """The property of a text in VNN-LIB.

    Parameters
    ----------
    text : str
        What stands in the file.

    Returns
    -------
    Property
        Its cases.

    Raises
    ------
    ReadError
        With what is not understood, and where.

    Examples
    --------
    >>> import lunette as ln
    >>> prop = ln.onnx.loads_property("(declare-const X_0 Real)(declare-const Y_0 Real)"
    ...     "(assert (<= X_0 1.0))(assert (>= X_0 0.0))(assert (<= Y_0 -1.0))")
    >>> prop.cases[0].lower
    (Fraction(0, 1),)
    """
    variables = Variables()
    always: list[Linear] = []
    either: list[list[list[Linear]]] = []
    line = 1
    for form in forms(text):
        line = form.line
        head = form.items[0].text if form.items and isinstance(form.items[0], Atom) else ""
        if head == "declare-const":
            _declare(form, variables)
        elif head == "declare-network":
            _declare_network(form, variables)
        elif head == "vnnlib-version":
            if len(form.items) != 2 or getattr(form.items[1], "text", "") not in ("<1.0>", "<2.0>"):
                raise unreadable(form.line, "expected (vnnlib-version <1.0>) or <2.0>")
        elif head == "assert":
            if len(form.items) != 2:
                raise unreadable(form.line, "assert takes one formula")
            terms = _normal(formula(form.items[1], variables), form.line)
            if len(terms) == 1:
                always += terms[0]
            else:
                either.append(terms)
        else:
            raise unreadable(
                form.line, f"{head[:40]!r} is not known; expected declare-const or assert"
            )
    inputs, outputs = _counts(variables, line)
    return Property(inputs, outputs, _cases(inputs, always, either, line))


def _declare(form: Form, variables: Variables) -> None:
    words = [item.text for item in form.items if isinstance(item, Atom)]
    if len(words) != 3 or len(form.items) != 3:
        raise unreadable(form.line, "expected (declare-const X_0 Real)")
    match = NAMED.fullmatch(words[1])
    if match is None:
        raise unreadable(
            form.line, f"{words[1][:40]!r}: expected X_i for an input, Y_j for an output"
        )
    if words[2] != "Real":
        raise unreadable(form.line, f"{words[1]} has type {words[2][:40]!r}: expected Real")
    if words[1] in variables.places:
        raise unreadable(form.line, f"{words[1]} is declared twice")
    variables.places[words[1]] = match[1], int(match[2])
    variables.counts[match[1]] += 1


def _declare_network(form: Form, variables: Variables) -> None:
    """Version 2: one network with one input and one output, each an array."""
    if variables.arrays:
        raise unreadable(form.line, "a second network: not read here")
    if len(form.items) != 4 or not isinstance(form.items[1], Atom):
        raise unreadable(form.line, "expected a name, one declare-input and one declare-output")
    for item, kind, letter in zip(
        form.items[2:], ("declare-input", "declare-output"), "XY", strict=True
    ):
        words = (
            [a.text for a in item.items if isinstance(a, Atom)] if isinstance(item, Form) else []
        )
        if len(words) != 4 or words[0] != kind:
            raise unreadable(item.line, f"expected ({kind} name type [sizes])")
        if words[2] not in ("Real", "real", "float32", "float64"):
            raise unreadable(item.line, f"{words[1]} has type {words[2][:40]!r}: expected Real")
        if not re.fullmatch(r"\[\s*(\d{1,9}(\s*,\s*\d{1,9})*)?\s*\]", words[3], re.ASCII):
            raise unreadable(item.line, f"{words[3][:40]!r}: expected sizes such as [1,5]")
        shape = tuple(int(n) for n in re.findall(r"\d+", words[3]))
        if words[1] in variables.arrays or not 0 < math.prod(shape) <= MAX_VARIABLES:
            raise unreadable(
                item.line, f"{words[1]} of shape {shape} is declared twice, or too large"
            )
        variables.arrays[words[1]] = letter, shape
        variables.counts[letter] = math.prod(shape)


def _counts(variables: Variables, line: int) -> tuple[int, int]:
    if variables.arrays and variables.places:
        raise unreadable(line, "declare-network and declare-const in one file")
    for letter, count in variables.counts.items():
        if count == 0:
            kind = "input" if letter == "X" else "output"
            raise unreadable(line, f"no {kind} is declared: expected {letter}_0, …")
        for i in range(count if variables.places else 0):
            if f"{letter}_{i}" not in variables.places:
                raise unreadable(line, f"{letter}_{i} is not declared, but {count} others are")
    return variables.counts["X"], variables.counts["Y"]


def _normal(tree: Any, line: int) -> list[list[Linear]]:
    """An `or` of `and`s of comparisons."""
    if isinstance(tree, Linear):
        return [[tree]]
    kind, parts = tree
    normals = [_normal(part, line) for part in parts]
    if kind == "or":
        terms = [term for normal in normals for term in normal]
    else:
        _check_terms(math.prod(map(len, normals)), line)
        terms = [[c for term in choice for c in term] for choice in product(*normals)]
    _check_terms(sum(map(len, terms)), line)
    return terms


def _check_terms(count: int, line: int) -> None:
    if count > MAX_TERMS:
        raise unreadable(
            line, f"the formula has {count} parts when multiplied out; at most {MAX_TERMS}"
        )


Box = tuple[dict[int, Fraction], dict[int, Fraction]]


def _cases(
    inputs: int, always: list[Linear], either: list[list[list[Linear]]], line: int
) -> tuple[Case, ...]:
    box: Box = ({}, {})
    shared = _split(always, box)
    _check_terms(math.prod(map(len, either)), line)
    found: dict[Any, tuple[Box, list[tuple[Constraint, ...]]]] = {}
    empty: str | None = _emptiness(*box)
    for choice in product(*either):
        own: Box = ({}, {})
        constraints = _split([c for term in choice for c in term], own)
        lower = {i: max(v, box[0].get(i, v)) for i, v in own[0].items()}
        upper = {i: min(v, box[1].get(i, v)) for i, v in own[1].items()}
        problem = _emptiness(box[0] | lower, box[1] | upper) if own != ({}, {}) else empty
        if problem is not None:  # contradictory: no input is meant
            empty = problem
            continue
        key = tuple(sorted(lower.items())), tuple(sorted(upper.items()))
        entry = found.setdefault(key, ((lower, upper), []))
        entry[1].append((*shared, *constraints))
    if not found:
        raise unreadable(line, f"no input satisfies the assertions ({empty})")
    _check_size(len(found), inputs, line)
    cases = []
    for (lower, upper), unsafe in found.values():
        lows, highs = box[0] | lower, box[1] | upper
        for ends, what in ((lows, "lower"), (highs, "upper")):
            missing = next((i for i in range(inputs) if i not in ends), None)
            if missing is not None:
                raise unreadable(line, f"input {missing} (X_{missing}) has no {what} bound")
        if any(not every for every in unsafe):
            raise unreadable(line, "nothing is asserted of the outputs")
        order = range(inputs)
        cases.append(
            Case(tuple(lows[i] for i in order), tuple(highs[i] for i in order), tuple(unsafe))
        )
    return tuple(cases)


def _check_size(cases: int, inputs: int, line: int) -> None:
    if cases * inputs > 2**26:
        raise unreadable(line, f"{cases} boxes of {inputs} inputs: at most {2**26} sides are read")


def _emptiness(lower: dict[int, Fraction], upper: dict[int, Fraction]) -> str | None:
    for i, low in lower.items():
        if i in upper and upper[i] < low:
            return f"X_{i} would be at least {float(low):g} and at most {float(upper[i]):g}"
    return None


def _split(comparisons: list[Linear], box: Box) -> list[Constraint]:
    """Comparisons of one input narrow the box; those of outputs are returned."""
    constraints = []
    for terms, constant, line in comparisons:
        letters = {letter for letter, _ in terms}
        if not terms:
            raise unreadable(line, "a comparison without variables")
        if letters == {"Y"}:
            ordered = tuple(sorted((j, c) for (_, j), c in terms.items()))
            constraints.append(Constraint(ordered, -constant))
            continue
        if letters != {"X"} or len(terms) > 1:
            raise unreadable(
                line, "a comparison of several inputs, or of inputs with outputs: not read here"
            )
        ((_, i), factor), *_ = terms.items()
        end = -constant / factor
        if factor > 0:
            box[1][i] = min(end, box[1].get(i, end))
        else:
            box[0][i] = max(end, box[0].get(i, end))
    return constraints
