"""Pooling ops as text and back: operators of torch and programs of JAX have no ops, and a saved program must name them.

The text is the op's `repr`. It is read back by a small parser that knows a few names, tuples,
numbers and words, and nothing of Python: a program from a file can name an op of Lunette's, which
checks its arguments as always, and nothing else.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import lunette.ops
from lunette.ops.pooling import Pooling
from lunette.reductions import Max, Mean, Min, Mode, RoundedMean, SmoothMax
from lunette.regions import Adaptive, Global, Sliding

__all__ = ["LONGEST", "decode", "encode"]

CONSTRUCTORS: dict[str, Any] = {
    kind.__name__: kind
    for kind in (
        lunette.ops.AdaptiveAvgPool,
        lunette.ops.AdaptiveMaxPool,
        lunette.ops.AvgPool,
        lunette.ops.GlobalAvgPool,
        lunette.ops.GlobalMaxPool,
        lunette.ops.MaxPool,
        lunette.ops.MinPool,
        lunette.ops.ModePool,
        lunette.ops.Pool,
        lunette.ops.SmoothMaxPool,
        *(Max, Mean, Min, Mode, RoundedMean, SmoothMax),
        *(Adaptive, Global, Sliding),
    )
}
"""What a text may name. A `Part` reads a slab of a longer axis, which no program has to."""

WORDS = {"None": None, "True": True, "False": False}

LONGEST = 1 << 14
"""Characters of a text. The regions of 64 axes, with numbers of 18 digits, take some 9,000."""

DEEPEST = 8
"""Parentheses in parentheses. An op needs four: its own, regions, a region, its padding."""

DIGITS = 64
"""Characters of a number. No size of an array has more than 19, and no float repr more than 25."""

TOKEN = re.compile(
    r"""[ \n]*(?:
        (?P<real>-?(?:[0-9]+\.[0-9]*(?:e[+-]?[0-9]+)?|[0-9]+e[+-]?[0-9]+)(?![0-9A-Za-z_.]))
      | (?P<integer>-?(?:0|[1-9][0-9]*)(?![0-9A-Za-z_.]))
      | (?P<name>[A-Za-z_]{1,32}(?![0-9A-Za-z_.]))
      | '(?P<word>[a-z]{0,32})'
      | (?P<mark>[(),=])
    )[ \n]*""",
    re.VERBOSE | re.ASCII,
)


def encode(op: Pooling) -> str:
    """The text that `decode` reads back."""
    return repr(op)


def decode(text: str) -> Any:
    """The pooling op that this text names; a ValueError or TypeError where it names none."""
    if len(text) > LONGEST:
        raise ValueError(f"op={_short(text)}: {len(text)} characters; expected at most {LONGEST}")
    return _decoded(text)


@lru_cache(maxsize=4096)
def _decoded(text: str) -> Any:
    op = _Reader(text).whole()
    if not isinstance(op, Pooling):
        raise ValueError(
            f"op={_short(text)}: expected the repr of a pooling op, such as 'MaxPool((2, 2))'"
        )
    if op.axes is not None:
        raise ValueError(
            f"op={_short(text)}: expected an op over the last axes; programs move the others there"
        )
    return op


class _Reader:
    """Reads a text from left to right, one token after the other."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0
        self.kind, self.token = "", ""
        self._next()

    def whole(self) -> Any:
        """The one value that the text is."""
        value = self._value(0)
        if self.kind != "end":
            raise self._error("expected nothing more")
        return value

    def _next(self) -> None:
        if self.at == len(self.text):
            self.kind, self.token = "end", ""
            return
        match = TOKEN.match(self.text, self.at)
        if match is None:
            raise self._error("expected an op, a region, a reduction, a tuple, a number or a word")
        self.kind, self.at = str(match.lastgroup), match.end()
        self.token = match[self.kind]

    def _take(self) -> str:
        token = self.token
        self._next()
        return token

    def _is(self, mark: str) -> bool:
        return self.kind == "mark" and self.token == mark

    def _value(self, depth: int) -> Any:
        if depth > DEEPEST:
            raise self._error(f"expected at most {DEEPEST} parentheses in each other")
        if self.kind in ("integer", "real"):
            return self._number()
        if self.kind == "word":
            return self._take()
        if self._is("("):
            values, _, comma = self._list(depth, named=False)
            return tuple(values) if comma or not values else values[0]
        if self.kind == "name" and self.token in WORDS:
            return WORDS[self._take()]
        if self.kind == "name" and self.token in CONSTRUCTORS:
            constructor = CONSTRUCTORS[self._take()]
            if not self._is("("):
                raise self._error("expected '('")
            values, named, _ = self._list(depth, named=True)
            return constructor(*values, **named)
        raise self._error("expected an op, a region, a reduction, a tuple, a number or a word")

    def _number(self) -> int | float:
        if len(self.token) > DIGITS:
            raise self._error(f"expected a number of at most {DIGITS} characters")
        return int(self._take()) if self.kind == "integer" else float(self._take())

    def _list(self, depth: int, named: bool) -> tuple[list[Any], dict[str, Any], bool]:
        """Values in parentheses, those with names, and whether there was a comma."""
        values: list[Any] = []
        names: dict[str, Any] = {}
        comma = False
        self._next()
        while not self._is(")"):
            if named and self.kind == "name" and self.token not in {*WORDS, *CONSTRUCTORS}:
                name = self._take()
                if not self._is("=") or name in names:
                    raise self._error(f"expected one {name}=value")
                self._next()
                names[name] = self._value(depth + 1)
            elif names:
                raise self._error("expected name=value after the first of these")
            else:
                values.append(self._value(depth + 1))
            if not self._is(","):
                break
            comma = True
            self._next()
        if not self._is(")"):
            raise self._error("expected ')'")
        if comma and not values and not names:
            raise self._error("expected a value before ','")
        self._next()
        return values, names, comma

    def _error(self, expected: str) -> ValueError:
        return ValueError(f"op={_short(self.text)}, before character {self.at}: {expected}")


def _short(text: str) -> str:
    """The text as an error shows it."""
    return repr(text) if len(text) <= 200 else f"{text[:200]!r}…"
