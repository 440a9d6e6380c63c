"""torch.fx records our modules and functions as calls of registered operators, or leaves modules whole."""

import torch
from torch import fx, nn

import lunette as ln
import lunette.torch as lt
from lunette.torch import library
from tests.torch.cases import distinct


class Net(nn.Module):
    """Modules, functions and ops on the way of one tensor."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(2, 3, 3), lt.nn.MaxPool((2, 2)))
        self.smooth = lt.nn.SmoothMaxPool((2, 2), 2.0, learnable=True)
        self.fixed = lt.nn.SmoothMaxPool((2, 2), 2.0, stride=1)
        self.indices = lt.nn.MaxPool((2, 2), stride=1, return_indices=True)
        self.mean = lt.nn.GlobalAvgPool(2, keepdims=False)

    def forward(self, x):
        x = self.fixed(self.smooth(self.stem(x)))
        y, places = self.indices(x)
        y = ln.avg_pool(y, (2, 2), stride=1, padding=1) + ln.MaxPool((1, 1))(y).sum()
        return self.mean(y), places


def test_symbolic_tracing_records_operators():
    torch.manual_seed(0)
    model, x = Net(), distinct((2, 2, 20, 20), torch.float32)
    traced = fx.symbolic_trace(model)
    called = [n.target for n in traced.graph.nodes if n.op == "call_function"]
    assert called.count(library.pool) == 6 and called.count(library.pool_with_indices) == 1
    for ours, theirs in zip(traced(x), model(x), strict=True):
        assert torch.equal(ours, theirs)
    traced(x)[0].sum().backward()
    expected = torch.autograd.grad(model(x)[0].sum(), list(model.parameters()))
    # The traced model has the parameters of the model.
    for parameter, gradient in zip(model.parameters(), expected, strict=True):
        assert torch.equal(parameter.grad, gradient)


def test_modules_may_stay_whole():
    class Tracer(fx.Tracer):
        def is_leaf_module(self, m, name):
            return isinstance(m, lt.nn.Pool) or super().is_leaf_module(m, name)

    model, x = Net(), distinct((2, 2, 20, 20), torch.float32)
    graph = Tracer().trace(model)
    whole = {n.target for n in graph.nodes if n.op == "call_module"}
    assert whole == {"stem.0", "stem.1", "smooth", "fixed", "indices", "mean"}
    assert torch.equal(fx.GraphModule(model, graph)(x)[0], model(x)[0])


def test_replaced_models_are_traced():
    model = nn.Sequential(nn.Conv2d(2, 3, 3), nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(1))
    lt.replace(model)
    x = distinct((1, 2, 9, 9), torch.float32)
    assert torch.equal(fx.symbolic_trace(model)(x), model(x))
