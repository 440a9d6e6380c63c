"""cuDNN's pooling through ctypes: a peer that torch does not call."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

KINDS = {torch.float32: 0, torch.float16: 2, torch.bfloat16: 9}
MODES = {"max": 0, "mean": 1}  # mean: padding counts


def library() -> Any:
    """libcudnn as torch ships it."""
    import nvidia.cudnn

    folder = Path(next(iter(nvidia.cudnn.__path__))) / "lib"
    found = sorted(folder.glob("libcudnn.so*"))
    return ctypes.CDLL(str(found[0]))


def pooling(
    x: Any, y: Any, mode: str, kernel: int, stride: int, padding: int
) -> Callable[[], None]:
    """A call that pools `x` into a tensor like `y`; a RuntimeError where cuDNN refuses."""
    cudnn = library()

    def call(name: str, *arguments: Any) -> None:
        status = getattr(cudnn, name)(*arguments)
        if status:
            raise RuntimeError(f"{name} returned {status}")

    handle, window, source, target = (ctypes.c_void_p() for _ in range(4))
    call("cudnnCreate", ctypes.byref(handle))
    stream = torch.cuda.current_stream().cuda_stream
    call("cudnnSetStream", handle, ctypes.c_void_p(stream))
    call("cudnnCreatePoolingDescriptor", ctypes.byref(window))
    call(
        "cudnnSetPooling2dDescriptor",
        window,
        MODES[mode],
        1,
        *(kernel,) * 2,
        *(padding,) * 2,
        *(stride,) * 2,
    )
    for descriptor, tensor in ((source, x), (target, y)):
        call("cudnnCreateTensorDescriptor", ctypes.byref(descriptor))
        call("cudnnSetTensor4dDescriptor", descriptor, 0, KINDS[x.dtype], *tensor.shape)
    out = torch.empty_like(y)
    one, zero = ctypes.c_float(1), ctypes.c_float(0)

    def run() -> None:
        call(
            "cudnnPoolingForward", handle, window, ctypes.byref(one), source,
            ctypes.c_void_p(x.data_ptr()), ctypes.byref(zero), target,
            ctypes.c_void_p(out.data_ptr()),
        )  # fmt: skip

    run()
    return run
