"""What the kernels ask of Triton and of tensors, and what to do where it is missing."""

from __future__ import annotations

from typing import Any

from lunette.kernels.triton.arrays import DESCRIBED

__all__ = ["OLDEST", "check_tensors", "check_triton"]

OLDEST = (3, 3)


def check_triton() -> None:
    """An ImportError that names the remedy where Triton is missing or too old."""
    remedy = f"pip install 'triton>={OLDEST[0]}.{OLDEST[1]}'"
    try:
        import triton
    except ImportError as error:
        raise ImportError(f"pooling on a GPU needs Triton: {remedy}") from error
    if tuple(int(part) for part in triton.__version__.split(".")[:2]) < OLDEST:
        raise ImportError(f"Triton {triton.__version__} is too old for these kernels: {remedy}")


def check_tensors(x: Any, **others: Any) -> None:
    """A TypeError or ValueError for tensors that no launch may touch."""
    if x.device == DESCRIBED:
        return  # who describes arrays knows where they will be
    import torch

    for name, tensor in {"x": x, **others}.items():
        if tensor.layout != torch.strided or tensor.is_quantized:
            kind = "quantised" if tensor.is_quantized else str(tensor.layout)
            raise TypeError(
                f"{name} is {kind}: expected a dense tensor; call .dequantize() or .to_dense() first"
            )
        if tensor.device != x.device:
            raise ValueError(
                f"{name} is on {tensor.device} and x on {x.device}: expected one device; "
                f"move it with .to({str(x.device)!r})"
            )
    if x.device.type != "cuda" and not _interpreted():
        raise ValueError(
            f"x is on {x.device}: the Triton kernels need a CUDA device; move it with .to('cuda'), "
            "or set TRITON_INTERPRET=1 before Triton is imported to try them slowly on the CPU"
        )


def _interpreted() -> bool:
    import triton

    return bool(triton.knobs.runtime.interpret)
