"""Convolution of tensors by our kernels: torch's numbers, every derivative, the same bits in every mode, and where the rule says so."""

import copy

import pytest
import torch
from torch import nn
from torch.autograd import gradcheck, gradgradcheck

import lunette as ln
import lunette.torch as lt
from lunette.torch.convolution_operators import conv, settings_of
from lunette.torch.speed import GRADIENTS, VALUE, is_ours

OPS = {
    "plain": (ln.Conv((3, 2), padding=1), (2, 2, 5, 4), 3),
    "strided": (ln.Conv((3,), stride=2, padding=2, dilation=2), (2, 2, 9), 2),
    "uneven": (ln.Conv((2, 2), padding=((1, 0), (0, 2))), (1, 2, 4, 3), 2),
    "depthwise": (ln.Conv((3, 3), padding=1, groups=4), (2, 4, 4, 4), 4),
    "volume": (ln.Conv((2, 2, 1), padding=((1, 1), (1, 1), (0, 0))), (1, 2, 3, 3, 2), 2),
    "batches": (ln.Conv((2,)), (2, 3, 2, 5), 2),
}
WAYS = [VALUE, GRADIENTS, VALUE + GRADIENTS]


def operands(name, dtype=torch.float64):
    op, shape, rows = OPS[name]
    generator = torch.Generator().manual_seed(7)
    x = torch.randn(shape, generator=generator, dtype=dtype)
    weight = torch.randn(
        rows, shape[-op.rank - 1] // op.groups, *op.kernel, generator=generator, dtype=dtype
    )
    return op, x, weight, torch.randn(rows, generator=generator, dtype=dtype)


def ours(op, ways):
    return lambda x, w, b=None: conv(x, w, b, *settings_of(op, x.shape[-op.rank :], ways))


