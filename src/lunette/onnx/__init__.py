"""Networks in ONNX files, read into a tape; and properties in VNN-LIB files.

`load` needs the onnx package: pip install 'lunette-ops[onnx]'. The rest of Lunette does not.
"""

from lunette.onnx.errors import ReadError
from lunette.onnx.network import Network, Port, Recording, load, loads
from lunette.onnx.properties import Case, Constraint, Property, load_property, loads_property

__all__ = [
    "Case",
    "Constraint",
    "Network",
    "Port",
    "Property",
    "ReadError",
    "Recording",
    "load",
    "load_property",
    "loads",
    "loads_property",
]
