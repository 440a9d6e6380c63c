"""PyTorch on the CPU: `torch.nn.functional`, run as it is or through `torch.compile`."""

from __future__ import annotations

from typing import Any

import numpy as np

from lunette.check.calls import Array, Call, NotOffered
from lunette.check.inputs import in_layout
from lunette.check.targets.base import Program, Target, array_literal

__all__ = ["Torch", "TorchCompile"]

MAX_DOCS = "torch.nn.MaxPool2d: padding is implicit negative infinity"


class Torch(Target):
    """Eager PyTorch."""

    name = "torch"
    modules: tuple[str, ...] = ("torch",)
    distributions: tuple[str, ...] = ("torch",)
    about = "PyTorch eager on the CPU: torch.nn.functional, torch.amax, mean, logsumexp"
    dtypes = (
        "float32", "float64", "float16", "bfloat16", "int8", "uint8", "int16", "int32", "int64",
        "bool",
    )  # fmt: skip
    layouts = ("contiguous", "strided", "offset", "transposed", "channels last")
    cases = 2500
    seconds = 10.0
    unsupported: tuple[str, ...] = (
        "not implemented for",
        "not supported",
        "must be either floating",
    )
    policies = {  # noqa: RUF012
        "empty window": MAX_DOCS + ", so a window of padding alone is −inf",
        "sign of zero": "IEEE 754 comparison, which torch.maximum follows: −0 and +0 are equal",
        "a pooled axis of length zero": "torch.mean and torch.logsumexp reduce empty axes as NumPy does",
        "which NaN": "the documentation of max pooling names no winner among several NaNs",
        "NaN derivative": "torch.amax: the gradient goes to cells equal to the result; NaN equals none",
        "half accumulation": "torch's notes on numerical accuracy: reduced-precision reductions of halves",
    }

    def program(self, call: Call) -> Program:
        setup = "import torch\nimport torch.nn.functional as F"
        expression = self.expression(call)
        operands = [n for n in ("x", "weight", "bias") if n in call.arrays()]
        if call.verb == "jvp":
            names = ", ".join(operands)
            directions = ", ".join(f"d{n}" for n in operands)
            body = (
                f"f = lambda {names}: {expression}\n"
                f"_, y = torch.func.jvp(f, ({names},), ({directions},))"
            )
        elif call.verb == "vjp":
            need = "\n".join(f"{n}.requires_grad_()" for n in operands)
            body = f"{need}\nz = {expression}\ny = torch.autograd.grad(z, ({', '.join(operands)},), gy)"
        elif call.verb == "indices":
            body = f"_, y = {expression}"
        else:
            body = f"y = {expression}"
        return Program(setup, body)

    # -- one expression per op --

    def expression(self, call: Call) -> str:
        """The call in x, weight and bias."""
        if call.rank > 3 and not call.op.startswith("global"):
            raise NotOffered("more than three pooled axes")
        arguments = call.arguments
        if call.op.startswith("global"):
            return self._global(call)
        if call.op == "unpool":
            return self._unpool(call)
        if call.op.startswith("conv"):
            return self._convolution(call)
        if len(call.batch) not in (1, 2) and not call.bad:
            raise NotOffered("other than one or two leading axes")
        _check_ties(call, "first")
        rank = call.rank
        if call.op == "adaptive-max":
            more = ", return_indices=True" if call.verb == "indices" else ""
            return f"F.adaptive_max_pool{rank}d(x, {arguments['output_size']}{more})"
        if call.op == "adaptive-mean":
            _check_float(call)
            return f"F.adaptive_avg_pool{rank}d(x, {arguments['output_size']})"
        if call.op == "smooth-max":
            raise NotOffered("smooth max over windows")
        padding = _symmetric(call, arguments["padding"])
        kernel, stride = arguments["kernel"], arguments["stride"]
        _check_half(call, padding, kernel)
        text = f"x, {kernel}, {stride}, {padding}"
        if call.op == "max":
            text += f", {arguments['dilation']}, ceil_mode={arguments['ceil_mode']}"
            more = ", return_indices=True" if call.verb == "indices" else ""
            return f"F.max_pool{rank}d({text}{more})"
        _check_float(call)
        if any(d != 1 for d in arguments["dilation"]):
            raise NotOffered("dilation of a mean")
        text += f", ceil_mode={arguments['ceil_mode']}"
        if "count_include_pad" in arguments:
            text += f", count_include_pad={arguments['count_include_pad']}"
        if arguments.get("divisor_override") is not None:
            if rank == 1:
                raise NotOffered("divisor_override in one dimension")
            text += f", divisor_override={arguments['divisor_override']}"
        return f"F.avg_pool{rank}d({text})"

    def _global(self, call: Call) -> str:
        arguments = call.arguments
        axes, keepdim = tuple(range(-arguments["ndim"], 0)), arguments.get("keepdims", True)
        if call.op == "global-mean":
            _check_float(call)
            return f"torch.mean(x, {axes}, keepdim={keepdim})"
        if call.op == "global-smooth-max":
            _check_float(call)
            if arguments["beta"] != 1:
                raise NotOffered("a beta other than 1")
            return f"torch.logsumexp(x, {axes}, keepdim={keepdim})"
        if arguments["ndim"] == 1 and (call.verb == "indices" or arguments.get("ties") == "first"):
            more = "" if call.verb == "indices" else ".values"
            return f"torch.max(x, -1, keepdim={keepdim}){more}"
        if call.verb == "indices":
            raise NotOffered("indices over several axes")
        _check_ties(call, "split")
        return f"torch.amax(x, {axes}, keepdim={keepdim})"

    def _convolution(self, call: Call) -> str:
        arguments = call.arguments
        if len(call.batch) > 1 and not call.bad:
            raise NotOffered("more than one leading axis")
        padding = arguments["padding"]
        if padding == "same":
            if any(s != 1 for s in arguments["stride"]):
                raise NotOffered("'same' with strides")
            padding = "'same'"
        else:
            padding = _symmetric(call, padding)
        bias = "bias" if len(call.operands) == 3 else "None"
        stride, dilation, groups = (arguments[k] for k in ("stride", "dilation", "groups"))
        if call.op == "conv":
            return (
                f"F.conv{call.rank}d(x, weight, {bias}, {stride}, {padding}, {dilation}, {groups})"
            )
        extra = arguments["output_padding"]
        return (
            f"F.conv_transpose{call.rank}d(x, weight, {bias}, {stride}, {padding}, {extra}, "
            f"{groups}, {dilation})"
        )

    def _unpool(self, call: Call) -> str:
        if len(call.batch) not in (1, 2):
            raise NotOffered("other than one or two leading axes")
        size = call.arguments["output_size"]
        kernel = tuple(max(1, round(m / n)) for m, n in zip(size, call.pooled, strict=True))
        return f"F.max_unpool{call.rank}d(values, indices, {kernel}, output_size={size})"

    # -- arrays --

    def literal(self, name: str, a: Array, layout: str) -> list[str]:
        lines = [f"{name} = {array_literal(a, 'torch.tensor', f'torch.{a.dtype.name}')}"]
        order = tuple(reversed(range(a.ndim)))
        axes = list(range(a.ndim))
        if layout == "channels last" and a.ndim > 1:
            there = [0, *axes[2:], 1]
            back = tuple(int(i) for i in np.argsort(there))
            lines.append(f"{name} = {name}.permute({tuple(there)}).contiguous().permute({back})")
        views = {
            "strided": f"{name}.repeat_interleave(2, -1)[..., ::2]",
            "offset": f"torch.cat([{name}.flatten()[:1], {name}.flatten()])[1:].view({name}.shape)",
            "transposed": f"{name}.permute({order}).contiguous().permute({order})",
        }
        return [*lines, f"{name} = {views[layout]}"] if layout in views else lines

    def bind(self, name: str, a: Array, layout: str) -> Any:
        import torch

        a = in_layout(a, layout)
        if a.dtype.name == "bfloat16":
            return torch.from_numpy(a.view(np.int16)).view(torch.bfloat16)
        return torch.from_numpy(a)

    def unbind(self, result: Any) -> list[Array]:
        several = isinstance(result, (tuple, list))
        return [_to_numpy(r) for r in (result if several else [result])]


