"""A network read from ONNX: a function over any number system, recorded on a tape."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lunette.inputs import array as plain
from lunette.inputs import check_plain
from lunette.onnx.errors import ReadError
from lunette.onnx.files import MAX_BYTES, limit_of, read_bytes
from lunette.onnx.graph import Graph, Port, read_graph
from lunette.onnx.operators import OPERATORS
from lunette.onnx.recorder import Recorder, Value
from lunette.ops.base import is_float
from lunette.tape import functions as fn
from lunette.tape.ids import Id
from lunette.tape.tape import Tape

__all__ = ["Network", "Port", "Recording", "from_bytes", "load", "loads"]


@dataclass(frozen=True)
class Recording:
    """One run of a network: the tape, and the ids of its inputs and outputs there.

    `decided` names the nodes that read an integer which the inputs decide, a cast or the place of a
    maximum. Around these inputs the tape is the network; elsewhere such an integer may be another.

    Parameters
    ----------
    tape : Tape
        With every node.
    inputs : tuple of Id
        Its inputs.
    outputs : tuple of Id
        Its outputs.
    decided : tuple of str
        Nodes that read an integer which the inputs decide.

    Examples
    --------
    >>> import lunette as ln
    >>> tape = ln.Tape()
    >>> x = tape.leaf([1.0])
    >>> ln.onnx.Recording(tape, (x,), (x,), ()).output
    <0 leaf: (1,) float64>
    """

    tape: Tape
    inputs: tuple[Id, ...]
    outputs: tuple[Id, ...]
    decided: tuple[str, ...]

    @property
    def input(self) -> Id:
        """The only input."""
        return _only(self.inputs, "input")

    @property
    def output(self) -> Id:
        """The only output."""
        return _only(self.outputs, "output")


class Network:
    """A network: call it with arrays, or with ids of a tape, one for each of `inputs`.

    Arrays may hold floats of the network's dtype or a wider one, Fractions, intervals, balls: the
    weights join their number system exactly. Ids give ids, and the tape differentiates.

    Parameters
    ----------
    graph : Graph
        What the file says; `load` and `loads` make it.

    Examples
    --------
    >>> import numpy as np
    >>> import lunette as ln
    >>> from onnx import TensorProto, helper
    >>> port = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2]) for n in "xy"]
    >>> graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", port[:1], port[1:])
    >>> model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    >>> ln.onnx.loads(model.SerializeToString())(np.float32([-1, 2]))
    array([0., 2.], dtype=float32)
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self.inputs, self.outputs = graph.inputs, graph.outputs
        floats = [port.dtype for port in self.inputs if is_float(port.dtype)]
        if not floats:
            raise ReadError("the network has no input of floats")
        if len(set(floats)) > 1:
            raise ReadError(f"the network's inputs have dtypes {', '.join(map(str, floats))}")
        self.dtype = floats[0]

    def __repr__(self) -> str:
        def ports(ports: tuple[Port, ...]) -> str:
            return ", ".join(f"{p.name} {_shape_text(p.shape)}" for p in ports)

        return (
            f"<Network {ports(self.inputs)} → {ports(self.outputs)}, {self.dtype}, "
            f"{len(self._graph.steps)} nodes>"
        )

    @property
    def opset(self) -> int:
        """The version of the standard operators."""
        return self._graph.opset

    @property
    def operators(self) -> tuple[str, ...]:
        """The operators in use, each once, in order of their names."""
        return tuple(sorted({step.op for step in self._graph.steps}))

    def __call__(self, *inputs: Any) -> Any:
        """The outputs: one array, or a tuple of several; ids where an input is an id."""
        tapes = [x.tape for x in inputs if isinstance(x, Id)]
        recording = self._record(tapes[0] if tapes else Tape(), inputs)
        results = [o if tapes else o.value for o in recording.outputs]
        return results[0] if len(results) == 1 else tuple(results)

    def record(self, *inputs: Any) -> Recording:
        """The network on a tape: a new one for arrays, that of the ids otherwise."""
        tapes = [x.tape for x in inputs if isinstance(x, Id)]
        return self._record(tapes[0] if tapes else Tape(), inputs)

    def _record(self, tape: Tape, inputs: tuple[Any, ...]) -> Recording:
        if len(inputs) != len(self.inputs):
            names = ", ".join(port.name for port in self.inputs)
            raise TypeError(f"{len(inputs)} inputs given; this network takes {names}")
        values: dict[str, Value] = {}
        sizes: dict[str, int] = {}
        ids, like = [], None
        for port, given in zip(self.inputs, inputs, strict=True):
            check_plain(given, port.name)
            x = given if hasattr(given, "shape") else plain(given, port.name)
            array = x.value if isinstance(x, Id) else x
            _check_input(port, array, sizes)
            if is_float(port.dtype):
                if like is not None and like.dtype != array.dtype:
                    raise TypeError(f"inputs of dtypes {like.dtype} and {array.dtype}")
                like = array
                node = x if isinstance(x, Id) else tape.leaf(x, port.name)
                ids.append(node)
                values[port.name] = Value(None, node, True, port.name)
            else:
                values[port.name] = Value(np.asarray(array, port.dtype), None, True, port.name)
        run = Recorder(tape, like, self.dtype)
        for name, array in self._graph.constants.items():
            values[name] = Value(array, None, False, name)
        for step in self._graph.steps:
            operands = []
            for name in step.inputs:
                if name and name not in values:
                    raise step.error(f"reads {name!r}, an output that is not computed here")
                operands.append(values[name] if name else None)
            step.read.clear()
            try:
                result = OPERATORS[step.op](run, step, *operands)
            except TypeError as error:
                if "positional argument" in str(error):
                    raise step.error(f"{len(operands)} inputs are not read here") from None
                raise
            step.check_all_read()
            values[step.outputs[0]] = result
        outputs = tuple(self._output(run, port, values) for port in self.outputs)
        return Recording(tape, tuple(ids), outputs, tuple(run.decided))

    def _output(self, run: Recorder, port: Port, values: dict[str, Value]) -> Id:
        if port.name not in values:
            raise ReadError(f"output {port.name!r} is not computed here")
        value = values[port.name]
        if value.id is None:
            leaf = run.converted(value.array) if value.is_float else value.array
            if value.depends:
                run.decided.append(f"output {port.name!r}")
            value.id = run.tape.leaf(leaf, port.name, False)
        if port.shape is not None and not _fits(port.shape, value.shape):
            raise ReadError(
                f"output {port.name!r} has shape {value.shape}; "
                f"the file says {_shape_text(port.shape)}"
            )
        return value.id


