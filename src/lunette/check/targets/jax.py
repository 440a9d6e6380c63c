"""JAX on the CPU: `lax.reduce_window`, `lax.conv_general_dilated` and the reductions of `jnp`."""

from __future__ import annotations

from typing import Any

import numpy as np

from lunette.check.calls import Array, Call, NotOffered
from lunette.check.targets.base import Program, Target

__all__ = ["Jax"]


class Jax(Target):
    """JAX in 64-bit mode, so that float64 and int64 stay what they are."""

    name = "jax"
    modules = ("jax",)
    distributions = ("jax", "jaxlib")
    about = "JAX on the CPU: lax.reduce_window, jnp.max, jnp.mean, logsumexp, lax.conv"
    verbs = ("forward", "jvp", "vjp")
    layouts = ("contiguous",)
    cases = 200
    seconds = 30.0
    environment = {"JAX_PLATFORMS": "cpu"}  # noqa: RUF012
    unsupported = ("not supported", "does not accept dtype")
    policies = {  # noqa: RUF012
        "empty window": "lax.reduce_window: a window of padding alone is init_value",
        "sign of zero": "lax.max: IEEE comparison, under which −0 and +0 are equal",
        "half accumulation": "lax.reduce_window reduces in the operand's dtype",
        "negative padding": "lax.reduce_window and lax.conv: negative padding crops (XLA semantics)",
        "which NaN": "lax.max propagates NaN; the documentation names no winner among several",
        "NaN derivative": "neither lax.reduce_window nor jnp.max says who gets the gradient of a NaN",
        "a window longer than the padded input": "XLA: a window that does not fit gives no output",
        "a kernel past": "XLA: a window that does not fit gives no output",
        "a pooled axis of length zero": "jnp.mean and logsumexp reduce empty axes as NumPy does",
        "denormals": "XLA's CPU code flushes subnormal numbers to zero",
    }

    def program(self, call: Call) -> Program:
        setup = (
            "import jax\nimport jax.numpy as jnp\nfrom jax import lax\n"
            "jax.config.update('jax_enable_x64', True)"
        )
        operands = [n for n in ("x", "weight", "bias") if n in call.arrays()]
        names = ", ".join(operands)
        expression = self.expression(call)
        if call.verb == "forward":
            return Program(setup, f"y = {expression}")
        body = f"f = lambda {names}: {expression}\n"
        if call.verb == "jvp":
            directions = ", ".join(f"d{n}" for n in operands)
            return Program(setup, f"{body}_, y = jax.jvp(f, ({names},), ({directions},))")
        return Program(setup, f"{body}_, pullback = jax.vjp(f, {names})\ny = pullback(gy)")

    def expression(self, call: Call) -> str:
        """The call in x, weight and bias."""
        arguments = call.arguments
        if call.op.startswith("global"):
            return self._global(call)
        if call.op == "conv":
            return self._convolution(call)
        if call.op == "conv-transpose":
            return self._transposed(call)
        if call.op not in ("max", "mean"):
            raise NotOffered(f"no {call.op}")
        if arguments["ceil_mode"]:
            raise NotOffered("ceil_mode")
        ones = (1,) * (call.x.ndim - call.rank)
        window, strides = ones + arguments["kernel"], ones + arguments["stride"]
        padding: Any = arguments["padding"]
        padding = repr("SAME") if padding == "same" else ((0, 0),) * len(ones) + padding
        more = f"{window}, {strides}, {padding}"
        if any(d != 1 for d in arguments["dilation"]):
            more += f", window_dilation={ones + arguments['dilation']}"
        if call.op == "max":
            if call.verb in ("jvp", "vjp") and arguments.get("ties", "first") != "first":
                raise NotOffered(f"ties={arguments['ties']!r}")
            lowest = {"f": "-jnp.inf", "b": "False"}.get(
                _kind(call.x), "x.dtype.type(jnp.iinfo(x.dtype).min)"
            )
            return f"lax.reduce_window(x, {lowest}, lax.max, {more})"
        if _kind(call.x) != "f":
            raise NotOffered("a mean of integers in float64")
        if arguments.get("divisor_override") is not None:
            raise NotOffered("divisor_override")
        if "count_include_pad" not in arguments:
            raise NotOffered("a default: the caller divides")
        total = f"lax.reduce_window(x, 0., lax.add, {more})"
        if arguments["count_include_pad"]:
            return f"{total} / {int(np.prod(arguments['kernel'], dtype=object))}"
        return f"{total} / lax.reduce_window(jnp.ones_like(x), 0., lax.add, {more})"

    def _global(self, call: Call) -> str:
        arguments = call.arguments
        axes, keepdims = tuple(range(-arguments["ndim"], 0)), arguments.get("keepdims", True)
        if call.op == "global-max":
            ties = arguments.get("ties", "all")
            if call.verb != "forward" and ties != "split":
                raise NotOffered(f"ties={ties!r}")
            return f"jnp.max(x, {axes}, keepdims={keepdims})"
        if _kind(call.x) != "f":
            raise NotOffered("a mean or smooth max of integers in float64")
        if call.op == "global-mean":
            return f"jnp.mean(x, {axes}, keepdims={keepdims})"
        if arguments["beta"] != 1:
            raise NotOffered("a beta other than 1")
        return f"jax.nn.logsumexp(x, {axes}, keepdims={keepdims})"

    def _convolution(self, call: Call) -> str:
        arguments = call.arguments
        if len(call.batch) != 1 and not call.bad:
            raise NotOffered("other than one leading axis")
        padding = arguments["padding"]
        padding = repr("SAME") if padding == "same" else padding
        more = f"{arguments['stride']}, {padding}, rhs_dilation={arguments['dilation']}"
        more += f", feature_group_count={arguments['groups']}"
        return f"lax.conv_general_dilated(x, weight, {more})" + _bias(call)

    def _transposed(self, call: Call) -> str:
        arguments = call.arguments
        if len(call.batch) != 1 or call.rank > 3:
            raise NotOffered("other than one leading axis and three dimensions")
        if arguments["groups"] != 1:
            raise NotOffered("groups of a transposed convolution")
        if call.bad:
            raise NotOffered(
                "padding and output_padding: lax.conv_transpose pads the dilated input"
            )
        columns = (arguments[k] for k in ("kernel", "padding", "dilation", "output_padding"))
        padding = tuple(
            (d * (k - 1) - before, d * (k - 1) - after + extra)
            for k, (before, after), d, extra in zip(*columns, strict=True)
        )
        letters = "DHW"[3 - call.rank :]
        numbers = f"('NC{letters}', 'OI{letters}', 'NC{letters}')"
        return (
            f"lax.conv_transpose(x, weight, {arguments['stride']}, {padding}, "
            f"rhs_dilation={arguments['dilation']}, dimension_numbers={numbers}, "
            "transpose_kernel=True)" + _bias(call)
        )

    def literal(self, name: str, a: Array, layout: str) -> list[str]:
        lines = super().literal(name, a, layout)
        return [line.replace("np.", "jnp.").replace("ml_dtypes.", "jnp.") for line in lines]

    def bind(self, name: str, a: Array, layout: str) -> Any:
        import jax.numpy as jnp

        return jnp.asarray(a)


def _bias(call: Call) -> str:
    if len(call.operands) < 3:
        return ""
    return f" + bias[:, {', '.join(['None'] * call.rank)}]"


def _kind(x: Array) -> str:
    return "f" if x.dtype.name == "bfloat16" else x.dtype.kind