def _to_numpy(tensor: Any) -> Array:
    import ml_dtypes
    import torch

    tensor = tensor.detach().contiguous()
    if tensor.dtype == torch.bfloat16:
        half: Array = tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
        return half
    array: Array = tensor.numpy()
    return array


def _symmetric(call: Call, padding: Any) -> tuple[int, ...]:
    if padding == "same" or any(before != after for before, after in padding):
        raise NotOffered("different padding before and after")
    return tuple(before for before, _ in padding)


def _check_half(call: Call, padding: Any, kernel: Any) -> None:
    for p, k in zip(padding, kernel, strict=True):
        if not call.bad and 2 * p > k:
            raise NotOffered("padding past half the kernel")


def _check_float(call: Call) -> None:
    if not call.dtype.startswith(("float", "bfloat")):
        raise NotOffered("a mean or smooth max of integers in float64")


def _check_ties(call: Call, offered: str) -> None:
    ties = call.arguments.get("ties", offered)
    if call.verb in ("jvp", "vjp") and ties != offered:
        raise NotOffered(f"ties={ties!r}")


class TorchCompile(Torch):
    """The same programs through `torch.compile` with its default backend."""

    name = "torch-compile"
    about = "PyTorch through torch.compile (inductor) on the CPU"
    cases = 80
    inputs = 2
    seconds = 180.0
    environment = {"TORCHINDUCTOR_COMPILE_THREADS": "1", "OMP_NUM_THREADS": "2"}  # noqa: RUF012

    def program(self, call: Call) -> Program:
        plain = super().program(call)
        names = ", ".join(n for n in call.arrays() if n != "gy" and (n[0] != "d"))
        setup = f"{plain.setup}\n"
        if call.verb == "jvp":
            directions = ", ".join(f"d{n}" for n in names.split(", "))
            setup += (
                f"def f({names}, {directions}):\n"
                f"    g = lambda {names}: {self.expression(call)}\n"
                f"    return torch.func.jvp(g, ({names},), ({directions},))[1]\n"
            )
            body = f"y = f({names}, {directions})"
        else:
            setup += f"def f({names}):\n    return {self.expression(call)}\n"
            body = plain.body.replace(self.expression(call), f"f({names})")
        setup += f"f = torch.compile(f, dynamic=False)  # {call.dtype}{list(call.x.shape)}"
        return Program(setup, body)

    def prepare(self) -> None:
        import torch

        torch.compiler.reset()
