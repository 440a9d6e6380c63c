"""Small ONNX models made on the spot, and onnxruntime's answers to them."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

FLOAT = TensorProto.FLOAT


def model(nodes, inputs, outputs=("y",), constants=None, opset=17, kind=FLOAT):
    """A model's bytes. `inputs` maps names to shapes; outputs have no declared shape."""
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info(n, kind, list(s)) for n, s in inputs.items()],
        [helper.make_tensor_value_info(n, kind, None) for n in outputs],
        [numpy_helper.from_array(np.asarray(a), n) for n, a in (constants or {}).items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    return made.SerializeToString()


def single(op, shape, *others, opset=17, kind=FLOAT, **attributes):
    """A model of one node: x of a shape, then constants (None is left out)."""
    names = ["" if c is None else f"c{i}" for i, c in enumerate(others)]
    constants = {n: c for n, c in zip(names, others, strict=True) if c is not None}
    node = helper.make_node(op, ["x", *names], ["y"], **attributes)
    return model([node], {"x": shape}, constants=constants, opset=opset, kind=kind)


def runtime(data, *inputs):
    """The outputs by onnxruntime, without its optimisations."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    names = [i.name for i in session.get_inputs()]
    return session.run(None, dict(zip(names, inputs, strict=True)))


def parsed(data):
    """A model to change by hand."""
    return onnx.ModelProto.FromString(data)
