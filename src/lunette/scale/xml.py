"""XML of a file, read as a list of elements: no entities, no document types, no depth without end."""

from __future__ import annotations

from typing import Any
from xml.parsers import expat

__all__ = ["elements"]

LARGEST = 64 << 20
DEEPEST = 100

Element = tuple[str, int, dict[str, str]]
"""A local name, its depth, its attributes."""


def elements(text: str, wanted: tuple[str, ...]) -> list[Element]:
    """The elements of these local names, in the order in which they begin."""
    if len(text) > LARGEST:
        raise ValueError(f"XML of {len(text)} characters; expected at most {LARGEST}")
    found: list[Element] = []
    depth = 0

    def start(name: str, attributes: dict[str, str]) -> None:
        nonlocal depth
        depth += 1
        if depth > DEEPEST:
            raise ValueError(f"XML nested deeper than {DEEPEST}")
        local = name.rpartition(" ")[2]
        if local in wanted:
            found.append((local, depth, attributes))

    def end(name: str) -> None:
        nonlocal depth
        depth -= 1

    def refuse(*_: Any) -> None:
        raise ValueError("XML with a document type or entities, which are not read")

    parser = expat.ParserCreate(namespace_separator=" ")
    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.StartDoctypeDeclHandler = parser.EntityDeclHandler = refuse
    parser.ExternalEntityRefHandler = refuse  # type: ignore[assignment]
    try:
        parser.Parse(text.encode("utf-8", "surrogatepass"), True)
    except expat.ExpatError as error:
        raise ValueError(f"XML that cannot be read: {error}") from error
    return found
