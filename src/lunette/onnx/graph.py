"""The graph of an ONNX file: checked, in an order in which it can be computed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lunette.onnx.errors import ReadError
from lunette.onnx.tensors import dtype_of, to_array

__all__ = ["OPSETS", "Graph", "Port", "Step", "read_graph"]

OPSETS = range(8, 23)
"""The versions of the standard operators that are read."""

MAX_NODES = 100_000
"""Nodes of one graph."""


@dataclass(frozen=True)
class Port:
    """An input or output: its name, dtype and shape. A size that the file leaves open is None.

    Parameters
    ----------
    name : str
        What the file calls it.
    dtype : numpy.dtype
        What it holds.
    shape : tuple of int or None, or None
        Its lengths.
    labels : tuple of str, optional
        What the file calls its sizes.

    Examples
    --------
    >>> import numpy as np
    >>> from lunette.onnx import Port
    >>> Port("x", np.dtype("float32"), (None, 3)).shape
    (None, 3)
    """

    name: str
    dtype: Any
    shape: tuple[int | None, ...] | None
    labels: tuple[str, ...] = ()


@dataclass
class Step:
    """One node: its op, what it reads and writes, and its attributes as Python values."""

    op: str
    label: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, Any]
    given: frozenset[str]
    opset: int
    read: set[str] = field(default_factory=set)

    def get(self, name: str) -> Any:
        """An attribute: as given, its default, or None."""
        self.read.add(name)
        return self.attributes.get(name)

    def check_all_read(self) -> None:
        """Every attribute of the file has been honoured; one that nobody looked at is an error."""
        ignored = sorted(self.given - self.read)
        if ignored:
            name = ignored[0]
            raise self.error(f"attribute {name}={_short(self.attributes[name])} is not read here")

    def error(self, text: str) -> ReadError:
        """An error that names this node."""
        return ReadError(f"{self.label}: {text}")


@dataclass(frozen=True)
class Graph:
    """What a network computes: constants, then steps in order."""

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    constants: dict[str, Any]
    steps: tuple[Step, ...]
    opset: int


def read_graph(model: Any, folder: Path | None, max_bytes: int, known: Any) -> Graph:
    """The graph of a parsed model; `known` are the ops that can be computed."""
    opset = _opset(model)
    graph = model.graph
    if len(graph.node) > MAX_NODES:
        raise ReadError(f"the graph has {len(graph.node)} nodes; at most {MAX_NODES} are read")
    if len(graph.sparse_initializer):
        raise ReadError("the graph has sparse_initializer: not read here")
    constants: dict[str, Any] = {}
    total = 0
    for tensor in graph.initializer:
        if tensor.name in constants:
            raise ReadError(f"initializer {tensor.name!r} is there twice")
        array = to_array(tensor, f"initializer {tensor.name!r}", folder, max_bytes)
        total += array.nbytes
        if total > max_bytes:
            raise ReadError(f"the initializers have more than max_bytes={max_bytes} bytes")
        constants[tensor.name] = array
    inputs = tuple(_port(i, "input") for i in graph.input if i.name not in constants)
    outputs = tuple(_port(o, "output") for o in graph.output)
    if not outputs:
        raise ReadError("the graph has no output")
    names = [port.name for port in inputs]
    if len(set(names)) != len(names) or "" in names:
        raise ReadError(f"the graph's inputs are called {names}: expected a name each")
    steps = [
        _step(node, number, opset, folder, max_bytes, known)
        for number, node in enumerate(graph.node)
    ]
    return Graph(inputs, outputs, constants, _ordered(steps, {*names, *constants}, outputs), opset)


def _opset(model: Any) -> int:
    versions = {entry.domain or "ai.onnx": entry.version for entry in model.opset_import}
    if "ai.onnx" not in versions:
        raise ReadError("opset_import names no version of the standard operators")
    version = int(versions["ai.onnx"])
    if version not in OPSETS:
        raise ReadError(
            f"opset_import: version {version} of the standard operators; "
            f"{OPSETS[0]} … {OPSETS[-1]} are read"
        )
    return version


def _port(value: Any, kind: str) -> Port:
    if value.type.WhichOneof("value") != "tensor_type":
        raise ReadError(f"{kind} {value.name!r} is no tensor")
    tensor = value.type.tensor_type
    dtype = dtype_of(tensor.elem_type, f"{kind} {value.name!r}")
    if not tensor.HasField("shape"):
        return Port(value.name, dtype, None)
    sizes: list[int | None] = []
    for axis, dim in enumerate(tensor.shape.dim):
        fixed = dim.WhichOneof("value") == "dim_value"
        if fixed and dim.dim_value < 0:
            raise ReadError(f"{kind} {value.name!r}: axis {axis} has size {dim.dim_value}")
        # Some exporters write 0, or nothing, for a size that is open.
        sizes.append(int(dim.dim_value) if fixed and dim.dim_value else None)
    labels = tuple(dim.dim_param for dim in tensor.shape.dim)
    return Port(value.name, dtype, tuple(sizes), labels)


def _step(
    node: Any, number: int, opset: int, folder: Path | None, max_bytes: int, known: Any
) -> Step:
    import onnx

    label = (
        f"node {number} {node.name or (node.output[0] if node.output else '')!r} ({node.op_type})"
    )
    if node.domain not in ("", "ai.onnx"):
        raise ReadError(f"{label}: the domain {node.domain!r} is not read here")
    if node.op_type not in known:
        raise ReadError(f"{label}: the operator {node.op_type!r} is not read here")
    try:
        schema = onnx.defs.get_schema(node.op_type, opset, "")
    except onnx.defs.SchemaError:
        raise ReadError(f"{label}: no such operator in version {opset}") from None
    if schema.deprecated:
        raise ReadError(f"{label}: deprecated in version {opset}")
    inputs, outputs = tuple(node.input), tuple(node.output)
    for what, found, least, most in (
        ("inputs", inputs, schema.min_input, schema.max_input),
        ("outputs", outputs, schema.min_output, schema.max_output),
    ):
        if not least <= len(found) <= most:
            raise ReadError(f"{label}: has {len(found)} {what}; expected {least} … {most}")
    required = inputs[: schema.min_input]
    if "" in required:
        raise ReadError(f"{label}: input {required.index('')} is missing")
    attributes = {
        name: onnx.helper.get_attribute_value(entry.default_value)
        for name, entry in schema.attributes.items()
        if entry.default_value.type
    }
    given: set[str] = set()
    for attribute in node.attribute:
        name = attribute.name
        if name in given:
            raise ReadError(f"{label}: attribute {name!r} is there twice")
        if name not in schema.attributes:
            raise ReadError(f"{label}: attribute {name!r} is unknown in version {opset}")
        if attribute.ref_attr_name or attribute.type != int(schema.attributes[name].type.value):
            raise ReadError(f"{label}: attribute {name!r} has the wrong type")
        given.add(name)
        attributes[name] = _attribute(attribute, label, folder, max_bytes)
    missing = [n for n, entry in schema.attributes.items() if entry.required and n not in given]
    if missing:
        raise ReadError(f"{label}: attribute {missing[0]!r} is missing")
    decoded = {n: v.decode() if isinstance(v, bytes) else v for n, v in attributes.items()}
    return Step(node.op_type, label, inputs, outputs, decoded, frozenset(given), opset)


def _attribute(attribute: Any, label: str, folder: Path | None, max_bytes: int) -> Any:
    import onnx

    value = onnx.helper.get_attribute_value(attribute)
    if attribute.type == onnx.AttributeProto.TENSOR:
        what = f"{label}: attribute {attribute.name!r}"
        return to_array(value, what, folder, max_bytes)
    if attribute.type == onnx.AttributeProto.STRING:
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise ReadError(f"{label}: attribute {attribute.name!r} is no text") from None
    if attribute.type == onnx.AttributeProto.INTS:
        return [int(n) for n in value]
    return value


def _ordered(steps: list[Step], ready: set[str], outputs: tuple[Port, ...]) -> tuple[Step, ...]:
    """The steps that the outputs need, each after what it reads; cycles and gaps are named."""
    maker: dict[str, int] = {}
    for i, step in enumerate(steps):
        for name in filter(None, step.outputs):
            if name in maker or name in ready:
                raise step.error(f"makes {name!r}, which is made elsewhere already")
            maker[name] = i
    for step in steps:
        for name in filter(None, step.inputs):
            if name not in maker and name not in ready:
                raise step.error(
                    f"reads {name!r}, which no node makes and which is no input or initializer"
                )
    for port in outputs:
        if port.name not in maker and port.name not in ready:
            raise ReadError(f"output {port.name!r} is made by no node")
    return _sorted(steps, maker, [maker[p.name] for p in outputs if p.name in maker])


def _sorted(steps: list[Step], maker: dict[str, int], wanted: list[int]) -> tuple[Step, ...]:
    """A walk from the outputs to what they need, without recursion: files can be deep."""
    order: list[Step] = []
    state = [0] * len(steps)  # 1 while what a step needs is being found, 2 when it is in order

    def needs(i: int) -> Iterator[int]:
        return (maker[name] for name in steps[i].inputs if name in maker)

    for first in wanted:
        stack = [(first, needs(first))] if state[first] == 0 else []
        while stack:
            i, rest = stack[-1]
            state[i] = 1
            need = next((n for n in rest if state[n] != 2), None)
            if need is None:
                state[i] = 2
                order.append(steps[i])
                stack.pop()
            elif state[need] == 1:
                raise steps[i].error(
                    f"the graph is cyclic: this node needs {steps[need].label}, which needs it"
                )
            else:
                stack.append((need, needs(need)))
    return tuple(order)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
