"""Records: named integers behind an address, which compiled code reads by name.

`Axis = Record("Axis", "stride origin *counts")` declares one. `Axis.numbers(stride=2, origin=0, counts=address)` are its
fields in order, for an array that a kernel is told the address of; in a kernel, `Axis.at(address).stride` reads one. A
field with a star is an address of int64, and reads as a pointer to them. A record does not change while a kernel runs.

A `Table` is one array of int64 with a head and records after it: `plan.axes[i].windows[j].start` reads one of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lunette.cached import cached_property

__all__ = ["Entry", "Record", "Table"]


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


class Entry:
    """The fields of a record of a table, each by where it stands.

    `lists` are the entries that begin at the place in the table which a field holds; `runs` are names for a field and
    those after it together: `axis.strides[1]` is the one after `axis.x_stride`.
    """

    def __init__(
        self,
        name: str,
        fields: str,
        lists: Mapping[str, Entry] | None = None,
        runs: Mapping[str, str] | None = None,
    ) -> None:
        self.name, self.fields = name, tuple(fields.split())
        self.lists = dict(lists or {})
        self.runs = {run: self.place(field) for run, field in (runs or {}).items()}

    def place(self, field: str) -> int:
        """Where a field stands."""
        return self.fields.index(field)


class Table(Entry):
    """The head of a table; `parts` are entries that begin at a fixed place."""

    def __init__(
        self,
        name: str,
        fields: str,
        parts: Mapping[str, tuple[int, Entry]],
        lists: Mapping[str, Entry] | None = None,
    ) -> None:
        super().__init__(name, fields, lists)
        self.parts = dict(parts)

    @cached_property
    def at(self) -> Any:
        """For kernels: the table at an address."""
        from lunette.kernels.cpu.jit.table_type import at

        return at(self)
