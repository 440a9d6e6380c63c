"""Records: named integers behind an address, which compiled code reads by name.

`Axis = Record("Axis", "stride origin *counts")` declares one. `Axis.numbers(stride=2, origin=0, counts=address)` are its
fields in order, for an array that a kernel is told the address of; in a kernel, `Axis.at(address).stride` reads one. A
field with a star is an address of int64, and reads as a pointer to them. A record does not change while a kernel runs.
"""

from __future__ import annotations

from typing import Any

from lunette.cached import cached_property

__all__ = ["Record"]


class Record:
    """The names of the fields of a record. Numba loads when a kernel first reads one."""

    def __init__(self, name: str, fields: str, *before: Record) -> None:
        declared = fields.split()
        self.name = name
        self.fields: tuple[str, ...] = tuple(f.lstrip("*") for f in declared)
        self.pointers: frozenset[str] = frozenset(f[1:] for f in declared if f[0] == "*")
        for other in reversed(before):
            self.fields, self.pointers = other.fields + self.fields, self.pointers | other.pointers
        assert len(set(self.fields)) == len(self.fields), f"{name}: a field occurs twice"

    def numbers(self, **values: int) -> list[int]:
        """The fields in their order; every one must be given."""
        found = [values[field] for field in self.fields]
        assert len(values) == len(found), sorted(set(values) - set(self.fields))
        return found

    @cached_property
    def at(self) -> Any:
        """For kernels: the record at an address."""
        from lunette.kernels.cpu.jit.record_type import at

        return at(self.name, self.fields, self.pointers)
