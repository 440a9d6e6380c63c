"""The operators that are read, by name."""

from lunette.onnx.operators import arithmetic, choices, elements, reductions, shapes, windows
from lunette.onnx.operators.table import OPERATORS

__all__ = ["OPERATORS", "arithmetic", "choices", "elements", "reductions", "shapes", "windows"]
