"""The language of VNN-LIB: its words, its forms, and linear comparisons of exact numbers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction
from typing import Any, NamedTuple

from lunette.onnx.errors import ReadError

__all__ = ["Atom", "Form", "Linear", "Variables", "forms", "formula", "unreadable"]

MAX_DEPTH = 100
"""Parentheses within parentheses."""

MAX_DIGITS = 400
"""Characters of one number, and the largest power of ten in it."""

WORDS = re.compile(r";[^\n]*|\n|[ \t\r\f\v]+|\(|\)|[^\s();\[\]]+(?:\[[^\]\n]*\])?|\[[^\]\n]*\]|.")
NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE]([+-]?\d+))?", re.ASCII)
INDEXED = re.compile(r"([A-Za-z_][A-Za-z_0-9]*)\[\s*(\d+(?:\s*,\s*\d+)*)\s*\]", re.ASCII)


class Atom(NamedTuple):
    """A word, and the line it stands on."""

    text: str
    line: int


class Form(NamedTuple):
    """What stands between parentheses, and the line of the first."""

    items: tuple[Any, ...]
    line: int


def unreadable(line: int, text: str) -> ReadError:
    """An error that names its line."""
    return ReadError(f"line {line}: {text}")


def forms(text: str) -> Iterator[Form]:
    """The forms of the outermost level, one after another; no recursion."""
    stack: list[tuple[list[Any], int]] = []
    line = 1
    for match in WORDS.finditer(text):
        word = match[0]
        first = word[0]
        if first == "\n":
            line += 1
        elif first in " \t\r\f\v;":
            continue
        elif first == "(":
            if len(stack) >= MAX_DEPTH:
                raise unreadable(line, f"more than {MAX_DEPTH} parentheses within each other")
            stack.append(([], line))
        elif first == ")":
            if not stack:
                raise unreadable(line, "a parenthesis is closed that was never opened")
            items, start = stack.pop()
            form = Form(tuple(items), start)
            if stack:
                stack[-1][0].append(form)
            else:
                yield form
        elif not stack:
            raise unreadable(line, f"{_short(word)} stands outside of parentheses")
        else:
            stack[-1][0].append(Atom(word, line))
    if stack:
        raise unreadable(stack[-1][1], "a parenthesis is opened that is never closed")


class Variables:
    """The names of inputs and outputs; each is a letter, X or Y, and its place."""

    def __init__(self) -> None:
        self.places: dict[str, tuple[str, int]] = {}
        self.arrays: dict[str, tuple[str, tuple[int, ...]]] = {}
        self.counts = {"X": 0, "Y": 0}

    def find(self, atom: Atom) -> tuple[str, int]:
        """The letter and place of a name."""
        if atom.text in self.places:
            return self.places[atom.text]
        match = INDEXED.fullmatch(atom.text)
        if match and match[1] in self.arrays:
            letter, shape = self.arrays[match[1]]
            index = [int(n) if len(n) < 19 else -1 for n in re.findall(r"\d+", match[2])]
            if len(index) != len(shape) or any(
                not 0 <= i < n for i, n in zip(index, shape, strict=False)
            ):
                raise unreadable(atom.line, f"{_short(atom.text)} is not in {match[1]} of {shape}")
            place = 0
            for i, n in zip(index, shape, strict=True):
                place = place * n + i
            return letter, place
        raise unreadable(atom.line, f"{_short(atom.text)} is neither a number nor declared")


class Linear(NamedTuple):
    """`Σ c·v + constant`, by variable; as a comparison, that this is at most 0."""

    terms: dict[tuple[str, int], Fraction]
    constant: Fraction
    line: int


def formula(item: Any, variables: Variables) -> Any:
    """`("and" | "or", parts)`, or a comparison."""
    if isinstance(item, Atom) or not item.items or not isinstance(item.items[0], Atom):
        line = item.line
        raise unreadable(line, "expected a comparison, (and …) or (or …)")
    head, *rest = item.items
    if head.text in ("and", "or"):
        if not rest:
            raise unreadable(item.line, f"({head.text}) of nothing")
        return head.text, [formula(part, variables) for part in rest]
    if head.text in ("<=", ">=", "=", "=="):
        if len(rest) != 2:
            raise unreadable(item.line, f"{head.text} compares two sides; here are {len(rest)}")
        a, b = (_linear(side, variables) for side in rest)
        below, above = _combined(a, b, -1, item.line), _combined(b, a, -1, item.line)
        if head.text == "<=":
            return below
        return above if head.text == ">=" else ("and", [below, above])
    if head.text in ("<", ">"):
        raise unreadable(item.line, f"{head.text} is strict: not read here; write {head.text}=")
    raise unreadable(item.line, f"{_short(head.text)} is not known; expected and, or, <=, >=, =")


def _linear(item: Any, variables: Variables) -> Linear:
    if isinstance(item, Atom):
        number = _number(item)
        if number is not None:
            return Linear({}, number, item.line)
        return Linear({variables.find(item): Fraction(1)}, Fraction(0), item.line)
    if len(item.items) < 2 or not isinstance(item.items[0], Atom):
        raise unreadable(item.line, "expected a number, a variable, or (+ …), (- …), (* …)")
    head, *rest = item.items
    if head.text not in ("+", "-", "*"):
        raise unreadable(item.line, f"{_short(head.text)} is not known; expected +, - or *")
    first, *others = [_linear(part, variables) for part in rest]
    if head.text == "*":
        for other in others:
            if first.terms and other.terms:
                raise unreadable(item.line, "a product of variables is not linear")
            moving, factor = (other, first) if other.terms else (first, other)
            first = _scaled(moving, factor.constant)
        return first
    if head.text == "-" and not others:
        return _scaled(first, Fraction(-1))
    for other in others:
        first = _combined(first, other, 1 if head.text == "+" else -1, item.line)
    return first


def _scaled(x: Linear, factor: Fraction) -> Linear:
    return Linear({v: c * factor for v, c in x.terms.items()}, x.constant * factor, x.line)


def _combined(a: Linear, b: Linear, sign: int, line: int) -> Linear:
    terms = dict(a.terms)
    for v, c in b.terms.items():
        terms[v] = terms.get(v, Fraction(0)) + sign * c
    return Linear({v: c for v, c in terms.items() if c}, a.constant + sign * b.constant, line)


def _number(atom: Atom) -> Fraction | None:
    """An exact number; None where the word is none."""
    text = atom.text
    if len(text) > MAX_DIGITS:
        raise unreadable(
            atom.line, f"a word of {len(text)} characters; at most {MAX_DIGITS} are read"
        )
    match = NUMBER.fullmatch(text)
    if match is None:
        return None
    if match[1] is not None and abs(int(match[1])) > MAX_DIGITS:
        raise unreadable(atom.line, f"{text}: a power of ten past {MAX_DIGITS} is not read")
    return Fraction(text)


def _short(word: str) -> str:
    return repr(word if len(word) <= 40 else word[:37] + "...")