@pytest.mark.parametrize("ways", WAYS)
@pytest.mark.parametrize("name", OPS)
def test_value_and_all_derivatives(name, ways):
    op, *tensors = operands(name)
    run = ours(op, ways)
    expected = ln.forward(op, *tensors, backend="spec")
    torch.testing.assert_close(run(*tensors), expected, rtol=1e-12, atol=1e-12)
    leaves = [t.clone().requires_grad_() for t in tensors]
    assert gradcheck(run, leaves, check_forward_ad=True, fast_mode=True)
    assert gradgradcheck(run, leaves, fast_mode=True)
    grad = torch.randn_like(expected)
    found = torch.autograd.grad(run(*leaves), leaves, grad)
    exact = ln.vjp(op, tuple(tensors), grad, backend="spec")
    for a, b in zip(found, exact, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("name", OPS)
def test_the_same_bits_in_every_mode(name):
    op, x, weight, bias = operands(name, torch.float32)
    run = ours(op, VALUE + GRADIENTS)
    y = run(x, weight, bias)
    compiled = torch.compile(run, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(x, weight, bias), y)
    many = torch.stack([x, 2 * x, x.flip(-1)])
    each = torch.stack([run(m, weight, bias) for m in many])
    assert torch.equal(torch.func.vmap(run, (0, None, None))(many, weight, bias), each)
    weights = torch.stack([weight, -weight])
    each = torch.stack([run(x, w, bias) for w in weights])
    assert torch.equal(torch.func.vmap(run, (None, 0, None))(x, weights, bias), each)

    def loss(x, weight, bias):
        return (run(x, weight, bias) * y).sum()

    leaves = [t.clone().requires_grad_() for t in (x, weight, bias)]
    eager = torch.autograd.grad(loss(*leaves), leaves)
    func = torch.func.grad(loss, (0, 1, 2))(x, weight, bias)
    below = torch.compile(loss, backend="aot_eager")
    traced = torch.autograd.grad(below(*leaves), leaves)
    for a, b, c in zip(eager, func, traced, strict=True):
        assert torch.equal(a, b)
        assert torch.equal(a, c)
    per_sample = torch.func.vmap(torch.func.grad(loss), (0, None, None))(many, weight, bias)
    one_by_one = [torch.func.grad(loss)(m, weight, bias) for m in many]
    assert torch.equal(per_sample, torch.stack(one_by_one))
    _, tangent = torch.func.jvp(run, (x, weight, bias), (x, weight, bias))
    wanted = run(x, weight) + run(x, weight) + bias.reshape(-1, *(1,) * op.rank)
    torch.testing.assert_close(tangent, wanted)
    _, only = torch.func.jvp(lambda b: run(x, weight, b), (bias,), (bias,))
    assert only.shape == y.shape
    assert torch.equal(only, bias.reshape(-1, *(1,) * op.rank).expand(y.shape))


RULE = [
    (ln.Conv((3, 3, 3), padding=1), (1, 32, 24, 24, 24), 32, VALUE + GRADIENTS),
    (ln.Conv((3, 3, 3), padding=1), (4, 32, 24, 24, 24), 32, 0),
    (ln.Conv((3, 3, 3), stride=2, padding=1), (1, 32, 24, 24, 24), 32, 0),
    (ln.Conv((3, 3, 3), padding=1), (1, 32, 3, 3, 3), 32, 0),
    (ln.Conv((1, 1, 1)), (1, 512, 16, 16, 16), 512, 0),
    (ln.Conv((3, 1, 1), padding=((1, 1), (0, 0), (0, 0))), (4, 64, 8, 28, 28), 64, VALUE + GRADIENTS),
    (ln.Conv((7, 7, 7), stride=2, padding=3), (2, 1, 16, 64, 64), 16, GRADIENTS),
    (ln.Conv((15,), padding=7, groups=256), (1, 256, 500), 256, VALUE + GRADIENTS),
    (ln.Conv((3,), padding=1, groups=256), (1, 256, 500), 256, 0),
    (ln.Conv((5, 5), padding=2, groups=96), (4, 96, 28, 28), 96, GRADIENTS),
    (ln.Conv((3, 3), padding=1, groups=96), (4, 96, 28, 28), 96, 0),
    (ln.Conv((3, 3), padding=1), (8, 128, 28, 28), 128, 0),
    (ln.Conv((3, 3), padding=1), (0, 128, 28, 28), 128, 0),
    (ln.Conv((2, 2, 2, 2)), (1, 2, 4, 4, 4, 4), 2, VALUE + GRADIENTS),
]  # fmt: skip


@pytest.mark.parametrize(("op", "shape", "rows", "expected"), RULE)
def test_the_rule(op, shape, rows, expected):
    x = torch.empty(shape)
    weight = torch.empty(rows, shape[-op.rank - 1] // op.groups, *op.kernel)
    assert is_ours(op, x, weight) == expected
    assert is_ours(op, x.double(), weight.double()) == (expected if op.rank > 3 else 0)
    assert is_ours(op, x.bfloat16(), weight.bfloat16(), True) == 0
    assert is_ours(op, x, weight, True) == VALUE + GRADIENTS
    assert is_ours(op, torch.empty(shape, device="meta"), weight, True) == 0
    with torch.autocast("cpu", torch.bfloat16):
        assert is_ours(op, x, weight) == 0


def test_dynamic_shapes_take_the_same_way():
    op = ln.Conv((7,), padding=3, groups=64)
    weight = torch.randn(64, 1, 7)
    compiled = torch.compile(lambda x: op(x, weight), dynamic=True, backend="aot_eager")
    for n in (3000, 3500, 100):
        x = torch.randn(1, 64, n)
        assert torch.equal(compiled(x), op(x, weight))


# -- the module --


@pytest.mark.parametrize("always", [False, True])
@pytest.mark.parametrize(
    "theirs",
    [
        nn.Conv1d(4, 6, 3, padding=1, groups=2),
        nn.Conv2d(2, 3, (3, 2), stride=2, padding="valid", bias=False),
        nn.Conv2d(2, 3, (4, 3), padding="same", dilation=(1, 2)),
        nn.Conv3d(2, 3, 3, padding=1),
    ],
)
def test_modules_take_the_place_of_torchs(theirs, always):
    theirs = copy.deepcopy(theirs)  # it keeps its gradients
    rank = theirs.weight.ndim - 2
    model = nn.Sequential(theirs, nn.ReLU())
    before = copy.deepcopy(model)
    report = lt.replace(model, "always" if always else "faster", convolutions=True)
    assert [type(c.after) for c in report.replaced] == [lt.nn.Conv]
    assert model[0].weight is theirs.weight
    assert model[0].always is always
    x = torch.randn(2, theirs.in_channels, *(8, 7, 6)[:rank])
    torch.testing.assert_close(model(x), before(x), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(model(x[0]), before(x[0]), rtol=1e-4, atol=1e-5)
    assert model.state_dict().keys() == before.state_dict().keys()
    model(x).sum().backward()
    before(x).sum().backward()
    torch.testing.assert_close(model[0].weight.grad, before[0].weight.grad, rtol=1e-4, atol=1e-4)
    lt.restore(model)
    assert model[0] is theirs


def test_convolutions_stay_unless_asked_for_and_where_ours_would_differ():
    model = nn.Sequential(nn.Conv2d(2, 3, 3), nn.Conv2d(3, 3, 3, padding=1, padding_mode="reflect"))
    assert not lt.replace(model).changes
    report = lt.replace(model, convolutions=True)
    assert len(report.replaced) == 1
    assert "padding_mode is 'reflect'" in str(report)


def test_a_module_of_its_own():
    torch.manual_seed(0)
    module = lt.nn.Conv(4, 6, (3, 3, 3), padding=1, groups=2)
    theirs = nn.Conv3d(4, 6, 3, padding=1, groups=2)
    theirs.load_state_dict(module.state_dict())
    x = torch.randn(1, 4, 5, 5, 5)
    torch.testing.assert_close(module(x), theirs(x))
    assert repr(module) == "Conv(4, 6, (3, 3, 3), padding=1, groups=2)"
    assert "bias=False" in repr(lt.nn.Conv(1, 1, (2,), bias=False))
    assert module.weight.abs().max() <= 1 / (2 * 27) ** 0.5
    with pytest.raises(ValueError, match="multiples of groups=3"):
        lt.nn.Conv(4, 6, (3,), groups=3)
    with pytest.raises(TypeError, match="x is a list; expected a torch tensor"):
        module([1.0])
