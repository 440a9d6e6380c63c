"""Modules of any rank, and torch's own pooling modules replaced in a model."""

import copy
import io

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import lunette as ln
import lunette.torch as lt
from tests.torch.cases import distinct


class Cnn(nn.Module):
    """A small CNN with torch's pooling in every place that models have it."""

    def __init__(self):
        super().__init__()
        shared = nn.MaxPool2d(2, ceil_mode=True)
        self.stem = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
        self.body = nn.ModuleDict({"a": nn.Conv2d(4, 4, 3), "pool": shared})
        self.again = shared
        self.mean = nn.AvgPool2d((2, 3), stride=1, padding=1, count_include_pad=False)
        self.norm = nn.LPPool2d(2, 2, stride=1)
        self.head = nn.Sequential(nn.AdaptiveMaxPool2d((None, 3)), nn.AdaptiveAvgPool2d(1))
        self.linear = nn.Linear(4, 2)

    def forward(self, x):
        x = self.body["pool"](self.body["a"](self.stem(x)))
        x = self.norm(self.mean(self.again(x)))
        return self.linear(self.head(x).flatten(1))


@pytest.fixture
def models():
    torch.manual_seed(0)
    before = Cnn().double()
    after = copy.deepcopy(before)
    return before, after, lt.replace(after)


def test_replace_says_what_it_did(models):
    _, after, report = models
    assert report.model is after
    assert [change.name for change in report.replaced] == [
        "stem.2",
        "body.pool",
        "again",
        "mean",
        "head.0",
        "head.1",
    ]
    (left,) = report.left
    assert left.name == "norm" and "a p-norm, which is no op of Lunette's own" in left.reason
    assert "left      norm: LPPool2d(" in str(report)
    assert "→ MaxPool((3, 3), stride=2, padding=1)" in str(report)
    assert after.again is after.body["pool"], "one module in two places stays one"
    kinds = {type(m) for m in after.modules()}
    assert not kinds & {nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveMaxPool2d, nn.AdaptiveAvgPool2d}


@pytest.mark.parametrize("channels_last", [False, True])
def test_replace_changes_neither_outputs_nor_gradients(models, channels_last):
    before, after, _ = models
    x = distinct((2, 3, 31, 29))
    if channels_last:
        x = x.to(memory_format=torch.channels_last)
    expected, value = before(x), after(x)
    assert torch.allclose(value, expected, rtol=1e-12, atol=1e-14)
    expected.square().sum().backward()
    value.square().sum().backward()
    for a, b in zip(after.parameters(), before.parameters(), strict=True):
        assert torch.allclose(a.grad, b.grad, rtol=1e-10, atol=1e-14)


TORCH_MODULES = [
    (nn.MaxPool1d(3, 2, padding=1), 1),
    (nn.MaxPool1d(2, dilation=2), 1),
    (nn.MaxPool2d((3, 2), (1, 2), return_indices=True), 2),
    (nn.MaxPool2d(3, 2, ceil_mode=True), 2),
    (nn.MaxPool3d(2, 1, 1, ceil_mode=True), 3),
    (nn.AvgPool1d(3, 2, 1, ceil_mode=True), 1),
    (nn.AvgPool2d(3, 2, 1, ceil_mode=True), 2),
    (nn.AvgPool2d(2, divisor_override=3), 2),
    (nn.AvgPool3d((1, 2, 3), 2, padding=(0, 1, 1), count_include_pad=False), 3),
    (nn.AdaptiveAvgPool1d(3), 1),
    (nn.AdaptiveAvgPool2d((None, 2)), 2),
    (nn.AdaptiveAvgPool3d((1, 2, 3)), 3),
    (nn.AdaptiveMaxPool1d(4, return_indices=True), 1),
    (nn.AdaptiveMaxPool2d((3, None)), 2),
    (nn.AdaptiveMaxPool3d(2), 3),
]


@pytest.mark.parametrize(("module", "rank"), TORCH_MODULES, ids=lambda m: repr(m)[:40])
def test_every_module_means_what_torchs_meant(module, rank):
    report = lt.replace(module)
    assert not report.left
    x = distinct((2, 3, *(7, 8, 6)[:rank]))
    expected, result = module(x), report.model(x)
    if isinstance(expected, tuple):
        assert torch.equal(result[1], expected[1])
        expected, result = expected[0], result[0]
    assert torch.allclose(result, expected, rtol=1e-12, atol=1e-15)
    assert report.model.training == module.training


