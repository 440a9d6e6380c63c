"""`torch.compile` in one graph with symbolic shapes, and `torch.export` with files."""

import pytest
import torch
from torch import nn

import lunette as ln
import lunette.torch as lt
from tests.torch.cases import distinct


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def gradient_of(function, x):
    x = x.clone().requires_grad_()
    y = function(x)
    y.square().sum().backward()
    return y.detach(), x.grad


def network(x):
    x = ln.max_pool(x, (3, 3), stride=2, padding=1)
    x = ln.avg_pool(x.relu(), (2, 2), ceil_mode=True)
    x = ln.smooth_max_pool(x, (2, 2), beta=2.0, stride=1, padding="same")
    return ln.GlobalMaxPool(2, keepdims=False)(ln.AdaptiveAvgPool((2, 3))(x))


def test_one_graph_for_every_shape():
    compiled = torch.compile(network, fullgraph=True, dynamic=True, backend="aot_eager")
    for shape in [(2, 3, 12, 13), (3, 3, 17, 20), (2, 5, 15, 11)]:
        x = distinct(shape)
        with torch.compiler.set_stance(
            "default" if shape[0] == 2 and shape[1] == 3 else "fail_on_recompile"
        ):
            value, slope = gradient_of(compiled, x)
        expected, expected_slope = gradient_of(network, x)
        assert torch.equal(value, expected)
        assert torch.allclose(slope, expected_slope, rtol=1e-12)


def test_an_op_and_a_module_are_compiled_as_they_are():
    op, module = ln.MaxPool((2, 2)), lt.nn.SmoothMaxPool((2, 2), 2.0, learnable=True).double()
    x = distinct((1, 2, 6, 6))
    for function in (op.__call__, module):
        compiled = torch.compile(function, fullgraph=True, dynamic=True, backend="aot_eager")
        value, slope = gradient_of(compiled, x)
        expected, expected_slope = gradient_of(function, x)
        assert torch.equal(value, expected) and torch.allclose(slope, expected_slope)


def test_transforms_inside_a_compiled_function():
    op = ln.SmoothMaxPool((2,), 1.5)
    x = distinct((3, 4))

    def transforms(x):
        _, tangent = torch.func.jvp(op, (x,), (x,))
        slopes = torch.func.vmap(torch.func.grad(lambda x: op(x).pow(2).sum()))(x)
        return tangent, slopes

    compiled = torch.compile(transforms, fullgraph=True, backend="aot_eager")
    for a, b in zip(compiled(x), transforms(x), strict=True):
        assert torch.allclose(a, b, rtol=1e-12)


def test_inductor_compiles_a_training_step():
    module = torch.nn.Sequential(torch.nn.ReLU(), lt.nn.MaxPool((3, 3), 2, 1), torch.nn.Tanh())
    compiled = torch.compile(module, fullgraph=True)
    x = distinct((2, 3, 8, 8), torch.float32)
    for a, b in zip(gradient_of(compiled, x), gradient_of(module, x), strict=True):
        assert torch.allclose(a, b, rtol=1e-5, atol=1e-6)


def test_export_with_symbolic_shapes_and_a_file(tmp_path):
    module = torch.nn.Sequential(lt.nn.MaxPool((3, 3), 2, 1), lt.nn.AdaptiveAvgPool((2, 2)))
    x = distinct((2, 3, 9, 8), torch.float32)
    batch, height = torch.export.Dim("batch", min=1), torch.export.Dim("height", min=4)
    program = torch.export.export(module, (x,), dynamic_shapes=({0: batch, 2: height},))
    torch.export.save(program, tmp_path / "pool.pt2")
    loaded = torch.export.load(tmp_path / "pool.pt2").module()
    for shape in [(2, 3, 9, 8), (5, 3, 14, 8)]:
        x = distinct(shape, torch.float32)
        assert torch.equal(loaded(x), module(x))
    assert "MaxPool((3, 3), stride=2, padding=1)" in str(program)


@pytest.mark.full
@pytest.mark.parametrize("pool", [lt.nn.MaxPool((2, 2)), lt.nn.SmoothMaxPool((2, 2), 2.0)])
def test_inductor_hands_tensors_over_as_they_lie(pool):
    """The convolution that inductor takes has channels last: the pooling reads and writes them so, without a copy."""
    from torch._inductor.utils import run_and_get_code

    model = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), pool, nn.Conv2d(16, 8, 3))
    x = torch.randn(2, 3, 12, 12)
    with torch.no_grad():
        value, code = run_and_get_code(torch.compile(model, fullgraph=True), x)
        assert torch.allclose(value, model(x), atol=1e-5)
    assert value.is_contiguous()
    assert "(2, 16, 6, 6), (576, 1, 96, 16), 'torch.ops.lunette.pool.default'" in code[0]
