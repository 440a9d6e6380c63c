"""What Numba has to know of a table: the types of its head and its entries, and how a field is read.

An entry is the table's address and a place in it, two integers in registers; to go from one to the next is an addition.
"""

from __future__ import annotations

import operator
from functools import cache
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.datamodel import models
from numba.core.typing.templates import AbstractTemplate, AttributeTemplate, infer_global, signature
from numba.extending import (
    infer_getattr,
    intrinsic,
    lower_builtin,
    lower_getattr_generic,
    register_model,
)

from lunette.kernels.cpu.jit.record import Entry, Table

__all__ = ["at"]

INT64 = ir.IntType(64)
POINTER = types.CPointer(types.int64)


class TableType(types.Type):  # type: ignore[misc]
    """The address of a table."""

    def __init__(self, table: Table) -> None:
        self.entry = table
        super().__init__(name=f"Table({table.name})")


class EntryType(types.Type):  # type: ignore[misc]
    """An entry of a table."""

    def __init__(self, entry: Entry) -> None:
        self.entry = entry
        super().__init__(name=f"Entry({entry.name})")


class EntriesType(types.Type):  # type: ignore[misc]
    """Entries one after the other; of integers where there is no entry."""

    def __init__(self, entry: Entry | None) -> None:
        self.entry = entry
        super().__init__(name=f"Entries({entry.name if entry else 'int64'})")


@register_model(TableType)
class TableModel(models.PrimitiveModel):  # type: ignore[misc]
    """A pointer to the first number."""

    def __init__(self, manager: Any, table: TableType) -> None:
        super().__init__(manager, table, INT64.as_pointer())


@register_model(EntryType)
@register_model(EntriesType)
class PlaceModel(models.StructModel):  # type: ignore[misc]
    """The table and a place in it."""

    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, [("table", POINTER), ("place", types.int64)])


def _kind_of(entry: Entry, name: str) -> Any:
    """The type of what a name stands for in an entry; None where there is none of this name."""
    if name in entry.lists:
        return EntriesType(entry.lists[name])
    if name in entry.runs:
        return EntriesType(None)
    return types.int64 if name in entry.fields else None


@infer_getattr
class EntryAttributes(AttributeTemplate):  # type: ignore[misc]
    """The fields, lists and runs of an entry."""

    key = EntryType

    def generic_resolve(self, kind: EntryType, name: str) -> Any:
        """The type of a field."""
        return _kind_of(kind.entry, name)


@infer_getattr
class TableAttributes(AttributeTemplate):  # type: ignore[misc]
    """The fields and parts of a head; `numbers` is the whole table."""

    key = TableType

    def generic_resolve(self, kind: TableType, name: str) -> Any:
        """The type of a field."""
        if name in kind.entry.parts:
            return EntriesType(kind.entry.parts[name][1])
        return POINTER if name == "numbers" else _kind_of(kind.entry, name)


@infer_global(operator.getitem)
class GetEntry(AbstractTemplate):  # type: ignore[misc]
    """`entries[i]`."""

    def generic(self, arguments: Any, keywords: Any) -> Any:
        """An entry, or an integer."""
        kind, place = arguments
        if isinstance(kind, EntriesType) and isinstance(place, types.Integer):
            result = EntryType(kind.entry) if kind.entry else types.int64
            return signature(result, kind, types.int64)
        return None


def _made(context: Any, builder: Any, kind: Any, table: Any, place: Any) -> Any:
    made = cgutils.create_struct_proxy(kind)(context, builder)
    made.table, made.place = table, place
    return made._getvalue()


def _parts(context: Any, builder: Any, kind: Any, value: Any) -> tuple[Any, Any]:
    made = cgutils.create_struct_proxy(kind)(context, builder, value)
    return made.table, made.place


def _load(builder: Any, table: Any, place: Any) -> Any:
    return builder.load(builder.gep(table, [place]))


@lower_getattr_generic(TableType)  # type: ignore[untyped-decorator]
def read_head(context: Any, builder: Any, kind: TableType, table: Any, name: str) -> Any:
    """Read a field of a head, or begin one of its parts."""
    if name == "numbers":
        return table
    if name in kind.entry.parts:
        place, entry = kind.entry.parts[name]
        return _made(context, builder, EntriesType(entry), table, ir.Constant(INT64, place))
    field = _load(builder, table, ir.Constant(INT64, kind.entry.place(name)))
    if name in kind.entry.lists:
        return _made(context, builder, _kind_of(kind.entry, name), table, field)
    return field


@lower_getattr_generic(EntryType)  # type: ignore[untyped-decorator]
def read_entry(context: Any, builder: Any, kind: EntryType, value: Any, name: str) -> Any:
    """Read a field of an entry, or begin one of its lists or runs."""
    table, place = _parts(context, builder, kind, value)
    entry = kind.entry
    if name in entry.runs:
        place = builder.add(place, ir.Constant(INT64, entry.runs[name]))
        return _made(context, builder, EntriesType(None), table, place)
    field = _load(builder, table, builder.add(place, ir.Constant(INT64, entry.place(name))))
    if name in entry.lists:
        return _made(context, builder, EntriesType(entry.lists[name]), table, field)
    return field


@lower_builtin(operator.getitem, EntriesType, types.int64)  # type: ignore[untyped-decorator]
def get_entry(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    """The entry, or the integer, of a number."""
    kind = signature.args[0]
    table, place = _parts(context, builder, kind, arguments[0])
    width = len(kind.entry.fields) if kind.entry else 1
    number = arguments[1]
    step = number if width == 1 else builder.mul(ir.Constant(INT64, width), number)
    place = builder.add(place, step)
    if kind.entry is None:
        return _load(builder, table, place)
    return _made(context, builder, signature.return_type, table, place)


@cache
def at(declared: Table) -> Any:
    """The function of kernels that takes an integer for the address of such a table."""
    kind = TableType(declared)

    @intrinsic  # type: ignore[untyped-decorator]
    def table_at(context: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.inttoptr(arguments[0], INT64.as_pointer())

        return kind(types.int64), generate

    return table_at
