"""OpenCV: `dilate` and `boxFilter`, two-dimensional filters with stride one."""

from __future__ import annotations

from lunette.check.calls import Call, NotOffered
from lunette.check.geometry import Geometry
from lunette.check.targets.base import Program, Target, keep_shape

__all__ = ["OpenCV"]


class OpenCV(Target):
    """One image at a time: no batch axes."""

    name = "opencv"
    modules = ("cv2",)
    distributions = ("opencv-python-headless", "opencv-python", "numpy")
    about = "cv2.dilate and cv2.boxFilter"
    ops = ("max", "mean")
    verbs = ("forward",)
    dtypes = ("float32", "float64", "uint8", "uint16", "int16")
    layouts = ("contiguous", "strided", "offset", "transposed", "negative")
    cases = 600
    unsupported = ()
    policies = {  # noqa: RUF012
        "sign of zero": "the documentation of dilate says nothing of −0",
        "NaN undefined": "the documentation of the image filters says nothing of NaN",
        "running sums": "the documentation of boxFilter names no order of summation",
        "lowest padding": "morphologyDefaultBorderValue: transformed to −DBL_MAX for dilation",
    }

    def fit(self, geometry: Geometry) -> Geometry:
        return keep_shape(geometry, ())

    def program(self, call: Call) -> Program:
        arguments = call.arguments
        if call.rank != 2 or any(n != 1 for n in call.batch):
            raise NotOffered("other than one image of two axes")
        if call.bad:
            raise NotOffered("strides, padding and dilation in numbers")
        if any(s != 1 for s in arguments["stride"]):
            raise NotOffered("strides")
        if any(d != 1 for d in arguments["dilation"]):
            raise NotOffered("dilation")
        padding = arguments["padding"]
        if padding == "same":
            padding = [((k - 1) // 2, k - 1 - (k - 1) // 2) for k in arguments["kernel"]]
        if any(b + a != k - 1 for (b, a), k in zip(padding, arguments["kernel"], strict=True)):
            raise NotOffered("an output of another length than the input")
        (top, _), (left, _) = padding
        height, width = arguments["kernel"]
        image = f"x.reshape{call.pooled}" if call.batch else "x"
        back = f".reshape{call.x.shape}" if call.batch else ""
        setup = "import numpy as np\nimport cv2"
        if call.op == "max":
            window = f"np.ones(({height}, {width}), np.uint8)"
            return Program(
                setup, f"y = cv2.dilate({image}, {window}, anchor=({left}, {top})){back}"
            )
        if not arguments.get("count_include_pad", True) and any(b + a for b, a in padding):
            raise NotOffered("padding that does not count")
        if arguments.get("divisor_override") is not None:
            raise NotOffered("divisor_override")
        depth = "-1" if call.x.dtype.kind == "f" else "cv2.CV_64F"
        more = f"anchor=({left}, {top}), borderType=cv2.BORDER_CONSTANT"
        return Program(
            setup, f"y = cv2.boxFilter({image}, {depth}, ({width}, {height}), {more}){back}"
        )
