"""Calls as ONNX models of one node, for every engine that runs them."""

from __future__ import annotations

from typing import Any

from lunette.check.calls import Call, NotOffered
from lunette.check.targets.base import Target

__all__ = ["OPSETS", "OnnxTarget"]

OPSETS = ("opset 11", "opset 18", "opset 19", "opset 22")

TYPES = {
    "float32": "FLOAT", "float64": "DOUBLE", "float16": "FLOAT16", "bfloat16": "BFLOAT16",
    "int8": "INT8", "uint8": "UINT8", "int16": "INT16", "uint16": "UINT16", "int32": "INT32",
    "uint32": "UINT32", "int64": "INT64", "uint64": "UINT64", "bool": "BOOL",
}  # fmt: skip


class OnnxTarget(Target):
    """What every engine of ONNX models shares: the models."""

    verbs = ("forward", "indices")
    layouts = ("contiguous",)
    variants = OPSETS
    policies = {  # noqa: RUF012
        "default padding": "AveragePool: count_include_pad is 0 by default",
        "sign of zero": "ONNX compares numbers as IEEE 754 does: −0 and +0 are equal",
        "empty window": "MaxPool and AveragePool say nothing of windows of padding alone",
        "half accumulation": "ONNX names no accumulation type",
        "a window longer than the padded input": "ONNX does not say what a window that does not fit gives",
        "lowest padding": "MaxPool says nothing of a window whose cells are all −inf",
        "NaN undefined": "MaxPool says nothing of NaN",
        "ties": "MaxPool says nothing of which equal cell the Indices name",
        "a pooled axis of length zero": "the documented formula gives an output of length zero; "
        "a reduction of an empty set is the operator's neutral value",
    }

    def model(self, call: Call) -> str:
        """Lines that make `model`, one node at the call's opset."""
        opset = int(call.variant.split()[-1])
        kind, attributes, outputs = self._node(call, opset)
        names = [n for n in call.arrays() if n not in ("gy",)]
        inputs = ", ".join(
            f"helper.make_tensor_value_info({n!r}, TensorProto.{TYPES[a.dtype.name]}, "
            f"{list(a.shape)})"
            for n, a in call.arrays().items()
        )
        results = ", ".join(
            f"helper.make_tensor_value_info({n!r}, TensorProto.{t}, None)" for n, t in outputs
        )
        spelled = "".join(f", {k}={v!r}" for k, v in attributes.items())
        return (
            "import numpy as np\nfrom onnx import TensorProto, helper\n"
            f"node = helper.make_node({kind!r}, {names}, {[n for n, _ in outputs]}{spelled})\n"
            f"graph = helper.make_graph([node], 'g', [{inputs}],\n    [{results}])\n"
            f"model = helper.make_model(graph, opset_imports=[helper.make_opsetid('', {opset})], "
            f"ir_version={10 if opset > 20 else 8})"
        )

    def _node(self, call: Call, opset: int) -> tuple[str, dict[str, Any], list[tuple[str, str]]]:
        arguments, kind = call.arguments, TYPES[call.dtype]
        outputs = [("y", kind)]
        if len(call.batch) != (1 if call.op.startswith("conv") else 2) and not call.bad:
            raise NotOffered("axes other than batch, channels and spatial ones")
        if call.op.startswith("global"):
            return self._reduction(call, opset), self._axes(call, opset), outputs
        if call.op in ("conv", "conv-transpose"):
            return self._convolution(call, outputs)
        if call.op not in ("max", "mean"):
            raise NotOffered(f"no {call.op}")
        attributes: dict[str, Any] = {
            "kernel_shape": list(arguments["kernel"]),
            "strides": list(arguments["stride"]),
            **_padding(call),
        }
        if arguments["ceil_mode"]:
            attributes["ceil_mode"] = 1
        if any(d != 1 for d in arguments["dilation"]):
            if call.op == "mean" and opset < 19:
                raise NotOffered("dilation of a mean before opset 19")
            attributes["dilations"] = list(arguments["dilation"])
        if call.op == "max":
            if call.verb == "indices":
                return "MaxPool", attributes, [("values", kind), ("y", "INT64")]
            return "MaxPool", attributes, outputs
        if not call.dtype.startswith(("float", "bfloat")):
            raise NotOffered("a mean of integers in float64")
        if arguments.get("divisor_override") is not None:
            raise NotOffered("divisor_override")
        if "count_include_pad" in arguments:
            attributes["count_include_pad"] = int(arguments["count_include_pad"])
        return "AveragePool", attributes, outputs

    def _reduction(self, call: Call, opset: int) -> str:
        if call.verb == "indices":
            raise NotOffered("indices of a global max")
        arguments = call.arguments
        if arguments["ndim"] != call.x.ndim - 2 and call.op != "global-smooth-max":
            raise NotOffered("a global pooling of some of the spatial axes")
        if call.op != "global-smooth-max" and not arguments.get("keepdims", True):
            raise NotOffered("keepdims=False")
        if not call.dtype.startswith(("float", "bfloat")):
            raise NotOffered("global pooling of integers")
        if call.op == "global-smooth-max":
            if arguments["beta"] != 1 or opset >= 18:
                raise NotOffered("a beta other than 1, or axes as an input")
            return "ReduceLogSumExp"
        return {"global-max": "GlobalMaxPool", "global-mean": "GlobalAveragePool"}[call.op]

    def _axes(self, call: Call, opset: int) -> dict[str, Any]:
        if call.op != "global-smooth-max":
            return {}
        ndim, keepdims = call.arguments["ndim"], call.arguments.get("keepdims", True)
        return {"axes": list(range(-ndim, 0)), "keepdims": int(keepdims)}

    def _convolution(
        self, call: Call, outputs: list[tuple[str, str]]
    ) -> tuple[str, dict[str, Any], list[tuple[str, str]]]:
        arguments = call.arguments
        attributes: dict[str, Any] = {
            "strides": list(arguments["stride"]),
            "dilations": list(arguments["dilation"]),
            "group": arguments["groups"],
            **_padding(call),
        }
        if call.op == "conv":
            return "Conv", attributes, outputs
        attributes["output_padding"] = list(arguments["output_padding"])
        return "ConvTranspose", attributes, outputs


def _padding(call: Call) -> dict[str, Any]:
    """Numbers, or auto_pad where these numbers are what it would choose."""
    padding = call.arguments["padding"]
    if padding == "same":
        if min(_totals(call)) < 0:
            raise NotOffered("auto_pad where the standard's formula for it is negative")
        return {"auto_pad": "SAME_UPPER"}
    if not call.bad and call.op != "conv-transpose" and _is_same_lower(call):
        return {"auto_pad": "SAME_LOWER"}
    return {"pads": [before for before, _ in padding] + [after for _, after in padding]}


def _is_same_lower(call: Call) -> bool:
    """Whether the padding makes ceil(n / stride) outputs, with an odd cell in front somewhere."""
    arguments = call.arguments
    if arguments.get("ceil_mode"):
        return False
    totals = _totals(call)
    pairs = tuple((t - t // 2, t // 2) for t in totals)
    return min(totals) >= 0 and arguments["padding"] == pairs and any(t % 2 for t in totals)


def _totals(call: Call) -> list[int]:
    """`pad_shape` of the standard, per axis: (ceil(n / stride) − 1)·stride + extent − n."""
    columns = (call.arguments[k] for k in ("kernel", "stride", "dilation"))
    return [
        (-(-n // s) - 1) * s + d * (k - 1) + 1 - n
        for n, k, s, d in zip(call.pooled, *columns, strict=True)
    ]
