"""What Numba has to know of a record: its type, and how a field is read."""

from __future__ import annotations

from functools import cache
from typing import Any

from llvmlite import ir
from numba import types
from numba.core.datamodel import models
from numba.core.typing.templates import AttributeTemplate
from numba.extending import infer_getattr, intrinsic, lower_getattr_generic, register_model

__all__ = ["at"]

INT64 = ir.IntType(64)


class RecordType(types.Type):  # type: ignore[misc]
    """The address of a record with these fields."""

    def __init__(self, name: str, fields: tuple[str, ...], pointers: frozenset[str]) -> None:
        self.fields, self.pointers = fields, pointers
        super().__init__(name=f"Record({name}: {' '.join(fields)})")


@register_model(RecordType)
class RecordModel(models.PrimitiveModel):  # type: ignore[misc]
    """A pointer to the first field."""

    def __init__(self, manager: Any, record: RecordType) -> None:
        super().__init__(manager, record, INT64.as_pointer())


@infer_getattr
class RecordAttributes(AttributeTemplate):  # type: ignore[misc]
    """Fields are int64, or pointers to them."""

    key = RecordType

    def generic_resolve(self, record: RecordType, name: str) -> Any:
        """The type of a field; None where there is none of this name."""
        if name not in record.fields:
            return None
        return types.CPointer(types.int64) if name in record.pointers else types.int64


@lower_getattr_generic(RecordType)  # type: ignore[untyped-decorator]
def load_field(context: Any, builder: Any, record: RecordType, value: Any, name: str) -> Any:
    """Read a field. It does not change during a call, so it may be kept in a register."""
    place = ir.Constant(INT64, record.fields.index(name))
    field = builder.load(builder.gep(value, [place]))
    field.set_metadata("invariant.load", builder.module.add_metadata([]))
    if name in record.pointers:
        return builder.inttoptr(field, context.get_value_type(types.CPointer(types.int64)))
    return field


@cache
def at(name: str, fields: tuple[str, ...], pointers: frozenset[str]) -> Any:
    """The function of kernels that takes an integer for the address of such a record."""
    kind = RecordType(name, fields, pointers)

    @intrinsic  # type: ignore[untyped-decorator]
    def record_at(context: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.inttoptr(arguments[0], INT64.as_pointer())

        return kind(types.int64), generate

    return record_at
