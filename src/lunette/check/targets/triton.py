"""Our Triton kernels: on a GPU where there is one, else one element after another on the CPU."""

from __future__ import annotations

import importlib.util
import os
from typing import Any

import numpy as np

from lunette.check.calls import Array, Call, NotOffered
from lunette.check.targets.base import Program
from lunette.check.targets.ours import op_text
from lunette.check.targets.torch import Torch

__all__ = ["Triton"]

SETUP = """
import torch
import lunette as ln
from lunette.torch.library import dtype_of, triton_kernels
def serve(op, verb, x, *more):
    kernels = triton_kernels(op, verb, "triton", x)
    shapes, kinds = (tuple(x.shape),), (dtype_of(x.dtype),)
    for other in more:
        check = op.check_tangents if verb == "jvp" else op.check_gradient
        shape, kind = tuple(other.shape), dtype_of(other.dtype)
        check(shapes, kinds, *(((shape,), (kind,)) if verb == "jvp" else (shape, kind)))
    return getattr(kernels, verb)(op, (x,), *((more,) if verb == "jvp" else more))
"""


class Triton(Torch):
    """`lunette.kernels.triton` over torch tensors."""

    name = "triton"
    modules = ("torch", "triton")
    distributions = ("torch", "triton")
    about = "Lunette's own Triton kernels; interpreted where there is no GPU"
    ops = tuple(o for o in Torch.ops if o not in ("conv", "conv-transpose", "unpool"))
    complete = True
    cases = 250  # a new kernel takes half a second on a GPU, a call a sixth of one without
    seconds = 60.0
    policies = {}  # noqa: RUF012
    unsupported = ("backend 'triton'",)

    @property
    def environment(self) -> dict[str, str]:  # type: ignore[override]
        """Triton decides on its first import whether to interpret."""
        return {} if os.path.exists("/dev/nvidia0") else {"TRITON_INTERPRET": "1"}

    @property
    def memory(self) -> int:  # type: ignore[override]
        """A GPU's driver takes addresses, not memory, for all that it may ever map."""
        return Torch.memory if self.environment else 1 << 44

    def installed(self) -> bool:
        return (
            super().installed() and importlib.util.find_spec("lunette.kernels.triton") is not None
        )

    def versions(self) -> dict[str, str]:
        from lunette import __version__

        return {"lunette": __version__, **super().versions()}

    def program(self, call: Call) -> Program:
        if call.op not in self.ops:
            raise NotOffered(f"no {call.op}")
        if self.environment and call.dtype == "bfloat16" and not _survives(call):
            raise NotOffered(
                "bfloat16 that is rounded or subnormal: Triton's interpreter spoils it"
            )
        op = op_text(call)
        call_text = {
            "forward": "serve(op, 'forward', x)",
            "indices": "serve(op, 'forward_with_indices', x)[1]",
            "jvp": "serve(op, 'jvp', x, dx)",
            "vjp": "serve(op, 'vjp', x, gy)",
        }[call.verb]
        return Program(SETUP, f"op = {op}\ny = {call_text}")

    def warm(self) -> None:
        super().warm()
        import torch

        if not self.environment:
            torch.zeros(1, device="cuda")  # now, and with an error if that fails

    def bind(self, name: str, a: Array, layout: str) -> Any:
        tensor = super().bind(name, a, layout)
        return tensor if self.environment else tensor.cuda()

    def unbind(self, result: Any) -> list[Array]:
        several = isinstance(result, (tuple, list))
        return super().unbind([r.cpu() for r in (result if several else [result])])


def _survives(call: Call) -> bool:
    """Whether a call goes without roundings to bfloat16 and without its subnormal numbers.

    Triton 3.6's interpreter cuts off where a GPU rounds, and loses bits of subnormal numbers.
    """
    selects = call.op.endswith("max") and "smooth" not in call.op
    sizes = np.abs(call.x.astype(np.float32))
    return (
        selects
        and call.verb in ("forward", "indices")
        and not bool(((sizes > 0) & (sizes < 2.0**-126)).any())
    )
