"""ONNX tensors as NumPy arrays, checked before anything is allocated."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from lunette.onnx.errors import ReadError
from lunette.onnx.files import read_external
from lunette.ops.base import is_float

__all__ = ["DTYPES", "dtype_of", "to_array"]

DTYPES: dict[int, Any] = {
    1: np.dtype(np.float32),
    2: np.dtype(np.uint8),
    3: np.dtype(np.int8),
    4: np.dtype(np.uint16),
    5: np.dtype(np.int16),
    6: np.dtype(np.int32),
    7: np.dtype(np.int64),
    9: np.dtype(np.bool_),
    10: np.dtype(np.float16),
    11: np.dtype(np.float64),
    12: np.dtype(np.uint32),
    13: np.dtype(np.uint64),
    16: np.dtype(ml_dtypes.bfloat16),
}
"""TensorProto.DataType → dtype, of the types that are read."""

FIELDS = {1: "float_data", 7: "int64_data", 11: "double_data", 12: "uint64_data", 13: "uint64_data"}
"""The field that holds a type's elements where raw_data does not; `int32_data` for the others."""


def dtype_of(number: int, what: str) -> Any:
    """The dtype of a type's number; a type that is not read is named."""
    if number not in DTYPES:
        import onnx

        known = onnx.TensorProto.DataType.values()
        name = onnx.TensorProto.DataType.Name(number) if number in known else f"number {number}"
        raise ReadError(f"{what} has elements of type {name}: not read here")
    return DTYPES[number]


def to_array(tensor: Any, what: str, folder: Path | None, max_bytes: int) -> Any:
    """The elements of a tensor; NaN and infinite ones are refused."""
    import onnx

    dtype = dtype_of(tensor.data_type, what)
    shape = tuple(tensor.dims)
    if any(n < 0 for n in shape) or len(shape) > 32:
        raise ReadError(f"{what} has shape {shape[:8]}: expected sizes of 0 or more")
    if tensor.HasField("segment"):
        raise ReadError(f"{what} is stored in segments: not read here")
    count = math.prod(shape)
    if count * dtype.itemsize > max_bytes:
        raise ReadError(
            f"{what} of shape {shape} has {count * dtype.itemsize} bytes, more than "
            f"max_bytes={max_bytes}"
        )
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        fields = {entry.key: entry.value for entry in tensor.external_data}
        raw = read_external(folder, fields, tensor.name, count * dtype.itemsize)
        array = np.frombuffer(raw, dtype.newbyteorder("<")).astype(dtype)
    else:
        field = (
            "raw_data"
            if tensor.HasField("raw_data")
            else FIELDS.get(tensor.data_type, "int32_data")
        )
        held = len(getattr(tensor, field))
        held = held // dtype.itemsize if field == "raw_data" and not held % dtype.itemsize else held
        if held != count:
            raise ReadError(
                f"{what} of shape {shape} needs {count} elements; its {field} holds {held}"
            )
        array = np.asarray(onnx.numpy_helper.to_array(tensor)).astype(dtype, copy=False)
    array = array.reshape(shape)
    if is_float(dtype) and not np.isfinite(array).all():
        place = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
        raise ReadError(f"{what} holds {array[place]} at {place}: expected finite numbers")
    array.flags.writeable = False
    return array
