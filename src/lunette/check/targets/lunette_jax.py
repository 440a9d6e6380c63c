"""Our ops on JAX arrays, through the library's front door, compiled by `jax.jit`."""

from __future__ import annotations

from typing import Any

from lunette.check.calls import Array, Call, NotOffered
from lunette.check.targets.base import Program, Target
from lunette.check.targets.ours import op_text

__all__ = ["LunetteJax"]

SETUP = (
    "import jax\nimport jax.numpy as jnp\nimport lunette as ln\nfrom lunette import dispatch\n"
    "jax.config.update('jax_enable_x64', True)"
)


class LunetteJax(Target):
    """`lunette.jax` in 64-bit mode, on the CPU."""

    name = "lunette-jax"
    modules = ("jax",)
    distributions = ("jax", "jaxlib", "numba")
    about = "Lunette's ops on JAX arrays, under jax.jit on the CPU"
    layouts = ("contiguous",)
    complete = True
    cases = 400
    seconds = 60.0  # the first call of a kind compiles
    environment = {"JAX_PLATFORMS": "cpu"}  # noqa: RUF012
    policies = {  # noqa: RUF012
        "denormals": "XLA's convolutions flush subnormal numbers to zero; pooling keeps them",
        "half accumulation": "convolutions of halves are XLA's",
    }

    def versions(self) -> dict[str, str]:
        from lunette import __version__

        return {"lunette": __version__, **super().versions()}

    def program(self, call: Call) -> Program:
        if call.op == "unpool":
            size = call.arguments["output_size"]
            return Program(SETUP, f"y = ln.max_unpool(values, indices, {size})")
        names = [n for n in ("x", "weight", "bias") if n in call.arrays()]
        operands = ", ".join(names)
        tangents = ", ".join(f"d{n}" for n in names)
        body = {
            "forward": f"y = jax.jit(op)({operands})",
            "indices": f"y = jax.jit(lambda x: dispatch.forward_with_indices(op, x))({operands})[1]",
            "jvp": f"y = jax.jit(lambda x, dx: op.jvp(x, dx))(({operands},), ({tangents},))",
            "vjp": f"y = jax.jit(lambda x, gy: op.vjp(x, gy))(({operands},), gy)",
        }[call.verb]
        return Program(SETUP, f"op = {op_text(call)}\n{body}")

    def literal(self, name: str, a: Array, layout: str) -> list[str]:
        return [*super().literal(name, a, layout), f"{name} = jnp.asarray({name})"]

    def bind(self, name: str, a: Array, layout: str) -> Any:
        if a.dtype.kind == "O":
            raise NotOffered("objects")
        import jax
        import jax.numpy as jnp

        jax.config.update("jax_enable_x64", True)
        return jnp.asarray(a)