def test_replace_leaves_what_means_something_else():
    class Own(nn.MaxPool2d):
        pass

    hooked = nn.MaxPool2d(2)
    hooked.register_forward_hook(lambda *_: None)
    model = nn.ModuleList(
        [
            Own(2),
            hooked,
            nn.MaxPool2d(2, padding=1, dilation=2),
            nn.FractionalMaxPool2d(2, output_size=2),
            nn.MaxUnpool2d(2),
            nn.AdaptiveAvgPool1d(0),
        ]
    )
    report = lt.replace(model)
    assert not report.replaced
    reasons = ["class of its own", "hooks", "no cell", "random", "unpools", "empty result"]
    for change, reason in zip(report.left, reasons, strict=True):
        assert reason in change.reason
    assert str(lt.replace(nn.Linear(2, 2))) == "no pooling modules"
    with pytest.raises(TypeError, match=r"expected a torch\.nn\.Module"):
        lt.replace("resnet")


MODULES = [
    (lt.nn.MaxPool((2, 2, 2, 2)), ln.MaxPool((2, 2, 2, 2)), (1, 4, 4, 2, 2)),
    (lt.nn.AvgPool((2,), padding="same"), ln.AvgPool((2,), padding="same"), (3, 5)),
    (lt.nn.SmoothMaxPool((2, 2), 2.0), ln.SmoothMaxPool((2, 2), 2.0), (1, 4, 4)),
    (lt.nn.AdaptiveAvgPool((2, 3)), ln.AdaptiveAvgPool((2, 3)), (1, 4, 4)),
    (lt.nn.AdaptiveMaxPool((2, 3), ties="all"), ln.AdaptiveMaxPool((2, 3), ties="all"), (1, 4, 4)),
    (lt.nn.GlobalAvgPool(2), ln.GlobalAvgPool(2), (1, 4, 4)),
    (lt.nn.GlobalMaxPool(3, keepdims=False), ln.GlobalMaxPool(3, keepdims=False), (2, 4, 2, 2)),
]


@pytest.mark.parametrize(("module", "op", "shape"), MODULES, ids=[repr(m) for m, _, _ in MODULES])
def test_a_module_is_its_op(module, op, shape):
    x = distinct(shape)
    assert module.op == op
    assert torch.equal(module(x), op(x))
    assert repr(module) == repr(op)
    assert torch.equal(copy.deepcopy(module)(x), op(x))
    assert not list(module.parameters())


def test_return_indices():
    x = distinct((1, 4, 4))
    values, indices = lt.nn.MaxPool((2, 2), return_indices=True)(x)
    expected = ln.max_pool(x, (2, 2), return_indices=True)
    assert torch.equal(values, expected[0]) and torch.equal(indices, expected[1])


def test_a_learned_beta_is_trained_saved_and_loaded():
    """Targets made with β = 3: gradient descent on β alone finds it."""
    x = distinct((4, 8), torch.float32)
    target = ln.SmoothMaxPool((4,), 3.0)(x)
    layer = lt.nn.SmoothMaxPool((4,), 1.0, learnable=True)
    optimiser = torch.optim.LBFGS(layer.parameters(), max_iter=50, line_search_fn="strong_wolfe")

    def loss():
        optimiser.zero_grad()
        error = (layer(x) - target).square().mean()
        error.backward()
        return error

    optimiser.step(loss)
    assert layer.beta.item() == pytest.approx(3.0, abs=0.02)
    file = io.BytesIO()
    torch.save(layer.state_dict(), file)
    file.seek(0)
    fresh = lt.nn.SmoothMaxPool((4,), 1.0, learnable=True)
    fresh.load_state_dict(torch.load(file))
    assert torch.equal(fresh(x), layer(x))
    assert "learnable=True" in repr(layer)


def test_a_beta_of_zero_is_refused():
    layer = lt.nn.SmoothMaxPool((2,), 1.0, learnable=True)
    with torch.no_grad():
        layer.beta.zero_()
    with pytest.raises(ValueError, match="beta"):
        layer(torch.ones(1, 4))


def test_checkpoint_recomputes_the_same():
    model = nn.Sequential(
        nn.Conv2d(1, 2, 3), lt.nn.MaxPool((2, 2)), lt.nn.SmoothMaxPool((2, 2), 1.0)
    )
    x = distinct((1, 1, 10, 10), torch.float32).requires_grad_()
    model(x).sum().backward()
    expected, x.grad = x.grad, None
    checkpoint(model, x, use_reentrant=False).sum().backward()
    assert torch.equal(x.grad, expected)


def test_autocast_pools_in_the_type_it_is_given():
    model = nn.Sequential(nn.Conv2d(1, 2, 3), lt.nn.MaxPool((2, 2)), lt.nn.AvgPool((2, 2)))
    x = distinct((1, 1, 10, 10), torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        y = model(x)
        assert lt.nn.MaxPool((2, 2))(x).dtype is torch.float32
    assert y.dtype is torch.bfloat16
    y.float().sum().backward()
    assert model[0].weight.grad.dtype is torch.float32
