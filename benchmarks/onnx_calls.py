"""ONNX Runtime's own call for a drawn layer: a model of one node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.convolution_layers import ConvolutionLayer
from lunette.reductions import Max, Mean
from lunette.regions import Global, Sliding

__all__ = ["onnx_call"]


def onnx_call(layer: Any, operands: list[Any], threads: int) -> Callable[[], Any] | None:
    """The layer by ONNX Runtime on so many threads; None where it has no such node, or is not installed."""
    try:
        import onnxruntime
        from onnx import TensorProto, helper
    except ImportError:
        return None
    described = _node(layer)
    if described is None or not operands[0].is_contiguous():
        return None
    name, attributes = described
    op, shapes = layer.op, [tuple(t.shape) for t in operands]
    names = ["x", "w"][: len(shapes)]
    node = helper.make_node(name, names, ["y"], **attributes)
    given = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, shape)
        for n, shape in zip(names[:1], shapes, strict=False)
    ]
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, op.out_shape(*shapes))
    # Weights are a constant of the model, as they are in networks: then they are packed beforehand.
    weights = [
        helper.make_tensor("w", TensorProto.FLOAT, shape, operands[1].numpy().ravel())
        for shape in shapes[1:]
    ]
    graph = helper.make_graph([node], "g", given, [out], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)])
    model.ir_version = min(model.ir_version, 10)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    if threads:
        options.intra_op_num_threads = threads
    try:
        session = onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        x = operands[0].numpy()
        session.run(None, {"x": x})
    except Exception:  # its exception types are not public
        return None
    return lambda: session.run(None, {"x": x})


def _node(layer: Any) -> tuple[str, dict[str, Any]] | None:
    op = layer.op
    if isinstance(layer, ConvolutionLayer):
        pads = [before for before, _ in op.padding] + [after for _, after in op.padding]
        return "Conv", {
            "kernel_shape": list(op.kernel),
            "strides": list(op.stride),
            "dilations": list(op.dilation),
            "pads": pads,
            "group": op.groups,
        }
    if type(op.reduction) not in (Max, Mean) or op.rank > 3:
        return None
    name = "MaxPool" if isinstance(op.reduction, Max) else "AveragePool"
    if all(isinstance(r, Global) for r in op.regions):
        return f"Global{name}", {}
    if not all(isinstance(r, Sliding) for r in op.regions):
        return None
    pads = [r.margins(0) for r in op.regions]
    attributes: dict[str, Any] = {
        "kernel_shape": [r.kernel for r in op.regions],
        "strides": [r.stride for r in op.regions],
        "pads": [p[0] for p in pads] + [p[1] for p in pads],
    }
    if isinstance(op.reduction, Mean):
        attributes["count_include_pad"] = int(op.reduction.count_include_pad)
    return name, attributes
