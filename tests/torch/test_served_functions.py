"""Pooling functions that a model's own methods call: served by ours after `replace`, torch's again after `restore`."""

import copy
import functools
import pickle
import threading

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.functional import avg_pool2d as mean_of
from torch.nn.functional import max_pool2d
from torch.utils.checkpoint import checkpoint

import lunette.torch as lt
from lunette.torch import speed
from tests.torch.cases import distinct

X = (2, 3, 12, 12)


def decorated(method):
    @functools.wraps(method)
    def wrapper(*arguments):
        return method(*arguments)

    return wrapper


class Block(nn.Module):
    """Inception's ways to pool: functions in a method that `forward` calls."""

    def __init__(self, channels=3):
        super().__init__()
        self.conv, self.pool = nn.Conv2d(channels, 4, 3, padding=1), nn.MaxPool2d(3, 2, 1)

    def _branches(self, x, *, stride=2):
        y = self.conv(x)
        rows = [max_pool2d(part, 3, stride=stride, padding=1) for part in (y, -y)]

        def means_of(z):
            return mean_of(z, kernel_size=2)

        return [*rows, means_of(y), self.pool(y), F.relu(F.avg_pool2d(input=y, kernel_size=(2,)))]

    def forward(self, x):
        return torch.cat(self._branches(x), 1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.block, self.norm = Block(), nn.BatchNorm2d(20)

    def forward(self, x):
        x = self.norm(self.block(x))
        places = torch.nn.functional.max_pool2d(x, 2, return_indices=True)[1]
        x = F.lp_pool2d(x.abs() + 0.1, 2, 2) + torch.max_pool2d(x, 2) + 0.001 * places
        return F.adaptive_avg_pool2d(x, (1, None)).flatten(1)


class Odd(nn.Module):
    """Methods that are left as they are, each for a reason."""

    @decorated
    def decorated(self, x):
        return F.max_pool2d(x, 2)

    def mixed(self, x):
        self.F = 1
        return F.max_pool2d(x, 2)

    def forward(self, x):
        return self.mixed(x) + self.decorated(x) + F.avg_pool2d(x, 2)


def nodes_of(y):
    """The names of all that autograd recorded."""
    names, todo, seen = set(), [y.grad_fn], set()
    while todo:
        node = todo.pop()
        if node is not None and node not in seen:
            seen.add(node)
            names.add(node.name())
            todo += [n for n, _ in node.next_functions]
    return names


def outcome(model, x):
    x = x.clone().requires_grad_()
    y = model(x)
    (gradient,) = torch.autograd.grad(y.square().sum(), x)
    return y.detach(), gradient


def same(a, b):
    for mine, other in zip(a, b, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-10, atol=1e-12)


@pytest.fixture
def models():
    torch.manual_seed(0)
    before = Net().double().eval()
    return before, copy.deepcopy(before)


def pooling_of_torch(names):
    return {n for n in names if "Pool" in n}


def test_functions_in_every_spelling_are_served(models, way):
    before, after = models
    report = lt.replace(after)
    assert [(s.name, s.method, s.reason) for s in report.functions] == [
        ("", "forward", ""),
        ("block", "_branches", ""),
    ]
    assert report.functions[1].functions == ("avg_pool2d", "max_pool2d")
    assert "served    block: _branches calls avg_pool2d, max_pool2d" in str(report)
    same(outcome(after, distinct(X)), outcome(before, distinct(X)))
    if way == "at once":
        y = after(distinct(X).requires_grad_())
        assert not pooling_of_torch(nodes_of(y)) and any("lunette" in n for n in nodes_of(y))
    assert pooling_of_torch(nodes_of(before(distinct(X).requires_grad_())))


def test_other_models_of_the_class_are_as_before(models):
    before, after = models
    forward = Net.forward
    lt.replace(after)
    assert Net.forward is forward and type(before) is Net
    assert isinstance(after, Net) and type(after).__name__ == "Net" and type(after) is not Net
    assert (
        repr(after.norm) == repr(before.norm)
        and after.state_dict().keys() == before.state_dict().keys()
    )


def test_functions_may_be_left(models):
    _, after = models
    report = lt.replace(after, functions=False)
    assert not report.functions and type(after) is Net and len(report.replaced) == 1


def test_what_is_left_has_a_reason():
    model, x = Odd(), distinct(X)
    expected = model(x)
    report = lt.replace(model)
    reasons = {s.method: s.reason for s in report.functions}
    assert (
        reasons["decorated"] == "it is decorated" and "'F' for something else" in reasons["mixed"]
    )
    assert reasons["forward"] == "" and "left      (the model itself): decorated calls" in str(
        report
    )
    assert torch.allclose(model(x), expected)
    own = Odd()
    own.forward = lambda x: x
    assert (
        "'forward' of its own" in {s.method: s.reason for s in lt.replace(own).functions}["forward"]
    )
    assert type(own) is Odd


def test_restored_modules_are_the_same_objects(models):
    before, after = models
    modules, x = list(after.modules()), distinct(X)
    kinds = [type(m) for m in modules]
    lt.replace(after)
    after.train()
    after.block.pool.note = "kept"
    assert lt.restore(after) is after
    assert all(a is b for a, b in zip(after.modules(), modules, strict=True))
    assert [type(m) for m in after.modules()] == kinds
    assert after.block.pool.training and after.block.pool.note == "kept"
    after.eval()
    assert all(
        torch.equal(a, b) for a, b in zip(outcome(after, x), outcome(before, x), strict=True)
    )
    assert lt.restore(after) is after  # nothing is left to undo


def test_a_pooling_module_itself_is_restored():
    module = nn.MaxPool2d(2)
    after = lt.replace(module).model
    assert lt.restore(after) is module and lt.restore(module) is module


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_copies_are_served_and_restored(models, copied):
    before, after = models
    lt.replace(after)
    other = copied(after)
    assert type(other) is type(after) and type(other.block) is type(after.block)
    same(outcome(other, distinct(X)), outcome(before, distinct(X)))
    lt.restore(other)
    assert type(other) is Net and type(other.block.pool) is nn.MaxPool2d
    assert type(after) is not Net and isinstance(after.block.pool, lt.nn.MaxPool)
    same(outcome(other, distinct(X)), outcome(before, distinct(X)))


def test_modules_with_new_hooks_are_not_restored(models):
    _, after = models
    lt.replace(after)
    handle = after.block.pool.register_forward_hook(lambda *_: None)
    kept = after.block.pool
    with pytest.raises(ValueError, match=r"block\.pool has hooks"):
        lt.restore(after)
    assert after.block.pool is kept and type(after) is not Net
    handle.remove()
    assert type(lt.restore(after)) is Net


def test_checkpointed_methods(models):
    before, after = models
    lt.replace(after)
    x = distinct(X).requires_grad_()
    y = checkpoint(lambda x: torch.cat(after.block._branches(x), 1), x, use_reentrant=False)
    y.square().sum().backward()
    expected = outcome(before.block, x.detach())
    same((y.detach(), x.grad), expected)


def test_transforms_and_compilation_see_torchs_functions(models):
    before, after = models
    lt.replace(after)
    x = distinct(X)
    torch._dynamo.reset()
    compiled = torch.compile(after, backend="eager")
    same((compiled(x),), (before(x),))
    torch._dynamo.reset()
    a, b = (torch.func.vmap(m)(x[None]) for m in (after.block, before.block))
    same((a,), (b,))


# -- for a while --


def test_a_context_serves_this_thread_alone(way):
    x = distinct(X).requires_grad_()
    found = {}

    def elsewhere():
        found["other"] = F.max_pool2d(x, 2).grad_fn.name()

    with lt.replaced():
        found["inside"] = F.max_pool2d(x, 2).grad_fn.name()
        found["module"] = nn.AvgPool2d(2)(x).grad_fn.name()
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
    found["after"] = F.max_pool2d(x, 2).grad_fn.name()
    assert "lunette" not in found["other"] + found["after"]
    if way == "at once":
        assert "lunette" in found["inside"] and "lunette" in found["module"]
    with pytest.raises(ValueError, match="when="):
        lt.replaced(when="sometimes")


def test_what_ours_refuses_torch_answers():
    with lt.replaced(), pytest.raises(RuntimeError, match="pad should be at most half"):
        F.max_pool2d(distinct(X), 2, padding=2)


# -- where torch is faster --


def test_the_rule_chooses(monkeypatch, way, ours):
    for name, bound in ours.items():
        monkeypatch.setattr(speed, name, bound)
    few, some, many = (distinct((1, 2, n, n)) for n in (6, 64, 600))
    last = [x.to(memory_format=torch.channels_last) for x in (few, some, many)]
    inputs = [x.requires_grad_() for x in (few, some, *last)]
    slower = [speed.is_slower(x) for x in inputs]
    assert slower == [True, False, True, True, False]
    for when, expected in (("faster", [not s for s in slower]), ("always", [True] * 5)):
        pool = lt.replace(nn.MaxPool2d(2), when=when).model
        served = ["lunette" in pool(x).grad_fn.name() for x in inputs]
        with lt.replaced(when):
            mode = ["lunette" in F.max_pool2d(x, 2).grad_fn.name() for x in inputs]
        if way == "at once":
            assert served == mode == expected
    with pytest.raises(ValueError, match="when='now'"):
        lt.replace(nn.MaxPool2d(2), when="now")