def load(path: Any, *, max_bytes: int = MAX_BYTES) -> Network:
    """The network of an `.onnx` file, which may be gzipped. Larger files are refused.

    External data must lie in files of the same folder, or of folders in it.

    Parameters
    ----------
    path : path-like
        The file.
    max_bytes : int
        How large it may be. Default: 2 GiB.

    Returns
    -------
    Network
        To call, and to record on a tape.

    Raises
    ------
    ReadError
        With what is malformed or not understood, and where.

    Examples
    --------
    >>> import lunette as ln
    >>> from onnx import TensorProto, helper
    >>> port = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2]) for n in "xy"]
    >>> graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", port[:1], port[1:])
    >>> model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    >>> with open("relu.onnx", "wb") as file:
    ...     _ = file.write(model.SerializeToString())
    >>> ln.onnx.load("relu.onnx")
    <Network x (2) → y (2), float32, 1 nodes>
    """
    limit = limit_of(max_bytes)
    path = Path(path)
    return from_bytes(read_bytes(path, limit), path.parent, limit, str(path))


def loads(data: bytes, *, max_bytes: int = MAX_BYTES) -> Network:
    """The network of the bytes of an `.onnx` file.

    Parameters
    ----------
    data : bytes
        What stands in the file.
    max_bytes : int
        How large it may be. Default: 2 GiB.

    Returns
    -------
    Network
        To call, and to record on a tape.

    Raises
    ------
    ReadError
        With what is malformed or not understood, and where.

    Examples
    --------
    >>> import lunette as ln
    >>> from onnx import TensorProto, helper
    >>> port = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2]) for n in "xy"]
    >>> graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", port[:1], port[1:])
    >>> model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    >>> ln.onnx.loads(model.SerializeToString())
    <Network x (2) → y (2), float32, 1 nodes>
    """
    limit = limit_of(max_bytes)
    if len(data) > limit:
        raise ReadError(f"{len(data)} bytes are more than max_bytes={limit}")
    return from_bytes(bytes(data), None, limit, "data")


def from_bytes(data: bytes, folder: Path | None, limit: int, where: str) -> Network:
    """The network of a file's bytes; `where` names the file in errors."""
    try:
        import onnx
    except ImportError:
        raise ImportError(
            "reading ONNX needs the onnx package: pip install 'lunette-ops[onnx]'"
        ) from None
    from google.protobuf.message import DecodeError

    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except DecodeError as error:
        raise ReadError(f"{where}: not an ONNX file ({error})") from None
    if not model.HasField("graph") or not model.opset_import:
        raise ReadError(f"{where}: not an ONNX file: it has no graph or no opset_import")
    try:
        return Network(read_graph(model, folder, limit, OPERATORS))
    except ReadError as error:
        raise ReadError(f"{where}: {error}") from None


def _check_input(port: Port, x: Any, sizes: dict[str, int]) -> None:
    shape = tuple(x.shape)
    if port.shape is not None and not _fits(port.shape, shape):
        raise ValueError(
            f"input {port.name!r} has shape {shape}; the network takes {_shape_text(port.shape)}"
        )
    for label, n in zip(port.labels, shape, strict=False):
        if label and sizes.setdefault(label, n) != n:
            raise ValueError(f"input {port.name!r}: {label} is {n}, and {sizes[label]} elsewhere")
    if not is_float(port.dtype):
        if getattr(x.dtype, "kind", "") not in "iub":
            raise TypeError(f"input {port.name!r} has dtype {x.dtype}: expected {port.dtype}")
        return
    if fn.is_object(x):
        return
    if not fn.is_differentiable(x.dtype):
        raise TypeError(f"input {port.name!r} has dtype {x.dtype}: expected {port.dtype}")
    if isinstance(x, np.ndarray) and np.promote_types(x.dtype, port.dtype) != x.dtype:
        raise TypeError(
            f"input {port.name!r} has dtype {x.dtype}; the weights are {port.dtype} and would "
            f"lose digits: expected {port.dtype} or a wider type"
        )


def _fits(shape: tuple[int | None, ...], found: tuple[int, ...]) -> bool:
    return len(shape) == len(found) and all(
        n is None or n == m for n, m in zip(shape, found, strict=True)
    )


def _shape_text(shape: tuple[int | None, ...] | None) -> str:
    if shape is None:
        return "(any)"
    return "(" + ", ".join("?" if n is None else str(n) for n in shape) + ")"


def _only(ids: tuple[Id, ...], what: str) -> Id:
    if len(ids) != 1:
        raise ValueError(f"the network has {len(ids)} {what}s: take one of .{what}s")
    return ids[0]
