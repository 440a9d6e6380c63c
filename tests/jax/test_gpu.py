"""Programs for CUDA, made where no GPU is: what is called, with what, and what is said where something is missing.

JAX's launcher is a stand-in that writes down what it is given. That the launches have the right bits is tested in `tests/triton`.
"""

import jax
import jax.numpy as jnp
import pytest

import lunette as ln

from .child import run

FAKE = """
import json, re, sys, zlib
sys.modules["torch"] = None  # nothing here may want it
import jaxlib.gpu_triton as extension

class Kernel:
    "arg6: int, /"
    def __init__(self, *about):
        self.about = about
    __init__.__doc__ = "arg6: int, /"

class Call:
    def __init__(self, kernel, *rest):
        self.kernel, self.grid, self.parameters = kernel, rest[:3], rest[3]
    def to_proto(self, name, more):
        sent.append((name, self.kernel.about, self.grid, self.parameters))
        return json.dumps(sent[-1]).encode()

sent = []
extension.TritonKernel, extension.TritonKernelCall = Kernel, Call
extension.create_array_parameter = lambda zeros, divisible: ["array", zeros, divisible]
extension.create_scalar_parameter = lambda value, kind: [kind, value]

def program(f, *shapes):
    sent.clear()
    text = jax.jit(f).trace(*shapes).lower(lowering_platforms=("cuda",)).as_text()
    return re.findall(r"@triton_kernel_call_ffi\\((.*?)\\).*? : \\((.*?)\\) -> \\(?(.*?)\\)?\\n", text), text
"""


def test_a_program_for_cuda(tmp_path):
    """The gradient of a max: one call gives offsets, the next reads them; heads have arrays first, and no place of a source."""
    pytest.importorskip("triton")
    run(
        FAKE
        + """
op = ln.MaxPool((3, 3), 2, 1)
x = jax.ShapeDtypeStruct((2, 3, 9, 8), jnp.float32)
calls, text = program(jax.grad(lambda x: op(x).sum()), x)
assert [types for _, types, _ in calls] == ["tensor<2x3x9x8xf32>", "tensor<2x3x5x4xf32>, tensor<2x3x5x4xui8>"], text
assert [types for *_, types in calls] == ["tensor<2x3x5x4xf32>, tensor<2x3x5x4xui8>", "tensor<2x3x9x8xf32>"], text
for name, (kernel, warps, ctas, shared, code, _, capability), grid, parameters in sent:
    assert (name, ctas, capability) == (f"lunette_{kernel}", 1, 90) and warps * 32 == int(re.search(r"reqntid (\\d+)", code)[1])
    head = re.search(rf"entry {kernel}\\((.*?)\\)", code, re.S)[1].split(",")
    assert len(head) == len(parameters), head
    kinds = {"array": ".u64 .ptr", "i32": ".u32", "i64": ".u64", "fp32": ".f32"}
    assert all(f".param {kinds[kind]}" in line for line, (kind, *_) in zip(head, parameters)), head
    numbers = [kind for kind, *_ in parameters]
    assert numbers[:3] == ["array"] * 3 and "array" not in numbers[3:]
    assert all(f"[{line.split()[-1]}]" in code for line in head)
    assert ".py" not in code and ".loc" not in code and ".debug" not in code

# With channels last, integers, and positions of 32 bits.
import lunette.jax
calls, text = program(lambda x: lunette.jax.apply_with_indices(op, x, channels_last=True), x)
assert "tensor<2x2x5x8xi32>" in text.split("return")[-1] and "transpose" not in text
calls, text = program(ln.AvgPool((2, 2)), jax.ShapeDtypeStruct((2, 4, 4), jnp.int32))
assert calls[0][1:] == ("tensor<2x4x4xf64>", "tensor<2x2x2xf64>") and "-> (tensor<2x2x2xf32>" in text, text
before = len(sent)
program(jax.vmap(op), jax.ShapeDtypeStruct((0, 3, 9, 8), jnp.float32))
assert not sent  # no windows, no launch

for what, shape, words in (
    (ln.MinPool((2, 2)), (4, 4), "on 'cuda', refused by the Triton kernels: serves max, mean and smooth max, not Min"),
    (op, jax.export.symbolic_shape("a, 9, 8"), "made for shapes of numbers; got (a, 9, 8)"),
):
    try:
        program(what, jax.ShapeDtypeStruct(shape, jnp.float32))
    except NotImplementedError as error:
        assert words in str(error) and "backend='spec'" in str(error), error
    else:
        raise AssertionError("no error")
""",
        LUNETTE_CUDA_CAPABILITY="90",
        TRITON_CACHE_DIR=str(tmp_path),
        TRITON_INTERPRET="0",
    )


def test_a_missing_launcher_is_named():
    """It comes with JAX's CUDA plugin, which is not among what these tests install."""
    from jaxlib import gpu_triton

    if hasattr(gpu_triton, "TritonKernelCall"):
        pytest.skip("the plugin is here")
    lowered = jax.jit(ln.MaxPool((2, 2))).trace(jnp.zeros((4, 4)))
    with pytest.raises(ImportError, match=r"JAX's CUDA plugin.*pip install 'jax\[cuda12\]'"):
        lowered.lower(lowering_platforms=("cuda",))
